//! The lints: named findings about files that are valid.
//!
//! Each is a row of [`LINTS`]. Some are found where files are read or tried, and have no check of
//! their own here. A comment `# aside: allow(NAME)` silences a lint at its line and at the next one.

mod allow;
mod constant_where;
mod ends_early;
mod event_field;
mod lint;
mod literal_count;
mod lost_key;
pub mod matched;
mod missing_somewhere;
mod narrower_core;
mod never_passes;
mod no_effect;
mod no_equal;
mod page;
mod plain_text;
pub mod report;
mod resolves_itself;
mod same_events;
mod subject;
mod unknown_field;
mod unknown_subscriber;
mod unknown_type;
mod untested;
mod unused_allow;
mod unused_file;

use engine::nearest::nearest;

pub use self::lint::{Lint, LintLevel};
pub use crate::config::lint_name::LintName;

/// All lints, by name.
pub const LINTS: [&Lint; 19] = [
    &constant_where::LINT,
    &ends_early::LINT,
    &event_field::LINT,
    &literal_count::LINT,
    &lost_key::LINT,
    &missing_somewhere::LINT,
    &narrower_core::LINT,
    &never_passes::LINT,
    &no_effect::LINT,
    &no_equal::LINT,
    &plain_text::LINT,
    &resolves_itself::LINT,
    &same_events::LINT,
    &unknown_field::LINT,
    &unknown_subscriber::LINT,
    &unknown_type::LINT,
    &untested::LINT,
    &unused_allow::LINT,
    &unused_file::LINT,
];

impl Lint {
    /// The lint with this name.
    ///
    /// Errors: there is none; a sentence with the nearest name.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        LINTS.into_iter().find(|lint| lint.name.as_str() == name).ok_or_else(|| {
            let meant = nearest(name, LINTS.map(|lint| lint.name.as_str()));
            let hint = meant.map_or_else(
                || format!("the lints are {}", LINTS.map(|lint| lint.name.as_str()).join(", ")),
                |meant| format!("did you mean `{meant}`?"),
            );
            format!("there is no lint `{name}`; {hint}")
        })
    }
}

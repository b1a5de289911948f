//! What a row of the table of lints says.

use super::subject::Subject;
use crate::config::report::Diagnostic;

pub(super) use crate::config::lint_name::LintName;

/// A row of the table.
pub struct Lint {
    /// The name.
    pub name: LintName,
    /// The level of the findings.
    pub level: LintLevel,
    /// The findings, as a fragment.
    pub finds: &'static str,
    /// The reason to correct them.
    pub why: &'static str,
    /// Files with the finding, and files without it.
    pub example: Example,
    pub(super) check: Check,
}

/// The level of a lint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LintLevel {
    /// The file is refused, so the finding cannot be allowed.
    Refused,
    /// A finding that fails a check.
    Error,
    /// A finding that does not.
    Warning,
    /// Not looked for, unless it is denied.
    Off,
}

impl LintLevel {
    /// The word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused | Self::Error => "error",
            Self::Warning => "warning",
            Self::Off => "off",
        }
    }
}

/// Files of a layer, by their names, with a finding and without it.
pub struct Example {
    /// With the finding.
    pub wrong: &'static [(&'static str, &'static str)],
    /// Without any.
    pub right: &'static [(&'static str, &'static str)],
}

/// What finds it.
pub(super) enum Check {
    /// The readers of files, a dry run of a text, or the allowances.
    Elsewhere,
    /// A function of each subscriber; the others are there to be compared.
    Subscriber(fn(&Subject<'_>, &[Subject<'_>]) -> Vec<Diagnostic>),
}

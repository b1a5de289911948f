//! `unknown-subscriber`: found when all subscribers are read.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::UnknownSubscriber,
    level: LintLevel::Warning,
    finds: "a mute of `aside.toml` that names no subscriber",
    why: "Such a mute never acts. The name is mostly misspelt, or its subscriber is no longer there.",
    example: Example {
        wrong: &[("aside.toml", "[[delivery.mute]]\nsubscriber = \"ci_chek\"\n")],
        right: &[("aside.toml", "[[delivery.mute]]\nsubscriber = \"ci_check\"\n")],
    },
    check: Check::Elsewhere,
};

//! A notice for the user as a template asks for it, its level and its category.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::event::Severity;

/// Most notices of one template; the last one includes the number of omitted ones.
pub const WORDS_MAX: usize = 3;

/// A notice for the user, from a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateNotice {
    /// The text, as the template returned it; not blank.
    pub message: String,
    /// The level.
    pub level: Level,
    /// The category.
    pub category: Option<Category>,
    /// The link to open.
    pub link: Option<String>,
}

impl_as_str!(Level, Category);

/// The level of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Level {
    /// For information.
    #[default]
    Info,
    /// Needs attention.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// Parses the level; `info` if the text is unknown.
    pub fn read(word: &str) -> Self {
        match word.trim().to_ascii_lowercase().as_str() {
            "warn" | "warning" => Self::Warn,
            "error" => Self::Error,
            _ => Self::Info,
        }
    }

    /// The level that corresponds to a severity.
    pub const fn of(severity: Severity) -> Self {
        match severity {
            Severity::Debug | Severity::Info => Self::Info,
            Severity::Warning => Self::Warn,
            Severity::Error | Severity::Critical => Self::Error,
        }
    }

    /// The severity of an event with this level.
    pub const fn severity(self) -> Severity {
        match self {
            Self::Info => Severity::Info,
            Self::Warn => Severity::Warning,
            Self::Error => Severity::Error,
        }
    }
}

/// The topic of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Category {
    /// The meaning of something.
    Analysis,
    /// The progress of the work.
    Workflow,
    /// A possible harm.
    Safety,
    /// High use of time or resources.
    Performance,
    /// A finding.
    Discovery,
}

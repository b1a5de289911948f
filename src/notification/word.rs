//! Word for the user, as its author gives it: a text, how bad it is, what it is about, what to
//! open.

use serde::{Deserialize, Serialize};

use crate::event::Severity;

/// Most notices of one template; the last one says how many more there were.
pub const WORDS_MAX: usize = 3;

/// What a template says to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its text, as the template gave it; not blank.
    pub message: String,
    /// How bad it is.
    pub level: Level,
    /// What it is about.
    pub category: Option<Category>,
    /// What to open; a link.
    pub link: Option<String>,
}

/// How bad a notice is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// To know.
    #[default]
    Info,
    /// To look at.
    Warn,
    /// Something failed.
    Error,
}

impl Level {
    /// All levels, least first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warn, Self::Error];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// The level that a word means; `info` for any that means none.
    pub fn read(word: &str) -> Self {
        match word.trim().to_ascii_lowercase().as_str() {
            "warn" | "warning" => Self::Warn,
            "error" => Self::Error,
            _ => Self::Info,
        }
    }

    /// The level of what is that severe.
    pub const fn of(severity: Severity) -> Self {
        match severity {
            Severity::Debug | Severity::Info => Self::Info,
            Severity::Warning => Self::Warn,
            Severity::Error | Severity::Critical => Self::Error,
        }
    }

    /// The severity of an event of that level.
    pub const fn severity(self) -> Severity {
        match self {
            Self::Info => Severity::Info,
            Self::Warn => Severity::Warning,
            Self::Error => Severity::Error,
        }
    }
}

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// What something means.
    Analysis,
    /// How the work goes on.
    Workflow,
    /// What could do harm.
    Safety,
    /// What takes long or much.
    Performance,
    /// What was found.
    Discovery,
}

impl Category {
    /// All categories.
    pub const ALL: [Self; 5] =
        [Self::Analysis, Self::Workflow, Self::Safety, Self::Performance, Self::Discovery];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Analysis => "analysis",
            Self::Workflow => "workflow",
            Self::Safety => "safety",
            Self::Performance => "performance",
            Self::Discovery => "discovery",
        }
    }
}

//! What became known of a push.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Outcome of the checks of a branch that a session pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// When they ended.
    pub at: Timestamp,
    /// The branch, if it is known.
    pub branch: Option<String>,
    /// The outcome, in a few words.
    pub ended: String,
}

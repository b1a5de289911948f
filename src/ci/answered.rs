//! The events about follows that the program makes itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Outcome;
use crate::event::OWN_SOURCE;

/// The type of the event with a follow's commit; its payload is a [`Found`](super::Found).
pub const FOLLOWED: &str = "ci.followed";
/// The type of the event with an answer; its payload is an [`Answered`].
pub const ANSWERED: &str = "ci.answered";
/// The source of these events; events of other sources have no effect.
pub const SOURCE: &str = OWN_SOURCE;

/// An answer; the payload of an [`ANSWERED`] event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Its follow.
    pub follow: Arc<str>,
    /// The number of the call, from 1.
    pub call: u32,
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

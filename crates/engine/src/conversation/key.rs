//! The name of a session inside the program.

use serde::{Deserialize, Serialize};

/// Identifies a known session.
///
/// Shape: counted from 1, in the order in which sessions are first opened, and never reused; 0 is
/// not assigned yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(pub(super) u64);

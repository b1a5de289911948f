//! The clock that a journal reads.

use std::sync::Arc;

use crate::time::Timestamp;

/// Reads the time; a time before the last one is not used.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

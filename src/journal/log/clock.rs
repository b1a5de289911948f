//! The clock that a journal reads.

use std::sync::Arc;

use crate::time::Timestamp;

/// Reads the time; what it says is used only where it does not step back.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

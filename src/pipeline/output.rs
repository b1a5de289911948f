//! The outputs of a pipeline.

use std::sync::Arc;

use crate::{
    event::Seq,
    ledger::Reason,
    notification::{Notification, Word},
    pipeline::failure::Failure,
};

/// The outcome of events, and failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineOutput {
    /// A batch closed and was rendered.
    Notification(Arc<Notification>),
    /// The template of a notification, which came before this, says something to the user.
    Said {
        /// Which notification.
        notification: Arc<Notification>,
        /// Which of what it says, from 1.
        number: usize,
        /// What.
        word: Word,
    },
    /// The event is a row of an open batch. An event whose batch closes at once is in the
    /// notification only.
    Batched {
        /// The event.
        seq: Seq,
    },
    /// The event has no row and will have none.
    Ended {
        /// The event.
        seq: Seq,
        /// Why.
        reason: Reason,
    },
    /// The author's template or `where` failed; what to publish as `subscriber.failed`. A place is
    /// reported once, and again only after it succeeded, at most once a minute.
    Failed(Failure),
}

//! The outputs of a pipeline.

use std::sync::Arc;

use crate::{
    event::Seq,
    ledger::Reason,
    notification::{Notification, Word},
    pipeline::failure::Failure,
};

/// An outcome of events, or a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineOutput {
    /// A batch closed and was rendered.
    Notification(Arc<Notification>),
    /// The template of the preceding notification has a notice for the user.
    Said {
        /// The notification.
        notification: Arc<Notification>,
        /// The number of the notice, from 1.
        number: usize,
        /// The notice.
        word: Word,
    },
    /// The event is a row of an open batch. An event whose batch closes at once is only in the
    /// notification.
    Batched {
        /// The event.
        seq: Seq,
    },
    /// The event has no row and will get none.
    Ended {
        /// The event.
        seq: Seq,
        /// The reason.
        reason: Reason,
    },
    /// A part that the author wrote failed; publish it as `subscriber.failed`. A place is reported
    /// once, and again only after it succeeded, at most once a minute.
    Failed(Failure),
}

//! The region of a session: what is true now, as data. [`crate::format::region`] writes it.
//!
//! The conditions and retained states are notifications. The newest changes of files and the state of
//! the editor are two folds over events, which keep little and for few scopes. They keep what an
//! untrusted source reports apart, so it neither replaces nor ends what a trusted one reports.

mod editor;
mod files;
mod scoped;

use std::sync::Arc;

pub use self::{
    editor::{Editor, OpenFile, Problem},
    files::{ChangedFiles, FileChange},
};
use crate::notification::Notification;

/// What is true for a session at a position of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Region {
    /// The folder of the session; paths below it are written from there.
    pub folder: Option<Arc<str>>,
    /// The conditions that hold: the most urgent first, then the newest.
    pub conditions: Vec<Fact>,
    /// Number of conditions beyond [`Self::conditions`].
    pub more_conditions: u64,
    /// Number of conditions of any session that are not known any more, because there were too many.
    pub forgotten: u64,
    /// The retained states, the newest first.
    pub retained: Vec<Fact>,
    /// Number of retained states beyond [`Self::retained`].
    pub more_retained: u64,
    /// The file that the editor shows.
    pub open: Option<OpenFile>,
    /// The problems in files that the editor knows of, the worst first.
    pub problems: Vec<Problem>,
    /// Number of problems beyond [`Self::problems`].
    pub more_problems: u64,
    /// The newest changes of files, the newest first.
    pub files: Vec<FileChange>,
}

/// A notification in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// The notification; its conditions are those that hold.
    pub notification: Arc<Notification>,
    /// Number of its conditions when it was made; 0 for a retained state.
    pub made_of: u32,
}

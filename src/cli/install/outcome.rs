//! The result of planning an installation or removal.

use std::path::PathBuf;

use super::plan::Plan;

/// The planned changes and messages.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) is_dry_run: bool,
    pub(super) plan: Plan,
    pub(super) notes: Vec<String>,
    pub(super) next: Vec<(String, String)>,
    /// Folders to delete if they are empty afterwards, and the ancestors at which to stop.
    pub(super) emptied: Vec<(PathBuf, PathBuf)>,
}

impl Outcome {
    pub(super) fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    /// Adds the next commands, each with its effect.
    pub(super) fn next(&mut self, steps: &[(&str, &str)]) {
        self.next = steps.iter().map(|(step, what)| ((*step).to_owned(), (*what).to_owned())).collect();
    }
}

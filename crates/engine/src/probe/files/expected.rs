//! Files that the session's calls wrote: whether each has what the calls say. A difference was made
//! by somebody else, such as a formatter, before the look.

use std::sync::Arc;

use super::{
    Look,
    known::{File, Observed, State},
};
use crate::{
    call::{TouchKind, written::is_same_content},
    probe::facts::ContentHash,
};

impl Look<'_> {
    /// Compares a noted file that a call wrote, as it was observed, with what the calls say of it.
    pub(super) fn compare_with_calls(&mut self, path: &Arc<str>, observed: Observed) {
        let Observed::Present { print, hash: Some(present) } = observed else { return };
        let Some(expected) = self.expected(path, present) else { return };
        let Some(Some(file)) = self.looked.noted.0.get(path) else { return };
        let state = State::Present { print, hash: Some(expected), is_racy: true };
        let file = File { state, read: Some(expected), ..file.clone() };
        self.looked.noted.0.insert(Arc::clone(path), Some(file.clone()));
        self.compare_with(path, &file, observed);
    }

    /// The content that the session believes a file to have after its calls, if it has another one.
    /// Only texts that are kept are compared.
    fn expected(&self, path: &str, present: ContentHash) -> Option<ContentHash> {
        let known = self.known.files.get(path).map(|file| &file.state);
        let mut contents: Vec<String> = match known {
            Some(State::Present { hash: Some(hash), .. }) => {
                self.facts.kept(*hash).map(|text| text.to_string()).into_iter().collect()
            }
            Some(State::Present { hash: None, .. } | State::Absent) | None => Vec::new(),
        };
        let touched = self.moment.calls.iter().flat_map(|call| &call.touched);
        for touch in touched.filter(|touch| *touch.path == *path) {
            contents = match (touch.by, &touch.written) {
                (TouchKind::Written, Some(written)) => {
                    let before = contents.first().map(String::as_str);
                    written.after(before)
                }
                // The session saw the present content, or one that is not known.
                (TouchKind::Read | TouchKind::Shown | TouchKind::Written, _) => Vec::new(),
            };
        }
        let present = self.facts.kept(present)?;
        if contents.iter().any(|content| is_same_content(content, &present)) {
            return None;
        }
        let expected = contents.first()?;
        let hash = ContentHash::of(expected.as_bytes());
        self.facts.remember(hash, expected);
        Some(hash)
    }
}

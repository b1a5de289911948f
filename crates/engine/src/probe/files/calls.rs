//! Changes of files next to the session's calls: who made a change, whether a file has what the calls
//! wrote, and whether a call would overwrite a change.
//!
//! A call is deferred once if it would overwrite a file that another process changed after the agent
//! read it. The user has to enable this. The agent may read the file again, or repeat the call, which
//! then overwrites the change. If a file differs from what the calls wrote, somebody else made the
//! difference, such as a formatter, before the look.
//!
//! The author of a change is another session, the agent's own command, git, or unknown. Another
//! session is identified exactly, an own command by its text and the time, git by its probe. An
//! unknown author is never named. A change that the agent's own command may have made is not
//! reported to it.

use std::{path::Path, sync::Arc};

use super::{
    Entry, Fingerprint, Given, Known, Look, Looked, Moment,
    known::{Author, Change, File, Guard, Observed, RACY_MS, State},
};
use crate::{
    call::{TouchKind, command, is_same_content},
    event::Severity,
    notification::InjectionPoint,
    probe::{
        Facts,
        facts::{ContentHash, name_towards},
    },
};

/// Checks the files that the calls are about to write.
pub(in crate::probe) fn look(
    known: &Known,
    moment: &Moment<'_>,
    given: &Given<'_>,
    facts: &dyn Facts,
) -> Looked {
    if !given.settings.enabled || given.settings.guard == Guard::Off {
        return Looked::default();
    }
    let mut look = Look::new(known, moment, given, facts);
    let touched = moment.calls.iter().flat_map(|call| &call.touched);
    for touch in touched.filter(|touch| touch.by == TouchKind::Written) {
        let Some(file) = known.files.get(&touch.path) else { continue };
        let observed = match facts.entry(Path::new(&*touch.path)) {
            Entry::File(print) => look.present(&touch.path, print),
            Entry::Absent | Entry::Folder | Entry::Other | Entry::Unknown => continue,
        };
        let change = look.change(&touch.path, file, observed);
        if change.is_none() && (!file.is_announced || file.is_held) {
            continue;
        }
        let author = match change.is_some().then(|| look.author(&touch.path, observed)) {
            Some(Author::Own) => continue,
            Some(author @ Author::Other(_)) => author,
            Some(Author::Unknown { .. }) | None => Author::Unknown { during_a_command: false },
        };
        let change = change.unwrap_or(Change::Modified);
        look.announce(&touch.path, file, &change, observed, &author);
        if let Some(finding) = look.looked.findings.last_mut() {
            (finding.event_type, finding.severity) = ("fs.write.held", Severity::Critical);
        }
        if let Some(Some(file)) = look.looked.noted.0.get_mut(&touch.path) {
            file.is_held = true;
        }
    }
    look.looked
}

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
                    written.contents_after(before)
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

impl Look<'_> {
    pub(super) fn author(&self, path: &Arc<str>, observed: Observed) -> Author {
        // For a deleted file, only the time identifies the deletion.
        let is_recent = |heard_at| observed != Observed::Absent || heard_at >= self.given.heard_at;
        let writer = self
            .moment
            .others
            .iter()
            .find(|other| is_recent(other.heard_at) && other.files.wrote(path, &observed));
        if let Some(writer) = writer {
            return Author::Other(name_towards(self.moment.session, writer.session));
        }
        if self.is_said_by_a_result(path) {
            return Author::Own;
        }
        let is_older = match observed {
            // Unknown for a deleted file.
            Observed::Absent => false,
            Observed::Present { print, .. } => self.is_older(&print),
        };
        let ran_meanwhile = self.moment.point == InjectionPoint::AfterTool && !is_older;
        let mut commands = self.moment.calls.iter().filter_map(|call| call.command.as_deref()).peekable();
        let during_a_command = ran_meanwhile && commands.peek().is_some();
        if during_a_command && commands.any(command::may_write) {
            return Author::Own;
        }
        Author::Unknown { during_a_command }
    }

    /// Whether a result names the file as changed by the call: by its path, or by the end of the
    /// path.
    fn is_said_by_a_result(&self, path: &str) -> bool {
        let is_end = |said: &String| {
            path.strip_suffix(said.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        self.moment.calls.iter().flat_map(|call| &call.said_changed).any(is_end)
    }

    /// Whether a file was changed before any of the calls began.
    ///
    /// Source: `ctime` is set by the kernel at each change, not by programs, and may lag the clock
    /// by [`RACY_MS`].
    fn is_older(&self, print: &Fingerprint) -> bool {
        let changed_ms = u64::try_from(print.changed_ns / 1_000_000).unwrap_or(0);
        changed_ms.saturating_add(RACY_MS) < self.given.calls_since.as_millis()
    }
}

//! The author of a file change: another session, the agent's own command, git, or unknown.
//!
//! Another session is identified exactly, an own command by its text and the time, git by its
//! probe. An unknown author is never named. A change that the agent's own command may have made is
//! not reported to it.

use std::sync::Arc;

use super::{
    super::finding::name_towards,
    Fingerprint, Look, Observed,
    change::{Author, RACY_MS},
};
use crate::{call::command, notification::InjectionPoint};

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

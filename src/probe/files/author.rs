//! Who changed a file: another session exactly, the agent's own command as far as its words and the time tell, git as its probe
//! says, else nobody who is known.
//!
//! Who is not known is never named. A change that the agent's own command may have made is not announced to it.

use std::sync::Arc;

use super::{super::name_towards, Fingerprint, Look, Observed, RACY_MS};
use crate::{call::command, notification::InjectionPoint};

/// Who changed a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Author {
    /// The agent itself.
    Own,
    /// Another session; its name, for a reader.
    Other(String),
    /// Nobody knows.
    Unknown {
        /// A command of the agent ran meanwhile that has nothing to do with it.
        during_a_command: bool,
    },
}

impl Look<'_> {
    pub(super) fn author(&self, path: &Arc<str>, observed: Observed) -> Author {
        // Of what is gone only the time tells which of several ends it was.
        let is_recent = |heard_at| observed != Observed::Absent || heard_at >= self.given.heard_at;
        let writer = self
            .moment
            .others
            .iter()
            .find(|other| is_recent(other.known.heard_at) && other.known.files.wrote(path, &observed));
        if let Some(writer) = writer {
            return Author::Other(name_towards(self.moment.session, &writer.session));
        }
        if self.is_said_by_a_result(path) {
            return Author::Own;
        }
        let is_older = match observed {
            // Of one that is gone nobody knows.
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

    /// Whether a result names the file as one that the call has changed: by its path, or by the end of it.
    fn is_said_by_a_result(&self, path: &str) -> bool {
        let is_end = |said: &String| {
            path.strip_suffix(said.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        self.moment.calls.iter().flat_map(|call| &call.said_changed).any(is_end)
    }

    /// Whether a file was changed before any of the calls began.
    ///
    /// Source: `ctime` is set by the kernel at each change, cannot be set by a program, and may be behind the clock by [`RACY_MS`].
    fn is_older(&self, print: &Fingerprint) -> bool {
        let changed_ms = u64::try_from(print.changed_ns / 1_000_000).unwrap_or(0);
        changed_ms.saturating_add(RACY_MS) < self.given.calls_since.as_millis()
    }
}

//! The process of each session.

use std::collections::{BTreeSet, HashSet};

use dashmap::{DashMap, DashSet};
use tokio::sync::Notify;

use crate::{event::SessionId, harness::process::Process, source::process::running};

/// Most remembered sessions without a process of their own that one client's processes opened; a
/// further one has to name its process.
const OPENED_MAX: usize = 256;

/// The process of each session, if known.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    by_session: DashMap<SessionId, Process>,
    /// The sessions of each process in `by_session`.
    by_process: DashMap<Process, BTreeSet<SessionId>>,
    /// The sessions without a known process that a process below this client opened.
    opened: DashMap<Process, BTreeSet<SessionId>>,
    /// Processes whose end the system reports: their ids cannot be reused before that, so they need
    /// no further checks.
    pub(super) watched: DashSet<Process>,
    pub(super) changed: Notify,
}

impl Processes {
    /// Records that the session runs in `process`.
    pub(crate) fn know(&self, session: &SessionId, process: Process) {
        let before = self.by_session.insert(session.clone(), process);
        if before == Some(process) {
            return;
        }
        if let Some(before) = before {
            self.leave(session, before);
        }
        self.by_process.entry(process).or_default().insert(session.clone());
        self.changed.notify_one();
    }

    fn leave(&self, session: &SessionId, process: Process) {
        if let Some(mut sessions) = self.by_process.get_mut(&process) {
            sessions.remove(session);
        }
        self.by_process.remove_if(&process, |_, sessions| sessions.is_empty());
    }

    /// Whether no process is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_process.is_empty()
    }

    /// Whether the session's process is known and has not ended.
    pub(crate) fn runs(&self, session: &SessionId) -> bool {
        self.process_of(session).is_some_and(|known| self.running(session, known.pid).is_some())
    }

    /// Records that a process below `client` opened `session`, without a process of its own.
    pub(crate) fn note_opened(&self, client: Process, session: &SessionId) {
        let mut opened = self.opened.entry(client).or_default();
        if opened.len() < OPENED_MAX {
            opened.insert(session.clone());
        }
    }

    /// Whether a process below `client` opened `session`.
    pub(crate) fn has_opened(&self, client: Process, session: &SessionId) -> bool {
        self.opened.get(&client).is_some_and(|opened| opened.contains(session))
    }

    /// The session's process, if it has the id `pid` and has not ended.
    pub(super) fn running(&self, session: &SessionId, pid: u32) -> Option<Process> {
        let known = self.process_of(session).filter(|known| known.pid == pid)?;
        (self.watched.contains(&known) || running(pid) == Some(known)).then_some(known)
    }

    /// The process of the session.
    pub(crate) fn process_of(&self, session: &SessionId) -> Option<Process> {
        self.by_session.get(session).map(|process| *process)
    }

    /// Forgets an ended session; its process may run on.
    pub(crate) fn forget(&self, session: &SessionId) {
        if let Some((_, process)) = self.by_session.remove(session) {
            self.leave(session, process);
            if !self.by_process.contains_key(&process) {
                self.opened.remove(&process);
            }
        }
    }

    /// Requests a check of the processes beyond the bound of watched ones.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    pub(super) fn all(&self) -> HashSet<Process> {
        self.by_process.iter().map(|entry| *entry.key()).collect()
    }

    pub(super) fn sessions_of(&self, process: Process) -> Vec<SessionId> {
        self.by_process.get(&process).map(|own| own.iter().cloned().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_process_whose_end_is_reported_nothing_is_read() {
        let (processes, session) = (Processes::default(), SessionId::new("s1"));
        // No process has this start time, so every check finds it ended.
        let process = Process { started: 1, ..running(std::process::id()).expect("this one") };
        processes.know(&session, process);
        assert_eq!(processes.running(&session, process.pid), None);
        processes.watched.insert(process);
        assert_eq!(processes.running(&session, process.pid), Some(process));
        assert_eq!(processes.running(&session, process.pid + 1), None);
        assert_eq!(processes.running(&SessionId::new("s2"), process.pid), None);
    }
}

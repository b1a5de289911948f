//! The process of each session.

use std::collections::HashSet;

use dashmap::{DashMap, DashSet};
use tokio::sync::Notify;

use crate::{event::SessionId, harness::process::Process, source::process::running};

/// The process of each session, if known.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    by_session: DashMap<SessionId, Process>,
    /// Processes whose end the system reports: their ids cannot be reused before that, so they need
    /// no further checks.
    pub(super) watched: DashSet<Process>,
    pub(super) changed: Notify,
}

impl Processes {
    /// Records that the session runs in `process`.
    pub(crate) fn know(&self, session: &SessionId, process: Process) {
        if self.by_session.insert(session.clone(), process) != Some(process) {
            self.changed.notify_one();
        }
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
        self.by_session.remove(session);
    }

    /// Requests a check of the processes beyond the bound of watched ones.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    pub(super) fn all(&self) -> HashSet<Process> {
        self.by_session.iter().map(|entry| *entry.value()).collect()
    }

    pub(super) fn sessions_of(&self, process: Process) -> Vec<SessionId> {
        let own = self.by_session.iter().filter(|entry| *entry.value() == process);
        let mut sessions: Vec<SessionId> = own.map(|entry| entry.key().clone()).collect();
        sessions.sort_unstable();
        sessions
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

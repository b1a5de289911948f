//! The process of each session.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU64, Ordering},
};

use dashmap::{DashMap, DashSet};
use engine::{event::SessionId, sorted::SortedSet};
use tokio::sync::Notify;

use crate::{capability::source::process::running, harness::process::Process};

/// Most remembered sessions without a process of their own that one client's processes opened; a
/// further one has to name its process.
const OPENED_MAX: usize = 256;

/// Most remembered processes that belong to no session; beyond it they are forgotten together.
const OUTSIDE_MAX: usize = 1_024;

/// The process of each session, if known.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    by_session: DashMap<SessionId, Process>,
    /// The sessions of each process in `by_session`.
    by_process: DashMap<Process, SortedSet<SessionId>>,
    /// The sessions without a known process that a process below this client opened.
    opened: DashMap<Process, SortedSet<SessionId>>,
    /// How often a process became that of a session.
    clients: AtomicU64,
    /// Processes that belong to no session, nor does one above them; with the value of `clients` for
    /// which this was found.
    outside: DashMap<Process, u64>,
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
        // After the entry, so that who reads the new value finds the session.
        self.clients.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// How often a process became that of a session.
    pub(super) fn clients(&self) -> u64 {
        self.clients.load(Ordering::SeqCst)
    }

    /// Records that no process of `line`, each of which is above the one before it, belongs to a
    /// session. `clients`: their number before this was found.
    pub(super) fn note_outside(&self, line: impl Iterator<Item = Process>, clients: u64) {
        if self.outside.len() >= OUTSIDE_MAX {
            self.outside.clear();
        }
        for process in line {
            self.outside.insert(process, clients);
        }
    }

    /// Whether `process` and those above it are known to belong to no session.
    pub(super) fn is_outside(&self, process: Process) -> bool {
        self.outside.get(&process).is_some_and(|clients| *clients == self.clients())
    }

    fn leave(&self, session: &SessionId, process: Process) {
        if let Some(mut sessions) = self.by_process.get_mut(&process) {
            sessions.remove(session);
        }
        self.by_process.remove_if(&process, |_, sessions| sessions.is_empty());
    }

    /// Whether no process is known.
    pub(crate) fn is_empty(&self) -> bool {
        // The count first: the map has a lock for each of its parts.
        self.clients() == 0 || self.by_process.is_empty()
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

    /// The sessions that processes below `client` opened.
    pub(crate) fn opened_by(&self, client: Process) -> Vec<SessionId> {
        self.opened.get(&client).map(|opened| opened.iter().cloned().collect()).unwrap_or_default()
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
    fn a_process_is_outside_without_a_client() {
        let processes = Processes::default();
        let [shell, command, client] = [1, 2, 3].map(|pid| Process { pid, started: 1 });
        let clients = processes.clients();
        processes.note_outside([command, shell].into_iter(), clients);
        assert!(processes.is_outside(command) && processes.is_outside(shell));
        assert!(!processes.is_outside(Process { started: 2, ..shell }), "its number was used again");
        processes.know(&SessionId::new("s1"), client);
        assert!(!processes.is_outside(command) && !processes.is_outside(shell));
        // The search began before there was the client.
        processes.note_outside([command].into_iter(), clients);
        assert!(!processes.is_outside(command));
        processes.note_outside([command].into_iter(), processes.clients());
        processes.know(&SessionId::new("s1"), client);
        assert!(processes.is_outside(command), "nothing is new");
        let many = (0..2_000).map(|pid| Process { pid, started: 9 });
        many.for_each(|one| processes.note_outside([one].into_iter(), processes.clients()));
        assert!(processes.outside.len() <= OUTSIDE_MAX);
    }

    #[test]
    fn watched_process_needs_no_further_checks() {
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

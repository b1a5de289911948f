//! Limits of the operating system for this process.

use std::{fs, path::Path};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

/// Most memory of a child that replays a journal: four times what the largest state takes.
const REPLAY_BYTES_MAX: u64 = 2 << 30;
/// Most processor time of that child, in seconds.
const REPLAY_SECONDS_MAX: u64 = 120;

/// Raises the limit of open files to its maximum.
///
/// Every journal file is held open, some hundreds after a month, and so is every connection; a
/// process may raise its own limit, which usually is 1,024.
pub(super) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "the limit of open files is unchanged");
    }
}

/// Sets the limits of a child that replays a journal: memory below what makes the system kill a
/// process, so that it ends by itself; processor time; and the life of its parent.
pub(super) fn bound_replay() {
    let bytes = memory_of_cgroup().map_or(REPLAY_BYTES_MAX, |max| REPLAY_BYTES_MAX.min(max / 4 * 3));
    for (resource, most) in
        [(Resource::Data, bytes), (Resource::Cpu, REPLAY_SECONDS_MAX), (Resource::Core, 0)]
    {
        let Rlimit { current, maximum } = getrlimit(resource);
        let most = current.map_or(most, |current| current.min(most));
        if let Err(error) = setrlimit(resource, Rlimit { current: Some(most), maximum }) {
            tracing::warn!(%error, ?resource, "a limit of the replay is not set");
        }
    }
    // An orphan would keep the state folder locked.
    set_parent_process_death_signal(Some(Signal::KILL)).ok();
}

/// The smallest limit of memory of this process's cgroups (version 2), in bytes.
fn memory_of_cgroup() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let folder = root.join(path);
    let within = folder.ancestors().take_while(|folder| folder.starts_with(root));
    within.filter_map(|folder| fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse().ok()).min()
}

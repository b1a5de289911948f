//! Limits of the operating system for this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

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

//! Reads and writes with a deadline, without an extra thread.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        sockopt::{Timeout, set_socket_timeout, socket_peercred},
    },
    process::{Uid, geteuid},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(Option<Instant>);

/// A reader or writer with a deadline; after it, a read, or a write that must wait, is an error.
#[derive(Debug)]
pub(super) struct Timed<F> {
    file: F,
    deadline: Deadline,
}

impl Deadline {
    /// A deadline after `duration` from now.
    #[expect(clippy::disallowed_methods, reason = "a harness waits for this process")]
    pub(super) fn within(duration: Duration) -> Self {
        Self(Some(Instant::now() + duration))
    }

    pub(super) const fn never() -> Self {
        Self(None)
    }

    /// Whether more than `duration` is left.
    pub(super) fn has_more_than(self, duration: Duration) -> bool {
        self.left().is_ok_and(|left| left.is_none_or(|left| left > duration))
    }

    /// The remaining time; `None` without a deadline.
    ///
    /// Errors: no time is left.
    #[expect(clippy::disallowed_methods, reason = "a harness waits for this process")]
    fn left(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl<F: AsFd> Timed<F> {
    pub(super) fn new(file: F, deadline: Deadline) -> Self {
        Self { file, deadline }
    }

    /// Waits until one of `flags` is set, or the peer has closed.
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        loop {
            let left = self.deadline.left()?.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.file, flags)], left.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Timed<UnixStream> {
    /// Connects to a process of this user; waits while the listener's backlog is full.
    ///
    /// Errors: also `PermissionDenied` if another user listens there, before anything is sent:
    /// requests are private, and answers enter an agent's context.
    pub(super) fn connect(path: &Path, deadline: Deadline) -> io::Result<Self> {
        let socket = unix_socket(SocketFlags::CLOEXEC)?;
        set_socket_timeout(&socket, Timeout::Send, deadline.left()?)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        if !is_own(socket_peercred(&socket)?.uid) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user listens there"));
        }
        let file = UnixStream::from(socket);
        file.set_nonblocking(true)?;
        Ok(Self::new(file, deadline))
    }
}

impl<F> Timed<F> {
    /// The reader or writer.
    pub(super) fn into_inner(self) -> F {
        self.file
    }

    /// Sets the deadline of later calls.
    pub(super) fn set_deadline(&mut self, deadline: Deadline) {
        self.deadline = deadline;
    }
}

/// Whether the deadline of a call has passed.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Whether nothing listens at `path`; does not wait.
pub(super) fn is_absent(path: &Path) -> bool {
    let attempt = || {
        let socket = unix_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    // Any other error, such as a full backlog, means that there is a listener.
    matches!(attempt(), Err(Errno::NOENT | Errno::CONNREFUSED))
}

fn unix_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Whether `uid` is the user of this process.
fn is_own(uid: Uid) -> bool {
    uid == geteuid()
}

impl<F: AsFd> Read for Timed<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::IN)?;
            match rustix::io::read(&self.file, &mut *buffer) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }
}

impl<F: AsFd> Write for Timed<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(&self.file, bytes) {
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::client::fake::Scratch;

    #[test]
    fn a_busy_daemon_does_not_count_as_absent() {
        let folder = Scratch::new();
        let path = folder.path().join("daemon.sock");
        assert!(is_absent(&path), "there is no file");
        let listener = UnixListener::bind(&path).expect("bound");
        rustix::net::listen(&listener, 0).expect("a small backlog");
        assert!(!is_absent(&path), "it listens");
        // The listener accepts no connection, so the first one fills the backlog.
        assert!(!is_absent(&path), "it listens and is busy");
        drop(listener);
        assert!(is_absent(&path), "nobody is behind the file");
    }

    #[test]
    fn only_this_user_is_trusted() {
        let own = geteuid();
        assert!(is_own(own));
        assert!(!is_own(Uid::from_raw(own.as_raw() + 1)));
    }
}

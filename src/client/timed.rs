//! Reads and writes that are over by a deadline, without a thread that waits for them.

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
        sockopt::{Timeout, set_socket_timeout},
    },
};

/// When something has to be over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline(Instant);

/// Something to read from or to write to until a deadline; then every call is an error.
#[derive(Debug)]
pub(super) struct Timed<F> {
    file: F,
    deadline: Deadline,
}

impl Deadline {
    /// That long from now.
    #[expect(clippy::disallowed_methods, reason = "a harness waits for this process")]
    pub(super) fn within(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }

    /// What is left.
    ///
    /// Errors: nothing.
    #[expect(clippy::disallowed_methods, reason = "a harness waits for this process")]
    fn left(self) -> io::Result<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl<F: AsFd> Timed<F> {
    pub(super) fn new(file: F, deadline: Deadline) -> Self {
        Self { file, deadline }
    }

    /// Waits until one of `flags` is true, or the other side is gone.
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        loop {
            let left = Timespec::try_from(self.deadline.left()?).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.file, flags)], Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Timed<UnixStream> {
    /// Connects, which waits while the listener's backlog is full.
    pub(super) fn connect(path: &Path, deadline: Deadline) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let socket: OwnedFd =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Send, Some(deadline.left()?))?;
        connect(&socket, &address)?;
        let file = UnixStream::from(socket);
        file.set_nonblocking(true)?;
        Ok(Self::new(file, deadline))
    }
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

//! Copies bytes between stdio and a socket in both directions, without interpreting them.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Why copying between stdio and the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PumpEnd {
    /// The process at stdin or stdout has closed it.
    ToTheEnd,
    /// The daemon closed the connection.
    UntilTheDaemonStopped,
}

/// Bytes per read: the capacity of a pipe.
const BUFFER_BYTES: usize = 64 * 1024;

/// Copies stdin to `socket`, and `first` and then the socket's data to stdout.
///
/// Shape: after the end of stdin, it waits for the remaining data of the socket. A thread that
/// reads stdin may remain; it ends with the process. Errors: the socket, stdin or stdout cannot be
/// used.
pub(super) fn between_stdio_and(socket: &UnixStream, first: &[u8]) -> io::Result<PumpEnd> {
    // Uses the files themselves, because the standard library's buffers could retain a line.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    relay(socket, first, input, output)
}

fn relay(socket: &UnixStream, first: &[u8], mut input: File, mut output: File) -> io::Result<PumpEnd> {
    socket.set_nonblocking(false)?;
    let has_ended = std::sync::Arc::new(AtomicBool::new(false));
    let (mut to, ended) = (socket.try_clone()?, std::sync::Arc::clone(&has_ended));
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let copied = copy(&mut input, &mut to);
        // A failed write means that the daemon has closed the connection, which the other direction
        // detects.
        ended.store(copied.is_ok(), Ordering::Release);
        to.shutdown(Shutdown::Write).ok();
    })?;
    let mut from = socket;
    let copied = output.write_all(first).and_then(|()| copy(&mut from, &mut output));
    match copied {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(PumpEnd::ToTheEnd),
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        Ok(_) | Err(_) if has_ended.load(Ordering::Acquire) => Ok(PumpEnd::ToTheEnd),
        Ok(_) | Err(_) => Ok(PumpEnd::UntilTheDaemonStopped),
    }
}

/// Copies data as soon as it arrives, until the end.
///
/// The standard library's copy leaves the copying to the kernel where possible, and holds a line
/// until the next one arrives.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(buffer.get(..count).ok_or(io::ErrorKind::InvalidData)?)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    /// Both ends of a pipe: for writing, and for reading.
    fn pipe() -> (File, File) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (File::from(std::os::fd::OwnedFd::from(writer)), File::from(std::os::fd::OwnedFd::from(reader)))
    }

    #[test]
    fn the_answer_continues_after_stdin_ends() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ((mut give, input), (output, take)) = (pipe(), pipe());
        let copying = thread::spawn(move || relay(&ours, b"hello\n", input, output));
        let mut lines = BufReader::new(take).lines();
        assert_eq!(lines.next().expect("a line").expect("read"), "hello");
        give.write_all(b"ask\n").expect("written");
        let mut asked = String::new();
        BufReader::new(&theirs).read_line(&mut asked).expect("read");
        assert_eq!(asked, "ask\n");
        drop(give);
        assert_eq!((&theirs).read(&mut [0; 8]).expect("the end"), 0);
        (&theirs).write_all(b"answer\n").expect("written");
        drop(theirs);
        assert_eq!(lines.next().expect("a line").expect("read"), "answer");
        assert_eq!(copying.join().expect("it ends").expect("relayed"), PumpEnd::ToTheEnd);
    }

    #[test]
    fn a_stopped_daemon_is_distinguished_from_client_end() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ((_give, input), (output, _take)) = (pipe(), pipe());
        drop(theirs);
        assert_eq!(relay(&ours, b"", input, output).expect("relayed"), PumpEnd::UntilTheDaemonStopped);
    }

    #[test]
    fn a_client_that_takes_no_more_ends_it() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ((_give, input), (output, take)) = (pipe(), pipe());
        drop(take);
        (&theirs).write_all(b"answer\n").expect("written");
        assert_eq!(relay(&ours, b"", input, output).expect("relayed"), PumpEnd::ToTheEnd);
    }
}

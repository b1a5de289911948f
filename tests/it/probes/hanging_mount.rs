//! A file system with one file that stops answering on request, like a network mount whose server
//! is gone.
//!
//! Source: `linux/fuse.h`, protocol 7.31: a request is length, opcode, a number, the node, three
//! ids and a word, then its arguments; an answer is length, error and the number.

use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    path::PathBuf,
    process::Command,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

use tempfile::TempDir;

use crate::support::{daemon::text, mounts::skip};

const NAME: &str = "known.txt";
const CONTENT: &[u8] = b"one\n";
/// The nodes of the folder and of its file.
const ROOT: u64 = 1;
const FILE: u64 = 2;
/// Modification time of everything, in seconds since 1970.
const CHANGED_S: u64 = 1_700_000_000;
/// Length of a request's header, in bytes.
const HEAD_BYTES: usize = 40;
/// More than a request takes; the system requires room for the largest write.
const REQUEST_BYTES_MAX: usize = 64 << 10;
const MAX_WRITE: u32 = 4_096;
const NO_ENTRY: i32 = -2;
const NOT_SUPPORTED: i32 = -38;

/// The mount; dropping it answers the requests that hang.
#[derive(Debug)]
pub(super) struct HangingMount {
    folder: TempDir,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    hangs: bool,
    /// Whether a request hangs.
    is_waiting: bool,
}

impl HangingMount {
    /// Mounts it; `None`, with a message, where that is not possible.
    pub(super) fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = OpenOptions::new().read(true).write(true).open("/dev/fuse").and_then(|device| {
            let mut command = Command::new("mount");
            command.args([
                "-i",
                "-t",
                "fuse",
                "-o",
                "fd=0,rootmode=40000,user_id=0,group_id=0",
                "aside-test",
            ]);
            let output = command.arg(folder.path()).stdin(device.try_clone()?).output()?;
            if output.status.success() { Ok(device) } else { Err(io::Error::other(text(&output.stderr))) }
        });
        let device = match mounted {
            Ok(device) => device,
            Err(error) => {
                skip("a mount that hangs", &error.to_string());
                return None;
            }
        };
        let state = Arc::<(Mutex<State>, Condvar)>::default();
        let shared = Arc::clone(&state);
        // Ends with an error once the mount is gone.
        thread::spawn(move || serve(device, &shared).ok());
        Some(Self { folder, state })
    }

    /// Path of the file.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join(NAME)
    }

    /// Stops all answers, or resumes them, also for requests that hang.
    pub(super) fn set_hanging(&self, hangs: bool) {
        let (state, changed) = &*self.state;
        state.lock().unwrap_or_else(PoisonError::into_inner).hangs = hangs;
        changed.notify_all();
    }

    /// Whether a request hangs.
    pub(super) fn holds_somebody_up(&self) -> bool {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).is_waiting
    }
}

impl Drop for HangingMount {
    fn drop(&mut self) {
        self.set_hanging(false);
        Command::new("umount").arg("-l").arg(self.folder.path()).status().ok();
    }
}

fn serve(mut device: File, (state, changed): &(Mutex<State>, Condvar)) -> io::Result<()> {
    let mut buffer = vec![0; REQUEST_BYTES_MAX];
    loop {
        let length = match device.read(&mut buffer) {
            // The request was withdrawn.
            Err(error) if [ErrorKind::NotFound, ErrorKind::Interrupted].contains(&error.kind()) => continue,
            read => read?,
        };
        let mut held = state.lock().unwrap_or_else(PoisonError::into_inner);
        while held.hangs {
            held.is_waiting = true;
            held = changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.is_waiting = false;
        drop(held);
        if let Some((error, body)) = answer(&buffer[..length]) {
            let length = u32::try_from(16 + body.len()).expect("small");
            let mut written = length.to_ne_bytes().to_vec();
            written.extend(error.to_ne_bytes());
            written.extend(&buffer[8..16]);
            written.extend(body);
            match device.write(&written) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                written => drop(written?),
            }
        }
    }
}

/// The error and the body of the answer to a request, if it has an answer.
fn answer(request: &[u8]) -> Option<(i32, Vec<u8>)> {
    let node = u64::from_ne_bytes(request[16..24].try_into().expect("eight bytes"));
    let arguments = &request[HEAD_BYTES..];
    Some(match number(&request[4..]) {
        // LOOKUP
        1 if arguments == format!("{NAME}\0").as_bytes() => {
            (0, [words(&[FILE, 0, 0, 0, 0]), attributes(FILE)].concat())
        }
        1 => (NO_ENTRY, Vec::new()),
        // FORGET, INTERRUPT, BATCH_FORGET
        2 | 36 | 42 => return None,
        // GETATTR
        3 => (0, [words(&[0, 0]), attributes(node)].concat()),
        // OPEN, OPENDIR
        14 | 27 => (0, words(&[0, 0])),
        // READ
        15 => {
            let from = usize::try_from(number(&arguments[8..])).expect("small").min(CONTENT.len());
            (0, CONTENT[from..].to_vec())
        }
        // INIT
        26 => (0, [halves(&[7, 31, 0, 0, 0, MAX_WRITE, 1]), halves(&[0; 9])].concat()),
        // RELEASE, FLUSH, RELEASEDIR
        18 | 25 | 29 => (0, Vec::new()),
        _ => (NOT_SUPPORTED, Vec::new()),
    })
}

/// The `stat` data of a node. It is valid for no time, so the next `stat` asks again.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = if node == ROOT { (0o040_755, 0) } else { (0o100_644, CONTENT.len() as u64) };
    let times = words(&[node, size, 1, CHANGED_S, CHANGED_S, CHANGED_S]);
    [times, halves(&[0, 0, 0, mode, 1, 0, 0, 0, 512, 0])].concat()
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn halves(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

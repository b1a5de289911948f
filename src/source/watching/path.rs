//! Files: whether one is there, whether its content is another one, and the lines that are added to it.
//!
//! Looking may block for ever on a mount that does not answer, so it is done by threads for that, few at a time and with a time limit.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

use regex::bytes::Regex;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use tokio::{sync::Semaphore, time::timeout};

use super::{
    folders::Folders,
    look::{Look, LookError},
};
use crate::{
    event::{cut_text, mask_secrets, strip_text},
    source::pause,
    watch::Condition,
};

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Looks under way, each on a thread of its own.
static LOOKS: Semaphore = Semaphore::const_new(8);
/// A path is looked at as often as this also when nothing is reported of it, as on a network mount.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// What happens within this time is looked at together.
const SETTLES: Duration = Duration::from_millis(100);
/// Largest file whose content is compared, in bytes; of a larger one its size and times are.
const CONTENT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Most that one look reads of added lines, in bytes; what follows is read by the next one.
const LINES_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Longest line, in bytes; a longer one is looked at in parts.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// How much of a line is said, in characters.
const LINE_CHARS_SHOWN: usize = 200;

/// How far the lines of a file were read.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// What is read, and the number of it.
    file: Option<(File, u64)>,
    at: u64,
    /// The beginning of a line without its end.
    begun: Vec<u8>,
    /// Whether a file was read before: one that comes after it is new from its beginning.
    is_later: bool,
}

/// What a look found.
enum Found {
    Met(String),
    /// `is_behind`: there is more to read.
    Open {
        is_behind: bool,
    },
}

/// Looks once, before a watch is set.
pub(super) async fn look(condition: &Condition) -> Result<Look, LookError> {
    let asked = condition.clone();
    on_thread(condition, move || first_look(asked)).await
}

/// Waits until a condition of a path is met.
pub(super) async fn until_met(condition: &Condition, folders: &Arc<Folders>) -> Result<String, LookError> {
    let mut tail = Tail::default();
    loop {
        let (asked, watched) = (condition.clone(), Arc::clone(folders));
        let next = folders.next();
        let (found, kept) = on_thread(condition, move || {
            watch_around(Path::new(asked.path().unwrap_or_default()), &watched);
            look_again(&asked, &mut tail).map(|found| (found, tail))
        })
        .await?;
        tail = kept;
        match found {
            Found::Met(state) => return Ok(state),
            Found::Open { is_behind: true } => continue,
            Found::Open { is_behind: false } => {}
        }
        tokio::select! {
            () = next => {}
            () = pause(LOOK_EVERY) => {}
        }
        pause(SETTLES).await;
    }
}

async fn on_thread<T: Send + 'static>(
    condition: &Condition,
    look: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, LookError> {
    let late = || LookError::new(format!("{} does not answer", condition.path().unwrap_or_default()));
    let looked = async {
        let permit = LOOKS.acquire().await.map_err(|_| late())?;
        let task = tokio::task::spawn_blocking(move || {
            let looked = look();
            drop(permit);
            looked
        });
        task.await.map_err(|error| LookError::new(error.to_string()))?.map_err(LookError::from)
    };
    timeout(LOOK_MAX, looked).await.unwrap_or_else(|_| Err(late()))
}

/// Has changes of what is at `path` reported: its folder, or the nearest one that exists, and the same where links lead.
fn watch_around(path: &Path, folders: &Folders) {
    if path.is_dir() {
        folders.add(path);
    }
    let nearest = |path: &Path| {
        if let Some(folder) = path.ancestors().skip(1).find(|folder| folder.is_dir()) {
            folders.add(folder);
        }
    };
    nearest(path);
    if let Ok(real) = fs::canonicalize(path)
        && real != path
    {
        nearest(&real);
    }
}

/// What is at a path; `None` when nothing is.
fn metadata(path: &str) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn first_look(condition: Condition) -> io::Result<Look> {
    if let Condition::File { path, exists } = &condition {
        return Ok(look_for(path, *exists)?.map_or(Look::Open(condition), Look::Met));
    }
    if let Condition::Change { path, since: _ } = condition {
        let since = content(&path)?;
        return Ok(Look::Open(Condition::Change { path, since }));
    }
    let Condition::Line { path, pattern, from: _ } = condition else { return Ok(Look::Open(condition)) };
    let from = metadata(&path)?.map(|found| (found.ino(), found.len()));
    Ok(Look::Open(Condition::Line { path, pattern, from }))
}

fn look_again(condition: &Condition, tail: &mut Tail) -> io::Result<Found> {
    let open = Found::Open { is_behind: false };
    if let Condition::File { path, exists } = condition {
        return Ok(look_for(path, *exists)?.map_or(open, Found::Met));
    }
    if let Condition::Change { path, since } = condition {
        let state = match (since, content(path)?) {
            (before, now) if *before == now => return Ok(open),
            (None, _) => "it was made",
            (Some(_), None) => "it was removed",
            (Some(_), Some(_)) => "it has changed",
        };
        return Ok(Found::Met(state.to_owned()));
    }
    let Condition::Line { path, pattern, from } = condition else { return Ok(open) };
    let pattern = Regex::new(pattern).map_err(io::Error::other)?;
    tail.read(path, &pattern, *from)
}

fn look_for(path: &str, exists: bool) -> io::Result<Option<String>> {
    let is_there = metadata(path)?.is_some();
    let state = if is_there { "it is there" } else { "it is not there" };
    Ok((is_there == exists).then(|| state.to_owned()))
}

/// What tells the content of a path from another one; `None` when nothing is there.
fn content(path: &str) -> io::Result<Option<String>> {
    let Some(found) = metadata(path)? else { return Ok(None) };
    let mut hash = Sha256::new();
    if found.is_dir() {
        let mut names: Vec<_> =
            fs::read_dir(path)?.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        for name in names {
            hash.update(name.as_encoded_bytes());
            hash.update([0]);
        }
    } else if found.is_file() && found.len() <= CONTENT_BYTES_MAX {
        let Some((file, _)) = open_file(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(CONTENT_BYTES_MAX).read_to_end(&mut bytes)?;
        hash.update(bytes);
    } else {
        return Ok(Some(format!("{}:{}:{}", found.ino(), found.len(), found.mtime_nsec())));
    }
    let bits = hash.finalize().first_chunk().map(|first| u64::from_be_bytes(*first)).unwrap_or_default();
    Ok(Some(format!("{bits:016x}")))
}

/// Opens a file, unless nothing is there. Opening waits for nobody, and what is no file is refused.
fn open_file(path: &str) -> io::Result<Option<(File, Metadata)>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is no file")));
    }
    Ok(Some((file, found)))
}

impl Tail {
    /// Reads the lines that were added since `from`, and since it was called before, up to the first that `pattern` matches.
    ///
    /// Shape: of a file that was renamed the rest is read first; one that became shorter is read from its beginning.
    fn read(&mut self, path: &str, pattern: &Regex, from: Option<(u64, u64)>) -> io::Result<Found> {
        let mut budget = LINES_BYTES_MAX;
        loop {
            let Some((file, number)) = &mut self.file else {
                let Some((file, found)) = open_file(path)? else {
                    return Ok(Found::Open { is_behind: false });
                };
                let goes_on = from.filter(|(number, _)| !self.is_later && *number == found.ino());
                self.at = goes_on.map_or(0, |(_, length)| length);
                self.is_later = true;
                self.file = Some((file, found.ino()));
                continue;
            };
            let length = file.metadata()?.len();
            if length < self.at {
                self.at = 0;
                self.begun.clear();
            }
            file.seek(SeekFrom::Start(self.at))?;
            let mut bytes = Vec::new();
            file.by_ref().take(budget.min(LINES_BYTES_MAX)).read_to_end(&mut bytes)?;
            let (number, count) = (*number, bytes.len() as u64);
            self.at += count;
            budget -= count;
            if let Some(state) = self.look_through(&bytes, pattern) {
                return Ok(Found::Met(state));
            }
            if budget == 0 {
                return Ok(Found::Open { is_behind: true });
            }
            if metadata(path)?.is_none_or(|found| found.ino() == number) {
                return Ok(Found::Open { is_behind: false });
            }
            self.file = None;
            self.begun.clear();
        }
    }

    fn look_through(&mut self, bytes: &[u8], pattern: &Regex) -> Option<String> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            let is_whole = part.ends_with(b"\n") || self.begun.len() >= LINE_BYTES_MAX;
            if !is_whole {
                continue;
            }
            let line = std::mem::take(&mut self.begun);
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            if pattern.is_match(line) {
                let text = String::from_utf8_lossy(line);
                let text = strip_text(text.trim());
                return Some(cut_text(mask_secrets(&text), LINE_CHARS_SHOWN).into());
            }
        }
        None
    }
}

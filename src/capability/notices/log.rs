//! The log: a file of JSON lines that only this user can read; one older file is kept.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use engine::{
    notification::Sink,
    sink::{Answered, log::Settings},
};
use futures_util::FutureExt;
use rustix::fs::OFlags;

use super::kind::{Attempt, Kind, TRY_MAX, failed, line};

use crate::daemon::tasks::run_blocking;

pub(super) const KIND: Kind = Kind {
    sink: Sink::Log,
    waits_for_choice: false,
    limit: |_, _, _| TRY_MAX,
    check: |settings, _| async move { check(&settings.log) }.boxed(),
    send: |&Attempt { notice, settings, state, .. }| {
        let path = settings.log.path.as_deref().map_or_else(|| state.join(NOTICES_FILE), PathBuf::from);
        append(path, line(notice), settings.log.max_bytes).boxed()
    },
};

/// The file in the state folder, unless the settings name another one.
const NOTICES_FILE: &str = "notices.jsonl";
/// The suffix of the older file.
const BEFORE: &str = ".1";

/// The file.
///
/// Errors: its folder does not exist.
fn check(settings: &Settings) -> Result<String, String> {
    match settings.path.as_deref() {
        None => Ok(format!("{NOTICES_FILE} in the state folder")),
        Some(path) if Path::new(path).parent().is_some_and(Path::is_dir) => Ok(path.to_owned()),
        Some(path) => Err(format!("the folder of {path} does not exist")),
    }
}

/// Appends a line, unless it is already the last one; begins a new file if the present one would
/// exceed `max_bytes` bytes.
async fn append(path: PathBuf, line: String, max_bytes: u64) -> Answered {
    let shown = path.display().to_string();
    match run_blocking(move || write(&path, &line, max_bytes)).await {
        Ok(Ok(())) => Answered::Took(Some(shown)),
        Ok(Err(error)) => failed(format!("{shown}: {error}")),
        Err(error) => failed(format!("{shown}: {error}")),
    }
}

fn write(path: &Path, line: &str, max_bytes: u64) -> io::Result<()> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    // A process wrote it and died before it could publish that.
    if ends_in(&mut file, length, line.as_bytes())? {
        return Ok(());
    }
    if length > 0 && length.saturating_add(line.len() as u64) > max_bytes {
        let mut before = path.as_os_str().to_owned();
        before.push(BEFORE);
        fs::rename(path, before)?;
        file = open(path)?;
    }
    file.write_all(line.as_bytes())
}

fn ends_in(file: &mut File, length: u64, line: &[u8]) -> io::Result<bool> {
    let Some(from) = length.checked_sub(line.len() as u64) else { return Ok(false) };
    file.seek(SeekFrom::Start(from))?;
    let mut end = vec![0; line.len()];
    file.read_exact(&mut end)?;
    Ok(end == line)
}

/// Opens the file. Opening does not block on a pipe.
///
/// Errors: those of the system, or it is not a regular file.
fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn log_is_private_and_keeps_one_rotated_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, before) = (folder.path().join("notices.jsonl"), folder.path().join("notices.jsonl.1"));
        for number in 0..5 {
            let line = format!("{}{number}\n", "x".repeat(38));
            write(&path, &line, 100).expect("written");
            write(&path, &line, 100).expect("it is there");
        }
        let bytes = |path: &Path| fs::metadata(path).expect("there").len();
        assert_eq!((bytes(&path), bytes(&before)), (40, 80));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn log_write_refuses_non_regular_files() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(write(folder.path(), "x\n", 100).is_err());
        assert!(write(Path::new("/dev/null"), "x\n", 100).is_err());
    }
}

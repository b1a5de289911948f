//! The log: a file of JSON lines for this user alone, of which one before it is kept.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use tokio::task::spawn_blocking;

use super::failed;
use crate::sink::Answered;

/// What the name of the file before ends in.
const BEFORE: &str = ".1";

/// Adds a line, to a new file if the present one would have more than `max_bytes` bytes.
pub(super) async fn append(path: PathBuf, line: String, max_bytes: u64) -> Answered {
    let shown = path.display().to_string();
    match spawn_blocking(move || write(&path, &line, max_bytes)).await {
        Ok(Ok(())) => Answered::Took(Some(shown)),
        Ok(Err(error)) => failed(format!("{shown}: {error}")),
        Err(error) => failed(format!("{shown}: {error}")),
    }
}

fn write(path: &Path, line: &str, max_bytes: u64) -> io::Result<()> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    if length > 0 && length.saturating_add(line.len() as u64) > max_bytes {
        let mut before = path.as_os_str().to_owned();
        before.push(BEFORE);
        fs::rename(path, before)?;
        file = open(path)?;
    }
    file.write_all(line.as_bytes())
}

/// Opens the file; a pipe does not wait for its other end, and is refused.
fn open(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_log_is_for_its_user_alone_and_has_one_file_before_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, before) = (folder.path().join("notices.jsonl"), folder.path().join("notices.jsonl.1"));
        let line = format!("{}\n", "x".repeat(39));
        for _ in 0..5 {
            write(&path, &line, 100).expect("written");
        }
        let bytes = |path: &Path| fs::metadata(path).expect("there").len();
        assert_eq!((bytes(&path), bytes(&before)), (40, 80));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(write(folder.path(), "x\n", 100).is_err());
        assert!(write(Path::new("/dev/null"), "x\n", 100).is_err());
    }
}

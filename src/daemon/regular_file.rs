//! Reads files of which somebody else decides what they are: regular ones of a bounded size.
//!
//! Opening a named pipe waits for its other end, and a device may have no end.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Opens a pipe without waiting for its other end.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// Opens a regular file for reading.
///
/// Errors: those of the system; the file is not regular.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok((file, about))
}

/// The content of a regular file of at most `bytes_max` bytes, also of one in `/proc`.
///
/// Errors: those of the system; the file is not regular, or larger.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_whole(open(path)?.0, bytes_max)
}

/// What is left in an open file, at most `bytes_max` bytes.
///
/// Errors: those of the system; there is more.
pub fn read_whole(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The length of a file in `/proc` is not known before it is read.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {bytes_max} bytes"),
        ));
    }
    Ok(bytes)
}

/// Like [`read`], of a file in UTF-8.
///
/// Errors: also if it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("byte {at} is not UTF-8"))
    })
}

/// Largest file with a secret, in bytes.
const SECRET_BYTES_MAX: u64 = 4 * 1024;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// The text of a file with one secret (a token, or a signing key), without surrounding white space.
///
/// Errors: it is not a file, group or others have permissions for it, it cannot be read, is larger
/// than 4 KiB, or is empty. An error contains the file's name, and nothing of its content.
pub fn read_secret(path: &Path) -> io::Result<String> {
    let shown = path.display();
    let refused = |kind, message: String| Err(io::Error::new(kind, message));
    let unreadable =
        |error: io::Error| io::Error::new(error.kind(), format!("{shown} cannot be read: {error}"));
    let about = fs::metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        return refused(io::ErrorKind::InvalidInput, format!("{shown} is not a file"));
    }
    if about.mode() & OTHERS != 0 {
        let message = format!("other users can access {shown}: chmod 600 it");
        return refused(io::ErrorKind::PermissionDenied, message);
    }
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(unreadable)?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return refused(
            io::ErrorKind::InvalidData,
            format!("{shown} is larger than {SECRET_BYTES_MAX} bytes"),
        );
    }
    match text.trim() {
        "" => refused(io::ErrorKind::InvalidData, format!("{shown} is empty")),
        secret => Ok(secret.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_within_the_bound_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("small"), "four").expect("written");
        fs::write(path("latin-1"), b"a\xe9").expect("written");
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        std::os::unix::fs::symlink("/dev/zero", path("device")).expect("a link");
        for (name, bytes_max, expected) in [
            ("small", 4, Ok("four")),
            ("small", 3, Err("it is larger than 3 bytes")),
            ("latin-1", 4, Err("byte 1 is not UTF-8")),
            ("pipe", 4, Err("it is not a regular file")),
            ("device", 4, Err("it is not a regular file")),
            (".", 4, Err("it is not a regular file")),
            ("absent", 4, Err("No such file or directory (os error 2)")),
        ] {
            let read = read_text(&path(name), bytes_max).map_err(|error| error.to_string());
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{name}");
        }
        assert!(!read(Path::new("/proc/self/stat"), 4_096).expect("readable").is_empty());
    }

    #[test]
    fn a_secret_is_read_where_nobody_else_may() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        for (text, mode, expected) in [
            (" key\n", 0o600, Ok("key")),
            ("key", 0o400, Ok("key")),
            ("key", 0o640, Err("other users can access PATH: chmod 600 it")),
            ("\n", 0o600, Err("PATH is empty")),
            (&*"k".repeat(4_097), 0o600, Err("PATH is larger than 4096 bytes")),
        ] {
            fs::remove_file(&path).ok();
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let read = read_secret(&path).map_err(|error| error.to_string());
            let expected = expected.map(str::to_owned);
            assert_eq!(
                read,
                expected.map_err(|error: &str| error.replace("PATH", &path.display().to_string()))
            );
        }
        assert!(read_secret(folder.path()).expect_err("a folder").to_string().ends_with("is not a file"));
    }
}

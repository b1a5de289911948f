//! Reads files of which somebody else decides what they are: regular ones of a bounded size.
//!
//! Opening a named pipe waits for its other end, and a device may have no end.

use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
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

#[cfg(test)]
mod tests {
    use std::fs;

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
}

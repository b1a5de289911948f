//! Files with one secret: a token, or a signing key.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// Largest file, in bytes.
const BYTES_MAX: u64 = 4 * 1024;
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// The text of the file, without surrounding white space.
///
/// Errors: it is not a file, group or others have permissions for it, it cannot be read, is larger
/// than 4 KiB, or is empty. An error contains the file's name, and nothing of its content.
pub fn read(path: &Path) -> io::Result<String> {
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
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return refused(io::ErrorKind::InvalidData, format!("{shown} is larger than {BYTES_MAX} bytes"));
    }
    match text.trim() {
        "" => refused(io::ErrorKind::InvalidData, format!("{shown} is empty")),
        secret => Ok(secret.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
            let read = read(&path).map_err(|error| error.to_string());
            let expected = expected.map(str::to_owned);
            assert_eq!(
                read,
                expected.map_err(|error: &str| error.replace("PATH", &path.display().to_string()))
            );
        }
        assert!(read(folder.path()).expect_err("a folder").to_string().ends_with("is not a file"));
    }
}

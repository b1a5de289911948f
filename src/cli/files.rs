//! Writes files of the user's configuration for a command: a new one whole or not at all, and an
//! existing one only if nobody else has changed it.

use std::{fs, io, path::Path, process};

use super::CliError;

/// Writes a file that does not exist yet, whole or not at all.
///
/// Errors: it exists, or cannot be written.
pub(super) fn write_new(path: &Path, text: &str) -> Result<(), CliError> {
    let name = path.display().to_string();
    let wrong = |source: io::Error| {
        if source.kind() == io::ErrorKind::AlreadyExists {
            return exists(path);
        }
        CliError::Write { name: name.clone(), source }
    };
    refuse_existing(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .map_err(|source| CliError::Write { name: folder.display().to_string(), source })?;
    // The name of a hidden file, which no layer reads.
    let temporary = folder.join(format!(".edit-{}", process::id()));
    let linked = fs::write(&temporary, text).and_then(|()| fs::hard_link(&temporary, path));
    let written = linked.or_else(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        // Not every file system has links.
        fs::rename(&temporary, path).map_err(|_| error)
    });
    fs::remove_file(&temporary).ok();
    written.map_err(wrong)
}

/// Errors: the file exists.
pub(super) fn refuse_existing(path: &Path) -> Result<(), CliError> {
    if fs::symlink_metadata(path).is_ok() { Err(exists(path)) } else { Ok(()) }
}

fn exists(path: &Path) -> CliError {
    CliError::Usage(format!("{} exists already; edit it, or remove it first", path.display()))
}

/// The text of a file; empty if there is none.
///
/// Errors: it cannot be read.
pub(super) fn read_or_empty(path: &Path) -> Result<String, CliError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|source| CliError::Input { name: path.display().to_string(), source }),
    }
}

/// Replaces the text `before` of a file by `after`, whole or not at all; an absent file has an empty
/// text. A link stays one.
///
/// Errors: it has another text meanwhile, or cannot be written.
pub(super) fn rewrite(path: &Path, before: &str, after: &str) -> Result<(), CliError> {
    if read_or_empty(path)? != before {
        let message = format!("{} has changed meanwhile; start again", path.display());
        return Err(CliError::Usage(message));
    }
    if before.is_empty() && fs::symlink_metadata(path).is_err() {
        return write_new(path, after);
    }
    let wrong = |source| CliError::Write { name: path.display().to_string(), source };
    let path = fs::canonicalize(path).map_err(wrong)?;
    let temporary = path.with_file_name(format!(".edit-{}", process::id()));
    let written = fs::metadata(&path).and_then(|own| {
        fs::write(&temporary, after)?;
        fs::set_permissions(&temporary, own.permissions())?;
        fs::rename(&temporary, &path)
    });
    if written.is_err() {
        fs::remove_file(&temporary).ok();
    }
    written.map_err(wrong)
}

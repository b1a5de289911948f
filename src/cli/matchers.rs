//! The user's own problem matchers: `matchers/*.json` in a folder of the configuration.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    capability::problem::{
        matcher::{FILE_BYTES_MAX, MatcherError, Matchers},
        text::text_of,
    },
    config::{
        report::{Diagnostic, Place},
        text::Text,
    },
    daemon::regular_file,
};

/// Most files that are read.
const FILES_MAX: usize = 100;

/// A file of matchers that was not read, or the folder if it has too many files.
#[derive(Debug)]
pub(super) struct Unread {
    path: PathBuf,
    error: ReadError,
}

#[derive(Debug)]
enum ReadError {
    Unreadable(String),
    /// The text of the file, and the mistake in it.
    Matcher(Text, Box<MatcherError>),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.error {
            ReadError::Unreadable(why) => write!(f, "{path}: {why}"),
            ReadError::Matcher(_, error) => write!(f, "{error}"),
        }
    }
}

impl Unread {
    /// Converts it to a finding of `aside check`.
    pub(super) fn diagnostic(&self) -> Diagnostic {
        let file: Arc<str> = self.path.display().to_string().into();
        match &self.error {
            ReadError::Unreadable(why) => Diagnostic::error(Place::file(&file), "", why.as_str()),
            ReadError::Matcher(text, error) => {
                let place = match error.position {
                    Some((line, _)) => Place::line_of(&file, text, line),
                    None => Place::file(&file),
                };
                Diagnostic::error(place, error.field.as_str(), error.message.as_str())
            }
        }
    }
}

/// The matchers in the files of `folder`, in the order of the file names, and the files that were
/// not read.
pub(super) fn read_folder(folder: &Path) -> (Matchers, Vec<Unread>) {
    let (mut all, mut unread) = (Matchers::default(), Vec::new());
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    if files.len() > FILES_MAX {
        let error = ReadError::Unreadable(format!("only {FILES_MAX} files are read"));
        unread.push(Unread { path: folder.to_owned(), error });
    }
    for path in files.iter().take(FILES_MAX).rev() {
        match read_file(path) {
            Ok(matchers) => all = matchers.followed_by(&all),
            Err(error) => unread.push(error),
        }
    }
    (all, unread)
}

/// Errors: the file cannot be read, or is not a file of matchers.
pub(super) fn read_file(path: &Path) -> Result<Matchers, Unread> {
    let failed = |error| Unread { path: path.to_owned(), error };
    let text =
        read_text(path, FILE_BYTES_MAX).map_err(|error| failed(ReadError::Unreadable(error.to_string())))?;
    Matchers::parse(&path.display().to_string(), &text)
        .map_err(|error| failed(ReadError::Matcher(text.into(), Box::new(error))))
}

/// Errors: also if it is larger than `bytes_max`, or not a regular file.
pub(super) fn read_text(path: &Path, bytes_max: usize) -> io::Result<String> {
    let bytes_max = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    regular_file::read(path, bytes_max).map(text_of)
}

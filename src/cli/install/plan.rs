//! Changes of an installation: planned in full before the first file is written, then shown as a
//! diff or applied.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use similar::TextDiff;

use crate::daemon::regular_file;

/// Suffix of the copy that is made before a file's first change.
const BACKUP_SUFFIX: &str = "aside-backup";
/// Largest file of a client that is read, in bytes; far larger than settings and extensions.
pub(crate) const FILE_BYTES_MAX: u64 = 16 << 20;
/// Permission bits of a new file.
const NEW_MODE: u32 = 0o644;
/// Mode of a new folder.
const FOLDER_MODE: u32 = 0o755;
/// Permission bit without which the owner protects a file from changes.
const OWNER_WRITES: u32 = 0o200;

/// Changes of files, in the order in which they are applied.
#[derive(Debug, Default)]
pub(super) struct Plan {
    changes: Vec<Change>,
}

/// One file, before and after; `None` if it does not exist.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    path: PathBuf,
    before: Option<String>,
    after: Option<String>,
    owner: Owner,
}

/// To whom a file belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Aside,
    /// A copy is kept.
    User,
}

/// Why a file cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}", path.display())]
pub struct FileError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    fn new(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self { doing, path: path.to_owned(), source }
    }
}

impl Plan {
    /// Plans to write `text` to `path`.
    pub(super) fn write(&mut self, path: PathBuf, text: String) -> Result<(), FileError> {
        self.change(path, Some(text), Owner::Aside)
    }

    /// Plans to write `text` to `path`, a file of the user; its first change makes a copy.
    pub(super) fn edit(&mut self, path: PathBuf, text: String) -> Result<(), FileError> {
        self.change(path, Some(text), Owner::User)
    }

    /// Plans to remove `path`.
    pub(super) fn remove(&mut self, path: PathBuf) -> Result<(), FileError> {
        self.change(path, None, Owner::Aside)
    }

    fn change(&mut self, path: PathBuf, after: Option<String>, owner: Owner) -> Result<(), FileError> {
        let before = read(&path)?;
        if before == after {
            return Ok(());
        }
        if before.is_some() {
            let mode = fs::metadata(&path).map_err(|error| FileError::new("look at", &path, error))?;
            if mode.permissions().mode() & OWNER_WRITES == 0 {
                let source = io::Error::new(io::ErrorKind::PermissionDenied, "it is read-only");
                return Err(FileError::new("change", &path, source));
            }
        }
        self.changes.push(Change { path, before, after, owner });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes as a unified diff.
    pub(super) fn diff(&self) -> String {
        self.changes.iter().map(Change::diff).collect()
    }

    /// One line a file, in the past tense.
    pub(super) fn summary(&self) -> String {
        let line = |change: &Change| {
            let done = match (&change.before, &change.after) {
                (None, _) => "wrote",
                (Some(_), Some(_)) => "changed",
                (Some(_), None) => "removed",
            };
            format!("{done} {}\n", change.path.display())
        };
        self.changes.iter().map(line).collect()
    }

    /// Applies the changes.
    ///
    /// Errors: earlier changes are rolled back, as far as possible.
    pub(super) fn apply(&self) -> Result<(), FileError> {
        for (index, change) in self.changes.iter().enumerate() {
            if let Err(error) = change.apply() {
                self.changes.iter().take(index).rev().for_each(Change::take_back);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Change {
    fn diff(&self) -> String {
        let (before, after) =
            (self.before.as_deref().unwrap_or_default(), self.after.as_deref().unwrap_or_default());
        let name = self.path.display().to_string();
        let nothing = "/dev/null";
        let old = if self.before.is_some() { &name } else { nothing };
        let new = if self.after.is_some() { &name } else { nothing };
        TextDiff::from_lines(before, after).unified_diff().header(old, new).to_string()
    }

    fn apply(&self) -> Result<(), FileError> {
        let failed = |doing| move |error| FileError::new(doing, &self.path, error);
        if read(&self.path)? != self.before {
            // The client writes its settings too, and its latest changes would be lost.
            return Err(failed("change")(io::Error::other("it was changed by another program; try again")));
        }
        if self.owner == Owner::User
            && let Some(before) = &self.before
        {
            let copy = backup_path(&self.path);
            if !copy.exists() {
                replace(&copy, before, mode_of(&self.path)).map_err(failed("keep a copy of"))?;
            }
        }
        match &self.after {
            Some(text) => replace(&self.path, text, mode_of(&self.path)).map_err(failed("write")),
            None => fs::remove_file(&self.path).map_err(failed("remove")),
        }
    }

    /// Restores the file. A copy stays, because it may be from an earlier change. Failures here are
    /// not reported, because the error that caused the rollback is.
    fn take_back(&self) {
        match &self.before {
            Some(before) => replace(&self.path, before, mode_of(&self.path)).ok(),
            None => fs::remove_file(&self.path).ok(),
        };
    }
}

/// Whether `path` is a file or contains one at any depth.
pub(super) fn holds_file(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().any(|entry| holds_file(&entry.path())),
        Err(_) => fs::symlink_metadata(path).is_ok(),
    }
}

/// A file's text, if it exists.
///
/// Errors: also if it is larger than [`FILE_BYTES_MAX`], or not a regular file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    match regular_file::read_text(path, FILE_BYTES_MAX) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(FileError::new("read", path, error)),
    }
}

/// The path of the copy of `path`.
pub(super) fn backup_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{BACKUP_SUFFIX}"));
    path.with_file_name(name)
}

/// Deletes `folder` and its ancestors up to `top`, as long as they are empty.
fn remove_empty(folder: &Path, top: &Path) {
    let mut folder = Some(folder);
    // A non-empty folder stays and ends the loop.
    while let Some(path) = folder.filter(|path| path.starts_with(top) && fs::remove_dir(path).is_ok()) {
        folder = path.parent();
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).map_or(NEW_MODE, |found| found.permissions().mode() & 0o7777)
}

/// Replaces `path` with `text` atomically; a link stays a link, even a dangling one.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let linked = || Some(path.parent()?.join(fs::read_link(path).ok()?));
    let target = fs::canonicalize(path).ok().or_else(linked).unwrap_or_else(|| path.to_owned());
    if let Some(folder) = target.parent() {
        // Others may not write there, whatever the umask is.
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    }
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".aside-{}", std::process::id()));
    let temporary = target.with_file_name(name);
    let written = fs::File::create(&temporary).and_then(|mut file| {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&temporary, &target)).inspect_err(|_| {
        // The write error is reported; a leftover temporary file is harmless.
        fs::remove_file(&temporary).ok();
    })
}

/// The planned changes and messages.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) is_dry_run: bool,
    pub(super) plan: Plan,
    pub(super) notes: Vec<String>,
    pub(super) next: Vec<(String, String)>,
    /// Folders to delete if they are empty afterwards, and the ancestors at which to stop.
    pub(super) emptied: Vec<(PathBuf, PathBuf)>,
}

impl Outcome {
    pub(super) fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    /// Applies the plan and deletes the folders that it emptied.
    pub(super) fn carry_out(&self) -> Result<(), FileError> {
        self.plan.apply()?;
        for (folder, top) in &self.emptied {
            remove_empty(folder, top);
        }
        Ok(())
    }

    /// Adds the commands after an installation in the client whose program is `name`.
    pub(super) fn next_steps(&mut self, name: &str, starts_daemon: bool) {
        let up = format!("starts the daemon; new sessions of `{name}` are notified");
        self.next(&[
            if starts_daemon {
                (name, "the next session starts the daemon and is notified")
            } else {
                ("aside up", &*up)
            },
            ("aside doctor", "checks all of it"),
        ]);
    }

    /// Adds the next commands, each with its effect.
    pub(super) fn next(&mut self, steps: &[(&str, &str)]) {
        self.next = steps.iter().map(|(step, what)| ((*step).to_owned(), (*what).to_owned())).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apply_aborts_on_a_file_changed_meanwhile() {
        let folder = tempfile::tempdir().expect("a folder");
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        fs::write(&second, "{}").expect("written");
        let mut plan = Plan::default();
        plan.write(first.clone(), "ours".to_owned()).expect("planned");
        plan.edit(second.clone(), "ours".to_owned()).expect("planned");
        fs::write(&second, "theirs").expect("written");
        let error = plan.apply().expect_err("it is not what it was");
        assert!(error.source.to_string().contains("try again"), "{error:?}");
        assert_eq!(fs::read_to_string(&second).expect("there"), "theirs");
        assert!(!first.exists() && !backup_path(&second).exists(), "nothing is left");
    }

    #[test]
    fn new_folder_is_writable_for_its_user_only() {
        rustix::process::umask(rustix::fs::Mode::empty());
        let folder = tempfile::tempdir().expect("a folder");
        let mut plan = Plan::default();
        plan.write(folder.path().join("skills/aside/file"), "ours".to_owned()).expect("planned");
        plan.apply().expect("written");
        for made in ["skills", "skills/aside"] {
            assert_eq!(mode_of(&folder.path().join(made)) & 0o777, FOLDER_MODE);
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_yet_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("settings.json");
        std::os::unix::fs::symlink("dotfiles/claude.json", &link).expect("a link");
        let mut plan = Plan::default();
        plan.edit(link.clone(), "ours".to_owned()).expect("planned");
        plan.apply().expect("written");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_to_string(folder.path().join("dotfiles/claude.json")).expect("there"), "ours");
    }
}

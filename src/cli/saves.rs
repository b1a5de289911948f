//! Draws something again whenever a file of the configuration is saved, for `aside dev`, `aside test
//! --watch` and `aside preview --watch`.
//!
//! The system's reports about folders only cause a look: all files are read again and compared with
//! those that were drawn, so an editor may save in any number of steps. Without a report there is a
//! look each second, for files behind links and on other machines. Only these commands watch the
//! files; the daemon does not.

use std::{
    fs,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init},
    io::Errno,
};
use similar::{ChangeTag, TextDiff};

use super::{
    CliError, Context,
    check::{Target, read},
    terminal::{Terminal, Tone},
};
use crate::config::layers::{LAYER_NAMES, Sources, WORKSPACE_FOLDER};

/// The time without a report after which a look is made.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The steps of a save follow each other within this time.
const SETTLES: Duration = Duration::from_millis(25);
/// Most waits for further steps: what is written all the time is drawn too.
const STEPS_MAX: usize = 3;
/// Most watched folders, each at some 1 KB of the system's memory; others are looked at each second.
const FOLDERS_MAX: usize = 256;
/// Columns of the mark of a line.
pub(super) const MARK: usize = 2;
/// Size of the buffer for reports, in bytes.
const READ_BYTES: usize = 4_096;

/// Calls `draw` with the files of `targets`, over `shipped`, now and after each change.
///
/// Shape: it goes on until a signal ends the process. What `draw` finds wrong is shown, and the next
/// save is awaited.
///
/// Errors: the output cannot be written.
pub(super) fn draw_each(
    shipped: &Sources,
    targets: &[Target],
    context: &mut Context<'_>,
    mut draw: impl FnMut(&Sources, &mut Context<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let folders: Vec<PathBuf> = targets.iter().map(folder_of).collect();
    let reports = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok();
    let mut drawn: Option<Sources> = None;
    loop {
        // Watched before they are read: what changes in between is reported.
        if let Some(reports) = &reports {
            watch(reports, &folders);
        }
        let sources = read(shipped.clone(), targets);
        if drawn.as_ref() != Some(&sources) {
            match draw(&sources, context) {
                Ok(())
                | Err(CliError::Check { .. } | CliError::Tests { .. } | CliError::Unnoticed { .. }) => {}
                Err(error @ CliError::Output(_)) => return Err(error),
                Err(error) => context.say(&format!("failed to {error}\n"))?,
            }
            drawn = Some(sources);
        }
        wait(reports.as_ref());
    }
}

/// The folder with the files of a target.
fn folder_of(target: &Target) -> PathBuf {
    match target {
        Target::Layer(folder) | Target::InLayer { folder, .. } => folder.clone(),
        Target::Workspace(folder) => folder.join(WORKSPACE_FOLDER),
        Target::Matchers(path) | Target::Lone { path, .. } => {
            path.parent().map(Path::to_owned).unwrap_or_default()
        }
    }
}

/// Watches the folders, those of a layer in them, and those above, as a folder may be created, removed
/// or replaced. A folder that is watched already stays so.
fn watch(reports: &OwnedFd, folders: &[PathBuf]) {
    let mut all: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        all.extend(folder.ancestors().skip(1).find(|above| above.is_dir()).map(Path::to_owned));
        all.push(folder.to_owned());
        LAYER_NAMES.iter().for_each(|name| add_folders(&folder.join(name), &mut all));
    }
    let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
    let flags = names | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | WatchFlags::ONLYDIR;
    for folder in all.iter().take(FOLDERS_MAX) {
        // One that cannot be watched is looked at each second.
        add_watch(reports, folder, flags).ok();
    }
}

/// Adds a folder and those in it, which a layer has below `templates`.
fn add_folders(folder: &Path, all: &mut Vec<PathBuf>) {
    if !folder.is_dir() || all.len() >= FOLDERS_MAX {
        return;
    }
    all.push(folder.to_owned());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add_folders(&entry.path(), all);
        }
    }
}

/// Waits for a report and the end of its save, or for the next look.
fn wait(reports: Option<&OwnedFd>) {
    if !is_reported(reports, LOOK_EVERY) {
        return;
    }
    for _ in 0..STEPS_MAX {
        reports.iter().for_each(|reports| forget(reports));
        if !is_reported(reports, SETTLES) {
            return;
        }
    }
}

/// Whether the system reports something within a time.
fn is_reported(reports: Option<&OwnedFd>, within: Duration) -> bool {
    let limit = Timespec::try_from(within).expect("a short time");
    let mut waiting: Vec<PollFd<'_>> =
        reports.iter().map(|reports| PollFd::new(*reports, PollFlags::IN)).collect();
    poll(&mut waiting, Some(&limit)).is_ok_and(|count| count > 0)
}

/// Reads all reports.
fn forget(reports: &OwnedFd) {
    let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
    let mut reader = Reader::new(reports, &mut buffer);
    loop {
        match reader.next() {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The parts of a text that changed around its changed lines, each line with its mark.
#[derive(Debug, Default)]
pub(super) struct Marked {
    /// The lines; empty if nothing changed.
    pub(super) text: String,
    /// The number of added and removed lines.
    pub(super) changed: usize,
}

/// Marks what changed between two texts, with so many unchanged lines around it.
pub(super) fn marked(before: &str, now: &str, around: usize, terminal: &Terminal) -> Marked {
    let mut marked = Marked::default();
    let difference = TextDiff::from_lines(before, now);
    for group in difference.grouped_ops(around) {
        for change in group.iter().flat_map(|part| difference.iter_changes(part)) {
            let line = change.value().trim_end_matches('\n');
            let (mark, tone) = match change.tag() {
                ChangeTag::Equal => (' ', Tone::Plain),
                ChangeTag::Delete => ('-', Tone::Bad),
                ChangeTag::Insert => ('+', Tone::Good),
            };
            marked.changed += usize::from(change.tag() != ChangeTag::Equal);
            let line = format!("{mark} {line}");
            marked.text += &format!("{}\n", terminal.paint(tone, line.trim_end()));
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::tests::pipe;

    #[test]
    fn changed_lines_have_marks() {
        let Marked { text, changed } = marked("a\nb\nc\nd\n", "a\nb\nx\nd\n", 1, &pipe());
        assert_eq!((text.as_str(), changed), ("  b\n- c\n+ x\n  d\n", 2));
        assert_eq!(marked("a\n", "a\n", 1, &pipe()).text, "");
    }

    #[test]
    fn folders_of_a_layer_are_watched() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["subscribers", "templates/lib/deep", "other/deep"] {
            fs::create_dir_all(folder.path().join(name)).expect("made");
        }
        let mut all = Vec::new();
        add_folders(&folder.path().join("templates"), &mut all);
        assert_eq!(all.len(), 3, "{all:?}");
        let reports = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("an inotify");
        watch(&reports, &[folder.path().to_owned()]);
        assert!(!is_reported(Some(&reports), Duration::ZERO));
        fs::write(folder.path().join("other/deep/x"), "1").expect("written");
        assert!(!is_reported(Some(&reports), Duration::ZERO), "no folder of a layer");
        fs::write(folder.path().join("templates/lib/deep/x"), "1").expect("written");
        assert!(is_reported(Some(&reports), Duration::ZERO));
        wait(Some(&reports));
        assert!(!is_reported(Some(&reports), Duration::ZERO));
    }
}

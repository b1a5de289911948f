//! Reads the layer of a workspace, whose files somebody else may have written: regular files of this
//! user or root, of a bounded size and number, and through no link.

use std::{
    error::Error,
    ffi::CString,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat},
    process::geteuid,
};

use crate::{
    api::wire::trust::{WorkspaceState, WorkspaceView},
    config::{
        layers::{FileKind, LayerKind, Unreadable, WORKSPACE_FOLDER, Workspace},
        load::not_utf8,
        report::Diagnostic,
        text::Text,
        workspace::{CompiledWorkspace, TrustList, Trusted},
    },
};

/// Most files of a workspace.
pub const FILES_MAX: usize = 32;
/// Most bytes of its files together.
pub const BYTES_MAX: u64 = 256 * 1024;
/// Most entries of its folders together.
const ENTRIES_MAX: usize = 1_000;
/// Most folders below each other.
const DEPTH_MAX: usize = 4;
/// The folders of a layer that are read.
const FOLDERS: [&str; 3] = ["subscribers", "templates", "fixtures"];
/// The file in the state folder that lists what is trusted.
pub const TRUST_FILE: &str = "trusted.json";
/// Most bytes of that file.
const TRUST_BYTES_MAX: u64 = 1024 * 1024;

/// What is in the layer of a workspace.
#[derive(Debug)]
pub struct WorkspaceFiles {
    /// The files of its rules.
    pub workspace: Workspace,
    /// What cannot be read, or must not be there; the layer is used only if that is nothing.
    pub refused: Vec<Unreadable>,
}

/// The nearest folder at or above `folder` that has a layer of its own: a folder `.aside` of this user
/// or root. `None` also if that is found through a link, because sessions are distinguished by their real
/// folders.
pub fn nearest(folder: &Path) -> Option<PathBuf> {
    let is_layer = |above: &&Path| {
        let found = statat(CWD, above.join(WORKSPACE_FOLDER), AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| is_of_type(&found, FileType::Directory) && is_own(&found))
    };
    let found = folder.ancestors().filter(|above| above.is_absolute()).find(is_layer)?;
    fs::canonicalize(found).ok().filter(|real| real == found)
}

/// Reads the layer of `folder`.
///
/// Errors: none; what cannot be read is [`WorkspaceFiles::refused`].
pub fn read(folder: &Path) -> WorkspaceFiles {
    let mut reader = Reader { root: folder.join(WORKSPACE_FOLDER), ..Reader::default() };
    match open_folder(&CWD, &reader.root) {
        Ok(layer) => reader.read_layer(&layer),
        Err(why) => reader.refuse("", why),
    }
    let Reader { files, refused, .. } = reader;
    WorkspaceFiles { workspace: Workspace::new(&folder.to_string_lossy(), files), refused }
}

/// Reads the list of what is trusted from the state folder; empty if there is none.
///
/// Errors: the file cannot be read, or is damaged.
pub fn trust_list(state: &Path) -> io::Result<TrustList> {
    let mut text = String::new();
    match File::open(state.join(TRUST_FILE)) {
        Ok(file) => file.take(TRUST_BYTES_MAX).read_to_string(&mut text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(TrustList::default()),
        Err(error) => return Err(error),
    };
    TrustList::parse(&text).map_err(io::Error::other)
}

/// The list of what is trusted; empty if it cannot be read, which is logged.
pub(super) fn usable_trust_list(state: &Path) -> TrustList {
    let read = trust_list(state);
    read.unwrap_or_else(|error| {
        let error: &dyn Error = &error;
        tracing::error!(error, "the list of trusted workspaces cannot be read; none is in force");
        TrustList::default()
    })
}

/// Writes the list of what is trusted to the state folder, whole or not at all.
///
/// Errors: it cannot be written.
pub(super) fn write_trust_list(state: &Path, list: &TrustList) -> io::Result<()> {
    let (path, unfinished) = (state.join(TRUST_FILE), state.join(format!("{TRUST_FILE}.unfinished")));
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(list.to_json().as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)?;
    File::open(state)?.sync_all()
}

/// A trusted workspace, and what is there now.
#[derive(Debug, Clone)]
pub struct Looked {
    /// What is trusted.
    pub trusted: Trusted,
    /// Whether the files are in force.
    pub state: WorkspaceState,
    /// The hash of the files that are there.
    pub hash: String,
}

/// The trusted workspaces whose files are as they were trusted; and the state of each trusted one.
pub fn read_trusted(list: &TrustList) -> (Vec<Workspace>, Vec<Looked>) {
    let (mut workspaces, mut looked) = (Vec::new(), Vec::new());
    for trusted in list.iter() {
        let folder = Path::new(&*trusted.folder);
        let WorkspaceFiles { workspace, refused } = read(folder);
        let hash = workspace.hash();
        let state = match refused.is_empty() && hash == trusted.hash {
            true => WorkspaceState::InForce,
            false if nearest(folder).is_none_or(|found| found != folder) => WorkspaceState::Missing,
            false => WorkspaceState::Changed,
        };
        if state == WorkspaceState::InForce {
            workspaces.push(workspace);
        }
        looked.push(Looked { trusted: trusted.clone(), state, hash });
    }
    (workspaces, looked)
}

/// The trusted workspaces, as they are shown.
pub(super) fn views(trusted: &[Looked], compiled: &[CompiledWorkspace]) -> Vec<WorkspaceView> {
    let view = |Looked { trusted, state, hash }: &Looked| {
        let compiled = compiled.iter().find(|own| own.folder == trusted.folder);
        let first = compiled.and_then(|own| own.report.first_error());
        WorkspaceView {
            folder: Arc::clone(&trusted.folder),
            state: if first.is_some() { WorkspaceState::Broken } else { *state },
            hash: hash.clone(),
            trusted_at: Some(trusted.at.clone()),
            subscribers: compiled
                .map(|own| own.subscribers.iter().map(|rule| rule.id.to_string()).collect())
                .unwrap_or_default(),
            problem: first.map(Diagnostic::line),
        }
    };
    trusted.iter().map(view).collect()
}

#[derive(Default)]
struct Reader {
    root: PathBuf,
    files: Vec<(Arc<str>, Text)>,
    bytes: u64,
    entries: usize,
    refused: Vec<Unreadable>,
}

impl Reader {
    fn read_layer(&mut self, layer: &OwnedFd) {
        for (name, found) in self.entries(layer, "") {
            match FileKind::of(&name) {
                Some(kind) if kind.is_of_workspace() => self.read_file(layer, &name, &name, &found),
                Some(_) => {
                    let why = "a workspace has subscribers, templates, fixtures and events.toml only, so that \
                               none of its files sets a program, a sink, a secret, `trusted` or a budget; \
                               move it to a layer of yours, or remove it";
                    self.refuse(&name, why.to_owned());
                }
                None if FOLDERS.contains(&name.as_str()) => {
                    self.read_folder(layer, &name, &name, &found, 1);
                }
                None => {}
            }
        }
    }

    /// Reads the folder `entry` of `parent`, whose name in the layer is `name`.
    fn read_folder(&mut self, parent: &OwnedFd, entry: &str, name: &str, found: &Stat, depth: usize) {
        if is_of_type(found, FileType::Symlink) {
            return self.refuse(name, "a link is not followed".to_owned());
        }
        if depth > DEPTH_MAX {
            return self.refuse(name, format!("folders are at most {DEPTH_MAX} deep"));
        }
        let folder = match open_folder(parent, Path::new(entry)) {
            Ok(folder) => folder,
            Err(why) => return self.refuse(name, why),
        };
        for (entry, found) in self.entries(&folder, name) {
            let name = format!("{name}/{entry}");
            let may_be_folder =
                is_of_type(&found, FileType::Directory) || is_of_type(&found, FileType::Symlink);
            if FileKind::of(&name).is_some() {
                self.read_file(&folder, &entry, &name, &found);
            } else if may_be_folder && name.starts_with("templates/") {
                self.read_folder(&folder, &entry, &name, &found, depth + 1);
            }
        }
    }

    fn read_file(&mut self, folder: &OwnedFd, entry: &str, name: &str, found: &Stat) {
        if is_of_type(found, FileType::Symlink) {
            return self.refuse(name, "a link is not followed".to_owned());
        }
        match self.files.len() {
            0..FILES_MAX => {}
            FILES_MAX => return self.refuse_once(format!("it has more than {FILES_MAX} files")),
            _ => return,
        }
        match self.text_of(folder, entry) {
            Ok(text) => self.files.push((name.into(), text)),
            Err(why) => self.refuse(name, why),
        }
    }

    /// The text of a file; the type and the owner are those of the opened file.
    fn text_of(&mut self, folder: &OwnedFd, entry: &str) -> Result<Text, String> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(folder, entry, flags, Mode::empty())
            .map_err(|error| io::Error::from(error).to_string())?;
        let found = rustix::fs::fstat(&file).map_err(|error| io::Error::from(error).to_string())?;
        if !is_of_type(&found, FileType::RegularFile) {
            return Err("it is not a regular file".to_owned());
        }
        if !is_own(&found) {
            return Err(FOREIGN.to_owned());
        }
        let (room, mut bytes) = (BYTES_MAX - self.bytes, Vec::new());
        File::from(file).take(room + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 > room {
            return Err(format!("the files of a workspace have at most {} KiB together", BYTES_MAX / 1024));
        }
        self.bytes += bytes.len() as u64;
        String::from_utf8(bytes).map(Text::from).map_err(|error| not_utf8(&error))
    }

    /// The entries of a folder that are not hidden, by name.
    fn entries(&mut self, folder: &OwnedFd, name: &str) -> Vec<(String, Stat)> {
        let mut all: Vec<(String, Stat)> = Vec::new();
        let listed = Dir::read_from(folder).and_then(|entries| {
            for entry in entries {
                let file_name: CString = entry?.file_name().to_owned();
                let Ok(file_name) =
                    file_name.into_string().map(|name| (!name.starts_with('.')).then_some(name))
                else {
                    continue;
                };
                self.entries += 1;
                if self.entries > ENTRIES_MAX {
                    break;
                }
                if let Some(file_name) = file_name {
                    let found = statat(folder, &file_name, AtFlags::SYMLINK_NOFOLLOW)?;
                    all.push((file_name, found));
                }
            }
            Ok(())
        });
        if let Err(error) = listed {
            self.refuse(name, io::Error::from(error).to_string());
        }
        if self.entries > ENTRIES_MAX {
            self.refuse_once(format!("it has more than {ENTRIES_MAX} entries"));
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    fn refuse(&mut self, name: &str, why: String) {
        let path = if name.is_empty() { self.root.clone() } else { self.root.join(name) };
        self.refused.push(Unreadable {
            layer: LayerKind::Workspace,
            name: name.into(),
            path: path.display().to_string().into(),
            why,
            bad_byte: None,
        });
    }

    /// Refuses the layer as a whole, for a reason that may come up again.
    fn refuse_once(&mut self, why: String) {
        if !self.refused.iter().any(|refused| refused.why == why) {
            self.refuse("", why);
        }
    }
}

const FOREIGN: &str = "it belongs to another user";

/// Opens a folder of this user or root, not through a link.
fn open_folder(parent: &impl AsFd, path: &Path) -> Result<OwnedFd, String> {
    let shown = |error: rustix::io::Errno| match error {
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => "it is a link or no folder".to_owned(),
        other => io::Error::from(other).to_string(),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(parent, path, flags, Mode::empty()).map_err(shown)?;
    match rustix::fs::fstat(&folder) {
        Ok(found) if is_own(&found) => Ok(folder),
        Ok(_) => Err(FOREIGN.to_owned()),
        Err(error) => Err(shown(error)),
    }
}

fn is_of_type(found: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(found.st_mode) == kind
}

/// Whether it belongs to this user or root.
fn is_own(found: &Stat) -> bool {
    found.st_uid == 0 || found.st_uid == geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::mknodat;

    use super::*;

    const SUBSCRIBER: &str = "[subscriber]\nid = \"a\"\n";

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().expect("a folder"));
            folder.write("subscribers/a.toml", SUBSCRIBER.as_bytes());
            folder.write("templates/deep/a.toon.j2", b"a: 1\n");
            folder
        }

        fn path(&self, name: &str) -> PathBuf {
            fs::canonicalize(self.0.path()).expect("real").join(WORKSPACE_FOLDER).join(name)
        }

        fn write(&self, name: &str, bytes: &[u8]) {
            let path = self.path(name);
            fs::create_dir_all(path.parent().expect("has one")).expect("made");
            fs::write(path, bytes).expect("written");
        }

        /// What is refused, by name.
        fn refused(&self) -> Vec<String> {
            let found = read(self.path("").parent().expect("has one"));
            found.refused.iter().map(|one| format!("{}: {}", one.name, one.why)).collect()
        }
    }

    #[test]
    fn only_files_that_set_nothing_are_read() {
        let folder = Folder::new();
        folder.write("events.toml", b"");
        folder.write("fixtures/a.json", b"{}");
        for ignored in ["README.md", ".git", "subscribers/a.toml~", "subscribers/x/b.toml"] {
            folder.write(ignored, b"x");
        }
        let found = read(folder.path("").parent().expect("has one"));
        let names: Vec<_> = found.workspace.files().iter().map(|file| &*file.name).collect();
        let read = ["events.toml", "fixtures/a.json", "subscribers/a.toml", "templates/deep/a.toon.j2"];
        assert_eq!(names, read);
        assert_eq!(folder.refused(), [""; 0]);
        for name in ["aside.toml", "webhooks.toml"] {
            folder.write(name, b"");
            let refused = folder.refused();
            assert!(refused[0].starts_with(&format!("{name}: a workspace has subscribers")), "{refused:?}");
            fs::remove_file(folder.path(name)).expect("removed");
        }
    }

    #[test]
    fn links_and_special_files_are_refused() {
        let case = |name: &str, make: &dyn Fn(&Path), expected: &str| {
            let folder = Folder::new();
            make(&folder.path(name));
            assert_eq!(folder.refused(), [format!("{name}: {expected}")], "{name}");
        };
        let link = "a link is not followed";
        case("subscribers/b.toml", &|path| symlink("/etc/passwd", path).expect("linked"), link);
        case("templates/b", &|path| symlink("/etc", path).expect("linked"), link);
        case("templates/b.j2", &|path| symlink("deep/a.toon.j2", path).expect("linked"), link);
        let pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        case("subscribers/b.toml", &pipe, "it is not a regular file");
        case("subscribers/b.toml", &|path| fs::create_dir(path).expect("made"), "it is not a regular file");
        let big = |path: &Path| fs::write(path, vec![b'x'; 10 << 20]).expect("written");
        case("subscribers/b.toml", &big, "the files of a workspace have at most 256 KiB together");
        let deep = |path: &Path| fs::create_dir_all(path).expect("made");
        let folder = Folder::new();
        deep(&folder.path("templates/1/2/3/4/5"));
        assert_eq!(folder.refused(), ["templates/1/2/3/4: folders are at most 4 deep"]);
        let bytes = |path: &Path| fs::write(path, b"a = \"\xff\"").expect("written");
        let not_utf8 = "line 1 holds the byte 0xff, which is not UTF-8; save it as UTF-8";
        case("subscribers/b.toml", &bytes, not_utf8);
    }

    #[test]
    fn links_to_the_layer_itself_are_refused() {
        let (real, linked) = (Folder::new(), tempfile::tempdir().expect("a folder"));
        let linked = fs::canonicalize(linked.path()).expect("real");
        symlink(real.path(""), linked.join(WORKSPACE_FOLDER)).expect("linked");
        let found = read(&linked);
        assert_eq!(found.workspace.files().len(), 0);
        assert_eq!(found.refused[0].why, "it is a link or no folder");
        assert_eq!(nearest(&linked), None);
        let moved = Folder::new();
        fs::rename(moved.path("subscribers"), moved.path("moved")).expect("moved");
        symlink("moved", moved.path("subscribers")).expect("linked");
        assert_eq!(moved.refused(), ["subscribers: a link is not followed"]);
    }

    #[test]
    fn numbers_of_files_and_entries_are_bounded() {
        let folder = Folder::new();
        (0..40).for_each(|number| folder.write(&format!("subscribers/{number}.toml"), SUBSCRIBER.as_bytes()));
        assert_eq!(folder.refused(), [": it has more than 32 files"]);
        (0..10_000).for_each(|number| folder.write(&format!("subscribers/{number}.txt"), b""));
        assert!(folder.refused().contains(&": it has more than 1000 entries".to_owned()));
    }

    #[test]
    fn nearest_layer_is_at_or_above_a_folder() {
        let folder = Folder::new();
        let work = folder.path("").parent().expect("has one").to_owned();
        fs::create_dir_all(work.join("src/x")).expect("made");
        for below in ["", "src", "src/x", "gone/x"] {
            assert_eq!(nearest(&work.join(below)).as_deref(), Some(&*work), "{below}");
        }
        let linked = work.join("src/linked");
        symlink(&work, &linked).expect("linked");
        assert_eq!(nearest(&linked), None, "the real folder is another one");
        assert_eq!(nearest(Path::new("relative")), None);
    }
}

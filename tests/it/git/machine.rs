//! The machine as a probe sees it, and helpers to change it: git and a clock.

use std::{
    fs,
    io::{Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::UNIX_EPOCH,
};

use engine::probe::{Entry, Facts, Fingerprint, Space, facts::ContentHash};
use journal::time::Timestamp;

/// The current file system, for any time.
#[derive(Debug)]
pub(crate) struct Machine;

impl Facts for Machine {
    fn entry(&self, path: &Path) -> Entry {
        let Ok(found) = fs::metadata(path) else { return Entry::Absent };
        if found.is_dir() {
            return Entry::Folder;
        }
        let nanos = |seconds: i64, nanos: i64| seconds * 1_000_000_000 + nanos;
        Entry::File(Fingerprint {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified_ns: nanos(found.mtime(), found.mtime_nsec()),
            changed_ns: nanos(found.ctime(), found.ctime_nsec()),
        })
    }

    fn hash(&self, path: &Path, _: &Fingerprint) -> Option<ContentHash> {
        fs::read(path).ok().map(|content| ContentHash::of(&content))
    }

    fn kept(&self, _: ContentHash) -> Option<Arc<str>> {
        None
    }

    fn remember(&self, _: ContentHash, _: &str) {}

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        let mut file = fs::File::open(path).ok()?;
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut bytes = Vec::new();
        file.take(max).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn name_of(&self, _: &Path, _: u64, _: u64) -> Option<String> {
        None
    }

    fn space(&self, _: &Path) -> Option<Space> {
        None
    }

    fn names(&self, _: &Path, _: usize) -> Vec<String> {
        Vec::new()
    }

    fn accepts(&self, _: u16) -> Option<bool> {
        None
    }

    fn changed_between(&self, objects: &Path, old: &str, new: &str) -> Option<Arc<[String]>> {
        let arguments = ["diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new, "--"];
        let folder = objects.parent().expect("the repository's own folder");
        let output = git().env("GIT_DIR", folder).args(arguments).output().expect("git runs");
        let text = String::from_utf8(output.stdout).expect("paths are text");
        let paths = text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned);
        output.status.success().then(|| paths.collect())
    }
}

/// git without anybody's settings.
fn git() -> Command {
    let mut git = Command::new("git");
    set_variables(&mut git);
    git
}

/// Runs a script in `folder`, in which `git` has nobody's settings.
pub(crate) fn run(script: &str, folder: &Path) {
    let mut shell = Command::new("sh");
    set_variables(&mut shell);
    let output =
        shell.args(["-ec", script]).current_dir(folder).stdin(Stdio::null()).output().expect("sh runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&said));
}

fn set_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"GIT_")) {
        command.env_remove(name);
    }
    command.envs([
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_EDITOR", "true"),
        ("GIT_ALLOW_PROTOCOL", "file"),
        ("GIT_AUTHOR_NAME", "Ada"),
        ("GIT_AUTHOR_EMAIL", "ada@example.org"),
        ("GIT_AUTHOR_DATE", "2026-11-21T12:00:00Z"),
        ("GIT_COMMITTER_NAME", "Ada"),
        ("GIT_COMMITTER_EMAIL", "ada@example.org"),
        ("TZ", "UTC"),
    ]);
}

/// The current time of the file system in `folder`.
pub(crate) fn now(folder: &Path) -> Timestamp {
    let path = folder.join("now");
    fs::write(&path, "").expect("written");
    let modified = fs::metadata(&path).and_then(|found| found.modified()).expect("it has a time");
    let since = modified.duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(u64::try_from(since.as_millis()).expect("not far ahead"))
}

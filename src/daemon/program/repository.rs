//! A folder that git takes for a repository: no settings but the form of its ids, and the objects
//! and refs of another repository as links.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink},
    path::{Path, PathBuf},
};

use strum::{IntoStaticStr, VariantArray};

/// Most bytes of a file that names a folder or a branch.
const LINE_BYTES_MAX: u64 = 8 * 1024;
/// Opens a pipe without waiting for its other end.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;
/// HEAD of an empty repository.
const NO_BRANCH: &str = "ref: refs/heads/none";

/// The hash function of a repository's object ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Ids {
    /// Ids of 40 digits.
    Sha1,
    /// Ids of 64 digits.
    Sha256,
}

impl Ids {
    /// The hash function of a full id; `None` if `id` is not one.
    pub fn of(id: &str) -> Option<Self> {
        let ids = match id.len() {
            40 => Self::Sha1,
            64 => Self::Sha256,
            _ => return None,
        };
        id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(ids)
    }

    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The top folder of its files.
    pub top: PathBuf,
    /// Its own folder: `.git`, or the folder that the file `.git` names.
    own: PathBuf,
    /// The folder of its objects, branches and settings: its own, or that of the main repository of
    /// a worktree.
    common: PathBuf,
}

impl Place {
    /// The repository of `folder`, if there is one. May block on a mount that does not answer.
    ///
    /// Source: git-worktree(1) and gitrepository-layout(5).
    pub fn of(folder: &Path) -> Option<Self> {
        let has_git = |folder: &&Path| fs::symlink_metadata(folder.join(".git")).is_ok();
        let top = folder.ancestors().find(has_git)?;
        let git = top.join(".git");
        let own = if git.is_dir() { git } else { top.join(read_line(&git)?.strip_prefix("gitdir: ")?) };
        let common = read_line(&own.join("commondir")).map_or_else(|| own.clone(), |line| own.join(line));
        Some(Self { top: top.to_owned(), own, common })
    }

    /// The folder of its objects.
    pub fn objects(&self) -> PathBuf {
        self.common.join("objects")
    }

    /// The file with its settings.
    pub fn settings(&self) -> PathBuf {
        self.common.join("config")
    }

    fn has_tables(&self) -> bool {
        self.common.join("reftable/tables.list").is_file()
    }
}

/// Replaces the folder; the refs are those of `refs_of`, if given.
///
/// Errors: the folder cannot be written, or has tables of refs that are not those of a worktree.
pub(super) fn write_empty(folder: &Path, ids: Ids, refs_of: Option<&Place>) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let has_tables = refs_of.is_some_and(Place::has_tables);
    if let Some(place) = refs_of {
        if has_tables && place.own != place.common {
            return Err(io::Error::other("a worktree with tables of refs"));
        }
        for name in ["refs", "packed-refs", "reftable"] {
            symlink(place.common.join(name), folder.join(name))?;
        }
    } else {
        fs::create_dir_all(folder.join("refs"))?;
    }
    fs::create_dir_all(folder.join("objects"))?;
    let storage = if has_tables { "\trefStorage = reftable\n" } else { "" };
    let settings = format!(
        "[core]\n\tbare = true\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = {}\n{storage}",
        ids.as_str()
    );
    fs::write(folder.join("config"), settings)?;
    let head = refs_of.and_then(|place| read_line(&place.own.join("HEAD")));
    fs::write(folder.join("HEAD"), format!("{}\n", head.as_deref().unwrap_or(NO_BRANCH)))
}

/// The first line of a small regular file, if there is one.
fn read_line(path: &Path) -> Option<String> {
    let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path).ok()?;
    let file: File = file.metadata().ok()?.is_file().then_some(file)?;
    let mut bytes = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let line = text.lines().next()?.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}

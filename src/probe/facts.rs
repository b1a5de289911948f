//! What a probe may ask about the machine. The shell answers from the file system; tests answer from a world of their own.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Largest file whose content is hashed, in bytes; a larger one is compared by its size and its time.
pub const HASHED_BYTES_MAX: u64 = 1024 * 1024;
/// Largest text that is kept so that changed lines can be named, in bytes.
pub const KEPT_BYTES_MAX: u64 = 64 * 1024;

/// What a probe may ask.
///
/// Shape: every answer is of one moment; two answers may be of two. Nothing waits: what cannot be had within the probe's time is as
/// unreadable.
pub trait Facts {
    /// What is at `path`, behind symbolic links.
    fn entry(&self, path: &Path) -> Entry;
    /// Names the content of the regular file at `path`; `None` when it is larger than [`HASHED_BYTES_MAX`], cannot be read, or is not
    /// `found` any more. The text of one that is small enough is kept for [`Facts::kept`].
    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash>;
    /// The text of that name, if it was hashed lately and has at most [`KEPT_BYTES_MAX`].
    fn kept(&self, hash: ContentHash) -> Option<Arc<str>>;
    /// The bytes of the regular file at `path` from `from` on, at most `max`; `None` when it cannot be read.
    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>>;
    /// The name in `folder` of the file with this device and inode, if the folder has few entries.
    fn name_of(&self, folder: &Path, device: u64, inode: u64) -> Option<String>;
    /// The last `max` names of what is in `folder`, in the order of their bytes; none when it cannot be read.
    fn names(&self, folder: &Path, max: usize) -> Vec<String>;
    /// The paths, relative to the top of the work tree at `folder`, of the files that differ between two commits; `None` when that cannot
    /// be said.
    fn changed_between(&self, folder: &Path, old: &str, new: &str) -> Option<Arc<[String]>>;
    /// How much room the file system of `path` has.
    fn space(&self, path: &Path) -> Option<Space>;
    /// Whether something on this machine accepts a connection at a port of the loopback address; `None` when that takes too long to say.
    fn accepts(&self, port: u16) -> Option<bool>;
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    Absent,
    /// A regular file.
    File(Fingerprint),
    /// A folder.
    Folder,
    /// Something else, such as a pipe, which is never opened.
    Other,
    /// It cannot be said: no right, a loop of links, a file system that does not answer.
    Unknown,
}

/// What tells one state of a file from another without reading it.
///
/// Source: `mtime` alone goes back with `git`, `tar` and `rsync`; `ctime` cannot be set. They are compared for equality, never for order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fingerprint {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// `mtime`, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// `ctime`, likewise.
    pub changed_ns: i64,
}

/// The first 64 bits of the SHA-256 of a content; 16 hexadecimal digits in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ContentHash(pub u64);

impl ContentHash {
    /// Names `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(u64::from_be_bytes(*Sha256::digest(content).first_chunk().expect("32 bytes begin with 8")))
    }
}

impl From<ContentHash> for String {
    fn from(hash: ContentHash) -> Self {
        format!("{:016x}", hash.0)
    }
}

impl TryFrom<String> for ContentHash {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

/// The room of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What is free for this user.
    pub free: u64,
    /// What there is.
    pub total: u64,
    /// The file system.
    pub device: u64,
}

impl Fingerprint {
    /// Whether both can be of one content, as far as a file says that is not hashed: size and `mtime`. A change of its rights is none.
    pub fn has_size_and_time_of(&self, other: &Self) -> bool {
        (self.size, self.modified_ns) == (other.size, other.modified_ns)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, inode, size, modified_ns, changed_ns } = self;
        write!(f, "{device}:{inode}:{size}:{modified_ns}:{changed_ns}")
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

/// A text that is no fingerprint.
#[derive(Debug, thiserror::Error)]
#[error("is no fingerprint: five numbers joined by `:`")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(FingerprintError);
        let number = |text: &str| text.parse::<u64>().map_err(|_| FingerprintError);
        let time = |text: &str| text.parse::<i64>().map_err(|_| FingerprintError);
        let found = Self {
            device: number(next()?)?,
            inode: number(next()?)?,
            size: number(next()?)?,
            modified_ns: time(next()?)?,
            changed_ns: time(next()?)?,
        };
        if parts.next().is_some() { Err(FingerprintError) } else { Ok(found) }
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = FingerprintError;

    fn try_from(text: String) -> Result<Self, FingerprintError> {
        text.parse()
    }
}

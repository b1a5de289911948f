//! Queries of probes about the machine, and a finding before it is made into an event. In
//! production, the file system answers them; in tests, a simulated world does.

use std::{fmt, path::Path, str::FromStr, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    event::{SessionId, Severity, cut_text, strip_text},
    hash::first_64_bits,
    transcript::Transcript,
};

/// Largest file whose content is hashed, in bytes; a larger one is compared by size and time.
pub const HASHED_BYTES_MAX: u64 = 1024 * 1024;
/// Largest cached text for naming changed lines, in bytes.
pub const KEPT_BYTES_MAX: u64 = 64 * 1024;

/// Queries of probes.
///
/// Shape: each answer is consistent; two answers may be of different moments. No call waits: data
/// that is not available within the probe's time counts as unreadable.
pub trait Facts {
    /// The entry at `path`, after following symbolic links.
    fn entry(&self, path: &Path) -> Entry;
    /// The hash of the regular file at `path`; `None` if it is larger than [`HASHED_BYTES_MAX`],
    /// cannot be read, or is no longer in the state `found`. A small text is cached for
    /// [`Facts::kept`].
    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash>;
    /// The cached text with that hash, if it was hashed recently and has at most
    /// [`KEPT_BYTES_MAX`].
    fn kept(&self, hash: ContentHash) -> Option<Arc<str>>;
    /// Caches a text of at most [`KEPT_BYTES_MAX`] for [`Facts::kept`].
    fn remember(&self, hash: ContentHash, text: &str);
    /// At most `max` bytes of the regular file at `path`, starting at `from`; `None` if it cannot
    /// be read.
    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>>;
    /// The name in `folder` of the file with this device and inode, if the folder has few entries.
    fn name_of(&self, folder: &Path, device: u64, inode: u64) -> Option<String>;
    /// The last `max` entry names of `folder`, in byte order; empty if it cannot be read.
    fn names(&self, folder: &Path, max: usize) -> Vec<String>;
    /// The files that differ between two commits, as paths relative to the top of the work tree, by
    /// the objects in the folder `objects`; `None` if unknown.
    fn changed_between(&self, objects: &Path, old: &str, new: &str) -> Option<Arc<[String]>>;
    /// Free and total space of the file system of `path`.
    fn space(&self, path: &Path) -> Option<Space>;
    /// Whether a loopback port accepts a connection; `None` if the check times out.
    fn accepts(&self, port: u16) -> Option<bool>;
}

/// The entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// No entry.
    Absent,
    /// A regular file.
    File(Fingerprint),
    /// A folder.
    Folder,
    /// Another kind, such as a pipe, which is never opened.
    Other,
    /// Unknown: no permission, a loop of links, a file system that does not answer.
    Unknown,
}

/// Distinguishes states of a file without reading it.
///
/// Source: `tar` and `rsync` set `mtime` back; programs cannot set `ctime`. They are compared for
/// equality, never for order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fingerprint {
    /// The file system's device number.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// Its size in bytes.
    pub size: u64,
    /// `mtime`, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// `ctime`, in nanoseconds since 1970.
    pub changed_ns: i64,
}

/// The first 64 bits of the SHA-256 of a content; 16 hexadecimal digits in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ContentHash(pub u64);

impl ContentHash {
    /// The hash of `content`.
    pub fn of(content: &[u8]) -> Self {
        Self(first_64_bits(Sha256::new_with_prefix(content)))
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

/// Space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Free for this user.
    pub free: u64,
    /// Free and used.
    pub total: u64,
    /// The device number, by which folders of one file system are recognized.
    pub device: u64,
}

impl Fingerprint {
    /// Whether both may have the same content, judged without a hash: by size and `mtime`. A change
    /// of permissions does not count.
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

/// An invalid fingerprint text.
#[derive(Debug, thiserror::Error)]
#[error("is not a fingerprint: five numbers joined by `:`")]
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

/// Number of bytes searched at the end of a transcript.
pub(super) const TRANSCRIPT_BYTES_MAX: u64 = 512 * 1024;

/// The last `max` bytes of a transcript; `None` if it cannot be read.
pub(super) fn end_of(transcript: Transcript<'_>, max: u64, facts: &dyn Facts) -> Option<Vec<u8>> {
    end_of_file(Path::new(transcript.path), max, facts)
}

/// The last `max` bytes of a file; `None` if it cannot be read.
pub(super) fn end_of_file(path: &Path, max: u64, facts: &dyn Facts) -> Option<Vec<u8>> {
    let Entry::File(print) = facts.entry(path) else { return None };
    facts.read(path, print.size.saturating_sub(max), max)
}

/// Most characters of a displayed path.
const PATH_CHARS_MAX: usize = 200;
/// Number of displayed characters of a session id.
const NAME_CHARS: usize = 8;

/// A finding to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The event type.
    pub event_type: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// Distinguishes it from other findings of its type and session; a repeated finding about the
    /// same state has the same name.
    pub name: String,
    /// Its payload.
    pub payload: Value,
}

impl Finding {
    /// A finding about `subject` at a time, which together are its name.
    pub(super) fn dated(
        event_type: &'static str,
        severity: Severity,
        subject: impl fmt::Display,
        at: Timestamp,
        payload: Value,
    ) -> Self {
        Self { event_type, severity, name: format!("{subject}:{}", at.as_millis()), payload }
    }
}

/// A path for display.
pub(super) fn shown_path(path: &str) -> String {
    shown_text(path, PATH_CHARS_MAX)
}

/// A text of at most `chars_max` characters for display, in one line.
pub(super) fn shown_text(text: &str, chars_max: usize) -> String {
    cut_text(strip_text(text), chars_max).replace(char::is_whitespace, " ")
}

/// The name of another session for the agent of `own`: `session` and the start of its id, or its
/// relation to that agent.
pub fn name_towards(own: &SessionId, other: &SessionId) -> String {
    let (own, other) = (own.as_str(), other.as_str());
    let short = |name: &str| strip_text(name).chars().take(NAME_CHARS).collect::<String>();
    match (other.strip_prefix(own), own.strip_prefix(other)) {
        (Some(agent), _) if agent.starts_with('/') => {
            format!("your subagent {}", short(agent.trim_start_matches('/')))
        }
        (_, Some(agent)) if agent.starts_with('/') => "your parent session".to_owned(),
        _ => format!("session {}", short(other)),
    }
}

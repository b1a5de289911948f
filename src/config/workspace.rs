//! The layer of a workspace: what its files compile to.

use std::sync::Arc;

use engine::{hex::hex, pipeline::rule::Subscriber};
use sha2::{Digest, Sha256};

use crate::config::report::Report;

/// The result for the files of one workspace.
#[derive(Debug)]
pub struct CompiledWorkspace {
    /// Its folder.
    pub folder: Arc<str>,
    /// Its subscribers, by id; none if a file has an error.
    pub subscribers: Vec<Arc<Subscriber>>,
    /// Errors and warnings.
    pub report: Report,
}

impl CompiledWorkspace {
    /// Whether its files have no error.
    pub fn is_in_force(&self) -> bool {
        self.report.error_count() == 0
    }
}

/// Most characters of a folder's own name in an id.
const FOLDER_NAME_CHARS_MAX: usize = 24;
/// Bytes of the hash of a folder's path in an id.
const FOLDER_HASH_BYTES: usize = 4;

/// The name of a folder in the ids of its subscribers: the letters and digits of its own name, and a
/// hash of its path, so that it is unique and safe in every format.
pub(super) fn name_of_folder(folder: &str) -> String {
    let name = folder.rsplit('/').next().unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let name: String = name.chars().filter(is_plain).take(FOLDER_NAME_CHARS_MAX).collect();
    let hash = Sha256::digest(folder);
    format!("{name}-{}", hex(hash.iter().take(FOLDER_HASH_BYTES)))
}

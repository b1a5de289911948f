//! The layer of a workspace: what its files compile to, and which workspaces are trusted.

use std::sync::Arc;

use engine::{hex::hex, pipeline::rule::Subscriber};
use serde::{Deserialize, Serialize};
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

/// Most trusted workspaces.
pub const TRUSTED_MAX: usize = 64;

/// A workspace whose files its user has trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    /// Its folder.
    pub folder: Arc<str>,
    /// The hash of its files then.
    pub hash: String,
    /// When that was.
    pub at: String,
}

/// The trusted workspaces, by folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TrustList(Vec<Trusted>);

impl TrustList {
    /// Reads the output of [`Self::to_json`].
    ///
    /// Errors: it is another text.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The list as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings are JSON")
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Trusted> {
        self.0.iter()
    }

    /// The one with this folder.
    pub fn get(&self, folder: &str) -> Option<&Trusted> {
        self.0.iter().find(|one| *one.folder == *folder)
    }

    /// Trusts files, in place of earlier ones of the same folder.
    ///
    /// Errors: there are [`TRUSTED_MAX`] other folders.
    pub fn trust(&mut self, trusted: Trusted) -> Result<(), String> {
        self.revoke(&trusted.folder);
        if self.0.len() >= TRUSTED_MAX {
            return Err(format!(
                "{TRUSTED_MAX} workspaces are trusted; revoke the trust in one of them first"
            ));
        }
        self.0.push(trusted);
        self.0.sort_by(|a, b| a.folder.cmp(&b.folder));
        Ok(())
    }

    /// Ends the trust in a folder; returns whether there was one.
    pub fn revoke(&mut self, folder: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|one| *one.folder != *folder);
        self.0.len() < before
    }
}

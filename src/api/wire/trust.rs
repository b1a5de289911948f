//! The JSON of workspaces with files of their own, and of the trust in them.

use std::sync::Arc;

use engine::request::{self, FieldError};
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

/// A workspace with a layer of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct WorkspaceView {
    /// Its folder.
    pub folder: Arc<str>,
    /// Whether its files are in force.
    pub state: WorkspaceState,
    /// The hash of the files that are there.
    pub hash: String,
    /// When they were trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_at: Option<String>,
    /// The ids of its subscribers that are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<String>,
    /// The first error in its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

engine::words::impl_as_str!(WorkspaceState);

/// Whether the files of a workspace are in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, Display)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WorkspaceState {
    /// They are trusted, and in force for the sessions there.
    InForce,
    /// They are trusted, and have an error.
    Broken,
    /// They are not the ones that were trusted.
    Changed,
    /// They were trusted, and are gone.
    Missing,
    /// A session works there, and they were never trusted.
    Untrusted,
}

impl WorkspaceState {
    /// Whether the files that are trusted are there.
    pub fn is_active(self) -> bool {
        matches!(self, Self::InForce | Self::Broken)
    }
}

impl WorkspaceView {
    /// What keeps its files from being in force, as a sentence about the folder; `None` if they are.
    pub fn trouble(&self) -> Option<String> {
        let folder = &self.folder;
        let what = match self.state {
            WorkspaceState::InForce => return None,
            WorkspaceState::Broken => {
                let problem = self.problem.as_deref().unwrap_or("an error");
                return Some(format!("the files in {folder}/.aside are not in force: {problem}"));
            }
            WorkspaceState::Changed => "have changed since you trusted them, and are not in force",
            WorkspaceState::Missing => "were trusted, and are gone",
            WorkspaceState::Untrusted => {
                "are for the agents there, and are not in force until you trust them"
            }
        };
        Some(format!("the files in {folder}/.aside {what}"))
    }

    /// The command by which its user decides about it.
    pub fn remedy(&self) -> String {
        match self.state {
            WorkspaceState::Broken => command("check", &self.folder),
            WorkspaceState::Missing => command("trust --revoke", &self.folder),
            WorkspaceState::InForce | WorkspaceState::Changed | WorkspaceState::Untrusted => {
                command("trust", &self.folder)
            }
        }
    }
}

/// A command of `aside` for a folder, as a shell reads it.
pub fn command(words: &str, folder: &str) -> String {
    let folder = shlex::try_quote(folder).unwrap_or_default();
    format!("aside {words} {folder}")
}

/// The workspaces that are trusted, or wait for their user's decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct WorkspacesView {
    /// By folder.
    pub workspaces: Vec<WorkspaceView>,
}

/// Trusts the files of a workspace, or ends the trust in them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TrustRequest {
    /// Its folder: an absolute path without links.
    pub folder: Arc<str>,
    /// The hash of the files; absent to end the trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

impl TrustRequest {
    /// Parses the body of a request.
    ///
    /// Errors: the first invalid field, or an unknown one.
    pub fn read(body: &[u8]) -> Result<Self, FieldError> {
        request::read_body(body)
    }
}

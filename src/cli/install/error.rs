//! Why an installation or removal failed.

use std::path::PathBuf;

use hook::{client::PROGRAM, paths::PathsError};

use super::{plan::FileError, settings::SettingsError};
use crate::harness::installation::Version;

/// Why an installation or removal failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The location of the files is unknown.
    #[error("{}HOME is {}set", either(*variable), if variable.is_some() { "" } else { "not " })]
    NoHome {
        /// The variable that can replace the home folder.
        variable: Option<&'static str>,
    },
    /// The daemon's socket or folders are unknown.
    #[error(transparent)]
    Places(PathsError),
    /// A file cannot be read or changed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A settings file cannot be edited, or is one that its client skips whole.
    #[error("{}; {}nothing was changed", why.at(path), why.effect())]
    Settings { path: PathBuf, why: SettingsError },
    /// It would run twice.
    #[error("{what} exists already, and with both every hook would run twice; remove it first: {remedy}")]
    Twice {
        /// The other installation.
        what: String,
        /// The command that removes it.
        remedy: String,
    },
    /// The extension's place has foreign content.
    #[error("{} exists already and is not from aside; move it first", path.display())]
    Foreign { path: PathBuf },
    /// The program's hooks would not be recognized as aside's later, so never updated or removed.
    #[error("{program} is not named `{}`, which identifies its hooks later; rename it first", PROGRAM)]
    OtherName { program: String },
    /// The project does not exist.
    #[error("the folder {} does not exist", path.display())]
    NoProject {
        /// Its expected path.
        path: PathBuf,
    },
    /// A unit cannot contain this path.
    #[error(
        "systemd does not accept the path {path:?} in a unit; move it to a path without quotes, backslashes or line breaks"
    )]
    NotInUnit { path: PathBuf },
    /// Nothing is installed in a client.
    #[error("{title} is not installed in a client: `{start}` starts an agent with it")]
    NoClient { title: &'static str, start: String },
    /// The client does not support what is installed.
    #[error("{client} is version {version}; {needs} {oldest} or later; update it first: {update}")]
    TooOld {
        client: &'static str,
        /// Its reported version.
        version: Version,
        /// What needs a newer one, with its verb.
        needs: &'static str,
        /// The oldest supported version.
        oldest: Version,
        /// The command that updates it.
        update: &'static str,
    },
}

fn either(variable: Option<&str>) -> String {
    variable.map(|variable| format!("neither {variable} nor ")).unwrap_or_default()
}

//! Why an installation or removal failed.

use std::path::PathBuf;

use super::{
    plan::FileError,
    settings::{self, SettingsError},
};
use crate::harness::program::Version;

/// Why an installation or removal failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The location of the files is unknown.
    #[error("{}HOME is {}set", either(*variable), if variable.is_some() { "" } else { "not " })]
    NoHome {
        /// The variable that can replace the home folder.
        variable: Option<&'static str>,
    },
    /// A file cannot be read or changed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A settings file cannot be edited.
    #[error("{}; nothing was changed", why.at(path))]
    Settings {
        /// The file.
        path: PathBuf,
        /// Why.
        why: SettingsError,
    },
    /// It would run twice.
    #[error("{what} is there already, and with both every hook would run twice; remove it first: {remedy}")]
    Twice {
        /// The other installation.
        what: String,
        /// The command that removes it.
        remedy: String,
    },
    /// The plugin's place has foreign content.
    #[error("{} is there already and is not aside's; move it away first", path.display())]
    Foreign {
        /// The place.
        path: PathBuf,
    },
    /// The program's hooks would not be recognized as aside's later, so never updated or removed.
    #[error(
        "{program} is not called `{}`, by which its hooks are known later; give it that name first",
        settings::PROGRAM
    )]
    OtherName {
        /// The program.
        program: String,
    },
    /// The project does not exist.
    #[error("there is no folder {}", path.display())]
    NoProject {
        /// Its expected path.
        path: PathBuf,
    },
    /// A unit cannot contain this path.
    #[error(
        "systemd takes no path like {path:?} in a unit; put it where no quotes, backslashes or line breaks are in its name"
    )]
    NotInUnit {
        /// The path.
        path: PathBuf,
    },
    /// The client does not support these hooks.
    #[error(
        "{client} is version {version}, and takes these hooks from {oldest} on; update it first: {update}"
    )]
    TooOld {
        /// Its program.
        client: &'static str,
        /// Its reported version.
        version: Version,
        /// The oldest supported version.
        oldest: Version,
        /// The command that updates it.
        update: &'static str,
    },
}

fn either(variable: Option<&str>) -> String {
    variable.map(|variable| format!("neither {variable} nor ")).unwrap_or_default()
}

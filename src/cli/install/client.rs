//! The client in which aside is installed.

use std::path::PathBuf;

use super::{InstallError, Outcome};
use crate::{
    cli::harness,
    harness::{installation::Version, kind::Client},
};

/// The user's folder of the client.
pub(crate) fn home(client: &Client) -> Result<PathBuf, InstallError> {
    harness::folder(client).ok_or(InstallError::NoHome { variable: client.variables.folder })
}

/// Refuses a client that is too old, and notes one whose version is unknown; `needs` is the oldest
/// one, and what needs it.
pub(super) fn check_version(
    outcome: &mut Outcome,
    client: &Client,
    version: Option<Version>,
    needs: (Version, &'static str),
) -> Result<(), InstallError> {
    let (oldest, needs) = needs;
    let name = client.program.name;
    match version {
        Some(version) if version < oldest => {
            let update = client.program.update;
            return Err(InstallError::TooOld { client: name, version, needs, oldest, update });
        }
        Some(_) => {}
        None => outcome.note(&format!(
            "no `{name}` on the PATH reports its version; the installation takes effect once there is one"
        )),
    }
    Ok(())
}

//! The daemon that runs, of this version or another one.

use std::time::Duration;

use hook::client::Client;
use serde::Deserialize;

use crate::{
    api::wire::views::ConfigView,
    daemon::version::{BUILD, VERSION},
};

/// Time limit of a running daemon's status.
pub(super) const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The status of a running daemon.
#[derive(Debug, Deserialize)]
pub(super) struct Running {
    pub(super) version: String,
    /// Empty if it is older than this field.
    #[serde(default)]
    pub(super) build: String,
    pub(super) pid: u32,
    #[serde(default)]
    pub(super) clock_ahead_ms: i64,
    #[serde(default)]
    pub(super) journal: RunningJournal,
    #[serde(default)]
    pub(super) config: ConfigView,
}

impl Running {
    /// Its version and build, if it is another program than this one.
    pub(super) fn other_program(&self) -> Option<String> {
        let Self { version, build, .. } = self;
        if version != VERSION {
            return Some(format!("version {version}"));
        }
        let shown = if build.is_empty() { "an earlier one" } else { build };
        (build != BUILD).then(|| format!("version {version}, build {shown}"))
    }
}

/// The status of its journal.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RunningJournal {
    #[serde(default)]
    pub(super) problems: Vec<String>,
}

/// The daemon at `client`'s socket, if it answers as one.
pub(super) fn running(client: &Client) -> Option<Running> {
    let client = Client::new(client.socket().to_owned(), STATUS_TIMEOUT);
    let response = client.request("GET", "/v1/status", &[], b"").ok()?;
    serde_json::from_slice(&response.body).ok().filter(|_| response.status == 200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn daemon_of_another_version_counts_as_running() {
        let status = r#"{"version":"9","pid":7,"config":{"state":"partly","new":[1]},"journal":{}}"#;
        let daemon = FakeDaemon::answering_json(200, status);
        let client = Client::new(daemon.socket().to_owned(), STATUS_TIMEOUT);
        let running = running(&client).expect("it runs");
        assert_eq!(running.other_program().as_deref(), Some("version 9"));
        assert_eq!((&*running.version, running.pid, &*running.config.state), ("9", 7, "partly"));
        for (build, other) in [
            (BUILD, None),
            ("0", Some(format!("version {VERSION}, build 0"))),
            ("", Some(format!("version {VERSION}, build an earlier one"))),
        ] {
            let status = format!(r#"{{"version":"{VERSION}","build":"{build}","pid":7}}"#);
            let daemon = FakeDaemon::answering_json(200, &status);
            let client = Client::new(daemon.socket().to_owned(), STATUS_TIMEOUT);
            assert_eq!(super::running(&client).expect("it runs").other_program(), other);
        }
        let other = FakeDaemon::answering_json(200, "{}");
        assert!(super::running(&Client::new(other.socket().to_owned(), STATUS_TIMEOUT)).is_none());
    }
}

//! `[sinks]` of `aside.toml`.

use std::{sync::Arc, time::Duration};

use super::Job;
use journal::time::{Timestamp, hours::Hours};

use crate::notification::{Level, Sink};

/// The settings of the sinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The sinks, in the order in which they are named; each once.
    pub default: Vec<Sink>,
    /// The wait of a failed sink after each failure; it is given up after the last one.
    pub retry: Vec<Duration>,
    /// The quiet hours, in which the user must not be woken.
    pub quiet: Option<Hours>,
    /// `[sinks.log]`.
    pub log: Log,
    /// `[sinks.ntfy]`.
    pub ntfy: Ntfy,
    /// `[sinks.webhook]`.
    pub webhook: Webhook,
    /// `[sinks.apprise]`.
    pub apprise: Apprise,
}

/// A file of JSON lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// An absolute path; `None` for a file in the state folder.
    pub path: Option<Arc<str>>,
    /// Size in bytes at which a new file begins; one older file is kept.
    pub max_bytes: u64,
}

/// An ntfy server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ntfy {
    /// The server; the last path segment is the topic.
    pub url: Option<Url>,
    /// The absolute path of a file with a token.
    pub token_file: Option<Arc<str>>,
}

/// A server that receives signed webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Webhook {
    /// Its address.
    pub url: Option<Url>,
    /// The absolute path of a file with the signing secret.
    pub secret_file: Option<Arc<str>>,
}

/// The `apprise` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apprise {
    /// The program, by its name or path.
    pub command: Arc<str>,
    /// The absolute path of its configuration file; `None` for its own default.
    pub config_file: Option<Arc<str>>,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether it uses HTTPS.
    pub is_secure: bool,
    /// The name or address of the machine, without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// Host and port as written in the settings.
    pub authority: Arc<str>,
    /// Path and query; begins with `/`.
    pub path: Arc<str>,
}

/// The default waits of a sink after each failure.
///
/// Source: the schedule that Standard Webhooks recommends, without its last days.
pub const RETRY: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3_600),
    Duration::from_secs(5 * 3_600),
];
/// The default size at which a new log begins: some thousand notices.
const LOG_BYTES: u64 = 1024 * 1024;

impl Default for Settings {
    fn default() -> Self {
        Self {
            default: vec![Sink::Harness, Sink::Desktop, Sink::Log],
            retry: RETRY.to_vec(),
            quiet: None,
            log: Log { path: None, max_bytes: LOG_BYTES },
            ntfy: Ntfy::default(),
            webhook: Webhook::default(),
            apprise: Apprise { command: "apprise".into(), config_file: None },
        }
    }
}

impl Settings {
    /// The end of the quiet hours, if a job has to wait for it at `now`.
    pub fn waits_until(
        &self,
        job: &Job,
        now: Timestamp,
        utc_offset: impl Fn(Timestamp) -> i32,
    ) -> Option<Timestamp> {
        let can_wake = job.sink.delivery().wakes && job.notice.level < Level::Error;
        self.quiet.filter(|_| can_wake)?.end(now, utc_offset)
    }
}

impl Url {
    /// The full address of `path` on this server.
    pub fn address(&self, path: &str) -> String {
        format!("{}://{}{path}", if self.is_secure { "https" } else { "http" }, self.authority)
    }
}

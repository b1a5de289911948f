//! `[sinks]` of `aside.toml`.

use std::{sync::Arc, time::Duration};

use super::Job;
use crate::{
    notification::{Level, Sink},
    time::{Timestamp, hours::Hours},
};

/// Where word for the user goes, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The sinks, in the order in which they are named; each once.
    pub default: Vec<Sink>,
    /// How long a sink that failed waits, after each failure; it is given up after the last one.
    pub retry: Vec<Duration>,
    /// The hours in which nobody is to be woken.
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
    /// An absolute path; `None` for one in the state folder.
    pub path: Option<Arc<str>>,
    /// Size in bytes at which a new one begins; the one before is kept.
    pub max_bytes: u64,
}

/// An ntfy server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ntfy {
    /// The server and, last, the topic.
    pub url: Option<Url>,
    /// The absolute path of the file that holds a token.
    pub token_file: Option<Arc<str>>,
}

/// A server that takes signed webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Webhook {
    /// Where it takes them.
    pub url: Option<Url>,
    /// The absolute path of the file that holds the secret by which they are signed.
    pub secret_file: Option<Arc<str>>,
}

/// The `apprise` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apprise {
    /// The program, by its name or path.
    pub command: Arc<str>,
    /// The absolute path of its file of services; its own default if there is none.
    pub config_file: Option<Arc<str>>,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether it is asked by https.
    pub is_secure: bool,
    /// The name or address of the machine, without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// Host and port as they were written.
    pub authority: Arc<str>,
    /// Path and query; begins with `/`.
    pub path: Arc<str>,
}

/// How long a sink waits after each failure, unless the configuration says otherwise.
///
/// Source: the schedule that Standard Webhooks recommends, without its last days.
pub const RETRY: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3_600),
    Duration::from_secs(5 * 3_600),
];
/// Size at which a new log begins, unless the configuration says otherwise: some thousand notices.
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
    /// Until when a job waits because the user is not to be woken at `now`.
    pub fn waits_until(
        &self,
        job: &Job,
        now: Timestamp,
        utc_offset: impl Fn(Timestamp) -> i32,
    ) -> Option<Timestamp> {
        // Nobody is woken by a file, nor by a line in a terminal that they look at.
        let can_wake = !matches!(job.sink, Sink::Log | Sink::Harness) && job.notice.level < Level::Error;
        self.quiet.filter(|_| can_wake)?.end(now, utc_offset)
    }
}

impl Url {
    /// The address of `path` at this server.
    pub fn address(&self, path: &str) -> String {
        format!("{}://{}{path}", if self.is_secure { "https" } else { "http" }, self.authority)
    }
}

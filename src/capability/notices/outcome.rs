//! Common parts of all sinks: time limits, secrets, server answers, and outcomes.

use std::{path::PathBuf, time::Duration};

use engine::{notification::Level, sink::Answered};

use crate::{capability::source::secret, daemon::tasks::run_blocking};

/// The time limit of an attempt.
pub(super) const TRY_MAX: Duration = Duration::from_secs(10);

/// Bytes read of an answer.
pub(super) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The answer of a server.
pub(super) struct Response {
    pub(super) status: u16,
    /// The beginning of the body.
    pub(super) body: Vec<u8>,
}

impl Response {
    pub(super) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

/// A failure that can be retried.
pub(super) const fn failed(error: String) -> Answered {
    Answered::Refused { error, is_final: false }
}

/// A failure that is final.
pub(super) const fn never(error: String) -> Answered {
    Answered::Refused { error, is_final: true }
}

/// Another system's name of a level; `words` are its names of `info`, `warn` and `error`.
pub(super) const fn word_of(level: Level, words: [&'static str; 3]) -> &'static str {
    let [info, warn, error] = words;
    match level {
        Level::Info => info,
        Level::Warn => warn,
        Level::Error => error,
    }
}

/// The secret in a file.
///
/// Errors: the reason, as text.
pub(super) async fn read_secret(path: &str) -> Result<String, String> {
    let file = PathBuf::from(path);
    match run_blocking(move || secret::read(&file)).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(error) => Err(format!("{path} cannot be read: {error}")),
    }
}

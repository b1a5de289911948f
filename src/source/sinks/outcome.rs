//! What tries at all sinks have in common: their time, their secrets, answers, how they end.

use std::{path::PathBuf, time::Duration};

use tokio::task::spawn_blocking;

use crate::{notification::Level, sink::Answered, source::secret};

/// How long a try may take.
pub(super) const TRY_MAX: Duration = Duration::from_secs(10);

/// How much of an answer is read, in bytes.
pub(super) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What a server answered.
pub(super) struct Response {
    pub(super) status: u16,
    /// Its beginning.
    pub(super) body: Vec<u8>,
}

impl Response {
    pub(super) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

/// It can be tried again.
pub(super) const fn failed(error: String) -> Answered {
    Answered::Refused { error, is_final: false }
}

/// It need not be tried again.
pub(super) const fn never(error: String) -> Answered {
    Answered::Refused { error, is_final: true }
}

/// The word that a level has elsewhere: of three, the first is for `info`.
pub(super) const fn word_of(level: Level, words: [&'static str; 3]) -> &'static str {
    let [info, warn, error] = words;
    match level {
        Level::Info => info,
        Level::Warn => warn,
        Level::Error => error,
    }
}

/// The secret in a file, in words where there is none.
pub(super) async fn read_secret(path: &str) -> Result<String, String> {
    let file = PathBuf::from(path);
    match spawn_blocking(move || secret::read(&file)).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(error) => Err(format!("{path} cannot be read: {error}")),
    }
}

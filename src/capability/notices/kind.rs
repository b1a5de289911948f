//! A row of the table of sinks, and what the rows have in common: time limits, secrets, answers of
//! servers, outcomes, and a notice as JSON.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use engine::{
    event::SessionId,
    notification::{Level, Sink},
    sink::{Answered, Choices, Notice, Progress, Settings, Target},
};
use futures_util::future::BoxFuture;
use journal::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    capability::source::Outlet,
    daemon::{program::Programs, regular_file, tasks::run_blocking},
};

/// What a sink delivers, and by what.
pub(super) struct Attempt<'a> {
    pub(super) notice: &'a Notice,
    pub(super) settings: &'a Settings,
    pub(super) programs: &'a Programs,
    /// The folder of the daemon's state.
    pub(super) state: &'a Path,
    /// The clocks.
    pub(super) out: &'a Outlet,
}

/// A sink.
pub(super) struct Kind {
    pub(super) sink: Sink,
    /// Whether it shows a question until a choice is made.
    pub(super) waits_for_choice: bool,
    /// The time limit of an attempt that begins at a time.
    pub(super) limit: fn(&Notice, &Settings, Timestamp) -> Duration,
    /// The destination, as far as it can be checked without a notice; or why it takes none.
    pub(super) check: for<'a> fn(&'a Settings, &'a Programs) -> BoxFuture<'a, Result<String, String>>,
    pub(super) send: for<'a> fn(&Attempt<'a>) -> BoxFuture<'a, Answered>,
}

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
    match run_blocking(move || regular_file::read_secret(&file)).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(error) => Err(format!("{path} cannot be read: {error}")),
    }
}

/// A notice as a JSON object: its message without markup, and with it if it is markdown.
pub(super) fn fields(notice: &Notice) -> Value {
    let mut fields = Map::new();
    let mut insert = |name: &str, text: Option<&str>| {
        fields.extend(text.map(|text| (name.to_owned(), Value::from(text))));
    };
    insert("id", Some(&notice.id));
    insert("at", Some(&notice.at.to_string()));
    insert("level", Some(notice.level.as_str()));
    insert("context", Some(&notice.context));
    insert("category", notice.category.map(|category| category.as_str()));
    insert("message", Some(&notice.message_for(Target::Plain)));
    insert("markdown", notice.is_markdown.then(|| notice.message_for(Target::Markdown)).as_deref());
    insert("link", notice.link.as_deref());
    insert("session", notice.session.as_ref().map(SessionId::as_str));
    insert("workspace", notice.workspace.as_deref());
    if let Some(Choices { words, expires_at }) = &notice.choices {
        fields.insert("choices".to_owned(), json!(words));
        fields.insert("expires_at".to_owned(), expires_at.to_string().into());
    }
    if let Some(Progress { key, percent, .. }) = &notice.progress {
        fields.insert("key".to_owned(), json!(key));
        fields.extend(percent.map(|percent| ("progress".to_owned(), percent.into())));
    }
    if !notice.held.is_nothing() {
        fields.insert("not_sent_before".to_owned(), json!(notice.held));
    }
    Value::Object(fields)
}

/// A notice as a line of JSON.
pub(super) fn line(notice: &Notice) -> String {
    format!("{}\n", fields(notice))
}

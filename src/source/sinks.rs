//! Carries word for the user to the sinks: one notice at a time to each, in the order in which they were said (docs/design/word.md).
//!
//! The engine says what is due. How a sink answered is published as `sink.sent` or `sink.failed`; what follows from that the engine
//! decides. A try that takes too long is ended, with what was started for it.

mod check;
mod command;
mod http;
mod log;
#[cfg(feature = "https")]
mod secure;
mod webhook;

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinError, JoinSet, spawn_blocking},
    time::timeout,
};

pub use self::check::check;
use super::{Outlet, Source, pause, secret};
use crate::{
    event::SessionId,
    notification::Sink,
    publisher::Records,
    sink::{Answered, Category, Job, Level, Notice, Outbound, Settings},
    time::Timestamp,
};

/// How long a try may take.
const TRY_MAX: Duration = Duration::from_secs(10);
/// The same for a command, which may ask a server itself.
const COMMAND_MAX: Duration = Duration::from_secs(30);
/// Between two tries to publish on a full disk.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A try: of which notice, at which sink, after how many failures.
type Key = (Arc<str>, Sink, u32);

/// The source.
#[derive(Debug)]
pub struct Sinks {
    outbound: watch::Receiver<Outbound>,
    /// The log, unless it is configured elsewhere.
    log: PathBuf,
}

/// Why it ended.
#[derive(Debug, thiserror::Error)]
pub enum SinksError {
    /// Nobody says any more what is due.
    #[error("the event loop has ended")]
    Ended,
    /// A task panicked.
    #[error("a sink could not be asked")]
    Task(#[source] JoinError),
}

impl Sinks {
    /// Carries what `outbound` lists; `log` is the file of the sink of that name, unless the settings name one.
    pub fn new(outbound: watch::Receiver<Outbound>, log: PathBuf) -> Self {
        Self { outbound, log }
    }
}

impl Source for Sinks {
    const NAME: &'static str = "notify";
    type Error = SinksError;

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SinksError> {
        let mut outbound = self.outbound.clone();
        let mut tasks = JoinSet::new();
        let mut running: HashMap<Key, AbortHandle> = HashMap::new();
        loop {
            let Outbound { settings, jobs } = outbound.borrow_and_update().clone();
            let due: HashSet<Key> = jobs.iter().map(key).collect();
            running.retain(|key, task| {
                let is_due = due.contains(key);
                if !is_due {
                    task.abort();
                }
                is_due
            });
            for job in jobs.iter() {
                // One that has answered stays in the list until the engine has read that.
                if running.keys().any(|(_, sink, _)| *sink == job.sink) {
                    continue;
                }
                let (settings, log, out) = (Arc::clone(&settings), self.log.clone(), out.clone());
                running.insert(key(job), tasks.spawn(carry(job.clone(), settings, log, out)));
            }
            loop {
                tokio::select! {
                    changed = outbound.changed() => {
                        changed.map_err(|_| SinksError::Ended)?;
                        outbound.mark_changed();
                        break;
                    }
                    Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                        Err(error) if error.is_panic() => return Err(SinksError::Task(error)),
                        Ok(()) | Err(_) => {}
                    },
                }
            }
        }
    }
}

fn key(job: &Job) -> Key {
    (Arc::clone(&job.notice.id), job.sink, job.failures)
}

/// Has a sink take a notice, and publishes how it answered.
async fn carry(job: Job, settings: Arc<Settings>, log: PathBuf, out: Outlet) {
    let limit = if matches!(job.sink, Sink::Desktop | Sink::Apprise) { COMMAND_MAX } else { TRY_MAX };
    let now = (out.clock)();
    let answered = timeout(limit, ask(&job, &settings, log, now)).await;
    let answered = answered.unwrap_or_else(|_| failed(format!("it took longer than {} s", limit.as_secs())));
    if let Answered::Refused { error, is_final } = &answered {
        let (notice, sink) = (&job.notice.id, job.sink.as_str());
        tracing::debug!(%notice, sink, error, is_final, "a sink did not take a notice");
    }
    let event = job.event(&answered, (out.clock)());
    while let Err(error) = out.publisher.publish(Records::build(|records| records.own_event(&event))).await {
        tracing::warn!(notice = %job.notice.id, %error, "how a sink answered cannot be published yet");
        pause(RETRY_AFTER).await;
    }
}

async fn ask(job: &Job, settings: &Settings, log: PathBuf, now: Timestamp) -> Answered {
    let notice = &job.notice;
    match job.sink {
        Sink::Harness => never("no hook can show it".to_owned()),
        Sink::Desktop => command::desktop(notice).await,
        Sink::Log => {
            let path = settings.log.path.as_deref().map_or(log, PathBuf::from);
            log::append(path, line(notice), settings.log.max_bytes).await
        }
        Sink::Ntfy => match &settings.ntfy.url {
            Some(url) => http::ntfy(url, settings.ntfy.token_file.as_deref(), notice).await,
            None => never("it is not set any more".to_owned()),
        },
        Sink::Webhook => match (&settings.webhook.url, &settings.webhook.secret_file) {
            (Some(url), Some(secret)) => webhook::post(url, secret, notice, now).await,
            _ => never("it is not set any more".to_owned()),
        },
        Sink::Apprise => command::apprise(&settings.apprise, notice).await,
    }
}

/// A notice as JSON.
fn fields(notice: &Notice) -> Value {
    let mut fields = Map::new();
    let mut insert = |name: &str, text: Option<&str>| {
        fields.extend(text.map(|text| (name.to_owned(), Value::from(text))));
    };
    insert("id", Some(&notice.id));
    insert("at", Some(&notice.at.to_string()));
    insert("level", Some(notice.level.as_str()));
    insert("context", Some(&notice.context));
    insert("category", notice.category.map(Category::as_str));
    insert("message", Some(&notice.message));
    insert("session", notice.session.as_ref().map(SessionId::as_str));
    insert("workspace", notice.workspace.as_deref());
    if !notice.held.is_nothing() {
        fields.insert("not_sent_before".to_owned(), json!(notice.held));
    }
    Value::Object(fields)
}

fn line(notice: &Notice) -> String {
    format!("{}\n", fields(notice))
}

/// The word that a level has elsewhere: of three, the first is for `info`.
const fn word_of(level: Level, words: [&'static str; 3]) -> &'static str {
    let [info, warn, error] = words;
    match level {
        Level::Info => info,
        Level::Warn => warn,
        Level::Error => error,
    }
}

/// It can be tried again.
const fn failed(error: String) -> Answered {
    Answered::Refused { error, is_final: false }
}

/// It need not be tried again.
const fn never(error: String) -> Answered {
    Answered::Refused { error, is_final: true }
}

/// The secret in a file, in words where there is none.
async fn read_secret(path: &str) -> Result<String, String> {
    let file = PathBuf::from(path);
    match spawn_blocking(move || secret::read(&file)).await {
        Ok(read) => read.map_err(|error| error.to_string()),
        Err(error) => Err(format!("{path} cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests;

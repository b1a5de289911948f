//! A notice for the user: its message, its level, its choices, and its text in one line.
//!
//! The progress of a task is notices that replace one another. A newer notice of the same speaker
//! with the same key replaces the older one. A notice with a percentage is sent at most once in
//! [`PACE`] per key. Those in between wait until then, unless a newer one replaces them. A notice
//! tells how many before it were not sent.

use std::{fmt, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{
    clean_line, clean_markdown,
    text::{self, Span, Target},
};
use crate::{
    event::{Event, EventRef, Scope, SessionId},
    hex::hex,
    notification::{Category, Level, link},
    sorted::SortedMap,
    words::Words,
};

/// The type of the event with a notice; its payload is a [`Notice`].
pub const NOTICE: &str = "user.notice";
/// Longest message, in characters; a longer one is cut, and marked as cut.
pub const MESSAGE_CHARS_MAX: usize = 1_000;
/// Longest context, in characters.
pub const CONTEXT_CHARS_MAX: usize = 64;
/// The context of a notice without one.
pub const CONTEXT_DEFAULT: &str = "llm";

/// A notice for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The id of its event, or of its notification.
    #[serde(rename = "notice")]
    pub id: Arc<str>,
    /// The text, in one line; if it is markdown, fenced code is on lines of its own.
    pub message: Arc<str>,
    /// Whether the message is markdown; otherwise all characters are shown unchanged.
    #[serde(default, rename = "markdown", skip_serializing_if = "std::ops::Not::not")]
    pub is_markdown: bool,
    /// A web address to open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Arc<str>>,
    /// How serious it is.
    #[serde(default)]
    pub level: Level,
    /// The context, such as `llm` or the id of a subscriber.
    pub context: Arc<str>,
    /// The category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    /// The session of origin, from its event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The folder of origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// When the notice was created.
    pub at: Timestamp,
    /// The choices, if it is a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Choices>,
    /// The progress of a task, if the notice reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The counts of notices that were not sent before it.
    #[serde(default, skip_serializing_if = "NotSent::is_nothing")]
    pub held: NotSent,
}

/// The place of a part of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// In the text.
    InText,
    /// Outside of the text, or not shown.
    Apart,
}

/// The parts of a text besides the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Where the link is shown.
    pub link: Shown,
    /// The command that answers a question.
    pub command: Shown,
}

impl Parts {
    /// All parts in the text.
    pub const ALL: Self = Self { link: Shown::InText, command: Shown::InText };
}

impl Notice {
    /// A notice with this id and message at `now`: level `info`, default context, without session
    /// and folder.
    pub fn new(id: &str, message: &str, now: Timestamp) -> Self {
        Self {
            id: id.into(),
            message: message.into(),
            is_markdown: false,
            link: None,
            level: Level::default(),
            context: CONTEXT_DEFAULT.into(),
            category: None,
            session: None,
            workspace: None,
            at: now,
            choices: None,
            progress: None,
            held: NotSent::default(),
        }
    }

    /// The event of this notice.
    pub fn event(&self) -> Event {
        let mut payload = Map::new();
        payload.insert("notice".to_owned(), Value::from(&*self.id));
        payload.insert("message".to_owned(), Value::from(&*self.message));
        payload.extend(self.is_markdown.then(|| ("markdown".to_owned(), true.into())));
        payload.extend(self.link.as_deref().map(|link| ("link".to_owned(), link.into())));
        payload.insert("level".to_owned(), self.level.as_str().into());
        payload.insert("context".to_owned(), Value::from(&*self.context));
        if let Some(Progress { key, percent, .. }) = &self.progress {
            payload.insert("key".to_owned(), Value::from(&**key));
            payload.extend(percent.map(|percent| ("progress".to_owned(), percent.into())));
        }
        payload.extend(self.category.map(|category| ("category".to_owned(), category.as_str().into())));
        Event {
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            ..Event::own(NOTICE, self.id.to_string(), self.level.severity(), Value::Object(payload), self.at)
        }
    }

    /// The notice in an event, with bounded texts, also if its payload was written by others.
    pub(super) fn read(event: &EventRef<'_>, now: Timestamp) -> Option<Self> {
        let said: NoticePayload = serde_json::from_str(event.payload).ok()?;
        let is_markdown = said.markdown.unwrap_or_default();
        let clean = if is_markdown { clean_markdown } else { clean_line };
        let message = clean(&said.message, MESSAGE_CHARS_MAX);
        (!message.is_empty()).then(|| Self {
            id: event.id.into(),
            message: message.into(),
            is_markdown,
            link: said.link.filter(|link| link::check(link).is_ok()).map(Into::into),
            level: said.level.as_deref().map(Level::read).unwrap_or_default(),
            context: clean_line(&said.context.unwrap_or_default(), CONTEXT_CHARS_MAX).into(),
            category: said.category.as_deref().and_then(Category::of_word),
            session: event.session.map(SessionId::new),
            workspace: event.workspace.map(Into::into),
            at: now,
            choices: said.choices.zip(said.expires_at).map(|(words, expires_at)| {
                let words = words.iter().map(|word| clean_line(word, CHOICE_CHARS_MAX).into());
                Choices { words: words.take(*CHOICES.end()).collect(), expires_at }
            }),
            progress: said.key.and_then(|key| {
                let key = clean_line(&key, KEY_CHARS_MAX);
                (!key.is_empty()).then(|| Progress::new(&key, said.progress.map(|percent| percent.min(DONE))))
            }),
            held: NotSent::default(),
        })
    }

    /// The sessions whose hooks can show it.
    pub(super) fn scope(&self) -> Scope {
        match (&self.session, &self.workspace) {
            (Some(session), _) => Scope::Session(session.clone()),
            (None, Some(folder)) => Scope::Workspace(Arc::clone(folder)),
            (None, None) => Scope::All,
        }
    }

    /// The message alone.
    pub fn message_for(&self, target: Target) -> String {
        text::write(&self.message_spans(), target)
    }

    fn message_spans(&self) -> Vec<Span<'_>> {
        if self.is_markdown { text::read(&self.message) } else { vec![Span::Plain(&self.message)] }
    }

    /// The message with its additional `parts`, for a target that shows a single text.
    pub fn text_for(&self, target: Target, parts: Parts) -> String {
        let mut spans = self.message_spans();
        let percent = self.progress.as_ref().and_then(|progress| progress.percent);
        let percent = percent.map(|percent| format!(" {percent} %")).unwrap_or_default();
        spans.push(Span::Plain(&percent));
        if let Some(link) = self.link.as_deref().filter(|_| parts.link == Shown::InText) {
            spans.extend([Span::Plain(" ("), Span::Url(link), Span::Plain(")")]);
        }
        let mut after = String::new();
        if !self.held.is_nothing() {
            after.push_str(&format!(" [{}]", self.held));
        }
        if let Some(Choices { words, .. }) = self.choices.as_ref().filter(|_| parts.command == Shown::InText)
        {
            let words: Vec<_> = words.iter().map(|word| shlex::try_quote(word).unwrap_or_default()).collect();
            after.push_str(&format!(" [aside answer {} {}]", short(&self.id), words.join(" | ")));
        }
        spans.push(Span::Plain(&after));
        text::write(&spans, target)
    }

    /// The text for a line with several notices: the context first, and the level unless it is
    /// `info`.
    pub fn line(&self) -> String {
        let level = match self.level {
            Level::Info => "",
            Level::Warn => " (warning)",
            Level::Error => " (error)",
        };
        format!("{}{level}: {}", self.context, self.text_for(Target::Plain, Parts::ALL))
    }

    /// The best target for the message, where markdown can be shown.
    pub const fn target(&self) -> Target {
        if self.is_markdown { Target::Markdown } else { Target::Plain }
    }

    /// The origin in a few words: the context, and the folder of the session.
    pub fn title(&self) -> String {
        let folder =
            self.workspace.as_deref().and_then(|folder| folder.rsplit('/').find(|part| !part.is_empty()));
        match folder {
            Some(folder) => format!("{} @ {}", self.context, clean_line(folder, CONTEXT_CHARS_MAX)),
            None => self.context.to_string(),
        }
    }
}

/// The payload of a [`NOTICE`], as it is read.
#[derive(Deserialize)]
struct NoticePayload {
    message: String,
    markdown: Option<bool>,
    link: Option<String>,
    level: Option<String>,
    context: Option<String>,
    category: Option<String>,
    choices: Option<Vec<String>>,
    expires_at: Option<Timestamp>,
    key: Option<String>,
    progress: Option<u8>,
}

/// Fewest and most choices: with fewer it would be a notice, and a desktop shows at most that many
/// buttons.
pub const CHOICES: std::ops::RangeInclusive<usize> = 2..=4;
/// Longest choice, in characters.
pub const CHOICE_CHARS_MAX: usize = 40;
/// Shown characters of a question's id, which are enough to identify it.
const SHORT_CHARS: usize = 7;

/// The part of a notice that makes it a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// The choices, in the order in which they are shown.
    pub words: Vec<Arc<str>>,
    /// When the question expires.
    pub expires_at: Timestamp,
}

/// The shown beginning of a question's id.
pub fn short(id: &str) -> &str {
    id.get(..SHORT_CHARS).unwrap_or(id)
}

/// Longest key, in characters.
pub const KEY_CHARS_MAX: usize = 64;
/// The percentage of a finished task.
pub const DONE: u8 = 100;
/// The least time between two sent percentages of one key.
pub const PACE: Duration = Duration::from_secs(10);
/// Most remembered keys of a speaker; beyond that the least recently sent one is evicted.
pub const KEYS_MAX: usize = 8;
/// Bytes of the hash in [`Progress::line`].
const LINE_BYTES: usize = 8;

/// The key of the notices that replace one another, and the percentage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The speaker's name of the task.
    pub key: Arc<str>,
    /// From 0 to [`DONE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    /// Identifies the speaker and the key: 16 hexadecimal digits. Empty until the notice is queued.
    #[serde(default)]
    pub line: Arc<str>,
}

impl Progress {
    /// Progress with this key and percentage, without a speaker.
    pub fn new(key: &str, percent: Option<u8>) -> Self {
        Self { key: key.into(), percent, line: "".into() }
    }

    /// The same with the `line` of this speaker.
    pub(super) fn said_by(self, speaker: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(speaker);
        hash.update([0]);
        hash.update(&*self.key);
        Self { line: hex(hash.finalize().iter().take(LINE_BYTES)).into(), ..self }
    }

    /// Whether further progress is expected.
    pub fn goes_on(&self) -> bool {
        self.percent.is_some_and(|percent| percent < DONE)
    }
}

/// When the newest notice of each key of a speaker is sent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Keys(SortedMap<Arc<str>, Timestamp>);

impl Keys {
    /// When a percentage of a known key is sent; `None` for an unknown key, or without a
    /// percentage.
    pub(super) fn next(&mut self, progress: &Progress, now: Timestamp) -> Option<Timestamp> {
        let percent = progress.percent?;
        let newest = *self.0.get(&progress.key)?;
        if percent >= DONE {
            // So it is sent at once, and later notices with this key are a new task.
            self.0.remove(&progress.key);
            return Some(now);
        }
        // A waiting notice is replaced by this one, which takes its time.
        let at = if newest > now { newest } else { now.max(newest + PACE) };
        self.0.insert(Arc::clone(&progress.key), at);
        Some(at)
    }

    /// Notes that a notice is sent at `now`.
    pub(super) fn note(&mut self, progress: &Progress, now: Timestamp) {
        if progress.percent.is_some_and(|percent| percent >= DONE) {
            self.0.remove(&progress.key);
            return;
        }
        if !self.0.contains_key(&progress.key) && self.0.len() >= KEYS_MAX {
            self.0.pop_least(|at| *at);
        }
        self.0.insert(Arc::clone(&progress.key), now);
    }
}

/// Counts of a speaker's notices that were suppressed before one that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NotSent {
    /// Repeats of a notice that was sent.
    pub repeats: u64,
    /// Notices over the rate limit.
    pub rate_limited: u64,
}

impl NotSent {
    /// Whether both counts are zero.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |count: u64, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let repeats = part(self.repeats, if self.repeats == 1 { "repeat" } else { "repeats" });
        let parts = repeats.into_iter().chain(part(self.rate_limited, "over the rate limit"));
        write!(f, "not sent before: {}", parts.collect::<Vec<_>>().join(", "))
    }
}

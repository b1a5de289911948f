//! A notice for the user: its message, its level, and its text in one line.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Choices, NotSent, Progress,
    choices::{CHOICE_CHARS_MAX, CHOICES, short},
    clean_line,
    progress::{DONE, KEY_CHARS_MAX},
    text::{self, Span, Target},
};
use journal::time::Timestamp;

use crate::{
    event::{Event, EventRef, Scope, SessionId},
    notification::{Category, Level, link},
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
    /// One line.
    pub message: Arc<str>,
    /// Whether the message is markdown; otherwise all characters are shown unchanged.
    #[serde(default, rename = "markdown", skip_serializing_if = "std::ops::Not::not")]
    pub is_markdown: bool,
    /// A web address to open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Arc<str>>,
    /// The level.
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
    /// The link.
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
    pub(super) fn of(event: &EventRef<'_>, now: Timestamp) -> Option<Self> {
        let said: Said = serde_json::from_str(event.payload).ok()?;
        let message = clean_line(&said.message, MESSAGE_CHARS_MAX);
        (!message.is_empty()).then(|| Self {
            id: event.id.into(),
            message: message.into(),
            is_markdown: said.markdown.unwrap_or_default(),
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
struct Said {
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

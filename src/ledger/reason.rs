//! Why an event or a notification was not delivered: each reason with its word, its detail and its
//! sentences.

use super::{Seq, Timestamp};

/// Why an event or a notification was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Its type matched, but its source, severity or `where` did not.
    FilteredOut(FilteredBy),
    /// It repeats an event inside the dedupe window and is counted there.
    Duplicate {
        /// The event that it repeats.
        of: Seq,
    },
    /// It exceeded the subscriber's rate and is counted in the next notification.
    RateLimited {
        /// When the rate allows the next one.
        retry_at: Timestamp,
    },
    /// Its time to live ended and no session took it.
    Expired,
    /// The session's queue was full of notifications of at least its priority.
    QueueOverflow,
    /// Its session ended before it was delivered.
    SessionGone,
    /// It was released and not confirmed, and it is not important enough to repeat.
    Uncertain,
    /// A subscriber for it exists but is disabled.
    SubscriberOff,
    /// The user dismissed it.
    Dismissed,
    /// A newer one about the same state replaces it.
    Superseded,
    /// Its condition no longer holds.
    Withdrawn,
    /// It resolves its subscriber's condition and is not delivered itself.
    Resolves,
    /// A watch of the session reports it.
    Watched,
    /// The summary with a prompt after a pause covers it.
    SummedUp,
    /// The session already knows the files' content.
    Known,
}

/// The filter that rejected an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilteredBy {
    /// `sources`.
    Source,
    /// `severity_filter`.
    Severity,
    /// `where` was false.
    Where,
    /// `where` could not be evaluated.
    WhereFailed,
}

impl FilteredBy {
    /// The subscriber's key.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Source => "sources",
            Self::Severity => "severity_filter",
            Self::Where | Self::WhereFailed => "where",
        }
    }

    /// The key, and that it could not be evaluated if so.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source | Self::Severity | Self::Where => self.key(),
            Self::WhereFailed => "where could not be evaluated",
        }
    }
}

/// What the user reads about an end, and the next step.
///
/// Shape: `{detail}` stands for [`Reason::detail`], `{subscriber}` for the subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sentence {
    /// What happened.
    pub end: &'static str,
    /// What the user can do.
    pub next: &'static str,
}

/// The texts of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasonText {
    /// The word under which it is counted, and which the API has.
    pub word: &'static str,
    /// About an event, after the name of the subscriber; `None` if no event ends so.
    pub event: Option<Sentence>,
    /// About a notification; `None` if none ends so.
    pub notification: Option<Sentence>,
}

const NOTHING: &str = "nothing to do";

const fn event(word: &'static str, end: &'static str, next: &'static str) -> ReasonText {
    ReasonText { word, event: Some(Sentence { end, next }), notification: None }
}

const fn notification(word: &'static str, end: &'static str, next: &'static str) -> ReasonText {
    ReasonText { word, event: None, notification: Some(Sentence { end, next }) }
}

impl ReasonText {
    const fn or_event(self, end: &'static str, next: &'static str) -> Self {
        Self { event: Some(Sentence { end, next }), ..self }
    }
}

impl Reason {
    /// One of each kind.
    const KINDS: [Self; 15] = [
        Self::FilteredOut(FilteredBy::Where),
        Self::Duplicate { of: Seq(0) },
        Self::RateLimited { retry_at: Timestamp::ZERO },
        Self::Expired,
        Self::QueueOverflow,
        Self::SessionGone,
        Self::Uncertain,
        Self::SubscriberOff,
        Self::Dismissed,
        Self::Superseded,
        Self::Withdrawn,
        Self::Resolves,
        Self::Watched,
        Self::SummedUp,
        Self::Known,
    ];

    /// The texts of each kind.
    pub fn texts() -> impl Iterator<Item = ReasonText> {
        Self::KINDS.iter().map(Self::text)
    }

    /// The texts of the kind that is counted as `word`.
    pub fn text_of(word: &str) -> Option<ReasonText> {
        Self::texts().find(|text| text.word == word)
    }

    /// The text under which this reason is counted.
    pub const fn as_str(&self) -> &'static str {
        self.text().word
    }

    /// The filter, the event that it repeats, or when the rate allows the next one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::FilteredOut(by) => Some(by.as_str().to_owned()),
            Self::Duplicate { of } => Some(of.to_string()),
            Self::RateLimited { retry_at } => Some(retry_at.to_string()),
            Self::Expired
            | Self::QueueOverflow
            | Self::SessionGone
            | Self::Uncertain
            | Self::SubscriberOff
            | Self::Dismissed
            | Self::Superseded
            | Self::Withdrawn
            | Self::Resolves
            | Self::Watched
            | Self::SummedUp
            | Self::Known => None,
        }
    }

    const fn text(&self) -> ReasonText {
        match self {
            Self::FilteredOut(_) => event(
                "filtered",
                "filtered it: {detail}",
                "if it should have passed, change that filter of {subscriber}, then aside reload",
            ),
            Self::Duplicate { .. } => event(
                "duplicate",
                "counted it as a repeat of {detail}",
                "aside why {detail} shows the first of them",
            ),
            Self::RateLimited { .. } => event(
                "rate_limited",
                "was rate-limited until {detail} and counts it in its next notification",
                "if each of them should be delivered, raise `rate` of {subscriber}, then aside reload",
            ),
            Self::Expired => notification(
                "expired",
                "its time to live ended",
                "if it should wait longer, raise `ttl` of its subscriber, then aside reload",
            ),
            Self::QueueOverflow => notification(
                "queue_overflow",
                "the queue was full, and it was the oldest of the least important",
                "aside history --notifications shows what filled the queue",
            ),
            Self::SessionGone => notification("session_gone", "the session ended before", NOTHING),
            Self::Uncertain => notification(
                "uncertain",
                "it was not confirmed, and is not redelivered",
                "nothing to do; the agent may or may not have read it",
            ),
            Self::SubscriberOff => notification(
                "subscriber_off",
                "its subscriber was switched off",
                "if it should run, set `enabled = true` in its subscriber, then aside reload",
            )
            .or_event(
                "is switched off",
                "if it should run, set `enabled = true` in {subscriber}, then aside reload",
            ),
            Self::Dismissed => notification("dismissed", "you dismissed it", NOTHING),
            Self::Superseded => {
                notification("superseded", "a newer one about the same state replaces it", NOTHING)
                    .or_event("has a newer one about the same state", NOTHING)
            }
            Self::Withdrawn => notification("withdrawn", "its condition was resolved", NOTHING)
                .or_event("withdrew it: its condition was resolved", NOTHING),
            Self::Resolves => event("resolves", "withdraws what this resolves, if it is pending", NOTHING),
            Self::Watched => notification("watched", "a watch of the session reports it", NOTHING),
            Self::SummedUp => {
                notification("summed_up", "the summary with the prompt after a pause covers it", NOTHING)
            }
            Self::Known => notification("known", "the session knows the files as they are", NOTHING),
        }
    }
}

//! The reasons why an event or a notification was not delivered, each with its word, its detail and
//! its sentences. The values of the ledger's enums are parsed from their words.

use std::sync::Arc;

use journal::time::Timestamp;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IntoDeserializer, value},
};
use strum::{EnumDiscriminants, EnumIter, IntoEnumIterator};

use super::Seq;
use crate::{hold::SilenceId, notification::NotificationId};

/// The reason why an event or a notification was not delivered.
#[derive(Debug, Clone, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(
    name(ReasonKind),
    vis(pub(self)),
    derive(Deserialize, EnumIter),
    serde(rename_all = "snake_case")
)]
pub enum Reason {
    /// Its type matched, but its source, severity or `where` did not.
    #[strum_discriminants(serde(rename = "filtered"))]
    FilteredOut(FilteredBy),
    /// It repeats an event within the dedupe window, which counts it.
    Duplicate {
        /// The repeated event.
        of: Seq,
    },
    /// A batch that stays open for long was full, and it was the oldest.
    BatchOverflow,
    /// It was counted, and reached no level of the subscriber's threshold.
    BelowThreshold,
    /// It exceeded the subscriber's rate and is counted in the next notification.
    RateLimited {
        /// When the rate allows the next one.
        retry_at: Timestamp,
    },
    /// Its time to live ended before delivery.
    Expired,
    /// A queue was full, or all queues together, and it was the oldest of the lowest priority.
    QueueOverflow,
    /// Its session ended before it was delivered.
    SessionGone,
    /// It was released but not confirmed, and is not redelivered.
    Uncertain,
    /// It was repeated as often as its subscriber wants, and nobody answered it.
    Unanswered,
    /// It was delivered, and its repetition waited when its subscriber lost `[repeat]`.
    NotRepeated,
    /// A subscriber exists for it, but is disabled.
    SubscriberOff,
    /// Budgets had no room for it for a while, and one is delivered in place of several.
    Summarised {
        /// The one.
        by: NotificationId,
    },
    /// The user dismissed it.
    Dismissed,
    /// A person silenced it.
    Silenced {
        /// The silence.
        by: SilenceId,
    },
    /// A user muted or disabled it.
    Muted {
        /// Who muted what.
        by: Arc<str>,
    },
    /// An event inhibits it.
    Inhibited {
        /// The event.
        by: Seq,
    },
    /// A newer one about the same state replaces it.
    Superseded,
    /// A newer one about the same state is known, whether that was delivered or not.
    Stale,
    /// Its condition no longer holds.
    Withdrawn,
    /// It resolves its subscriber's condition; it is not delivered.
    Resolves,
    /// It inhibits events of its subscriber, or ends that; it is not delivered.
    Inhibits,
    /// A watch of the session reports it.
    Watched,
    /// The summary with a prompt after a pause includes it.
    SummedUp,
    /// It is for the regions of its sessions alone, and no point releases it.
    InRegion,
    /// The session already knows it: the content of the files, or the result of its failed call.
    Known,
}

/// The filter that rejected an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum FilteredBy {
    /// `sources`.
    #[serde(rename = "sources")]
    Source,
    /// `severity_filter`.
    #[serde(rename = "severity_filter")]
    Severity,
    /// `where` was false.
    #[serde(rename = "where")]
    Where,
    /// `where` could not be evaluated.
    #[serde(rename = "where could not be evaluated")]
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

    /// The key; for [`Self::WhereFailed`], with a note that it could not be evaluated.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Source | Self::Severity | Self::Where => self.key(),
            Self::WhereFailed => "where could not be evaluated",
        }
    }
}

/// The text for the user about an end, and the next step.
///
/// Shape: `{detail}` is replaced by [`Reason::detail`], `{key}` by [`FilteredBy::key`],
/// `{subscriber}` by the subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sentence {
    /// How the notification or event ended.
    pub end: &'static str,
    /// An action for the user.
    pub next: &'static str,
}

/// The texts of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasonText {
    /// The word for counting, also used in the API.
    pub word: &'static str,
    /// For an event, after the name of the subscriber; `None` if events never end for this reason.
    pub event: Option<Sentence>,
    /// For a notification; `None` if notifications never end for this reason.
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
    /// The texts of every kind.
    pub fn texts() -> impl Iterator<Item = ReasonText> {
        ReasonKind::iter().map(ReasonKind::text)
    }

    /// The texts of the kind with this word.
    pub fn text_of(word: &str) -> Option<ReasonText> {
        of_word(word).map(ReasonKind::text)
    }

    /// The reason of a ledger line, with its word and its [detail](Reason::detail); `None` if they are
    /// not known.
    pub fn read(word: &str, detail: Option<&str>) -> Option<Self> {
        let seq = || detail.and_then(|detail| detail.parse().ok()).map(Seq);
        let kind: ReasonKind = of_word(word)?;
        Some(match kind {
            ReasonKind::FilteredOut => Self::FilteredOut(of_word(detail?)?),
            ReasonKind::Duplicate => Self::Duplicate { of: seq()? },
            ReasonKind::BatchOverflow => Self::BatchOverflow,
            ReasonKind::BelowThreshold => Self::BelowThreshold,
            ReasonKind::RateLimited => Self::RateLimited { retry_at: detail?.parse().ok()? },
            ReasonKind::Expired => Self::Expired,
            ReasonKind::QueueOverflow => Self::QueueOverflow,
            ReasonKind::SessionGone => Self::SessionGone,
            ReasonKind::Uncertain => Self::Uncertain,
            ReasonKind::Unanswered => Self::Unanswered,
            ReasonKind::NotRepeated => Self::NotRepeated,
            ReasonKind::SubscriberOff => Self::SubscriberOff,
            ReasonKind::Summarised => Self::Summarised { by: NotificationId::new(detail?) },
            ReasonKind::Dismissed => Self::Dismissed,
            ReasonKind::Silenced => Self::Silenced { by: SilenceId::new(detail?) },
            ReasonKind::Muted => Self::Muted { by: detail?.into() },
            ReasonKind::Inhibited => Self::Inhibited { by: seq()? },
            ReasonKind::Superseded => Self::Superseded,
            ReasonKind::Stale => Self::Stale,
            ReasonKind::Withdrawn => Self::Withdrawn,
            ReasonKind::Resolves => Self::Resolves,
            ReasonKind::Inhibits => Self::Inhibits,
            ReasonKind::Watched => Self::Watched,
            ReasonKind::SummedUp => Self::SummedUp,
            ReasonKind::InRegion => Self::InRegion,
            ReasonKind::Known => Self::Known,
        })
    }

    /// The word for counting this reason.
    pub fn as_str(&self) -> &'static str {
        ReasonKind::from(self).text().word
    }

    /// The filter, the repeated event, or when the rate allows the next one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::FilteredOut(by) => Some(by.as_str().to_owned()),
            Self::Duplicate { of } => Some(of.to_string()),
            Self::RateLimited { retry_at } => Some(retry_at.to_string()),
            Self::Summarised { by } => Some(by.to_string()),
            Self::Silenced { by } => Some(by.to_string()),
            Self::Muted { by } => Some(by.to_string()),
            Self::Inhibited { by } => Some(by.to_string()),
            Self::BelowThreshold
            | Self::BatchOverflow
            | Self::Expired
            | Self::QueueOverflow
            | Self::SessionGone
            | Self::Uncertain
            | Self::Unanswered
            | Self::NotRepeated
            | Self::SubscriberOff
            | Self::Dismissed
            | Self::Superseded
            | Self::Stale
            | Self::Withdrawn
            | Self::Resolves
            | Self::Inhibits
            | Self::Watched
            | Self::SummedUp
            | Self::InRegion
            | Self::Known => None,
        }
    }
}

const BATCH_OVERFLOW: ReasonText = event(
    "batch_overflow",
    "counted it: 1,000 newer ones were in the batch",
    "if it should be shown, let batches of {subscriber} close more often, then aside reload",
);

const SILENCED: ReasonText = notification(
    "silenced",
    "the silence {detail} suppressed it",
    "aside silence shows what {detail} suppresses, and until when",
)
.or_event("did not take it: the silence {detail} suppressed it", "aside silence shows {detail}");

const UNANSWERED: ReasonText = notification(
    "unanswered",
    "nobody answered it",
    "aside inbox acknowledge ID answers one; nothing repeats it any more",
);

const NOT_REPEATED: ReasonText =
    notification("not_repeated", "it was delivered, and its subscriber has no `[repeat]` any more", NOTHING);

const SUMMED_UP: ReasonText =
    notification("summed_up", "the summary with the prompt after a pause covers it", NOTHING);

const IN_REGION: ReasonText = notification(
    "in_region",
    "it is for the regions of its sessions alone, while it is true",
    "aside region shows it; if it should be delivered too, set `region = \"also\"` in its subscriber",
);

const SUMMARISED: ReasonText = notification(
    "summarised",
    "no budget had room for it for a while, and {detail} is delivered in its place",
    "aside why {detail} shows that one",
);

const MUTED: ReasonText = notification("muted", "{detail}", "aside mute lists what is muted")
    .or_event("did not deliver it: {detail}", "aside mute lists what is muted");

const INHIBITED: ReasonText =
    notification("inhibited", "the event {detail} inhibited it", "aside why {detail} shows that event")
        .or_event(
            "did not take it: the event {detail} inhibited it",
            "if it should pass, change `inhibited_by` of {subscriber}, then aside reload",
        );

impl ReasonKind {
    const fn text(self) -> ReasonText {
        match self {
            Self::FilteredOut => event(
                "filtered",
                "filtered it: {detail}",
                "if it should have passed, change `{key}` of {subscriber}, then aside reload",
            ),
            Self::Duplicate => event(
                "duplicate",
                "counted it as a repeat of {detail}",
                "aside why {detail} shows the first of them",
            ),
            Self::BelowThreshold => event(
                "below_threshold",
                "counted it; it reached no level of the threshold",
                "if it should pass, lower `at` in [threshold] of {subscriber}, then aside reload",
            ),
            Self::BatchOverflow => BATCH_OVERFLOW,
            Self::RateLimited => event(
                "rate_limited",
                "was rate-limited until {detail} and counts it in its next notification",
                "if each of them should be delivered, raise `rate` of {subscriber}, then aside reload",
            ),
            Self::Silenced => SILENCED,
            Self::Muted => MUTED,
            Self::Inhibited => INHIBITED,
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
            Self::Unanswered => UNANSWERED,
            Self::NotRepeated => NOT_REPEATED,
            Self::Summarised => SUMMARISED,
            Self::SubscriberOff => notification(
                "subscriber_off",
                "its subscriber was switched off",
                "if it should run, set `enabled = true` in its subscriber, then aside reload",
            )
            .or_event(
                "is switched off",
                "if it should run, set `enabled = true` in {subscriber}, then aside reload",
            ),
            Self::Dismissed => notification("dismissed", "it or its condition was dismissed", NOTHING),
            Self::Superseded => {
                notification("superseded", "a newer one about the same state replaces it", NOTHING)
                    .or_event("has a newer one about the same state", NOTHING)
            }
            Self::Stale => event("stale", "knows a newer state of the same", NOTHING),
            Self::Withdrawn => notification("withdrawn", "its condition was resolved", NOTHING)
                .or_event("withdrew it: its condition was resolved", NOTHING),
            Self::Resolves => event("resolves", "withdraws what this resolves, if it is pending", NOTHING),
            Self::Inhibits => event("inhibits", "inhibits what it takes, or ends that", NOTHING),
            Self::Watched => notification("watched", "a watch of the session reports it", NOTHING),
            Self::SummedUp => SUMMED_UP,
            Self::InRegion => IN_REGION,
            Self::Known => notification("known", "the session knows it already", NOTHING)
                .or_event("leaves out what the session knows already", NOTHING),
        }
    }
}

/// The value of a ledger enum with the word `word`; `None` for an unknown word.
pub fn of_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    let word = <&str as IntoDeserializer<value::Error>>::into_deserializer(word);
    T::deserialize(word).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Debug;

    use serde::{
        Deserializer,
        de::{Error, Visitor},
        forward_to_deserialize_any,
    };

    use super::*;

    /// Notes the words of an enum that serde accepts: all of them.
    struct Words<'w>(&'w mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Words<'_> {
        type Error = value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
            Err(Error::custom("no enum"))
        }

        fn deserialize_enum<V: Visitor<'de>>(
            self,
            _: &'static str,
            words: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, value::Error> {
            *self.0 = words;
            Err(Error::custom("noted"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
            unit unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
        }
    }

    /// The words of an enum, in declaration order.
    pub(in crate::ledger) fn words_of<T: DeserializeOwned + Debug>() -> &'static [&'static str] {
        let mut words: &'static [&'static str] = &[];
        T::deserialize(Words(&mut words)).expect_err("only its words are noted");
        assert!(!words.is_empty(), "it is no enum");
        words
    }

    #[test]
    fn every_reason_kind_is_listed_by_its_word() {
        let listed: Vec<&str> = Reason::texts().map(|text| text.word).collect();
        assert_eq!(listed, words_of::<ReasonKind>());
        for word in listed {
            assert_eq!(Reason::text_of(word).map(|text| text.word), Some(word));
        }
        assert_eq!(Reason::text_of("filtered_out"), None);
    }

    #[test]
    fn every_reason_is_read_as_it_is_written() {
        for text in Reason::texts() {
            let details = [None, Some("where"), Some("7"), Some("2026-11-28T12:00:00Z"), Some("s1")];
            let read: Vec<Reason> =
                details.iter().filter_map(|detail| Reason::read(text.word, *detail)).collect();
            assert!(!read.is_empty(), "{}", text.word);
            for reason in read {
                let again = Reason::read(reason.as_str(), reason.detail().as_deref());
                assert_eq!(again, Some(reason), "{}", text.word);
            }
        }
    }

    #[test]
    fn every_filter_is_read_from_its_word() {
        for word in words_of::<FilteredBy>() {
            assert_eq!(of_word(word).map(FilteredBy::as_str), Some(*word));
        }
    }
}

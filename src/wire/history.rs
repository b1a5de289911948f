//! The history as JSON: outcomes of events, notifications and sessions.
//!
//! A [`LedgerLine`] is one ledger entry, in recorded order; the other types are answers of the
//! projection. Times are RFC 3339 in UTC.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    event::Seq,
    ledger::{FilteredBy, LedgerEntry, Reason, Step, Subject, Suppressed},
    time::Timestamp,
    wire::{FieldError, event::EventView, views::HarnessView},
};

/// One ledger entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct LedgerLine {
    /// Time of the record; absent if only the newest entries in memory have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// `unmatched`, `held_back`, `batched`, `event_ended`, `created`, `unclaimed`, `queued`,
    /// `injected`, `confirmed`, `returned`, `recalled` or `notification_ended`; for notices to the
    /// user `user_queued`, `user_waits`, `user_sent`, `user_failed`, `user_ended` or
    /// `user_suppressed`.
    #[schema(value_type = String)]
    pub what: Cow<'static, str>,
    /// The subscriber of the pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<String>,
    /// The notification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The injection that carried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injection: Option<String>,
    /// The injection point, what confirmed the injection, or the sink.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub by: Option<Cow<'static, str>>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Cow<'static, str>>,
    /// More about the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The positions of its events.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<u64>,
}

/// Progress of the projection, which answers history requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ProjectionView {
    /// The last journal record covered by the answer.
    pub seq: u64,
    /// Number of later records in the journal.
    pub behind: u64,
    /// Why it is stalled, if it is; it is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// An event that a subscriber takes, and its outcome.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventLine {
    /// The event.
    #[schema(value_type = EventView)]
    pub event: Box<RawValue>,
    /// The notifications that contain it.
    pub notifications: Vec<String>,
    /// Its ends in pipelines, and the sinks.
    pub ended: Vec<Ended>,
    /// Its position.
    #[serde(skip)]
    pub seq: u64,
}

/// The end of an event that is not in a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Ended {
    /// The subscriber of the pipeline, or the sink; absent for a throttled event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<String>,
    /// The reason, such as `filtered` or `duplicate`; `sent` if a sink took it.
    pub reason: String,
    /// More about the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A notification and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Notification)]
pub struct NotificationView {
    /// Derived from its subscriber and events.
    pub id: String,
    /// The subscriber that created it.
    pub subscriber: String,
    /// `critical`, `high`, `normal` or `low`.
    pub priority: &'static str,
    /// The worst severity among its events.
    pub severity: &'static str,
    /// Its injection point.
    pub inject_at: &'static str,
    /// The session it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The folder it is for; for every session if this and `session` are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Its content, as TOON.
    pub content: String,
    /// Estimated size of `content`.
    pub tokens: u64,
    /// When its batch closed.
    pub created_at: String,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The positions of the events behind its rows, oldest first.
    pub events: Vec<u64>,
    /// Its state in each session that it reached.
    pub deliveries: Vec<Delivery>,
}

/// The state of a notification in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Delivery {
    /// The session; absent while it is in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `unclaimed`, `pending`, `injected`, `confirmed` or `ended`.
    pub state: String,
    /// Why it ended: a reason of the ledger, or `handed_over` to the parent session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The injection that last carried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injection: Option<String>,
    /// Start of that state.
    pub at: String,
}

/// A system message: one notification as delivered to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Message {
    /// Unique, and unchanged by rebuilds of the projection.
    pub id: String,
    /// Always `system`.
    pub role: &'static str,
    /// The delivered text, as TOON.
    pub content: String,
    /// When it was handed to its carrier.
    pub timestamp: String,
    /// The subscriber that created the notification.
    pub source: String,
    /// The notification.
    pub notification_id: String,
    /// The injection that carried it.
    pub injection: String,
    /// The injection point.
    pub point: &'static str,
    /// `injected`, `confirmed`, `returned` to the queue because it did not arrive, or `ended`.
    pub state: String,
    /// Why it ended, such as `uncertain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The text released by an exchange, as written for its carrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct InjectionLine {
    /// Its short name, which is also in the text.
    pub id: String,
    /// Its session.
    pub session: String,
    /// When it was handed over.
    pub timestamp: String,
    /// The role of its message: `tool`, `user` or `system`.
    pub role: String,
    /// The text, byte for byte.
    pub text: String,
    /// Its notifications, in the order of the text.
    pub notifications: Vec<String>,
}

/// A closed session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClosedSession {
    /// The harness's own id of the conversation.
    pub id: String,
    /// Always false.
    pub is_open: bool,
    /// Its last known harness.
    pub harness: HarnessView,
    /// Its first activity.
    pub opened_at: String,
    /// Its last activity.
    pub seen_at: String,
    /// When it ended.
    pub closed_at: String,
}

/// Most entries of a page, and the default.
const LIMIT_MAX: usize = 1_000;
const LIMIT_DEFAULT: usize = 100;

/// Parses the most entries of a page.
///
/// Errors: it is not a number from 1 to 1000.
pub fn read_limit(text: Option<&str>) -> Result<usize, FieldError> {
    let Some(text) = text else { return Ok(LIMIT_DEFAULT) };
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    limit.ok_or_else(|| FieldError::new("limit", format!("must be a number from 1 to {LIMIT_MAX}")))
}

/// Parses a time: RFC 3339, or a duration before `now`, in seconds, minutes, hours or days.
///
/// Errors: it is neither.
pub fn read_moment(field: &'static str, text: &str, now: Timestamp) -> Result<Timestamp, FieldError> {
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let seconds: Option<u64> = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        "d" => Some(24 * 3_600),
        _ => None,
    };
    let ago =
        seconds.and_then(|seconds| number.parse::<u64>().ok()?.checked_mul(seconds)?.checked_mul(1_000));
    if let Some(ago) = ago {
        return Ok(Timestamp::from_millis(now.as_millis().saturating_sub(ago)));
    }
    text.parse().map_err(|_| {
        let message = "must be an RFC 3339 timestamp such as `2026-11-21T12:00:00Z`, or how long ago, such as `30m`, `12h` or `7d`";
        FieldError::new(field, message)
    })
}

/// An event's JSON, as written by `to_json`.
pub fn raw(event: String) -> Box<RawValue> {
    RawValue::from_string(event).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

impl LedgerLine {
    /// The view of `entry`.
    pub fn of(entry: &LedgerEntry) -> Self {
        match entry {
            LedgerEntry::Unmatched { seq } => Self::event("unmatched", *seq),
            LedgerEntry::HeldBack { seq, by } => {
                Self { reason: Some(by.as_str().into()), ..Self::event("held_back", *seq) }
            }
            LedgerEntry::Batched { seq, subscriber } => {
                Self { subscriber: text(subscriber), ..Self::event("batched", *seq) }
            }
            LedgerEntry::EventEnded { seq, subscriber, reason } => {
                Self { subscriber: text(subscriber), ..Self::event("event_ended", *seq) }.because(reason)
            }
            LedgerEntry::Created { notification, subscriber, events, created_at: _ } => Self {
                subscriber: text(subscriber),
                events: events.iter().map(|seq| seq.0).collect(),
                ..Self::notification("created", notification)
            },
            LedgerEntry::Unclaimed { notification } => Self::notification("unclaimed", notification),
            LedgerEntry::Queued { notification, session } => {
                Self { session: text(session), ..Self::notification("queued", notification) }
            }
            LedgerEntry::Injected { notification, session, injection, point, redelivered } => Self {
                session: text(session),
                injection: Some(injection.clone()),
                by: Some(point.as_str().into()),
                detail: redelivered.map(|why| why.as_str().to_owned()),
                ..Self::notification("injected", notification)
            },
            LedgerEntry::Confirmed { notification, session, by } => Self {
                session: text(session),
                by: Some(by.as_str().into()),
                ..Self::notification("confirmed", notification)
            },
            LedgerEntry::Returned { notification, session } => {
                Self { session: text(session), ..Self::notification("returned", notification) }
            }
            LedgerEntry::Recalled { notification, session } => {
                Self { session: text(session), ..Self::notification("recalled", notification) }
            }
            LedgerEntry::NotificationEnded { notification, session, reason } => Self {
                session: session.as_ref().and_then(text),
                ..Self::notification("notification_ended", notification)
            }
            .because(reason),
            LedgerEntry::ForUser { subject, step } => Self::for_user(subject, step),
        }
    }

    fn for_user(subject: &Subject, step: &Step) -> Self {
        let (what, sink, reason, detail) = match step {
            Step::Queued(sink) => ("user_queued", Some(sink), None, None),
            Step::Sent(sink, id) => ("user_sent", Some(sink), None, id.clone()),
            Step::Failed { sink, error, retry_at } => {
                let reason = match retry_at {
                    Some(at) => format!("again {at}"),
                    None => "given up".to_owned(),
                };
                ("user_failed", Some(sink), Some(reason.into()), Some(error.clone()))
            }
            Step::Waits { sink, until } => {
                ("user_waits", Some(sink), Some("quiet".into()), Some(format!("until {until}")))
            }
            Step::Ended(sink, why) => ("user_ended", Some(sink), Some(why.as_str().into()), None),
            Step::Suppressed(why) => {
                let detail = match why {
                    Suppressed::Repeat { sent_at } => Some(format!("of {sent_at}")),
                    Suppressed::Rate { retry_at } => Some(format!("until {retry_at}")),
                    Suppressed::NoSink => None,
                };
                ("user_suppressed", None, Some(why.as_str().into()), detail)
            }
        };
        let line = match subject {
            Subject::Event(seq) => Self::event(what, *seq),
            Subject::Notification(id) => Self::notification(what, id),
        };
        Self { by: sink.map(|sink| sink.as_str().into()), reason, detail, ..line }
    }

    fn event(what: &'static str, seq: Seq) -> Self {
        Self { what: what.into(), events: vec![seq.0], ..Self::default() }
    }

    fn notification(what: &'static str, id: &impl ToString) -> Self {
        Self { what: what.into(), notification: text(id), ..Self::default() }
    }

    fn because(self, reason: &Reason) -> Self {
        Self { reason: Some(reason.as_str().into()), detail: detail(reason), ..self }
    }
}

fn text(shown: &impl ToString) -> Option<String> {
    Some(shown.to_string())
}

fn detail(reason: &Reason) -> Option<String> {
    match reason {
        Reason::FilteredOut(FilteredBy::Source) => Some("sources".to_owned()),
        Reason::FilteredOut(FilteredBy::Severity) => Some("severity_filter".to_owned()),
        Reason::FilteredOut(FilteredBy::Where) => Some("where".to_owned()),
        Reason::FilteredOut(FilteredBy::WhereFailed) => Some("where could not be evaluated".to_owned()),
        Reason::Duplicate { of } => Some(format!("of {of}")),
        Reason::RateLimited { retry_at } => Some(format!("until {retry_at}")),
        Reason::Expired
        | Reason::QueueOverflow
        | Reason::SessionGone
        | Reason::Uncertain
        | Reason::SubscriberOff
        | Reason::Dismissed
        | Reason::Superseded
        | Reason::Withdrawn
        | Reason::Resolves
        | Reason::Watched
        | Reason::SummedUp
        | Reason::Known => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::SessionId,
        ledger::{ConfirmedBy, Redelivered},
        notification::{InjectionPoint, NotificationId, SubscriberId},
    };

    #[test]
    fn every_entry_is_shown_with_what_it_is_about() {
        let (notification, session) = (NotificationId::new("n1"), SessionId::new("s1"));
        let subscriber = SubscriberId::new("ci");
        let ended = |reason| LedgerEntry::EventEnded { seq: Seq(3), subscriber: subscriber.clone(), reason };
        let cases = [
            (LedgerEntry::Unmatched { seq: Seq(3) }, r#"{"what":"unmatched","events":[3]}"#),
            (
                LedgerEntry::Batched { seq: Seq(3), subscriber: subscriber.clone() },
                r#"{"what":"batched","subscriber":"ci","events":[3]}"#,
            ),
            (
                ended(Reason::Duplicate { of: Seq(2) }),
                r#"{"what":"event_ended","subscriber":"ci","reason":"duplicate","detail":"of 2","events":[3]}"#,
            ),
            (
                ended(Reason::FilteredOut(FilteredBy::Severity)),
                r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"severity_filter","events":[3]}"#,
            ),
            (
                ended(Reason::RateLimited { retry_at: Timestamp::ZERO }),
                r#"{"what":"event_ended","subscriber":"ci","reason":"over_rate","detail":"until 1970-01-01T00:00:00Z","events":[3]}"#,
            ),
            (
                LedgerEntry::Created {
                    notification: notification.clone(),
                    subscriber: subscriber.clone(),
                    events: vec![Seq(3), Seq(4)],
                    created_at: Timestamp::ZERO,
                },
                r#"{"what":"created","subscriber":"ci","notification":"n1","events":[3,4]}"#,
            ),
            (
                LedgerEntry::Unclaimed { notification: notification.clone() },
                r#"{"what":"unclaimed","notification":"n1"}"#,
            ),
            (
                LedgerEntry::Queued { notification: notification.clone(), session: session.clone() },
                r#"{"what":"queued","notification":"n1","session":"s1"}"#,
            ),
            (
                LedgerEntry::Injected {
                    notification: notification.clone(),
                    session: session.clone(),
                    injection: "a1".to_owned(),
                    point: InjectionPoint::AfterTool,
                    redelivered: Some(Redelivered::ContextLost),
                },
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"a1","by":"after_tool","detail":"context_lost"}"#,
            ),
            (
                LedgerEntry::Confirmed {
                    notification: notification.clone(),
                    session: session.clone(),
                    by: ConfirmedBy::Ack,
                },
                r#"{"what":"confirmed","notification":"n1","session":"s1","by":"ack"}"#,
            ),
            (
                LedgerEntry::Returned { notification: notification.clone(), session: session.clone() },
                r#"{"what":"returned","notification":"n1","session":"s1"}"#,
            ),
            (
                LedgerEntry::NotificationEnded { notification, session: None, reason: Reason::Expired },
                r#"{"what":"notification_ended","notification":"n1","reason":"expired"}"#,
            ),
        ];
        for (entry, expected) in cases {
            assert_eq!(serde_json::to_string(&LedgerLine::of(&entry)).expect("serializes"), expected);
        }
    }
}

//! The history as JSON: outcomes of events, notifications and sessions.
//!
//! A [`LedgerLine`] is one ledger entry, in recorded order; the other types are answers of the
//! projection. Times are RFC 3339 in UTC.

use std::borrow::Cow;

use engine::{
    event::Seq,
    ledger::{LedgerEntry, Reason, Step, Subject},
    request::FieldError,
};
use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::api::wire::{event::EventView, harness::HarnessView, inbox::PendingIn, respond::Answered};

/// One ledger entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct LedgerLine {
    /// Time of the record; absent for `unmatched`, which is derived and not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// `unmatched`, `throttled`, `skipped`, `batched`, `event_ended`, `created`, `unclaimed`,
    /// `queued`, `injected`, `confirmed`, `returned`, `recalled`, `notification_ended`; of notices
    /// `user_queued`, `user_waits`, `user_sent`, `user_failed`, `user_ended`, `user_suppressed`.
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
    pub by: Option<Cow<'static, str>>,
    /// Why it ended; of `user_failed` when it is retried, as `again TIME`, or `given up`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// What belongs to the reason: the filter of `filtered`, the event that a `duplicate` repeats,
    /// the time until which `rate_limited` or `quiet` holds, when a `repeat` was sent first; of
    /// `injected` why it was redelivered, of `user_sent` the sink's id, of `user_failed` the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The positions of its events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<u64>,
}

/// Progress of the projection, which answers history requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ProjectionView {
    /// The last journal record covered by the answer.
    pub seq: u64,
    /// Number of later records in the journal.
    pub behind: u64,
    /// Why it is stalled, if it is; it is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// An event that a subscriber took or that was throttled, and its outcome.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct EventLine {
    /// The event.
    #[cfg_attr(test, schema(value_type = EventView))]
    pub event: Box<RawValue>,
    /// The notifications that contain it.
    pub notifications: Vec<String>,
    /// Its ends in pipelines, and the sinks.
    pub ended: Vec<Ended>,
    /// Its position.
    #[serde(skip)]
    pub seq: u64,
}

impl EventLine {
    /// The event's fields.
    ///
    /// Errors: it is not an event.
    pub fn view(&self) -> serde_json::Result<EventView<'_>> {
        serde_json::from_str(self.event.get())
    }
}

/// The end of an event that is not in a notification.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
#[cfg_attr(test, schema(as = Notification))]
pub struct NotificationView {
    /// Derived from its subscriber and events.
    pub id: String,
    /// The subscriber that created it.
    pub subscriber: String,
    /// `critical`, `high`, `normal` or `low`.
    pub priority: String,
    /// The worst severity among its events.
    pub severity: String,
    /// Its injection point.
    pub inject_at: String,
    /// The session it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The folder it is for; for every session if this and `session` are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// One line for a person: the words of its subscriber's `sentence`, else the first values of its
    /// content.
    pub sentence: String,
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Delivery {
    /// The session; absent while it is in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `unclaimed`, `pending`, `injected`, `confirmed` or `ended`.
    pub state: String,
    /// How it is known that it arrived: `seen`, `ack`, `step` or `turn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// Why it ended: a reason of the ledger, or `handed_over` to the parent session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How it was answered, if it was.
    #[serde(flatten)]
    pub answered: Answered,
    /// The injection that last carried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injection: Option<String>,
    /// Start of that state.
    pub at: String,
}

/// A system message: one notification as delivered to a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Message {
    /// Unique, and unchanged by rebuilds of the projection.
    pub id: String,
    /// Always `system`.
    pub role: String,
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
    pub point: String,
    /// `aside` if the turn that began with it was asked for by aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// `injected`, `confirmed`, `returned` to the queue because it did not arrive, or `ended`.
    pub state: String,
    /// How it is known that it arrived: `seen`, `ack`, `step` or `turn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// How it was answered, if it was.
    #[serde(flatten)]
    pub answered: Answered,
    /// Why it ended, such as `uncertain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The text released by an exchange, as written for its carrier.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
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
    /// `aside` if the turn that began with it was asked for by aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// Its notifications, in the order of the text.
    pub notifications: Vec<String>,
}

/// A closed session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
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

/// Prefix of the reason of a `user_failed` that is retried; the time follows.
const RETRIED: &str = "again ";

impl LedgerLine {
    /// When a `user_failed` is retried; `None` if it is not.
    pub fn retry_at(&self) -> Option<&str> {
        self.reason.as_deref()?.strip_prefix(RETRIED)
    }

    /// The view of `entry`.
    pub fn of(entry: &LedgerEntry) -> Self {
        let line = Self { what: entry.kind().as_str().into(), ..Self::default() };
        match entry {
            LedgerEntry::Unmatched { seq } => line.event(*seq),
            LedgerEntry::Skipped { seq } => line.event(*seq),
            LedgerEntry::Throttled { seq, by } => {
                Self { reason: Some(by.as_str().into()), ..line.event(*seq) }
            }
            LedgerEntry::Batched { seq, subscriber } => {
                Self { subscriber: text(subscriber), ..line.event(*seq) }
            }
            LedgerEntry::EventEnded { seq, subscriber, reason } => {
                Self { subscriber: text(subscriber), ..line.event(*seq) }.because(reason)
            }
            LedgerEntry::Created { notification, subscriber, events, created_at: _ } => Self {
                subscriber: text(subscriber),
                events: events.iter().map(|seq| seq.0).collect(),
                notification: text(notification),
                ..line
            },
            LedgerEntry::Unclaimed { notification } => Self { notification: text(notification), ..line },
            LedgerEntry::Queued { notification, session }
            | LedgerEntry::Returned { notification, session }
            | LedgerEntry::Recalled { notification, session } => {
                Self { session: text(session), notification: text(notification), ..line }
            }
            LedgerEntry::Repeated { notification, session, number } => Self {
                session: text(session),
                detail: number.map(|number| number.to_string()),
                notification: text(notification),
                ..line
            },
            LedgerEntry::Responded { notification, session, action, by } => Self {
                session: text(session),
                by: Some(by.to_string().into()),
                detail: Some(action.state().to_owned()),
                notification: text(notification),
                ..line
            },
            LedgerEntry::Injected { notification, session, injection, point, redelivered } => Self {
                session: text(session),
                injection: Some(injection.to_string()),
                by: Some(point.as_str().into()),
                detail: redelivered.map(|why| why.as_str().to_owned()),
                notification: text(notification),
                ..line
            },
            LedgerEntry::Confirmed { notification, session, by } => Self {
                session: text(session),
                by: Some(by.as_str().into()),
                notification: text(notification),
                ..line
            },
            LedgerEntry::NotificationEnded { notification, session, reason } => {
                Self { session: session.as_ref().and_then(text), notification: text(notification), ..line }
                    .because(reason)
            }
            LedgerEntry::ForUser { subject, step } => {
                let line = match subject {
                    Subject::Event(seq) => line.event(*seq),
                    Subject::Notification(id) => Self { notification: text(id), ..line },
                };
                line.step(step)
            }
        }
    }

    fn step(self, step: &Step) -> Self {
        let (sink, reason, detail) = match step {
            Step::Queued(sink) => (Some(sink), None, None),
            Step::Sent(sink, id) => (Some(sink), None, id.clone()),
            Step::Failed { sink, error, retry_at } => {
                let reason = match retry_at {
                    Some(at) => format!("{RETRIED}{at}").into(),
                    None => "given up".into(),
                };
                (Some(sink), Some(reason), Some(error.clone()))
            }
            Step::Waits { sink, until } => (Some(sink), Some("quiet".into()), text(until)),
            Step::Ended(sink, why) => (Some(sink), Some(why.as_str().into()), None),
            Step::Suppressed(why) => (None, Some(why.as_str().into()), why.time().as_ref().and_then(text)),
        };
        Self { by: sink.map(|sink| sink.as_str().into()), reason, detail, ..self }
    }

    fn event(self, seq: Seq) -> Self {
        Self { events: vec![seq.0], ..self }
    }

    fn because(self, reason: &Reason) -> Self {
        Self { reason: Some(reason.as_str().into()), detail: reason.detail(), ..self }
    }
}

fn text(shown: &impl ToString) -> Option<String> {
    Some(shown.to_string())
}

/// An event and its outcome.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct EventWithHistory {
    /// The event.
    #[cfg_attr(test, schema(value_type = EventView))]
    pub event: Box<RawValue>,
    /// The recorded outcome of the event and of its notifications, oldest first.
    pub history: Vec<LedgerLine>,
    /// Other events of this id, from other sources, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherEvent>,
    /// The progress of the projection that gave the outcome.
    pub projection: ProjectionView,
}

/// An event with the id of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct OtherEvent {
    /// Its source.
    pub source: String,
    /// Its position in the journal.
    pub seq: u64,
}

/// A page of events.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct EventPage {
    /// Events that a subscriber took or that were throttled, newest first.
    pub events: Vec<EventLine>,
    /// The `cursor` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Number of events that no subscriber takes; they are not listed, but can be shown by id.
    pub unmatched: u64,
    /// The progress of the projection that gave the answer.
    pub projection: ProjectionView,
}

/// A page of notifications.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NotificationPage {
    /// Newest first.
    pub notifications: Vec<NotificationView>,
    /// The `cursor` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The progress of the projection that gave the answer.
    pub projection: ProjectionView,
}

/// A notification, its events, and its outcome.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NotificationWithHistory {
    /// The notification.
    pub notification: NotificationView,
    /// The events behind its rows, oldest first.
    #[cfg_attr(test, schema(value_type = Vec<EventView>))]
    pub events: Vec<Box<RawValue>>,
    /// Its recorded history, oldest first.
    pub history: Vec<LedgerLine>,
    /// The queues in which it is pending now.
    #[serde(default)]
    pub pending: Vec<PendingIn>,
    /// The progress of the projection that gave the answer.
    pub projection: ProjectionView,
}

/// A page of system messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MessagePage {
    /// Newest first.
    pub messages: Vec<Message>,
    /// The `cursor` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The progress of the projection that gave the answer.
    pub projection: ProjectionView,
}

/// A page of injections.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct InjectionPage {
    /// Newest first.
    pub injections: Vec<InjectionLine>,
    /// The `cursor` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The progress of the projection that gave the answer.
    pub projection: ProjectionView,
}

/// The injections with one short name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NamedInjections {
    /// Newest first; more than one only if names of several sessions collide.
    pub injections: Vec<InjectionLine>,
    /// The progress of the projection that gave the answer.
    pub projection: ProjectionView,
}

/// A page of closed sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ClosedSessionPage {
    /// The last ended first; a session that was reopened is listed once per end.
    pub sessions: Vec<ClosedSession>,
    /// The `cursor` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The progress of the projection that gave the answer.
    pub projection: ProjectionView,
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{
        event::SessionId,
        ledger::{ConfirmedBy, FilteredBy, Redelivered},
        notification::{InjectionPoint, NotificationId, SubscriberId},
    };

    #[test]
    fn each_ledger_entry_serializes_with_its_fields() {
        let (notification, session) = (NotificationId::new("n1"), SessionId::new("s1"));
        let subscriber = SubscriberId::new("ci");
        let ended = |reason| LedgerEntry::EventEnded { seq: Seq(3), subscriber: subscriber.clone(), reason };
        for (entry, expected) in [
            (LedgerEntry::Unmatched { seq: Seq(3) }, r#"{"what":"unmatched","events":[3]}"#),
            (
                LedgerEntry::Batched { seq: Seq(3), subscriber: subscriber.clone() },
                r#"{"what":"batched","subscriber":"ci","events":[3]}"#,
            ),
            (
                ended(Reason::Duplicate { of: Seq(2) }),
                r#"{"what":"event_ended","subscriber":"ci","reason":"duplicate","detail":"2","events":[3]}"#,
            ),
            (
                ended(Reason::FilteredOut(FilteredBy::Severity)),
                r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"severity_filter","events":[3]}"#,
            ),
            (
                ended(Reason::RateLimited { retry_at: Timestamp::ZERO }),
                r#"{"what":"event_ended","subscriber":"ci","reason":"rate_limited","detail":"1970-01-01T00:00:00Z","events":[3]}"#,
            ),
            (
                LedgerEntry::Created {
                    notification,
                    subscriber: subscriber.clone(),
                    events: vec![Seq(3), Seq(4)],
                    created_at: Timestamp::ZERO,
                },
                r#"{"what":"created","subscriber":"ci","notification":"n1","events":[3,4]}"#,
            ),
            (LedgerEntry::Unclaimed { notification }, r#"{"what":"unclaimed","notification":"n1"}"#),
            (
                LedgerEntry::Queued { notification, session: session.clone() },
                r#"{"what":"queued","notification":"n1","session":"s1"}"#,
            ),
            (
                LedgerEntry::Injected {
                    notification,
                    session: session.clone(),
                    injection: engine::exchange::InjectionId::new("a1"),
                    point: InjectionPoint::AfterTool,
                    redelivered: Some(Redelivered::ContextLost),
                },
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"a1","by":"after_tool","detail":"context_lost"}"#,
            ),
            (
                LedgerEntry::Confirmed { notification, session: session.clone(), by: ConfirmedBy::Ack },
                r#"{"what":"confirmed","notification":"n1","session":"s1","by":"ack"}"#,
            ),
            (
                LedgerEntry::Returned { notification, session: session.clone() },
                r#"{"what":"returned","notification":"n1","session":"s1"}"#,
            ),
            (
                LedgerEntry::NotificationEnded { notification, session: None, reason: Reason::Expired },
                r#"{"what":"notification_ended","notification":"n1","reason":"expired"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&LedgerLine::of(&entry)).expect("serializes"), expected);
        }
    }
}

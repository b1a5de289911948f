//! What became of an event, as JSON: one line for each ledger entry, in the order in which they were written down.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    event::Seq,
    ledger::{FilteredBy, LedgerEntry, Reason},
};

/// One ledger entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct LedgerLine {
    /// `unmatched`, `held_back`, `batched`, `event_ended`, `created`, `unclaimed`, `queued`, `injected`, `confirmed`, `returned`,
    /// `recalled` or `notification_ended`.
    pub what: &'static str,
    /// Whose pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<String>,
    /// Which notification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notification: Option<String>,
    /// Which session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The injection it left with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injection: Option<String>,
    /// The injection point, or what confirmed the injection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// More about the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The positions of the events it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<u64>,
}

impl LedgerLine {
    /// Shows `entry`.
    pub fn of(entry: &LedgerEntry) -> Self {
        match entry {
            LedgerEntry::Unmatched { seq } => Self::event("unmatched", *seq),
            LedgerEntry::HeldBack { seq } => Self::event("held_back", *seq),
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
                by: Some(point.as_str()),
                detail: redelivered.then(|| "redelivered".to_owned()),
                ..Self::notification("injected", notification)
            },
            LedgerEntry::Confirmed { notification, session, by } => Self {
                session: text(session),
                by: Some(by.as_str()),
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
        }
    }

    fn event(what: &'static str, seq: Seq) -> Self {
        Self { what, events: vec![seq.0], ..Self::default() }
    }

    fn notification(what: &'static str, id: &impl ToString) -> Self {
        Self { what, notification: text(id), ..Self::default() }
    }

    fn because(self, reason: &Reason) -> Self {
        Self { reason: Some(reason.as_str()), detail: detail(reason), ..self }
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
        | Reason::Dismissed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::SessionId,
        ledger::ConfirmedBy,
        notification::{InjectionPoint, NotificationId, SubscriberId},
        time::Timestamp,
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
                    redelivered: true,
                },
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"a1","by":"after_tool","detail":"redelivered"}"#,
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

//! Explains a failed test: what the tested subscriber did with each event, and what became of its
//! notifications, each with the key of its file that made it so.

use std::{collections::BTreeSet, slice, time::Duration};

use engine::{
    event::{EventType, Seq},
    ledger::{LedgerEntry, Reason},
    notification::{NotificationId, SubscriberId},
    pipeline::rule::Subscriber,
    words::counted,
};

use super::{
    compare::earlier_part,
    failure::LedgerLine,
    timeline::{Played, Published},
};
use crate::config::{
    effective::{self, KeyInForce},
    layers::SourceFile,
    report::{Place, shown},
    rule_place::keys_of,
    values::duration_text,
};

/// What happened in a test, in the order of time.
pub(super) fn because(played: &Played, rule: &Subscriber, files: &[SourceFile]) -> Vec<LedgerLine> {
    let explainer = Explainer { played, rule, keys: effective::keys(files) };
    let taken: BTreeSet<Seq> =
        played.entries.iter().flat_map(|(_, entry)| handled_by(&rule.id, entry)).copied().collect();
    let not_taken = played.published.iter().filter(|event| !taken.contains(&event.seq));
    let mut events: Vec<LedgerLine> = not_taken.map(|event| explainer.not_taken(event)).collect();
    events.extend(played.entries.iter().filter_map(|(at, entry)| explainer.entry(*at, entry)));
    events.sort_by_key(|event| event.at);
    events
}

/// The events that `entry` says a subscriber handled, or that no subscriber got.
fn handled_by<'e>(id: &SubscriberId, entry: &'e LedgerEntry) -> &'e [Seq] {
    match entry {
        LedgerEntry::EventEnded { seq, subscriber, .. } | LedgerEntry::Batched { seq, subscriber }
            if subscriber == id =>
        {
            slice::from_ref(seq)
        }
        LedgerEntry::Created { subscriber, events, .. } if subscriber == id => events,
        LedgerEntry::Throttled { seq, .. } => slice::from_ref(seq),
        LedgerEntry::Unmatched { .. }
        | LedgerEntry::Skipped { .. }
        | LedgerEntry::Batched { .. }
        | LedgerEntry::EventEnded { .. }
        | LedgerEntry::Created { .. }
        | LedgerEntry::Unclaimed { .. }
        | LedgerEntry::Queued { .. }
        | LedgerEntry::Injected { .. }
        | LedgerEntry::Confirmed { .. }
        | LedgerEntry::Returned { .. }
        | LedgerEntry::Recalled { .. }
        | LedgerEntry::Repeated { .. }
        | LedgerEntry::Responded { .. }
        | LedgerEntry::NotificationEnded { .. }
        | LedgerEntry::ForUser { .. } => &[],
    }
}

struct Explainer<'a> {
    played: &'a Played,
    rule: &'a Subscriber,
    keys: Vec<KeyInForce>,
}

impl Explainer<'_> {
    /// The first of these keys that the subscriber has; `None` if all have their defaults.
    fn key(&self, keys: &[&str]) -> Option<&KeyInForce> {
        keys.iter().find_map(|key| self.keys.iter().find(|one| one.key == *key))
    }

    /// The place of that key.
    fn place(&self, keys: &[&str]) -> Option<Place> {
        self.key(keys).map(|one| one.place.clone())
    }

    fn not_taken(&self, event: &Published) -> LedgerLine {
        let types: Vec<String> = self.rule.types.iter().map(|pattern| format!("`{pattern}`")).collect();
        LedgerLine {
            at: event.at,
            event_type: event.event_type.to_string(),
            what: format!("not taken: `types` has {}", types.join(", ")),
            place: self.place(&["events.types"]),
        }
    }

    fn entry(&self, at: Duration, entry: &LedgerEntry) -> Option<LedgerLine> {
        let of_event = |seq: Seq, what: String, keys: &[&str]| {
            let event_type = self.event_type(seq).map(ToString::to_string).unwrap_or_default();
            Some(LedgerLine { at, event_type, what, place: self.place(keys) })
        };
        let of_notification = |id: NotificationId, what: String, keys: &[&str]| {
            let made = self.played.notification(id)?;
            let by = &made.notification.subscriber;
            if by.in_file() != self.rule.id.in_file() {
                return None;
            }
            // The keys of an earlier file are not those of this one.
            let place = self.place(keys).filter(|_| *by == self.rule.id);
            let subject = made.notification.content.text().lines().next().unwrap_or_default();
            let what = format!("{}: {what}", shown(subject.trim_end_matches(':')));
            Some(LedgerLine { at, event_type: String::new(), what, place })
        };
        match entry {
            LedgerEntry::Throttled { seq, by } => {
                of_event(*seq, format!("throttled: {}", by.describe()), &[])
            }
            LedgerEntry::EventEnded { seq, subscriber, reason } if *subscriber == self.rule.id => {
                of_event(*seq, self.ended(reason), keys_of(reason))
            }
            LedgerEntry::Batched { seq, subscriber } if *subscriber == self.rule.id => {
                of_event(*seq, "row of an open batch".to_owned(), &["batching.window_ms"])
            }
            LedgerEntry::Created { subscriber, events, notification, .. } => {
                let what = format!("made of {}{}", counted(events.len(), "row"), earlier_part(subscriber));
                of_notification(*notification, what, &[])
            }
            LedgerEntry::Queued { notification, session } => {
                of_notification(*notification, format!("pending for {session}"), &["output.inject_at"])
            }
            LedgerEntry::Unclaimed { notification } => {
                of_notification(*notification, "waits for a session".to_owned(), &[])
            }
            LedgerEntry::Injected { notification, session, point, .. } => {
                of_notification(*notification, format!("delivered to {session} at {}", point.as_str()), &[])
            }
            LedgerEntry::Returned { notification, .. } => {
                of_notification(*notification, "pending again: not confirmed".to_owned(), &[])
            }
            LedgerEntry::NotificationEnded { notification, reason, .. } => {
                let text = Reason::text_of(reason.as_str()).and_then(|text| text.notification);
                let what = text.map_or_else(|| reason.as_str(), |sentence| sentence.end);
                let what = what.replace("{detail}", &reason.detail().unwrap_or_default());
                of_notification(*notification, what, keys_of(reason))
            }
            LedgerEntry::Unmatched { .. }
            | LedgerEntry::Skipped { .. }
            | LedgerEntry::EventEnded { .. }
            | LedgerEntry::Batched { .. }
            | LedgerEntry::Confirmed { .. }
            | LedgerEntry::Recalled { .. }
            | LedgerEntry::Repeated { .. }
            | LedgerEntry::Responded { .. }
            | LedgerEntry::ForUser { .. } => None,
        }
    }

    fn event_type(&self, seq: Seq) -> Option<&EventType> {
        self.played.published.iter().find(|event| event.seq == seq).map(|event| &event.event_type)
    }

    /// The sentence about the end of an event, and the value of the key that ended it.
    fn ended(&self, reason: &Reason) -> String {
        let sentence = Reason::text_of(reason.as_str()).and_then(|text| text.event);
        let first = |of: Seq| {
            let first = self.played.published.iter().find(|event| event.seq == of)?;
            Some(format!("that of {}", duration_text(first.at)))
        };
        let detail = if let Reason::Duplicate { of } = reason { first(*of) } else { reason.detail() };
        let end = sentence.map_or_else(|| reason.as_str(), |sentence| sentence.end);
        let end = end.replace("{detail}", detail.as_deref().unwrap_or_default());
        let key = self.key(keys_of(reason));
        let is_filter = matches!(reason, Reason::FilteredOut(_));
        match key.filter(|_| is_filter) {
            Some(key) => format!("{end} = {}", shown(&key.value)),
            None => end,
        }
    }
}

//! Delivers as one what budgets have had no room for, for a while.
//!
//! What one subscriber has pending below high, and has had no room for `summarise_after`, leaves as one
//! notification: their count, the times of the first and the last, and one line of the newest. Each of
//! them ends, and its text is in the history. The one takes the place of the oldest in the queue, and
//! the states and conditions of all, so that it is superseded and withdrawn as they would be.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};
use toon::tokens;

use super::{entry::Entry, parts::Injector};
use crate::{
    event::{Scope, Seq, SessionId},
    hex::hex,
    hold::HoldKind,
    ledger::Reason,
    notification::{Nature, Notification, NotificationId, Priority, State, Summarised},
    sorted::SortedSet,
};

/// Most untrusted sources that a summarised notification names; the others are a number.
const SOURCES_MAX: usize = 3;

impl Injector {
    /// Summarises what has had no room for `after`: of each subscriber, if that are two or more.
    /// `line` says one notification in a line.
    ///
    /// Shape: the new notifications, in subscriber order; they are queued.
    pub fn summarise(
        &mut self,
        after: Duration,
        line: impl Fn(&Notification) -> String,
        now: Timestamp,
    ) -> Vec<Arc<Notification>> {
        let is_old = |since: Timestamp| now.since(since) >= after;
        if !self.first_short_since().is_some_and(is_old) {
            return Vec::new();
        }
        let is_wanted = |entry: &Entry| entry.short_since.is_some_and(is_old) && can_be_summarised(entry);
        let mut of_subscribers: BTreeMap<_, Vec<Entry>> = BTreeMap::new();
        for entry in self.queue.take_all_that(&is_wanted) {
            of_subscribers.entry(entry.notification.subscriber.clone()).or_default().push(entry);
        }
        let mut made = Vec::new();
        for entries in of_subscribers.into_values() {
            if let [_] = &entries[..] {
                entries.into_iter().for_each(|entry| self.queue.restore(entry));
                continue;
            }
            let one = Arc::new(summarised(&entries, &self.session, &line));
            for entry in &entries {
                self.end(&entry.notification, Reason::Summarised { by: one.id });
            }
            self.push(Arc::clone(&one));
            made.push(one);
        }
        self.note_first_short();
        made
    }
}

/// Whether nothing else keeps it, nobody has to answer it, and it was not on its way before.
fn can_be_summarised(entry: &Entry) -> bool {
    let notification = &entry.notification;
    let is_held_otherwise = entry.holds.iter().any(|hold| hold.kind() != HoldKind::Budget);
    notification.priority < Priority::High
        && !is_held_otherwise
        && !entry.is_for_user()
        && entry.redelivered().is_none()
        && !entry.is_repeated()
        && !notification.requires_response
        && notification.repeat.is_none()
}

fn summarised(
    entries: &[Entry],
    session: &SessionId,
    line: impl Fn(&Notification) -> String,
) -> Notification {
    let all = || entries.iter().map(|entry| &*entry.notification);
    let newest = all().max_by_key(|one| last_of(one)).expect("there are two at least");
    let summarised = Summarised {
        count: all().map(|one| one.summarised.as_ref().map_or(1, |own| own.count)).sum(),
        first: all().map(first_of).min().expect("there are two at least"),
        last: last_of(newest),
    };
    let said = line(newest);
    let sentence = format!("{} of {}, the newest: {said}", summarised.count, newest.subscriber.in_file());
    let text = toon::encode(&json!({
        "summarised": summarised.count,
        "of": newest.subscriber.in_file(),
        "first": summarised.first.to_string(),
        "last": summarised.last.to_string(),
        "newest": said,
    }));
    let scope = match all().all(|one| one.scope == newest.scope) {
        true => newest.scope.clone(),
        false => Scope::Session(session.clone()),
    };
    let is_condition = all().all(|one| one.nature == Nature::Condition);
    let charged_to: SortedSet<Arc<str>> = all().flat_map(|one| one.charged_to.iter().cloned()).collect();
    let (states, unresolved) = (all().flat_map(|one| &one.states), all().flat_map(|one| &one.unresolved));
    Notification {
        id: id_of(entries, session),
        scope,
        priority: all().map(|one| one.priority).max().expect("there are two at least"),
        inject_at: all().map(|one| one.inject_at).min().expect("there are two at least"),
        activation: all().map(|one| one.activation).max().expect("there are two at least"),
        is_asked: all().any(|one| one.is_asked),
        nature: if is_condition { Nature::Condition } else { Nature::Occurrence },
        untrusted_source: untrusted_sources(all()),
        rows_name_sources: false,
        severity: all().map(|one| one.severity).max().expect("there are two at least"),
        tokens: tokens::estimate(&text),
        content: text.into(),
        sentences: vec![sentence.into()],
        raw_bytes: all().map(|one| one.raw_bytes).sum(),
        events: all()
            .flat_map(|one| one.events.iter().copied())
            .collect::<SortedSet<Seq>>()
            .iter()
            .copied()
            .collect(),
        states: newest_states(states),
        unresolved: newest_states(unresolved),
        created_at: all().map(|one| one.created_at).min().expect("there are two at least"),
        expires_at: all().map(|one| one.expires_at).max_by_key(|at| at.unwrap_or(FOREVER)).flatten(),
        delays: Box::default(),
        retain_until: None,
        charged_to: charged_to.iter().cloned().collect(),
        summarised: Some(Box::new(summarised)),
        ..newest.clone()
    }
}

const FOREVER: Timestamp = Timestamp::from_millis(u64::MAX);

fn first_of(one: &Notification) -> Timestamp {
    one.summarised.as_ref().map_or(one.created_at, |own| own.first)
}

fn last_of(one: &Notification) -> Timestamp {
    one.summarised.as_ref().map_or(one.created_at, |own| own.last)
}

/// The id of the notification in place of these, so that a replay returns the same.
fn id_of(entries: &[Entry], session: &SessionId) -> NotificationId {
    let mut hash = Sha256::new_with_prefix(session.as_str());
    for entry in entries {
        hash.update([0]);
        hash.update(entry.notification.id.as_str());
    }
    NotificationId::new(&format!("n{}", hex(hash.finalize().iter().take(6))))
}

/// The states in key order; of those with one key the newest.
fn newest_states<'a>(states: impl Iterator<Item = &'a State>) -> Vec<State> {
    let mut newest: BTreeMap<_, &State> = BTreeMap::new();
    for state in states {
        let known = newest.entry(state.key).or_insert(state);
        if state.seq > known.seq {
            *known = state;
        }
    }
    newest.into_values().cloned().collect()
}

/// The untrusted sources of all in one line.
fn untrusted_sources<'a>(all: impl Iterator<Item = &'a Notification>) -> Option<Arc<str>> {
    let sources: SortedSet<&str> = all.filter_map(|one| one.untrusted_source.as_deref()).collect();
    let named: Vec<&str> = sources.iter().copied().take(SOURCES_MAX).collect();
    let more = match sources.len().saturating_sub(SOURCES_MAX) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    (!named.is_empty()).then(|| format!("{}{more}", named.join("; ")).into())
}

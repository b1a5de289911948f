//! The rule behind a line of the ledger, with its file and line, and the event that the line names.

use std::cell::OnceCell;

use engine::{
    event::EventType,
    hold::HoldKind,
    ledger::{EntryKind, Reason, ThrottledBy, of_word},
};

use crate::{
    api::wire::{
        event::EventView,
        history::{EventWithHistory, LedgerLine},
        inbox::HoldView,
    },
    cli::{Context, rules::InForce, terminal::one_line},
    config::{report::Place, rule_place::RulePlaces},
};

const DOING: &str = "look it up";

/// The daemon's rules; read when the first line has one.
pub(in crate::cli) struct Rules<'c, 'o> {
    context: &'c Context<'o>,
    in_force: OnceCell<Option<InForce>>,
}

/// An event that a line names by its position.
struct Named {
    event_type: String,
    shown: String,
}

impl<'c, 'o> Rules<'c, 'o> {
    pub(in crate::cli) fn new(context: &'c Context<'o>) -> Self {
        Self { context, in_force: OnceCell::new() }
    }

    /// What is added to the sentence of a line: the event that it names, and the rule. `subscriber`: the
    /// one whose rule it is.
    pub(super) fn of_line(&self, line: &LedgerLine, subscriber: Option<&str>) -> String {
        let reason = line.reason.as_deref().and_then(|word| Reason::read(word, line.detail.as_deref()));
        let named = match &reason {
            Some(Reason::Duplicate { of: seq } | Reason::Inhibited { by: seq }) => self.named(seq.0),
            Some(_) | None => None,
        };
        let event_type = named.as_ref().and_then(|named| named.event_type.parse().ok());
        let place = self.place(line, reason.as_ref(), subscriber, event_type.as_ref());
        let named = named.map(|named| format!(", {}", named.shown)).unwrap_or_default();
        let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
        named + &place
    }

    /// What is added to a hold: the event that inhibits, and the place of the rule.
    pub(in crate::cli) fn of_hold(&self, hold: &HoldView, subscriber: &str) -> String {
        let is_inhibited = hold.kind == HoldKind::Inhibited.as_str();
        let named = hold.cause.parse().ok().filter(|_| is_inhibited).and_then(|seq| self.named(seq));
        let event_type = named.as_ref().and_then(|named| named.event_type.parse().ok());
        let place = self.look(|places| places.of_hold(subscriber, &hold.cause, event_type.as_ref()));
        let named = named.map(|named| format!(", {}", named.shown)).unwrap_or_default();
        let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
        named + &place
    }

    /// A line about files that the daemon does not use yet; empty if there are none, or no rule was named.
    pub(super) fn note(&self) -> &'static str {
        self.in_force.get().and_then(Option::as_ref).map_or("", InForce::note)
    }

    fn place(
        &self,
        line: &LedgerLine,
        reason: Option<&Reason>,
        subscriber: Option<&str>,
        inhibitor: Option<&EventType>,
    ) -> Option<String> {
        match (of_word(&line.what)?, reason, subscriber) {
            (EntryKind::Throttled, ..) => {
                let by: ThrottledBy = line.reason.as_deref().and_then(of_word)?;
                self.look(|places| places.of_throttled(by))
            }
            (EntryKind::EventEnded | EntryKind::NotificationEnded, Some(reason), Some(subscriber)) => {
                self.look(|places| places.of_reason(subscriber, reason, inhibitor))
            }
            _ => None,
        }
    }

    fn look(&self, find: impl FnOnce(&RulePlaces<'_>) -> Option<Place>) -> Option<String> {
        let in_force = self.in_force.get_or_init(|| InForce::of_daemon(self.context).ok()).as_ref()?;
        let places = in_force.places();
        find(&places).map(|place| one_line(&places.shown(&place)))
    }

    /// The event at a position, if the daemon still has it.
    fn named(&self, seq: u64) -> Option<Named> {
        let found: EventWithHistory = self.context.get(DOING, &format!("/v1/events/{seq}")).ok()?;
        let event: EventView<'_> = serde_json::from_str(found.event.get()).ok()?;
        // A producer may have given this number to another event.
        if event.seq != Some(seq) {
            return None;
        }
        let at = self.context.terminal.moment(&event.timestamp);
        let event_type = event.event_type.into_owned();
        Some(Named { shown: format!("{} {at}", one_line(&event_type)), event_type })
    }
}

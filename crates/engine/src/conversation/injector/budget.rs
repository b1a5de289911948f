//! Selects which of the notifications that a point releases go into one injection.
//!
//! The wrapper and the overflow line count too, so the text is rendered and measured as it will be
//! sent. As many notifications as fit are chosen, the highest priority first; the rest stay
//! pending. Critical notifications may exceed the budget, but nothing exceeds the carrier's
//! capacity. One that does not fit even alone is cut, so every exchange with any room makes the
//! queue shorter. The caller renders, measures and cuts text.
//!
//! A recorded release is repeated, even if the current program would decide differently: a replay by
//! a later version must not change the past, as the agent has the text.

use super::{
    entry::{Candidate, candidate},
    parts::Injector,
    point::Asks,
    room::{Room, Short},
};
use crate::{
    exchange::{Answer, Budget, Directive, Exchange, Format, ReleaseRecord, Replaces},
    notification::{Counts, Cut, Detail, LeftOut, Notification, Priority, SubscriberId, Tokens, Waiting},
    sorted::SortedMap,
};

/// Capacity of a carrier that does not state one, in characters, unless more are configured.
///
/// Source: about 8,000 tokens, which every model that uses tools takes in one message.
pub const CARRIER_CHARS_MAX: u32 = 32_000;

/// The limits of an injection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The budget: notifications. Critical ones may exceed it.
    pub max_notifications: u32,
    /// The budget: estimated tokens of the whole text. Critical ones may exceed it.
    pub max_tokens: Tokens,
    /// The budget: characters of the whole text. Critical ones may exceed it.
    pub max_chars: u32,
    /// The carrier's capacity, in characters of the whole text. Nothing exceeds it.
    pub carrier_chars_max: u32,
}

impl Limits {
    /// The configured limits, for a carrier that does not state its capacity.
    pub fn new(max_notifications: u32, max_tokens: Tokens, max_chars: u32) -> Self {
        let carrier_chars_max = max_chars.max(CARRIER_CHARS_MAX);
        Self { max_notifications, max_tokens, max_chars, carrier_chars_max }
    }

    /// These limits, lowered to those of an exchange; a higher value changes no budget. The
    /// exchange's limit of characters is its carrier's capacity.
    #[must_use]
    pub fn lowered_to(self, budget: &Budget) -> Self {
        let lower = |asked: Option<u32>, own: u32| asked.map_or(own, |asked| asked.min(own));
        Self {
            max_notifications: lower(budget.max_notifications, self.max_notifications),
            max_tokens: budget.max_tokens.map_or(self.max_tokens, |asked| asked.min(self.max_tokens)),
            max_chars: lower(budget.max_chars, self.max_chars),
            carrier_chars_max: budget.max_chars.unwrap_or(self.carrier_chars_max),
        }
    }

    fn holds(&self, text: &str, tokens: Tokens, allowance: Allowance) -> bool {
        let chars = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        match allowance {
            Allowance::Budget => {
                chars <= self.max_chars.min(self.carrier_chars_max) && tokens <= self.max_tokens
            }
            Allowance::Carrier => chars <= self.carrier_chars_max,
        }
    }
}

/// Which limits apply to a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowance {
    /// All: something in it is not critical.
    Budget,
    /// The carrier's capacity only: all of it is critical.
    Carrier,
}

/// The notifications that a point would release with unlimited room.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offer {
    /// By priority, then oldest first; at most as many as the limit on their number allows. Empty
    /// when nothing is released.
    pub candidates: Vec<Candidate>,
    /// Number of due notifications of each subscriber at the point, the candidates included.
    pub due: SortedMap<SubscriberId, u32>,
    /// The request of some candidates to the harness.
    pub asks: Option<Asks>,
    /// The directive if none of them is released.
    pub standing: Option<Directive>,
    /// Whether the harness shows its user a line about the delivery.
    pub is_shown: bool,
    /// Those that come after one that a budget had no room for before; they are due and no candidates.
    pub barred: Vec<Short>,
    /// Those with the hold of a budget, if the text may say it; they are not due.
    pub waiting: Option<Waiting>,
}

/// The decision for an exchange, not yet applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decided {
    /// The content of the injection; `None` if nothing is released.
    pub fitted: Option<Fitted>,
    /// The directive to the harness.
    pub directive: Option<Directive>,
    /// What a budget has no room for.
    pub short: Vec<Short>,
}

/// The content of one injection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The chosen ones, in the order of the text; never empty.
    pub chosen: Vec<Candidate>,
    /// Its format.
    pub format: Format,
    /// The text to send.
    pub text: String,
    /// Its content in one sentence for the user.
    pub sentence: String,
    /// Its estimated size.
    pub tokens: Tokens,
    /// Whether it says how many wait for a budget.
    pub says_waiting: bool,
}

/// Renders notifications.
pub trait Writer {
    /// Renders the chosen ones, and how many are left out, in the given detail.
    fn write(&self, chosen: &[Candidate], left_out: LeftOut, detail: Detail, replaces: Replaces) -> String;

    /// The format.
    fn format(&self) -> Format {
        Format::default()
    }

    /// Whether the format shows this one whole; a format may limit each of them.
    fn is_whole(&self, _candidate: &Candidate) -> bool {
        true
    }

    /// The content of these in one sentence for the user; they are in text order.
    fn sentence(&self, about: &[&Candidate]) -> String;

    /// Counts the tokens of a text.
    fn tokens(&self, text: &str) -> Tokens;

    /// The part of a notification's content that fits in about `chars_max` characters.
    fn shorten(&self, notification: &Notification, chars_max: usize) -> Cut;
}

/// Chooses the notifications of `offer` that fit in `limits`, and of these what the budgets have `room`
/// for.
///
/// Shape: the first candidates, as many as fit, and as the format shows whole. If the first alone is too large, the line about
/// those left out is shortened, and then the notification is cut. Nothing is released without a
/// candidate, or without room for the wrapper and the line of [`Cut::mark`].
pub fn fit(offer: Offer, limits: &Limits, room: &Room, writer: &impl Writer) -> Decided {
    let Offer { candidates, due, asks, standing, is_shown, barred, waiting } = offer;
    let directive = asks.map(|asks| {
        let asking: Vec<&Candidate> = candidates.iter().filter(|one| asks.is_asked_by(one)).collect();
        asks.for_reason(writer.sentence(&asking).into())
    });
    let replaces = replaces(directive.as_ref().or(standing.as_ref()));
    let left = Left { due: &due, barred: &barred, waiting: waiting.as_ref() };
    let (mut fitted, mut short) = choose(candidates, left, limits, room, replaces, writer);
    let directive = asks.zip(directive).zip(fitted.as_ref()).map(|((asks, directive), fitted)| {
        if fitted.chosen.iter().any(|one| asks.is_asked_by(one)) {
            return directive;
        }
        // The carrier has no room for those that ask: the reason is what the text has.
        asks.for_reason(writer.sentence(&fitted.chosen.iter().collect::<Vec<_>>()).into())
    });
    let directive = directive.or(standing);
    if let Some(fitted) = fitted.as_mut().filter(|_| has_sentence(is_shown, directive.as_ref())) {
        fitted.sentence = writer.sentence(&fitted.chosen.iter().collect::<Vec<_>>());
    }
    short.extend(barred);
    Decided { fitted, directive, short }
}

/// Whether an answer needs the sentence: for the user's line, or above a text with which the turn
/// continues.
fn has_sentence(is_shown: bool, directive: Option<&Directive>) -> bool {
    is_shown || matches!(directive, Some(Directive::Continue { .. }))
}

/// What the text with this directive replaces.
pub(super) fn replaces(directive: Option<&Directive>) -> Replaces {
    match directive {
        Some(Directive::Cancel { .. }) => Replaces::Call,
        Some(Directive::Continue { .. }) | None => Replaces::Nothing,
    }
}

fn choose(
    mut candidates: Vec<Candidate>,
    left: Left<'_>,
    limits: &Limits,
    room: &Room,
    replaces: Replaces,
    writer: &impl Writer,
) -> (Option<Fitted>, Vec<Short>) {
    let criticals = candidates.iter().filter(|candidate| is_critical(candidate)).count();
    let others_max = usize::try_from(limits.max_notifications).unwrap_or(usize::MAX);
    candidates.truncate(criticals.max(others_max));
    // What the format would cut is left to another carrier, unless it is the first: then no carrier
    // has shown it whole.
    if let Some(whole) = candidates.iter().skip(1).position(|candidate| !writer.is_whole(candidate)) {
        candidates.truncate(whole + 1);
    }
    let fitting = Fitting { left, limits, play: &[], replaces, writer };
    let chosen = fitting
        .most(&candidates)
        .or_else(|| fitting.first_cut(candidates.first_mut()?).map(|text| (1, text)));
    let Some((count, written)) = chosen else { return (None, Vec::new()) };
    candidates.truncate(count);
    let is_limited = !room.is_ample(limits.max_tokens) && !candidates.iter().all(is_critical);
    let (released, short) = if is_limited {
        let constrained = fitting.constrain(candidates, room);
        (constrained.released, constrained.short)
    } else {
        (Some((candidates, written)), Vec::new())
    };
    let fitted = released.map(|(chosen, Written { text, tokens, says_waiting })| {
        let (format, sentence) = (writer.format(), String::new());
        Fitted { chosen, format, text, sentence, tokens, says_waiting }
    });
    (fitted, short)
}

/// What a text leaves out.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) due: &'a SortedMap<SubscriberId, u32>,
    pub(super) barred: &'a [Short],
    /// `None` if it does not say how many wait for a budget.
    pub(super) waiting: Option<&'a Waiting>,
}

pub(super) struct Fitting<'a, W> {
    pub(super) left: Left<'a>,
    pub(super) limits: &'a Limits,
    /// Those of which the budgets choose; what is not chosen waits for one. Empty if the limits alone
    /// choose.
    pub(super) play: &'a [Candidate],
    pub(super) replaces: Replaces,
    pub(super) writer: &'a W,
}

impl<W> Clone for Fitting<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Fitting<'_, W> {}

pub(super) struct Written {
    text: String,
    pub(super) tokens: Tokens,
    says_waiting: bool,
}

impl<W: Writer> Fitting<'_, W> {
    /// As many of the first candidates as fit, at least one.
    ///
    /// Tries all first, as usually all fit; then a binary search, since a text grows with its
    /// content.
    pub(super) fn most(&self, candidates: &[Candidate]) -> Option<(usize, Written)> {
        let try_first = |count: usize| self.written(candidates.get(..count)?, Detail::Subscribers);
        if candidates.is_empty() {
            return None;
        }
        if let Some(all) = try_first(candidates.len()) {
            return Some((candidates.len(), all));
        }
        let (mut fitted, mut too_many) = (None, candidates.len());
        let mut fits = 0;
        while fits + 1 < too_many {
            let middle = fits + (too_many - fits) / 2;
            match try_first(middle) {
                Some(written) => (fits, fitted) = (middle, Some(written)),
                None => too_many = middle,
            }
        }
        match fitted {
            Some(written) => Some((fits, written)),
            None => self.written(candidates.get(..1)?, Detail::Total).map(|written| (1, written)),
        }
    }

    /// The text of the first candidate alone, cut until it fits.
    pub(super) fn first_cut(&self, candidate: &mut Candidate) -> Option<Written> {
        let mut room = candidate.notification.content.chars().count();
        room = room.min(usize::try_from(self.limits.carrier_chars_max).unwrap_or(usize::MAX));
        loop {
            candidate.cut = Some(self.writer.shorten(&candidate.notification, room));
            if let Some(written) = self.written(std::slice::from_ref(candidate), Detail::Total) {
                return Some(written);
            }
            if room == 0 {
                return None;
            }
            room = room * 3 / 4;
        }
    }

    /// The text of `chosen`, if it is within the limits that apply.
    fn written(&self, chosen: &[Candidate], detail: Detail) -> Option<Written> {
        let left_out = self.left_out(chosen, detail);
        let says_waiting = left_out.waiting.is_some();
        let text = self.writer.write(chosen, left_out, detail, self.replaces);
        let tokens = self.writer.tokens(&text);
        let allowance = if chosen.iter().all(is_critical) { Allowance::Carrier } else { Allowance::Budget };
        self.limits.holds(&text, tokens, allowance).then_some(Written { text, tokens, says_waiting })
    }

    /// The estimated size of the text of `chosen` without anything else.
    pub(super) fn tokens_of(&self, chosen: &[Candidate]) -> Tokens {
        self.writer.tokens(&self.writer.write(chosen, LeftOut::default(), Detail::Total, self.replaces))
    }

    fn left_out(&self, chosen: &[Candidate], detail: Detail) -> LeftOut {
        let Left { due, barred, waiting } = self.left;
        let known = if self.play.is_empty() { chosen } else { self.play };
        let waits = known.len().saturating_sub(chosen.len()) + barred.len();
        let waiting = waiting.map(|own| own.and(waits)).filter(|waiting| waiting.count > 0);
        if due.values().map(|count| u64::from(*count)).sum::<u64>() == (known.len() + barred.len()) as u64 {
            return LeftOut { pending: Counts::default(), waiting };
        }
        let mut left = due.clone();
        let subscribers = known.iter().map(|candidate| &candidate.notification.subscriber);
        for subscriber in subscribers.chain(barred.iter().map(|short| &short.subscriber)) {
            if let Some(count) = left.get_mut(subscriber) {
                *count = count.saturating_sub(1);
            }
        }
        left.retain(|_, count| *count > 0);
        LeftOut { pending: Counts::new(&left, detail), waiting }
    }
}

pub(super) fn is_critical(candidate: &Candidate) -> bool {
    candidate.notification.priority == Priority::Critical
}

impl Injector {
    /// The release in `record`. Notifications in it that are not pending here are not delivered
    /// when they arrive later.
    ///
    /// Shape: the text is rendered again, as the journal keeps only the ids.
    pub fn repeat(&mut self, record: &ReleaseRecord, exchange: &Exchange, writer: &impl Writer) -> Decided {
        let mut chosen: Vec<Candidate> = Vec::with_capacity(record.notifications.len());
        for id in &record.notifications {
            match self.queue.get(id) {
                Some(entry) => chosen.push(candidate(entry)),
                None => self.recent.insert(*id),
            }
        }
        let fitted = (!chosen.is_empty()).then(|| {
            let replaces = replaces(record.directive.as_ref());
            let text = writer.write(&chosen, LeftOut::default(), Detail::Total, replaces);
            // It charged what it took then.
            let tokens = record.tokens.unwrap_or_else(|| writer.tokens(&text));
            let sentence = if has_sentence(exchange.shows_notices, record.directive.as_ref()) {
                writer.sentence(&chosen.iter().collect::<Vec<_>>())
            } else {
                String::new()
            };
            Fitted { chosen, format: writer.format(), text, sentence, tokens, says_waiting: false }
        });
        Decided { fitted, directive: record.directive.clone(), short: Vec::new() }
    }

    /// The answer that releases nothing, because the process died before, or because the wake is no
    /// longer needed. Nothing is kept for its carrier.
    pub fn unanswered(&self) -> Answer {
        let check_before_tool = self.check_before_tool();
        Answer { pending: self.left(), check_before_tool, ..Answer::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{conversation::injector::tests::notification, notification::InjectionPoint};

    /// An offer of notifications by name; `!name` is critical. All of them are due, and `more` of
    /// the subscriber `late`.
    fn offer(names: &[&str], more: u32) -> Offer {
        let candidates: Vec<Candidate> = names
            .iter()
            .map(|name| {
                let priority = if name.starts_with('!') { Priority::Critical } else { Priority::Normal };
                let made = notification(name, priority, InjectionPoint::AfterTool);
                let notification = Arc::new(Notification { content: (*name).into(), ..made });
                Candidate { notification, redelivered: None, has_cancelled: false, cut: None, reminder: 0 }
            })
            .collect();
        let mut due: SortedMap<SubscriberId, u32> = SortedMap::new();
        for candidate in &candidates {
            *due.get_or_default(candidate.notification.subscriber.clone()) += 1;
        }
        if more > 0 {
            due.insert(SubscriberId::new("late"), more);
        }
        Offer { candidates, due, is_shown: true, ..Offer::default() }
    }

    /// Contents joined by spaces, then the number left out; a token is a byte, and a cut content
    /// ends with `~`.
    struct Plain;

    impl Writer for Plain {
        fn write(
            &self,
            chosen: &[Candidate],
            left_out: LeftOut,
            detail: Detail,
            replaces: Replaces,
        ) -> String {
            let content = |candidate: &Candidate| match &candidate.cut {
                Some(cut) => cut.content.to_string(),
                None => candidate.notification.content.to_string(),
            };
            let contents: Vec<String> = chosen.iter().map(content).collect();
            let left = match (left_out.total(), detail) {
                (0, _) => String::new(),
                (total, Detail::Total) => format!(" +{total}"),
                (_, Detail::Subscribers) => format!(" +{}", left_out.pending),
            };
            let begin = if replaces == Replaces::Call { "not run: " } else { "" };
            format!("{begin}{}{left}", contents.join(" "))
        }

        fn is_whole(&self, candidate: &Candidate) -> bool {
            !candidate.notification.content.contains("long")
        }

        fn sentence(&self, about: &[&Candidate]) -> String {
            about.len().to_string()
        }

        fn tokens(&self, text: &str) -> Tokens {
            Tokens(u32::try_from(text.len()).expect("short"))
        }

        fn shorten(&self, notification: &Notification, chars_max: usize) -> Cut {
            let kept = notification.content.get(..chars_max).expect("as long as that");
            Cut { content: format!("{kept}~").into(), is_text: false, mark: "cut".into() }
        }
    }

    /// The text that fits into these tokens, characters, and characters of the carrier.
    fn fitted(offer: Offer, max_tokens: u32, max_chars: u32, carrier_chars_max: u32) -> Option<String> {
        let max_tokens = Tokens(max_tokens);
        let limits = Limits { max_notifications: 10, max_tokens, max_chars, carrier_chars_max };
        fit(offer, &limits, &Room::unlimited(), &Plain).fitted.map(|fitted| fitted.text)
    }

    #[test]
    fn fitting_notifications_are_chosen_and_the_rest_counted() {
        for (max, expected) in [
            (40, Some("a#aaaaaaaa a#bbbbbbbb b#cccccccc +late 2")),
            (39, Some("a#aaaaaaaa a#bbbbbbbb +late 2; b 1")),
            (33, Some("a#aaaaaaaa +late 2; a 1; b 1")),
            (27, Some("a#aaaaaaaa +4")),
            (12, Some("a#aaaaa~ +4")),
            (4, Some("~ +4")),
            (3, None),
        ] {
            let offered = || offer(&["a#aaaaaaaa", "a#bbbbbbbb", "b#cccccccc"], 2);
            assert_eq!(fitted(offered(), max, 1_000, 1_000).as_deref(), expected, "{max} tokens");
            assert_eq!(fitted(offered(), 1_000, max, 1_000).as_deref(), expected, "{max} characters");
            assert_eq!(fitted(offered(), 1_000, 1_000, max).as_deref(), expected, "{max} of the carrier");
        }
    }

    #[test]
    fn a_format_takes_only_what_it_shows_whole() {
        for (names, expected) in [
            (&["a#long", "b#x"][..], "a#long b#x"),
            (&["!a#x", "b#long", "c#y"], "!a#x +b 1; c 1"),
            (&["a#x", "b#y", "c#long"], "a#x b#y +c 1"),
        ] {
            assert_eq!(fitted(offer(names, 0), 100, 100, 100).as_deref(), Some(expected), "{names:?}");
        }
    }

    #[test]
    fn critical_notifications_exceed_the_budget_alone() {
        let offered = || offer(&["!aaaaaaaa", "!bbbbbbbb", "cccc"], 0);
        assert_eq!(fitted(offered(), 5, 5, 100).as_deref(), Some("!aaaaaaaa !bbbbbbbb +cccc 1"));
        assert_eq!(fitted(offered(), 24, 24, 100).as_deref(), Some("!aaaaaaaa !bbbbbbbb cccc"));
    }

    #[test]
    fn text_in_place_of_a_call_says_so() {
        let reason = || "a".into();
        let asked = |asks, standing| Offer { asks, standing, ..offer(&["!aaaaaaaa", "!bbbbbbbb"], 0) };
        let cancels = Directive::Cancel { reason: reason() };
        for (offered, expected) in [
            (asked(Some(Asks::ToCancel), None), "not run: !aaaaaaaa !bbbbbbbb"),
            (asked(None, Some(cancels)), "not run: !aaaaaaaa !bbbbbbbb"),
            (asked(Some(Asks::ToContinue), None), "!aaaaaaaa !bbbbbbbb"),
            (asked(None, None), "!aaaaaaaa !bbbbbbbb"),
        ] {
            assert_eq!(fitted(offered, 5, 5, 28).as_deref(), Some(expected));
        }
        let offered = asked(Some(Asks::ToCancel), None);
        assert_eq!(fitted(offered, 5, 5, 27).as_deref(), Some("not run: !aaaaaaaa +1"));
    }

    #[test]
    fn critical_ones_do_not_exceed_the_carrier() {
        let offered = || offer(&["!aaaaaaaa", "!bbbbbbbb", "!cccccccc"], 0);
        assert_eq!(fitted(offered(), 5, 5, 29).as_deref(), Some("!aaaaaaaa !bbbbbbbb !cccccccc"));
        assert_eq!(fitted(offered(), 5, 5, 28).as_deref(), Some("!aaaaaaaa +2"));
        assert_eq!(fitted(offered(), 5, 5, 12).as_deref(), Some("!aaaaaaaa +2"));
        assert_eq!(fitted(offered(), 5, 5, 10).as_deref(), Some("!aaaaa~ +2"));
    }

    #[test]
    fn critical_notifications_fill_the_carrier_capacity() {
        let names: Vec<String> = (0..1_000).map(|n| format!("!a#{n:04}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let text = fitted(offer(&names, 0), 5, 5, 800).expect("some fit");
        assert!((790..=800).contains(&text.len()), "{} characters", text.len());
    }

    #[test]
    fn an_exchange_lowers_budget_and_sets_carrier_capacity() {
        let configured = Limits::new(10, Tokens(800), 8_000);
        assert_eq!(configured.carrier_chars_max, CARRIER_CHARS_MAX);
        let asked = Budget { max_notifications: Some(20), max_tokens: Some(Tokens(100)), max_chars: None };
        let lowered = Limits { max_tokens: Tokens(100), ..configured };
        assert_eq!(configured.lowered_to(&asked), lowered);
        for (chars, max_chars) in [(9_500, 8_000), (400, 400)] {
            let asked = Budget { max_chars: Some(chars), ..Budget::default() };
            let lowered = Limits { max_chars, carrier_chars_max: chars, ..configured };
            assert_eq!(configured.lowered_to(&asked), lowered);
        }
    }
}

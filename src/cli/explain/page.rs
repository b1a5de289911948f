//! The explanation as a page: a block for each subscriber, each step with the place of its rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use engine::{
    event::EventType,
    ledger::{Reason, ThrottledBy, of_word},
};
use hook::client::percent_encode;
use serde_json::{Value, json};

use super::words;
use crate::{
    api::wire::{
        event::EventView,
        explain::{ComparisonView, GoesToView, InhibitorView, OutcomeView, SubscriberOutcomeView},
        history::{EventWithHistory, LedgerLine},
        inbox::HoldView,
    },
    cli::{
        CliError, Context,
        configuration::note_of_errors,
        ids::Names,
        parse,
        rules::InForce,
        terminal::{Terminal, Tone, cut, cut_beginning, one_line, width},
        why,
    },
    config::{
        layers::LayerKind,
        report::Place,
        rule_place::{RulePlaces, keys_of},
    },
};

const DOING: &str = "explain it";
/// The columns of a page in a pipe.
const COLUMNS: usize = 80;
/// Where places begin, if the line has room.
const PLACES_AT: usize = 49;
/// The width of the names at the begin of a line.
const NAMES_WIDTH: usize = 14;
/// The widest comparison whose values are aligned with those of others.
const COMPARISON_WIDTH_MAX: usize = 34;
/// Number of subscribers that are shown if none takes the event.
const NEAREST: usize = 3;
/// Most sessions that are named.
const SESSIONS_MAX: usize = 3;

/// What would become of an event, and by which rules.
pub(super) struct Explained {
    pub(super) outcome: OutcomeView,
    pub(super) in_force: InForce,
    /// What was decided about a past one.
    pub(super) then: Option<Vec<LedgerLine>>,
    /// Whether a daemon's state counts.
    pub(super) is_live: bool,
}

/// An event that inhibits.
struct Inhibiting {
    event_type: Option<EventType>,
    /// In words.
    shown: String,
}

/// What is written, and from what.
pub(super) struct Page<'p> {
    terminal: &'p Terminal,
    explained: &'p Explained,
    names: Names,
    places: RulePlaces<'p>,
    /// The events that inhibit, by their positions.
    inhibiting: BTreeMap<u64, Inhibiting>,
    /// The folder of the configuration.
    folder: Option<&'p Path>,
}

impl<'p> Page<'p> {
    pub(super) fn new(context: &'p Context<'_>, explained: &'p Explained, names: Names) -> Self {
        let subscribers = &explained.outcome.subscribers;
        let inhibiting = subscribers.iter().flat_map(inhibitors);
        let inhibiting: BTreeSet<u64> = inhibiting.collect();
        let inhibiting = inhibiting.into_iter().map(|seq| (seq, self::inhibiting(seq, context))).collect();
        Self {
            terminal: &context.terminal,
            explained,
            names,
            places: explained.in_force.places(),
            inhibiting,
            folder: context.paths.as_ref().ok().map(|paths| paths.config.as_path()),
        }
    }

    /// Everything, with the places of the rules.
    pub(super) fn json(&self) -> Value {
        let written = serde_json::to_string(&self.explained.outcome).unwrap_or_default();
        let mut page: Value = serde_json::from_str(&written).unwrap_or_default();
        let subscribers = page.get_mut("subscribers").and_then(Value::as_array_mut);
        for (view, outcome) in subscribers.into_iter().flatten().zip(&self.explained.outcome.subscribers) {
            if let (Some(view), Some(place)) = (view.as_object_mut(), self.rule(outcome)) {
                view.insert("rule".to_owned(), place_json(&place));
            }
        }
        if let Some(page) = page.as_object_mut() {
            page.insert("is_live".to_owned(), json!(self.explained.is_live));
            if let Some(then) = &self.explained.then {
                page.insert("then".to_owned(), json!(then));
            }
        }
        page
    }

    pub(super) fn text(&self) -> Result<String, CliError> {
        let event: EventView<'_> = parse(DOING, self.explained.outcome.event.get().as_bytes())?;
        let mut text = self.head(&event) + "\n";
        let (shown, others) = self.chosen(&event);
        text += &shown.iter().map(|outcome| self.block(outcome)).collect::<String>();
        if others > 0 {
            let do_not = if others == 1 { "other does not match" } else { "others do not match" };
            text += &format!("{others} {do_not}\n");
        }
        text += &self.gone();
        for outcome in shown {
            if let Some(made) = &outcome.notification {
                let head = format!("text of {}", one_line(&outcome.subscriber));
                text += &format!("\n{}\n", self.terminal.paint(Tone::Heading, &self.fit(&head)));
                let lines = made.content.lines();
                text += &lines.map(|line| format!("  {}\n", self.fit_after(2, line))).collect::<String>();
            }
        }
        let in_force = &self.explained.in_force;
        let errors = if self.explained.is_live { String::new() } else { note_of_errors(&in_force.compiled) };
        let note = self.terminal.prose(&(errors + in_force.note()));
        Ok(if note.is_empty() { text } else { format!("{text}\n{note}") })
    }
}

/// The events that inhibit an event, or its notification in a session.
fn inhibitors(outcome: &SubscriberOutcomeView) -> impl Iterator<Item = u64> {
    let of_sessions = outcome.deliveries.iter().filter_map(|delivery| {
        match Reason::read(delivery.reason.as_deref()?, delivery.detail.as_deref()) {
            Some(Reason::Inhibited { by }) => Some(by.0),
            _ => None,
        }
    });
    outcome.inhibitor.iter().map(|by| by.seq).chain(of_sessions)
}

/// The event at a position, as far as the daemon has it.
fn inhibiting(seq: u64, context: &Context<'_>) -> Inhibiting {
    let path = format!("/v1/events/{}", percent_encode(&seq.to_string()));
    let found: Result<EventWithHistory, CliError> = context.get(DOING, &path);
    let unknown = Inhibiting { event_type: None, shown: format!("the event {seq}") };
    let Ok(found) = found else { return unknown };
    let Ok(event) = serde_json::from_str::<EventView<'_>>(found.event.get()) else { return unknown };
    let at = context.terminal.moment(&event.timestamp);
    let shown = format!("{} ({seq}), {at}", one_line(&event.event_type));
    Inhibiting { event_type: event.event_type.parse().ok(), shown }
}

/// A place as JSON.
fn place_json(place: &Place) -> Value {
    json!({ "file": &*place.file, "line": place.line() })
}

impl Page<'_> {
    fn head(&self, event: &EventView<'_>) -> String {
        let outcome = &self.explained.outcome;
        let trust = if outcome.is_trusted { "trusted" } else { "not trusted" };
        let severity = self.places.of_severity(&event.event_type).map(|place| self.places.shown(&place));
        let severity = severity.map(|place| format!(" ({place})")).unwrap_or_default();
        let when = match self.explained.then {
            Some(_) => format!("{}, {}: ", one_line(&event.id), self.terminal.moment(&event.timestamp)),
            None => String::new(),
        };
        let head = format!(
            "{when}{}, {}{severity}, from {}, {trust}",
            one_line(&event.event_type),
            event.severity.as_str(),
            one_line(&event.source)
        );
        let mut text = self.line(0, 9, &format!("event    {head}"), None);
        text += &self.line(0, 9, &format!("for      {}", self.reached(event)), None);
        if !self.explained.is_live {
            let folder = self.folder.map(|folder| self.terminal.folder(&folder.display().to_string()));
            let state = format!("state    a fresh start from {}", folder.unwrap_or_default());
            text += &self.line(0, 9, &state, None);
        }
        if let Some(by) = outcome.throttled.as_deref() {
            let by: Option<ThrottledBy> = of_word(by);
            let why = by.map_or("unknown reason", ThrottledBy::describe);
            let place = by.and_then(|by| self.places.of_throttled(by));
            text += &self.line(0, 9, &format!("throttled  {why}"), place.as_ref());
        }
        text
    }

    fn reached(&self, event: &EventView<'_>) -> String {
        let outcome = &self.explained.outcome;
        let named = outcome.sessions.iter().take(SESSIONS_MAX).map(|id| one_line(&self.names.name(id)));
        let named: Vec<String> = named.collect();
        match (outcome.session_count.checked_sub(named.len()), &event.session, &event.workspace) {
            (Some(0) | None, ..) if !named.is_empty() => named.join(", "),
            (Some(more), ..) if !named.is_empty() => format!("{} and {more} more", named.join(", ")),
            (_, Some(session), _) => format!("session {}, which is not open", one_line(session)),
            (_, None, Some(folder)) => {
                format!("the next session in, below or above {}", self.terminal.folder(&one_line(folder)))
            }
            (_, None, None) => "the next session".to_owned(),
        }
    }

    /// The subscribers that are shown, and the number of the others, which do not match. Of those that do
    /// not match, the user's own are shown if their types have a segment of the event's; if none takes
    /// it, the nearest of all.
    fn chosen(&self, event: &EventView<'_>) -> (Vec<&SubscriberOutcomeView>, usize) {
        let all = self.explained.outcome.subscribers.iter();
        let (mut others, mut shown): (Vec<_>, Vec<_>) = all.partition(|one| one.fate == "other_type");
        others.sort_by_key(|outcome| distance(&event.event_type, &outcome.types));
        let is_own = |outcome: &SubscriberOutcomeView| {
            let layer = self.places.layer(&outcome.subscriber);
            layer.is_some_and(|layer| layer != LayerKind::Shipped)
        };
        let is_taken = shown.iter().any(|one| one.fate == "taken");
        let room = if is_taken { NEAREST } else { NEAREST.saturating_sub(shown.len()) };
        let is_shown = |outcome: &&SubscriberOutcomeView| {
            !is_taken || (is_own(outcome) && is_akin(&event.event_type, &outcome.types))
        };
        let count = others.len();
        let near: Vec<_> = others.into_iter().filter(is_shown).take(room).collect();
        let rest = count - near.len();
        shown.sort_by_key(|one| one.fate != "taken");
        shown.extend(near);
        (shown, rest)
    }

    /// What was decided then by subscribers that are no longer there.
    fn gone(&self) -> String {
        let Some(then) = &self.explained.then else { return String::new() };
        let all = &self.explained.outcome.subscribers;
        let mut gone: Vec<&str> = then.iter().filter_map(|line| line.subscriber.as_deref()).collect();
        gone.sort_unstable();
        gone.dedup();
        gone.retain(|id| !all.iter().any(|outcome| outcome.subscriber == *id));
        let line = |id: &str| {
            let head = self.line(0, 15, &named(id, "is no longer there"), None);
            let then = last_of(then, id).map(|line| why::words::sentence(line, &self.names));
            let then = then.unwrap_or_default();
            format!("{head}{}", self.step("then", &then, None))
        };
        gone.into_iter().map(line).collect()
    }

    fn block(&self, outcome: &SubscriberOutcomeView) -> String {
        let inhibitor = self.inhibitor(outcome);
        let does = words::does(outcome, inhibitor, self.terminal);
        let mut text = self.line(0, 15, &named(&outcome.subscriber, &does), self.rule(outcome).as_ref());
        if let Some(then) = &self.explained.then {
            text += &self.then(outcome, then);
        }
        text += &self.steps(outcome);
        text += &self.deliveries(outcome, inhibitor);
        let failure = |failure: &String| self.step("fails", &one_line(failure), None);
        text += &outcome.failures.iter().map(failure).collect::<String>();
        text
    }

    /// The steps of the stages, in their order.
    fn steps(&self, outcome: &SubscriberOutcomeView) -> String {
        let id = &outcome.subscriber;
        let key = |keys: &[&str]| self.places.of_keys(id, keys);
        let mut text = String::new();
        if let Some(severity) = &outcome.severity {
            text += &self.step("severity", severity, key(&["events.severity_when"]).as_ref());
        }
        text += &self.comparisons(outcome);
        let reason = words::reason(outcome);
        if let Some(dedupe_key) = outcome.dedupe_key.as_ref().filter(|_| outcome.fate == "taken") {
            let first = format!("first of {}", one_line(dedupe_key));
            text += &self.step("dedupe", &first, key(&["batching.dedupe_key"]).as_ref());
        }
        if let Some(count) = &outcome.count {
            let counted = words::count(count, outcome.fate == "taken");
            text += &self.step("threshold", &counted, key(&["threshold.at"]).as_ref());
        }
        if let Some(at) = &outcome.missed_at {
            let missed = format!("missed {}, unless another comes", self.terminal.moment(at));
            text += &self.step("absent", &missed, key(&["absent.after"]).as_ref());
        }
        if let Some(batch) = &outcome.batch {
            let place = key(words::keys_of_batch(batch));
            text += &self.step("batch", &words::batch(batch, self.terminal), place.as_ref());
        }
        if let (Some(Reason::Inhibited { .. }), Some(by)) = (&reason, &outcome.inhibitor) {
            text += &self.step("until", &self.until(by), None);
        }
        for (count, what, keys) in [
            (outcome.withdrawn, "resolves", keys_of(&Reason::Withdrawn)),
            (outcome.replaced, "replaces", keys_of(&Reason::Superseded)),
        ] {
            if count > 0 {
                text += &self.step(what, &format!("{count} pending"), key(keys).as_ref());
            }
        }
        text
    }

    /// The comparisons of `where`: all of one that is false, of one that is true those that decide.
    fn comparisons(&self, outcome: &SubscriberOutcomeView) -> String {
        let is_false = matches!(words::reason(outcome), Some(Reason::FilteredOut(_)));
        let shown: Vec<&ComparisonView> =
            outcome.comparisons.iter().filter(|one| one.decides || is_false).collect();
        let fitting = shown.iter().map(|one| width(&one.text)).filter(|own| *own <= COMPARISON_WIDTH_MAX);
        let aligned = fitting.max().unwrap_or_default();
        let line = |one: &&ComparisonView| {
            let says = one_line(&one.says);
            let blanks = " ".repeat(aligned.saturating_sub(width(&one.text)));
            let line = format!("{}{blanks}     {says}", one_line(&one.text));
            let tone = if one.decides && is_false { Tone::Warning } else { Tone::Plain };
            let plain = self.line(2, 4, &line, None);
            self.terminal.paint(tone, plain.trim_end_matches('\n')) + "\n"
        };
        shown.iter().map(line).collect()
    }

    fn deliveries(&self, outcome: &SubscriberOutcomeView, inhibitor: &str) -> String {
        let Some(made) = &outcome.notification else { return String::new() };
        let own = format!("{}, {}", made.inject_at, made.priority);
        let mut text = String::new();
        let mut deliveries: Vec<&GoesToView> = outcome.deliveries.iter().collect();
        let more = deliveries.len().saturating_sub(SESSIONS_MAX);
        deliveries.truncate(SESSIONS_MAX);
        if deliveries.is_empty() {
            text += &self.step("delivery", &format!("{own}, to the user"), None);
        }
        if let Some(at) = &made.expires_at {
            let key = self.places.of_keys(&outcome.subscriber, keys_of(&Reason::Expired));
            text += &self.step("expires", &self.terminal.moment(at), key.as_ref());
        }
        let mut holds: Vec<&HoldView> = Vec::new();
        for hold in deliveries.iter().flat_map(|delivery| &delivery.holds) {
            if !holds.iter().any(|other| other.kind == hold.kind && other.cause == hold.cause) {
                holds.push(hold);
            }
        }
        text += &holds.iter().map(|hold| self.hold(outcome, hold, inhibitor)).collect::<String>();
        for delivery in deliveries {
            let to = match &delivery.session {
                Some(session) => format!("to {}", one_line(&self.names.name(session))),
                None => "to the next session".to_owned(),
            };
            let reason =
                Reason::read(delivery.reason.as_deref().unwrap_or_default(), delivery.detail.as_deref());
            text += &match reason {
                Some(reason) => self.refused(outcome, &reason, &to),
                None if delivery.holds.is_empty() => self.step("delivery", &format!("{own}, {to}"), None),
                None => self.step("delivery", &format!("held until then; {own}, {to}"), None),
            };
        }
        if more > 0 {
            text += &self.step("", &format!("and to {more} more"), None);
        }
        text
    }

    /// Why a session does not get the notification.
    fn refused(&self, outcome: &SubscriberOutcomeView, reason: &Reason, to: &str) -> String {
        let by = if let Reason::Inhibited { by } = reason { self.inhibiting.get(&by.0) } else { None };
        let end = match (by, Reason::text_of(reason.as_str()).and_then(|text| text.notification)) {
            (Some(by), _) => format!("inhibited by {}", by.shown),
            (None, Some(text)) => text.end.replace("{detail}", &reason.detail().unwrap_or_default()),
            (None, None) => reason.as_str().to_owned(),
        };
        let event_type = by.and_then(|by| by.event_type.as_ref());
        let place = self.places.of_reason(&outcome.subscriber, reason, event_type);
        self.step("delivery", &format!("not {to}: {end}"), place.as_ref())
    }

    /// What keeps the notification from being released.
    fn hold(&self, outcome: &SubscriberOutcomeView, hold: &HoldView, inhibitor: &str) -> String {
        let (said, place) = match (hold.kind.as_str(), &outcome.inhibitor) {
            ("inhibited", Some(by)) => {
                (format!("by {inhibitor}, {}", self.lasts(by)), self.inhibition(outcome))
            }
            _ => {
                let key = self.places.of_hold(&outcome.subscriber, &hold.cause, None);
                (words::hold(hold, self.terminal), key)
            }
        };
        self.step(&one_line(&hold.kind), &said, place.as_ref())
    }

    /// What was decided then, and whether that differs from now.
    fn then(&self, outcome: &SubscriberOutcomeView, then: &[LedgerLine]) -> String {
        let last = last_of(then, &outcome.subscriber);
        let (before, now) = (last.map(decided), decision(outcome));
        if before == now {
            return if now.is_some() { self.step("then", "the same", None) } else { String::new() };
        }
        let place = last.and_then(|line| {
            let reason = Reason::read(line.reason.as_deref()?, line.detail.as_deref())?;
            self.places.of_reason(&outcome.subscriber, &reason, None)
        });
        let said = last.map(|line| match &*line.what {
            "event_ended" => why::words::sentence(line, &self.names),
            _ => format!("{} took it", outcome.subscriber),
        });
        let said = said.unwrap_or_else(|| format!("{} did not get it", outcome.subscriber));
        let said = said.strip_prefix(&*outcome.subscriber).unwrap_or(&said).trim_start().to_owned();
        let line = self.step("then", &format!("DIFFERS: {said}"), place.as_ref());
        self.terminal.paint(Tone::Warning, line.trim_end_matches('\n')) + "\n"
    }

    fn inhibitor(&self, outcome: &SubscriberOutcomeView) -> &str {
        let by = outcome.inhibitor.as_ref().and_then(|by| self.inhibiting.get(&by.seq));
        by.map_or("another event", |by| &by.shown)
    }

    fn until(&self, by: &InhibitorView) -> String {
        let types = by.ended_by.iter().map(|pattern| one_line(pattern));
        let at = self.terminal.moment(&by.until);
        types.chain([at]).collect::<Vec<_>>().join(" or ")
    }

    fn lasts(&self, by: &InhibitorView) -> String {
        let types = by.ended_by.iter().map(|pattern| format!("until {}", one_line(pattern)));
        types.chain([self.terminal.lasts(&by.until)]).collect::<Vec<_>>().join(" or ")
    }

    /// The rule by which an event inhibits.
    fn inhibition(&self, outcome: &SubscriberOutcomeView) -> Option<Place> {
        let by = self.inhibiting.get(&outcome.inhibitor.as_ref()?.seq)?;
        let reason = Reason::Inhibits;
        self.places.of_reason(&outcome.subscriber, &reason, by.event_type.as_ref())
    }

    /// The rule that decides.
    fn rule(&self, outcome: &SubscriberOutcomeView) -> Option<Place> {
        let id = &outcome.subscriber;
        match words::reason(outcome) {
            Some(Reason::Inhibited { .. }) => self.inhibition(outcome),
            Some(reason @ Reason::Inhibits) => {
                let event: EventView<'_> = serde_json::from_str(self.explained.outcome.event.get()).ok()?;
                self.places.of_reason(id, &reason, event.event_type.parse().ok().as_ref())
            }
            Some(reason) => self.places.of_reason(id, &reason, None),
            None if outcome.fate == "not_dispatched" => {
                let by = self.explained.outcome.throttled.as_deref().and_then(of_word::<ThrottledBy>)?;
                self.places.of_throttled(by)
            }
            None => self.places.of_keys(id, &["events.types"]),
        }
    }
}

/// Lines.
impl Page<'_> {
    fn step(&self, name: &str, text: &str, place: Option<&Place>) -> String {
        self.line(2, 15, &format!("{name:<12} {text}"), place)
    }

    /// A line, wrapped and cut on a terminal, with a place at its right or below.
    fn line(&self, indent: usize, further: usize, text: &str, place: Option<&Place>) -> String {
        let blanks = " ".repeat(indent);
        let wrapped = self.terminal.wrap(text.trim_end(), indent, further);
        let mut lines: Vec<String> =
            format!("{blanks}{wrapped}").lines().map(|line| self.fit(line)).collect();
        if let Some(place) = place {
            let place = self.places.shown(place);
            let columns = self.terminal.columns.unwrap_or(COLUMNS);
            let begin = PLACES_AT.min(columns.saturating_sub(width(&place)));
            let used = lines.last().map_or(0, |last| width(last)) + 2;
            let is_fitting = used.max(begin) + width(&place) <= columns || self.terminal.columns.is_none();
            let place =
                if self.terminal.columns.is_some() { cut_beginning(&place, columns) } else { place.into() };
            let place = |at: usize| format!("{}{}", " ".repeat(at), self.terminal.paint(Tone::Dim, &place));
            match lines.last_mut().filter(|_| is_fitting) {
                Some(last) => last.push_str(&place(used.max(begin) + 2 - used)),
                None => lines.push(place(begin)),
            }
        }
        lines.join("\n") + "\n"
    }

    fn fit(&self, line: &str) -> String {
        self.fit_after(0, line)
    }

    fn fit_after(&self, begin: usize, line: &str) -> String {
        let columns = self.terminal.columns.map(|columns| columns.saturating_sub(begin));
        columns.map_or_else(|| line.to_owned(), |columns| cut(line, columns).into_owned())
    }
}

fn named(id: &str, does: &str) -> String {
    format!("{:<NAMES_WIDTH$} {does}", one_line(id))
}

/// How different a type is from the nearest of some patterns: in how many segments it differs, and then
/// in characters.
fn distance(event_type: &str, patterns: &[String]) -> (usize, usize) {
    let of_one = |pattern: &String| {
        let mut segments = event_type.split('.');
        let common = pattern.split('.').take_while(|own| segments.next() == Some(*own)).count();
        let count = event_type.split('.').count();
        (count.saturating_sub(common), strsim::damerau_levenshtein(event_type, pattern))
    };
    patterns.iter().map(of_one).min().unwrap_or((usize::MAX, usize::MAX))
}

/// Whether one of the patterns names a segment of the type.
fn is_akin(event_type: &str, patterns: &[String]) -> bool {
    let has = |segment: &str| event_type.split('.').any(|own| own == segment);
    patterns.iter().any(|pattern| pattern.split('.').any(has))
}

/// The last line about what a subscriber decided.
fn last_of<'l>(then: &'l [LedgerLine], id: &str) -> Option<&'l LedgerLine> {
    let is_decision = |line: &&LedgerLine| ["event_ended", "batched", "created"].contains(&&*line.what);
    then.iter().filter(is_decision).rfind(|line| line.subscriber.as_deref() == Some(id))
}

/// What a line says, so that it can be compared with now.
fn decided(line: &LedgerLine) -> String {
    match &*line.what {
        "event_ended" => {
            let reason = line.reason.as_deref().unwrap_or_default();
            key_of(reason, line.detail.as_deref())
        }
        _ => "taken".to_owned(),
    }
}

/// The same of now; `None` if a subscriber does nothing with the event.
fn decision(outcome: &SubscriberOutcomeView) -> Option<String> {
    match outcome.fate.as_str() {
        "taken" => Some("taken".to_owned()),
        "ended" => Some(key_of(outcome.reason.as_deref().unwrap_or_default(), outcome.detail.as_deref())),
        _ => None,
    }
}

fn key_of(reason: &str, detail: Option<&str>) -> String {
    match Reason::read(reason, detail) {
        Some(Reason::FilteredOut(by)) => format!("{reason} {}", by.as_str()),
        _ => reason.to_owned(),
    }
}

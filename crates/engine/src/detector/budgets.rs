//! Warns an agent that the iterations or the time of its turn run low.
//!
//! An iteration is a step: one call of the model. A harness names its steps in its exchanges, and a
//! step that is not the one before counts. The limits of a turn are those that the harness states at
//! its start (`step_limit` and `time_limit_ms` of `agent.turn.start`; they hold for the turns after
//! it too), else the configured ones. Without a limit nothing is kept and nothing is reported. Time
//! is measured from the start of the turn, by the times of the records, and is due at its own time.
//!
//! A budget is reported at each threshold once, until the turn ends.
//!
//! Source: 70 % of the iterations is the share at which other agents warn.

use std::{sync::Arc, time::Duration};

use journal::time::{Timestamp, duration_millis};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    event::{Event, EventRef, SessionId, Severity},
    exchange::{Exchange, Trigger},
    notification::InjectionPoint,
    session::{CLOSING_EVENT, Succession},
    settings::settings,
    sorted::SortedMap,
};

/// Most sessions with a limit; beyond it the one that was silent longest is evicted.
const SESSIONS_MAX: usize = 1_000;
/// Most thresholds of a budget.
const THRESHOLDS_MAX: usize = 4;
/// Longest and shortest configured time of a turn.
const TIMES: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(7 * 24 * 3_600);
/// The share at which nothing is left.
const ALL: u8 = 100;

const TURN_STARTED: &str = "agent.turn.start";
/// Events that end a turn.
const TURN_ENDED: [&str; 3] = ["agent.turn.end", "agent.turn.failed", "agent.turn.interrupted"];

settings! {
    /// Notifies an agent when most of the steps of its turn (`budget.iteration.warning`), all of them
    /// (`budget.iteration.exceeded`), or most of its time (`budget.timeout.warning`) is used. A harness
    /// states the limits at the start of a turn; the keys below hold where it states none.
    enabled: bool = true, flag();
    /// The most steps of a turn: calls of the model.
    iterations: u32, number(2..=100_000), like "50", else "there is no limit";
    /// The longest time of a turn.
    time: Duration, duration(TIMES), like "\"30m\"", else "there is no limit";
    /// The shares of the steps at which the agent is notified, in percent and in ascending order.
    warn: Vec<u8> = vec![70, 90], rising(1..=99, THRESHOLDS_MAX, "they are in percent: [70, 90]");
    /// The shares of the time at which the agent is notified, in percent and in ascending order.
    warn_time: Vec<u8> = vec![80], rising(1..=99, THRESHOLDS_MAX, "they are in percent: [80]");
}

/// The turns of the sessions with a limit.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Budgets {
    turns: SortedMap<SessionId, Turn>,
    /// The earliest of the marks.
    due_at: Option<Timestamp>,
}

/// The last turn of a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Turn {
    id: Option<Arc<str>>,
    is_running: bool,
    /// Whether its time counts; not before it is known to be more than a start of its client.
    is_timed: bool,
    started_at: Timestamp,
    heard_at: Timestamp,
    /// The last step, and the number of steps.
    step: Option<Arc<str>>,
    steps: u32,
    stated: Limits,
    /// The reported shares, in percent; 0 for none.
    steps_reported: u8,
    time_reported: u8,
    /// The times at which a share of the time is reached, ascending, and the share in percent.
    marks: Vec<(Timestamp, u8)>,
}

/// The limits of a turn, in the payload of its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Limits {
    #[serde(rename = "step_limit")]
    steps: Option<u32>,
    #[serde(rename = "time_limit_ms")]
    time_ms: Option<u64>,
}

impl Limits {
    /// The limits in a payload; a limit of another type, or of nothing, is none.
    fn read(payload: &str) -> Self {
        let payload: Value = serde_json::from_str(payload).unwrap_or_default();
        let number = |key: &str| payload.get(key).and_then(Value::as_u64).filter(|number| *number > 0);
        Self {
            steps: number("step_limit").and_then(|steps| u32::try_from(steps).ok()),
            time_ms: number("time_limit_ms"),
        }
    }

    const fn is_none(self) -> bool {
        self.steps.is_none() && self.time_ms.is_none()
    }

    /// These, and the configured ones in place of those that are absent.
    fn or_configured(self, settings: &Settings) -> Self {
        let time_ms = settings.time.map(duration_millis);
        Self { steps: self.steps.or(settings.iterations), time_ms: self.time_ms.or(time_ms) }
    }
}

/// How a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// An event reports it, or an exchange that names it.
    Reported,
    /// An exchange at `turn_start` without a name: a client also makes one when it starts, and its
    /// user may prompt much later.
    Assumed,
}

impl Start {
    const fn from_exchange(exchange: &Exchange) -> Self {
        if exchange.turn.is_some() { Self::Reported } else { Self::Assumed }
    }
}

/// A budget, as its events name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Iteration,
    Timeout,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Iteration => "iteration",
            Self::Timeout => "timeout",
        }
    }

    const fn reset(self) -> &'static str {
        match self {
            Self::Iteration => "budget.iteration.reset",
            Self::Timeout => "budget.timeout.reset",
        }
    }

    fn payload(self, current: u64, limit: u64, percentage: u8) -> Value {
        json!({
            "budget_type": self.as_str(), "current": current, "limit": limit, "percentage": percentage,
            "remaining": limit.saturating_sub(current),
        })
    }
}

impl Budgets {
    /// Takes a trusted event of `session`.
    pub(super) fn observe(
        &mut self,
        session: &SessionId,
        event: &EventRef<'_>,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Event> {
        match event.event_type {
            TURN_STARTED if settings.enabled => {
                let stated = Limits::read(event.payload);
                let known = self.turns.get(session).map(|turn| turn.stated).unwrap_or_default();
                let stated =
                    Limits { steps: stated.steps.or(known.steps), time_ms: stated.time_ms.or(known.time_ms) };
                self.begin(session, (None, Start::Reported), stated, settings, now)
            }
            CLOSING_EVENT => {
                self.turns.remove(session);
                self.note_due();
                Vec::new()
            }
            ended if TURN_ENDED.contains(&ended) => self.end(session, now),
            _ => Vec::new(),
        }
    }

    /// Takes an exchange: the start or the end of a turn, or a step.
    pub(super) fn note_exchange(
        &mut self,
        exchange: &Exchange,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Event> {
        let session = &exchange.session;
        if !settings.enabled || exchange.trigger != Trigger::Agent {
            return Vec::new();
        }
        let known = self.turns.get(session);
        let stated = known.map(|turn| turn.stated).unwrap_or_default();
        let is_begun = known.is_some_and(|turn| turn.goes_on_with(exchange));
        match exchange.point {
            InjectionPoint::TurnEnd => return self.end(session, now),
            InjectionPoint::TurnStart if is_begun => self.name_turn(exchange),
            InjectionPoint::TurnStart => {
                let turn = (exchange.turn.clone(), Start::from_exchange(exchange));
                return self.begin(session, turn, stated, settings, now);
            }
            InjectionPoint::BeforeTool | InjectionPoint::AfterTool | InjectionPoint::Immediate => {}
        }
        let mut events = Vec::new();
        if !is_begun {
            let turn = (exchange.turn.clone(), Start::Reported);
            events = self.begin(session, turn, stated, settings, now);
        }
        if exchange.point != InjectionPoint::TurnStart {
            events.extend(self.count(exchange, settings, now));
        }
        events
    }

    /// Begins a turn; ends the one before. Nothing is kept without a limit.
    fn begin(
        &mut self,
        session: &SessionId,
        (id, start): (Option<Arc<str>>, Start),
        stated: Limits,
        settings: &Settings,
        now: Timestamp,
    ) -> Vec<Event> {
        let limits = stated.or_configured(settings);
        if limits.is_none() {
            return Vec::new();
        }
        let events = self.end(session, now);
        if self.turns.len() >= SESSIONS_MAX && !self.turns.contains_key(session) {
            self.turns.pop_least(|turn| turn.heard_at);
        }
        let is_timed = start == Start::Reported;
        let mut turn = Turn {
            id,
            is_running: true,
            is_timed,
            started_at: now,
            heard_at: now,
            stated,
            ..Turn::default()
        };
        turn.mark(settings);
        self.turns.insert(session.clone(), turn);
        self.note_due();
        events
    }

    /// Names the turn that an event began.
    fn name_turn(&mut self, exchange: &Exchange) {
        if let Some(turn) = self.turns.get_mut(&exchange.session) {
            turn.id = turn.id.take().or_else(|| exchange.turn.clone());
        }
    }

    /// Counts the step of an exchange.
    fn count(&mut self, exchange: &Exchange, settings: &Settings, now: Timestamp) -> Option<Event> {
        let session = &exchange.session;
        let turn = self.turns.get_mut(session)?;
        turn.id = turn.id.take().or_else(|| exchange.turn.clone());
        let was_counting = turn.is_running && turn.is_timed;
        (turn.heard_at, turn.is_running, turn.is_timed) = (now, true, true);
        if !was_counting {
            turn.mark(settings);
            self.note_due();
        }
        let turn = self.turns.get_mut(session)?;
        let step = exchange.step.as_ref()?;
        if turn.step.as_ref() == Some(step) {
            return None;
        }
        turn.step = Some(Arc::clone(step));
        turn.steps = turn.steps.saturating_add(1);
        let limit = turn.stated.or_configured(settings).steps?;
        let reached = share(turn.steps.into(), limit.into());
        let threshold = if reached >= ALL { Some(ALL) } else { newest(&settings.warn, reached) };
        let threshold = threshold.filter(|threshold| *threshold > turn.steps_reported)?;
        turn.steps_reported = threshold;
        let (event_type, severity) = match threshold {
            ALL => ("budget.iteration.exceeded", Severity::Critical),
            _ => ("budget.iteration.warning", Severity::Warning),
        };
        let payload = Kind::Iteration.payload(turn.steps.into(), limit.into(), reached);
        Some(event(session, event_type, severity, payload, now))
    }

    /// Ends the turn of a session: what was reported of it no longer holds.
    fn end(&mut self, session: &SessionId, now: Timestamp) -> Vec<Event> {
        let Some(turn) = self.turns.get_mut(session) else { return Vec::new() };
        (turn.is_running, turn.heard_at) = (false, now);
        turn.marks.clear();
        let reported = [
            (Kind::Iteration, std::mem::take(&mut turn.steps_reported)),
            (Kind::Timeout, std::mem::take(&mut turn.time_reported)),
        ];
        self.note_due();
        let resets = reported.into_iter().filter(|(_, share)| *share > 0);
        let reset = |(kind, _): (Kind, u8)| {
            event(session, kind.reset(), Severity::Info, json!({ "budget_type": kind.as_str() }), now)
        };
        resets.map(reset).collect()
    }

    /// The time of the next mark.
    pub(super) const fn poll_timeout(&self) -> Option<Timestamp> {
        self.due_at
    }

    /// Reports the marks up to `now`; of several of one turn the last one.
    pub(super) fn handle_timeout(&mut self, now: Timestamp) -> Vec<Event> {
        let mut events = Vec::new();
        for (session, turn) in self.turns.iter_mut() {
            let passed = turn.marks.iter().filter(|(at, _)| *at <= now).count();
            let Some((at, percent)) = turn.marks.drain(..passed).next_back() else { continue };
            turn.time_reported = percent;
            let current = at.since(turn.started_at);
            // The whole time, from the share that is reached.
            let limit = current.as_millis() * u128::from(ALL) / u128::from(percent.max(1));
            let limit = u64::try_from(limit / 1_000).unwrap_or(u64::MAX);
            let payload = Kind::Timeout.payload(current.as_secs(), limit, percent);
            events.push(event(session, "budget.timeout.warning", Severity::Warning, payload, now));
        }
        self.note_due();
        events
    }

    /// Applies changed settings to the running turns.
    pub(super) fn apply(&mut self, settings: &Settings) {
        if !settings.enabled {
            self.turns.clear();
        }
        self.turns.values_mut().filter(|turn| turn.is_running).for_each(|turn| turn.mark(settings));
        self.note_due();
    }

    /// Follows a session whose identity changed. A copy begins with its next turn.
    pub(super) fn follow(&mut self, change: &Succession) {
        match change {
            Succession::Continued { from, to } => {
                if let Some(turn) = self.turns.remove(from) {
                    self.turns.insert(to.clone(), turn);
                }
            }
            Succession::Copied { .. } => {}
            Succession::Ended { session, .. } => {
                self.turns.remove(session);
            }
        }
        self.note_due();
    }

    fn note_due(&mut self) {
        self.due_at = self.turns.values().filter_map(|turn| turn.marks.first()).map(|(at, _)| *at).min();
    }
}

impl Turn {
    /// Whether an exchange is of this turn. One that has ended goes on if it is named again: text at
    /// its end made the agent continue.
    fn goes_on_with(&self, exchange: &Exchange) -> bool {
        let is_named = self.id.is_some() && exchange.turn.is_some();
        let is_same = !is_named || self.id == exchange.turn;
        match exchange.point {
            // An event has begun it, and nothing has happened in it.
            InjectionPoint::TurnStart => self.is_running && self.steps == 0 && is_same,
            InjectionPoint::BeforeTool
            | InjectionPoint::AfterTool
            | InjectionPoint::Immediate
            | InjectionPoint::TurnEnd => is_same && (self.is_running || is_named),
        }
    }

    /// Sets the marks that were not reported.
    fn mark(&mut self, settings: &Settings) {
        self.marks.clear();
        if !self.is_timed {
            return;
        }
        let Some(limit) = self.stated.or_configured(settings).time_ms else { return };
        let (started_at, reported) = (self.started_at, self.time_reported);
        let at = |percent: u8| started_at + Duration::from_millis(limit.saturating_mul(percent.into()) / 100);
        let rest = settings.warn_time.iter().filter(|percent| **percent > reported);
        self.marks.extend(rest.map(|percent| (at(*percent), *percent)));
    }
}

/// The used share of a limit in percent, at most 100.
fn share(used: u64, limit: u64) -> u8 {
    let percent = used.saturating_mul(ALL.into()) / limit.max(1);
    u8::try_from(percent).unwrap_or(ALL).min(ALL)
}

/// The last threshold that a share reaches.
fn newest(thresholds: &[u8], share: u8) -> Option<u8> {
    thresholds.iter().copied().rfind(|threshold| *threshold <= share)
}

/// A finding: its id has the time, as a session has at most one of a type at a time.
fn event(
    session: &SessionId,
    event_type: &'static str,
    severity: Severity,
    payload: Value,
    now: Timestamp,
) -> Event {
    let id = format!("{session}:{event_type}:{}", now.as_millis());
    Event { session: Some(session.clone()), ..Event::own(event_type, id, severity, payload, now) }
}

#[cfg(test)]
mod tests;

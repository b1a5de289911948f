//! Random timelines through the whole engine, checked against invariants that hold for all of them.
//!
//! A timeline runs once, as in the daemon: the engine is woken at every deadline, and its own
//! events return through the journal. After every input [`account::Account`] checks the outputs
//! against the inputs and outputs alone. Then the resulting journal is replayed without wakes, with
//! wakes at random times, and with snapshots and restarts in between: the outputs are the same.

mod account;
mod answers;
mod arrivals;
mod budgets;
mod carriers;
mod conditions;
mod fixed;
mod offers;
mod regions;
mod replayed;
mod succession;
mod text;
mod timeline;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use engine::{
    Engine, Input, Output, RequestId,
    budget::BudgetName,
    event::{Event, Payload, Seq, SessionId, Severity},
    exchange::{
        Budget, ContextChange, Conversations, Exchange, Format, Harness, InjectionId, Release, Trigger,
    },
    hold::{DelayedBy, Hold, SilenceId, Wait},
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::{
        Activation, InjectionPoint, NotificationId, SubscriberId, Tokens,
        repeat::{Action, Response},
    },
    pipeline::{
        mute::Mute,
        silence::{Matchers, Silence},
    },
    user::{OWN_USER, UserSettings},
};
use journal::time::Timestamp;
use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::json;

use crate::support::{generations, random::fixed_cases, restored::restored};
use account::Account;
use regions::region_text;
use strum::VariantArray;
use timeline::{Asked, DELAYS, SCOPES, SESSIONS, SILENCES, Step, TOOLS, TYPES, What, event, timelines};

/// Not zero, so that no check passes because a value is zero.
const BEGIN: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const STEPS_MAX: usize = 60;
const CASES: u32 = 160;
/// All sessions belong to one process.
const PID: u32 = 41;
/// The endings that no timeline leads to: of a thousand rows, of watches and of checks.
const UNREACHED: [&str; 3] = ["batch_overflow", "watched", "summed_up"];
/// Longer than any time limit of a timeline.
const MONTH_MS: u64 = 30 * 24 * 3_600_000;
/// The clock of absences stands in a gap between two inputs that is longer than this, so the deadlines in
/// it are records, as the daemon writes them.
const WATCHED_MS: u64 = 60_000;
/// More records than a timeline has.
const NEVER: u64 = u64::MAX;

/// One record of the journal, as the engine gets it.
#[derive(Debug, Clone)]
struct Record {
    seq: Seq,
    at: Timestamp,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Event(Event),
    Exchange(Exchange),
    Ack(SessionId, InjectionId),
    Undelivered(SessionId, InjectionId),
    Opened(SessionId, Harness),
    /// With whether the session may return.
    Closed(SessionId, bool),
    Rules(usize),
    Silence(Silence),
    SilenceEnd(SilenceId),
    Responded(NotificationId, Response),
    Settings(UserSettings),
    Tick,
    ShuttingDown,
}

impl Record {
    fn input(&self) -> Input<'_> {
        let seq = self.seq;
        match &self.content {
            Content::Event(event) => Input::Event { seq, event: event.as_ref() },
            Content::Exchange(exchange) => Input::Exchange {
                seq,
                request: RequestId(seq.0),
                exchange: exchange.clone().into(),
                release: Release::Decide,
            },
            Content::Ack(session, injection) => {
                let by = ConfirmedBy::Seen;
                Input::Ack { session: session.clone(), injection: *injection, by }
            }
            Content::Undelivered(session, injection) => {
                Input::Undelivered { session: session.clone(), injection: *injection }
            }
            Content::Opened(session, harness) => {
                Input::SessionOpened { session: session.clone(), harness: harness.clone() }
            }
            Content::Closed(session, true) => Input::SessionSuspended { session: session.clone() },
            Content::Closed(session, false) => Input::SessionEnded { session: session.clone() },
            Content::Rules(generation) => Input::RulesReplaced(generations::rules(*generation)),
            Content::Silence(silence) => Input::Silenced(silence.clone().into()),
            Content::SilenceEnd(id) => Input::SilencesEnded(vec![*id]),
            Content::Responded(notification, response) => {
                Input::Responded { notification: *notification, response: response.clone() }
            }
            Content::Settings(settings) => {
                Input::UserSettings { user: OWN_USER.into(), settings: settings.clone().into() }
            }
            Content::Tick => Input::Tick,
            Content::ShuttingDown => Input::ShuttingDown,
        }
    }
}

/// An engine as the daemon runs it, with its outputs checked.
struct Live {
    engine: Engine,
    now: Timestamp,
    journal: Vec<Record>,
    outputs: Vec<String>,
    /// `None` if only the records are wanted.
    account: Option<Account>,
    events: Vec<String>,
    injections: BTreeMap<SessionId, Vec<InjectionId>>,
    /// How events and notifications ended.
    reasons: BTreeSet<&'static str>,
    made: Vec<NotificationId>,
}

impl Live {
    fn new() -> Self {
        let rules = generations::rules(0);
        Self {
            engine: Engine::new(rules.clone()),
            now: BEGIN,
            journal: Vec::new(),
            outputs: Vec::new(),
            account: Some(Account::new(rules)),
            events: Vec::new(),
            injections: BTreeMap::new(),
            reasons: BTreeSet::new(),
            made: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        self.pass(step.after_ms);
        match &step.what {
            What::Emit { event_type, severity, scope, tool, n, own_key, cause, delay } => {
                let cause =
                    cause.and_then(|back| self.events.iter().rev().nth(back)).map(|id| id.as_str().into());
                let (session, workspace) = SCOPES[*scope];
                let event = Event {
                    severity: Severity::VARIANTS[*severity],
                    payload: Payload::from(payload(TOOLS[*tool], *n)),
                    dedupe_key: own_key.then(|| "own".into()),
                    session: session.map(SessionId::new),
                    workspace: workspace.map(Into::into),
                    cause,
                    deliver_after: delay.map(|delay| DELAYS[delay].into()),
                    ..self.event(TYPES[*event_type])
                };
                self.emit(event);
            }
            What::Loop { event_type, length } => {
                for _ in 0..*length {
                    let cause = self.events.last().map(|id| id.as_str().into());
                    let event = Event { cause, ..self.event(TYPES[*event_type]) };
                    self.emit(event);
                }
            }
            What::Exchange(asked) => {
                let exchange = self.exchange(asked);
                self.append(Content::Exchange(exchange));
            }
            What::Ack { session, newest } => {
                let (session, injection) = self.injection(*session, *newest);
                self.append(Content::Ack(session, injection));
            }
            What::Undelivered { session, newest } => {
                let (session, injection) = self.injection(*session, *newest);
                self.append(Content::Undelivered(session, injection));
            }
            What::Open { session } => self.append(Content::Opened(session_id(*session), harness(*session))),
            What::Close { session, may_return } => {
                self.append(Content::Closed(session_id(*session), *may_return));
            }
            What::Rules { generation } => self.append(Content::Rules(*generation)),
            What::Silence { silence, lasts_ms } => {
                let silence = self.silence(*silence, *lasts_ms);
                self.append(Content::Silence(silence));
            }
            What::Expire { silence } => self.append(Content::SilenceEnd(silence_id(*silence))),
            What::Respond { newest, action } => {
                let Some(id) = self.made.iter().rev().nth(*newest).copied() else {
                    // Each step is a record, so no gap between two is longer than a step.
                    return self.append(Content::Tick);
                };
                let action = Action::VARIANTS[*action];
                let until = Timestamp::from_millis(self.now.as_millis() + 30_000);
                let until = (action == Action::Snooze).then_some(until);
                self.append(Content::Responded(id, Response { action, by: "root".into(), until }));
            }
            What::Settings { settings } => self.append(Content::Settings(settings_of(*settings))),
            What::Shutdown => {
                self.append(Content::ShuttingDown);
                self.account.iter().for_each(Account::assert_no_row_waits);
            }
        }
    }

    /// Ends everything: afterwards no batch is open and no deadline is left.
    fn end(&mut self) {
        // Without quiet hours and digests.
        self.append(Content::Settings(UserSettings::default()));
        self.append(Content::Rules(1));
        self.append(Content::ShuttingDown);
        self.account.iter().for_each(Account::assert_no_row_waits);
        let open: Vec<SessionId> = self.engine.sessions().views().map(|session| session.id.clone()).collect();
        for session in open {
            self.append(Content::Closed(session, false));
        }
        self.pass(MONTH_MS);
        assert_eq!(self.engine.poll_timeout(), None, "nothing is open");
        self.account.iter().for_each(Account::assert_all_ended);
    }

    /// Lets time pass, and wakes the engine at each of its deadlines.
    fn pass(&mut self, ms: u64) {
        let now = Timestamp::from_millis(self.now.as_millis() + ms);
        while let Some((due, _)) = self.engine.poll_timeout().filter(|(due, _)| *due <= now) {
            self.now = due;
            if ms > WATCHED_MS {
                self.append(Content::Tick);
            } else {
                self.handle(None);
            }
        }
        self.now = now;
    }

    fn append(&mut self, content: Content) {
        let seq = Seq(u64::try_from(self.journal.len() + 1).expect("short"));
        let record = Record { seq, at: self.now, content };
        self.journal.push(record.clone());
        self.handle(Some(&record));
    }

    fn handle(&mut self, record: Option<&Record>) {
        let held = self.held();
        self.engine.handle(record.map_or(Input::Tick, Record::input), self.now);
        let outputs: Vec<Output> = std::iter::from_fn(|| self.engine.poll_output()).collect();
        self.outputs.extend(outputs.iter().map(|output| format!("{output:?}")));
        self.outputs.extend(record.map(|record| region_after(record, &self.engine)));
        if let Some(account) = &mut self.account {
            account.check(record, &outputs, &self.engine, self.now);
        }
        for output in &outputs {
            if let Output::Record(
                LedgerEntry::EventEnded { reason, .. } | LedgerEntry::NotificationEnded { reason, .. },
            ) = output
            {
                self.reasons.insert(reason.as_str());
            }
            if let Output::Record(LedgerEntry::Injected { notification, session, .. }) = output {
                assert!(!held.contains(&(session.clone(), *notification)), "{notification} is held");
            }
        }
        let due = self.engine.poll_timeout();
        assert!(due.is_none_or(|(due, _)| due > self.now), "woken at {}, it asks for {due:?}", self.now);
        for output in outputs {
            match output {
                Output::Publish(event) => self.emit(event),
                Output::Answer { session, answer, .. } => {
                    self.injections
                        .entry(session)
                        .or_default()
                        .extend(answer.injection.map(|injection| injection.id));
                }
                Output::Made(notification) => self.made.push(notification.id),
                Output::Record(_)
                | Output::Refuse { .. }
                | Output::Wake(_)
                | Output::Said(_)
                | Output::Session(..) => {}
            }
        }
    }

    /// What is suppressed, or held until a time that has not come.
    fn held(&self) -> BTreeSet<(SessionId, NotificationId)> {
        let mut held = BTreeSet::new();
        for session in self.engine.sessions().views() {
            for pending in session.injector.view(self.now).pending {
                let is_held = pending.holds.iter().any(|hold| match hold {
                    Hold::Quiet { until, .. } | Hold::Snoozed { until, .. } => *until > self.now,
                    // A turn that begins ends it.
                    Hold::Budget { of: BudgetName::Turn, .. } => false,
                    Hold::Budget { until, .. } => until.is_none_or(|until| until > self.now),
                    Hold::Silenced { .. } | Hold::Inhibited { .. } => {
                        self.engine.ends(hold).is_some_and(|until| until > self.now)
                    }
                    // A repetition may be recalled.
                    Hold::Deferred { by: DelayedBy::Repetition | DelayedBy::Answer, .. } => false,
                    Hold::Deferred { waits, by: DelayedBy::Subscriber | DelayedBy::Event, .. } => {
                        waits.iter().all(|wait| matches!(wait, Wait::Until(at) if *at > self.now))
                    }
                });
                if is_held {
                    held.insert((session.id.clone(), pending.notification.id));
                }
            }
        }
        held
    }

    fn silence(&self, number: usize, lasts_ms: u64) -> Silence {
        let ([subscriber, condition, session, workspace], critical) = SILENCES[number];
        let matchers = Matchers {
            subscriber: subscriber.map(SubscriberId::new),
            condition: condition.map(Into::into),
            session: session.map(SessionId::new),
            workspace: workspace.map(Into::into),
            critical,
            ..Matchers::default()
        };
        let until = Timestamp::from_millis(self.now.as_millis() + lasts_ms);
        let (by, comment) = ("model".into(), "".into());
        Silence { id: silence_id(number), matchers, until, by, comment }
    }

    fn emit(&mut self, event: Event) {
        self.events.push(event.id.to_string());
        self.append(Content::Event(event));
    }

    fn event(&self, event_type: &str) -> Event {
        Event {
            id: format!("e{}", self.journal.len() + 1).into(),
            event_type: event_type.parse().expect("a valid type"),
            source: "tools".into(),
            provenance: engine::event::Provenance::Harness,
            severity: Severity::Warning,
            timestamp: self.now,
            payload: Payload::from(payload("grep", 0)),
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
            deliver_after: None,
        }
    }

    fn exchange(&self, asked: &Asked) -> Exchange {
        let harness = if asked.introduces { harness(asked.session) } else { Harness::default() };
        let ack = asked.ack.map(|newest| self.injection(asked.session, newest).1);
        let budget = asked.budget.map_or_else(Budget::default, |(notifications, tokens, chars)| Budget {
            max_notifications: Some(notifications),
            max_tokens: Some(Tokens(tokens)),
            max_chars: Some(chars),
        });
        Exchange {
            session: session_id(asked.session),
            point: InjectionPoint::VARIANTS[asked.point],
            carrier: format!("c{}", asked.carrier).into(),
            turn: asked.turn.map(|turn| format!("t{turn}").into()),
            step: asked.step.map(|step| step.to_string().into()),
            harness,
            tool: asked.turn.filter(|turn| *turn == 1).map(|_| "grep".into()),
            acks: ack.into_iter().collect(),
            // The payloads of events have calls of these names.
            known_calls: if asked.carrier < 12 { vec![call(asked.carrier % 4)] } else { Vec::new() },
            budget,
            format: asked.format.map(|format| Format::VARIANTS[format]),
            carrier_effect: asked.carrier_effect,
            context: begins(asked),
            shows_notices: false,
            trigger: Trigger::Agent,
        }
    }

    /// An injection of the session, or one that never existed.
    fn injection(&self, session: usize, newest: usize) -> (SessionId, InjectionId) {
        let session = session_id(session);
        let given = self.injections.get(&session).and_then(|given| given.iter().rev().nth(newest)).cloned();
        (session, given.unwrap_or_else(|| InjectionId::new("nosuch")))
    }
}

/// The settings of the user; none for 0.
fn settings_of(number: usize) -> UserSettings {
    let none = UserSettings::default();
    let mute = |mute: Mute| UserSettings { mute: vec![mute], ..UserSettings::default() };
    let subscriber = Some(SubscriberId::new("holds"));
    match number {
        0 => none,
        1 => UserSettings { disabled: ["windowed", "answered"].map(SubscriberId::new).into(), ..none },
        2 => mute(Mute { condition: Some("payload.n > 1".into()), ..Mute::default() }),
        3 => mute(Mute { subscriber, session: Some(SessionId::new("root")), ..Mute::default() }),
        4 => mute(Mute { below: Some(engine::notification::Priority::High), ..Mute::default() }),
        5 => UserSettings { quiet: "22:14-22:16".parse().expect("hours"), ..none },
        _ => UserSettings { level: Some(Activation::Passive), ..none },
    }
}

/// Whether a silence names critical notifications.
fn silences_critical(id: SilenceId) -> bool {
    (0..SILENCES.len()).any(|number| silence_id(number) == id && SILENCES[number].1)
}

fn silence_id(number: usize) -> SilenceId {
    SilenceId::new(&format!("s{number}"))
}

fn payload(tool: &str, n: u8) -> serde_json::Value {
    // For one value in four, a field that should be a number is text.
    let number = if n == 3 { json!("three") } else { json!(n) };
    json!({ "tool": tool, "n": number, "call_id": call(n) })
}

/// The id of a call.
fn call(number: u8) -> Arc<str> {
    format!("c{number}").into()
}

/// The change of the context, and its origin: a named session, or the one of the same process.
fn begins(asked: &Asked) -> ContextChange {
    let from = asked.from.filter(|from| *from != asked.session).map(session_id);
    match asked.context {
        None => ContextChange::Unstated,
        Some(0) => ContextChange::Compacted,
        Some(3) => ContextChange::Resumed,
        Some(1) => ContextChange::Cleared { from },
        Some(_) => ContextChange::Forked { from },
    }
}

fn session_id(session: usize) -> SessionId {
    SessionId::new(SESSIONS[session].0)
}

fn harness(session: usize) -> Harness {
    let (_, workspace, parent) = SESSIONS[session];
    Harness {
        name: Some("model".into()),
        workspace: workspace.map(Into::into),
        parent: parent.map(SessionId::new),
        pid: Some(PID),
        conversations: Some(Conversations::OnePerProcess),
        ..Harness::default()
    }
}

/// The outputs of the engine for `journal`, with additional wakes at `wakes`, and with a snapshot
/// and a restart before each record whose position is a multiple of `restart_every`.
fn replay(journal: &[Record], until: Timestamp, wakes: &[Timestamp], restart_every: u64) -> Vec<String> {
    let mut engine = Engine::new(generations::rules(0));
    let mut wakes = wakes.iter().copied().peekable();
    let mut outputs = Vec::new();
    for record in journal {
        while let Some(at) = wakes.next_if(|at| *at <= record.at) {
            outputs.extend(handled(&mut engine, Input::Tick, at));
        }
        if record.seq.0 % restart_every == 0 {
            engine = restored(&engine);
        }
        outputs.extend(handled(&mut engine, record.input(), record.at));
        outputs.push(region_after(record, &engine));
    }
    outputs.extend(handled(&mut engine, Input::Tick, until));
    outputs
}

fn handled(engine: &mut Engine, input: Input<'_>, at: Timestamp) -> Vec<String> {
    engine.handle(input, at);
    std::iter::from_fn(|| engine.poll_output()).map(|output| format!("{output:?}")).collect()
}

/// The region of one session after a record.
fn region_after(record: &Record, engine: &Engine) -> String {
    let number = usize::try_from(record.seq.0).expect("short") % SESSIONS.len();
    format!("region {:?}", region_text(engine, &session_id(number)))
}

/// Fails with the first output that differs.
fn assert_same(expected: &[String], found: &[String], how: &str) {
    let differs = expected.iter().zip(found).position(|(expected, found)| expected != found);
    let at = differs.unwrap_or(expected.len().min(found.len()));
    assert!(
        differs.is_none() && expected.len() == found.len(),
        "{how}, output {at} is\n  {:?}\ninstead of\n  {:?}",
        found.get(at),
        expected.get(at)
    );
}

/// Runs `steps` and then ends everything.
fn live(steps: &[Step]) -> Live {
    let mut live = Live::new();
    steps.iter().for_each(|step| live.step(step));
    live.end();
    live
}

/// The records of a timeline, without a check of what they lead to.
fn recorded(steps: &[Step]) -> Vec<Record> {
    let mut live = Live { account: None, ..Live::new() };
    steps.iter().for_each(|step| live.step(step));
    live.journal
}

#[test]
fn lowered_limits_apply_as_soon_as_rules_change() {
    let mut steps = vec![Step { after_ms: 0, what: What::Open { session: 0 } }];
    steps.extend((0..12).map(|_| Step { after_ms: 1_000, what: event(3, 1) }));
    // The queue holds two more than its limit, and the session is silent for longer than its limit.
    steps.push(Step { after_ms: 60_000, what: What::Open { session: 1 } });
    steps.push(Step { after_ms: 0, what: What::Rules { generation: 2 } });
    let outputs = live(&steps).outputs.join("\n");
    assert_eq!(outputs.matches("QueueOverflow").count(), 2, "{outputs}");
    // The other session gets them, and closes at the end.
    assert_eq!(outputs.matches("SessionGone").count(), 20, "{outputs}");
}

#[test]
fn random_timelines_are_accounted_for_and_replay_identically() {
    let wakes = prop::collection::vec((any::<prop::sample::Index>(), 0..1_000_u64), 0..40);
    let config = fixed_cases(CASES, 2);
    let is_whole = config.cases >= CASES;
    let reached = RefCell::new(BTreeSet::new());
    let result = TestRunner::new(config).run(
        &(timelines(STEPS_MAX), wakes, 1..8_u64),
        |(timeline, wakes, restart_every)| {
            let Live { journal, outputs, now, reasons, .. } = live(&timeline.0);
            reached.borrow_mut().extend(reasons);

            assert_same(&outputs, &replay(&journal, now, &[], NEVER), "never woken");
            assert_same(&outputs, &replay(&journal, now, &[], restart_every), "restarted");
            let at = |(after, ms): &(prop::sample::Index, u64)| after.get(&journal).at.as_millis() + ms;
            let mut wakes: Vec<Timestamp> =
                wakes.iter().map(|wake| Timestamp::from_millis(at(wake))).collect();
            wakes.sort();
            assert_same(&outputs, &replay(&journal, now, &wakes, NEVER), "woken at random");
            Ok(())
        },
    );
    result.unwrap_or_else(|error| panic!("{error}"));
    let words = Reason::texts().map(|text| text.word);
    let missing: Vec<&str> = words.filter(|word| !reached.borrow().contains(word)).collect();
    assert!(!is_whole || missing == UNREACHED, "no timeline reaches {missing:?}");
}

//! A critical notification of a trusted source is delivered at the next opportunity, whatever postpones
//! or suppresses others.
//!
//! Each combination draws a subscriber, the settings of the daemon, some sessions, and what happens
//! before and after the event: silences, inhibiting events, quiet hours, budgets that are used up,
//! settings of users. Then each session in the event's scope makes an exchange.
//!
//! Four things may stop it, and such combinations are counted apart: a silence that names critical ones,
//! an inhibiting event that is critical and trusted, a mute, and the limit of a subscriber that makes each
//! of its notifications critical. A silence and a mute stop nothing of a core subscriber.

use std::{collections::BTreeMap, time::Duration};

use engine::{
    Input, Output,
    event::{Event, Payload, Provenance, Scope, SessionId, Severity},
    exchange::{Budget, Exchange, Format, Harness},
    hold::SilenceId,
    notification::{
        Activation, Audience, InjectionPoint, Interrupt, NotificationId, Priority, SubscriberId, Tokens,
    },
    pipeline::{
        mute::Mute,
        rule::{Activity, Subscriber},
        silence::{Matchers, Silence},
    },
    user::UserSettings,
};
use journal::time::Timestamp;
use serde_json::json;
use strum::VariantArray;

use crate::support::{
    drawn::{self, Drawn},
    drive::{Drive, Restarts},
    random::{Random, each_seed},
};

/// Number of combinations, see `ASIDE_CRITICAL_SEEDS`.
const SEEDS: u64 = 200;
/// Most exchanges until a session has all that is critical.
const EXCHANGES_MAX: usize = 40;
/// Above it a notification is offered to the sessions in slices.
const MANY_SESSIONS: u64 = 14;
const USERS: [Option<&str>; 2] = [None, Some("ada")];
const FOLDERS: [Option<&str>; 3] = [None, Some("/w"), Some("/w/a")];

/// What may stop a critical notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Silence,
    Inhibition,
    Mute,
    OwnLimit,
}

#[derive(Debug, Clone)]
struct Session {
    id: SessionId,
    harness: Harness,
}

struct Combination {
    random: Random,
    drive: Drive,
    rule: std::sync::Arc<Subscriber>,
    sessions: Vec<Session>,
    now: Timestamp,
    number: u64,
    stops: Vec<Stop>,
    steps: Vec<String>,
    /// The newest request of each session's queue: whether it asks for a wake.
    wakes: BTreeMap<SessionId, bool>,
    made: Vec<(NotificationId, Priority)>,
}

/// A subscriber whose critical events are critical notifications for the agent.
fn subscriber(random: &mut Random) -> Drawn {
    loop {
        let audience = random.one_of(&[r#""agent""#, r#""both""#]);
        let fixed = [("output", "audience", audience), ("subscriber", "enabled", "true")];
        let drawn = Drawn::new("plant", random, &fixed, &["absent"]);
        let is_never = drawn.value("output", "escalate_at") == Some(r#""never""#);
        if !is_never || drawn.value("output", "priority") == Some(r#""critical""#) {
            return drawn;
        }
    }
}

fn settings(random: &mut Random) -> String {
    let mut text = String::new();
    if random.percent(70) {
        text.push_str("[budget]\nturn = 100\nhour = 100\n");
        if random.percent(50) {
            text.push_str("session = 100\nsources = { test = \"20/h\" }\n");
        }
    }
    if random.percent(30) {
        text.push_str("[injection]\nmax_notifications = 1\nmax_tokens = 120\n");
    }
    if random.percent(30) {
        text.push_str("[sessions]\nqueue_len_max = 10\n");
    }
    text
}

impl Combination {
    fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let drawn = subscriber(&mut random);
        let mut settings = settings(&mut random);
        let mut stops = Vec::new();
        if random.percent(8) {
            settings.push_str("[[delivery.mute]]\nsource = \"test\"\n");
            stops.push(Stop::Mute);
        }
        let rules = drawn::rules([&drawn], &settings);
        let rule = std::sync::Arc::clone(&rules.subscribers[0]);
        let restarts = random.one_of(&[Restarts::Never, Restarts::Never, Restarts::BeforeEveryInput]);
        let start: Timestamp = "2026-01-05T18:00:00Z".parse().expect("a time");
        let now = start + Duration::from_secs(60 * random.below(720));
        let count = if random.percent(10) { MANY_SESSIONS } else { random.below(4) };
        let sessions = (0..count).map(|number| session(number, &mut random)).collect();
        Self {
            drive: Drive::with(rules, restarts),
            rule,
            sessions,
            now,
            number: 0,
            stops,
            steps: vec![format!("{now}\n{settings}{}", drawn.text())],
            wakes: BTreeMap::new(),
            made: Vec::new(),
            random,
        }
    }

    fn is_core(&self) -> bool {
        self.rule.activity == Activity::Core
    }

    /// Lets up to so many seconds pass.
    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(self.random.below(seconds));
        self.drive.advance(self.now);
        self.note_outputs();
    }

    fn input(&mut self, input: Input<'_>) {
        self.drive.input(input, self.now);
        self.note_outputs();
    }

    /// Takes what the engine puts out, and returns what an exchange released.
    fn note_outputs(&mut self) -> Vec<(NotificationId, Priority)> {
        let mut released = Vec::new();
        for (_, output) in self.drive.take_outputs() {
            match output {
                Output::Wake(pending) => {
                    self.wakes.insert(pending.session, pending.wake.is_some());
                }
                Output::Made(notification) => self.made.push((notification.id, notification.priority)),
                Output::Answer { answer, .. } => {
                    let injection = answer.injection.iter().flat_map(|injection| &injection.notifications);
                    released.extend(injection.map(|own| (own.id, own.priority)));
                }
                Output::Record(_)
                | Output::Said(_)
                | Output::Session(..)
                | Output::Refuse { .. }
                | Output::Publish(_) => {}
            }
        }
        released
    }

    fn emit(&mut self, event_type: &str, payload: serde_json::Value, with: impl FnOnce(Event) -> Event) {
        self.number += 1;
        let event = with(Event {
            id: format!("e{}", self.number).into(),
            event_type: event_type.parse().expect("a type"),
            source: "test".into(),
            provenance: Provenance::Harness,
            severity: Severity::Info,
            timestamp: self.now,
            payload: Payload::from(payload),
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
            deliver_after: None,
        });
        let scope = event.scope();
        let trust = event.provenance;
        self.steps.push(format!(
            "{} {} {} {trust:?} {scope:?} {} {:?}",
            self.now,
            event.event_type,
            event.severity,
            event.payload.as_str(),
            event.deliver_after
        ));
        self.drive.emit(&event, self.now);
        self.note_outputs();
    }

    /// Something that holds, ends or suppresses others.
    fn suppress(&mut self) {
        match self.random.below(10) {
            0..=3 => self.silence(),
            4..=6 => self.zone_goes_down(),
            7..=8 => self.change_settings(),
            _ => {
                self.steps.push("the rules are read again".to_owned());
                let rules = std::sync::Arc::clone(self.drive.rules());
                self.input(Input::RulesReplaced(rules));
            }
        }
    }

    fn silence(&mut self) {
        let critical = self.random.percent(15);
        let session = self.sessions.first().map(|session| session.id.clone());
        let matchers = match self.random.below(7) {
            0 => Matchers { subscriber: Some(SubscriberId::new("plant")), ..Matchers::default() },
            1 => Matchers { subscriber: Some(SubscriberId::new("*")), ..Matchers::default() },
            2 => Matchers { types: vec!["plant.**".parse().expect("a pattern")], ..Matchers::default() },
            3 => Matchers { source: Some("test".into()), ..Matchers::default() },
            4 => Matchers { condition: Some("payload.zone == 'eu'".into()), ..Matchers::default() },
            5 if session.is_some() => Matchers { session, ..Matchers::default() },
            _ => Matchers { workspace: Some("/w".into()), ..Matchers::default() },
        };
        if critical && !self.is_core() {
            self.stops.push(Stop::Silence);
        }
        self.number += 1;
        let silence = Silence {
            id: SilenceId::new(&format!("s{}", self.number)),
            matchers: Matchers { critical, ..matchers },
            until: self.now + Duration::from_secs(3_600),
            by: "test".into(),
            comment: "".into(),
        };
        self.steps.push(format!("{} silence {}", self.now, silence.matchers));
        self.input(Input::Silenced(silence.into()));
    }

    fn zone_goes_down(&mut self) {
        let (severity, provenance) = self.random.one_of(&[
            (Severity::Error, Provenance::Harness),
            (Severity::Critical, Provenance::Remote),
            (Severity::Critical, Provenance::Harness),
        ]);
        let can_stop = severity == Severity::Critical && provenance == Provenance::Harness;
        if can_stop && !self.rule.inhibit.is_empty() {
            self.stops.push(Stop::Inhibition);
        }
        let scope = self.scope();
        self.emit("plant.zone.down", json!({ "zone": "eu" }), |event| {
            scoped(Event { severity, provenance, ..event }, scope)
        });
    }

    fn change_settings(&mut self) {
        let user = self.random.one_of(&["me", "ada"]);
        let hours = self.random.one_of(&["00:00-12:00", "12:00-00:00", "22:00-07:00"]);
        let none = UserSettings::default();
        let settings = match self.random.below(6) {
            0 => UserSettings { disabled: ["plant"].map(SubscriberId::new).into(), ..none },
            1 => {
                let mute = Mute { types: vec!["plant.**".parse().expect("a pattern")], ..Mute::default() };
                UserSettings { mute: vec![mute], ..none }
            }
            2 => UserSettings { level: Some(Activation::Passive), ..none },
            3 => UserSettings { level: Some(Activation::Prompt), ..none },
            _ => UserSettings { quiet: hours.parse().expect("hours"), ..none },
        };
        let mutes = !settings.disabled.is_empty() || !settings.mute.is_empty();
        if mutes && !self.is_core() {
            self.stops.push(Stop::Mute);
        }
        self.steps.push(format!("{} settings of {user}: {settings:?}", self.now));
        self.input(Input::UserSettings { user: user.into(), settings: settings.into() });
    }

    /// An event that is not critical, or one that nobody trusts.
    fn other_event(&mut self, equal: bool) {
        let zone = self.random.one_of(&["eu", "us"]);
        let scope = self.scope();
        let severity = self.random.one_of(&[Severity::Info, Severity::Warning]);
        if equal {
            let payload = target_payload(false);
            return self
                .emit("plant.thing.fired", payload, |event| scoped(Event { severity, ..event }, scope));
        }
        let (n, tag) = (self.random.below(50), self.random.one_of(&["a", "b", "c"]));
        let payload = json!({ "n": n, "tag": tag, "zone": zone, "last": n > 40 });
        self.emit("plant.thing.noted", payload, |event| scoped(Event { severity, ..event }, scope));
    }

    fn untrusted_event(&mut self) {
        let event_type = self.random.one_of(&["plant.thing.fired", "plant.thing.gone", "plant.zone.up"]);
        let provenance = Provenance::Remote;
        self.emit(event_type, target_payload(false), |event| Event {
            provenance,
            severity: Severity::Critical,
            ..event
        });
    }

    fn scope(&mut self) -> Scope {
        let session = self.sessions.first().map(|session| session.id.clone());
        match (self.random.below(3), session) {
            (0, Some(session)) => Scope::Session(session),
            (1, _) => Scope::Workspace("/w".into()),
            _ => Scope::All,
        }
    }

    /// Makes an exchange of a session; returns what it released.
    fn exchange(&mut self, number: usize, point: InjectionPoint) -> Vec<(NotificationId, Priority)> {
        self.number += 1;
        let session = &self.sessions[number];
        let limits = self.random.percent(30).then_some((1, Tokens(60), 400));
        let exchange = Exchange {
            turn: Some(format!("t{}", self.number).into()),
            step: Some(self.number.to_string().into()),
            harness: session.harness.clone(),
            format: self.random.percent(30).then(|| self.random.one_of(Format::VARIANTS)),
            budget: limits.map_or_else(Budget::default, |(notifications, tokens, chars)| Budget {
                max_notifications: Some(notifications),
                max_tokens: Some(tokens),
                max_chars: Some(chars),
            }),
            ..Exchange::new(session.id.clone(), point, &format!("c{}", self.number))
        };
        self.steps.push(format!("{} {} {point:?} {:?}", self.now, exchange.session, exchange.budget));
        self.drive.exchange(exchange, self.now);
        self.note_outputs()
    }

    fn before(&mut self) {
        for number in 0..self.sessions.len() {
            self.exchange(number, InjectionPoint::TurnStart);
        }
        for _ in 0..self.random.below(9) {
            self.pass(200);
            let is_usual =
                self.rule.severity_when.is_empty() && self.rule.output.priority != Priority::Critical;
            match self.random.below(6) {
                0..=1 => {
                    let equal = is_usual && self.random.percent(30);
                    self.other_event(equal);
                }
                2 if !self.sessions.is_empty() => {
                    let number =
                        usize::try_from(self.random.below(self.sessions.len() as u64)).expect("small");
                    let point = self.random.one_of(InjectionPoint::VARIANTS);
                    self.exchange(number, point);
                }
                3 => self.untrusted_event(),
                _ => self.suppress(),
            }
        }
    }

    /// Publishes the critical event; returns its scope and the notification, if one was made.
    fn publish(&mut self) -> (Scope, Option<NotificationId>) {
        let is_critical = self.rule.output.priority == Priority::Critical;
        let severity = match self.rule.output.escalate_at {
            _ if self.random.percent(50) => Severity::Critical,
            Some(least) => least,
            None => Severity::Error,
        };
        let deliver_after =
            self.random.one_of(&[None, None, Some("3 turns"), Some("20m or tool:Bash"), Some("18:00")]);
        let scope = self.scope();
        let before = self.made.len();
        let payload = target_payload(self.random.percent(30));
        let own = scope.clone();
        self.emit("plant.thing.fired", payload, |event| {
            scoped(Event { severity, deliver_after: deliver_after.map(Into::into), ..event }, own)
        });
        let escalates = self.rule.output.escalate_at.is_some_and(|least| severity >= least);
        let is_limited = self.rule.rate.is_some() || self.rule.threshold.is_some();
        if is_critical && !escalates && is_limited {
            self.stops.push(Stop::OwnLimit);
        }
        let made = self.made[before..].iter().find(|(_, priority)| *priority == Priority::Critical);
        (scope, made.map(|(id, _)| *id))
    }

    fn after(&mut self) {
        for _ in 0..self.random.below(5) {
            self.pass(120);
            match self.random.below(5) {
                0 => self.untrusted_event(),
                // A newer state replaces the critical one.
                1 if self.rule.supersede_key.is_empty() => self.other_event(false),
                _ => self.suppress(),
            }
        }
        self.pass(300);
    }

    /// The numbers of the sessions that must get what is published in `scope`.
    fn concerned(&self, scope: &Scope) -> Vec<usize> {
        let is_concerned =
            |session: &Session| scope.concerns(&session.id, session.harness.workspace.as_deref());
        (0..self.sessions.len()).filter(|number| is_concerned(&self.sessions[*number])).collect()
    }

    /// Whether a session gets the notification by its next exchange; others that are critical may come
    /// before it, as far as a carrier has room.
    fn gets(&mut self, number: usize, id: NotificationId) -> bool {
        for _ in 0..EXCHANGES_MAX {
            let point = match self.rule.output.interrupt {
                Interrupt::QueueForNext => InjectionPoint::TurnStart,
                Interrupt::InjectAndContinue | Interrupt::CancelAndRestart => {
                    self.random.one_of(InjectionPoint::VARIANTS)
                }
            };
            let released = self.exchange(number, point);
            if released.iter().any(|(own, _)| *own == id) {
                return true;
            }
            if !released.iter().any(|(_, priority)| *priority == Priority::Critical) {
                return false;
            }
        }
        false
    }

    /// Plays the combination; returns what may have stopped the notification, if something did.
    fn play(&mut self) -> Result<Option<Stop>, String> {
        self.before();
        let (scope, made) = self.publish();
        let mut concerned = self.concerned(&scope);
        let is_open = !concerned.is_empty();
        if !is_open {
            // It waits for the first session that opens in its scope.
            let mut random = Random::new(self.number);
            let opened = session(MANY_SESSIONS + 1, &mut random);
            self.sessions.push(Session {
                harness: Harness { workspace: Some("/w".into()), ..opened.harness },
                ..opened
            });
            concerned = vec![self.sessions.len() - 1];
        }
        let stop = self.stops.last().copied();
        let Some(id) = made else { return stop.map(Some).ok_or_else(|| "none was made".to_owned()) };
        let is_own = matches!(scope, Scope::Session(_));
        self.after();
        let stop = self.stops.last().copied();
        let is_idle = |own: &Session| !self.drive.is_in_turn(&own.id);
        let asks = |own: &Session| self.wakes.get(&own.id).copied().unwrap_or_default();
        let idle = concerned.iter().map(|number| &self.sessions[*number]).filter(|own| is_idle(own));
        let idle: Vec<bool> = idle.map(asks).collect();
        let is_woken = if is_own { idle.iter().all(|asks| *asks) } else { idle.iter().any(|asks| *asks) };
        if is_open && !is_woken && !idle.is_empty() && stop.is_none() {
            return Err(format!("no idle session is woken for {id}"));
        }
        for number in concerned {
            if !self.gets(number, id) {
                let session = self.sessions[number].id.clone();
                return stop.map(Some).ok_or_else(|| format!("{session} does not get {id}"));
            }
        }
        Ok(None)
    }
}

/// The payload of the critical event.
fn target_payload(last: bool) -> serde_json::Value {
    json!({ "n": 95, "tag": "t", "zone": "eu", "last": last })
}

fn scoped(event: Event, scope: Scope) -> Event {
    match scope {
        Scope::Session(session) => Event { session: Some(session), ..event },
        Scope::Workspace(workspace) => Event { workspace: Some(workspace), ..event },
        Scope::All | Scope::Part(_) => event,
    }
}

fn session(number: u64, random: &mut Random) -> Session {
    let workspace = random.one_of(&FOLDERS).map(Into::into);
    let user = random.one_of(&USERS).map(Into::into);
    let harness = Harness { workspace, user, ..Harness::default() };
    Session { id: SessionId::new(&format!("p{number}")), harness }
}

#[test]
fn critical_notification_passes_every_combination_of_rules() {
    let mut stopped: BTreeMap<Stop, u64> = BTreeMap::new();
    let mut delivered = 0_u64;
    each_seed("ASIDE_CRITICAL", SEEDS, |seed| {
        let mut combination = Combination::draw(seed);
        let audience = combination.rule.output.audience;
        assert_ne!(audience, Audience::User);
        match combination.play() {
            Ok(Some(stop)) => *stopped.entry(stop).or_default() += 1,
            Ok(None) => delivered += 1,
            Err(what) => return Err(format!("{what}\n{}", combination.steps.join("\n"))),
        }
        Ok(())
    });
    let is_whole = delivered + stopped.values().sum::<u64>() >= SEEDS;
    for stop in [Stop::Silence, Stop::Inhibition, Stop::Mute] {
        assert!(!is_whole || stopped.contains_key(&stop), "{stop:?} stops nothing: {stopped:?}");
    }
}

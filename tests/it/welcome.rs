//! The notification of a session that is resumed after a day: one block about git, files and checks
//! meanwhile.

use std::{fs, path::Path, sync::Arc, time::Duration};

use aside::config::{compile::compile, layers::Sources};
use engine::{
    Engine, Input, Output, RequestId,
    call::{Call, Touch, TouchKind},
    ci::{Checks, Failure, Next, Outcome, Output as Left, Plan, Remote},
    event::{Event, Payload, Provenance, Seq, SessionId, Severity},
    exchange::{ContextChange, Exchange, Format, Harness, Release},
    ledger::{LedgerEntry, Reason},
    notification::InjectionPoint,
    probe::{self, Known, Moment, View},
};
use journal::time::Timestamp;
use serde_json::{Value, json};

use crate::git::machine::{Machine, now, run};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An engine with the shipped rules, and a session in a folder.
struct World {
    engine: Engine,
    session: SessionId,
    folder: Arc<str>,
    seq: u64,
    now: Timestamp,
    known: Arc<Known>,
    plan: Plan,
    /// The number of notifications that ended because another one contains them.
    summed_up: usize,
}

impl World {
    fn new(folder: &Path, now: Timestamp) -> Self {
        let compiled = compile(&Sources::shipped(), &[]);
        Self {
            engine: Engine::new(Arc::new(compiled.rules)),
            session: SessionId::new("s1"),
            folder: folder.to_str().expect("text").into(),
            seq: 0,
            now,
            known: Arc::default(),
            plan: Plan::default(),
            summed_up: 0,
        }
    }

    /// Passes an input to the engine, and then the events that it publishes; returns the text of an
    /// answer.
    fn handle(&mut self, input: impl FnOnce(Seq) -> Input<'static>) -> Option<String> {
        self.seq += 1;
        self.engine.handle(input(Seq(self.seq)), self.now);
        let (mut text, mut published) = (None, Vec::new());
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Answer { answer, .. } => {
                    text = answer.injection.map(|injection| injection.text.to_string())
                }
                Output::Publish(event) => published.push(event),
                Output::Record(LedgerEntry::NotificationEnded { reason: Reason::SummedUp, .. }) => {
                    self.summed_up += 1;
                }
                Output::Record(_)
                | Output::Made(_)
                | Output::Said(_)
                | Output::Session(..)
                | Output::Refuse { .. }
                | Output::Wake(_) => {}
            }
        }
        for (id, known) in self.engine.take_known().into_iter().flat_map(|changes| changes.sessions) {
            if id == self.session {
                self.known = known.unwrap_or_default();
            }
        }
        self.plan = self.engine.take_ci_plan().unwrap_or_else(|| self.plan.clone());
        for event in published {
            self.publish(&event);
        }
        text
    }

    fn publish(&mut self, event: &Event) {
        let event: &'static Event = Box::leak(Box::new(event.clone()));
        self.handle(|seq| Input::Event { seq, event: event.as_ref() });
    }

    fn hear(&mut self, event_type: &str, payload: Value) {
        let event = Event {
            id: format!("{event_type}-{}", self.seq).into(),
            event_type: event_type.parse().expect("valid"),
            source: "claude-code".into(),
            provenance: Provenance::Harness,
            severity: Severity::Debug,
            timestamp: self.now,
            payload: Payload::from(payload),
            dedupe_key: None,
            session: Some(self.session.clone()),
            workspace: Some(Arc::clone(&self.folder)),
            cause: None,
            deliver_after: None,
        };
        self.publish(&event);
    }

    /// Makes an exchange, after the findings of its probes.
    fn exchange(&mut self, point: InjectionPoint, context: ContextChange, calls: &[Call]) -> Option<String> {
        let mut exchange = Exchange::new(self.session.clone(), point, &format!("c{}", self.seq));
        exchange.harness = Harness { workspace: Some(Arc::clone(&self.folder)), ..Harness::default() };
        (exchange.context, exchange.format) = (context, Some(Format::Xml));
        let view = View { known: Arc::clone(&self.known), ..View::default() };
        let found = if probe::is_asked(&exchange, calls) {
            let moment = Moment {
                workspace: Some(&self.folder),
                calls,
                calls_since: view.known.calls_since(None),
                prompt_after: view.known.prompt_after(point, None),
                ..Moment::new(&self.session, point, self.now)
            };
            probe::look(&view.known, &moment, &self.engine.rules().probes.clone(), &Machine)
        } else {
            Vec::new()
        };
        match (point == InjectionPoint::TurnStart, found.is_empty()) {
            (true, true) => {}
            (true, false) => self.hear("agent.turn.start", json!({ "started_by": "prompt" })),
            (false, _) => {
                self.hear("tool.call.success", json!({ "tool_name": "Bash", "command": "git push" }))
            }
        }
        for event in &found {
            self.publish(event);
        }
        let (exchange, release) = (exchange.into(), Release::Decide);
        self.handle(|seq| Input::Exchange { seq, request: RequestId(seq.0), exchange, release })
    }

    /// Answers as git and GitHub until nothing is followed any more: one of six checks failed.
    fn answer(&mut self) {
        while let Some(next) = self.plan.next(|_| false) {
            let event = match next {
                Next::Find(follow) => {
                    let stdout = format!("{}\nmain\n", "1".repeat(40)).into_bytes();
                    let left = Left { code: Some(0), stdout, stderr: Vec::new() };
                    let [host, owner, name] = ["github.com", "acme", "shop"].map(str::to_owned);
                    let remote = Remote { host, owner, name };
                    let found = follow.read_found(&left, Some(self.folder.to_string()), Some(remote));
                    follow.found_event(&found, self.now)
                }
                Next::Ask(follow, at) => {
                    self.now = self.now.max(at);
                    let unit = Failure { check: "unit".to_owned(), summary: None, url: None, at: None };
                    let checks = Checks {
                        repo: "acme/shop".to_owned(),
                        passed: 5,
                        failed: 1,
                        failures: vec![unit],
                        ..Checks::default()
                    };
                    self.plan.answered_event(&follow, Outcome::Checks(checks), self.now)
                }
            };
            self.publish(&event);
        }
    }
}

/// A session that read a file, pushed, and ended; a day later somebody has committed, and a check
/// has failed.
fn after_a_day(outside: &Path) -> World {
    let folder = outside.join("shop");
    fs::create_dir(&folder).expect("made");
    run("git init -q -b main . && echo 1 >a && echo 1 >b && git add . && git commit -qm one", &folder);
    let mut world = World::new(&folder, now(outside));
    world.exchange(InjectionPoint::TurnStart, ContextChange::default(), &[]);
    let touch = |name: &str| Touch {
        path: format!("{}/{name}", world.folder).into(),
        by: TouchKind::Read,
        written: None,
    };
    let read = Call { touched: ["a", "b"].map(touch).to_vec(), ..Call::default() };
    assert_eq!(world.exchange(InjectionPoint::AfterTool, ContextChange::default(), &[read]), None);
    let session = world.session.clone();
    world.handle(|_| Input::SessionSuspended { session });
    run("echo 2 >a; git commit -qam two; echo 3 >b", &folder);
    world.answer();
    world.now = world.now + DAY;
    world.handle(|_| Input::Tick);
    world
}

#[test]
fn resume_after_a_day_delivers_a_single_block() {
    let outside = tempfile::tempdir().expect("a folder");
    let mut world = after_a_day(outside.path());
    assert_eq!(
        world.exchange(InjectionPoint::TurnStart, ContextChange::Resumed, &[]),
        None,
        "the prompt has it all"
    );
    let text = world.exchange(InjectionPoint::TurnStart, ContextChange::default(), &[]).expect("it is back");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('<')).collect();
    let fields: Vec<&str> = lines.iter().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(fields, ["back_after", "now", "git", "ci", "changed_that_you_read"], "{text}");
    assert!(text.contains("ci: \"main: 1 of 6 checks failed: unit\""), "{text}");
    assert!(text.contains("changed_that_you_read: \"a, b\"") || text.contains("\"b, a\""), "{text}");
    assert!(text.starts_with("<notifications count=\"1\""), "{text}");
    assert!(world.summed_up > 0);
    assert_eq!(
        world.exchange(InjectionPoint::AfterTool, ContextChange::default(), &[]),
        None,
        "nothing is left"
    );
}

#[test]
fn checks_are_delivered_by_own_subscriber_without_welcome() {
    let outside = tempfile::tempdir().expect("a folder");
    let mut world = after_a_day(outside.path());
    let mut rules = compile(&Sources::shipped(), &[]).rules;
    rules.subscribers.retain(|rule| rule.id.as_str() != "welcome_back");
    world.handle(|_| Input::RulesReplaced(Arc::new(rules)));
    assert_eq!(world.exchange(InjectionPoint::TurnStart, ContextChange::Resumed, &[]), None);
    let text = world.exchange(InjectionPoint::TurnStart, ContextChange::default(), &[]).expect("the checks");
    assert!(text.contains("unit") && text.contains("1 of 6 checks failed"), "{text}");
    assert_eq!(world.summed_up, 0);
}

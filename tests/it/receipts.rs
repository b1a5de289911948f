//! Simulated loops of every style, against what is really in their model's input: nothing is
//! confirmed that is not there, nothing is lost, and what may come twice says so.
//!
//! A loop calls its model, runs calls one after the other or together, names turns and steps or
//! not, repeats requests whose answer was lost, is interrupted, and dies between any two exchanges.
//! The daemon restarts before every input, or never. A wake route pushes text that the client shows
//! or holds back, and the transcript is read late.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use engine::{
    Input, Output,
    event::{Event, Payload, Provenance, SessionId, Severity},
    exchange::{ContextChange, Exchange, Harness, InjectionId, Process, Trigger},
    ledger::{ConfirmedBy, LedgerEntry},
    notification::{InjectionPoint, NotificationId},
    rules::CompiledRules,
};
use journal::time::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use crate::support::{
    drive::{Drive, Restarts, rules},
    random::fixed_cases,
};

use InjectionPoint::{AfterTool, BeforeTool, TurnEnd, TurnStart};

const BEGIN_MS: u64 = 1_700_000_000_000;
const CASES: u32 = 200;
const TURNS: usize = 6;
/// Ten texts leave at a start, so that sixty need six turns; one more proves the last ones.
const QUIET_TURNS: usize = 7;
/// Pauses between two inputs; many of the longest are longer than a lease.
const PAUSES_MS: [u64; 4] = [0, 20, 400, 5 * 60_000];

/// How a loop is written.
#[derive(Debug, Clone, Copy)]
struct Style {
    names_steps: bool,
    names_turns: bool,
    /// Its carriers are the same in every turn.
    repeats_carriers: bool,
    /// It names its process; otherwise a new one says that it resumes.
    names_process: bool,
    reports_ends: bool,
    /// It makes one exchange before each call of the model, not one after each tool.
    asks_once_a_step: bool,
    restarts: Restarts,
}

fn style() -> impl Strategy<Value = Style> {
    any::<[bool; 7]>().prop_map(|is| Style {
        names_steps: is[0],
        names_turns: is[1],
        // Without either, two starts in a row are one that is repeated, or two turns.
        repeats_carriers: is[2] && is[3] && (is[1] || is[4]),
        names_process: is[3],
        reports_ends: is[4],
        asks_once_a_step: is[5],
        restarts: if is[6] { Restarts::BeforeEveryInput } else { Restarts::Never },
    })
}

/// The loop has died.
struct Died;

struct Loop<'c> {
    drive: Drive,
    style: Style,
    choices: &'c [u8],
    now: u64,
    process: u32,
    is_new_process: bool,
    turn: u32,
    /// How often the model has answered in the turn.
    step: u32,
    number: u32,
    has_ended_a_turn: bool,
    /// Texts in the messages of the running process.
    context: BTreeSet<NotificationId>,
    /// Texts that were in a request to the model.
    input: BTreeSet<NotificationId>,
    made: BTreeSet<NotificationId>,
    left: BTreeSet<NotificationId>,
    confirmed: BTreeMap<NotificationId, ConfirmedBy>,
    injections: BTreeMap<InjectionId, BTreeSet<NotificationId>>,
    /// An exchange of a call of an interrupted turn, which still runs.
    slow: Option<Exchange>,
}

fn session() -> SessionId {
    SessionId::new("loop")
}

fn subscriber(id: &str, priority: &str, point: &str) -> (String, String) {
    let text = format!(
        "[subscriber]\nid = \"{id}\"\n[events]\ntypes = [\"shop.{id}.changed\"]\nseverity_filter = \"debug\"\n\
         [batching]\nwindow_ms = 0\ndedupe_window_ms = 0\n[output]\npriority = \"{priority}\"\ninject_at = \"{point}\"\n"
    );
    (format!("subscribers/{id}.toml"), text)
}

const KINDS: [(&str, &str, &str); 4] = [
    ("fire", "critical", "immediate"),
    ("stock", "high", "after_tool"),
    ("price", "normal", "turn_end"),
    ("trend", "low", "turn_end"),
];

/// The shipped rules with a subscriber of each kind, which are compiled once.
static RULES: LazyLock<Arc<CompiledRules>> = LazyLock::new(|| {
    let files: Vec<_> = KINDS.iter().map(|(id, priority, point)| subscriber(id, priority, point)).collect();
    rules(&files)
});

impl<'c> Loop<'c> {
    fn new(style: Style, choices: &'c [u8]) -> Self {
        let drive = Drive::with(Arc::clone(&RULES), style.restarts);
        Self {
            drive,
            style,
            choices,
            now: BEGIN_MS,
            process: 1,
            is_new_process: false,
            turn: 0,
            step: 0,
            number: 0,
            has_ended_a_turn: false,
            context: BTreeSet::new(),
            input: BTreeSet::new(),
            made: BTreeSet::new(),
            left: BTreeSet::new(),
            confirmed: BTreeMap::new(),
            injections: BTreeMap::new(),
            slow: None,
        }
    }

    /// A number below `below`; 0 when the choices are used up.
    fn choose(&mut self, below: u8) -> u8 {
        let Some((first, rest)) = self.choices.split_first() else { return 0 };
        self.choices = rest;
        first % below
    }

    /// True once in `times`, and never when the choices are used up.
    fn happens(&mut self, times: u8) -> bool {
        self.choose(times) == times - 1
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Lets time pass; events may come, and the transcript may be read.
    fn pass(&mut self) {
        let pause = PAUSES_MS[usize::from(self.choose(4))];
        self.now += 1 + pause;
        self.drive.advance(self.at());
        self.check();
        while self.happens(2) && self.made.len() < 60 {
            self.emit();
        }
        if self.happens(6) {
            self.read_transcript();
        }
    }

    fn emit(&mut self) {
        let (kind, ..) = KINDS[usize::from(self.choose(4))];
        self.number += 1;
        let event = Event {
            id: format!("e{}", self.number).into(),
            event_type: format!("shop.{kind}.changed").parse().expect("a valid type"),
            source: "shop".into(),
            provenance: Provenance::Harness,
            severity: Severity::Info,
            timestamp: self.at(),
            payload: Payload::from(json!({ "n": self.number })),
            dedupe_key: None,
            session: Some(session()),
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        self.drive.emit(&event, self.at());
        self.check();
    }

    /// The daemon finds an injection in the transcript, which has what was in a request.
    fn read_transcript(&mut self) {
        let is_there = |(_, texts): &(&InjectionId, &BTreeSet<NotificationId>)| texts.is_subset(&self.input);
        let written: Vec<InjectionId> = self.injections.iter().filter(is_there).map(|(id, _)| *id).collect();
        if written.is_empty() {
            return;
        }
        let found = written[usize::from(self.choose(64)) % written.len()];
        let seen = Input::Ack { session: session(), injection: found, by: ConfirmedBy::Seen };
        self.drive.input(seen, self.at());
        self.check();
    }

    /// Checks every output against what the loop knows; returns the texts of an answer.
    fn check(&mut self) -> Option<(InjectionId, BTreeSet<NotificationId>)> {
        let mut answered = None;
        for (_, output) in self.drive.take_outputs() {
            match output {
                Output::Record(LedgerEntry::Created { notification, .. }) => {
                    self.made.insert(notification);
                }
                Output::Record(LedgerEntry::Injected { notification, redelivered, .. }) => {
                    let is_first = self.left.insert(notification);
                    assert!(is_first || redelivered.is_some(), "{notification} comes twice without a mark");
                }
                Output::Record(LedgerEntry::Confirmed { notification, by, .. }) => {
                    assert!(
                        self.input.contains(&notification),
                        "{notification} is confirmed by {}, and no model has it",
                        by.as_str()
                    );
                    self.confirmed.insert(notification, by);
                }
                Output::Record(LedgerEntry::NotificationEnded { notification, reason, .. }) => {
                    panic!("{notification} ended: {}", reason.as_str());
                }
                Output::Answer { answer, .. } => {
                    answered = answer.injection.map(|injection| {
                        let texts = injection.notifications.iter().map(|released| released.id).collect();
                        (injection.id, texts)
                    });
                }
                Output::Record(_)
                | Output::Publish(_)
                | Output::Refuse { .. }
                | Output::Wake(_)
                | Output::Made(_)
                | Output::Said(_)
                | Output::Session(..) => {}
            }
        }
        answered
    }

    fn request(&mut self, point: InjectionPoint, name: &str) -> Exchange {
        self.number += 1;
        let carrier =
            if self.style.repeats_carriers { name.to_owned() } else { format!("{name}-{}", self.number) };
        let context = match std::mem::take(&mut self.is_new_process) {
            true if !self.style.names_process => ContextChange::Resumed,
            true | false => ContextChange::Unstated,
        };
        let process = self.style.names_process.then_some(self.process);
        Exchange {
            turn: self.style.names_turns.then(|| format!("t{}", self.turn).into()),
            step: self.style.names_steps.then(|| self.step.to_string().into()),
            harness: Harness {
                pid: process.map(|_| 41),
                pid_started: process.map(u64::from),
                ..Harness::default()
            },
            context,
            ..Exchange::new(session(), point, &carrier)
        }
    }

    /// Makes an exchange; its text is in the context afterwards, unless the loop dies first.
    fn exchange(&mut self, point: InjectionPoint, name: &str) -> Result<(), Died> {
        self.pass();
        let exchange = self.request(point, name);
        self.send(&exchange)
    }

    fn send(&mut self, exchange: &Exchange) -> Result<(), Died> {
        self.drive.exchange(exchange.clone(), self.at());
        let answered = self.check();
        if self.happens(6) {
            // The answer was lost, and the request is made again.
            self.now += 30;
            self.drive.advance(self.at());
            self.drive.exchange(exchange.clone(), self.at());
            assert_eq!(self.check(), answered, "the same carrier gets the same");
        }
        if self.happens(16) {
            return Err(Died);
        }
        if let Some((id, texts)) = answered {
            self.context.extend(texts.iter().copied());
            self.injections.insert(id, texts);
        }
        Ok(())
    }

    /// Calls the model with everything in the context.
    fn model(&mut self) -> Result<(), Died> {
        if self.happens(16) {
            return Err(Died);
        }
        self.input.extend(self.context.iter().copied());
        self.step += 1;
        if self.happens(16) { Err(Died) } else { Ok(()) }
    }

    fn turn(&mut self) -> Result<(), Died> {
        (self.turn, self.step) = (self.turn + 1, 0);
        self.exchange(TurnStart, "start")?;
        for _ in 0..self.choose(4) {
            self.model()?;
            if self.calls()? {
                return Ok(());
            }
        }
        self.model()?;
        if self.style.reports_ends {
            self.has_ended_a_turn = true;
            self.exchange(TurnEnd, "end")?;
        }
        Ok(())
    }

    /// Runs the calls of one answer; returns whether the user interrupted the turn.
    fn calls(&mut self) -> Result<bool, Died> {
        for call in 0..=self.choose(3) {
            if self.happens(3) {
                self.exchange(BeforeTool, &format!("call_{call}"))?;
            }
            if !self.style.asks_once_a_step {
                self.exchange(AfterTool, &format!("call_{call}"))?;
            }
            if self.happens(8) {
                self.pull()?;
            }
            if let Some(slow) = self.slow.take() {
                self.send(&slow)?;
            }
        }
        if self.style.asks_once_a_step {
            self.exchange(AfterTool, "step")?;
        }
        // Without ends, the start of a turn says that the last one has ended.
        let is_interrupted = self.has_ended_a_turn && self.happens(6);
        if is_interrupted && self.style.names_turns {
            self.slow = Some(self.request(AfterTool, "slow"));
        }
        Ok(is_interrupted)
    }

    /// The agent calls for what is pending.
    fn pull(&mut self) -> Result<(), Died> {
        let exchange = self.request(AfterTool, "pull");
        self.number += 1;
        let carrier = format!("pull-{}", self.number).into();
        self.send(&Exchange { trigger: Trigger::Pull, carrier, ..exchange })
    }

    /// A wake route pushes text; the client shows it with its next request, or holds it back.
    fn push(&mut self) {
        self.pass();
        self.number += 1;
        let carrier = format!("wake-{}", self.number);
        let exchange = Exchange { trigger: Trigger::Wake, ..Exchange::new(session(), TurnStart, &carrier) };
        self.drive.exchange(exchange, self.at());
        if let Some((id, texts)) = self.check()
            && self.happens(2)
        {
            self.context.extend(texts.iter().copied());
            self.injections.insert(id, texts);
        }
    }

    /// The loop is started again, with nothing in its context.
    fn start_again(&mut self) {
        if self.style.names_process && self.happens(2) {
            let process = Process { pid: 41, started: Some(u64::from(self.process)) };
            self.drive.input(Input::ProcessGone { session: session(), process }, self.at());
            self.check();
        }
        (self.process, self.is_new_process) = (self.process + 1, true);
        self.slow = None;
        self.context.clear();
    }

    fn run(mut self) {
        for _ in 0..TURNS {
            if self.turn().is_err() {
                self.start_again();
            } else if self.happens(3) {
                self.push();
            }
        }
        // Nothing happens any more, so these turns run to their ends.
        self.choices = &[];
        for _ in 0..QUIET_TURNS {
            assert!(self.turn().is_ok());
        }
        let lost: Vec<_> = self.made.difference(&self.input).collect();
        assert!(lost.is_empty(), "no model has {lost:?}");
        let unproven: Vec<_> = self.made.iter().filter(|id| !self.confirmed.contains_key(*id)).collect();
        assert!(unproven.is_empty(), "nothing proves that {unproven:?} arrived");
    }
}

proptest! {
    #![proptest_config(fixed_cases(CASES, 3))]

    #[test]
    fn a_receipt_says_what_the_model_has(style in style(), choices in prop::collection::vec(any::<u8>(), 0..700)) {
        Loop::new(style, &choices).run();
    }
}

/// Two calls run together; the loop dies after the second exchange and before its next request.
#[test]
fn a_slow_parallel_call_confirms_nothing() {
    for names_steps in [false, true] {
        let style = Style {
            names_steps,
            names_turns: false,
            repeats_carriers: false,
            names_process: true,
            reports_ends: true,
            asks_once_a_step: false,
            restarts: Restarts::Never,
        };
        let mut agent = Loop::new(style, &[]);
        assert!(agent.exchange(TurnStart, "start").is_ok() && agent.model().is_ok());
        agent.emit();
        assert!(agent.exchange(AfterTool, "a").is_ok());
        agent.now += 300;
        assert!(agent.exchange(AfterTool, "b").is_ok());
        assert_eq!((agent.left.len(), agent.confirmed.len()), (1, 0));
        agent.start_again();
        assert!(agent.exchange(TurnStart, "start").is_ok());
        assert_eq!(agent.context, agent.left, "it comes once more");
        assert!(agent.model().is_ok() && agent.exchange(TurnEnd, "end").is_ok());
        assert_eq!(agent.confirmed.values().collect::<Vec<_>>(), [&ConfirmedBy::Turn]);
    }
}

/// Exchanges that prove nothing, 10 minutes apart; a lease lasts 15.
#[test]
fn a_repeated_or_requested_exchange_keeps_a_lease() {
    let style = Style {
        names_steps: false,
        names_turns: false,
        repeats_carriers: true,
        names_process: true,
        reports_ends: true,
        asks_once_a_step: false,
        restarts: Restarts::Never,
    };
    for is_pull in [false, true] {
        let mut agent = Loop::new(style, &[]);
        assert!(agent.exchange(TurnStart, "start").is_ok() && agent.model().is_ok());
        // One that is not returned when its lease ends.
        agent.choices = &[1];
        agent.emit();
        assert!(agent.exchange(AfterTool, "call_0").is_ok());
        agent.now += 10 * 60_000;
        let kept = if is_pull { agent.pull() } else { agent.exchange(AfterTool, "call_0") };
        assert!(kept.is_ok());
        agent.now += 10 * 60_000;
        assert!(agent.model().is_ok() && agent.exchange(TurnEnd, "end").is_ok());
        assert_eq!(agent.confirmed.values().collect::<Vec<_>>(), [&ConfirmedBy::Turn], "{is_pull}");
    }
}

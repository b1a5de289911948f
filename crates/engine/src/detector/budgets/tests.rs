use super::*;
use crate::event::Provenance;

/// A session `s`, at a time.
struct Story {
    budgets: Budgets,
    settings: Settings,
    now: Timestamp,
}

impl Story {
    fn new(settings: Settings) -> Self {
        Self { budgets: Budgets::default(), settings, now: Timestamp::from_millis(1_000) }
    }

    fn steps(iterations: u32) -> Self {
        Self::new(Settings { iterations: Some(iterations), ..Settings::default() })
    }

    fn timed(seconds: u64) -> Self {
        Self::new(Settings { time: Some(Duration::from_secs(seconds)), ..Settings::default() })
    }

    /// Restarts from a snapshot before each input, so no state is only in memory.
    fn restart(&mut self) {
        let bytes = crate::snapshot::write(&self.budgets).expect("it is written");
        self.budgets = crate::snapshot::read(&bytes).expect("it is read");
    }

    fn tell(&mut self, event_type: &str, payload: &str) -> Vec<String> {
        self.restart();
        let event = EventRef {
            id: "e",
            event_type,
            source: "loop",
            provenance: Provenance::Harness,
            severity: Severity::Debug,
            timestamp: Timestamp::ZERO,
            payload,
            dedupe_key: None,
            session: Some("s"),
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        let events = self.budgets.observe(&SessionId::new("s"), &event, &self.settings, self.now);
        shown(&events)
    }

    fn exchange(&mut self, point: InjectionPoint, turn: Option<&str>, step: Option<&str>) -> Vec<String> {
        self.restart();
        let exchange = Exchange {
            turn: turn.map(Into::into),
            step: step.map(Into::into),
            ..Exchange::new(SessionId::new("s"), point, "c")
        };
        shown(&self.budgets.note_exchange(&exchange, &self.settings, self.now))
    }

    /// Makes an exchange after a tool in each step of this range; returns the steps with findings.
    fn go(&mut self, steps: std::ops::RangeInclusive<u32>) -> Vec<(u32, Vec<String>)> {
        let found = steps.map(|step| {
            let step_name = step.to_string();
            let name = Some(&*step_name);
            let first = self.exchange(InjectionPoint::AfterTool, None, name);
            // A second call of the same step is no other one.
            let second = self.exchange(InjectionPoint::AfterTool, None, name);
            (step, [first, second].concat())
        });
        found.filter(|(_, found)| !found.is_empty()).collect()
    }

    /// Lets time pass, with the timer at its time.
    fn wait(&mut self, seconds: u64) -> Vec<String> {
        let until = self.now + Duration::from_secs(seconds);
        let mut found = Vec::new();
        while let Some(at) = self.budgets.poll_timeout().filter(|at| *at <= until) {
            self.restart();
            found.extend(shown(&self.budgets.handle_timeout(at)));
        }
        self.now = until;
        found
    }
}

/// Each event as its type without `budget.`, and its used amount, limit and share.
fn shown(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| {
        let payload: Value = serde_json::from_str(event.payload.as_str()).expect("JSON");
        let name = event.event_type.as_str().trim_start_matches("budget.").to_owned();
        match payload.get("percentage") {
            Some(share) => format!("{name} {} of {} {share}", payload["current"], payload["limit"]),
            None => name,
        }
    };
    events.iter().map(text).collect()
}

fn one(step: u32, text: &str) -> (u32, Vec<String>) {
    (step, vec![text.to_owned()])
}

use InjectionPoint::{AfterTool, TurnEnd, TurnStart};

#[test]
fn steps_are_reported_at_each_threshold_once() {
    let mut story = Story::steps(20);
    story.exchange(TurnStart, None, None);
    let expected = [
        one(14, "iteration.warning 14 of 20 70"),
        one(18, "iteration.warning 18 of 20 90"),
        one(20, "iteration.exceeded 20 of 20 100"),
    ];
    assert_eq!(story.go(1..=25), expected);
    assert_eq!(story.exchange(TurnEnd, None, None), ["iteration.reset"]);
    story.exchange(TurnStart, None, None);
    assert_eq!(story.go(1..=15), [one(14, "iteration.warning 14 of 20 70")], "each turn starts at zero");
}

#[test]
fn a_harness_states_its_own_limit() {
    let mut story = Story::new(Settings::default());
    assert!(story.go(1..=50).is_empty(), "no limit is known");
    assert_eq!(story.budgets.turns.len(), 0, "and nothing is kept");
    story.tell(TURN_STARTED, r#"{"turn":"t1","step_limit":10,"time_limit_ms":60000}"#);
    story.exchange(TurnStart, Some("t1"), None);
    assert_eq!(story.wait(50), ["timeout.warning 48 of 60 80"]);
    assert_eq!(story.go(1..=8), [one(7, "iteration.warning 7 of 10 70")]);
    let mut ended = story.tell("agent.turn.end", "{}");
    ended.sort();
    assert_eq!(ended, ["iteration.reset", "timeout.reset"]);
    assert_eq!(story.wait(60), [""; 0], "no turn runs");
    // The limits hold for the next turn too, until others are stated.
    story.exchange(TurnStart, Some("t2"), None);
    assert_eq!(story.go(1..=7).len(), 1);
    story.tell(TURN_STARTED, r#"{"step_limit":100}"#);
    assert!(story.go(1..=20).is_empty());
    for payload in ["{", r#"{"step_limit":"many","time_limit_ms":-1}"#, r#"{"step_limit":0}"#, "[]", "7"] {
        assert_eq!(Limits::read(payload), Limits::default(), "{payload}");
    }
}

#[test]
fn time_is_reported_at_its_time() {
    let mut story = Story::timed(100);
    story.settings.warn_time = vec![50, 80];
    story.exchange(TurnStart, Some("t"), None);
    assert_eq!(story.wait(49), [""; 0]);
    assert_eq!(story.wait(1), ["timeout.warning 50 of 100 50"]);
    assert_eq!(story.wait(500), ["timeout.warning 80 of 100 80"]);
    assert_eq!(story.exchange(TurnEnd, None, None), ["timeout.reset"]);
    story.exchange(TurnStart, Some("t"), None);
    story.exchange(TurnEnd, None, None);
    assert_eq!(story.wait(500), [""; 0], "a turn that ended in time");
}

#[test]
fn a_client_start_is_no_turn() {
    let mut story = Story::timed(100);
    story.exchange(TurnStart, None, None);
    assert_eq!(story.wait(3_600), [""; 0], "its user is away");
    story.tell(TURN_STARTED, "{}");
    story.exchange(TurnStart, Some("t1"), None);
    assert_eq!(story.wait(80), ["timeout.warning 80 of 100 80"]);
    // A loop that names no turns: its first tool shows that it goes on.
    let mut story = Story::timed(100);
    story.exchange(TurnStart, None, None);
    story.wait(50);
    story.exchange(AfterTool, None, None);
    assert_eq!(story.wait(30), ["timeout.warning 80 of 100 80"]);
}

#[test]
fn a_turn_that_continues_keeps_its_counts() {
    let mut story = Story::steps(10);
    story.exchange(TurnStart, Some("t1"), None);
    for step in ["1", "2", "3", "4", "5", "6"] {
        assert_eq!(story.exchange(AfterTool, Some("t1"), Some(step)), [""; 0]);
    }
    story.exchange(TurnEnd, Some("t1"), Some("6"));
    assert_eq!(story.exchange(AfterTool, Some("t1"), Some("7")), ["iteration.warning 7 of 10 70"]);
    assert_eq!(story.exchange(AfterTool, Some("t2"), Some("8")), ["iteration.reset"], "another turn");
}

#[test]
fn exchanges_that_move_no_agent_count_nothing() {
    let mut story = Story::steps(2);
    for trigger in [Trigger::Wake, Trigger::Pull] {
        let exchange = Exchange {
            trigger,
            step: Some("1".into()),
            ..Exchange::new(SessionId::new("s"), AfterTool, "c")
        };
        assert!(story.budgets.note_exchange(&exchange, &story.settings, story.now).is_empty());
    }
    assert_eq!(story.budgets.turns.len(), 0);
    assert!(story.exchange(AfterTool, None, None).is_empty(), "no step is named");
    story.settings.enabled = false;
    assert!(story.go(1..=5).is_empty());
}

#[test]
fn changed_settings_hold_for_running_turns() {
    let mut story = Story::timed(100);
    story.exchange(TurnStart, Some("t"), None);
    story.wait(30);
    story.settings.time = Some(Duration::from_secs(50));
    story.budgets.apply(&story.settings);
    assert_eq!(story.wait(20), ["timeout.warning 40 of 50 80"]);
    story.settings.enabled = false;
    story.budgets.apply(&story.settings);
    assert_eq!((story.budgets.turns.len(), story.budgets.poll_timeout()), (0, None));
}

#[test]
fn a_successor_keeps_the_turn() {
    let mut story = Story::steps(10);
    story.exchange(TurnStart, None, None);
    story.go(1..=6);
    let (from, to) = (SessionId::new("s"), SessionId::new("t"));
    story.budgets.follow(&Succession::Continued { from, to: to.clone() });
    let exchange = Exchange { step: Some("7".into()), ..Exchange::new(to.clone(), AfterTool, "c") };
    let found = story.budgets.note_exchange(&exchange, &story.settings, story.now);
    assert_eq!(shown(&found), ["iteration.warning 7 of 10 70"]);
    story.budgets.follow(&Succession::Ended { session: to, parent: None });
    assert_eq!(story.budgets.turns.len(), 0);
}

#[test]
fn a_full_table_evicts_the_longest_silent_session() {
    let mut story = Story::steps(10);
    for number in 0..=SESSIONS_MAX {
        let session = SessionId::new(&format!("s{number}"));
        story.now = Timestamp::from_millis(u64::try_from(number).expect("small") + 1);
        story.budgets.note_exchange(&Exchange::new(session, TurnStart, "c"), &story.settings, story.now);
    }
    assert_eq!(story.budgets.turns.len(), SESSIONS_MAX);
    assert!(!story.budgets.turns.contains_key(&SessionId::new("s0")));
}

//! Detects an agent that repeats calls with the same outcomes.
//!
//! Calls are equal if their tools, arguments and outcomes are equal. The end of a turn's calls is a
//! loop if it is one call repeated four times (three times if it fails), or a sequence of two to
//! four calls repeated three times. It is reported again when the repetitions have doubled, so a
//! loop of a thousand successful calls is reported eight times. A changed outcome is progress:
//! edits between two test runs, or a command with changing output, are not a loop. Calls whose
//! `args` and `result` the harness omits cannot be compared, and end a loop.
//!
//! Source: the thresholds of other agents. One uses 4 equal calls, 3 failing calls and 3 cycles of
//! two; another 5 equal calls.

use std::collections::VecDeque;

use journal::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    event::{EventRef, SessionId, Severity, cut_text, strip_text},
    hash::first_64_bits,
    session::{CLOSING_EVENT, is_started_by_client},
    settings::settings,
    sorted::SortedMap,
};

/// The longest detected sequence of calls.
const PERIOD_MAX: usize = 4;
/// Repetitions that make a sequence of several calls a loop.
const CYCLES: u32 = 3;
/// Repetitions that make a failing call a loop.
const FAILURES: u32 = 3;
/// Most sessions with kept calls, at some 400 bytes each; beyond it the one that was silent longest
/// is evicted.
const SESSIONS_MAX: usize = 1_000;
/// Most characters of a call in a finding.
const CALL_CHARS_MAX: usize = 100;

const SUCCEEDED: &str = "tool.call.success";
const TURN_STARTED: &str = "agent.turn.start";
const LOOP_DETECTED: &str = "agent.loop.detected";

// A single repetition may be intended, and a hundred are always a loop.
settings! {
    /// Notifies an agent that repeats the same calls with the same results
    /// (`agent.loop.detected`).
    enabled: bool = true, flag();
    /// How often a call is repeated until it is a loop. Three times are enough for a call that
    /// fails, and for a sequence of two to four calls.
    repeats: u32 = 4, number(2..=100);
}

/// The last calls of each session.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Loops {
    sessions: SortedMap<SessionId, Tail>,
}

/// The end of a session's calls.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Tail {
    /// The last [`PERIOD_MAX`], oldest first.
    calls: VecDeque<Call>,
    /// For each period: number of last calls that equal the call one period before.
    equal: [u32; PERIOD_MAX],
    /// For each period: time of the first of those calls.
    since: [Timestamp; PERIOD_MAX],
    /// The period of the reported loop, and the repetitions that cause the next report.
    found: Option<(usize, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Call {
    /// The first 64 bits of a SHA-256 over tool, arguments and outcome.
    hash: u64,
    /// For display.
    shown: String,
    has_failed: bool,
    ended_at: Timestamp,
}

/// A harness's report of an ended call. Each field may have any JSON value.
#[derive(Debug, Deserialize)]
struct Ended {
    #[serde(default, deserialize_with = "present")]
    tool_name: Option<Comparable>,
    #[serde(default, deserialize_with = "present")]
    args: Option<Comparable>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Comparable>,
    #[serde(default, deserialize_with = "present")]
    subject: Option<Comparable>,
}

impl Loops {
    /// Takes a trusted event of `session`; returns the finding, if any.
    pub(super) fn observe(
        &mut self,
        session: &SessionId,
        event: &EventRef<'_>,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<Finding> {
        match event.event_type {
            SUCCEEDED | "tool.call.failure" | "tool.call.timeout" => {}
            // Earlier calls belong to the same task.
            TURN_STARTED if is_started_by_client(event.payload) => return None,
            TURN_STARTED | CLOSING_EVENT => {
                self.sessions.remove(session);
                return None;
            }
            _ => return None,
        }
        if !settings.enabled {
            self.sessions.clear();
            return None;
        }
        let Some(call) = Call::read(event, now) else {
            self.sessions.remove(session);
            return None;
        };
        self.make_room(session);
        let tail = self.sessions.get_or_default(session.clone());
        tail.push(call);
        tail.find(settings.repeats)
    }

    /// Forgets the calls of a session.
    pub(super) fn forget(&mut self, session: &SessionId) {
        self.sessions.remove(session);
    }

    fn make_room(&mut self, session: &SessionId) {
        if self.sessions.len() >= SESSIONS_MAX && !self.sessions.contains_key(session) {
            self.sessions.pop_least(|tail| tail.calls.back().map(|call| call.ended_at));
        }
    }
}

impl Tail {
    fn push(&mut self, call: Call) {
        for ((period, equal), since) in (1..).zip(&mut self.equal).zip(&mut self.since) {
            let before = self.calls.len().checked_sub(period).and_then(|at| self.calls.get(at));
            match before.filter(|before| before.hash == call.hash) {
                None => *equal = 0,
                Some(before) => {
                    if *equal == 0 {
                        *since = before.ended_at;
                    }
                    *equal = equal.saturating_add(1);
                }
            }
        }
        self.calls.push_back(call);
        self.calls.drain(..self.calls.len().saturating_sub(PERIOD_MAX));
    }

    /// The loop completed by the last call, if it is to be reported.
    fn find(&mut self, repeats: u32) -> Option<Finding> {
        let of_period = |(period, equal): (usize, &u32)| {
            let length = u32::try_from(period).unwrap_or(u32::MAX);
            let is_whole = equal.is_multiple_of(length);
            let least = self.least(period, repeats);
            let repetitions = equal / length + 1;
            (is_whole && repetitions >= least).then_some((period, repetitions, least))
        };
        let looped = (1..).zip(&self.equal).find_map(of_period);
        self.found = self.found.filter(|(period, _)| self.is_still(*period));
        let (period, repetitions, least) = looped?;
        let due = match self.found {
            Some((of, again_at)) if of == period => again_at,
            // Repetitions of a shorter sequence are also repetitions of longer ones.
            Some((of, _)) if of < period => return None,
            Some(_) | None => least,
        };
        if repetitions < due {
            return None;
        }
        self.found = Some((period, repetitions.saturating_mul(2)));
        Some(self.finding(period, repetitions))
    }

    /// Repetitions that make a sequence a loop.
    fn least(&self, period: usize, repeats: u32) -> u32 {
        match (period, self.calls.back()) {
            (1, Some(call)) if call.has_failed => FAILURES.min(repeats),
            (1, _) => repeats,
            (_, _) => CYCLES,
        }
    }

    fn is_still(&self, period: usize) -> bool {
        period.checked_sub(1).and_then(|at| self.equal.get(at)).is_some_and(|equal| *equal > 0)
    }

    fn finding(&self, period: usize, repetitions: u32) -> Finding {
        let calls = self.calls.iter().skip(self.calls.len().saturating_sub(period));
        let (shown, failed): (Vec<&str>, Vec<bool>) =
            calls.map(|call| (call.shown.as_str(), call.has_failed)).unzip();
        let last = self.calls.back().map_or(Timestamp::ZERO, |call| call.ended_at);
        let first = period.checked_sub(1).and_then(|at| self.since.get(at)).copied().unwrap_or(last);
        let outcome = if failed.iter().all(|failed| *failed) { "same error" } else { "same result" };
        Finding {
            event_type: LOOP_DETECTED,
            severity: Severity::Warning,
            name: format!("loop-{period}"),
            payload: json!({
                "pattern": shown.join(", "),
                "repetitions": repetitions,
                "window_seconds": last.since(first).as_secs(),
                "outcome": format!("{outcome} each time"),
            }),
        }
    }
}

impl Call {
    /// Parses the event of an ended call; `None` if it is not comparable.
    fn read(event: &EventRef<'_>, ended_at: Timestamp) -> Option<Self> {
        let has_failed = event.event_type != SUCCEEDED;
        let Ended { tool_name, args, result, subject } = serde_json::from_str(event.payload).ok()?;
        let (Comparable(tool_name), Comparable(args), Comparable(result)) = (tool_name?, args?, result?);
        let mut hash = Sha256::new();
        for part in [tool_name.as_str(), &args, if has_failed { "failed" } else { "succeeded" }, &result] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(part);
        }
        let hash = first_64_bits(hash);
        let shown =
            subject.map_or_else(|| tool_name.clone(), |Comparable(subject)| format!("{tool_name} {subject}"));
        let shown = cut_text(strip_text(&shown), CALL_CHARS_MAX).into_owned();
        Some(Self { hash, shown, has_failed, ended_at })
    }
}

/// What a detector found, before it becomes an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) event_type: &'static str,
    pub(super) severity: Severity,
    /// Distinguishes it from other findings of the session for the same event.
    pub(super) name: String,
    pub(super) payload: Value,
}

/// The text of a value in a payload: a string as it is, any other value as JSON whose objects have
/// sorted keys, so the order in which a program writes them does not count.
#[derive(Debug, PartialEq, Eq)]
struct Comparable(String);

/// Reads a field that may have any value: `null` is one, so only an absent field is `None`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Comparable>, D::Error> {
    Value::deserialize(from).map(|value| Some(Comparable::new(value)))
}

impl Comparable {
    fn new(value: Value) -> Self {
        Self(match value {
            Value::String(text) => text,
            Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Array(_) | Value::Object(_) => {
                let mut value = value;
                // A payload has few levels, so this cannot exhaust the stack.
                value.sort_all_objects();
                value.to_string()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Provenance;

    struct Story {
        loops: Loops,
        settings: Settings,
        calls: u64,
    }

    impl Story {
        fn new() -> Self {
            Self { loops: Loops::default(), settings: Settings::default(), calls: 0 }
        }

        fn event(&mut self, session: &str, event_type: &str, payload: &str) -> Option<(String, u64)> {
            self.calls += 1;
            let id = self.calls.to_string();
            let event = EventRef {
                id: &id,
                event_type,
                source: "claude-code",
                provenance: Provenance::Harness,
                severity: Severity::Debug,
                timestamp: Timestamp::ZERO,
                payload,
                dedupe_key: None,
                session: Some(session),
                workspace: None,
                cause: None,
                deliver_after: None,
            };
            let now = Timestamp::from_millis(self.calls);
            let found = self.loops.observe(&SessionId::new(session), &event, &self.settings, now)?;
            let text = |key: &str| found.payload[key].as_str().expect("a text").to_owned();
            Some((text("pattern"), found.payload["repetitions"].as_u64().expect("a number")))
        }

        /// Adds a call such as `make:1!`: tool and arguments, the result after a colon, and a mark
        /// for a failure.
        fn call(&mut self, call: &str) -> Option<(String, u64)> {
            let (call, has_failed) = call.strip_suffix('!').map_or((call, false), |call| (call, true));
            let (tool, result) = call.split_once(':').unwrap_or((call, "ok"));
            let payload =
                json!({ "tool_name": tool, "args": tool, "result": result, "subject": "x" }).to_string();
            self.event("s", if has_failed { "tool.call.failure" } else { "tool.call.success" }, &payload)
        }

        /// The positions, from 1, of the calls that complete a loop.
        fn found(&mut self, calls: &str) -> Vec<usize> {
            let found = calls.split(' ').map(|call| self.call(call).is_some()).collect::<Vec<bool>>();
            (1..).zip(found).filter(|(_, found)| *found).map(|(at, _)| at).collect()
        }
    }

    #[test]
    fn repeated_calls_with_equal_outcomes_form_a_loop() {
        for (what, calls, expected) in [
            ("four equal calls", "a a a a", &[4][..]),
            ("three failing ones", "a! a! a!", &[3]),
            ("two in turn", "a b a b a b", &[6]),
            ("three in turn", "a b c a b c a b c", &[9]),
            ("four in turn, after others", "x a b c d a b c d a b c d", &[13]),
            ("a poll with changing output", "a:1 a:2 a:3 a:4 a:5 a:6", &[]),
            ("edits between the runs of a test", "test:1! edit test:2! edit test:3! edit test:4!", &[]),
            ("files in turn", "a b c d e f g h i j k l m n o p q r s t", &[]),
            ("twice and something else", "a a b a a c a a d", &[]),
            ("a success after failures", "a! a! a a a", &[]),
            ("a cycle of five is too long to be looked for", "a b c d e a b c d e a b c d e", &[]),
        ] {
            assert_eq!(Story::new().found(calls), expected, "{what}");
        }
    }

    #[test]
    fn a_loop_is_reported_again_after_repetitions_double() {
        let equal = "a ".repeat(364);
        assert_eq!(Story::new().found(equal.trim_end()), [4, 8, 16, 32, 64, 128, 256]);
        let in_turn = "a b ".repeat(30);
        assert_eq!(Story::new().found(in_turn.trim_end()), [6, 12, 24, 48]);
        assert_eq!(Story::new().found("a a a a b a a a a"), [4, 9], "another one after it was broken");
    }

    #[test]
    fn it_is_named_by_its_calls() {
        let mut story = Story::new();
        story.found("a b a b a");
        assert_eq!(story.call("b"), Some(("a x, b x".to_owned(), 3)));
    }

    #[test]
    fn prompts_and_incomparable_calls_end_a_loop() {
        let mut story = Story::new();
        story.found("a a a");
        story.event("s", TURN_STARTED, r#"{"started_by":"client"}"#);
        assert!(story.call("a").is_some(), "the client itself went on");
        story.found("b b b");
        story.event("s", TURN_STARTED, r#"{"started_by":"prompt"}"#);
        assert_eq!(story.call("b"), None);
        story.found("c c c");
        story.event("s", "tool.call.success", r#"{"tool_name":"c","args":"c"}"#);
        assert_eq!(story.call("c"), None);
        assert_eq!(story.event("other", "tool.call.success", r#"{"tool_name":"c"}"#), None);
    }

    #[test]
    fn values_of_any_kind_are_compared() {
        for (what, one, other) in [
            ("objects", r#"{"q":"x","in":{"a":1,"b":[1,2]}}"#, r#"{"in": {"b": [1, 2], "a": 1}, "q": "x"}"#),
            ("an array", r#"["a",1]"#, r#"[ "a", 1 ]"#),
            ("numbers", "7", "7"),
            ("booleans", "true", "true"),
            ("nothing", "null", "null"),
            ("texts", r#""a""#, r#""\u0061""#),
        ] {
            for field in ["args", "result", "subject"] {
                let mut story = Story::new();
                let mut call = |value: &str| {
                    let others = ["args", "result", "subject"].into_iter().filter(|other| *other != field);
                    let others: String = others.map(|other| format!(r#","{other}":"same""#)).collect();
                    let payload = format!(r#"{{"tool_name":"t","{field}":{value}{others}}}"#);
                    story.event("s", "tool.call.success", &payload).is_some()
                };
                let found = [one, other, one, other].map(&mut call);
                assert_eq!(found, [false, false, false, true], "{what} as {field}");
            }
        }
        let mut story = Story::new();
        for args in [r#"{"q":1}"#, r#"{"q":2}"#, r#"{"q":"1"}"#, r#"[{"q":1}]"#, "null", "1", "false"] {
            let payload = format!(r#"{{"tool_name":"t","args":{args},"result":null}}"#);
            assert_eq!(story.event("s", "tool.call.success", &payload), None, "{args} is another call");
        }
    }

    #[test]
    fn a_full_table_evicts_the_longest_silent_session() {
        let mut story = Story::new();
        let payload = r#"{"tool_name":"a","args":"a","result":"ok"}"#;
        for number in 0..=SESSIONS_MAX {
            story.event(&format!("s{number}"), "tool.call.success", payload);
        }
        assert_eq!(story.loops.sessions.len(), SESSIONS_MAX);
        assert!(!story.loops.sessions.contains_key(&SessionId::new("s0")));
        story.event("s1", CLOSING_EVENT, "{}");
        assert!(!story.loops.sessions.contains_key(&SessionId::new("s1")));
    }

    #[test]
    fn a_disabled_detector_finds_no_loop() {
        let mut story = Story::new();
        story.settings.enabled = false;
        assert!(story.found("a a a a a").is_empty());
        story.settings = Settings { enabled: true, repeats: 2 };
        assert_eq!(story.found("a a"), [2]);
    }
}

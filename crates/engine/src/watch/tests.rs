//! Tests watches in simulated time: how each ends, exactly once, and what does not end it.

use serde_json::json;

use super::{condition::Terms, *};
use crate::{
    event::{OWN_SOURCE, Payload, Seq, Trust},
    exchange::Exchange,
    fold::{Dispatched, Effects, Fold},
    notification::InjectionPoint,
    session::Succession,
    snapshot,
};

const START: Timestamp = Timestamp::from_millis(1_000_000_000);

fn after(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

fn watch(id: &str, conditions: &[&str]) -> Watch {
    let terms = Terms { now: START, utc_offset: &|_| 0, folder: Some("/w") };
    let part = |text: &&str| Part {
        text: (*text).to_owned(),
        condition: condition::parse(text, &terms).expect("a condition"),
        met: None,
    };
    Watch {
        id: id.into(),
        parts: conditions.iter().map(part).collect(),
        needs: Needs::Any,
        note: None,
        kind: None,
        priority: None,
        set_at: START,
        expires_at: after(3_600),
        session: Some(SessionId::new("s1")),
        workspace: Some("/w".into()),
        caller: None,
    }
}

/// Watches, and the position of the last event.
#[derive(Default)]
struct World {
    watches: Watches,
    seq: u64,
    /// Whether the checks of a later push are followed.
    goes_on: bool,
}

impl World {
    fn with(watches: &[&Watch]) -> Self {
        let mut world = Self::default();
        for watch in watches {
            assert_eq!(world.take(&watch.set_event(), Trust::Trusted, START), Vec::<String>::new());
        }
        world
    }

    fn take(&mut self, event: &Event, trust: Trust, now: Timestamp) -> Vec<String> {
        self.seq += 1;
        let (event, mut effects) = (event.as_ref(), Effects::default());
        let dispatched = Dispatched::trusted(Seq(self.seq), &event, now);
        let dispatched = Dispatched { trust, checks_go_on: self.goes_on, ..dispatched };
        self.watches.observe(&dispatched, &(), &mut effects);
        shown(&effects.into_events())
    }

    /// Does what is due; returns the events that follow.
    fn take_due(&mut self, now: Timestamp) -> Vec<String> {
        let mut effects = Effects::default();
        self.watches.handle_timeout(now, &mut effects);
        shown(&effects.into_events())
    }

    fn publish(&mut self, event_type: &str, session: Option<&str>, workspace: Option<&str>) -> Vec<String> {
        self.take(&other_event(event_type, session, workspace), Trust::Trusted, after(5))
    }

    fn open(&self) -> Vec<&str> {
        self.watches.open().map(|watch| &*watch.id).collect()
    }
}

fn other_event(event_type: &str, session: Option<&str>, workspace: Option<&str>) -> Event {
    Event {
        id: "e".into(),
        event_type: event_type.parse().expect("valid"),
        source: "ci".into(),
        provenance: Provenance::Remote,
        severity: Severity::Info,
        timestamp: START,
        payload: Payload::from(json!({})),
        dedupe_key: None,
        session: session.map(SessionId::new),
        workspace: workspace.map(Into::into),
        cause: None,
        deliver_after: None,
    }
}

fn shown(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| {
        let session = event.session.as_ref().map_or("-", SessionId::as_str);
        format!("{} {} for {session}: {}", event.event_type, event.id, event.payload.as_str())
    };
    events.iter().map(line).collect()
}

#[test]
fn tool_and_context_conditions_are_of_one_session() {
    let (tool, context) = (watch("w1", &["tool:mcp__*"]), watch("w2", &["context:80%"]));
    let mut world = World::with(&[&tool, &context]);
    let mut note = |session: &str, name: &str| {
        let mut effects = Effects::default();
        let exchange = Exchange::new(SessionId::new(session), InjectionPoint::AfterTool, "c1");
        let exchange = Exchange { tool: Some(name.into()), ..exchange };
        world.watches.note_exchange(&exchange, &(), after(5), &mut effects);
        shown(&effects.into_events())
    };
    assert_eq!((note("s2", "mcp__x"), note("s1", "Bash")), (Vec::new(), Vec::new()));
    assert_eq!(
        note("s1", "mcp__x"),
        ["reminder.due w1 for s1: {\"watch\":\"w1\",\"after\":\"5s\",\"text\":\"tool:mcp__*\"}"]
    );
    let mut use_up = |session, used: u64| {
        let event = other_event("budget.token.warning", Some(session), None);
        let (event, mut effects) = (event.as_ref(), Effects::default());
        let dispatched =
            Dispatched { used_context: Some(used), ..Dispatched::trusted(Seq(9), &event, after(9)) };
        world.watches.observe(&dispatched, &(), &mut effects);
        shown(&effects.into_events())
    };
    assert_eq!((use_up("s2", 90), use_up("s1", 79)), (Vec::new(), Vec::new()));
    assert_eq!(
        use_up("s1", 80),
        ["reminder.due w2 for s1: {\"watch\":\"w2\",\"after\":\"9s\",\"text\":\"context:80%\"}"]
    );
    assert_eq!(world.open(), Vec::<&str>::new());
}

#[test]
fn the_first_met_condition_ends_a_watch_once() {
    let exit = watch("w1", &["exit 4711", "in 20m"]);
    let mut world = World::with(&[&exit]);
    let fired = world.take(&exit.met_event(0, "it has ended", after(61)), Trust::Trusted, after(61));
    let expected = r#"watch.fired w1 for s1: {"watch":"w1","after":"1m","condition":"exit 4711","state":"it has ended"}"#;
    assert_eq!(fired, [expected]);
    assert_eq!(
        world.take(&exit.met_event(0, "it has ended", after(62)), Trust::Trusted, after(62)),
        Vec::<String>::new()
    );
    assert_eq!(world.take_due(after(10_000)), Vec::<String>::new());
    assert_eq!(world.watches.poll_timeout(), None);
}

#[test]
fn all_conditions_are_waited_for_in_any_order() {
    let both =
        Watch { needs: Needs::All, note: Some("go on".into()), ..watch("w1", &["port 3000", "file x"]) };
    let mut world = World::with(&[&both]);
    assert!(world.take(&both.met_event(1, "there", after(1)), Trust::Trusted, after(1)).is_empty());
    let fired = world.take(&both.met_event(0, "open", after(2)), Trust::Trusted, after(2));
    let expected = r#"watch.fired w1 for s1: {"watch":"w1","note":"go on","after":"2s","condition":"port 3000; file x","state":"open; there","paths":["/w/x"]}"#;
    assert_eq!(fired, [expected]);
}

#[test]
fn a_watch_for_time_alone_is_a_reminder() {
    let note = Some("Run the slow tests.".to_owned());
    let reminder = Watch { note, kind: Some(ReminderKind::Checkpoint), ..watch("w1", &["in 20m"]) };
    let bare = Watch { expires_at: after(7_200), ..watch("w2", &["at 14:17:00"]) };
    let mut world = World::with(&[&reminder, &bare]);
    assert_eq!(world.watches.poll_timeout(), Some(after(1_200)));
    assert!(world.take_due(after(1_199)).is_empty());
    let due = world.take_due(after(1_200));
    let expected = r#"reminder.due w1 for s1: {"watch":"w1","after":"20m","text":"Run the slow tests.","kind":"checkpoint"}"#;
    assert_eq!(due, [expected]);
    let due = world.take_due(after(1_820));
    assert_eq!(due, [r#"reminder.due w2 for s1: {"watch":"w2","after":"30m","text":"at 14:17:00"}"#]);
}

#[test]
fn an_expired_watch_names_its_open_conditions() {
    let both = Watch { needs: Needs::All, ..watch("w1", &["port 3000", "file x"]) };
    let mut world = World::with(&[&both]);
    world.take(&both.met_event(1, "there", after(1)), Trust::Trusted, after(1));
    let expired = world.take_due(after(3_600));
    assert_eq!(
        expired,
        [r#"watch.expired w1 for s1: {"watch":"w1","after":"1h00m","condition":"port 3000"}"#]
    );
}

#[test]
fn an_event_counts_if_it_concerns_who_waits() {
    for (session, workspace, is_meant) in [
        (Some("s1"), None, true),
        (Some("s2"), Some("/w"), false),
        (None, Some("/w/sub"), true),
        (None, Some("/other"), false),
        (None, None, true),
    ] {
        let mut world = World::with(&[&watch("w1", &["event ci.**"])]);
        assert!(world.publish("build.done", session, workspace).is_empty());
        let fired = world.publish("ci.check.failed", session, workspace);
        assert_eq!(!fired.is_empty(), is_meant, "{session:?} {workspace:?}");
        let reason = |events: &[Seq]| world.watches.reason_against(&SessionId::new("s1"), events);
        assert_eq!(reason(&[Seq(world.seq)]).is_some(), is_meant);
        assert_eq!(reason(&[Seq(world.seq), Seq(99)]), None);
    }
}

#[test]
fn an_untrusted_event_makes_its_watch_untrusted() {
    for (trust, expected) in [(Trust::Trusted, Provenance::Own), (Trust::Untrusted, Provenance::Quoted)] {
        let mut watches = World::with(&[&watch("w1", &["event ci.**"])]).watches;
        let event = other_event("ci.run.failed", None, None);
        let (event, mut effects) = (event.as_ref(), Effects::default());
        let dispatched = Dispatched { trust, ..Dispatched::trusted(Seq(9), &event, after(1)) };
        watches.observe(&dispatched, &(), &mut effects);
        assert_eq!(
            effects.into_events().iter().map(|event| event.provenance).collect::<Vec<_>>(),
            [expected]
        );
    }
}

#[test]
fn turns_that_exchanges_show_are_counted() {
    let mut world = World::with(&[&watch("w1", &["in 2 turns"]), &watch("w2", &["in 1 turn", "file x"])]);
    let mut end = |session: &str| {
        let mut effects = Effects::default();
        world.watches.end_turn(&SessionId::new(session), after(5), &mut effects);
        let ended = effects.into_events();
        assert!(ended.iter().all(|event| event.provenance == Provenance::Own), "{ended:?}");
        ended.len()
    };
    assert_eq!([end("s2"), end("s1"), end("s1"), end("s1")], [0, 1, 1, 0]);
}

#[test]
fn turns_of_the_own_session_are_counted() {
    let mut world = World::with(&[&watch("w1", &["in 2 turns"])]);
    let end = |world: &mut World, session: &str| world.publish("agent.turn.end", Some(session), None).len();
    assert_eq!([end(&mut world, "s1"), end(&mut world, "s2"), end(&mut world, "s1")], [0, 0, 1]);
}

#[test]
fn an_idle_session_fires_its_idle_watches() {
    let mut world = World::with(&[&watch("w1", &["idle s2"])]);
    assert!(world.watches.waits_for_idle());
    let mut effects = Effects::default();
    world.watches.note_idle(|_| false, after(1), &mut effects);
    assert!(effects.take().is_empty());
    world.watches.note_idle(|session| session.as_str() == "s2", after(2), &mut effects);
    assert_eq!(effects.into_events().len(), 1);
    assert!(!world.watches.waits_for_idle());
}

#[test]
fn nobody_else_sets_meets_or_ends_a_watch() {
    let exit = watch("w1", &["exit 1"]);
    let foreign = |event: Event| Event { provenance: Provenance::Harness, ..event };
    let mut world = World::with(&[&exit]);
    world.take(&foreign(watch("w2", &["exit 1"]).set_event()), Trust::Trusted, START);
    world.take(&foreign(exit.met_event(0, "x", START)), Trust::Trusted, START);
    world.take(&foreign(exit.cancelled_event(START)), Trust::Trusted, START);
    let quoted = Event { provenance: Provenance::Quoted, ..exit.cancelled_event(START) };
    world.take(&quoted, Trust::Trusted, START);
    assert_eq!(world.open(), ["w1"]);
    world.take(&exit.cancelled_event(START), Trust::Trusted, START);
    assert_eq!(world.open(), Vec::<&str>::new());
}

#[test]
fn a_failed_check_ends_its_watch() {
    let port = watch("w1", &["port 3000"]);
    let mut world = World::with(&[&port]);
    let failed = port.failed_event(0, "too many open files", after(9));
    let expected = r#"watch.failed w1 for s1: {"watch":"w1","after":"9s","condition":"port 3000","error":"too many open files"}"#;
    assert_eq!(shown(std::slice::from_ref(&failed)), [expected]);
    world.take(&failed, Trust::Trusted, after(9));
    assert_eq!(world.open(), Vec::<&str>::new());
}

#[test]
fn watches_end_with_their_session_except_reminders() {
    let (s1, s2) = (SessionId::new("s1"), SessionId::new("s2"));
    let (exit, reminder) = (watch("w1", &["exit 1"]), watch("w2", &["in 20m"]));
    let (turns, file) = (watch("w3", &["in 2 turns"]), Watch { session: None, ..watch("w4", &["file x"]) });
    let mut world = World::with(&[&exit, &reminder, &turns, &file]);
    let mut effects = Effects::default();
    let (from, to) = (s1.clone(), s2.clone());
    world.watches.follow(&Succession::Continued { from, to }, &mut effects);
    let due = world.watches.open().filter(|watch| watch.session.as_ref() == Some(&s2)).count();
    assert_eq!(due, 3);
    world.watches.follow(&Succession::Ended { session: s1, parent: None }, &mut effects);
    assert_eq!(world.open(), ["w1", "w2", "w3", "w4"]);
    world.watches.follow(&Succession::Ended { session: s2, parent: None }, &mut effects);
    assert_eq!(world.open(), ["w2", "w4"]);
    let due = world.take_due(after(1_200));
    assert_eq!(due, [r#"reminder.due w2 for -: {"watch":"w2","after":"20m","text":"in 20m"}"#]);
}

#[test]
fn a_snapshot_restores_every_watch() {
    let mut world = World::with(&[&watch("w1", &["event ci.**"]), &watch("w2", &["in 20m", "line a /b/"])]);
    assert_eq!(world.watches.take_changes().map(|open| open.len()), Some(2));
    assert!(world.watches.take_changes().is_none());
    world.publish("ci.run.failed", Some("s1"), None);
    let bytes = snapshot::write(&world.watches).expect("encoded");
    let mut again: Watches = snapshot::read(&bytes).expect("decoded");
    let open = |watches: &Watches| watches.open().map(|watch| Watch::clone(watch)).collect::<Vec<_>>();
    assert_eq!(open(&again), open(&world.watches));
    assert_eq!(again.poll_timeout(), Some(after(1_200)));
    assert!(again.reason_against(&SessionId::new("s1"), &[Seq(3)]).is_some());
    assert!(again.take_changes().is_some(), "who follows them begins with all");
}

#[test]
fn there_are_no_more_than_the_bound() {
    let mut world = World::default();
    for number in 0..=ALL_MAX {
        world.take(&watch(&format!("w{number}"), &["exit 1"]).set_event(), Trust::Trusted, START);
    }
    assert_eq!(world.open().len(), ALL_MAX);
}

#[test]
fn ci_watches_fire_only_for_matching_trusted_checks() {
    let ended = |event_type: &str, payload: serde_json::Value, provenance| Event {
        source: OWN_SOURCE.into(),
        payload: Payload::from(payload),
        provenance,
        ..other_event(event_type, Some("s1"), Some("/w"))
    };
    let payload =
        |branch: &str| json!({ "branch": branch, "commit": "384a3e139", "summary": "4 checks passed" });
    let reason = |reason: &str| json!({ "branch": "fix", "reason": reason, "summary": "4 checks passed" });
    use Provenance::{Local, Own, Quoted};
    for (condition, event, trust, is_meant) in [
        ("ci", ended("ci.run.completed", payload("fix"), Own), Trust::Trusted, true),
        ("ci HEAD", ended("ci.run.failed", payload("fix"), Own), Trust::Trusted, true),
        ("ci fix", ended("ci.follow.ended", reason("no_checks"), Own), Trust::Trusted, true),
        ("ci 384a3e139a2dfa", ended("ci.run.completed", payload("fix"), Own), Trust::Trusted, true),
        ("ci 384a3e1", ended("ci.run.completed", payload("fix"), Own), Trust::Trusted, true),
        ("ci 384a", ended("ci.run.completed", payload("fix"), Own), Trust::Trusted, false),
        ("ci main", ended("ci.run.completed", payload("fix"), Own), Trust::Trusted, false),
        ("ci", ended("ci.check.failed", payload("fix"), Own), Trust::Trusted, false),
        ("ci", ended("ci.run.completed", payload("fix"), Local), Trust::Trusted, false),
        ("ci", ended("ci.run.completed", payload("fix"), Quoted), Trust::Untrusted, false),
    ] {
        let mut world = World::with(&[&watch("w1", &[condition])]);
        let fired = world.take(&event, trust, after(5));
        assert_eq!(!fired.is_empty(), is_meant, "{condition} {event:?}");
        assert!(!is_meant || fired[0].contains(r#""state":"4 checks passed""#), "{fired:?}");
        assert_eq!(
            world.watches.reason_against(&SessionId::new("s1"), &[Seq(world.seq)]).is_some(),
            is_meant
        );
    }
}

#[test]
fn checks_of_another_push_end_no_watch() {
    let ended = |event_type: &str, session: Option<&str>, reason: &str| Event {
        source: OWN_SOURCE.into(),
        payload: Payload::from(
            json!({ "branch": "fix", "commit": "384a3e139", "reason": reason, "summary": "-" }),
        ),
        provenance: Provenance::Own,
        ..other_event(event_type, session, Some("/w"))
    };
    let (run, superseded) = (("ci.run.completed", "ended"), ("ci.follow.ended", "superseded"));
    for (condition, (event_type, reason), session, goes_on, expected) in [
        // Without a ref the last push of the session is meant.
        ("ci", run, Some("s1"), false, Some("watch.fired")),
        ("ci", run, Some("s1"), true, None),
        ("ci", run, None, false, None),
        ("ci", superseded, Some("s1"), false, None),
        ("ci fix", run, Some("s1"), true, Some("watch.fired")),
        ("ci fix", run, None, false, Some("watch.fired")),
        ("ci fix", superseded, Some("s1"), false, None),
        // Nobody asks for the checks of a commit any more that its branch has left.
        ("ci 384a3e139", superseded, Some("s1"), true, Some("watch.failed")),
        ("ci 384a3e139a2dfa", superseded, Some("s1"), false, Some("watch.failed")),
    ] {
        let mut world = World::with(&[&watch("w1", &[condition])]);
        world.goes_on = goes_on;
        let said = world.take(&ended(event_type, session, reason), Trust::Trusted, after(5));
        let kind = said.first().and_then(|said| said.split(' ').next());
        assert_eq!(kind, expected, "{condition} {event_type} {session:?} {goes_on}");
    }
}

#[test]
fn checks_that_cannot_be_known_fail_the_watch() {
    let ended = |payload: serde_json::Value| Event {
        source: OWN_SOURCE.into(),
        payload: Payload::from(payload),
        provenance: Provenance::Own,
        ..other_event("ci.follow.ended", Some("s1"), Some("/w"))
    };
    for reason in [
        "no_repository",
        "no_commit",
        "not_github",
        "no_gh",
        "not_authorised",
        "no_answer",
        "still_pending",
        "merged",
        "closed",
    ] {
        for conditions in [&["ci fix"][..], &["exit 1", "ci fix"], &["ci fix", "ci fix"]] {
            let mut world = World::with(&[&watch("w1", conditions)]);
            let end = ended(json!({ "reference": "fix", "reason": reason, "summary": "no access" }));
            let said = world.take(&end, Trust::Trusted, after(5));
            assert_eq!(said.len(), 1, "{reason} {conditions:?}: {said:?}");
            let wanted = [r#"watch.failed"#, r#""condition":"ci fix""#, r#""error":"no access""#];
            assert!(wanted.iter().all(|wanted| said[0].contains(wanted)), "{reason}: {said:?}");
            assert!(world.open().is_empty() && world.watches.take_changes().is_some(), "{reason}");
            assert!(
                world.watches.reason_against(&SessionId::new("s1"), &[Seq(world.seq)]).is_some(),
                "it is not repeated"
            );
        }
    }
}

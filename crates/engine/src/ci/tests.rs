use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::event::{Payload, Provenance, Severity, Trust};

mod wanted;

const COMMIT: &str = "1111111111111111111111111111111111111111";
const HOUR: u64 = 3_600;

/// Follows in simulated time: git and GitHub answer at once.
struct World {
    follows: Follows,
    plan: Plan,
    now: Timestamp,
    /// The published events: seconds since the start, type, id, payload.
    said: Vec<(u64, String, String, Value)>,
    /// The calls: time and follow.
    calls: Vec<(u64, Arc<str>)>,
    settings: Settings,
    commit: String,
}

fn remote() -> Remote {
    let [host, owner, name] = ["github.com", "acme", "shop"].map(str::to_owned);
    Remote { host, owner, name }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

impl World {
    fn new() -> Self {
        Self::with(Settings::default())
    }

    fn with(settings: Settings) -> Self {
        let mut follows = Follows::default();
        follows.apply(&settings, None);
        Self {
            follows,
            plan: Plan::default(),
            now: at(0),
            said: Vec::new(),
            calls: Vec::new(),
            settings,
            commit: COMMIT.to_owned(),
        }
    }

    fn feed(&mut self, event: &Event) {
        let (event, mut effects) = (event.as_ref(), Effects::default());
        let dispatched = Dispatched::trusted(Seq(1), &event, self.now);
        self.follows.observe(&dispatched, &self.settings, &mut effects);
        let seconds = self.now.as_millis() / 1_000;
        for event in effects.into_events() {
            let payload = Value::clone(event.payload.value());
            self.said.push((seconds, event.event_type.to_string(), event.id.to_string(), payload));
        }
    }

    fn push(&mut self, number: u64, payload: Value) {
        let event = Event {
            id: format!("call-{number}").into(),
            event_type: CALL_SUCCEEDED.parse().expect("valid"),
            source: "claude-code".into(),
            provenance: Provenance::Harness,
            severity: Severity::Debug,
            timestamp: self.now,
            payload: Payload::from(payload),
            dedupe_key: None,
            session: Some(SessionId::new("s1")),
            workspace: Some("/w".into()),
            cause: None,
            deliver_after: None,
        };
        self.feed(&event);
    }

    fn pushed(&mut self, number: u64) {
        self.push(number, json!({ "tool_name": "Bash", "pushed": [{ "folder": "/w" }] }));
    }

    /// Restarts from a snapshot.
    fn restart(&mut self) {
        let kept = serde_json::to_string(&self.follows).expect("serializes");
        self.follows = serde_json::from_str(&kept).expect("reads what it wrote");
        self.follows.apply(&self.settings, None);
    }

    /// Performs the next action if it is before `until`; returns whether there was one.
    fn step(&mut self, until: u64, answer: &mut dyn FnMut(&Follow, u64) -> Outcome) -> bool {
        if let Some(plan) = self.follows.take_plan() {
            self.plan = plan;
        }
        match self.plan.next(|_| false) {
            Some(Next::Find(follow)) => {
                let stdout = format!("{}\nfix\n", self.commit).into_bytes();
                let output = Output { code: Some(0), stdout, stderr: Vec::new() };
                let found = follow.read_found(&output, Some("/w".to_owned()), Some(remote()));
                self.feed(&follow.found_event(&found, self.now));
                true
            }
            Some(Next::Ask(follow, due)) if due < at(until) => {
                self.now = self.now.max(due);
                let seconds = self.now.as_millis() / 1_000;
                self.calls.push((seconds, Arc::clone(&follow.id)));
                let outcome = answer(&follow, seconds);
                let event = self.plan.answered_event(&follow, outcome, self.now);
                self.feed(&event);
                true
            }
            Some(Next::Ask(..)) | None => {
                self.now = self.now.max(at(until));
                false
            }
        }
    }

    fn run(&mut self, until: u64, mut answer: impl FnMut(u64) -> Outcome) {
        while self.step(until, &mut |_, seconds| answer(seconds)) {}
    }

    fn times(&self) -> Vec<u64> {
        self.calls.iter().map(|(seconds, _)| *seconds).collect()
    }

    /// Time, type, and the relevant payload fields.
    fn shown(&self) -> Vec<String> {
        let show = |(seconds, event_type, _, payload): &(u64, String, String, Value)| {
            let text = |key: &str| payload.get(key).and_then(Value::as_str);
            let what =
                text("reason").or(text("check")).or(text("body")).or(text("summary")).unwrap_or_default();
            format!("{seconds} {event_type} {what}")
        };
        self.said.iter().map(show).collect()
    }
}

fn failure(check: &str) -> Failure {
    Failure { check: check.to_owned(), summary: None, url: None, at: None }
}

fn checks(passed: u32, failed: &[&str], pending: u32) -> Checks {
    Checks {
        repo: "acme/shop".to_owned(),
        passed,
        failed: u32::try_from(failed.len()).expect("few"),
        pending,
        failures: failed.iter().map(|check| failure(check)).collect(),
        head: Head::Here,
        ..Checks::default()
    }
}

fn answer(passed: u32, failed: &[&str], pending: u32) -> Outcome {
    Outcome::Checks(checks(passed, failed, pending))
}

fn limited(wait_seconds: Option<u64>) -> Outcome {
    Outcome::Limited { wait_seconds, is_certain: true }
}

#[test]
fn pushes_are_polled_on_schedule_until_checks_end() {
    let mut world = World::new();
    world.run(HOUR, |_| panic!("nothing was pushed"));
    world.pushed(1);
    world.run(2 * HOUR, |now| match now - HOUR {
        0..60 => answer(0, &[], 3),
        60..120 => answer(1, &["unit"], 1),
        _ => answer(2, &["unit"], 0),
    });
    assert_eq!(world.times(), [10, 20, 30, 60, 90, 120].map(|age| HOUR + age));
    assert_eq!(world.shown(), ["3660 ci.check.failed unit", "3720 ci.run.failed 1 of 3 checks failed: unit"]);
    // Everything is up to date, so no event is published.
    world.pushed(2);
    world.run(3 * HOUR, |_| panic!("its checks have ended"));
    let end = &world.said.last().expect("an end").3;
    assert_eq!(
        (&end["repo"], &end["branch"], &end["commit"]),
        (&json!("acme/shop"), &json!("fix"), &json!("111111111"))
    );
}

#[test]
fn a_check_that_fails_again_is_reported_again() {
    let mut world = World::new();
    world.pushed(1);
    let failed_at = |minute: u64| {
        let at = Some(format!("2026-11-25T10:{minute:02}:00Z"));
        let failures = vec![Failure { at, ..failure("unit") }];
        Outcome::Checks(Checks { failures, ..checks(0, &["unit"], 1) })
    };
    world.run(70, |now| failed_at(now / 30));
    let times: Vec<u64> = world.said.iter().map(|said| said.0).collect();
    assert_eq!(times, [10, 30, 60]);
}

#[test]
fn an_early_end_needs_a_second_confirming_answer() {
    let mut world = World::new();
    world.pushed(1);
    // A status of a bot arrives before the first job.
    world.run(HOUR, |now| if now == 10 { answer(1, &[], 0) } else { answer(3, &[], 0) });
    assert_eq!(
        (world.times(), world.shown()),
        (vec![10, 20, 30], vec!["30 ci.run.completed 3 checks passed".to_owned()])
    );
}

#[test]
fn calls_per_push_are_bounded() {
    let mut world = World::new();
    world.pushed(1);
    world.run(10 * HOUR, |_| answer(0, &[], 2));
    assert_eq!(world.calls.len(), 60);
    assert_eq!(world.shown(), ["2580 ci.follow.ended still_pending"]);
    assert_eq!(world.said[0].3["summary"], "2 checks pending after 43m; no longer polled");
    assert!(world.follows.open.is_empty());
}

#[test]
fn a_rate_limit_delays_all_calls_with_backoff() {
    let mut world = World::new();
    world.pushed(1);
    world.run(2 * HOUR, |now| match now {
        0..600 => limited(None),
        600..2_000 => limited(Some(1_500)),
        _ => answer(1, &[], 0),
    });
    // One, two, four, eight minutes; then the requested wait.
    assert_eq!(world.times(), [10, 70, 190, 430, 910, 2_410]);
    assert_eq!(world.shown(), ["2410 ci.run.completed 1 check passed"]);
}

#[test]
fn a_follow_without_login_ends_quietly_unless_requested() {
    let refused = || Outcome::Unauthorised { message: "please run gh auth login".to_owned() };
    let denied = || Outcome::Limited { wait_seconds: None, is_certain: false };
    for (enabled, severity) in [(Switch::Auto, Severity::Debug), (Switch::On, Severity::Info)] {
        let mut world = World::with(Settings { enabled, ..Settings::default() });
        world.pushed(1);
        world.run(HOUR, |_| refused());
        assert_eq!(world.shown(), ["10 ci.follow.ended not_authorised"]);
        let follow =
            Follow { is_asked: enabled != Switch::Auto, ..Follow::new("x".into(), None, "/w", at(0)) };
        assert_eq!(follow.ended_event(&End::Unauthorised(String::new()), at(0)).severity, severity);
        let mut world = World::with(Settings { enabled, ..Settings::default() });
        world.pushed(1);
        world.run(HOUR, |_| denied());
        assert_eq!(world.shown(), ["190 ci.follow.ended not_authorised"]);
    }
}

#[test]
fn each_other_end_is_said_once() {
    let head = |head: Head| Outcome::Checks(Checks { head, ..checks(0, &[], 1) });
    let pr =
        |state: PrState| Outcome::Checks(Checks { pr: Some(Pr { number: 4, state }), ..checks(0, &[], 1) });
    let run = |mut answer: Box<dyn FnMut(u64) -> Outcome>| {
        let mut world = World::new();
        world.pushed(1);
        world.run(7 * HOUR, &mut answer);
        world.shown()
    };
    let later = |first: Outcome, then: Outcome| -> Box<dyn FnMut(u64) -> Outcome> {
        Box::new(move |now| if now < 25 { first.clone() } else { then.clone() })
    };
    let failed = || Outcome::Failed { message: "no route".to_owned() };
    for (answers, expected) in [
        (later(answer(0, &[], 0), answer(0, &[], 0)), "120 ci.follow.ended no_checks"),
        (later(head(Head::Here), head(Head::Elsewhere)), "30 ci.follow.ended superseded"),
        (later(pr(PrState::Open), pr(PrState::Merged)), "30 ci.follow.ended merged"),
        (later(pr(PrState::Open), pr(PrState::Closed)), "30 ci.follow.ended closed"),
        (later(Outcome::Unknown, Outcome::Unknown), "30 ci.follow.ended no_commit"),
        (later(Outcome::NotOfGithub, failed()), "10 ci.follow.ended not_github"),
        (later(Outcome::NoProgram, failed()), "10 ci.follow.ended no_gh"),
        (later(failed(), failed()), "240 ci.follow.ended no_answer"),
    ] {
        assert_eq!(run(answers), [expected]);
    }
    // A branch that was never at the commit may be another repository's. A pull request that was
    // never open may be an old one.
    for answers in [head(Head::Elsewhere), pr(PrState::Merged)] {
        assert_eq!(run(later(answers.clone(), answers)), ["2580 ci.follow.ended still_pending"]);
    }
}

#[test]
fn a_newer_push_supersedes_the_older_follow() {
    let mut world = World::new();
    world.pushed(1);
    world.run(15, |_| answer(0, &[], 1));
    world.pushed(2);
    world.run(100, |_| answer(0, &[], 1));
    assert_eq!(world.follows.open.len(), 1, "the same commit");
    world.commit = COMMIT.replace('1', "2");
    world.pushed(3);
    world.run(300, |_| answer(1, &[], 0));
    let old = world.said.first().expect("its end");
    assert_eq!(world.shown()[0], "100 ci.follow.ended superseded");
    assert_eq!((&old.3["commit"], world.shown().len()), (&json!("111111111"), 2));
}

#[test]
fn a_pull_request_opened_after_push_is_followed() {
    let mut world = World::new();
    world.pushed(1);
    world.run(100, |_| answer(1, &[], 0));
    world.push(2, json!({ "command": "gh pr create --fill" }));
    world.run(200, |_| answer(3, &[], 0));
    assert_eq!(world.shown(), ["20 ci.run.completed 1 check passed", "120 ci.run.completed 3 checks passed"]);
}

#[test]
fn a_result_names_the_first_checks_that_failed() {
    let run = |failed: &'static [&'static str]| {
        let mut world = World::new();
        world.pushed(1);
        world.run(300, |_| answer(1, failed, 0));
        world.said.last().expect("an end").3["summary"].clone()
    };
    assert_eq!(run(&["a", "b", "c"]), "3 of 4 checks failed: a, b, c");
    assert_eq!(run(&["a", "b", "c", "d"]), "4 of 5 checks failed: a, b, c, ..");
    assert_eq!(run(&["a", "a"]), "2 of 3 checks failed: a, ..");
}

#[test]
fn a_passing_check_resolves_its_earlier_failure() {
    let mut world = World::new();
    world.pushed(1);
    world.run(300, |_| answer(1, &["unit", "lint"], 0));
    world.commit = COMMIT.replace('1', "2");
    world.pushed(2);
    world.run(700, |_| answer(2, &["lint"], 0));
    world.commit = COMMIT.replace('1', "3");
    world.pushed(3);
    world.run(1_000, |_| answer(3, &[], 0));
    let expected = [
        "10 ci.check.failed unit",
        "10 ci.check.failed lint",
        "20 ci.run.failed 2 of 3 checks failed: unit, lint",
        "310 ci.check.failed lint",
        "320 ci.run.failed 1 of 3 checks failed: lint",
        "720 ci.check.passed lint",
        "720 ci.check.passed unit",
        "720 ci.run.completed 3 checks passed",
    ];
    assert_eq!(world.shown(), expected);
    let key = |(_, _, _, payload): &(u64, String, String, Value)| {
        ["repo", "branch", "pr", "check"].map(|field| payload.get(field).cloned())
    };
    let said: Vec<_> = world.said.iter().map(key).collect();
    assert_eq!((&said[0], &said[1], &said[2]), (&said[6], &said[5], &said[7]));
}

#[test]
fn push_commands_of_any_harness_start_a_follow() {
    let mut world = World::new();
    world.push(1, json!({ "tool_name": "sh", "command": "git -C sub push origin a:b" }));
    let follow = world.follows.open.values().next().expect("a follow");
    assert_eq!(
        (&*follow.folder, follow.from.as_deref(), follow.branch.as_deref()),
        ("/w/sub", Some("a"), Some("b"))
    );
    assert_eq!(follow.git_arguments()[1], "a^{commit}");
    world.push(2, json!({ "tool_name": "sh", "command": "git push", "in_background": true }));
    world.push(3, json!({ "tool_name": "sh", "command": "cargo test push" }));
    world.push(4, json!({ "tool_name": "sh", "pushed": 7 }));
    assert_eq!(world.follows.open.len(), 1);
    let mut off = World::with(Settings { enabled: Switch::Off, ..Settings::default() });
    off.pushed(1);
    assert!(off.follows.open.is_empty());
    world.follows.apply(&off.settings, Some(&world.settings));
    assert!(world.follows.open.is_empty(), "it was switched off");
    let event =
        world.plan.answered_event(&Follow::new("x".into(), None, "/w", at(0)), answer(0, &["a"], 0), at(0));
    let (event, mut effects) = (event.as_ref(), Effects::default());
    let dispatched = Dispatched { trust: Trust::Untrusted, ..Dispatched::trusted(Seq(1), &event, at(0)) };
    world.follows.observe(&dispatched, &world.settings, &mut effects);
    assert!(effects.take().is_empty());
}

#[test]
fn new_remarks_are_reported_once_earlier_ones_never() {
    let remark = |number: u32, state: Option<&str>| Remark {
        id: format!("r{number}"),
        at: format!("2026-11-25T13:00:{number:02}Z"),
        author: "ann".to_owned(),
        state: state.map(str::to_owned),
        body: Some(format!("remark {number}")),
        url: None,
    };
    let with = |remarks: Vec<Remark>, pending: u32| {
        let pr = Some(Pr { number: 4, state: PrState::Open });
        Outcome::Checks(Checks { pr, remarks, ..checks(1, &[], pending) })
    };
    let mut world = World::new();
    world.pushed(1);
    world.run(200, |now| match now {
        0..30 => with(vec![remark(1, None), remark(2, None)], 1),
        _ => with(vec![remark(2, None), remark(3, Some("changes_requested"))], u32::from(now < 90)),
    });
    assert_eq!(world.shown(), ["30 pr.review.submitted remark 3", "90 ci.run.completed 1 check passed"]);
    world.commit = COMMIT.replace('1', "2");
    world.pushed(2);
    world.run(400, |_| with(vec![remark(3, Some("changes_requested")), remark(4, None)], 0));
    assert_eq!(
        world.shown()[2..],
        ["210 pr.comment.created remark 4", "220 ci.run.completed 1 check passed"]
    );
    let follow = Follow::new("x".into(), None, "/w", at(0));
    let event = follow.remark_event(&remark(5, Some("changes_requested")), at(0));
    assert_eq!((event.provenance, event.severity), (Provenance::Quoted, Severity::Warning));
}

#[test]
fn a_follow_moves_to_its_sessions_successor() {
    let mut world = World::new();
    world.pushed(1);
    let [first, second, parent] = ["s1", "s2", "s3"].map(SessionId::new);
    let owner = |world: &World| world.follows.open.values().next().expect("one").session.clone();
    let mut effects = Effects::default();
    let mut follow = |world: &mut World, change| world.follows.follow(&change, &mut effects);
    follow(&mut world, Succession::Continued { from: first, to: second.clone() });
    assert_eq!(owner(&world), Some(second.clone()));
    follow(&mut world, Succession::Ended { session: second, parent: Some(parent.clone()) });
    assert_eq!(owner(&world), Some(parent.clone()));
    follow(&mut world, Succession::Ended { session: parent, parent: None });
    assert_eq!(owner(&world), None);
    let ended = world.follows.open.values().next().expect("one").ended_event(&End::NoChecks, at(0));
    assert_eq!((ended.session, ended.workspace.as_deref()), (None, Some("/w")));
}

#[test]
fn follows_without_commit_or_remote_end_at_once() {
    let mut world = World::new();
    world.pushed(1);
    let plan = world.follows.take_plan().expect("a plan");
    let Some(Next::Find(follow)) = plan.next(|_| false) else { panic!("git is asked first") };
    for stdout in ["", "nope^{commit}\n", "--help\nfix\n"] {
        let output = Output { code: Some(0), stdout: stdout.into(), stderr: Vec::new() };
        assert_eq!(follow.read_found(&output, None, None).commit, None, "{stdout}");
    }
    let stdout = format!("{COMMIT}\nHEAD\n").into_bytes();
    let output = |code| Output { code: Some(code), stdout: stdout.clone(), stderr: Vec::new() };
    let found = follow.read_found(&output(0), None, None);
    assert_eq!((found.commit.as_deref(), found.branch), (Some(COMMIT), None));
    let top = || Some("/w".to_owned());
    for (code, top, remote, expected) in [
        (128, None, None, "no_repository"),
        (128, top(), Some(remote()), "no_commit"),
        (0, top(), None, "not_github"),
    ] {
        let mut world = World::new();
        world.pushed(1);
        world.feed(&follow.found_event(&follow.read_found(&output(code), top, remote), at(0)));
        assert_eq!(world.shown(), [format!("0 ci.follow.ended {expected}")]);
    }
}

#[test]
fn more_follows_than_may_be_end_the_oldest() {
    let mut world = World::new();
    let many = u64::try_from(OPEN_MAX).expect("few") + 2;
    for number in 0..many {
        world.now = at(number);
        world.push(number, json!({ "pushed": [{ "folder": format!("/w/{number}") }] }));
    }
    assert_eq!(world.follows.open.len(), OPEN_MAX);
    assert_eq!(world.shown().len(), 2);
}

/// The answer to one call.
#[derive(Debug, Clone)]
enum Said {
    Checks { passed: u32, failed: u8, pending: u32, head: Head, pr: Option<PrState> },
    Limited(Option<u64>, bool),
    Unknown,
    Failed,
}

fn said() -> impl Strategy<Value = Said> {
    let head = prop_oneof![8 => Just(Head::Here), 1 => Just(Head::Elsewhere), 1 => Just(Head::Unknown)];
    let pr = prop_oneof![
        4 => Just(None),
        4 => Just(Some(PrState::Open)),
        1 => Just(Some(PrState::Merged)),
        1 => Just(Some(PrState::Closed))
    ];
    prop_oneof![
        12 => (0..3_u32, 0..4_u8, 0..3_u32, head, pr).prop_map(|(passed, failed, pending, head, pr)| {
            Said::Checks { passed, failed, pending: if pending == 2 { 0 } else { 1 }, head, pr }
        }),
        2 => (proptest::option::of(0..8_000_u64), any::<bool>()).prop_map(|(wait, is_certain)| Said::Limited(wait, is_certain)),
        1 => Just(Said::Unknown),
        2 => Just(Said::Failed),
    ]
}

fn outcome(said: &Said) -> Outcome {
    match said {
        Said::Checks { passed, failed, pending, head, pr } => {
            let names = ["a", "b", "c", "d"];
            let pr = pr.map(|state| Pr { number: 4, state });
            let checks = checks(*passed, &names[..usize::from(*failed)], *pending);
            Outcome::Checks(Checks { head: *head, pr, ..checks })
        }
        Said::Limited(wait_seconds, is_certain) => {
            Outcome::Limited { wait_seconds: *wait_seconds, is_certain: *is_certain }
        }
        Said::Unknown => Outcome::Unknown,
        Said::Failed => Outcome::Failed { message: "no route".to_owned() },
    }
}

/// Runs pushes and answers to their end; `restarts` has the steps that a restart precedes.
fn play(pushes: &[(u64, bool)], answers: &[Said], per_hour: u32, restarts: &BTreeSet<usize>) -> World {
    let settings = Settings { calls_per_hour: per_hour, ..Settings::default() };
    let (mut world, mut steps) = (World::with(settings), 0_usize);
    let mut time = 0;
    let go_on = |world: &mut World, until: u64, steps: &mut usize| loop {
        if restarts.contains(steps) {
            world.restart();
        }
        *steps += 1;
        let mut answer = |follow: &Follow, _: u64| {
            let index = usize::try_from(follow.calls).expect("few") + follow.id.len();
            outcome(&answers[index % answers.len()])
        };
        if !world.step(until, &mut answer) {
            break;
        }
    };
    for (number, (wait, is_new_commit)) in (0..).zip(pushes) {
        time += wait;
        go_on(&mut world, time, &mut steps);
        world.now = world.now.max(at(time));
        if *is_new_commit {
            world.commit = format!("{number:040x}");
        }
        world.pushed(number);
    }
    go_on(&mut world, time + 100 * HOUR, &mut steps);
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn call_budget_holds_and_each_push_ends_once(
        pushes in proptest::collection::vec((0..2_000_u64, any::<bool>()), 1..8),
        answers in proptest::collection::vec(said(), 1..12),
        per_hour in 5..80_u32,
        restarts in proptest::collection::btree_set(0..200_usize, 0..20),
    ) {
        let world = play(&pushes, &answers, per_hour, &BTreeSet::new());
        prop_assert!(world.follows.open.is_empty(), "{:?}", world.follows);
        let mut of_each: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for (_, follow) in &world.calls {
            *of_each.entry(Arc::clone(follow)).or_default() += 1;
        }
        prop_assert!(of_each.values().all(|calls| *calls <= CALLS_MAX), "{of_each:?}");
        let times = world.times();
        let count = usize::try_from(per_hour).expect("few");
        prop_assert!(times.windows(count + 1).all(|window| window[count] - window[0] >= HOUR), "{times:?}");
        let ids: Vec<&String> = world.said.iter().map(|(_, _, id, _)| id).collect();
        let ends = world.said.iter().filter(|(_, _, id, _)| of_each.contains_key(id.as_str()));
        let ends: Vec<&String> = ends.map(|(_, _, id, _)| id).collect();
        prop_assert_eq!(ends.iter().collect::<BTreeSet<_>>().len(), ends.len(), "{:?}", ids);
        prop_assert_eq!(ends.len(), of_each.len());
        let restarted = play(&pushes, &answers, per_hour, &restarts);
        prop_assert_eq!(world.said, restarted.said);
        prop_assert_eq!(world.calls, restarted.calls);
    }
}

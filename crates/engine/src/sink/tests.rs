//! Notices in simulated time: which are sent, counted and retried.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::{
    fold::{HARNESS_WAIT, OPEN_MAX, SHOWN_MAX},
    job::{ALL_PER_MINUTE_MAX, SPEAKERS_MAX, WINDOW},
    notice::PACE,
    *,
};
use crate::{
    event::{Event, Provenance, Seq, SessionId},
    fold::{Dispatched, Effects, Fold},
    ledger::{LedgerEntry, Step, Subject, Suppressed},
    notification::{Level, NotificationId},
    session::Succession,
    snapshot,
};

const START: Timestamp = Timestamp::from_millis(1_000_000_000);

fn settings(sinks: &[Sink]) -> Settings {
    Settings { all: Common { default: sinks.to_vec(), ..Common::default() }, ..Settings::default() }
}

fn notice(id: &str, session: Option<&str>, message: &str) -> Notice {
    Notice { session: session.map(SessionId::new), ..Notice::new(id, message, START) }
}

fn ended(session: &str) -> Succession {
    Succession::Ended { session: SessionId::new(session), parent: None }
}

/// The state of a test.
struct World {
    deliveries: Deliveries,
    settings: Settings,
    now: Timestamp,
    seq: u64,
}

impl World {
    fn with(sinks: &[Sink]) -> Self {
        Self { deliveries: Deliveries::default(), settings: settings(sinks), now: START, seq: 0 }
    }

    fn observe(&mut self, event: &Event) -> Option<Vec<LedgerEntry>> {
        self.seq += 1;
        let (event, mut effects) = (event.as_ref(), Effects::default());
        let dispatched = Dispatched::trusted(Seq(self.seq), &event, self.now);
        let is_taken = self.deliveries.observe(&dispatched, &self.settings, &mut effects);
        is_taken.then(|| effects.into_entries())
    }

    /// Sends `message`; returns the steps that follow.
    fn say(&mut self, session: &str, message: &str) -> Vec<String> {
        let id = format!("u{}", self.seq + 1);
        let said = Notice { at: self.now, ..notice(&id, Some(session), message) };
        lines(&self.observe(&said.event()).expect("a notice"))
    }

    /// Sends progress; returns the steps that follow.
    fn progress(&mut self, session: &str, key: &str, percent: Option<u8>) -> Vec<String> {
        let id = format!("u{}", self.seq + 1);
        let progress = Some(Progress::new(key, percent));
        let said = Notice { at: self.now, progress, ..notice(&id, Some(session), "copies") };
        lines(&self.observe(&said.event()).expect("a notice"))
    }

    /// Advances the time; handles each deadline at its own time.
    fn wait(&mut self, time: Duration) -> Vec<String> {
        let (end, mut effects) = (self.now + time, Effects::default());
        while let Some(at) = self.deliveries.poll_timeout().filter(|at| *at <= end) {
            self.deliveries.handle_timeout(at, &mut effects);
        }
        self.now = end;
        lines(&effects.into_entries())
    }

    /// Lets the session's identity change; returns the steps that follow.
    fn follow(&mut self, change: &Succession) -> Vec<String> {
        let mut effects = Effects::default();
        self.deliveries.follow(change, &mut effects);
        lines(&effects.into_entries())
    }

    /// Applies other quiet hours.
    fn set_quiet(&mut self, quiet: Option<&str>) {
        let quiet = quiet.map(|hours| hours.parse().expect("hours"));
        let mut settings = self.settings.clone();
        settings.all.quiet = quiet;
        self.deliveries.apply(&settings, Some(&self.settings));
        self.settings = settings;
    }

    fn due(&mut self) -> Vec<Job> {
        self.deliveries.note_change();
        self.deliveries.take_due().expect("it was said to have changed").to_vec()
    }

    fn answer(&mut self, job: &Job, answered: &Answered) -> Vec<String> {
        lines(&self.observe(&job.event(answered, self.now)).expect("a report"))
    }

    /// Publishes which due jobs wait, as the source does before it calls a sink.
    fn hold(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for job in self.due() {
            if let Some(until) = self.settings.waits_until(&job, self.now, |_| 0) {
                let event = job.waits_event(until, self.now);
                said.extend(lines(&self.observe(&event).expect("a report")));
            }
        }
        said
    }

    fn fail(&mut self) -> Vec<String> {
        let job = self.due().remove(0);
        self.answer(&job, &Answered::Refused { error: "it answered 503".to_owned(), is_final: false })
    }

    /// Continues from a snapshot.
    fn restart(&mut self) {
        let bytes = snapshot::write(&self.deliveries).expect("written");
        self.deliveries = snapshot::read(&bytes).expect("read");
    }
}

fn lines(entries: &[LedgerEntry]) -> Vec<String> {
    let line = |entry: &LedgerEntry| {
        let LedgerEntry::ForUser { subject, step } = entry else { panic!("{entry:?}") };
        let subject = match subject {
            Subject::Event(seq) => seq.to_string(),
            Subject::Notification(id) => id.to_string(),
        };
        let step = match step {
            Step::Queued(sink) => format!("queued {}", sink.as_str()),
            Step::Sent(sink, id) => format!("sent {} {}", sink.as_str(), id.as_deref().unwrap_or("-")),
            Step::Failed { sink, error, retry_at } => {
                let again = retry_at.map(|at| short(at.since(START)));
                format!("failed {} {error}, {}", sink.as_str(), again.as_deref().unwrap_or("over"))
            }
            Step::Waits { sink, until } => {
                format!("waits {} {}", sink.as_str(), short(until.since(START)))
            }
            Step::Ended(sink, why) => format!("ended {} {}", sink.as_str(), why.as_str()),
            Step::Suppressed(why) => why.as_str().to_owned(),
        };
        format!("{subject} {step}")
    };
    entries.iter().map(line).collect()
}

fn short(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_notice_reaches_every_sink_and_records_steps() {
    let mut world = World::with(&[Sink::Harness, Sink::Log, Sink::Ntfy]);
    assert_eq!(world.say("s1", "hello"), ["1 queued harness", "1 queued log", "1 queued ntfy"]);
    assert_eq!(world.deliveries.verdict("u1"), Some(&Verdict::Taken(world.settings.all.default.clone())));
    let due = world.due();
    assert_eq!(due.iter().map(|job| job.sink).collect::<Vec<_>>(), [Sink::Log, Sink::Ntfy]);
    assert_eq!(world.answer(&due[1], &Answered::Took(Some("xE7".to_owned()))), ["1 sent ntfy xE7"]);
    // Published twice: the journal drops it, and so does the fold.
    assert_eq!(world.answer(&due[1], &Answered::Took(Some("xE7".to_owned()))), Vec::<String>::new());
    assert_eq!(world.answer(&due[0], &Answered::Took(None)), ["1 sent log -"]);
    assert!(world.deliveries.show(&SessionId::new("s2"), None, "c1", world.now).is_none());
    let (line, entries) =
        world.deliveries.show(&SessionId::new("s1"), None, "c1", world.now).expect("it waits for a hook");
    assert_eq!((line.as_str(), lines(&entries)), ("llm: hello", vec!["1 sent harness c1".to_owned()]));
    assert_eq!((world.deliveries.len().0, world.deliveries.poll_timeout()), (0, None));
}

#[test]
fn a_failing_sink_is_retried_then_given_up() {
    let mut world = World::with(&[Sink::Webhook]);
    world.say("s1", "hello");
    let mut at = 0;
    for wait in RETRY {
        at += wait.as_secs();
        assert_eq!(world.fail(), [format!("1 failed webhook it answered 503, {at} s")]);
        assert_eq!((world.due(), world.wait(wait - Duration::from_millis(1))), (Vec::new(), Vec::new()));
        assert_eq!(world.due(), Vec::new());
        world.wait(Duration::from_millis(1));
        world.restart();
    }
    assert_eq!(world.fail(), ["1 failed webhook it answered 503, over"]);
    assert_eq!((world.due(), world.deliveries.len().0), (Vec::new(), 0));
}

#[test]
fn final_refusals_and_desktop_failures_are_not_retried() {
    let mut world = World::with(&[Sink::Desktop, Sink::Webhook]);
    world.say("s1", "hello");
    assert_eq!(world.fail(), ["1 failed desktop it answered 503, over"]);
    let gone = Answered::Refused { error: "it answered 410".to_owned(), is_final: true };
    let job = world.due().remove(0);
    assert_eq!(world.answer(&job, &gone), ["1 failed webhook it answered 410, over"]);
    // A report of an ended attempt changes nothing.
    assert_eq!(world.answer(&job, &Answered::Took(None)), Vec::<String>::new());
}

#[test]
fn repeated_and_rate_limited_notices_are_counted() {
    let mut world = World::with(&[Sink::Log]);
    assert_eq!(world.say("s1", "0"), ["1 queued log"]);
    for _ in 0..10_000 {
        assert_eq!(world.say("s1", "0").len(), 1);
    }
    let repeat = Verdict::Suppressed(Suppressed::Repeat { sent_at: START });
    assert_eq!(world.deliveries.verdict("u10001"), Some(&repeat));
    assert_eq!((world.due().len(), world.deliveries.len()), (1, (1, 1)));
    assert_eq!(world.say("s1", "1").len(), 1);
    let job = world.due().pop().expect("a job");
    assert_eq!(job.notice.text_for(Target::Plain, Parts::ALL), "1 [not sent before: 10000 repeats]");
    for number in 2..6 {
        world.say("s1", &number.to_string());
    }
    assert_eq!(world.say("s1", "6"), ["10007 rate_limited"]);
    assert_eq!(world.say("s2", "6"), ["10008 queued log"], "another session has its own rate");
    world.wait(WINDOW - Duration::from_millis(1));
    assert_eq!(world.say("s1", "0"), ["10009 repeat"]);
    world.wait(Duration::from_millis(1));
    assert_eq!(world.say("s1", "0"), ["10010 queued log"]);
    let job = world.due().pop().expect("a job");
    assert_eq!(
        job.notice.text_for(Target::Plain, Parts::ALL),
        "0 [not sent before: 1 repeat, 1 over the rate limit]"
    );
}

#[test]
fn newer_notice_of_a_key_supersedes_the_older() {
    let mut world = World::with(&[Sink::Harness, Sink::Log]);
    world.progress("s1", "copy", None);
    let job = world.due().remove(0);
    world.answer(&job, &Answered::Took(None));
    let said = world.progress("s1", "copy", Some(40));
    assert_eq!(said, ["1 ended harness superseded", "3 queued harness", "3 queued log"]);
    world.wait(PACE);
    // Equal to the previous one, but still a further step of the task.
    let said = world.progress("s1", "copy", Some(40));
    assert_eq!(said[..2], ["3 ended harness superseded", "3 ended log superseded"]);
    assert_eq!(world.progress("s2", "copy", Some(1)).len(), 2, "another speaker, another work");
}

#[test]
fn progress_is_paced_but_completion_goes_at_once() {
    let mut world = World::with(&[Sink::Harness, Sink::Log]);
    let shown = |world: &mut World| {
        let line = world.deliveries.show(&SessionId::new("s1"), None, "c", world.now);
        let logged = world.due();
        for job in &logged {
            world.answer(job, &Answered::Took(None));
        }
        (line.map(|(line, _)| line), logged.len())
    };
    world.progress("s1", "copy", Some(0));
    assert_eq!(shown(&mut world), (Some("llm: copies 0 %".to_owned()), 1));
    world.wait(seconds(3));
    assert_eq!(world.progress("s1", "copy", Some(10)), ["3 queued harness", "3 queued log"]);
    assert_eq!(shown(&mut world), (None, 0), "it waits");
    let later = Verdict::Later(world.settings.all.default.clone(), START + PACE);
    assert_eq!(world.deliveries.verdict("u3"), Some(&later));
    world.wait(seconds(3));
    let said = world.progress("s1", "copy", Some(20));
    assert_eq!(
        said,
        ["3 ended harness superseded", "3 ended log superseded", "4 queued harness", "4 queued log"]
    );
    world.restart();
    world.wait(seconds(3));
    assert_eq!(shown(&mut world), (None, 0));
    world.wait(seconds(1));
    assert_eq!(shown(&mut world), (Some("llm: copies 20 %".to_owned()), 1), "ten seconds after the first");
    world.wait(seconds(1));
    world.progress("s1", "copy", Some(90));
    assert_eq!(world.progress("s1", "copy", Some(100)).len(), 4);
    assert_eq!(shown(&mut world), (Some("llm: copies 100 %".to_owned()), 1));
    let held = world.say("s1", "x");
    assert_eq!(held, ["9 queued harness", "9 queued log"]);
    assert_eq!(world.due()[0].notice.held, NotSent::default(), "what was replaced is not counted");
}

#[test]
fn keys_and_their_ends_get_around_no_limit() {
    let mut world = World::with(&[Sink::Log]);
    let is_out = |said: &[String]| said.iter().any(|line| line.ends_with("queued log"));
    let mut out = 0;
    for number in 0..1_000_u32 {
        out += u32::from(is_out(&world.progress("s1", &format!("k{number}"), Some(1))));
        out += u32::from(is_out(&world.progress("s2", "k", Some(100))));
    }
    assert_eq!(out, 2 * u32::try_from(PER_MINUTE_MAX).expect("few"));
    // More keys than are remembered: the least recently sent one counts as new.
    for minute in 0..3 {
        world.wait(WINDOW);
        for number in 0..4 {
            assert!(is_out(&world.progress("s3", &format!("k{minute}{number}"), Some(1))));
        }
    }
    world.wait(WINDOW);
    for number in 0..PER_MINUTE_MAX {
        world.say("s3", &number.to_string());
    }
    assert!(is_out(&world.progress("s3", "k23", Some(2))), "known");
    assert_eq!(world.progress("s3", "k00", Some(2)), [format!("{} rate_limited", world.seq)]);
}

#[test]
fn quiet_hours_delay_notices_in_order() {
    // START is 13:46:40 UTC.
    let mut world = World::with(&[Sink::Desktop, Sink::Log, Sink::Ntfy]);
    world.settings.all.quiet = Some("13:30-14:00".parse().expect("hours"));
    world.say("s1", "first");
    world.say("s1", "second");
    assert_eq!(
        world.hold(),
        ["1 waits desktop 800 s", "1 waits ntfy 800 s", "2 waits desktop 800 s", "2 waits ntfy 800 s"]
    );
    let sinks =
        |due: &[Job]| due.iter().map(|job| (job.notice.message.to_string(), job.sink)).collect::<Vec<_>>();
    let logged = [("first".to_owned(), Sink::Log), ("second".to_owned(), Sink::Log)];
    assert_eq!(sinks(&world.due()), logged, "nobody is woken by a file");
    assert_eq!(world.hold(), Vec::<String>::new(), "said once");
    // An error is sent at once.
    let error = Notice { level: Level::Error, ..notice("e1", Some("s1"), "on fire") };
    world.observe(&error.event()).expect("a notice");
    assert_eq!((world.hold().len(), world.due().len()), (0, 5));
    world.restart();
    assert_eq!(world.wait(Duration::from_secs(799)), Vec::<String>::new());
    assert_eq!(world.due().len(), 5);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.hold(), Vec::<String>::new(), "they are over");
    let ntfy: Vec<_> = sinks(&world.due()).into_iter().filter(|(_, sink)| *sink == Sink::Ntfy).collect();
    assert_eq!(
        ntfy.iter().map(|(message, _)| message.as_str()).collect::<Vec<_>>(),
        ["first", "second", "on fire"]
    );
}

#[test]
fn changed_quiet_hours_apply_to_waiting_notices() {
    let mut world = World::with(&[Sink::Ntfy]);
    world.settings.all.quiet = Some("13:30-14:00".parse().expect("hours"));
    world.say("s1", "x");
    assert_eq!((world.hold().len(), world.due().len()), (1, 0));
    world.set_quiet(Some("13:30-15:00"));
    assert_eq!(world.hold(), ["1 waits ntfy 4400 s"]);
    world.set_quiet(None);
    assert_eq!((world.hold().len(), world.due().len()), (0, 1));
    // A failed job waits for its retry, regardless of the hours.
    assert_eq!(world.fail(), ["1 failed ntfy it answered 503, 5 s"]);
    world.set_quiet(Some("13:30-15:00"));
    assert_eq!(world.due().len(), 0);
}

#[test]
fn hooks_show_few_lines_and_unshown_notices_expire() {
    let mut world = World::with(&[Sink::Harness]);
    for number in 0..SHOWN_MAX + 2 {
        world.say("s1", &number.to_string());
    }
    let (line, entries) = world.deliveries.show(&SessionId::new("s1"), None, "c1", world.now).expect("lines");
    assert_eq!((line.as_str(), entries.len()), ("llm: 0 | llm: 1 | llm: 2", SHOWN_MAX));
    // Notices of a continued session are shown in its successor; those without a session, anywhere.
    let [from, to] = ["s1", "s2"].map(SessionId::new);
    assert_eq!(world.follow(&Succession::Continued { from, to }), Vec::<String>::new());
    assert_eq!(world.wait(HARNESS_WAIT), ["4 ended harness expired", "5 ended harness expired"]);
    world.say("s2", "x");
    assert_eq!(world.follow(&ended("s2")), ["6 ended harness session_gone"]);
    // A notice without a session is shown by the first hook in its folder.
    let from_folder = Notice { workspace: Some("/w".into()), ..notice("u9", None, "y") };
    assert_eq!(lines(&world.observe(&from_folder.event()).expect("a notice")), ["7 queued harness"]);
    assert!(world.deliveries.show(&SessionId::new("s3"), Some("/other"), "c2", world.now).is_none());
    let shown = world.deliveries.show(&SessionId::new("s3"), Some("/w"), "c3", world.now);
    assert_eq!(shown.map(|(line, _)| line).as_deref(), Some("llm: y"));
    assert_eq!(world.deliveries.len().0, 0);
}

#[test]
fn everything_that_is_kept_is_bounded() {
    let mut world = World::with(&[Sink::Log]);
    for number in 0..OPEN_MAX + 44 {
        if number % ALL_PER_MINUTE_MAX == 0 {
            world.wait(WINDOW);
        }
        let said = world.say(&format!("s{number}"), "x");
        let evicted = said.iter().filter(|line| line.ends_with("ended log evicted")).count();
        assert_eq!(evicted, usize::from(number >= OPEN_MAX), "{said:?}");
    }
    assert_eq!(world.deliveries.len(), (OPEN_MAX, SPEAKERS_MAX));
    world.settings.all.default.clear();
    assert_eq!(world.say("s1", "y"), [format!("{} no_sink", OPEN_MAX + 45)]);
}

#[test]
fn invented_speakers_share_one_rate() {
    let mut world = World::with(&[Sink::Log]);
    let is_sent = |world: &mut World, number: usize| {
        world.say(&format!("s{number}"), "x").iter().any(|line| line.ends_with("queued log"))
    };
    let sent = (0..600).filter(|number| is_sent(&mut world, *number)).count();
    assert_eq!(sent, ALL_PER_MINUTE_MAX);
    world.wait(WINDOW);
    // Counted, and reported with the next one of its speaker.
    world.say("s599", "y");
    let held = world.due().last().expect("a job").notice.held;
    assert_eq!((held.rate_limited, held.repeats), (1, 0));
}

#[test]
fn only_the_daemons_own_events_say_something() {
    let mut world = World::with(&[Sink::Log]);
    use Provenance::{Harness, Local, Quoted, Remote};
    for provenance in [Local, Harness, Remote, Quoted] {
        let foreign = Event { provenance, ..notice("u1", None, "x").event() };
        assert!(world.observe(&foreign).is_none(), "{provenance:?}");
    }
    let hostile = Notice { message: "a\u{1b}[2J\nb".repeat(900).into(), ..notice("u2", None, "") };
    world.observe(&hostile.event()).expect("a notice");
    let job = world.due().remove(0);
    assert!(job.notice.message.starts_with("a b") && job.notice.message.chars().count() < 1_100);
}

/// A step of a random scenario.
#[derive(Debug, Clone)]
enum Act {
    Say { session: u8, message: u8 },
    Wait { seconds: u64 },
    Answer { job: usize, answer: u8 },
    Hook { session: u8 },
    End { session: u8 },
    Notification { message: u8 },
    Progress { session: u8, key: u8, percent: u8 },
    Hold,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..3_u8, 0..12_u8).prop_map(|(session, message)| Act::Say { session, message }),
        3 => prop_oneof![1..20_u64, 50..70_u64, 290..400_u64, 1_000..9_000_u64]
            .prop_map(|seconds| Act::Wait { seconds }),
        4 => (0..6_usize, 0..4_u8).prop_map(|(job, answer)| Act::Answer { job, answer }),
        1 => (0..3_u8).prop_map(|session| Act::Hook { session }),
        1 => (0..3_u8).prop_map(|session| Act::End { session }),
        1 => (0..12_u8).prop_map(|message| Act::Notification { message }),
        4 => (0..3_u8, 0..3_u8, 0..4_u8)
            .prop_map(|(session, key, of_done)| Act::Progress { session, key, percent: of_done * 33 + 1 }),
        2 => Just(Act::Hold),
    ]
}

impl World {
    fn act(&mut self, act: &Act) -> Vec<String> {
        let name = |session: u8| SessionId::new(&format!("s{session}"));
        match act {
            Act::Say { session, message } => self.say(&format!("s{session}"), &message.to_string()),
            Act::Progress { session, key, percent } => {
                self.progress(&format!("s{session}"), &format!("k{key}"), Some(*percent))
            }
            Act::Wait { seconds: count } => self.wait(seconds(*count)),
            Act::Answer { job, answer } => {
                let Some(job) = self.due().get(*job).cloned() else { return Vec::new() };
                self.answer(
                    &job,
                    &match answer {
                        0 => Answered::Refused { error: "gone".to_owned(), is_final: true },
                        1 => Answered::Refused { error: "busy".to_owned(), is_final: false },
                        _ => Answered::Took(None),
                    },
                )
            }
            Act::Hook { session } => {
                let shown = self.deliveries.show(&name(*session), Some("/w"), "c", self.now);
                shown.map(|(line, entries)| [vec![line], lines(&entries)].concat()).unwrap_or_default()
            }
            Act::Hold => self.hold(),
            Act::End { session } => self.follow(&Succession::Ended { session: name(*session), parent: None }),
            Act::Notification { message } => {
                self.seq += 1;
                let said = Notice {
                    context: "ci".into(),
                    ..notice(&format!("n{}", self.seq), None, &message.to_string())
                };
                let subject = Subject::Notification(NotificationId::new(&said.id));
                let mut effects = Effects::default();
                let sinks = (self.settings.all.default.as_slice(), &self.settings.filters);
                self.deliveries.take(said, subject, sinks, self.now, &mut effects);
                lines(&effects.into_entries())
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// In any order of events, a restart changes nothing, each queued delivery ends once, the
    /// limits hold, and notices that are not sent are counted.
    #[test]
    fn no_notice_is_lost_or_sent_twice(
        acts in proptest::collection::vec((act(), any::<bool>()), 1..120)
    ) {
        let sinks = [Sink::Harness, Sink::Log, Sink::Webhook];
        let (mut whole, mut restarted) = (World::with(&sinks), World::with(&sinks));
        for world in [&mut whole, &mut restarted] {
            world.settings.all.quiet = Some("14:00-15:00".parse().expect("hours"));
        }
        let mut open: BTreeMap<(String, String), u32> = BTreeMap::new();
        let mut passed: BTreeMap<u8, Vec<Timestamp>> = BTreeMap::new();
        let mut held: BTreeMap<u8, u64> = BTreeMap::new();
        for (act, restarts) in &acts {
            if *restarts {
                restarted.restart();
            }
            let said = whole.act(act);
            prop_assert_eq!(&said, &restarted.act(act));
            prop_assert_eq!(whole.due(), restarted.due());
            for line in &said {
                let mut words = line.split(' ');
                let (subject, step, sink) = (words.next(), words.next(), words.next());
                let key = || (subject.unwrap_or_default().to_owned(), sink.unwrap_or_default().to_owned());
                match step {
                    Some("queued") => prop_assert_eq!(open.insert(key(), 0), None),
                    Some("failed") if !line.ends_with("over") => {
                        let tries = open.get_mut(&key()).expect("it was queued");
                        *tries += 1;
                        prop_assert!(usize::try_from(*tries).expect("few") <= RETRY.len());
                    }
                    Some("sent" | "failed" | "ended") => prop_assert!(open.remove(&key()).is_some(), "{}", line),
                    _ => {}
                }
            }
            let is_over = said.iter().any(|line| line.ends_with("rate_limited"));
            if let Act::Progress { session, .. } = act && is_over {
                *held.entry(*session).or_default() += 1;
            }
            if let Act::Say { session, .. } = act {
                let is_held = said.iter().any(|line| line.ends_with("repeat") || line.ends_with("rate_limited"));
                if is_held {
                    *held.entry(*session).or_default() += 1;
                    continue;
                }
                let times = passed.entry(*session).or_default();
                times.push(whole.now);
                let recent = times.iter().filter(|at| whole.now.since(**at) < WINDOW).count();
                prop_assert!(recent <= PER_MINUTE_MAX);
                let id = format!("u{}", whole.seq);
                let due = whole.due();
                let said = due.iter().find(|job| *job.notice.id == *id).expect("its log is due");
                let counted = said.notice.held.repeats + said.notice.held.rate_limited;
                prop_assert_eq!(counted, held.remove(session).unwrap_or_default());
            }
        }
        // In the end every queued delivery has ended.
        for _ in 0..=RETRY.len() {
            while let Some(job) = whole.due().first().cloned() {
                for line in whole.answer(&job, &Answered::Took(None)) {
                    let words: Vec<&str> = line.split(' ').collect();
                    prop_assert!(open.remove(&(words[0].to_owned(), words[2].to_owned())).is_some());
                }
            }
            for line in whole.wait(seconds(6 * 3_600)) {
                let words: Vec<&str> = line.split(' ').collect();
                prop_assert!(open.remove(&(words[0].to_owned(), words[2].to_owned())).is_some());
            }
        }
        prop_assert!(open.is_empty(), "{:?}", open);
        prop_assert_eq!(whole.deliveries.len().0, 0);
    }
}

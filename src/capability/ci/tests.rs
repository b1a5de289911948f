use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use engine::{
    ci::{Follows, Settings, Wanted},
    event::{Seq, SessionId, codec},
    fold::{Dispatched, Effect, Effects, Fold},
    records::Records,
};
use journal::{Clock, Journal, JournalSettings, memory::MemoryFiles, time::Timestamp};

use crate::{
    capability::source::{Clocks, keep_running, pause},
    daemon::publisher::Publisher,
};

const COMMIT: &str = "1111111111111111111111111111111111111111";

/// Answers as GitHub does, and notes the time and target of each request.
struct Scripted {
    clock: Clock,
    asked: Mutex<Vec<(u64, String)>>,
}

impl Scripted {
    fn note(&self, asked: &str) -> u64 {
        let seconds = (self.clock)().as_millis() / 1_000;
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((seconds, asked.to_owned()));
        seconds
    }
}

impl Runner for Arc<Scripted> {
    async fn find(&self, follow: &Follow) -> Found {
        self.note(&format!("git in {}", follow.folder));
        let stdout = format!("{COMMIT}\nfix\n").into();
        let output = Output { code: Some(0), stdout, stderr: Vec::new() };
        let [host, owner, name] = ["github.com", "acme", "shop"].map(str::to_owned);
        follow.read_found(&output, Some("/w".to_owned()), Some(Remote { host, owner, name }))
    }

    async fn ask(&self, arguments: Vec<String>, remote: &Remote) -> io::Result<Output> {
        let seconds = self.note(&format!("gh {} of {}", arguments[..2].join(" "), remote.full_name()));
        assert!(arguments.contains(&format!("oid={COMMIT}")), "{arguments:?}");
        if seconds < 12 {
            return Err(io::Error::other("no route"));
        }
        let status = if seconds < 60 { "IN_PROGRESS" } else { "COMPLETED" };
        let check = json!({ "name": "unit", "status": status, "conclusion": "FAILURE" });
        let object = json!({ "statusCheckRollup": { "state": "X", "contexts": { "nodes": [check] } } });
        let body: Value =
            json!({ "data": { "repository": { "nameWithOwner": "acme/shop", "object": object } } });
        let stdout = format!("HTTP/2.0 200 OK\r\n\r\n{body}").into();
        Ok(Output { code: Some(0), stdout, stderr: Vec::new() })
    }
}

/// Does the same as the event loop: folds published events, publishes the events that follow from
/// them, and publishes the plan.
async fn fold(mut follows: Follows, journal: Journal, plan: watch::Sender<Plan>, ended: &Notify) {
    let (publisher, mut next, mut written) = (Publisher::new(journal.clone()), Seq(1), journal.written());
    loop {
        let mut effects = Effects::default();
        let mut reader = journal.read_from(next);
        for found in reader.next_batch(100).expect("readable").iter() {
            next = Seq(found.seq.0 + 1);
            let event = codec::decode(found.body).expect("only events are written here");
            let dispatched = Dispatched::trusted(found.seq, &event, found.time);
            follows.observe(&dispatched, &Settings::default(), &mut effects);
        }
        for effect in effects.take() {
            let Effect::Publish(event) = effect else { continue };
            publisher.append(Records::build(|records| records.own_event(&event))).await.expect("appended");
        }
        if let Some(next) = follows.take_plan() {
            if next.follows.is_empty() {
                ended.notify_one();
            }
            plan.send_replace(next);
        }
        if written.changed().await.is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ci_source_runs_only_planned_requests_on_time() {
    // The first tick comes at once, and returns the time.
    let began = tokio::time::interval(Duration::from_secs(1)).tick().await;
    let clock: Clock = Arc::new(move || {
        Timestamp::from_millis(u64::try_from(began.elapsed().as_millis()).expect("a short test"))
    });
    let files = Arc::new(MemoryFiles::new());
    let opened = Journal::open(files, JournalSettings::default(), Arc::clone(&clock), &|_| None);
    let journal = opened.expect("opened").journal;
    let clocks = Clocks { clock: Arc::clone(&clock), wall: || Timestamp::ZERO };
    let publisher = Publisher::new(journal.clone());
    let (_stop, stopping) = watch::channel(false);
    let (sender, plan) = watch::channel(Plan::default());
    let scripted = Arc::new(Scripted { clock, asked: Mutex::default() });
    let source = Arc::new(Asking::with(plan, Arc::clone(&scripted)));
    let mut follows = Follows::default();
    follows.apply(&Settings::default(), None);
    let session = SessionId::new("s1");
    let wanted = Wanted { by: "w1", session: Some(&session), workspace: None, folder: "/w", reference: None };
    follows.want(&wanted, Timestamp::ZERO, &mut Effects::default());
    // Simulated time does not pass during disk writes, so a test begins its own wait only when
    // nothing is followed any more.
    let ended = Notify::new();
    let a_day_later = async {
        ended.notified().await;
        pause(Duration::from_secs(24 * 60 * 60)).await;
    };
    tokio::select! {
        _ = keep_running(source, clocks, publisher, stopping) => panic!("it was not stopped"),
        () = fold(follows, journal.clone(), sender, &ended) => panic!("the journal has ended"),
        () = a_day_later => {}
    }
    let asked = scripted.asked.lock().unwrap_or_else(PoisonError::into_inner);
    let mut expected = vec![(0, "git in /w".to_owned())];
    expected.extend([0, 10, 20, 30, 60].map(|at| (at, "gh api -i of github.com/acme/shop".to_owned())));
    assert_eq!(*asked, expected);
    let mut reader = journal.read_from(Seq(1));
    let batch = reader.next_batch(100).expect("readable");
    let types = batch
        .iter()
        .map(|found| codec::decode(found.body).expect("only events are written here").event_type.to_owned());
    let types: Vec<String> = types.collect();
    let answered = types.iter().filter(|name| *name == "ci.answered").count();
    assert_eq!((types[0].as_str(), answered), ("ci.followed", 5));
    assert_eq!(types[6..], ["ci.check.failed", "ci.run.failed"]);
}

fn shell() -> Command {
    Command::new("sh")
}

fn script(text: &str) -> Vec<String> {
    vec!["-c".to_owned(), text.to_owned()]
}

#[tokio::test]
async fn program_is_ended_at_time_or_output_limit() {
    let within = Duration::from_secs(60);
    let output =
        run_within(shell(), script("printf ab; printf c >&2; exit 3"), within).await.expect("it ends");
    assert_eq!((output.code, output.stdout, output.stderr), (Some(3), b"ab".to_vec(), b"c".to_vec()));
    let late = run_within(shell(), script("exec sleep 1000"), Duration::from_millis(50)).await;
    assert_eq!(late.expect_err("late").kind(), io::ErrorKind::TimedOut);
    let endless = run_within(shell(), script("while :; do echo 0123456789; done"), within).await;
    assert!(endless.expect_err("too much").to_string().contains("more than 4194304 bytes"));
    let machine = Machine { programs: Arc::default() };
    let [host, owner, name] = ["github.com", "acme", "shop"].map(str::to_owned);
    let missing = machine.ask(Vec::new(), &Remote { host, owner, name }).await;
    assert_eq!(missing.expect_err("none").kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_program_that_nobody_waits_for_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let pid_file = folder.path().join("pid");
    let wait = format!("echo $$ > {}; exec sleep 1000", pid_file.display());
    let read_pid = async {
        loop {
            let pid =
                std::fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse::<u32>().ok());
            if let Some(pid) = pid {
                return pid;
            }
            tokio::task::yield_now().await;
        }
    };
    let pid = tokio::select! {
        ended = run_within(shell(), script(&wait), Duration::from_secs(60)) => panic!("{ended:?}"),
        pid = read_pid => pid,
    };
    while crate::capability::source::process::running(pid).is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn abandoned_work_keeps_the_lock_until_its_end() {
    static LOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let (begin, begun) = tokio::sync::oneshot::channel();
    let (finish, finished) = std::sync::mpsc::sync_channel::<()>(1);
    let work = run_exclusively(&LOCK, move || {
        begin.send(()).expect("it is waited for");
        finished.recv().expect("it may finish");
    });
    tokio::select! {
        biased;
        _ = work => panic!("it waits"),
        found = begun => found.expect("it began"),
    }
    assert!(LOCK.try_lock().is_err(), "the work goes on");
    finish.send(()).expect("it waits");
    let ((), _guard) = run_exclusively(&LOCK, || ()).await.expect("it does not panic");
}

//! Looks that are delayed in their access to files.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use rustix::event::{Timespec, poll};
use serde_json::json;

use super::*;
use engine::{
    call::{Touch, TouchKind},
    event::Severity,
    probe::{Entry, Fingerprint, Memory, Space, facts::ContentHash},
};
use journal::time::Timestamp;

use crate::{
    api::{
        Registry,
        tests::{Daemon, daemon_with},
    },
    daemon::program::Programs,
};

/// What delays each access to a file.
#[derive(Debug, Clone)]
enum Delay {
    For(Duration),
    Until(Arc<Gate>),
}

/// Holds accesses while it is closed.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    waiting: usize,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_closed = true;
    }

    fn open(&self) {
        self.lock().is_closed = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        while state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }
}

struct Delayed {
    machine: Machine,
    delay: Delay,
}

impl Delayed {
    fn machine(&self) -> &Machine {
        match &self.delay {
            Delay::For(time) => {
                let time = Timespec::try_from(*time).expect("short");
                poll(&mut [], Some(&time)).expect("the time passes");
            }
            Delay::Until(gate) => gate.pass(),
        }
        &self.machine
    }
}

impl Facts for Delayed {
    fn entry(&self, path: &Path) -> Entry {
        self.machine().entry(path)
    }

    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash> {
        self.machine().hash(path, found)
    }

    fn kept(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.machine.kept(hash)
    }

    fn remember(&self, hash: ContentHash, text: &str) {
        self.machine.remember(hash, text);
    }

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        self.machine().read(path, from, max)
    }

    fn name_of(&self, folder: &Path, device: u64, inode: u64) -> Option<String> {
        self.machine().name_of(folder, device, inode)
    }

    fn names(&self, folder: &Path, max: usize) -> Vec<String> {
        self.machine().names(folder, max)
    }

    fn changed_between(&self, objects: &Path, old: &str, new: &str) -> Option<Arc<[String]>> {
        self.machine().changed_between(objects, old, new)
    }

    fn space(&self, path: &Path) -> Option<Space> {
        self.machine().space(path)
    }

    fn accepts(&self, port: u16) -> Option<bool> {
        self.machine.accepts(port)
    }
}

/// A session on a file system with this delay.
struct Agent {
    daemon: Daemon,
    memory: Memory,
    work: tempfile::TempDir,
    _state: tempfile::TempDir,
    session: SessionId,
    delay: Delay,
    reports: u32,
}

/// The current time of the file system.
fn file_time(path: &Path) -> Timestamp {
    fs::write(path, "").expect("written");
    let found = fs::metadata(path).expect("it has a time");
    let millis = found.mtime() * 1_000 + found.mtime_nsec() / 1_000_000;
    Timestamp::from_millis(u64::try_from(millis).expect("after 1970"))
}

impl Agent {
    fn new(delay: Delay) -> Self {
        let times = tempfile::tempdir().expect("a folder");
        let state = tempfile::tempdir().expect("a folder");
        let programs = Arc::new(Programs::find(state.path()).expect("prepared"));
        let registry = Registry::new(1).with_programs(programs);
        let daemon = daemon_with(registry, move || file_time(&times.path().join("now")));
        let work = tempfile::tempdir().expect("a folder");
        fs::write(work.path().join("a"), "1\n").expect("written");
        fs::write(work.path().join("b"), "1\n").expect("written");
        let session = SessionId::new("s1");
        Self { daemon, memory: Memory::default(), work, _state: state, session, delay, reports: 0 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn take(&mut self, event: &Event) {
        self.memory.note(&event.as_ref(), self.daemon.app.now());
        self.daemon.app.registry.knowledge().publish(self.memory.take_changes());
    }

    fn report(&mut self, event_type: &str) {
        self.reports += 1;
        let id = format!("r{}", self.reports);
        let event = Event {
            source: "claude-code".into(),
            provenance: Provenance::Harness,
            session: Some(self.session.clone()),
            workspace: self.work.path().to_str().map(Arc::from),
            ..Event::own(event_type, id, Severity::Debug, json!({}), self.daemon.app.now())
        };
        self.take(&event);
    }

    fn begin(&mut self) {
        self.report("tool.call.pending");
    }

    /// Ends a call; returns the findings of its exchange, by kind and path.
    async fn end(&mut self, call: Call) -> Vec<String> {
        let mut exchange = Exchange::new(self.session.clone(), InjectionPoint::AfterTool, "c");
        exchange.harness.workspace = self.work.path().to_str().map(Arc::from);
        let said =
            HarnessReport { calls: vec![call], provenance: Provenance::Harness, ..HarnessReport::default() };
        let delay = self.delay.clone();
        let through = move |machine| -> Box<dyn Facts> { Box::new(Delayed { machine, delay }) };
        let found = look_through(&self.daemon.app, &exchange, said, Some(through)).await;
        self.report("tool.call.success");
        let mut reported = Vec::new();
        for event in &found {
            self.take(event);
            let payload = event.payload.value();
            let path = payload.get("path").or(payload.get("branch")).and_then(|path| path.as_str());
            reported.extend(path.map(|path| format!("{} {path}", event.event_type)));
        }
        reported
    }

    async fn call(&mut self, call: Call) -> Vec<String> {
        self.begin();
        self.end(call).await
    }

    /// Makes a call after the look of the last one has finished.
    async fn calm_call(&mut self, call: Call) -> Vec<String> {
        self.calm().await;
        self.call(call).await
    }

    async fn calm(&self) {
        let looks = self.daemon.app.registry.looks();
        while !looks.looking.is_empty() {
            tokio::task::spawn_blocking(|| poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })))
                .await
                .expect("it runs")
                .expect("the time passes");
        }
    }

    fn touch(&self, name: &str, by: TouchKind) -> Call {
        let path = self.path(name).to_str().expect("text").into();
        Call { touched: vec![Touch { path, by, written: None }], ..Call::default() }
    }

    fn git(&self, script: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-ec", script]).current_dir(self.work.path());
        for role in ["AUTHOR", "COMMITTER"] {
            shell.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
        }
        shell.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(shell.status().expect("it runs").success(), "{script}");
    }

    /// Calls until something is reported; returns it with the number of the call.
    async fn reported(&mut self, calls_max: usize) -> Option<(usize, Vec<String>)> {
        for number in 0..=calls_max {
            let reported = self.calm_call(runs("ls")).await;
            if !reported.is_empty() {
                return Some((number, reported));
            }
        }
        None
    }
}

fn runs(command: &str) -> Call {
    Call { command: Some(command.to_owned()), ..Call::default() }
}

/// Most calls that a change may be reported late.
const CALLS_LATE_MAX: usize = 2;

#[tokio::test]
async fn a_slow_mount_delays_a_change_two_calls() {
    for millis in [0, 1, 5, 20, 60] {
        for has_git in [false, true] {
            let mut agent = Agent::new(Delay::For(Duration::from_millis(millis)));
            if has_git {
                agent.git("git init -q -b main . && git add . && git commit -qm one");
                agent.git(
                    "git checkout -q -b fix && echo 2 >b && git commit -qam two && git checkout -q main",
                );
            }
            agent.calm_call(agent.touch("a", TouchKind::Read)).await;
            agent.calm_call(agent.touch("b", TouchKind::Read)).await;
            // Both are known after the look of the second call.
            assert_eq!(agent.reported(1).await, None, "nothing has changed");
            agent.write("a", "2\n");
            let reported = agent.reported(CALLS_LATE_MAX).await.map(|(_, reported)| reported);
            assert_eq!(reported, Some(vec!["fs.known.modified a".to_owned()]), "{millis} ms, {has_git}");
            assert_eq!(agent.reported(3).await, None, "once");
            if has_git {
                // A look that runs meanwhile may see the file and not yet the move.
                agent.calm().await;
                agent.git("git checkout -q fix");
                let reported = agent.reported(CALLS_LATE_MAX).await.map(|(_, reported)| reported);
                let reported = reported.unwrap_or_default().join(", ");
                assert!(reported == "git.head.moved fix", "{millis} ms: {reported}");
                assert_eq!(agent.reported(3).await, None, "once");
            }
        }
    }
}

#[tokio::test]
async fn a_held_look_is_reported_once() {
    let gate = Arc::new(Gate::default());
    let mut agent = Agent::new(Delay::Until(Arc::clone(&gate)));
    agent.call(agent.touch("a", TouchKind::Read)).await;
    agent.write("a", "2\n");
    gate.close();
    for _ in 0..5 {
        assert_eq!(agent.call(runs("ls")).await, Vec::<String>::new());
    }
    gate.open();
    let (_, reported) = agent.reported(0).await.expect("the look that was held is kept");
    assert_eq!(reported, ["fs.known.modified a"]);
    assert_eq!(agent.reported(3).await, None, "once");
    let slow = agent.daemon.app.registry.looks().slow_folders();
    assert_eq!(slow.iter().map(|(_, slow)| slow.count).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn the_agents_doings_during_a_look_are_silent() {
    for does in ["edits", "runs a command", "edits and reads", "removes"] {
        let gate = Arc::new(Gate::default());
        let mut agent = Agent::new(Delay::Until(Arc::clone(&gate)));
        agent.call(agent.touch("a", TouchKind::Read)).await;
        agent.call(agent.touch("b", TouchKind::Read)).await;
        gate.close();
        agent.call(runs("ls")).await;
        // The look is under way; what follows may be seen by it or not.
        agent.begin();
        let call = match does {
            "edits" | "edits and reads" => {
                agent.write("a", "own\n");
                agent.touch("a", TouchKind::Written)
            }
            "removes" => {
                fs::remove_file(agent.path("a")).expect("removed");
                runs("rm a")
            }
            _ => {
                agent.write("a", "own\n");
                runs("./generate.sh")
            }
        };
        assert_eq!(agent.end(call).await, Vec::<String>::new(), "{does}");
        if does == "edits and reads" {
            agent.call(agent.touch("a", TouchKind::Read)).await;
        }
        gate.open();
        assert_eq!(agent.reported(4).await, None, "{does}");
        // It still knows the files.
        agent.write("a", "foreign\n");
        agent.write("b", "foreign\n");
        let reported = agent.reported(CALLS_LATE_MAX).await.map(|(_, reported)| reported).unwrap_or_default();
        assert_eq!(reported, ["fs.known.modified a", "fs.known.modified b"], "{does}");
    }
}

#[tokio::test]
async fn file_that_a_held_look_read_stays_known() {
    let gate = Arc::new(Gate::default());
    let mut agent = Agent::new(Delay::Until(Arc::clone(&gate)));
    gate.close();
    agent.call(agent.touch("a", TouchKind::Read)).await;
    agent.begin();
    agent.write("b", "own\n");
    // A command that may have written any file: what the look found is left to the next one.
    agent.end(runs("./generate.sh")).await;
    gate.open();
    assert_eq!(agent.reported(2).await, None);
    agent.write("a", "foreign\n");
    let reported = agent.reported(CALLS_LATE_MAX).await.map(|(_, reported)| reported);
    assert_eq!(reported, Some(vec!["fs.known.modified a".to_owned()]));
}

#[tokio::test]
async fn a_commit_during_a_look_is_not_reported() {
    let gate = Arc::new(Gate::default());
    let mut agent = Agent::new(Delay::Until(Arc::clone(&gate)));
    agent.git("git init -q -b main . && git add . && git commit -qm one");
    agent.call(agent.touch("a", TouchKind::Read)).await;
    agent.call(runs("ls")).await;
    gate.close();
    agent.call(runs("ls")).await;
    agent.begin();
    agent.git("git checkout -q -b own && echo own >a && git commit -qam two");
    assert_eq!(agent.end(runs("git checkout -b own && git commit -am two")).await, Vec::<String>::new());
    gate.open();
    assert_eq!(agent.reported(4).await, None, "it is the agent's own");
}

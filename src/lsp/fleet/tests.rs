//! Scenarios: sessions write, servers answer, exit and hang, and the published events.

use serde_json::{Value, json};

use super::*;
use crate::event::SessionId;

const SECOND: Duration = Duration::from_secs(1);

/// Servers that start at once and send what a test specifies.
struct Lab {
    fleet: Fleet,
    now: Timestamp,
    /// The runs that were started and have not ended.
    running: Vec<RunId>,
    /// Actions and publications, in short form.
    done: Vec<String>,
    /// The newest version of each document, by run and path.
    versions: BTreeMap<(RunId, String), i64>,
    texts: BTreeMap<String, String>,
    answers: bool,
}

impl Lab {
    fn new() -> Self {
        let settings = Settings { enabled: true, ..Settings::default() };
        Self {
            fleet: Fleet::new(settings, 7),
            now: Timestamp::from_millis(1_000),
            running: Vec::new(),
            done: Vec::new(),
            versions: BTreeMap::new(),
            texts: BTreeMap::new(),
            answers: true,
        }
    }

    /// A session writes a file in a folder.
    fn write(&mut self, session: &str, root: &str, text: &str) {
        let path: Arc<str> = format!("{root}/a.rs").into();
        self.texts.insert(path.to_string(), text.to_owned());
        let write = Write { writer: writer(session), path, root: root.into(), kind: "rust".into() };
        self.fleet.wrote(write, self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.fleet.next_action() {
            match action {
                Action::Start { run, root, .. } => {
                    self.running.push(run);
                    self.done.push(format!("start {root}"));
                }
                Action::Send { run, message } => self.sent(run, &message),
                Action::Read { run, path, writer } | Action::Look { run, path, writer } => {
                    let text = self.texts.get(&*path).cloned();
                    self.fleet.text(run, &path, &writer, text, self.now);
                }
                Action::Close(run) => {
                    self.done.push("close".to_owned());
                    self.end(run, "closed");
                }
                Action::Kill { run, why } => {
                    self.done.push("kill".to_owned());
                    self.end(run, why);
                }
                Action::Ready { .. } => {}
                Action::GiveUp(why) => self.done.push(format!("given up: {why}")),
                Action::Publish(event) => self.done.push(short(&event)),
            }
        }
    }

    fn sent(&mut self, run: RunId, message: &Value) {
        let document = &message["params"]["textDocument"];
        if let (Some(uri), Some(version)) = (document["uri"].as_str(), document["version"].as_i64()) {
            self.versions.insert((run, uri.to_owned()), version);
        }
        let Some(id) = message["id"].as_u64().filter(|_| self.answers) else { return };
        let result = Some(json!({ "capabilities": { "documentSymbolProvider": true } }));
        self.fleet.take(run, Incoming::Answer { id, result }, self.now);
    }

    /// The newest server finds errors with these messages in the file of a folder.
    fn find(&mut self, root: &str, messages: &[&str]) {
        let run = *self.running.last().expect("one runs");
        let uri = format!("file://{root}/a.rs");
        let version = self.versions.get(&(run, uri.clone()));
        let start = json!({ "line": 2, "character": 4 });
        let one = |message: &&str| json!({ "range": { "start": start, "end": start }, "severity": 1, "code": "E1", "message": message });
        let diagnostics: Vec<Value> = messages.iter().map(one).collect();
        let params = json!({ "uri": uri, "version": version, "diagnostics": diagnostics });
        let method = "textDocument/publishDiagnostics".to_owned();
        self.fleet.take(run, Incoming::Notice { method, params }, self.now);
        self.wait(SECOND * 3);
    }

    fn end(&mut self, run: RunId, why: &str) {
        self.running.retain(|other| *other != run);
        self.fleet.ended(run, End::Ended(why.to_owned()), self.now);
    }

    /// The newest server exits.
    fn die(&mut self) {
        let run = *self.running.last().expect("one runs");
        self.end(run, "it died");
        self.act();
    }

    fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        self.act();
        while let Some(at) = self.fleet.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.fleet.advance(self.now);
            self.act();
        }
        self.now = until;
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }
}

fn writer(session: &str) -> Writer {
    Writer { session: SessionId::new(session), workspace: Some("/w".into()) }
}

fn short(event: &Event) -> String {
    let payload = event.payload.value();
    let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
    let whose = event.session.as_ref().map_or("-", SessionId::as_str);
    match event.event_type.as_str() {
        "problem.found" => {
            format!(
                "{whose}: found {} {}:{} {}",
                text("code"),
                text("file"),
                payload["line"],
                text("message")
            )
        }
        "problem.fixed" => format!("{whose}: fixed {}", text("message")),
        "problem.cleared" => format!("{whose}: cleared {}", text("tool")),
        other => other.to_owned(),
    }
}

#[test]
fn an_error_and_its_repair_are_said_once_whatever_happens_to_the_server() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    lab.find("/w", &["old"]);
    assert_eq!(lab.take(), ["start /w"], "what was there before is not said");
    lab.write("s", "/w", "2");
    lab.find("/w", &["old", "new"]);
    lab.find("/w", &["new", "old"]);
    assert_eq!(lab.take(), ["s: found E1 a.rs:3 new"]);
    lab.die();
    lab.wait(SECOND);
    lab.find("/w", &["old", "new"]);
    assert_eq!(lab.take(), ["start /w"], "the next run finds the same");
    lab.wait(Duration::from_secs(700));
    assert_eq!(lab.take(), ["close"], "nobody needs it");
    assert_eq!(lab.fleet.deadline(), None);
    lab.write("s", "/w", "3");
    lab.find("/w", &["old"]);
    assert_eq!(lab.take(), ["start /w", "s: fixed new", "s: cleared rust-analyzer"]);
}

#[test]
fn a_file_that_is_changed_by_other_means_is_looked_at_after_the_next_call() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    lab.find("/w", &[]);
    lab.texts.insert("/w/a.rs".to_owned(), "by sed".to_owned());
    lab.fleet.looked(&writer("other"), lab.now);
    lab.act();
    assert_eq!(lab.versions.values().max(), Some(&1), "a session that never wrote there changes nothing");
    lab.fleet.looked(&writer("s"), lab.now);
    lab.act();
    lab.find("/w", &["new"]);
    assert_eq!(lab.take(), ["start /w", "s: found E1 a.rs:3 new"]);
    lab.texts.clear();
    lab.fleet.looked(&writer("s"), lab.now);
    lab.act();
    lab.find("/w", &[]);
    assert_eq!(lab.take(), ["s: fixed new", "s: cleared rust-analyzer"]);
}

#[test]
fn one_that_dies_is_started_again_three_times_later_each_time() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    for wait in [1, 4, 16] {
        lab.die();
        lab.wait(SECOND * wait - Duration::from_millis(1));
        assert_eq!(lab.running.len(), 0, "{wait}");
        lab.wait(Duration::from_millis(1));
        assert_eq!(lab.running.len(), 1, "{wait}");
    }
    lab.take();
    lab.die();
    let given_up = "given up: rust-analyzer in /w: it died; it is not restarted";
    assert_eq!(lab.take(), [given_up]);
    lab.write("s", "/w", "2");
    lab.wait(SECOND * 3_600);
    assert_eq!((lab.take(), lab.fleet.deadline()), (Vec::new(), None));
    let mut settings = lab.fleet.settings().clone();
    settings.idle = SECOND * 60;
    lab.fleet.set(settings, lab.now);
    lab.write("s", "/w", "3");
    assert_eq!(lab.take(), ["start /w"], "other settings are another try");
    lab.wait(SECOND * 601);
    lab.write("s", "/w", "4");
    lab.find("/w", &[]);
    lab.die();
    lab.wait(SECOND);
    assert_eq!(lab.running.len(), 1, "one that was well has not failed before");
}

#[test]
fn one_that_is_not_there_or_never_answers_is_said_once() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    let run = lab.running.pop().expect("one runs");
    lab.fleet.ended(run, End::NotStarted("there is no rust-analyzer".to_owned()), lab.now);
    lab.act();
    let missing = "given up: rust-analyzer in /w: there is no rust-analyzer; it is not restarted";
    assert_eq!(lab.take(), ["start /w", missing]);

    let mut lab = Lab { answers: false, ..Lab::new() };
    lab.write("s", "/w", "1");
    lab.wait(SECOND * 3_600);
    let done = lab.take();
    assert_eq!(done.iter().filter(|done| *done == "kill").count(), 4);
    assert_eq!(done.iter().filter(|done| done.contains("did not answer")).count(), 1, "{done:?}");
}

#[test]
fn runs_have_a_bound_and_an_unneeded_one_makes_room() {
    let mut lab = Lab::new();
    for number in 0..RUNS_MAX + 1 {
        lab.write("s", &format!("/w/{number}"), "1");
        lab.find(&format!("/w/{}", number.min(RUNS_MAX - 1)), &[]);
    }
    assert_eq!(lab.running.len(), RUNS_MAX);
    lab.take();
    lab.wait(SECOND * 60);
    lab.write("s", "/w/4", "2");
    lab.wait(SECOND);
    assert_eq!(lab.take(), ["close", "start /w/4"]);
    assert_eq!(lab.running.len(), RUNS_MAX);
    for number in 0..100 {
        lab.write("s", &format!("/v/{number}"), "1");
    }
    assert!(lab.fleet.places.len() <= PLACES_MAX);
}

#[test]
fn one_that_is_switched_off_is_stopped() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    lab.find("/w", &[]);
    let mut settings = lab.fleet.settings().clone();
    settings.servers.insert("rust".into(), Arc::new(Kind::default()));
    lab.fleet.set(settings, lab.now);
    lab.wait(SECOND * 3);
    assert_eq!((lab.take(), lab.fleet.deadline()), (vec!["start /w".to_owned(), "close".to_owned()], None));
    lab.write("s", "/w", "2");
    assert_eq!(lab.running, Vec::<RunId>::new());
}

#[test]
fn nobody_is_lost_who_writes_while_a_server_stops() {
    let mut lab = Lab { ..Lab::new() };
    lab.write("s", "/w", "1");
    lab.find("/w", &[]);
    lab.answers = false;
    lab.now = lab.now + Duration::from_secs(601);
    lab.fleet.advance(lab.now);
    lab.answers = true;
    lab.write("s", "/w", "2");
    lab.wait(SECOND * 3);
    assert_eq!(lab.take(), ["start /w", "close", "start /w"]);
}

#[test]
fn the_end_of_a_stopped_run_leaves_the_next_run_of_its_place_alone() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    lab.find("/w", &[]);
    let mut settings = lab.fleet.settings().clone();
    let other = Kind { command: vec!["other".to_owned()], ..Kind::clone(&settings.servers["rust"]) };
    settings.servers.insert("rust".into(), Arc::new(other));
    // The first server does not answer `shutdown`, so it ends after the next one has begun.
    lab.answers = false;
    lab.fleet.set(settings, lab.now);
    lab.act();
    lab.answers = true;
    lab.write("s", "/w", "2");
    lab.wait(SECOND * 3);
    lab.write("s", "/w", "3");
    assert_eq!(lab.take(), ["start /w", "start /w", "close"]);
}

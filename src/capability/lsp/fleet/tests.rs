//! Scenarios: sessions write, servers answer, exit and hang, and the published events.

use serde_json::{Value, json};

use super::*;
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
    versions: SortedMap<(RunId, String), i64>,
    texts: SortedMap<String, String>,
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
            versions: SortedMap::new(),
            texts: SortedMap::new(),
            answers: true,
        }
    }

    /// A session writes a file in a folder.
    fn write(&mut self, session: &str, root: &str, text: &str) {
        self.write_file(session, root, "a.rs", text);
    }

    fn write_file(&mut self, session: &str, root: &str, name: &str, text: &str) {
        let path: Arc<str> = format!("{root}/{name}").into();
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
        self.push(&format!("{root}/a.rs"), messages);
        self.wait(SECOND * 3);
    }

    /// The newest server sends its errors in a file.
    fn push(&mut self, path: &str, messages: &[&str]) {
        let run = *self.running.last().expect("one runs");
        let uri = format!("file://{path}");
        let version = self.versions.get(&(run, uri.clone()));
        let start = json!({ "line": 2, "character": 4 });
        let one = |message: &&str| json!({ "range": { "start": start, "end": start }, "severity": 1, "code": "E1", "message": message });
        let diagnostics: Vec<Value> = messages.iter().map(one).collect();
        let params = json!({ "uri": uri, "version": version, "diagnostics": diagnostics });
        self.notify("textDocument/publishDiagnostics", params);
    }

    /// The newest server sends a notification.
    fn notify(&mut self, method: &str, params: Value) {
        let run = *self.running.last().expect("one runs");
        self.fleet.take(run, Incoming::Notice { method: method.to_owned(), params }, self.now);
        self.act();
    }

    /// The newest server sends its errors in all files: in each the text after `bad:`, and an old
    /// one in a file that was only read.
    fn push_all(&mut self) {
        for (path, text) in self.texts.clone() {
            let bad: Vec<&str> = text.strip_prefix("bad:").into_iter().collect();
            self.push(&path, &bad);
        }
        self.push("/w/read.rs", &["old"]);
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
fn error_and_fix_are_reported_once_across_restarts() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    lab.find("/w", &["old"]);
    assert_eq!(lab.take(), ["start /w", "s: found E1 a.rs:3 old"], "it is in a written file");
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
    lab.find("/w", &[]);
    assert_eq!(lab.take(), ["start /w", "s: fixed new", "s: fixed old", "s: cleared rust"]);
}

/// How a server starts.
#[derive(Debug, Clone, Copy)]
enum Boot {
    /// It reports at once.
    Quick,
    /// It answers `initialize` after 8 s.
    Slow,
    /// It reports work for 200 s.
    Minutes,
    /// It is silent for 200 s.
    Silent,
    /// It exits after 4 s, before any report, and the next run reports.
    Restart,
}

impl Boot {
    /// Does what the server does in a second; returns whether it reports its findings.
    fn act(self, lab: &mut Lab, second: u64) -> bool {
        let progress = |kind: &str| json!({ "token": 1, "value": { "kind": kind } });
        match (self, second) {
            (Self::Slow, 8) => {
                lab.answers = true;
                let run = *lab.running.last().expect("one runs");
                let result = Some(json!({ "capabilities": { "documentSymbolProvider": true } }));
                lab.fleet.take(run, Incoming::Answer { id: 1, result }, lab.now);
                lab.act();
            }
            (Self::Minutes, 0) => lab.notify("$/progress", progress("begin")),
            (Self::Minutes, 60 | 120 | 180) => lab.notify("$/progress", progress("report")),
            (Self::Minutes, 200) => lab.notify("$/progress", progress("end")),
            (Self::Restart, 4) => lab.die(),
            _ => {}
        }
        match self {
            Self::Quick => true,
            Self::Slow => second >= 8,
            Self::Minutes | Self::Silent => second >= 200,
            Self::Restart => second >= 8,
        }
    }
}

#[test]
fn errors_written_while_a_server_starts_are_delivered() {
    for boot in [Boot::Quick, Boot::Slow, Boot::Minutes, Boot::Silent, Boot::Restart] {
        let mut lab = Lab { answers: !matches!(boot, Boot::Slow), ..Lab::new() };
        let writes: [(u64, &str, &str, &str); 6] = [
            (0, "s", "m.rs", "fine"),
            (1, "s", "n.rs", "bad:in n"),
            (4, "t", "m.rs", "fine, too"),
            (5, "s", "m.rs", "bad:in m"),
            (6, "t", "q.rs", "fine"),
            (260, "s", "n.rs", "fine"),
        ];
        for second in 0..300 {
            let due = writes.iter().filter(|(at, ..)| *at == second);
            let mut is_due = matches!(second, 8 | 200);
            for (_, session, name, text) in due {
                lab.write_file(session, "/w", name, text);
                is_due = true;
            }
            if boot.act(&mut lab, second) && is_due {
                lab.push_all();
            }
            lab.wait(SECOND);
        }
        let said = lab.take();
        let of = |session: &str| {
            let mut said: Vec<_> = said.iter().filter_map(|said| said.strip_prefix(session)).collect();
            said.sort_unstable();
            said.join(", ")
        };
        let expected = "fixed in n, found E1 m.rs:3 in m, found E1 n.rs:3 in n";
        assert_eq!(of("s: "), expected, "{boot:?}: {said:?}");
        // Both wrote the file before the first report, so the error may be of either.
        let expected = if matches!(boot, Boot::Quick) { "" } else { "found E1 m.rs:3 in m" };
        assert_eq!(of("t: "), expected, "{boot:?}: {said:?}");
    }
}

#[test]
fn commands_count_while_a_server_starts() {
    let mut lab = Lab { answers: false, ..Lab::new() };
    lab.write("s", "/w", "fine");
    lab.texts.insert("/w/a.rs".to_owned(), "bad:by sed".to_owned());
    lab.fleet.looked(&writer("s"), lab.now);
    lab.act();
    Boot::Slow.act(&mut lab, 8);
    lab.push_all();
    lab.wait(SECOND * 3);
    assert_eq!(lab.take(), ["start /w", "s: found E1 a.rs:3 by sed"]);
}

#[test]
fn external_file_change_is_noticed_after_next_call() {
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
    assert_eq!(lab.take(), ["s: fixed new", "s: cleared rust"]);
}

#[test]
fn crashed_server_restarts_three_times_with_backoff() {
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
    let given_up = "given up: rust (rust-analyzer) in /w: it died; it is not restarted";
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
fn missing_or_silent_server_is_reported_once() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    let run = lab.running.pop().expect("one runs");
    lab.fleet.ended(run, End::NotStarted("there is no rust-analyzer".to_owned()), lab.now);
    lab.act();
    let missing = "given up: rust (rust-analyzer) in /w: there is no rust-analyzer; it is not restarted";
    assert_eq!(lab.take(), ["start /w", missing]);

    let mut lab = Lab { answers: false, ..Lab::new() };
    lab.write("s", "/w", "1");
    lab.wait(SECOND * 3_600);
    let done = lab.take();
    assert_eq!(done.iter().filter(|done| *done == "kill").count(), 4);
    assert_eq!(done.iter().filter(|done| done.contains("did not answer")).count(), 1, "{done:?}");
}

#[test]
fn server_runs_are_bounded_and_idle_ones_evicted() {
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
fn disabled_server_is_stopped() {
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
fn write_during_server_stop_starts_a_new_run() {
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
fn late_run_end_does_not_stop_its_replacement() {
    let mut lab = Lab::new();
    lab.write("s", "/w", "1");
    lab.find("/w", &[]);
    let mut settings = lab.fleet.settings().clone();
    let other = Kind {
        command: vec!["other".to_owned()],
        ..Kind::clone(settings.servers.get("rust").expect("shipped"))
    };
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

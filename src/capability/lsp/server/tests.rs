//! Table tests of servers: activity, and the returned findings with their times.

use super::*;
use crate::capability::lsp::message::Incoming;

const FILE: &str = "/w/a.rs";
const MILLI: Duration = Duration::from_millis(1);

/// Capabilities of a server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Can {
    /// It answers diagnostics requests.
    Pull,
    /// It sends versions, or answers symbol requests.
    Push,
    /// It does neither.
    Little,
}

struct Lab {
    server: Server,
    now: Timestamp,
    /// Ids of unanswered requests.
    open: Vec<u64>,
    methods: Vec<String>,
    given: Vec<(u64, Vec<String>)>,
}

impl Lab {
    fn new() -> Self {
        let server = Server::new("/w", 7, Timestamp::default());
        let mut lab =
            Self { server, now: Timestamp::default(), open: vec![], methods: vec![], given: vec![] };
        lab.drain();
        lab
    }

    fn begun(can: Can) -> Self {
        let mut lab = Self::new();
        let capabilities = match can {
            Can::Pull => json!({ "diagnosticProvider": { "interFileDependencies": true } }),
            Can::Push => json!({ "documentSymbolProvider": true, "diagnosticProvider": null }),
            Can::Little => json!({ "documentSymbolProvider": false }),
        };
        lab.take(Incoming::Answer { id: 1, result: Some(json!({ "capabilities": capabilities })) });
        lab.open.clear();
        lab
    }

    fn drain(&mut self) {
        while let Some(message) = self.server.next_message() {
            self.methods.extend(message["method"].as_str().map(str::to_owned));
            self.open.extend(message["id"].as_u64().filter(|_| message.get("method").is_some()));
        }
    }

    fn take(&mut self, incoming: Incoming) {
        self.server.take(incoming, self.now);
        self.drain();
    }

    fn notice(&mut self, method: &str, params: Value) {
        self.take(Incoming::Notice { method: method.to_owned(), params });
    }

    fn answer(&mut self, result: &Option<Value>) {
        for id in std::mem::take(&mut self.open) {
            self.take(Incoming::Answer { id, result: result.clone() });
        }
    }

    fn wait(&mut self, millis: u64) {
        let until = self.now + MILLI * u32::try_from(millis).expect("short");
        while let Some(at) = self.server.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            assert_eq!(self.server.advance(self.now), Need::Nothing);
            self.drain();
            if let Some(found) = self.server.settled(self.now) {
                self.given.push((self.now.as_millis(), found.into_iter().map(|one| one.message).collect()));
            }
        }
        self.now = until;
    }

    fn push(&mut self, version: Option<i64>, message: &str) {
        let params =
            json!({ "uri": "file:///w/a.rs", "version": version, "diagnostics": diagnostics(message) });
        self.notice("textDocument/publishDiagnostics", params);
    }

    /// One activity, or a passage of time.
    fn step(&mut self, step: &str) {
        let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
        match word {
            "write" => {
                self.server.write(&FILE.into(), rest.to_owned(), self.now);
                self.drain();
            }
            "push" => {
                let (version, message) = rest.split_once(' ').unwrap_or((rest, ""));
                self.push(version.parse().ok(), message);
            }
            "answer" => self.answer(&Some(json!({ "kind": "full", "items": diagnostics(rest) }))),
            "refuse" => self.answer(&None),
            "task" => self.notice("$/progress", json!({ "token": 1, "value": { "kind": rest } })),
            "busy" | "rest" => {
                self.notice("experimental/serverStatus", json!({ "quiescent": word == "rest" }));
            }
            millis => self.wait(millis.parse().expect("milliseconds")),
        }
    }
}

fn diagnostics(message: &str) -> Value {
    let start = json!({ "line": 0, "character": 0 });
    let one = json!({ "range": { "start": start, "end": start }, "severity": 1, "message": message });
    if message.is_empty() { json!([]) } else { json!([one]) }
}

/// Activities, separated by `;` (a number is a pause in milliseconds), and the returned findings
/// with their milliseconds.
const STORIES: &[(&str, Can, &str, &str)] = &[
    ("a push of this version", Can::Push, "write a; 50; push 1 x", "2050 x"),
    ("a stale push is nothing", Can::Push, "write a; write b; push 1 stale; 50; push 2", "2050"),
    (
        "a push without a version before the text was taken in is nothing",
        Can::Push,
        "write a; answer; push - x; 3000; write b; push - stale; 100; answer; 400; push -",
        "2000 x; 3800",
    ),
    ("of one that can say little any push counts", Can::Little, "write a; 50; push - x", "2050 x"),
    ("one that says nothing", Can::Push, "write a; answer; 61000; write b; answer", "60000; 66000"),
    (
        "one that is late is heard all the same",
        Can::Push,
        "write a; push 1; 3000; write b; answer; 8000; push 2 x",
        "2000; 8000; 11300 x",
    ),
    (
        "while it works it is not quiet",
        Can::Push,
        "write a; push 1; 100; task begin; push 1 half; 60000; task report; 10000; push 1 x; task end",
        "72100 x",
    ),
    (
        "a task that never ends is waited for within a bound, and once",
        Can::Push,
        "write a; push 1 x; task begin; 400000; write b; push 2",
        "300000 x; 400300",
    ),
    ("one that never comes to rest", Can::Push, "busy; write a; push 1 x; 1000; busy", "300000 x"),
    (
        "it is asked once after quick edits, and again when it came to rest",
        Can::Pull,
        "busy; write a; 50; write b; 150; answer half; 500; rest; 150; answer x",
        "2850 x",
    ),
    ("what is refused is asked for again", Can::Pull, "write a; 100; refuse; 100; answer x", "2200 x"),
    (
        "what is always refused is asked for within a bound",
        Can::Pull,
        "write a; 100; refuse; 9000; refuse; 9000; refuse; 9000; refuse; 9000; refuse; 9000; refuse; \
         9000; refuse; 9000; refuse; push 1 x",
        "65100 x",
    ),
    ("an answer that never comes", Can::Pull, "write a; 100; answer x; 2900; write b", "2100 x; 13100 x"),
    ("what is pushed and asked for is given", Can::Pull, "write a; 100; answer x; push 1 y", "2100 y x"),
    (
        "what is gone is gone, whatever version says so",
        Can::Push,
        "write a; push 1 x; 3000; write b; write c; push 2; 9000; write d; push 3 stale",
        "2000 x; 8000; 17000",
    ),
    (
        "what a compiler found that the server runs is of the day",
        Can::Pull,
        "write a; 100; answer x; push 1 y; 2900; write b; push 1; 100; answer",
        "2100 y x; 3400",
    ),
    ("the same text is nothing", Can::Push, "write a; push 1 x; 3000; write a", "2000 x"),
];

/// The findings returned in a scenario, which ends with silence.
fn given_in(can: Can, story: &str) -> String {
    let mut lab = Lab::begun(can);
    story.split(';').for_each(|step| lab.step(step.trim()));
    lab.wait(1_000_000);
    assert_eq!(lab.server.deadline(), None, "{story}: nothing wakes a server that nobody needs");
    let one = |(at, found): &(u64, Vec<String>)| format!("{at} {}", found.join(" ")).trim().to_owned();
    lab.given.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[test]
fn findings_are_returned_once_server_is_quiet() {
    for (name, can, story, expected) in STORIES {
        assert_eq!(given_in(*can, story), *expected, "{name}");
    }
    let edit = |number: usize| format!("write {}; push {number} stale; 40; ", ["a", "b"][number % 2]);
    let quick: String = (0..20).map(edit).collect();
    assert_eq!(given_in(Can::Push, &format!("{quick} push 20 x")), "2800 x", "20 quick edits");
}

#[test]
fn writes_before_start_open_the_newest_version() {
    let mut lab = Lab::new();
    lab.step("write a");
    lab.step("write b");
    assert_eq!(lab.methods, ["initialize"]);
    lab.take(Incoming::Answer { id: 1, result: Some(json!({ "capabilities": {} })) });
    assert_eq!(lab.methods[1..], ["initialized", "textDocument/didOpen", "textDocument/didSave"]);
    lab.step("write c");
    lab.server.close(&FILE.into(), lab.now);
    lab.step("write d");
    let expected =
        ["didChange", "didSave", "didClose", "didOpen", "didSave"].map(|name| format!("textDocument/{name}"));
    assert_eq!(lab.methods[4..], expected);
}

#[test]
fn excess_documents_are_closed_oldest_first() {
    let mut lab = Lab::begun(Can::Little);
    for number in 0..DOCUMENTS_MAX + 3 {
        lab.server.write(&format!("/w/{number}").into(), "x".to_owned(), lab.now);
        // The first one stays in use.
        lab.server.write(&"/w/0".into(), number.to_string(), lab.now);
    }
    let open: Vec<&str> = lab.server.documents().map(|path| &**path).collect();
    assert_eq!(open.len(), DOCUMENTS_MAX);
    assert!(open.contains(&"/w/0") && !open.contains(&"/w/1") && !open.contains(&"/w/3"), "{open:?}");
}

#[test]
fn a_run_ends_in_order_or_is_ended() {
    let at = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
    let mut silent = Lab::new();
    assert_eq!(silent.server.advance(at(119)), Need::Nothing);
    assert!(matches!(silent.server.advance(at(120)), Need::Kill(_)));
    assert_eq!((silent.server.advance(at(121)), silent.server.is_stopping()), (Need::Nothing, false));

    let mut unwilling = Lab::new();
    unwilling.take(Incoming::Answer { id: 1, result: None });
    assert!(matches!(unwilling.server.advance(at(1)), Need::Kill(_)));

    let mut willing = Lab::begun(Can::Push);
    willing.server.stop(at(5));
    willing.drain();
    assert_eq!((willing.server.advance(at(5)), willing.server.is_stopping()), (Need::Nothing, true));
    let id = willing.open.pop().expect("it was asked");
    willing.take(Incoming::Answer { id, result: Some(Value::Null) });
    assert_eq!(willing.methods[2..], ["shutdown", "exit"]);
    assert_eq!((willing.server.advance(at(5)), willing.server.is_stopping()), (Need::Close, true));

    let mut deaf = Lab::begun(Can::Push);
    deaf.server.stop(at(5));
    assert_eq!((deaf.server.advance(at(6)), deaf.server.advance(at(7))), (Need::Nothing, Need::Close));

    let mut young = Lab::new();
    young.server.stop(at(5));
    assert_eq!(young.server.advance(at(5)), Need::Close);
}

#[test]
fn slow_start_that_reports_work_is_not_ended() {
    let mut lab = Lab::new();
    lab.step("write a");
    for _ in 0..4 {
        lab.now = lab.now + Duration::from_secs(100);
        lab.notice("window/logMessage", json!({ "type": 3, "message": "resolving dependencies" }));
        assert_eq!(lab.server.advance(lab.now), Need::Nothing);
        assert_eq!(lab.server.deadline(), Some(lab.now + Duration::from_secs(120)));
    }
    lab.take(Incoming::Answer { id: 1, result: Some(json!({ "capabilities": {} })) });
    assert_eq!(lab.methods[1..], ["initialized", "textDocument/didOpen", "textDocument/didSave"]);
}

#[test]
fn invalid_server_messages_change_nothing() {
    let mut lab = Lab::begun(Can::Push);
    for (method, params) in [
        ("textDocument/publishDiagnostics", json!({})),
        ("textDocument/publishDiagnostics", json!({ "uri": "untitled:1", "diagnostics": diagnostics("x") })),
        ("$/progress", json!([1])),
        ("$/progress", json!({ "token": 5, "value": { "kind": "end" } })),
        ("experimental/serverStatus", json!(null)),
        ("no/such/thing", json!({ "uri": 1 })),
    ] {
        lab.notice(method, params);
    }
    lab.take(Incoming::Answer { id: 99, result: Some(json!("what")) });
    lab.wait(1_000_000);
    assert_eq!(lab.given, []);
    for number in 0..FILES_MAX + 9 {
        let uri = format!("file:///w/{number}");
        lab.notice("textDocument/publishDiagnostics", json!({ "uri": uri, "diagnostics": diagnostics("x") }));
    }
    lab.wait(1_000_000);
    assert_eq!(lab.given[0].1.len(), FILES_MAX);
}

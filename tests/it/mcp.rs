//! The tools of an agent, through `aside mcp` and a real daemon: three versions of the protocol,
//! the session that a call belongs to, and client errors.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use aside::api::wire::formats::INSTRUCTIONS;
use rmcp::{ServiceExt, model::CallToolRequestParams};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::unix::pipe;

use crate::support::daemon::{Home, eventually, roundtrip, text};

/// The versions that clients speak; the last has no handshake.
pub(crate) const VERSIONS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];
const STATELESS: &str = "2026-07-28";

/// A client with its server.
pub(crate) struct Client {
    version: &'static str,
    server: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    calls: u64,
    /// The metadata that each call sends.
    meta: Value,
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

impl Client {
    pub(crate) fn new(home: &Home, version: &'static str) -> Self {
        Self::of(home.command(&["mcp"]), version)
    }

    fn of(command: Command, version: &'static str) -> Self {
        let mut server = start(command);
        let to = server.stdin.take();
        let from = BufReader::new(server.stdout.take().expect("piped"));
        let mut client = Self { version, server, to, from, calls: 0, meta: json!({}) };
        let about = json!({ "name": "test", "version": "1" });
        if version == STATELESS {
            client.meta = json!({
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientInfo": about,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            let found = client.ask("server/discover", json!({}));
            assert!(found["result"]["supportedVersions"].to_string().contains(version), "{found}");
            assert_eq!(found["result"]["instructions"], INSTRUCTIONS, "{found}");
        } else {
            let hello = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": about });
            let found = client.ask("initialize", hello);
            assert_eq!(found["result"]["protocolVersion"], version, "{found}");
            assert_eq!(found["result"]["instructions"], INSTRUCTIONS, "{found}");
            client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        client
    }

    fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.to.as_mut().expect("open").write_all(line.as_bytes()).expect("written");
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("read");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.calls += 1;
        if self.meta != json!({}) {
            params["_meta"] = self.meta.clone();
        }
        self.send(&json!({ "jsonrpc": "2.0", "id": self.calls, "method": method, "params": params }));
        let answer = self.read();
        assert_eq!(answer["id"], self.calls, "{answer}");
        answer
    }

    /// The answer of a tool, and whether it is an error.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        let said = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        (said.to_owned(), result["isError"] == true)
    }

    fn said(&mut self, tool: &str, arguments: &Value) -> String {
        let (said, is_error) = self.call(tool, arguments);
        assert!(!is_error, "{said}");
        said
    }

    /// Ends the server as a client does; returns its exit code and stderr.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.to.take());
        let mut said = String::new();
        self.server.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
        (self.server.wait().expect("it ends").code(), said)
    }
}

/// Opens a session in the home's work folder, with a turn under way.
fn open(home: &Home, session: &str) {
    let harness = json!({ "name": "loop", "workspace": home.work() });
    home.exchange(
        session,
        &json!({ "point": "turn_start", "carrier": "c1", "turn": "t1", "harness": harness }),
    );
}

fn publish(home: &Home, session: &str, path: &str) {
    let payload = json!({ "path": path, "change": "modified" });
    home.publish(&json!({ "type": "fs.file.modified", "session": session, "payload": payload }));
}

#[test]
fn an_agents_event_is_its_own_and_untrusted() {
    let home = Home::new();
    let _daemon = home.serve();
    open(&home, "s1");
    let mut client = Client::new(&home, VERSIONS[1]);
    let event = json!({ "type": "custom.deploy.done", "payload": { "message": "1.4 is live" }, "severity": "critical" });
    let said = client.said("publish", &event);
    let (begin, who) = said.split_once(": ").expect("a position and a subscriber");
    assert!(
        begin.starts_with("published custom.deploy.done as ") && who == "custom_event takes it",
        "{said}"
    );
    let seq = begin.rsplit(' ').next().expect("a position");
    let published = home.get(&format!("/v1/events/{seq}"));
    assert_eq!(published["event"]["session"], "s1", "{published}");
    let inbox = client.said("inbox", &json!({}));
    assert!(inbox.contains("message: 1.4 is live") && inbox.contains("untrusted"), "{inbox}");
    let all = client.said("publish", &json!({ "type": "own.thing.happened", "for": "workspace" }));
    assert!(all.ends_with(": no subscriber takes it"), "{all}");
    let seq = all.split([' ', ':']).nth(3).expect("a position");
    let published = home.get(&format!("/v1/events/{seq}"));
    let folder = (&published["event"]["workspace"], &published["event"]["session"]);
    assert_eq!(folder, (&json!(home.work()), &serde_json::Value::Null), "{published}");
    for (arguments, expected) in [
        (json!({ "type": "custom.a.b", "for": "everybody" }), "for: "),
        (json!({ "type": "custom.a.b", "severity": "bad" }), "severity: "),
        (json!({ "type": "custom.a.b", "source": "ci" }), "source: unknown field"),
        (json!({ "type": "source.throttled" }), "type: "),
        (json!({ "payload": {} }), "type"),
    ] {
        let (wrong, is_error) = client.call("publish", &arguments);
        assert!(is_error && wrong.starts_with(expected), "{arguments}: {wrong}");
    }
}

#[test]
fn three_versions_of_the_protocol_are_spoken() {
    let home = Home::new();
    let _daemon = home.serve();
    open(&home, "s1");
    for version in VERSIONS {
        let mut client = Client::new(&home, version);
        let listed = client.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().expect("tools");
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, ["watch", "inbox", "notify", "publish"], "{version}");
        let set = client.said("watch", &json!({ "conditions": ["file built"], "note": "go on" }));
        let id = set.split([' ', ',']).nth(1).expect("an id").to_owned();
        assert!(set.starts_with("watching w") && set.ends_with("1h00m at most"), "{set}");
        let inbox = client.said("inbox", &json!({}));
        assert!(
            inbox.starts_with("no pending notifications\nwatches[1]{id,waits_for,ends_in}:\n"),
            "{inbox}"
        );
        assert!(inbox.contains(&format!("\n  {id},file built,")), "{inbox}");
        assert_eq!(client.said("inbox", &json!({ "cancel": id })), format!("ended {id}: file built"));
        assert_eq!(client.said("inbox", &json!({})), "no pending notifications");
        let message = format!("{version} is done.");
        let said =
            client.said("notify", &json!({ "message": message, "level": "warn", "category": "workflow" }));
        assert_eq!(said, format!("Notification sent: {message}"));
        let (empty, is_error) = client.call("notify", &json!({ "message": " " }));
        assert!(is_error && empty == "message: is empty", "{empty}");
        let (wrong, is_error) = client.call("watch", &json!({ "conditions": "prot 3000" }));
        assert!(is_error && wrong.contains("did you mean `port [HOST:]PORT`?"), "{wrong}");
        let unknown = client.ask("tools/call", json!({ "name": "wach", "arguments": {} }));
        assert_eq!(unknown["error"]["message"], "unknown tool `wach`: did you mean `watch`?");
        assert_eq!(client.version, version);
        assert_eq!(client.end(), (Some(0), String::new()), "{version}");
    }
    // The messages come from the session, and its next hook shows them.
    let asked = json!({ "point": "after_tool", "carrier": "c9", "turn": "t1", "shows_notices": true });
    let shown = home.exchange("s1", &asked).json();
    let line = shown["notice"].as_str().expect("a line");
    assert_eq!(line.matches(" is done.").count(), VERSIONS.len(), "{line}");
    assert!(line.starts_with(&format!("aside: llm (warning): {} is done.", VERSIONS[0])), "{line}");
}

#[test]
fn inbox_call_delivers_open_batches_exactly_once() {
    let home = Home::new();
    let _daemon = home.serve();
    open(&home, "s1");
    let mut client = Client::new(&home, VERSIONS[0]);
    // Without the request it would wait for the end of the turn, in a batch that is still open.
    publish(&home, "s1", "src/a.rs");
    let inbox = client.said("inbox", &json!({}));
    assert!(inbox.contains("file: src/a.rs"), "{inbox}");
    let session = home.get("/v1/sessions/s1");
    assert_eq!((&session["state"], &session["pending"]), (&json!("streaming"), &json!(0)), "{session}");
    let next = home.exchange("s1", &json!({ "point": "turn_end", "carrier": "c2", "turn": "t1" }));
    assert_eq!(next.status(), 204, "{next:?}");
    let why = home.get("/v1/sessions/s1");
    assert_eq!(why["unconfirmed"], 0, "{why}");
}

#[test]
fn fired_watch_is_delivered_to_its_session() {
    let home = Home::new();
    let _daemon = home.serve();
    open(&home, "s1");
    let mut client = Client::new(&home, VERSIONS[1]);
    client.said("watch", &json!({ "conditions": ["file built"], "note": "go on" }));
    fs::write(home.path("work").join("built"), "").expect("written");
    eventually("a notification", || (home.get("/v1/sessions/s1")["pending"] == 1).then_some(()));
    let inbox = client.said("inbox", &json!({}));
    assert!(inbox.contains("watch: file built") && inbox.contains("note: go on"), "{inbox}");
    let already = client.said("watch", &json!({ "conditions": ["file built"] }));
    assert_eq!(already, "already: file built (it exists)");
}

#[test]
fn session_lookup_prefers_process_then_client_then_folder() {
    let home = Home::new();
    let _daemon = home.serve();
    let whose = |client: &mut Client| {
        let (said, is_error) = client.call("watch", &json!({ "conditions": ["in 1h"] }));
        if is_error {
            return said;
        }
        let id = said.split([' ', ',']).nth(1).expect("an id").to_owned();
        let open = home.get("/v1/watches");
        let watches = open["watches"].as_array().expect("a list").clone();
        let own = watches.iter().find(|watch| watch["id"].as_str().is_some_and(|full| full.starts_with(&id)));
        own.expect("listed")["session"].as_str().expect("a session").to_owned()
    };
    let mut nobody = Client::new(&home, VERSIONS[0]);
    let said = whose(&mut nobody);
    assert_eq!(said, "session: is missing, and the session cannot be determined: none is open");
    // The only session of the folder.
    open(&home, "s1");
    assert_eq!(whose(&mut nobody), "s1");
    open(&home, "s2");
    let said = whose(&mut nobody);
    assert!(said.ends_with("the session cannot be determined: `s1`, `s2`"), "{said}");
    assert!(nobody.said("inbox", &json!({ "session": "s2" })).starts_with("no pending notifications"));
    let (said, is_error) = nobody.call("inbox", &json!({ "session": "s3" }));
    assert!(is_error && said == "there is no open session `s3`", "{said}");
    // The client's variable.
    let mut command = home.command(&["mcp"]);
    command.env("CLAUDE_CODE_SESSION_ID", "s1");
    let mut by_variable = Client::of(command, VERSIONS[0]);
    assert_eq!(whose(&mut by_variable), "s1");
    // The call's own metadata.
    let mut codex = Client::new(&home, VERSIONS[0]);
    codex.meta = json!({ "threadId": "s1" });
    assert_eq!(whose(&mut codex), "s1");
    // A process: this one, which started the server and reports that s2 runs in it. It has
    // precedence over a variable, which may be inherited.
    let harness = json!({ "name": "loop", "workspace": home.work(), "pid": std::process::id() });
    home.exchange("s2", &json!({ "point": "after_tool", "carrier": "c9", "turn": "t1", "harness": harness }));
    assert_eq!([whose(&mut nobody), whose(&mut by_variable)], ["s2", "s2"]);
    codex.meta = json!({ "threadId": "another" });
    assert_eq!(whose(&mut codex), "s2");
    // No call is in the name of another session than the process's own.
    codex.meta = json!({ "threadId": "s1" });
    let expected = "this process belongs to session s2, and may not act for session s1";
    let said = whose(&mut codex);
    assert!(said.starts_with(expected), "{said}");
    for (tool, arguments) in [
        ("inbox", json!({ "session": "s1" })),
        ("watch", json!({ "session": "s1", "conditions": ["in 1h"] })),
        ("notify", json!({ "session": "s1", "message": "x" })),
        ("notify", json!({ "session": "s1", "message": "x?", "choices": ["a", "b"] })),
    ] {
        let (said, is_error) = nobody.call(tool, &arguments);
        assert!(is_error && said.starts_with(expected), "{tool}: {said}");
    }
}

#[test]
fn invalid_mcp_input_fails_only_its_own_call() {
    let home = Home::new();
    let _daemon = home.serve();
    open(&home, "s1");
    let mut client = Client::new(&home, VERSIONS[0]);
    // Input that is not JSON and an empty line are ignored. A message beyond the bound is dropped.
    client.to.as_mut().expect("open").write_all(b"not json\n\n{\"x\":").expect("written");
    client.to.as_mut().expect("open").write_all(&vec![b'1'; 300_000]).expect("written");
    client.to.as_mut().expect("open").write_all(b"}\n").expect("written");
    for (arguments, part) in [
        (json!({ "conditions": [] }), "conditions: must be 1 to 8 texts"),
        (json!({ "conditions": ["in 1h"], "notes": "x" }), "did you mean `note`?"),
        (json!({ "conditions": ["in 1h"], "note": 7 }), "note: must be a string"),
        (json!({ "conditions": ["http http://192.0.2.1/ 200"] }), "another machine"),
    ] {
        let (said, is_error) = client.call("watch", &arguments);
        assert!(is_error && said.contains(part), "{arguments}: {said}");
    }
    let (said, is_error) = client.call("inbox", &json!({ "cancel": "w1" }));
    assert!(is_error && said == "there is no open watch `w1`", "{said}");
    // Many calls at the same time: each is answered, and another client is answered meanwhile.
    for id in 1_000..1_200 {
        let params = json!({ "name": "inbox", "arguments": {} });
        client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }
    assert_eq!(Client::new(&home, VERSIONS[1]).said("inbox", &json!({})), "no pending notifications");
    let mut answered: Vec<u64> = (0..200).filter_map(|_| client.read()["id"].as_u64()).collect();
    answered.sort_unstable();
    assert_eq!(answered, (1_000..1_200).collect::<Vec<_>>());
}

#[test]
fn mcp_server_exits_with_error_when_daemon_stops() {
    let home = Home::new();
    let daemon = home.serve();
    open(&home, "s1");
    let mut client = Client::new(&home, VERSIONS[0]);
    client.said("inbox", &json!({}));
    daemon.signal(Signal::TERM);
    let mut rest = String::new();
    client.from.read_to_string(&mut rest).expect("it ends");
    assert_eq!(client.server.wait().expect("it ends").code(), Some(1));
    let (_, said) = client.end();
    assert_eq!((rest.as_str(), said.as_str()), ("", "aside: failed to speak MCP: the daemon has stopped\n"));
    drop(daemon);
    let without = home.run(&["mcp"]);
    assert_eq!(without.status.code(), Some(1));
    let said = text(&without.stderr);
    assert!(said.contains("no daemon at") && said.lines().count() == 1, "{said}");
}

#[test]
fn mcp_request_without_upgrade_is_answered_with_426() {
    let home = Home::new();
    let _daemon = home.serve();
    let answer = home.ask("POST", "/v1/mcp", "");
    assert_eq!(answer.status(), 426, "{answer:?}");
    let connection = std::os::unix::net::UnixStream::connect(home.socket()).expect("it listens");
    let request = "POST /v1/mcp HTTP/1.1\r\nhost: a\r\nconnection: close\r\nupgrade: websocket\r\n\r\n";
    let said = roundtrip(&connection, request);
    assert!(said.contains("Upgrade: mcp"), "{said}");
}

#[tokio::test]
async fn the_protocols_own_client_uses_the_tools() {
    let home = Home::new();
    let _daemon = home.serve();
    open(&home, "s1");
    let mut server = start(home.command(&["mcp"]));
    let from = OwnedFd::from(server.stdout.take().expect("piped"));
    let to = OwnedFd::from(server.stdin.take().expect("piped"));
    let from = pipe::Receiver::from_owned_fd(from).expect("a pipe");
    let to = pipe::Sender::from_owned_fd(to).expect("a pipe");
    let client = ().serve((from, to)).await.expect("they understand each other");
    let tools = client.list_all_tools().await.expect("listed");
    assert_eq!(tools.len(), 4);
    let mut call = CallToolRequestParams::new("watch");
    call.arguments = json!({ "conditions": ["in 5m"] }).as_object().cloned();
    let answer = client.call_tool(call).await.expect("answered");
    let said = serde_json::to_value(&answer).expect("JSON");
    let said = said["content"][0]["text"].as_str().expect("text").to_owned();
    assert!(said.starts_with("watching w"), "{said}");
    client.cancel().await.expect("it ends");
    assert!(server.wait().expect("it ends").success());
}

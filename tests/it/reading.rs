//! The routes that show or change data of a session, called by a process of another one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    acting,
    mcp::{self, VERSIONS},
    support::daemon::{Daemon, Home, eventually, text},
};

/// What an answer to a process of another session must not contain.
const SECRETS: [&str; 4] = ["secret_given", "secret_pending", "secret_question", "secret_note"];
/// The begin of each refusal.
const REFUSAL: &str = "this process belongs to session alice, and may not act for";

/// A path and a body, with the names of [`Names`] in braces.
type Call = (&'static str, &'static str);

/// What a route does for a process of another session.
enum Route {
    /// It refuses each of these calls.
    Refuses(&'static [Call]),
    /// These calls leave out what belongs to the other session. Answers to a user have all of these
    /// words.
    LeavesOut(&'static [(&'static str, &'static [&'static str])]),
    /// Both.
    LeavesOutAndRefuses(&'static [(&'static str, &'static [&'static str])], &'static [Call]),
    /// Its answer has no data of a session; the body of a harmless call, if there is one.
    HasNone(Option<&'static str>),
    /// A test of its own: it is not answered as a whole.
    Elsewhere,
}

use Route::{Elsewhere, HasNone, LeavesOut, LeavesOutAndRefuses, Refuses};

/// Every route. A new one fails the test until it has a row here.
const ROUTES: [(&str, Route); 58] = [
    ("delete /v1/silences/{id}", Elsewhere),
    ("delete /v1/watches/{id}", Refuses(&[("/v1/watches/{watch}", "")])),
    ("get /healthz", HasNone(Some(""))),
    ("get /metrics", HasNone(Some(""))),
    // How sessions are reached; senders need it.
    ("get /v1/clients", HasNone(Some(""))),
    (
        "get /v1/events",
        LeavesOutAndRefuses(
            &[("/v1/events?limit=1000", &["secret_given", "secret_pending", "secret_question"])],
            &[("/v1/events?session=bob", "")],
        ),
    ),
    ("get /v1/events/stream", Elsewhere),
    ("get /v1/events/{id}", Refuses(&[("/v1/events/given", ""), ("/v1/events/{seq}", "")])),
    // The names of sessions are no secret.
    ("get /v1/formats", HasNone(Some(""))),
    ("get /v1/history/sessions", HasNone(Some(""))),
    (
        "get /v1/inbox",
        LeavesOutAndRefuses(
            &[("/v1/inbox", &["secret_pending"]), ("/v1/inbox?from=0:bob", &["secret_pending"])],
            &[("/v1/inbox?session=bob", "")],
        ),
    ),
    ("get /v1/injections/{id}", Refuses(&[("/v1/injections/{injection}", "")])),
    ("get /v1/instructions", HasNone(Some(""))),
    (
        "get /v1/notifications",
        LeavesOutAndRefuses(
            &[
                ("/v1/notifications?limit=1000", &["secret_given", "secret_pending"]),
                ("/v1/notifications?state=pending", &["secret_pending"]),
            ],
            &[("/v1/notifications?session=bob", "")],
        ),
    ),
    ("get /v1/notifications/{id}", Refuses(&[("/v1/notifications/{given}", "")])),
    ("get /v1/openapi.json", HasNone(Some(""))),
    ("get /v1/questions", LeavesOut(&[("/v1/questions", &["secret_question"])])),
    (
        "get /v1/questions/{id}/wait",
        Refuses(&[("/v1/questions/{question}/wait?timeout=0ms", ""), ("/v1/questions/{answered}/wait", "")]),
    ),
    ("get /v1/sessions", LeavesOut(&[("/v1/sessions", &["\"pending\":2", "\"top_count\":2"])])),
    ("get /v1/sessions/{id}", LeavesOut(&[("/v1/sessions/bob", &["\"pending\"", "\"top_count\":2"])])),
    ("get /v1/sessions/{id}/injections", Refuses(&[("/v1/sessions/bob/injections", "")])),
    ("get /v1/sessions/{id}/messages", Refuses(&[("/v1/sessions/bob/messages", "")])),
    (
        "get /v1/sessions/{id}/region",
        Refuses(&[("/v1/sessions/bob/region", ""), ("/v1/sessions/bob/region?format=json", "")]),
    ),
    (
        "get /v1/sessions/{id}/stream",
        Refuses(&[
            ("/v1/sessions/bob/stream", ""),
            ("/v1/sessions/bob/stream?wake_route=follower", ""),
            ("/v1/sessions/bob/stream?wake_route=follower&pid=1", ""),
        ]),
    ),
    ("get /v1/sessions/{id}/wait", Refuses(&[("/v1/sessions/bob/wait", "")])),
    ("get /v1/silences", HasNone(Some(""))),
    ("get /v1/sinks", HasNone(Some(""))),
    ("get /v1/sources", HasNone(Some(""))),
    ("get /v1/status", HasNone(Some(""))),
    ("get /v1/subscribers", HasNone(Some(""))),
    ("get /v1/trust", HasNone(Some(""))),
    ("get /v1/users/{user}/settings", HasNone(Some(""))),
    (
        "get /v1/watches",
        LeavesOutAndRefuses(&[("/v1/watches", &["secret_note"])], &[("/v1/watches?session=bob", "")]),
    ),
    ("get /v1/webhooks", HasNone(Some(""))),
    ("post /api/v2/alerts", HasNone(Some("[]"))),
    ("post /v1/admin/rebuild", HasNone(None)),
    // Sessions speak to each other by events.
    ("post /v1/events", HasNone(Some(r#"{"type":"made.up","session":"bob"}"#))),
    (
        "post /v1/explain",
        Refuses(&[
            ("/v1/explain", r#"{"type":"tool.call.failure","session":"bob"}"#),
            ("/v1/explain?event=given", ""),
        ]),
    ),
    (
        "post /v1/hooks/{harness}",
        Refuses(&[
            (
                "/v1/hooks/claude",
                r#"{"hook_event_name":"UserPromptSubmit","session_id":"bob","cwd":"/w","prompt":"x"}"#,
            ),
            (
                "/v1/hooks/claude",
                r#"{"hook_event_name":"UserPromptSubmit","session_id":"suspended","cwd":"/w","prompt":"x"}"#,
            ),
        ]),
    ),
    ("post /v1/match", HasNone(Some(r#"{"type":"tool.call.failure","session":"bob"}"#))),
    ("post /v1/mcp", Elsewhere),
    (
        "post /v1/notifications/{id}/discuss",
        Refuses(&[
            ("/v1/notifications/{pending}/discuss", ""),
            ("/v1/notifications/{pending}/discuss?session=bob", ""),
        ]),
    ),
    (
        "post /v1/notifications/{id}/dismiss",
        Refuses(&[
            ("/v1/notifications/{pending}/dismiss", ""),
            ("/v1/notifications/{pending}/dismiss?session=bob", ""),
        ]),
    ),
    ("post /v1/notifications/{id}/respond", Elsewhere),
    ("post /v1/notify", Refuses(&[("/v1/notify", r#"{"message":"x","session":"bob"}"#)])),
    (
        "post /v1/questions",
        Refuses(&[
            ("/v1/questions", r#"{"message":"x?","choices":["a","b"],"session":"bob"}"#),
            ("/v1/questions", r#"{"message":"secret_question","choices":["yes","no"],"id":"{question}"}"#),
            ("/v1/questions", r#"{"message":"Sure?","choices":["yes","no"],"id":"{answered}"}"#),
        ]),
    ),
    (
        "post /v1/questions/{id}",
        Refuses(&[
            ("/v1/questions/{question}", r#"{"answer":"yes"}"#),
            ("/v1/questions/{question}", r#"{"answer":"yes","own":true}"#),
            ("/v1/questions/{answered}", r#"{"answer":"yes"}"#),
        ]),
    ),
    ("post /v1/questions/{id}/taken", Refuses(&[("/v1/questions/{answered}/taken", "")])),
    ("post /v1/reload", HasNone(None)),
    (
        "post /v1/sessions/{id}/exchange",
        Refuses(&[
            ("/v1/sessions/bob/exchange", r#"{"point":"turn_start","carrier":"c"}"#),
            ("/v1/sessions/suspended/exchange", r#"{"point":"turn_start","carrier":"c"}"#),
            ("/v1/sessions/bob%2Fended/exchange", r#"{"point":"turn_start","carrier":"c"}"#),
            (
                "/v1/sessions/below/exchange",
                r#"{"point":"turn_start","carrier":"c","harness":{"parent":"bob"}}"#,
            ),
            (
                "/v1/sessions/alice/exchange",
                r#"{"point":"turn_start","carrier":"c","context":"cleared","from":"bob"}"#,
            ),
            (
                "/v1/sessions/copy/exchange",
                r#"{"point":"turn_start","carrier":"c","context":"forked","from":"bob"}"#,
            ),
            (
                "/v1/sessions/alice/exchange",
                r#"{"point":"after_tool","carrier":"c","observe":[{"type":"a.b","session":"bob"}]}"#,
            ),
        ]),
    ),
    (
        "post /v1/sessions/{id}/undelivered/{injection}",
        Refuses(&[("/v1/sessions/bob/undelivered/{injection}", "")]),
    ),
    ("post /v1/silences", Elsewhere),
    ("post /v1/shell", HasNone(Some(r#"{"command":"x","exit_code":1,"duration_ms":1,"workspace":"/w"}"#))),
    (
        "post /v1/statusline/{harness}",
        Refuses(&[(
            "/v1/statusline/claude",
            r#"{"session_id":"bob","context_window":{"used_percentage":99,"context_window_size":200000}}"#,
        )]),
    ),
    ("post /v1/trust", HasNone(None)),
    (
        "post /v1/watches",
        Refuses(&[
            ("/v1/watches", r#"{"conditions":["in 5m"],"session":"bob"}"#),
            ("/v1/watches", r#"{"conditions":["in 5m"],"workspace":"/elsewhere"}"#),
        ]),
    ),
    // It is not enabled.
    ("post /v1/webhooks/{name}", HasNone(None)),
    ("put /v1/users/{user}/settings", Elsewhere),
];

/// What is in braces in a [`Call`].
type Names = BTreeMap<&'static str, String>;

fn failure(text: &str) -> Value {
    json!({ "tool_name": "grep", "error_type": "timeout", "error_message": text })
}

fn publish_failure(home: &Home, session: &str, text: &str) -> u64 {
    let id = text.strip_prefix("secret_").unwrap_or(text);
    let event =
        json!({ "type": "tool.call.failure", "id": id, "session": session, "payload": failure(text) });
    home.publish(&event)[0]
}

fn notification(home: &Home, content: &str) -> Value {
    eventually("the notification", || {
        let found = home.get("/v1/notifications?limit=1000");
        let found = found["notifications"].as_array().expect("a list").clone();
        found.into_iter().find(|one| one["content"].as_str().is_some_and(|text| text.contains(content)))
    })
}

fn id_of(found: &Value) -> String {
    found["id"].as_str().expect("an id").to_owned()
}

/// Opens a session of this process.
fn become_client(home: &Home, session: &str) {
    let hook = json!({ "hook_event_name": "UserPromptSubmit", "session_id": session, "cwd": "/w/own", "prompt": "x" });
    let output = home.hook(&hook.to_string());
    assert!(output.status.success(), "{output:?}");
    let opened = home.get(&format!("/v1/sessions/{session}"));
    assert_eq!(opened["harness"]["pid"], std::process::id(), "{opened}");
}

/// Runs a hook of the session of this process; returns its output.
fn hook(home: &Home, name: &str, more: Value) -> String {
    let mut hook = json!({ "hook_event_name": name, "session_id": "alice", "cwd": "/w/own" });
    hook.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    text(&home.hook(&hook.to_string()).stdout)
}

/// Begins and ends a subagent of the session of this process; it gets a notification.
fn run_subagent(home: &Home, agent: &str, said: &str) {
    publish_failure(home, &format!("alice/{agent}"), said);
    let calls = json!([{ "tool_name": "Read", "tool_use_id": "t" }]);
    let fields = json!({ "agent_id": agent, "agent_type": "a", "prompt_id": "p", "tool_calls": calls });
    let heard = hook(home, "PostToolBatch", fields.clone());
    assert!(heard.contains(said), "{heard}");
    hook(home, "SubagentStop", fields);
}

/// A session with its client, and one of everything that is its own.
fn bob() -> (Home, Daemon, acting::Client, Names) {
    let home = Home::with(&[("aside.toml", "[sinks]\ndefault = [\"log\"]\n")]);
    let daemon = home.serve();
    let mut bob = acting::Client::new(&home, "bob");
    // Of another process, which has ended.
    drop(acting::Client::new(&home, "suspended"));
    let suspended = || (home.get("/v1/sessions/suspended")["is_open"] == false).then_some(());
    eventually("the end of its process", suspended);
    let seq = publish_failure(&home, "bob", "secret_given");
    let given = notification(&home, "secret_given");
    let heard = bob.hook("bob", "$$");
    assert!(heard.contains("secret_given"), "{heard}");
    for (event, fields) in [("PostToolBatch", ",\"tool_calls\":[]"), ("SubagentStop", "")] {
        let stdin = format!(
            r#"{{"hook_event_name":"{event}","session_id":"bob","agent_id":"ended","agent_type":"a","cwd":"/w"{fields}}}"#
        );
        bob.run(&format!("echo '{stdin}' | CLAUDE_PID=$$ \"$ASIDE\" hook claude"));
    }
    publish_failure(&home, "bob", "secret_pending");
    let ask = |message: &str| {
        let body = json!({ "message": message, "choices": ["yes", "no"], "session": "bob" });
        id_of(&home.ask("POST", "/v1/questions", &body.to_string()).json()["question"])
    };
    let (question, answered) = (ask("secret_question"), ask("Sure?"));
    let path = format!("/v1/questions/{answered}");
    assert_eq!(home.ask("POST", &path, r#"{"answer":"no"}"#).status(), 200);
    let watch = json!({ "conditions": ["in 1h"], "session": "bob", "note": "secret_note" });
    let watch = home.ask("POST", "/v1/watches", &watch.to_string()).json();
    let pending = notification(&home, "secret_pending");
    let injection = eventually("the injection", || {
        let shown = home.get(&format!("/v1/notifications/{}", id_of(&given)));
        shown["notification"]["deliveries"][0]["injection"].as_str().map(str::to_owned)
    });
    let names = [
        ("seq", seq.to_string()),
        ("given", id_of(&given)),
        ("pending", id_of(&pending)),
        ("injection", injection),
        ("question", question),
        ("answered", answered),
        ("watch", id_of(&watch["watch"])),
    ];
    (home, daemon, bob, names.into_iter().collect())
}

fn with_names(text: &str, names: &Names) -> String {
    names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// The calls of a route that are refused, and its other ones with the words that a user sees.
fn calls_of(route: &'static str, row: &Route) -> (Vec<Call>, Vec<(Call, &'static [&'static str])>) {
    let (_, path) = route.split_once(' ').expect("a method and a path");
    let lists = |lists: &'static [(&'static str, &'static [&'static str])]| {
        lists.iter().map(|(path, words)| ((*path, ""), *words)).collect()
    };
    match row {
        Refuses(calls) => (calls.to_vec(), Vec::new()),
        LeavesOut(paths) => (Vec::new(), lists(paths)),
        LeavesOutAndRefuses(paths, calls) => (calls.to_vec(), lists(paths)),
        HasNone(body) => (Vec::new(), body.map(|body| ((path, body), &[][..])).into_iter().collect()),
        Elsewhere => (Vec::new(), Vec::new()),
    }
}

#[test]
fn a_session_reads_nothing_of_another_one() {
    let (home, _daemon, mut bob, names) = bob();
    let document = home.get("/v1/openapi.json");
    let paths = document["paths"].as_object().expect("paths");
    let routes: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().expect("methods").keys().map(move |method| format!("{method} {path}"))
        })
        .collect();
    assert_eq!(routes, ROUTES.iter().map(|(route, _)| (*route).to_owned()).collect());
    let ask = |route: &str, (path, body): Call| {
        let (method, _) = route.split_once(' ').expect("a method and a path");
        let answer = home.ask(&method.to_uppercase(), &with_names(path, &names), &with_names(body, &names));
        (answer.status(), text(&answer.0.body))
    };
    // This process belongs to no session yet, and reads everything.
    for (route, row) in &ROUTES {
        let (refused, shown) = calls_of(route, row);
        for (call, words) in shown.into_iter().filter(|(_, words)| !words.is_empty()) {
            let (status, body) = ask(route, call);
            let missing: Vec<_> = words.iter().filter(|word| !body.contains(**word)).collect();
            assert!(status == 200 && missing.is_empty(), "{route} {call:?}: {status} {missing:?} {body}");
        }
        for call in
            refused.into_iter().filter(|(path, _)| route.starts_with("get") && !path.contains("stream"))
        {
            let (status, body) = ask(route, call);
            assert!(matches!(status, 200 | 204), "{route} {call:?}: {status} {body}");
        }
    }
    become_client(&home, "alice");
    for (route, row) in &ROUTES {
        let (refused, shown) = calls_of(route, row);
        for call in refused {
            let (status, body) = ask(route, call);
            assert!(status == 403 && body.contains(REFUSAL), "{route} {call:?}: {status} {body}");
        }
        for (call, words) in shown {
            let (status, body) = ask(route, call);
            assert!(matches!(status, 200 | 202 | 404), "{route} {call:?}: {status} {body}");
            for word in SECRETS.iter().chain(words) {
                assert!(!body.contains(word), "{route} {call:?}: {word} in {body}");
            }
        }
    }
    // Nothing was taken or changed.
    let heard = bob.hook("bob", "$$");
    assert!(heard.contains("secret_pending"), "{heard}");
    let watches = bob.run("\"$ASIDE\" watch");
    assert!(watches.contains("secret_note"), "{watches}");
    let answered = bob.run(&format!("\"$ASIDE\" answer {} no --own", names["question"]));
    assert!(answered.ends_with("\n0\n"), "{answered}");
}

#[test]
fn a_stream_has_no_events_of_other_sessions() {
    let (home, _daemon, _bob, _) = bob();
    become_client(&home, "alice");
    run_subagent(&home, "early", "of_early");
    let mut stream = home.client().stream("/v1/events/stream?from=1", &[]).expect("an answer").expect("200");
    // A subagent that did not exist when the stream began.
    let subagent = json!({ "point": "turn_start", "carrier": "c", "harness": { "parent": "alice" } });
    home.exchange("helper", &subagent);
    for (session, text) in [("alice", "own"), ("bob", "secret_pending"), ("helper", "of_subagent")] {
        publish_failure(&home, session, text);
    }
    let end = home.publish(&json!({ "type": "made.up" }))[0].to_string();
    let mut read = Vec::new();
    while let Some(event) = stream.next_event().expect("readable") {
        read.push(event.data);
        if event.id == end {
            break;
        }
    }
    let read = read.join("\n");
    assert!(!SECRETS.iter().any(|secret| read.contains(secret)) && !read.contains("\"bob\""), "{read}");
    assert!(["own", "of_early", "of_subagent", "made.up"].iter().all(|text| read.contains(text)), "{read}");
}

/// A call of each tool in the name of another session.
const TOOLS: [(&str, &[&str]); 4] = [
    ("inbox", &[r#"{"session":"bob"}"#, r#"{"session":"bob","cancel":"w"}"#]),
    (
        "notify",
        &[r#"{"session":"bob","message":"x"}"#, r#"{"session":"bob","message":"x?","choices":["a","b"]}"#],
    ),
    (
        "publish",
        &[
            r#"{"session":"bob","type":"custom.a.b"}"#,
            r#"{"session":"bob","type":"custom.a.b","for":"workspace"}"#,
        ],
    ),
    ("watch", &[r#"{"session":"bob","conditions":["in 1h"]}"#]),
];

#[test]
fn no_tool_acts_for_another_session() {
    let (home, _daemon, mut bob, names) = bob();
    become_client(&home, "alice");
    let mut client = mcp::Client::new(&home, VERSIONS[0]);
    let listed = client.ask("tools/list", json!({}));
    let listed = listed["result"]["tools"].as_array().expect("tools").iter();
    let listed: BTreeSet<&str> = listed.map(|tool| tool["name"].as_str().expect("a name")).collect();
    assert_eq!(listed, TOOLS.iter().map(|(tool, _)| *tool).collect());
    for (tool, calls) in TOOLS {
        for arguments in calls {
            let arguments = serde_json::from_str(arguments).expect("JSON");
            let (said, is_error) = client.call(tool, &arguments);
            assert!(is_error && said.starts_with(REFUSAL), "{tool}: {said}");
        }
    }
    let (said, is_error) = client.call("inbox", &json!({ "cancel": names["watch"] }));
    assert!(is_error && said.starts_with("there is no open watch"), "{said}");
    // A variable of the environment names no session but that of the process.
    let said = bob.run_left(&home, "CLAUDE_CODE_SESSION_ID=alice", "\"$ASIDE\" inbox --session bob");
    assert!(said.contains(REFUSAL), "{said}");
}

#[test]
fn a_session_reads_its_own_data() {
    let (home, _daemon, _bob, _) = bob();
    become_client(&home, "alice");
    publish_failure(&home, "alice", "own");
    let folder = json!({ "type": "tool.call.failure", "id": "of_folder", "workspace": "/w/own", "payload": failure("of_folder") });
    home.publish(&folder);
    assert!(hook(&home, "UserPromptSubmit", json!({ "prompt": "x" })).contains("own"));
    run_subagent(&home, "helper", "of_subagent");
    assert_eq!(home.ask("GET", "/v1/sessions/alice%2Fhelper", "").status(), 404, "it has ended");
    publish_failure(&home, "bob", "secret_note");
    let of_folder = id_of(&notification(&home, "of_folder"));
    let of_subagent = notification(&home, "of_subagent");
    let injection = of_subagent["deliveries"][0]["injection"].as_str().expect("delivered");
    for (path, words) in [
        ("/v1/events".to_owned(), &["own", "of_subagent", "of_folder"][..]),
        ("/v1/events?type=tool.call.failure&limit=1".to_owned(), &["of_subagent"]),
        ("/v1/events?session=alice".to_owned(), &["own"]),
        ("/v1/events?session=alice/helper".to_owned(), &["of_subagent"]),
        ("/v1/events/of_subagent".to_owned(), &["of_subagent"]),
        ("/v1/events/of_folder".to_owned(), &["of_folder"]),
        ("/v1/notifications".to_owned(), &["own", "of_subagent", "of_folder"]),
        ("/v1/notifications?session=alice/helper".to_owned(), &["of_subagent"]),
        (format!("/v1/notifications/{}", id_of(&of_subagent)), &["of_subagent"]),
        (format!("/v1/notifications/{of_folder}"), &["of_folder", "\"session\":\"alice\""]),
        (format!("/v1/injections/{injection}"), &["of_subagent"]),
        ("/v1/sessions/alice/messages".to_owned(), &["own"]),
        ("/v1/sessions/alice%2Fhelper/messages".to_owned(), &["of_subagent"]),
        ("/v1/sessions".to_owned(), &["alice", "bob", "\"pending\""]),
        ("/v1/sessions/bob".to_owned(), &["bob", "\"state\""]),
    ] {
        let answer = home.ask("GET", &path, "");
        let body = text(&answer.0.body);
        let missing: Vec<_> = words.iter().filter(|word| !body.contains(**word)).collect();
        assert!(answer.status() == 200 && missing.is_empty(), "{path}: {missing:?} {body}");
        assert!(!SECRETS.iter().any(|secret| body.contains(secret)), "{path}: {body}");
    }
    let listed = home.print(&["sessions"]);
    assert!(listed.lines().any(|line| line.contains("bob") && line.contains("private")), "{listed}");
}

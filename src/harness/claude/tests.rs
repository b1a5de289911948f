//! Captured hooks of Claude Code, and the expected outcome of each.

use engine::{
    event::Seq,
    exchange::{Answer, Conversations, Directive, Injection, InjectionId, NOT_RUN, Role, Trigger},
    io::RequestId,
    records,
};
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_000);

macro_rules! capture {
    ($name:literal, $outcome:literal) => {
        ($name, include_str!(concat!("../../../tests/fixtures/claude-code/hook-stdin/", $name)), $outcome)
    };
}

/// Every capture of the real client, and its expected outcome.
#[rustfmt::skip]
const CAPTURES: [(&str, &str, &str); 31] = [
    capture!("CwdChanged.json", "nothing"),
    capture!("FileChanged.json", "nothing"),
    capture!("InstructionsLoaded.json", "nothing"),
    capture!("Notification.json", "agent.waiting; nothing"),
    capture!("Notification.permission_prompt.json", "agent.waiting; nothing"),
    capture!("PermissionRequest.json", "nothing"),
    capture!("PostCompact.json", "agent.compaction.end; nothing"),
    capture!("PostToolBatch.json", "tool.call.success; exchange 77e7b829 after_tool toolu_fake000001 Bash"),
    capture!("PostToolBatch.parallel.json", "tool.call.success; tool.call.success; exchange a9118ad4 after_tool toolu_fake000002 Read"),
    capture!("PostToolUse.in-subagent.json", "nothing"),
    capture!("PostToolUse.json", "nothing"),
    capture!("PostToolUseFailure.json", "tool.call.failure; nothing"),
    capture!("PreCompact.json", "agent.compaction.start; nothing"),
    capture!("PreToolUse.json", "tool.call.pending; if due 77e7b829 before_tool toolu_fake000001 Bash"),
    capture!("SessionEnd.json", "agent.session.end; suspended dd255df5"),
    capture!("SessionStart.clear.json", "agent.session.start; exchange 092022e2 turn_start 2ad86c4c clear"),
    capture!("SessionStart.compact.json", "agent.session.start; exchange dd255df5 turn_start b355f5ce compacted"),
    capture!("SessionStart.json", "agent.session.start; exchange dd255df5 turn_start 1000"),
    capture!("Stop.json", "agent.turn.end; exchange dd255df5 turn_end c4b7560d"),
    capture!("Stop.stop_hook_active.json", "agent.turn.end; exchange 665d3e69 turn_end 1e7fecf6"),
    capture!("Stop.with-background-task.json", "agent.turn.end; exchange 4d681cc7 turn_end ab63d128"),
    capture!("StopFailure.json", "agent.turn.failed; nothing"),
    capture!("SubagentStart.json", "subagent.started; exchange 89fc0744 turn_start af40dd6789074977e"),
    capture!("SubagentStop.json", "subagent.complete; ended 89fc0744"),
    capture!("TaskCompleted.json", "nothing"),
    capture!("TaskCreated.json", "nothing"),
    capture!("UserPromptExpansion.json", "nothing"),
    capture!("UserPromptSubmit.background-task-wake.json", "agent.turn.start; prompt 4d681cc7 turn_start 86c91895"),
    capture!("UserPromptSubmit.inbox-socket-message.json", "agent.turn.start; prompt 5b5fc829 turn_start f2001939"),
    capture!("UserPromptSubmit.json", "agent.turn.start; prompt dd255df5 turn_start c4b7560d"),
    capture!("UserPromptSubmit.plugin-monitor-event.json", "agent.turn.start; prompt 77e7b829 turn_start 0b22b073"),
];

#[test]
fn every_captured_hook_is_understood() {
    for (name, stdin, expected) in CAPTURES {
        let call = parse(stdin.as_bytes(), &HookEnv::default(), NOW).expect(name);
        assert_eq!(summary(&call), expected, "{name}");
    }
}

#[test]
fn a_refusal_for_its_rate_is_another_event() {
    let failed = |error: &str| {
        let stdin = json!({ "hook_event_name": "StopFailure", "session_id": "s", "cwd": "/w", "prompt_id": "t1",
            "error": error, "last_assistant_message": "API Error: 429 slow down" });
        summary(&parse_json(stdin))
    };
    assert_eq!(failed("rate_limit"), "agent.turn.failed; api.rate_limit.exceeded; nothing");
    assert_eq!(failed("server_error"), "agent.turn.failed; nothing");
}

/// Each text in `value`, in a copy in which it is [`MARK`], with its key.
fn marked(value: &Value, key: &str) -> Vec<(String, Value)> {
    match value {
        Value::String(_) => vec![(key.to_owned(), json!(MARK))],
        Value::Array(items) => {
            let each = items.iter().enumerate().flat_map(|(index, item)| {
                let put = move |marked| {
                    let mut items = items.clone();
                    items[index] = marked;
                    Value::Array(items)
                };
                marked(item, key).into_iter().map(move |(key, item)| (key, put(item)))
            });
            each.collect()
        }
        Value::Object(fields) => {
            let each = fields.iter().flat_map(|(name, field)| {
                let put = move |marked| {
                    let mut fields = fields.clone();
                    fields.insert(name.clone(), marked);
                    Value::Object(fields)
                };
                marked(field, name).into_iter().map(move |(key, field)| (key, put(field)))
            });
            each.collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

const MARK: &str = "the text";

/// The fields without which a hook has another meaning or none.
const NEEDED: [&str; 7] =
    ["agent_id", "agent_type", "hook_event_name", "prompt_id", "session_id", "tool_name", "tool_use_id"];

#[test]
fn unreadable_field_costs_no_delivery() {
    let action =
        |summary: &str| summary.rsplit("; ").next().unwrap_or_default().split(' ').next().map(str::to_owned);
    for (name, stdin, expected) in CAPTURES {
        let stdin: Value = serde_json::from_str(stdin).expect("JSON");
        for (field, value) in marked(&stdin, "") {
            for (text, is_text) in [
                (r#""\ud83d""#, true),
                (r#""a\ude00b""#, true),
                (r#""\udbff\ud83d\ude00""#, true),
                ("7", false),
                ("null", false),
                (r#"["\ud83d"]"#, false),
                ("{}", false),
            ] {
                if NEEDED.contains(&&*field) && (!is_text || field == "hook_event_name") {
                    continue;
                }
                let body = value.to_string().replace(&format!("\"{MARK}\""), text);
                let body = crate::harness::readable(body.as_bytes()).into_owned();
                let call = parse(&body, &HookEnv::default(), NOW);
                let call = call.unwrap_or_else(|error| panic!("{name}: {field} = {text}: {error}"));
                assert_eq!(action(&summary(&call)), action(expected), "{name}: {field} = {text}");
            }
        }
    }
}

#[test]
fn events_carry_what_the_hook_said_and_where() {
    let start = parse_json(json!({ "hook_event_name": "SessionStart", "session_id": "s", "cwd": "/w",
        "source": "resume", "model": "m" }));
    let failure =
        parse_json(json!({ "hook_event_name": "PostToolUseFailure", "session_id": "s", "cwd": "/w",
        "agent_id": "a", "tool_name": "Bash", "tool_use_id": "t1", "duration_ms": 10,
        "error": "Exit code 3\n\u{1b}[31mno such file\u{1b}[0m" }));
    let batch = parse_json(json!({ "hook_event_name": "PostToolBatch", "session_id": "s", "agent_id": "a",
        "cwd": "/w", "tool_calls": [{ "tool_name": "Bash", "tool_use_id": "t1", "tool_response": [1, {}] }] }));
    let input = json!({ "command": "cargo test\n-p cart", "description": "d" });
    let whole = parse_json(json!({ "hook_event_name": "PostToolBatch", "session_id": "s", "cwd": "/w",
        "tool_calls": [{ "tool_name": "Bash", "tool_use_id": "t2", "tool_input": input, "tool_response": "ok in 3s" }] }));
    let turn = parse_json(json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/w",
        "prompt_id": "p", "prompt": "<task-notification>\n<task-id>b</task-id>" }));
    let pushed = (client::SOCKETS.find)(&SessionId::new("s"), &|name| match name {
        "aside-session" => Some("s".to_owned()),
        "aside-message-socket" => Some("/a".to_owned()),
        _ => None,
    });
    let message: Value =
        serde_json::from_str(&pushed.expect("a socket").message("ci (high): 1")).expect("JSON");
    let pushed = parse_json(json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/w",
        "prompt_id": "q", "prompt": message["message"]["content"] }));
    let end = parse_json(json!({ "hook_event_name": "SessionEnd", "session_id": "s", "reason": "logout" }));
    let written: Vec<String> = [start, failure, batch, whole, turn, pushed, end]
        .iter()
        .flat_map(|call| &call.observe)
        .map(line)
        .collect();
    assert_eq!(
        written,
        [
            r#"s:session.start:resume:1000 claude-code debug s /w {"harness":"claude-code","start":"resume","model":"m","entrypoint":"cli"}"#,
            r#"s/a:outcome:t1 claude-code info s/a /w {"tool_name":"Bash","error_type":"exit_3","error_message":"no such file","call_id":"t1","duration_ms":10,"result":"c068babc222f39d6"}"#,
            r#"s/a:outcome:t1 claude-code debug s/a /w {"tool_name":"Bash","call_id":"t1","result":"ede0de8074924080"}"#,
            r#"s:outcome:t2 claude-code debug s /w {"tool_name":"Bash","call_id":"t2","subject":"cargo test","args":"3d6dce52b3447f8e","result":"80fb03523b9d0ac4"}"#,
            r#"s:turn.start:p claude-code debug s /w {"turn":"p","started_by":"client"}"#,
            r#"s:turn.start:q claude-code debug s /w {"turn":"q","started_by":"client"}"#,
            r#"s:session.end:logout:1000 claude-code debug s - {"harness":"claude-code","reason":"logout"}"#,
        ]
    );
}

fn injection(text: Arc<str>, sentence: &str) -> Injection {
    let id = InjectionId::new("i1");
    Injection {
        id,
        format: engine::exchange::Format::default(),
        text,
        sentence: sentence.into(),
        role: Role::System,
        notifications: Vec::new(),
        starts_turn: false,
    }
}

#[test]
fn hook_becomes_exchange_with_identity_and_budget() {
    let stdin = json!({ "hook_event_name": "PostToolBatch", "session_id": "s", "agent_id": "a", "prompt_id": "p",
        "cwd": "/w/sub", "tool_calls": [{ "tool_name": "Read", "tool_use_id": "t1" }] });
    let env = HookEnv { pid: Some(41), project: Some("/w".to_owned()), entrypoint: None };
    let call = parse(stdin.to_string().as_bytes(), &env, NOW).expect("valid");
    let expected = Exchange {
        session: SessionId::new("s/a"),
        point: InjectionPoint::AfterTool,
        carrier: "PostToolBatch:t1:1000".into(),
        turn: Some("p".into()),
        step: Some("t1".into()),
        harness: Harness {
            name: Some("claude-code".into()),
            version: None,
            workspace: Some("/w".into()),
            user: None,
            pid: Some(41),
            pid_started: None,
            conversations: Some(Conversations::OnePerProcess),
            parent: Some(SessionId::new("s")),
            ..Harness::default()
        },
        tool: Some("Read".into()),
        acks: Vec::new(),
        known_calls: Vec::new(),
        budget: Budget { max_chars: Some(9_500), ..Budget::default() },
        format: Some(engine::exchange::Format::Xml),
        carrier_effect: CarrierEffect::None,
        context: ContextChange::Unstated,
        shows_notices: true,
        trigger: Trigger::Agent,
    };
    assert_eq!(exchange(&call), &expected);
}

#[test]
fn workspace_is_project_while_agent_is_inside() {
    for (project, cwd, expected) in [
        (Some("/w"), Some("/w"), Some("/w")),
        (Some("/w"), Some("/w/sub"), Some("/w")),
        (Some("/w"), Some("/w2"), Some("/w2")),
        (Some("/w"), None, Some("/w")),
        (Some("w"), Some("/x"), Some("/x")),
        (None, Some("/x"), Some("/x")),
        (None, None, None),
    ] {
        let env = HookEnv { project: project.map(str::to_owned), ..HookEnv::default() };
        let stdin = json!({ "hook_event_name": "Stop", "session_id": "s", "cwd": cwd });
        let call = parse(stdin.to_string().as_bytes(), &env, NOW).expect("valid");
        assert_eq!(exchange(&call).harness.workspace.as_deref(), expected, "{project:?} {cwd:?}");
    }
}

#[test]
fn prolonged_stop_takes_no_notifications() {
    for (is_active, id, max_notifications) in
        [(false, "s:turn.end:p", None), (true, "s:turn.end:p:1000", Some(0))]
    {
        let call = parse_json(json!({ "hook_event_name": "Stop", "session_id": "s", "prompt_id": "p",
            "stop_hook_active": is_active }));
        assert_eq!(&*call.observe[0].id, id);
        assert_eq!(exchange(&call).carrier_effect, CarrierEffect::Continue);
        assert_eq!(exchange(&call).budget.max_notifications, max_notifications);
    }
}

#[test]
fn reply_is_one_documented_line_or_nothing() {
    let call =
        parse_json(json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "go" }));
    let empty = Answer { pending: 2, check_before_tool: true, ..Answer::default() };
    assert_eq!(reply(&call, &empty), None);
    let notice = Answer { notice: Some("aside: 1 waiting for you: ci".into()), ..empty.clone() };
    let shown = "{\"systemMessage\":\"aside: 1 waiting for you: ci\"}";
    assert_eq!(reply(&call, &notice).as_deref(), Some(shown));
    let injection = injection(
        "<notifications count=\"1\">\ntool_fail: \u{e9}\n</notifications>".into(),
        "tool failure (high): \u{e9}",
    );
    assert_eq!(
        reply(&call, &Answer { injection: Some(injection), ..empty }).as_deref(),
        Some(
            "{\"hookSpecificOutput\":{\"hookEventName\":\"UserPromptSubmit\",\"additionalContext\":\
             \"<notifications count=\\\"1\\\">\\ntool_fail: \u{e9}\\n</notifications>\"}}"
        )
    );
}

#[test]
fn stop_reply_text_begins_with_the_sentence() {
    let call = parse_json(json!({ "hook_event_name": "Stop", "session_id": "s" }));
    let room = usize::try_from(exchange(&call).budget.max_chars.expect("limited")).expect("small");
    let injection = injection("x".repeat(room).into(), &"y".repeat(100));
    let directive = Some(Directive::Continue { reason: "budget exceeded (critical): token".into() });
    let answer = Answer { injection: Some(injection), directive, ..Answer::default() };
    let said: Value = serde_json::from_str(&reply(&call, &answer).expect("a reply")).expect("JSON");
    let context = said["hookSpecificOutput"]["additionalContext"].as_str().expect("a text");
    assert!(context.starts_with("aside: yyy") && context.contains("y\n\nx"), "{context}");
    // From 10,000 on the client shows a file name in place of the text.
    assert!(context.chars().count() < 10_000, "{}", context.chars().count());
}

#[test]
fn an_interrupted_tool_has_not_failed() {
    let call =
        parse_json(json!({ "hook_event_name": "PostToolUseFailure", "session_id": "s", "tool_name": "Bash",
        "tool_use_id": "t", "error": "Interrupted by user", "is_interrupt": true }));
    assert_eq!(summary(&call), "nothing");
}

#[test]
fn wrong_input_is_named_by_its_place() {
    for (stdin, expected) in [
        ("", "hook input is invalid at `.`: EOF while parsing a value at line 1 column 0"),
        ("[]", "hook input is invalid at `.`: "),
        ("{}", "hook input is invalid at `.`: missing field `hook_event_name` at line 1 column 2"),
        (
            "{\"hook_event_name\":\"Stop\"} {}",
            "hook input is invalid at `.`: trailing characters at line 1 column 28",
        ),
        ("{\"hook_event_name\":\"Stop\",\n\"cwd\":1}", "hook input of Stop has no `session_id`"),
        (
            "{\"hook_event_name\":\"PreToolUse\",\"session_id\":\"s\",\"tool_name\":1}",
            "hook input is invalid at `tool_name`: invalid type: integer `1`",
        ),
        ("{\"hook_event_name\":\"Stop\"}", "hook input of Stop has no `session_id`"),
        ("{\"hook_event_name\":\"Stop\",\"session_id\":\"\"}", "hook input of Stop has no `session_id`"),
        (
            "{\"hook_event_name\":\"Stop\",\"session_id\":\"s",
            "hook input is invalid at `session_id`: EOF while parsing",
        ),
    ] {
        let error = parse(stdin.as_bytes(), &HookEnv::default(), NOW).expect_err(stdin);
        let source =
            std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
        let message = format!("{error}{source}");
        assert!(message.starts_with(expected), "{stdin}\n{message}");
    }
}

#[test]
fn unknown_hook_is_ignored_with_any_fields() {
    let call = parse_json(json!({ "hook_event_name": "Future", "error": {}, "tool_calls": 1, "prompt": [] }));
    assert_eq!((call.hook.as_str(), summary(&call).as_str()), ("Future", "nothing"));
}

#[test]
fn a_batch_and_an_end_name_their_steps() {
    let batch = |first: &str| {
        json!({ "hook_event_name": "PostToolBatch", "session_id": "s", "prompt_id": "p",
            "tool_calls": [{ "tool_name": "Read", "tool_use_id": first }, { "tool_name": "Read", "tool_use_id": "t9" }] })
    };
    let stop = |active: bool| json!({ "hook_event_name": "Stop", "session_id": "s", "prompt_id": "p", "stop_hook_active": active });
    let before = json!({ "hook_event_name": "PreToolUse", "session_id": "s", "prompt_id": "p",
        "tool_name": "Bash", "tool_use_id": "t1" });
    let prompt =
        json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt_id": "p", "prompt": "x" });
    for (stdin, expected) in [
        (batch("t1"), Some("t1")),
        (batch("t2"), Some("t2")),
        (stop(false), Some("end")),
        (stop(true), Some("end, again")),
        (before, None),
        (prompt, None),
    ] {
        let call = parse_json(stdin.clone());
        assert_eq!(exchange(&call).step.as_deref(), expected, "{stdin}");
    }
}

fn parse_json(stdin: Value) -> HookCall {
    let env = HookEnv { entrypoint: Some("cli".to_owned()), ..HookEnv::default() };
    parse(stdin.to_string().as_bytes(), &env, NOW).expect("valid")
}

fn exchange(call: &HookCall) -> &Exchange {
    match &call.then {
        Then::Exchange(exchange) | Then::BeforeTool(exchange) | Then::Prompt(exchange) => exchange,
        Then::SessionSuspended(_) | Then::SessionEnded(_) | Then::Nothing => panic!("no exchange: {call:?}"),
    }
}

/// The types of the events, and the action, with ids cut to their first part.
fn summary(call: &HookCall) -> String {
    let first_part = |text: &str| text.split('-').next().unwrap_or_default().to_owned();
    let asks = |word: &str, exchange: &Exchange| {
        let carrier = exchange.carrier.split(':').nth(1).unwrap_or_default();
        let tool = exchange.tool.as_deref().map(|tool| format!(" {tool}")).unwrap_or_default();
        let context = match &exchange.context {
            ContextChange::Unstated | ContextChange::Unchanged => "",
            ContextChange::Compacted => " compacted",
            ContextChange::Resumed => " resumed",
            ContextChange::Cleared { .. } => " clear",
            ContextChange::Forked { .. } => " fork",
        };
        let session = first_part(exchange.session.as_str());
        format!("{word} {session} {} {}{tool}{context}", exchange.point, first_part(carrier))
    };
    let then = match &call.then {
        Then::Exchange(exchange) => asks("exchange", exchange),
        Then::BeforeTool(exchange) => asks("if due", exchange),
        Then::Prompt(exchange) => asks("prompt", exchange),
        Then::SessionSuspended(session) => format!("suspended {}", first_part(session.as_str())),
        Then::SessionEnded(session) => format!("ended {}", first_part(session.as_str())),
        Then::Nothing => "nothing".to_owned(),
    };
    let types = call.observe.iter().map(|event| format!("{}; ", event.event_type));
    types.collect::<String>() + &then
}

fn line(event: &Event) -> String {
    let session = event.session.as_ref().map_or("-", SessionId::as_str);
    let workspace = event.workspace.as_deref().unwrap_or("-");
    let payload = event.payload.as_str();
    format!("{} {} {} {session} {workspace} {payload}", event.id, event.source, event.severity)
}

#[test]
fn a_session_says_what_became_of_its_context() {
    for (source, expected) in [
        ("startup", ContextChange::Unstated),
        ("resume", ContextChange::Resumed),
        ("compact", ContextChange::Compacted),
        ("clear", ContextChange::Cleared { from: None }),
        ("fork", ContextChange::Forked { from: None }),
        ("what comes next", ContextChange::Unstated),
    ] {
        let call =
            parse_json(json!({ "hook_event_name": "SessionStart", "session_id": "s", "source": source }));
        assert_eq!(exchange(&call).context, expected, "{source}");
    }
}

#[test]
fn a_call_that_only_looks_never_gives_way() {
    for (tool, expected) in [("Edit", true), ("mcp__db__query", true), ("Read", false), ("WebFetch", false)] {
        let call = parse_json(json!({ "hook_event_name": "PreToolUse", "session_id": "s", "tool_name": tool,
            "tool_use_id": "t1", "prompt_id": "p" }));
        assert_eq!(matches!(call.then, Then::BeforeTool(_)), expected, "{tool}");
        assert_eq!(call.observe[0].event_type.as_str(), "tool.call.pending");
    }
}

#[test]
fn cancel_reply_states_not_run_and_the_reason() {
    let call = parse_json(json!({ "hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash",
        "tool_use_id": "t1" }));
    assert_eq!(exchange(&call).carrier_effect, CarrierEffect::Cancel);
    let room = usize::try_from(exchange(&call).budget.max_chars.expect("limited")).expect("small");
    let injection = injection("x".repeat(room).into(), "budget exceeded (critical): token");
    let said = |injection: Option<Injection>, reason: &str| {
        let directive = Some(Directive::Cancel { reason: reason.into() });
        let answer = Answer { injection, directive, ..Answer::default() };
        let said: Value = serde_json::from_str(&reply(&call, &answer).expect("a reply")).expect("JSON");
        let output = &said["hookSpecificOutput"];
        let reason = output["permissionDecisionReason"].as_str().expect("a reason").to_owned();
        assert_eq!(
            *output,
            json!({ "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason })
        );
        reason
    };
    // The text of the engine begins with that it was not run.
    let full = said(Some(injection), &"r".repeat(1_000));
    assert!(full.starts_with("aside cancelled this call: rrr") && full.contains("\n\nxx"));
    assert_eq!(full.chars().count(), 9_500);
    let beside = said(None, "critical: budget");
    assert_eq!(beside, format!("aside cancelled this call: critical: budget\n\n{NOT_RUN}"));
}

#[test]
fn client_without_batches_exchanges_after_each_call() {
    for hook in ["PostToolUse", "PostToolUseFailure"] {
        for (prompt, expected) in [(Some("p"), "nothing"), (None, "exchange s after_tool t1 Bash")] {
            let call = parse_json(json!({ "hook_event_name": hook, "session_id": "s", "prompt_id": prompt,
                "tool_name": "Bash", "tool_use_id": "t1", "error": "Exit code 1" }));
            assert_eq!(summary(&call).split("; ").last(), Some(expected), "{hook} {prompt:?}");
        }
    }
}

#[test]
fn agent_without_type_is_no_subagent() {
    for hook in ["SubagentStart", "SubagentStop"] {
        let call = parse_json(json!({ "hook_event_name": hook, "session_id": "s", "agent_id": "a",
            "agent_type": "" }));
        assert_eq!(summary(&call), "nothing", "{hook}");
    }
}

#[test]
fn overlong_hook_fields_are_refused() {
    let long = "x".repeat(300);
    for stdin in [
        json!({ "hook_event_name": "Stop", "session_id": long }),
        json!({ "hook_event_name": "SessionEnd", "session_id": "s", "reason": long }),
        json!({ "hook_event_name": "PostToolUseFailure", "session_id": "s", "tool_name": "Bash",
            "tool_use_id": long, "error": "" }),
    ] {
        let refused = parse(stdin.to_string().as_bytes(), &HookEnv::default(), NOW)
            .expect_err("too long, or no folder");
        assert!(matches!(refused, HookError::Field { .. }), "{refused:?}");
    }
}

#[test]
fn only_main_conversation_has_a_transcript() {
    for (agent, path, expected) in
        [(None, "/t.jsonl", Some("/t.jsonl")), (Some("a"), "/t.jsonl", None), (None, "t.jsonl", None)]
    {
        let call = parse_json(json!({ "hook_event_name": "Stop", "session_id": "s", "agent_id": agent,
            "transcript_path": path }));
        assert_eq!(call.transcript.as_ref().map(|transcript| transcript.path.as_str()), expected);
    }
}

#[test]
fn invalid_optional_hook_fields_are_left_out() {
    let stdin = |cwd: &str, prompt: &str, tool: &str| {
        json!({ "hook_event_name": "PreToolUse", "session_id": "s", "cwd": cwd, "prompt_id": prompt, "tool_name": tool,
            "tool_use_id": "t1" })
    };
    let of = |stdin: Value| {
        let call = parse_json(stdin);
        let asked = exchange(&call);
        let shown = |text: &Option<Arc<str>>| text.as_deref().unwrap_or("-").to_owned();
        let said = [&asked.harness.workspace, &asked.turn, &asked.tool].map(shown).join(" ");
        let left_out = call.left_out.iter().filter_map(|error| error.field.as_deref()).collect::<Vec<_>>();
        (said, left_out.join(" "))
    };
    let zwnj = "/home/u/\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}";
    for (cwd, prompt, tool, said, left_out) in [
        (zwnj, "p", "Bash", &*format!("{zwnj} p Bash"), ""),
        ("//w/./sub/.", "p", "Bash", "/w/sub p Bash", ""),
        ("work", "p", "Bash", "- p Bash", "cwd"),
        ("/a/../b", "p\u{1b}", "Ba\nsh", "- - -", "cwd prompt_id tool_name"),
    ] {
        assert_eq!(of(stdin(cwd, prompt, tool)), (said.to_owned(), left_out.to_owned()), "{cwd}");
    }
}

/// Words that may be anywhere in a client's input, valid and invalid.
fn word() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 9] =
        ["", "s1", "/w", "//w/.", "a/b", "x\u{200d}y", "\u{1b}[2J", "toolu_1", "/a/../b"];
    prop_oneof![
        3 => prop::sample::select(KNOWN.as_slice()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => (0_usize..400).prop_map(|length| "n".repeat(length)),
    ]
}

proptest! {
    /// The event loop cannot continue after a record that it cannot parse.
    #[test]
    fn records_of_any_hook_can_be_decoded(
        hook in prop::sample::select(&["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolBatch", "PostToolUse",
            "PostToolUseFailure", "Stop", "SubagentStart", "SubagentStop", "SessionEnd", "StopFailure", "Notification"][..]),
        words in prop::collection::vec(word(), 8),
    ) {
        let [session, cwd, prompt, agent, tool, tool_use, source, text] = words.as_slice() else { unreachable!() };
        let stdin = json!({ "hook_event_name": hook, "session_id": session, "cwd": cwd, "prompt_id": prompt,
            "agent_id": agent, "agent_type": text, "tool_name": tool, "tool_use_id": tool_use, "source": source,
            "reason": source, "prompt": text, "error": text, "message": text, "notification_type": "idle_prompt",
            "tool_calls": [{ "tool_name": tool, "tool_use_id": tool_use }] });
        let env = HookEnv { pid: Some(41), project: Some(source.clone()), entrypoint: Some(text.clone()) };
        if let Ok(call) = parse(stdin.to_string().as_bytes(), &env, NOW) {
            let mut body = Vec::new();
            let asked = match &call.then {
                Then::Exchange(exchange) | Then::BeforeTool(exchange) | Then::Prompt(exchange) => {
                    records::encode_exchange(RequestId(0), exchange, &mut body);
                    Some(records::EXCHANGE)
                }
                Then::SessionSuspended(session) => {
                    records::encode_session_suspended(session, &mut body);
                    Some(records::SESSION_CLOSED)
                }
                Then::SessionEnded(session) => {
                    records::encode_session_ended(session, &mut body);
                    Some(records::SESSION_CLOSED)
                }
                Then::Nothing => None,
            };
            if let Some(kind) = asked {
                prop_assert!(records::decode(kind, Seq(1), &body).is_ok(), "{stdin}");
            }
            for event in &call.observe {
                let mut body = Vec::new();
                records::encode_event(&event.as_ref(), &mut body);
                prop_assert!(records::decode(records::EVENT, Seq(1), &body).is_ok(), "{stdin}");
            }
        }
    }
}

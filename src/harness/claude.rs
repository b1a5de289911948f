//! Claude Code: the JSON of its hooks, in and out.
//!
//! `SessionStart`, `UserPromptSubmit`, `PostToolBatch` and `Stop` are exchanges, as their output may carry text to the model;
//! `PostToolUseFailure` and `SessionEnd` only report. Every other hook is nothing. Text goes out as `additionalContext`
//! alone: no decision, no exit code, nothing that stops the agent.
//!
//! A hook with an `agent_id` speaks for a subagent, whose session is `<session_id>/<agent_id>`. A turn is a `prompt_id`.
//!
//! ```
//! use aside::{harness::{HookEnv, claude}, time::Timestamp};
//!
//! let stdin = br#"{"hook_event_name":"SessionEnd","session_id":"s1","reason":"logout"}"#;
//! let call = claude::parse(stdin, &HookEnv::default(), Timestamp::from_millis(1))?;
//! assert_eq!(call.observe[0].event_type.as_str(), "agent.session.end");
//! # Ok::<(), aside::harness::HookError>(())
//! ```

pub mod inbox;
pub mod statusline;
mod stdin;

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    event::{Event, SessionId, Severity, clean_text},
    exchange::{Answer, Budget, Carries, Exchange, Harness},
    harness::{HookCall, HookEnv, HookError, Then, caps::CLAUDE_CODE},
    notification::InjectionPoint,
    time::Timestamp,
};
use stdin::{
    Common, PostToolBatch, PostToolUseFailure, SessionEnd, SessionStart, Stop, ToolCall, UserPromptSubmit,
    read,
};

/// What a prompt begins with that the client wrote itself, to tell of a background task or a monitor's line.
const WAKE_PREFIX: &str = "<task-notification>";

/// How bad a failure is that the agent itself has just been shown: below what a subscriber to failures asks for, so that
/// nobody tells it what it knows.
const KNOWN_FAILURE: Severity = Severity::Info;

/// Reads one hook call; `now` is when it came.
///
/// Shape: fields that are not used are skipped without being built, above all the tools' results.
/// Errors: what is not JSON, or lacks a field that the hook always has. A hook that is not known is no error.
pub fn parse(stdin: &[u8], env: &HookEnv, now: Timestamp) -> Result<HookCall, HookError> {
    let common: Common = read(stdin)?;
    let call = Call { stdin, env, now, common };
    let (observe, then) = match call.common.hook_event_name.as_str() {
        "SessionStart" => call.session_start()?,
        "UserPromptSubmit" => call.user_prompt_submit()?,
        "PostToolBatch" => call.post_tool_batch()?,
        "PostToolUseFailure" => (call.post_tool_use_failure()?, Then::Nothing),
        "Stop" => call.stop()?,
        "SessionEnd" => call.session_end()?,
        _ => (Vec::new(), Then::Nothing),
    };
    Ok(HookCall { hook: call.common.hook_event_name, observe, then })
}

/// What belongs on the hook's stdout: one line of JSON, or nothing.
pub fn reply(call: &HookCall, answer: &Answer) -> Option<String> {
    let specific = answer.injection.as_ref().map(|injection| HookSpecificOutput {
        hook_event_name: &call.hook,
        additional_context: &injection.text,
    });
    if specific.is_none() && answer.notice.is_none() {
        return None;
    }
    let output = HookOutput { system_message: answer.notice.as_deref(), hook_specific_output: specific };
    Some(serde_json::to_string(&output).expect("strings in structs always serialize"))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HookOutput<'a> {
    /// Shown to the user; the model does not get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    system_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hook_specific_output: Option<HookSpecificOutput<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct HookSpecificOutput<'a> {
    hook_event_name: &'a str,
    additional_context: &'a str,
}

struct Call<'a> {
    stdin: &'a [u8],
    env: &'a HookEnv,
    now: Timestamp,
    common: Common,
}

impl Call<'_> {
    fn session_start(&self) -> Result<(Vec<Event>, Then), HookError> {
        let SessionStart { source, model } = read(self.stdin)?;
        let event = self.event(
            "agent.session.start",
            Severity::Debug,
            &format!("session.start:{source}:{}", self.turn_or_time()),
            present([
                ("harness", Some(json!(CLAUDE_CODE.name))),
                ("start", Some(json!(source))),
                ("model", model.map(Value::from)),
                ("entrypoint", self.env.entrypoint.as_deref().map(Value::from)),
            ]),
        )?;
        let exchange = self.exchange(InjectionPoint::TurnStart, &self.turn_or_time())?;
        Ok((vec![event], Then::Exchange(Box::new(exchange))))
    }

    fn user_prompt_submit(&self) -> Result<(Vec<Event>, Then), HookError> {
        let UserPromptSubmit { prompt } = read(self.stdin)?;
        let started_by = if prompt.starts_with(WAKE_PREFIX) { "client" } else { "prompt" };
        // A prompt that comes while the agent works belongs to the turn that has started already, and has its id.
        let event = self.event(
            "agent.turn.start",
            Severity::Debug,
            &format!("turn.start:{}", self.turn_or_time()),
            present([("turn", self.turn()), ("started_by", Some(json!(started_by)))]),
        )?;
        let exchange = self.exchange(InjectionPoint::TurnStart, &self.turn_or_time())?;
        Ok((vec![event], Then::Exchange(Box::new(exchange))))
    }

    fn post_tool_batch(&self) -> Result<(Vec<Event>, Then), HookError> {
        let PostToolBatch { tool_calls } = read(self.stdin)?;
        let succeeded = |tool: &ToolCall| {
            self.event(
                "tool.call.success",
                Severity::Debug,
                &outcome_id(&tool.tool_use_id),
                json!({ "tool_name": clean_text(&tool.tool_name), "call_id": tool.tool_use_id }),
            )
        };
        let observe = tool_calls.iter().map(succeeded).collect::<Result<_, _>>()?;
        let first = tool_calls.first();
        let carried_by = first.map_or_else(|| self.turn_or_time(), |tool| tool.tool_use_id.clone());
        let exchange = Exchange {
            tool: first.map(|tool| tool.tool_name.as_str().into()),
            ..self.exchange(InjectionPoint::AfterTool, &carried_by)?
        };
        Ok((observe, Then::Exchange(Box::new(exchange))))
    }

    /// Reports a failure, but takes no text: the batch that the call belongs to follows, and can carry it.
    fn post_tool_use_failure(&self) -> Result<Vec<Event>, HookError> {
        let failure: PostToolUseFailure = read(self.stdin)?;
        if failure.is_interrupt {
            return Ok(Vec::new());
        }
        let (error_type, error_message) = failure.split_error();
        let event = self.event(
            "tool.call.failure",
            KNOWN_FAILURE,
            &outcome_id(&failure.tool_use_id),
            present([
                ("tool_name", Some(json!(clean_text(&failure.tool_name)))),
                ("error_type", Some(json!(error_type))),
                ("error_message", Some(json!(clean_text(error_message)))),
                ("call_id", Some(json!(failure.tool_use_id))),
                ("duration_ms", failure.duration_ms.map(Value::from)),
            ]),
        )?;
        Ok(vec![event])
    }

    fn stop(&self) -> Result<(Vec<Event>, Then), HookError> {
        let Stop { stop_hook_active } = read(self.stdin)?;
        // A turn that a hook has prolonged ends once more, under the same prompt.
        let again = if stop_hook_active { format!(":{}", self.now.as_millis()) } else { String::new() };
        let event = self.event(
            "agent.turn.end",
            Severity::Debug,
            &format!("turn.end:{}{again}", self.turn_or_time()),
            present([("turn", self.turn())]),
        )?;
        let mut exchange = Exchange {
            carries: Carries::OnlyToContinue,
            ..self.exchange(InjectionPoint::TurnEnd, &self.turn_or_time())?
        };
        if stop_hook_active {
            // Confirms what the turn took, without asking for a reason to prolong it again.
            exchange.budget = Budget { max_notifications: Some(0), ..exchange.budget };
        }
        Ok((vec![event], Then::Exchange(Box::new(exchange))))
    }

    fn session_end(&self) -> Result<(Vec<Event>, Then), HookError> {
        let SessionEnd { reason } = read(self.stdin)?;
        let event = self.event(
            "agent.session.end",
            Severity::Debug,
            &format!("session.end:{reason}:{}", self.turn_or_time()),
            json!({ "harness": CLAUDE_CODE.name, "reason": reason }),
        )?;
        Ok((vec![event], Then::SessionClosed { session: self.session()? }))
    }

    /// An exchange of this session at `point`.
    ///
    /// Every call is a carrier of its own, hence the time in its name. The client never repeats a hook whose answer it
    /// missed, but runs a hook that is installed twice twice, and would show the same text to the model from both.
    fn exchange(&self, point: InjectionPoint, carried_by: &str) -> Result<Exchange, HookError> {
        let carrier = format!("{}:{carried_by}:{}", self.common.hook_event_name, self.now.as_millis());
        Ok(Exchange {
            turn: self.common.prompt_id.as_deref().map(Into::into),
            harness: self.harness(),
            budget: CLAUDE_CODE.budget(),
            format: Some(CLAUDE_CODE.format),
            shows_notices: true,
            ..Exchange::new(self.session()?, point, &carrier)
        })
    }

    fn harness(&self) -> Harness {
        let is_subagent = self.agent_id().is_some();
        Harness {
            name: Some(CLAUDE_CODE.name.into()),
            version: None,
            workspace: self.workspace().map(Into::into),
            user: None,
            pid: self.env.pid,
            parent: self.common.session_id.as_deref().filter(|_| is_subagent).map(SessionId::new),
        }
    }

    fn session(&self) -> Result<SessionId, HookError> {
        let parent = self.common.session_id.as_deref().filter(|id| !id.is_empty()).ok_or_else(|| {
            HookError::Missing { hook: self.common.hook_event_name.clone(), field: "session_id" }
        })?;
        Ok(match self.agent_id() {
            Some(agent) => SessionId::new(&format!("{parent}/{agent}")),
            None => SessionId::new(parent),
        })
    }

    fn agent_id(&self) -> Option<&str> {
        self.common.agent_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The project while the agent works somewhere in it, as what concerns a sibling folder concerns it too; else the folder
    /// it is in. The environment alone is not believed: a client started by another one inherits it.
    fn workspace(&self) -> Option<&str> {
        let project = self.env.project.as_deref().filter(|project| project.starts_with('/'));
        match (project, self.common.cwd.as_deref()) {
            (Some(project), Some(cwd)) if !std::path::Path::new(cwd).starts_with(project) => Some(cwd),
            (Some(project), _) => Some(project),
            (None, cwd) => cwd,
        }
    }

    fn turn(&self) -> Option<Value> {
        self.common.prompt_id.as_deref().map(Value::from)
    }

    /// What tells one turn from another: the prompt's id, or the time with a client that gives none.
    fn turn_or_time(&self) -> String {
        self.common.prompt_id.clone().unwrap_or_else(|| self.now.as_millis().to_string())
    }

    /// An event of this session, for this session.
    fn event(
        &self,
        event_type: &str,
        severity: Severity,
        id: &str,
        payload: Value,
    ) -> Result<Event, HookError> {
        let session = self.session()?;
        Ok(Event {
            id: format!("{session}:{id}").into(),
            event_type: event_type.parse().expect("the types in this file are valid"),
            source: CLAUDE_CODE.name.into(),
            severity,
            timestamp: self.now,
            payload: payload.into(),
            dedupe_key: None,
            session: Some(session),
            workspace: self.workspace().map(Into::into),
            cause: None,
        })
    }
}

/// A call has one outcome: a failure is reported before its batch, whose list does not tell failures from successes, and the
/// first event with an id stands.
fn outcome_id(tool_use_id: &str) -> String {
    format!("outcome:{tool_use_id}")
}

fn present<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Injection, InjectionId, Role};

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    macro_rules! capture {
        ($name:literal, $outcome:literal) => {
            ($name, include_str!(concat!("../../tests/fixtures/claude-code/hook-stdin/", $name)), $outcome)
        };
    }

    /// Every capture of the real client, and what becomes of it.
    #[rustfmt::skip]
    const CAPTURES: [(&str, &str, &str); 31] = [
        capture!("CwdChanged.json", "nothing"),
        capture!("FileChanged.json", "nothing"),
        capture!("InstructionsLoaded.json", "nothing"),
        capture!("Notification.json", "nothing"),
        capture!("Notification.permission_prompt.json", "nothing"),
        capture!("PermissionRequest.json", "nothing"),
        capture!("PostCompact.json", "nothing"),
        capture!("PostToolBatch.json", "tool.call.success; exchange 77e7b829 after_tool toolu_fake000001 Bash"),
        capture!("PostToolBatch.parallel.json", "tool.call.success; tool.call.success; exchange a9118ad4 after_tool toolu_fake000002 Read"),
        capture!("PostToolUse.in-subagent.json", "nothing"),
        capture!("PostToolUse.json", "nothing"),
        capture!("PostToolUseFailure.json", "tool.call.failure; nothing"),
        capture!("PreCompact.json", "nothing"),
        capture!("PreToolUse.json", "nothing"),
        capture!("SessionEnd.json", "agent.session.end; closed dd255df5"),
        capture!("SessionStart.clear.json", "agent.session.start; exchange 092022e2 turn_start 2ad86c4c"),
        capture!("SessionStart.compact.json", "agent.session.start; exchange dd255df5 turn_start b355f5ce"),
        capture!("SessionStart.json", "agent.session.start; exchange dd255df5 turn_start 1000"),
        capture!("Stop.json", "agent.turn.end; exchange dd255df5 turn_end c4b7560d"),
        capture!("Stop.stop_hook_active.json", "agent.turn.end; exchange 665d3e69 turn_end 1e7fecf6"),
        capture!("Stop.with-background-task.json", "agent.turn.end; exchange 4d681cc7 turn_end ab63d128"),
        capture!("StopFailure.json", "nothing"),
        capture!("SubagentStart.json", "nothing"),
        capture!("SubagentStop.json", "nothing"),
        capture!("TaskCompleted.json", "nothing"),
        capture!("TaskCreated.json", "nothing"),
        capture!("UserPromptExpansion.json", "nothing"),
        capture!("UserPromptSubmit.background-task-wake.json", "agent.turn.start; exchange 4d681cc7 turn_start 86c91895"),
        capture!("UserPromptSubmit.inbox-socket-message.json", "agent.turn.start; exchange 5b5fc829 turn_start f2001939"),
        capture!("UserPromptSubmit.json", "agent.turn.start; exchange dd255df5 turn_start c4b7560d"),
        capture!("UserPromptSubmit.plugin-monitor-event.json", "agent.turn.start; exchange 77e7b829 turn_start 0b22b073"),
    ];

    #[test]
    fn every_captured_hook_is_understood() {
        for (name, stdin, expected) in CAPTURES {
            let call = parse(stdin.as_bytes(), &HookEnv::default(), NOW).expect(name);
            assert_eq!(summary(&call), expected, "{name}");
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
        let batch = parse_json(
            json!({ "hook_event_name": "PostToolBatch", "session_id": "s", "agent_id": "a",
            "cwd": "/w", "tool_calls": [{ "tool_name": "Bash", "tool_use_id": "t1", "tool_response": [1, {}] }] }),
        );
        let turn = parse_json(json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/w",
            "prompt_id": "p", "prompt": "<task-notification>\n<task-id>b</task-id>" }));
        let end =
            parse_json(json!({ "hook_event_name": "SessionEnd", "session_id": "s", "reason": "logout" }));
        let written: Vec<String> =
            [start, failure, batch, turn, end].iter().flat_map(|call| &call.observe).map(line).collect();
        assert_eq!(
            written,
            [
                r#"s:session.start:resume:1000 claude-code debug s /w {"harness":"claude-code","start":"resume","model":"m","entrypoint":"cli"}"#,
                r#"s/a:outcome:t1 claude-code info s/a /w {"tool_name":"Bash","error_type":"exit_3","error_message":"no such file","call_id":"t1","duration_ms":10}"#,
                r#"s/a:outcome:t1 claude-code debug s/a /w {"tool_name":"Bash","call_id":"t1"}"#,
                r#"s:turn.start:p claude-code debug s /w {"turn":"p","started_by":"client"}"#,
                r#"s:session.end:logout:1000 claude-code debug s - {"harness":"claude-code","reason":"logout"}"#,
            ]
        );
    }

    #[test]
    fn an_exchange_says_who_asks_and_what_it_can_take() {
        let stdin = json!({ "hook_event_name": "PostToolBatch", "session_id": "s", "agent_id": "a", "prompt_id": "p",
            "cwd": "/w/sub", "tool_calls": [{ "tool_name": "Read", "tool_use_id": "t1" }] });
        let env = HookEnv { pid: Some(41), project: Some("/w".to_owned()), entrypoint: None };
        let call = parse(stdin.to_string().as_bytes(), &env, NOW).expect("valid");
        let expected = Exchange {
            session: SessionId::new("s/a"),
            point: InjectionPoint::AfterTool,
            carrier: "PostToolBatch:t1:1000".into(),
            turn: Some("p".into()),
            harness: Harness {
                name: Some("claude-code".into()),
                version: None,
                workspace: Some("/w".into()),
                user: None,
                pid: Some(41),
                parent: Some(SessionId::new("s")),
            },
            tool: Some("Read".into()),
            acks: Vec::new(),
            budget: Budget { max_chars: Some(9_500), ..Budget::default() },
            format: Some(crate::exchange::Format::Xml),
            carries: Carries::Always,
            shows_notices: true,
        };
        assert_eq!(exchange(&call), &expected);
    }

    #[test]
    fn the_workspace_is_the_project_while_the_agent_is_in_it() {
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
    fn a_stop_goes_on_only_for_a_reason_and_a_prolonged_one_takes_nothing() {
        for (is_active, id, max_notifications) in
            [(false, "s:turn.end:p", None), (true, "s:turn.end:p:1000", Some(0))]
        {
            let call = parse_json(json!({ "hook_event_name": "Stop", "session_id": "s", "prompt_id": "p",
                "stop_hook_active": is_active }));
            assert_eq!(&*call.observe[0].id, id);
            assert_eq!(exchange(&call).carries, Carries::OnlyToContinue);
            assert_eq!(exchange(&call).budget.max_notifications, max_notifications);
        }
    }

    #[test]
    fn the_reply_is_one_line_of_the_documented_shape_or_nothing() {
        let call =
            parse_json(json!({ "hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "go" }));
        let empty =
            Answer { injection: None, pending: 2, check_before_tool: true, directive: None, notice: None };
        assert_eq!(reply(&call, &empty), None);
        let notice = Answer { notice: Some("aside: 1 waiting for you: ci".into()), ..empty.clone() };
        let shown = "{\"systemMessage\":\"aside: 1 waiting for you: ci\"}";
        assert_eq!(reply(&call, &notice).as_deref(), Some(shown));
        let injection = Injection {
            id: InjectionId::new("i1"),
            text: "<notifications count=\"1\">\ntool_fail: \u{e9}\n</notifications>".into(),
            role: Role::System,
            notifications: Vec::new(),
        };
        assert_eq!(
            reply(&call, &Answer { injection: Some(injection), ..empty }).as_deref(),
            Some(
                "{\"hookSpecificOutput\":{\"hookEventName\":\"UserPromptSubmit\",\"additionalContext\":\
                 \"<notifications count=\\\"1\\\">\\ntool_fail: \u{e9}\\n</notifications>\"}}"
            )
        );
    }

    #[test]
    fn an_interrupted_tool_has_not_failed() {
        let call = parse_json(
            json!({ "hook_event_name": "PostToolUseFailure", "session_id": "s", "tool_name": "Bash",
            "tool_use_id": "t", "error": "Interrupted by user", "is_interrupt": true }),
        );
        assert_eq!(summary(&call), "nothing");
    }

    #[test]
    fn wrong_input_is_named_by_its_place() {
        for (stdin, expected) in [
            ("", "hook input is wrong at `.`: EOF while parsing a value at line 1 column 0"),
            ("[]", "hook input is wrong at `.`: "),
            ("{}", "hook input is wrong at `.`: missing field `hook_event_name` at line 1 column 2"),
            (
                "{\"hook_event_name\":\"Stop\"} {}",
                "hook input is wrong at `.`: trailing characters at line 1 column 28",
            ),
            (
                "{\"hook_event_name\":\"Stop\",\n\"cwd\":1}",
                "hook input is wrong at `cwd`: invalid type: integer `1`",
            ),
            ("{\"hook_event_name\":\"Stop\"}", "hook input of Stop has no `session_id`"),
            ("{\"hook_event_name\":\"Stop\",\"session_id\":\"\"}", "hook input of Stop has no `session_id`"),
            (
                "{\"hook_event_name\":\"PostToolBatch\",\"session_id\":\"s\",\"tool_calls\":[{\"tool_name\":\"x\"}]}",
                "hook input is wrong at `tool_calls[0]`: missing field `tool_use_id`",
            ),
            (
                "{\"hook_event_name\":\"Stop\",\"session_id\":\"s",
                "hook input is wrong at `session_id`: EOF while parsing",
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
    fn a_hook_that_is_not_known_is_nothing_whatever_its_fields_hold() {
        let call =
            parse_json(json!({ "hook_event_name": "Future", "error": {}, "tool_calls": 1, "prompt": [] }));
        assert_eq!((call.hook.as_str(), summary(&call).as_str()), ("Future", "nothing"));
    }

    fn parse_json(stdin: Value) -> HookCall {
        let env = HookEnv { entrypoint: Some("cli".to_owned()), ..HookEnv::default() };
        parse(stdin.to_string().as_bytes(), &env, NOW).expect("valid")
    }

    fn exchange(call: &HookCall) -> &Exchange {
        match &call.then {
            Then::Exchange(exchange) => exchange,
            Then::SessionClosed { .. } | Then::Nothing => panic!("no exchange: {call:?}"),
        }
    }

    /// The types of the events, and what follows, with the ids cut to their first part.
    fn summary(call: &HookCall) -> String {
        let first_part = |text: &str| text.split('-').next().unwrap_or_default().to_owned();
        let then = match &call.then {
            Then::Exchange(exchange) => {
                let carrier = exchange.carrier.split(':').nth(1).unwrap_or_default();
                let tool = exchange.tool.as_deref().map(|tool| format!(" {tool}")).unwrap_or_default();
                let session = first_part(exchange.session.as_str());
                format!("exchange {session} {} {}{tool}", exchange.point, first_part(carrier))
            }
            Then::SessionClosed { session } => format!("closed {}", first_part(session.as_str())),
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
}

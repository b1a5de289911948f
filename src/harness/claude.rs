//! Claude Code: the JSON of its hooks, in and out.
//!
//! | hook | is |
//! |---|---|
//! | `SessionStart` | an exchange at `turn_start`, with the change of the context |
//! | `UserPromptSubmit`, `SubagentStart` | an exchange at `turn_start` |
//! | `PreToolUse` | an exchange at `before_tool`, if one is due; its text replaces the call |
//! | `PostToolBatch` | an exchange at `after_tool` |
//! | `PostToolUse`, `PostToolUseFailure` | the same, for a client that may lack `PostToolBatch` |
//! | `Stop` | an exchange at `turn_end`, whose text makes the agent continue |
//! | `SubagentStop`, `SessionEnd` | the end of a session |
//! | `StopFailure`, `Notification`, `PreCompact`, `PostCompact` | an event |
//!
//! Other hooks are ignored. Text is returned as `additionalContext`, or as the reason for denying a
//! call; no exit code and no field stops the agent. A hook with an `agent_id` is of a subagent,
//! whose session is `<session_id>/<agent_id>`. A turn is a `prompt_id`.
//!
//! ```
//! use aside::harness::{HookEnv, claude};
//! use journal::time::Timestamp;
//!
//! let stdin = br#"{"hook_event_name":"SessionEnd","session_id":"s1","reason":"logout"}"#;
//! let call = claude::parse(stdin, &HookEnv::default(), Timestamp::from_millis(1))?;
//! assert_eq!(call.observe[0].event_type.as_str(), "agent.session.end");
//! # Ok::<(), aside::harness::HookError>(())
//! ```

mod calls;
mod client;
mod installation;
mod native;
mod reply;
mod report;
mod servers;
mod settings;
mod stdin;
mod transcript;

use std::{borrow::Cow, sync::Arc};

use engine::{
    call,
    event::{Event, Provenance, SessionId, Severity, clean_text},
    exchange::{Budget, CarrierEffect, ContextChange, Exchange, Harness},
    notification::InjectionPoint,
    request::{
        FieldError,
        names::{read_name, read_workspace},
    },
};
use journal::time::Timestamp;
use serde_json::{Value, json, value::RawValue};

use crate::harness::{
    HookCall, HookEnv, HookError, Then, Transcript,
    kind::{Client, ClientFiles, Form, Hooks, Kind, SessionFiles, Variables},
    text::read,
};
use calls::compared;
use native::CAPS;
use stdin::{
    Common, PendingCall, PostToolBatch, PostToolUseFailure, SessionEnd, SessionStart, Stop, ToolCall,
    UserPromptSubmit,
};

pub use reply::reply;

/// Claude Code, in the table of harnesses.
pub const KIND: Kind = Kind {
    word: hook::harness::CLAUDE.word,
    title: "Claude Code",
    caps: CAPS,
    form: Form::Hooks(&HOOKS),
    transcript: Some(&transcript::READER),
    native: native::NATIVE,
};

const HOOKS: Hooks = Hooks {
    client: Client {
        program: installation::PROGRAM,
        files: ClientFiles {
            folder: ".claude",
            sessions: Some(SessionFiles {
                folder_of: client::client_folder,
                path: client::session_file,
                parse: client::parse_session_file,
            }),
        },
        variables: Variables {
            forwarded: hook::harness::CLAUDE.forwarded,
            folder: Some("CLAUDE_CONFIG_DIR"),
            prefixes: &["CLAUDE", "ANTHROPIC"],
        },
    },
    parse,
    reply,
    harmless: reply::HARMLESS,
    round_trip: Some(reply::ROUND_TRIP),
    message_sockets: Some(client::SOCKETS),
    status_line: Some(client::parse_status_line),
    installation: installation::INSTALLATION,
};

/// Prefix of prompts that the client writes itself, to report a background task or a monitor's
/// line; the message socket's prompts have another prefix.
const WAKE_PREFIX: &str = "<task-notification>";

/// The step of a turn's first end, and of its later ones. No call has such an id.
const END: &str = "end";
const END_AGAIN: &str = "end, again";

/// Read-only tools: a text never replaces a call of theirs, because running it loses nothing.
const READ_ONLY_TOOLS: [&str; 17] = [
    "AskUserQuestion",
    "BashOutput",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "LS",
    "LSP",
    "ListMcpResourcesTool",
    "NotebookRead",
    "Read",
    "ReadMcpResourceTool",
    "TaskGet",
    "TaskList",
    "TaskOutput",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
];

/// Severity of a failure that the agent has just seen: below the filter of subscribers to failures,
/// so that it is not notified again.
const KNOWN_FAILURE: Severity = Severity::Info;

/// Parses one hook call; `now` is its arrival.
///
/// Shape: unused fields are skipped without being built, above all the tools' results; an optional
/// field of another type counts as absent. Errors: the input is not JSON, or lacks a required field
/// of the hook. An unknown hook is not an error.
pub fn parse(stdin: &[u8], env: &HookEnv, now: Timestamp) -> Result<HookCall, HookError> {
    let mut call = Call::new(stdin, env, now, read(stdin)?);
    let (observe, then) = match call.common.hook_event_name.as_str() {
        "SessionStart" => call.session_start()?,
        "UserPromptSubmit" => call.user_prompt_submit()?,
        "PreToolUse" => call.pre_tool_use()?,
        "PostToolBatch" => call.post_tool_batch()?,
        "PostToolUse" => call.post_tool_use()?,
        "PostToolUseFailure" => call.post_tool_use_failure()?,
        "Stop" => call.stop()?,
        "StopFailure" => (call.stop_failure()?, Then::Nothing),
        "SubagentStart" => call.subagent_start()?,
        "SubagentStop" => call.subagent_stop()?,
        "Notification" => (call.notification()?, Then::Nothing),
        "PreCompact" => (call.compaction("agent.compaction.start")?, Then::Nothing),
        "PostCompact" => (call.compaction("agent.compaction.end")?, Then::Nothing),
        "SessionEnd" => call.session_end()?,
        _ => return Ok(HookCall { hook: call.common.hook_event_name, ..HookCall::default() }),
    };
    let transcript = call.transcript()?;
    let hook = call.common.hook_event_name;
    let holds_messages = call.common.permission_mode.as_deref().map(client::holds);
    let (calls, left_out) = (call.calls, call.left_out);
    Ok(HookCall { hook, observe, then, calls, transcript, holds_messages, left_out })
}

struct Call<'a> {
    stdin: &'a [u8],
    env: &'a HookEnv,
    now: Timestamp,
    common: Common,
    workspace: Option<Arc<str>>,
    /// The prompt's id.
    turn: Option<Arc<str>>,
    /// File changes of its calls.
    calls: Vec<call::Call>,
    left_out: Vec<FieldError>,
}

impl<'a> Call<'a> {
    /// Reads the fields of every hook. Optional facts about the session are left out when they are
    /// invalid; the call is answered without them.
    fn new(stdin: &'a [u8], env: &'a HookEnv, now: Timestamp, common: Common) -> Self {
        let folder = folder(env.project.as_deref(), common.cwd.as_deref()).map(Cow::Borrowed);
        let workspace = read_workspace("cwd", folder);
        let turn = read_name("prompt_id", common.prompt_id.as_deref().map(Cow::Borrowed));
        let mut left_out = Vec::new();
        let [workspace, turn] = [workspace, turn].map(|read| {
            read.unwrap_or_else(|error| {
                left_out.push(error);
                None
            })
            .map(Arc::from)
        });
        Self { stdin, env, now, workspace, turn, calls: Vec::new(), left_out, common }
    }
}

impl Call<'_> {
    fn session_start(&self) -> Result<(Vec<Event>, Then), HookError> {
        let SessionStart { source, model } = read(self.stdin)?;
        let event = self.event(
            "agent.session.start",
            Severity::Debug,
            &format!("session.start:{source}:{}", self.turn_or_time()),
            present([
                ("harness", Some(json!(CAPS.name))),
                ("start", Some(json!(source))),
                ("model", model.map(Value::from)),
                ("entrypoint", self.env.entrypoint.as_deref().map(Value::from)),
            ]),
        )?;
        let context = match source.as_str() {
            "resume" => ContextChange::Resumed,
            "compact" => ContextChange::Compacted,
            "clear" => ContextChange::Cleared { from: None },
            "fork" => ContextChange::Forked { from: None },
            _ => ContextChange::Unstated,
        };
        let exchange =
            Exchange { context, ..self.exchange(InjectionPoint::TurnStart, &self.turn_or_time())? };
        Ok((vec![event], Then::Exchange(Box::new(exchange))))
    }

    fn user_prompt_submit(&mut self) -> Result<(Vec<Event>, Then), HookError> {
        let submitted: UserPromptSubmit<'_> = read(self.stdin)?;
        let prompt = submitted.text();
        if prompt.starts_with(WAKE_PREFIX) {
            self.calls = vec![call::Call { ended: transcript::task_ids(prompt), ..call::Call::default() }];
        }
        let is_pushed = [WAKE_PREFIX, client::INTRO].iter().any(|begin| prompt.starts_with(begin));
        let started_by = if is_pushed { "client" } else { "prompt" };
        // A prompt during the agent's work belongs to the current turn, and has its id.
        let event = self.event(
            "agent.turn.start",
            Severity::Debug,
            &format!("turn.start:{}", self.turn_or_time()),
            present([("turn", self.turn()), ("started_by", Some(json!(started_by)))]),
        )?;
        let exchange = Box::new(self.exchange(InjectionPoint::TurnStart, &self.turn_or_time())?);
        Ok((vec![event], Then::Prompt(exchange)))
    }

    /// Context given here reaches the model only with the tool's result, where `PostToolBatch` can
    /// add it as well; so text is taken only to replace the call.
    fn pre_tool_use(&mut self) -> Result<(Vec<Event>, Then), HookError> {
        let PendingCall { tool_name, tool_use_id } = read(self.stdin)?;
        let event = self.event(
            "tool.call.pending",
            Severity::Debug,
            &format!("pending:{tool_use_id}"),
            json!({ "tool_name": clean_text(&tool_name), "call_id": tool_use_id }),
        )?;
        if READ_ONLY_TOOLS.contains(&tool_name.as_str()) {
            return Ok((vec![event], Then::Nothing));
        }
        if calls::writes(&tool_name) {
            self.calls = vec![self.call(&read(self.stdin)?)];
        }
        let exchange = Exchange {
            tool: self.tool(&tool_name),
            carrier_effect: CarrierEffect::Cancel,
            budget: Budget { max_chars: Some(reply::DENY_CHARS_MAX), ..CAPS.budget() },
            ..self.exchange(InjectionPoint::BeforeTool, &tool_use_id)?
        };
        Ok((vec![event], Then::BeforeTool(Box::new(exchange))))
    }

    fn post_tool_batch(&mut self) -> Result<(Vec<Event>, Then), HookError> {
        let PostToolBatch { tool_calls } = read(self.stdin)?;
        self.calls = tool_calls.iter().map(|tool| self.call(tool)).collect();
        let observe = tool_calls.iter().map(|tool| self.succeeded(tool)).collect::<Result<_, _>>()?;
        let mut then = self.after_tool(tool_calls.first().map(ToolCall::names))?;
        // The client runs this hook once for each answer of the model that calls tools, so another
        // first call is another step. A hook before a call does not tell its batch.
        if let (Some(exchange), Some(first)) = (then.exchange_mut(), tool_calls.first()) {
            exchange.step = Some(self.name("tool_use_id", Cow::Borrowed(&first.tool_use_id))?.into());
        }
        Ok((observe, then))
    }

    fn succeeded(&self, tool: &ToolCall<'_>) -> Result<Event, HookError> {
        let response = tool.tool_response.map(RawValue::get);
        let [subject, args, result] = compared(tool.tool_input, response);
        self.event(
            "tool.call.success",
            Severity::Debug,
            &outcome_id(&tool.tool_use_id),
            present([
                ("tool_name", Some(json!(clean_text(&tool.tool_name)))),
                ("call_id", Some(json!(tool.tool_use_id))),
                ("subject", subject),
                ("args", args),
                ("result", result),
                ("pushed", calls::pushed(tool, self.common.cwd.as_deref().unwrap_or("/"))),
            ]),
        )
    }

    fn call(&self, tool: &ToolCall<'_>) -> call::Call {
        calls::of(tool, self.common.cwd.as_deref().unwrap_or("/"))
    }

    /// The exchange after a batch of calls; `tool`: name and id of the first one.
    fn after_tool(&mut self, tool: Option<(&str, &str)>) -> Result<Then, HookError> {
        let carried_by = tool.map_or_else(|| self.turn_or_time(), |(_, id)| id.to_owned());
        let exchange = Exchange {
            tool: tool.and_then(|(name, _)| self.tool(name)),
            ..self.exchange(InjectionPoint::AfterTool, &carried_by)?
        };
        Ok(Then::Exchange(Box::new(exchange)))
    }

    /// Whether the client reports its batches by `PostToolBatch`.
    ///
    /// Source: 2.1.197 has that hook; every client from 2.1.196 on names its prompts in the hooks
    /// of tools. With an older one the single call takes the text, and if a batch follows anyway,
    /// it finds nothing left to take.
    fn reports_batches(&self) -> bool {
        self.common.prompt_id.is_some()
    }

    fn post_tool_use(&mut self) -> Result<(Vec<Event>, Then), HookError> {
        if self.reports_batches() {
            return Ok((Vec::new(), Then::Nothing));
        }
        let tool: ToolCall<'_> = read(self.stdin)?;
        self.calls = vec![self.call(&tool)];
        Ok((vec![self.succeeded(&tool)?], self.after_tool(Some(tool.names()))?))
    }

    fn post_tool_use_failure(&mut self) -> Result<(Vec<Event>, Then), HookError> {
        let failure: PostToolUseFailure<'_> = read(self.stdin)?;
        if failure.is_interrupt {
            return Ok((Vec::new(), Then::Nothing));
        }
        let (error_type, error_message) = failure.split_error();
        let [subject, args, result] = compared(failure.tool_input, Some(&failure.error));
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
                ("subject", subject),
                ("args", args),
                ("result", result),
            ]),
        )?;
        if self.reports_batches() {
            return Ok((vec![event], Then::Nothing));
        }
        Ok((vec![event], self.after_tool(Some((&failure.tool_name, &failure.tool_use_id)))?))
    }

    fn stop(&self) -> Result<(Vec<Event>, Then), HookError> {
        let Stop { stop_hook_active, background_tasks } = read(self.stdin)?;
        let running = background_tasks
            .map(|tasks| tasks.into_iter().map(|task| clean_text(&task.id).into_owned()).collect::<Value>());
        // A turn that a hook has prolonged ends again, under the same prompt.
        let again = if stop_hook_active { format!(":{}", self.now.as_millis()) } else { String::new() };
        let event = self.event(
            "agent.turn.end",
            Severity::Debug,
            &format!("turn.end:{}{again}", self.turn_or_time()),
            present([("turn", self.turn()), (call::RUNNING, running)]),
        )?;
        let mut exchange = Exchange {
            carrier_effect: CarrierEffect::Continue,
            ..self.exchange(InjectionPoint::TurnEnd, &self.turn_or_time())?
        };
        // The flag says that the model has answered since the first end. A hook that is installed
        // twice reports one end twice, under one name.
        exchange.step = Some(if stop_hook_active { END_AGAIN } else { END }.into());
        if stop_hook_active {
            // Confirms the injections of the turn. Only a critical notification can prolong it
            // again.
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
            json!({ "harness": CAPS.name, "reason": reason }),
        )?;
        // Any conversation can be resumed, and a cleared one is followed by its successor.
        Ok((vec![event], Then::SessionSuspended(self.session()?)))
    }

    /// An exchange of this session at `point`.
    ///
    /// Every call is a separate carrier, so its name has the time. The client never repeats a hook
    /// whose answer it missed. But it runs a hook twice that is installed twice, and would show the
    /// same text from both to the model.
    fn exchange(&self, point: InjectionPoint, carried_by: &str) -> Result<Exchange, HookError> {
        let carrier = format!("{}:{carried_by}:{}", self.common.hook_event_name, self.now.as_millis());
        let carrier = self.name("carrier", Cow::Owned(carrier))?;
        Ok(Exchange {
            turn: self.turn.clone(),
            harness: self.harness()?,
            budget: CAPS.budget(),
            format: Some(CAPS.format),
            shows_notices: true,
            ..Exchange::new(self.session()?, point, &carrier)
        })
    }

    fn harness(&self) -> Result<Harness, HookError> {
        let is_subagent = self.agent_id().is_some();
        Ok(Harness {
            name: Some(CAPS.name.into()),
            version: None,
            workspace: self.workspace.clone(),
            user: None,
            pid: self.env.pid,
            pid_started: None,
            conversations: Some(CAPS.conversations),
            parent: is_subagent.then(|| self.conversation()).transpose()?,
            ..Harness::default()
        })
    }

    /// The session of the client's conversation, also in a hook of a subagent.
    fn conversation(&self) -> Result<SessionId, HookError> {
        let id = self.common.session_id.as_deref().filter(|id| !id.is_empty()).ok_or_else(|| {
            HookError::Missing { hook: self.common.hook_event_name.clone(), field: "session_id" }
        })?;
        Ok(SessionId::new(&self.name("session_id", Cow::Borrowed(id))?))
    }

    fn session(&self) -> Result<SessionId, HookError> {
        let conversation = self.conversation()?;
        let Some(agent) = self.agent_id() else { return Ok(conversation) };
        Ok(SessionId::new(&self.name("session_id", Cow::Owned(format!("{conversation}/{agent}")))?))
    }

    /// The tool's name, if it is valid.
    fn tool(&mut self, name: &str) -> Option<Arc<str>> {
        match read_name("tool_name", Some(Cow::Borrowed(name))) {
            Ok(name) => name.map(Arc::from),
            Err(error) => {
                self.left_out.push(error);
                None
            }
        }
    }

    /// Checks a name against the journal's limits.
    fn name<'n>(&self, field: &'static str, text: Cow<'n, str>) -> Result<Cow<'n, str>, HookError> {
        let read = read_name(field, Some(text)).map_err(|source| self.wrong(source))?;
        Ok(read.unwrap_or_default())
    }

    fn wrong(&self, source: FieldError) -> HookError {
        HookError::Field { hook: self.common.hook_event_name.clone(), source }
    }

    /// The hooks' transcript does not contain a subagent's own messages.
    fn transcript(&self) -> Result<Option<Transcript>, HookError> {
        if self.agent_id().is_some() {
            return Ok(None);
        }
        let path = self.common.transcript_path.as_deref().filter(|path| path.starts_with('/'));
        path.map(|path| Ok(Transcript { session: self.session()?, path: path.to_owned() })).transpose()
    }

    fn agent_id(&self) -> Option<&str> {
        self.common.agent_id.as_deref().filter(|id| !id.is_empty())
    }

    fn turn(&self) -> Option<Value> {
        self.turn.as_deref().map(Value::from)
    }

    /// Identifies a turn: the prompt's id, or the time if the client sends none.
    fn turn_or_time(&self) -> String {
        self.turn.as_deref().map_or_else(|| self.now.as_millis().to_string(), str::to_owned)
    }

    /// An event of this session, for this session.
    fn event(
        &self,
        event_type: &str,
        severity: Severity,
        id: &str,
        payload: Value,
    ) -> Result<Event, HookError> {
        self.event_of(self.session()?, event_type, severity, id, payload)
    }

    fn event_of(
        &self,
        session: SessionId,
        event_type: &str,
        severity: Severity,
        id: &str,
        payload: Value,
    ) -> Result<Event, HookError> {
        let id = self.name("id", Cow::Owned(format!("{session}:{id}")))?;
        Ok(Event {
            id: id.as_ref().into(),
            event_type: event_type.parse().expect("the types in this file are valid"),
            source: CAPS.name.into(),
            provenance: Provenance::Harness,
            severity,
            timestamp: self.now,
            payload: payload.into(),
            dedupe_key: None,
            session: Some(session),
            workspace: self.workspace.clone(),
            cause: None,
            deliver_after: None,
        })
    }
}

/// The project while the agent works in it, because events for a sibling folder concern it too;
/// else the current folder. The environment alone is not trusted: a client started by another one
/// inherits it.
fn folder<'p>(project: Option<&'p str>, cwd: Option<&'p str>) -> Option<&'p str> {
    let project = project.filter(|project| project.starts_with('/'));
    match (project, cwd) {
        (Some(project), Some(cwd)) if !std::path::Path::new(cwd).starts_with(project) => Some(cwd),
        (Some(project), _) => Some(project),
        (None, cwd) => cwd,
    }
}

/// A call has one outcome: a failure is reported before its batch, whose list does not distinguish
/// failures, and the first event with an id is kept.
fn outcome_id(tool_use_id: &str) -> String {
    format!("outcome:{tool_use_id}")
}

fn present<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests;

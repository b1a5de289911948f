//! A Messages API on loopback that plays a script, and keeps every request.
//!
//! Implements the part that the client needs: streamed answers to requests with tools, in the order
//! of the script, one script for the main conversation and one for its subagents; a short text to
//! everything else. Before a turn is played its action runs, so that a test can act at an exact
//! moment of the conversation.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// One answer of the model.
pub(super) struct Turn {
    content: Value,
    stop_reason: &'static str,
    /// The reported number of tokens of the request.
    tokens: u64,
    before: Box<dyn FnOnce() + Send>,
}

/// The reported number where it does not matter.
const TOKENS: u64 = 10;

impl Turn {
    /// The model writes a text, and the turn ends.
    pub(super) fn says(text: &str) -> Self {
        let content = json!([{ "type": "text", "text": text }]);
        Self { content, stop_reason: "end_turn", tokens: TOKENS, before: Box::new(|| ()) }
    }

    /// The model calls a tool. The script sets the id, so that two runs are identical.
    pub(super) fn calls(id: &str, tool: &str, input: &Value) -> Self {
        Self::calls_together(&[id], tool, input)
    }

    /// The model makes several equal calls in one message.
    pub(super) fn calls_together(ids: &[&str], tool: &str, input: &Value) -> Self {
        let call = |id: &&str| json!({ "type": "tool_use", "id": id, "name": tool, "input": input });
        let content = ids.iter().map(call).collect();
        Self { content, stop_reason: "tool_use", tokens: TOKENS, before: Box::new(|| ()) }
    }

    /// Sets the reported number of tokens.
    pub(super) fn given(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets the action before the model answers.
    pub(super) fn after(mut self, happens: impl FnOnce() + Send + 'static) -> Self {
        self.before = Box::new(happens);
        self
    }
}

/// A running API; it ends with the test's process.
pub(super) struct Api {
    port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    main: Conversation,
    subagents: Conversation,
    requests: usize,
}

/// The turns left to play, and the requests.
#[derive(Default)]
struct Conversation {
    turns: VecDeque<Turn>,
    requests: Vec<Value>,
}

impl Conversation {
    fn of(turns: Vec<Turn>) -> Self {
        Self { turns: turns.into(), requests: Vec::new() }
    }

    fn take(&mut self, request: &Value) -> Turn {
        self.requests.push(request.clone());
        self.turns.pop_front().unwrap_or_else(|| Turn::says("nothing more to do"))
    }

    fn messages(&self) -> Vec<Vec<Value>> {
        self.requests.iter().map(normal).collect()
    }
}

impl Api {
    pub(super) fn playing(turns: Vec<Turn>) -> Self {
        Self::playing_both(turns, Vec::new())
    }

    /// Plays `turns` to the main conversation and `subagents` to its subagents.
    pub(super) fn playing_both(turns: Vec<Turn>, subagents: Vec<Turn>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (main, subagents) = (Conversation::of(turns), Conversation::of(subagents));
        let state = State { main, subagents, requests: 0 };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let shared = state.clone();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                // A client that disconnects during an answer does not fail the test.
                thread::spawn(move || serve(&connection, &state).ok());
            }
        });
        Self { port, state }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The `messages` of every request of the conversation so far, normalised by [`normal`].
    pub(super) fn conversation(&self) -> Vec<Vec<Value>> {
        let (state, _) = &*self.state;
        state.lock().unwrap_or_else(PoisonError::into_inner).main.messages()
    }

    /// Like [`Self::conversation`], for its subagents.
    pub(super) fn subagents(&self) -> Vec<Vec<Value>> {
        let (state, _) = &*self.state;
        state.lock().unwrap_or_else(PoisonError::into_inner).subagents.messages()
    }

    /// Waits until the conversation has `count` requests; false after `patience`.
    pub(super) fn wait_for(&self, count: usize, patience: Duration) -> bool {
        let (state, changed) = &*self.state;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(state, patience, |state| state.main.requests.len() < count);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// The messages of a request without differences in form: a text becomes a block, and the marks of
/// the prompt cache are removed.
fn normal(request: &Value) -> Vec<Value> {
    let mut messages = request["messages"].as_array().cloned().unwrap_or_default();
    for message in &mut messages {
        if let Value::String(text) = &message["content"] {
            message["content"] = json!([{ "type": "text", "text": text }]);
        }
        forget_cache_marks(message);
    }
    messages
}

fn forget_cache_marks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(forget_cache_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_cache_marks),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn serve(connection: &TcpStream, state: &(Mutex<State>, Condvar)) -> std::io::Result<()> {
    let mut reader = BufReader::new(connection);
    let mut path = String::new();
    reader.read_line(&mut path)?;
    let (mut length, mut is_subagent) = (0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
        is_subagent |= name.eq_ignore_ascii_case("x-claude-code-agent-id");
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_conversation = path.starts_with("POST /v1/messages?") || path.starts_with("POST /v1/messages ");
    if !is_conversation || request["tools"].as_array().is_none_or(Vec::is_empty) {
        return answer_aside(connection, is_conversation, &request);
    }
    let (number, turn) = {
        let (state, changed) = state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests += 1;
        let turn = if is_subagent { state.subagents.take(&request) } else { state.main.take(&request) };
        changed.notify_all();
        (state.requests, turn)
    };
    (turn.before)();
    // The client takes two messages with one id for two parts of the same message.
    let message = message(&format!("msg_{number}"), &request["model"], turn.tokens);
    stream(connection, &message, &turn.content, turn.stop_reason)
}

/// Answers requests outside the conversation: titles, counts, probes.
fn answer_aside(connection: &TcpStream, is_message: bool, request: &Value) -> std::io::Result<()> {
    let content = json!([{ "type": "text", "text": "ok" }]);
    let mut message = message("msg_aside", &request["model"], TOKENS);
    if is_message && request["stream"] == true {
        return stream(connection, &message, &content, "end_turn");
    }
    let body = if is_message {
        message["content"] = content;
        message["stop_reason"] = json!("end_turn");
        message
    } else {
        json!({ "data": [], "has_more": false, "input_tokens": 1 })
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut connection = connection;
    connection.write_all((head + &body).as_bytes())
}

fn message(id: &str, model: &Value, tokens: u64) -> Value {
    json!({
        "id": id, "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": tokens, "output_tokens": 1, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0 },
    })
}

/// Writes an answer as the server-sent events of a streamed message.
fn stream(
    mut connection: &TcpStream,
    message: &Value,
    content: &Value,
    stop_reason: &str,
) -> std::io::Result<()> {
    let mut events = vec![json!({ "type": "message_start", "message": message })];
    for (index, block) in content.as_array().expect("blocks").iter().enumerate() {
        let (start, delta) = if block["type"] == "tool_use" {
            let mut start = block.clone();
            start["input"] = json!({});
            (start, json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() }))
        } else {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": block["text"] }))
        };
        events.extend([
            json!({ "type": "content_block_start", "index": index, "content_block": start }),
            json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            json!({ "type": "content_block_stop", "index": index }),
        ]);
    }
    events.extend([
        json!({ "type": "message_delta", "delta": { "stop_reason": stop_reason, "stop_sequence": null },
            "usage": { "output_tokens": 10 } }),
        json!({ "type": "message_stop" }),
    ]);
    let mut answer =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned();
    for event in events {
        let kind = event["type"].as_str().expect("a type");
        answer.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    }
    connection.write_all(answer.as_bytes())
}

//! Fake servers of providers' APIs: they check a request by the rules on the provider's page that
//! concern roles, order, and calls with their results, and refuse fields that they do not know.

use std::collections::BTreeSet;

use engine::exchange::Dialect;
use serde_json::{Map, Value};

type Checked = Result<(), String>;

/// What the API answers to a request: nothing, or why it refuses it.
pub(super) fn answer(dialect: Dialect, request: &Value) -> Checked {
    let request = object(request)?;
    match dialect {
        Dialect::Chat => chat(request),
        Dialect::Responses => responses(request),
        Dialect::Anthropic => anthropic(request),
        Dialect::Gemini => gemini(request),
    }
}

/// <https://platform.openai.com/docs/api-reference/chat/create>
fn chat(request: &Map<String, Value>) -> Checked {
    let tools = declared(request, |tool| {
        known(object(tool)?, &["type", "function"])?;
        name(object(&tool["function"])?, "name", 64)
    })?;
    let mut open: BTreeSet<String> = BTreeSet::new();
    for message in list(request, "messages")? {
        let message = object(message)?;
        let role = text(message, "role")?;
        if role != "tool" && !open.is_empty() {
            return Err(format!("tool_calls must be followed by tool messages: {open:?} before {role}"));
        }
        match role {
            "developer" | "system" | "user" => {
                known(message, &["role", "content"])?;
                content(&message["content"], "text")?;
            }
            "assistant" => {
                known(message, &["role", "content", "tool_calls"])?;
                let calls = message.get("tool_calls").map_or(Ok(&[][..]), |_| list(message, "tool_calls"))?;
                if calls.is_empty() || !message["content"].is_null() {
                    content(&message["content"], "text")?;
                }
                for call in calls {
                    let (call, function) = (object(call)?, object(&call["function"])?);
                    known(call, &["id", "type", "function"])?;
                    is(call, "type", "function")?;
                    called(&tools, &name(function, "name", 64)?)?;
                    let arguments: Result<Value, _> = serde_json::from_str(text(function, "arguments")?);
                    object(&arguments.map_err(|error| error.to_string())?)?;
                    once(&mut open, text(call, "id")?)?;
                }
            }
            "tool" => {
                known(message, &["role", "tool_call_id", "content"])?;
                content(&message["content"], "text")?;
                answers(&mut open, text(message, "tool_call_id")?)?;
            }
            role => return Err(format!("no role `{role}`")),
        }
    }
    closed(&open)
}

/// <https://platform.openai.com/docs/api-reference/responses/create>
fn responses(request: &Map<String, Value>) -> Checked {
    let tools = declared(request, |tool| {
        let tool = object(tool)?;
        known(tool, &["type", "name", "description", "parameters", "strict"])?;
        name(tool, "name", 64)
    })?;
    let mut open: BTreeSet<String> = BTreeSet::new();
    for item in list(request, "input")? {
        let item = object(item)?;
        match item.get("type").map_or(Ok("message"), |_| text(item, "type"))? {
            "message" => {
                known(item, &["type", "role", "content"])?;
                let part = match text(item, "role")? {
                    "developer" | "system" | "user" => "input_text",
                    "assistant" => "output_text",
                    role => return Err(format!("no role `{role}`")),
                };
                content(&item["content"], part)?;
            }
            "function_call" => {
                known(item, &["type", "call_id", "name", "arguments"])?;
                called(&tools, &name(item, "name", 64)?)?;
                text(item, "arguments")?;
                once(&mut open, text(item, "call_id")?)?;
            }
            "function_call_output" => {
                known(item, &["type", "call_id", "output"])?;
                text(item, "output")?;
                answers(&mut open, text(item, "call_id")?)?;
            }
            kind => return Err(format!("no item `{kind}`")),
        }
    }
    closed(&open)
}

/// <https://docs.anthropic.com/en/api/messages>,
/// <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use>
fn anthropic(request: &Map<String, Value>) -> Checked {
    let tools = declared(request, |tool| {
        let tool = object(tool)?;
        known(tool, &["name", "description", "input_schema"])?;
        is(object(&tool["input_schema"])?, "type", "object")?;
        name(tool, "name", 128)
    })?;
    let mut open: BTreeSet<String> = BTreeSet::new();
    let messages = list(request, "messages")?;
    is(object(&messages[0])?, "role", "user")?;
    for message in messages {
        let message = object(message)?;
        known(message, &["role", "content"])?;
        let role = text(message, "role")?;
        if !["user", "assistant"].contains(&role) {
            return Err(format!("no role `{role}`"));
        }
        if role == "assistant" {
            closed(&open)?;
        }
        if message["content"].is_string() {
            closed(&open)?;
            content(&message["content"], "text")?;
            continue;
        }
        for block in list(message, "content")? {
            let block = object(block)?;
            match (role, text(block, "type")?) {
                (_, "text") => {
                    // Results stand first in the message after a call.
                    if role == "user" {
                        closed(&open)?;
                    }
                    known(block, &["type", "text"])?;
                    text(block, "text")?;
                }
                ("assistant", "tool_use") => {
                    known(block, &["type", "id", "name", "input"])?;
                    called(&tools, &name(block, "name", 128)?)?;
                    object(&block["input"])?;
                    once(&mut open, &name(block, "id", usize::MAX)?)?;
                }
                ("user", "tool_result") => {
                    known(block, &["type", "tool_use_id", "content"])?;
                    content(&block["content"], "text")?;
                    answers(&mut open, text(block, "tool_use_id")?)?;
                }
                (role, kind) => return Err(format!("no block `{kind}` in a message of {role}")),
            }
        }
    }
    closed(&open)
}

/// <https://ai.google.dev/gemini-api/docs/function-calling>,
/// <https://ai.google.dev/gemini-api/docs/thought-signatures>
fn gemini(request: &Map<String, Value>) -> Checked {
    let tools = declared(request, |tool| {
        known(object(tool)?, &["functionDeclarations"])?;
        let function = object(&list(object(tool)?, "functionDeclarations")?[0])?;
        if function.get("parameters").is_some_and(|of| of["properties"].as_object().is_none_or(Map::is_empty))
        {
            return Err("properties: should be non-empty for OBJECT type".to_owned());
        }
        name(function, "name", 64)
    })?;
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut last = "model";
    for message in list(request, "contents")? {
        let message = object(message)?;
        known(message, &["role", "parts"])?;
        let role = text(message, "role")?;
        let mut has_call = false;
        for part in list(message, "parts")? {
            let part = object(part)?;
            match (role, part.keys().next().map(String::as_str)) {
                ("user" | "model", Some("text")) => {
                    closed(&open)?;
                    text(part, "text")?;
                }
                ("model", Some("functionCall")) => {
                    known(part, &["functionCall", "thoughtSignature"])?;
                    let call = object(&part["functionCall"])?;
                    known(call, &["id", "name", "args"])?;
                    if last != "user" {
                        return Err(
                            "a function call comes immediately after a user turn or a response".to_owned()
                        );
                    }
                    if !has_call && text(part, "thoughtSignature").is_err() {
                        return Err("Function call is missing a thought_signature".to_owned());
                    }
                    has_call = true;
                    let called_name = name(call, "name", 64)?;
                    called(&tools, &called_name)?;
                    once(&mut open, &format!("{} {called_name}", text(call, "id")?))?;
                }
                ("user", Some("functionResponse")) => {
                    let response = object(&part["functionResponse"])?;
                    known(response, &["id", "name", "response"])?;
                    object(&response["response"])?;
                    answers(&mut open, &format!("{} {}", text(response, "id")?, text(response, "name")?))?;
                }
                (role, part) => return Err(format!("no part {part:?} of {role}")),
            }
        }
        last = role;
    }
    closed(&open)
}

/// The names of the tools of a request.
fn declared(
    request: &Map<String, Value>,
    read: impl Fn(&Value) -> Result<String, String>,
) -> Result<BTreeSet<String>, String> {
    let tools = request.get("tools").map_or(Ok(&[][..]), |_| list(request, "tools"))?;
    tools.iter().map(read).collect()
}

fn called(tools: &BTreeSet<String>, tool: &str) -> Checked {
    if tools.contains(tool) { Ok(()) } else { Err(format!("no tool `{tool}` is declared")) }
}

/// Notes a call without a result.
fn once(open: &mut BTreeSet<String>, id: &str) -> Checked {
    if open.insert(id.to_owned()) { Ok(()) } else { Err(format!("`{id}` is there twice")) }
}

fn answers(open: &mut BTreeSet<String>, id: &str) -> Checked {
    if open.remove(id) { Ok(()) } else { Err(format!("`{id}` is the result of no call")) }
}

fn closed(open: &BTreeSet<String>) -> Checked {
    if open.is_empty() { Ok(()) } else { Err(format!("no result of {open:?}")) }
}

/// A text that is not empty, or parts of this type.
fn content(content: &Value, part_type: &str) -> Checked {
    if content.is_string() {
        return text(&Map::from_iter([("content".to_owned(), content.clone())]), "content").map(|_| ());
    }
    for part in
        content.as_array().filter(|parts| !parts.is_empty()).ok_or("content: is neither text nor parts")?
    {
        let part = object(part)?;
        known(part, &["type", "text"])?;
        is(part, "type", part_type)?;
        text(part, "text")?;
    }
    Ok(())
}

fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("no object: {value}"))
}

fn list<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], String> {
    let list = object.get(key).and_then(Value::as_array).filter(|list| !list.is_empty());
    list.map(Vec::as_slice).ok_or_else(|| format!("{key}: is no list with items"))
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    let text = object.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    text.ok_or_else(|| format!("{key}: is no text"))
}

fn is(object: &Map<String, Value>, key: &str, expected: &str) -> Checked {
    let found = text(object, key)?;
    if found == expected { Ok(()) } else { Err(format!("{key}: `{found}` is not `{expected}`")) }
}

/// Letters, digits, `_` and `-`.
fn name(object: &Map<String, Value>, key: &str, max: usize) -> Result<String, String> {
    let name = text(object, key)?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let is_name = name.len() <= max && name.chars().all(is_part);
    if is_name { Ok(name.to_owned()) } else { Err(format!("{key}: `{name}` is no name")) }
}

fn known(object: &Map<String, Value>, keys: &[&str]) -> Checked {
    let unknown = object.keys().find(|key| !keys.contains(&key.as_str()));
    unknown.map_or(Ok(()), |key| Err(format!("{key}: Extra inputs are not permitted")))
}

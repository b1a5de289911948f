//! `xml` in the words of a provider's API: in a message, in a block, or as the result of a tool call.
//!
//! The text is a string of JSON, so nothing in it ends the string, and the rest has no part of a
//! payload. In place of a call all of these are the text alone, which is the result of that call.
//!
//! Sources, by [`Dialect`]:
//!
//! - `chat`: <https://platform.openai.com/docs/api-reference/chat/create>. An assistant message with
//!   `tool_calls` is followed by a message of the role `tool` for each id.
//! - `responses`: <https://platform.openai.com/docs/api-reference/responses/create>. A `function_call`
//!   and its `function_call_output` have one `call_id`.
//! - `anthropic`: <https://docs.anthropic.com/en/api/messages> and
//!   <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use>. The results of all
//!   `tool_use` blocks stand first in the next message, text after them; an id has letters, digits, `_`
//!   and `-`.
//! - `gemini`: <https://ai.google.dev/gemini-api/docs/function-calling> and, for a call that the model
//!   did not make, <https://ai.google.dev/gemini-api/docs/thought-signatures>.

use serde_json::{Value, json};

use crate::exchange::{Dialect, Format, Replaces};

use super::{Carrier, Item, Overflow, xml};

/// The name of the tool that the model seems to have called.
const TOOL: &str = "_system_notification";
/// Its description for the model.
const DESCRIPTION: &str =
    "Never call it. The environment adds its calls and their results: automated notifications.";
/// The signature of a call that a model of Gemini did not make; such a model refuses one without.
const UNSIGNED: &str = "skip_thought_signature_validator";

/// A message of the role `developer` with one text part.
pub(super) fn developer_message(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    around(carrier, items, overflow, |text| match carrier.dialect {
        Dialect::Responses => json!({
            "type": "message", "role": "developer", "content": [{ "type": "input_text", "text": text }],
        }),
        Dialect::Chat | Dialect::Anthropic | Dialect::Gemini => {
            json!({ "role": "developer", "content": [{ "type": "text", "text": text }] })
        }
    })
}

/// A message of the role `system`.
pub(super) fn system_message(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    around(carrier, items, overflow, |text| json!({ "role": "system", "content": text }))
}

/// A text block.
pub(super) fn block(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    around(carrier, items, overflow, |text| json!({ "type": "text", "text": text }))
}

/// A call of the tool and its result.
pub(super) fn tool_call(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    let id = format!("notif_{}", carrier.injection);
    around(carrier, items, overflow, |text| match carrier.dialect {
        Dialect::Chat => json!([
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": id, "type": "function", "function": { "name": TOOL, "arguments": "{}" } },
            ] },
            { "role": "tool", "tool_call_id": id, "content": text },
        ]),
        Dialect::Responses => json!([
            { "type": "function_call", "call_id": id, "name": TOOL, "arguments": "{}" },
            { "type": "function_call_output", "call_id": id, "output": text },
        ]),
        Dialect::Anthropic => json!([
            { "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": TOOL, "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": text }] },
        ]),
        Dialect::Gemini => json!([
            { "role": "model", "parts": [
                { "functionCall": { "id": id, "name": TOOL, "args": {} }, "thoughtSignature": UNSIGNED },
            ] },
            { "role": "user", "parts": [
                { "functionResponse": { "id": id, "name": TOOL, "response": { "output": text } } },
            ] },
        ]),
    })
}

/// The definition of the tool of a format, for the tools of a request; `None` if it has none.
pub fn tool(format: Format, dialect: Dialect) -> Option<Value> {
    let parameters = json!({ "type": "object", "properties": {} });
    (format == Format::SyntheticTool).then(|| match dialect {
        Dialect::Chat => json!({
            "type": "function",
            "function": { "name": TOOL, "description": DESCRIPTION, "parameters": parameters },
        }),
        Dialect::Responses => json!({
            "type": "function", "name": TOOL, "description": DESCRIPTION, "parameters": parameters, "strict": false,
        }),
        Dialect::Anthropic => {
            json!({ "name": TOOL, "description": DESCRIPTION, "input_schema": parameters })
        }
        // It refuses an object without properties.
        Dialect::Gemini => json!({ "functionDeclarations": [{ "name": TOOL, "description": DESCRIPTION }] }),
    })
}

/// The JSON that `wrap` makes of the text, or the text in place of a call.
fn around(
    carrier: &Carrier<'_>,
    items: &[Item<'_>],
    overflow: &Overflow,
    wrap: impl Fn(String) -> Value,
) -> String {
    let text = xml::write(carrier, items, overflow);
    match carrier.replaces {
        Replaces::Nothing => wrap(text).to_string(),
        Replaces::Call => text,
    }
}

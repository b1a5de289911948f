//! The messages that go between aside and a language server, as JSON.
//!
//! Source: version 3.17 of the protocol; `experimental/serverStatus` is of rust-analyzer.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::uri;

/// What a server says.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// It answers a request of ours.
    Answer {
        /// Of the request.
        id: u64,
        /// `None` when it refuses.
        result: Option<Value>,
    },
    /// It asks for something.
    Request {
        /// To be repeated in the answer.
        id: Value,
        /// What it asks for.
        method: String,
        /// About what.
        params: Value,
    },
    /// It tells something.
    Notice {
        /// What.
        method: String,
        /// About what.
        params: Value,
    },
}

impl Incoming {
    /// Reads a message.
    ///
    /// Errors: it is no JSON, or says neither an id nor a method.
    pub fn read(message: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Envelope {
            id: Option<Value>,
            method: Option<String>,
            #[serde(default)]
            params: Value,
            #[serde(default)]
            result: Value,
            error: Option<Value>,
        }
        let Envelope { id, method, params, result, error } = serde_json::from_slice(message)?;
        match (id, method) {
            (Some(id), Some(method)) => Ok(Self::Request { id, method, params }),
            (None, Some(method)) => Ok(Self::Notice { method, params }),
            (Some(id), None) => {
                // An id that is none of ours is one that nobody waits for.
                let id = id.as_u64().unwrap_or(u64::MAX);
                Ok(Self::Answer { id, result: Some(result).filter(|_| error.is_none()) })
            }
            (None, None) => Err(serde::de::Error::custom("a message without an id and a method")),
        }
    }
}

/// A request.
pub fn request(id: u64, method: &str, params: Value) -> Value {
    let mut message = notice(method, params);
    if let Some(fields) = message.as_object_mut() {
        fields.insert("id".to_owned(), id.into());
    }
    message
}

/// A notification of the protocol; one whose `params` are null has none.
pub fn notice(method: &str, params: Value) -> Value {
    let mut message = Map::new();
    message.insert("jsonrpc".to_owned(), "2.0".into());
    message.insert("method".to_owned(), method.into());
    if !params.is_null() {
        message.insert("params".to_owned(), params);
    }
    message.into()
}

/// The answer to a request of the server: nothing is configured, everything may be registered, and
/// what is not known is refused.
pub fn answer(id: &Value, method: &str, params: &Value) -> Value {
    let result = match method {
        "workspace/configuration" => {
            let count = params.get("items").and_then(Value::as_array).map_or(0, Vec::len);
            Some(Value::Array(vec![Value::Null; count]))
        }
        "client/registerCapability"
        | "client/unregisterCapability"
        | "window/workDoneProgress/create"
        | "window/showMessageRequest"
        | "workspace/diagnostic/refresh"
        | "workspace/workspaceFolders" => Some(Value::Null),
        "workspace/applyEdit" => Some(json!({ "applied": false })),
        _ => None,
    };
    match result {
        Some(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        None => {
            let error = json!({ "code": METHOD_NOT_FOUND, "message": format!("{method} is not supported") });
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    }
}

const METHOD_NOT_FOUND: i32 = -32_601;

/// What the first request says: who asks, about which folder, and what is understood.
pub fn initialize(root: &str, pid: u32) -> Value {
    let uri = uri::of_path(root);
    let name = root.rsplit('/').next().unwrap_or(root);
    json!({
        // A server that sees this process end ends as well.
        "processId": pid,
        "clientInfo": { "name": "aside", "version": env!("CARGO_PKG_VERSION") },
        "rootUri": uri,
        "rootPath": root,
        "workspaceFolders": [{ "uri": uri, "name": name }],
        "capabilities": {
            "general": { "positionEncodings": ["utf-16"] },
            "window": { "workDoneProgress": true },
            "workspace": { "configuration": true, "workspaceFolders": true, "diagnostics": { "refreshSupport": true } },
            "textDocument": {
                "synchronization": { "didSave": true },
                "publishDiagnostics": { "versionSupport": true },
                "diagnostic": { "relatedDocumentSupport": false },
                "documentSymbol": {},
            },
            "experimental": { "serverStatusNotification": true },
        },
    })
}

/// What the protocol calls the language of a file, by how its name ends; the end itself of others.
pub fn language_of(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit('.').next().unwrap_or(name) {
        "rs" => "rust",
        "ts" | "mts" | "cts" => "typescript",
        "tsx" => "typescriptreact",
        "js" | "mjs" | "cjs" => "javascript",
        "jsx" => "javascriptreact",
        "py" | "pyi" => "python",
        "cc" | "cpp" | "cxx" | "hh" | "hpp" | "hxx" => "cpp",
        "h" => "c",
        "rb" => "ruby",
        end => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_message_is_read() {
        let params = json!({ "a": 1 });
        for (text, expected) in [
            (r#"{"id":3,"result":{"a":1}}"#, Incoming::Answer { id: 3, result: Some(params.clone()) }),
            (r#"{"id":3,"result":null}"#, Incoming::Answer { id: 3, result: Some(Value::Null) }),
            (r#"{"id":3,"error":{"code":-32801}}"#, Incoming::Answer { id: 3, result: None }),
            (r#"{"id":"x","result":1}"#, Incoming::Answer { id: u64::MAX, result: Some(json!(1)) }),
            (
                r#"{"id":"x","method":"m","params":{"a":1}}"#,
                Incoming::Request { id: json!("x"), method: "m".to_owned(), params },
            ),
            (r#"{"method":"m"}"#, Incoming::Notice { method: "m".to_owned(), params: Value::Null }),
        ] {
            assert_eq!(Incoming::read(text.as_bytes()).expect("a message"), expected, "{text}");
        }
        for text in ["", "{}", "[]", "nonsense", r#"{"id":1"#] {
            assert!(Incoming::read(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_server_asks_is_answered() {
        let items = json!({ "items": [{ "section": "a" }, { "section": "b" }] });
        for (method, params, expected) in [
            ("workspace/configuration", items, json!({ "jsonrpc": "2.0", "id": 7, "result": [null, null] })),
            (
                "window/workDoneProgress/create",
                Value::Null,
                json!({ "jsonrpc": "2.0", "id": 7, "result": null }),
            ),
            (
                "workspace/inlayHint/refresh",
                Value::Null,
                json!({ "jsonrpc": "2.0", "id": 7, "error": { "code": -32_601, "message": "workspace/inlayHint/refresh is not supported" } }),
            ),
        ] {
            assert_eq!(answer(&json!(7), method, &params), expected);
        }
    }
}

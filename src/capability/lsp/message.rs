//! JSON messages between aside and a language server: with paths as URIs, and diagnostics as problems.
//!
//! Source: version 3.17 of the protocol; `experimental/serverStatus` is an extension of
//! rust-analyzer.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::capability::problem::{Level, Problem};

/// Most values, keys and levels of a message together: the diagnostics of a file with some thousand
/// problems. A message of empty objects would take fifty times its length.
const VALUES_MAX: usize = 100_000;

/// A message of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// A response to one of our requests.
    Answer {
        /// The request's id.
        id: u64,
        /// `None` if it is an error.
        result: Option<Value>,
    },
    /// A request.
    Request {
        /// Its id, to be repeated in the response.
        id: Value,
        /// The method.
        method: String,
        /// The parameters.
        params: Value,
    },
    /// A notification.
    Notice {
        /// The method.
        method: String,
        /// The parameters.
        params: Value,
    },
}

impl Incoming {
    /// Parses a message.
    ///
    /// Errors: it is not JSON, has neither an id nor a method, or has more than `VALUES_MAX`
    /// values.
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
        if has_many_values(message) {
            return Err(serde::de::Error::custom(format!("a message with more than {VALUES_MAX} values")));
        }
        let Envelope { id, method, params, result, error } = serde_json::from_slice(message)?;
        match (id, method) {
            (Some(id), Some(method)) => Ok(Self::Request { id, method, params }),
            (None, Some(method)) => Ok(Self::Notice { method, params }),
            (Some(id), None) => {
                // An id that we never use matches no request.
                let id = id.as_u64().unwrap_or(u64::MAX);
                Ok(Self::Answer { id, result: Some(result).filter(|_| error.is_none()) })
            }
            (None, None) => Err(serde::de::Error::custom("a message without an id and a method")),
        }
    }
}

/// Whether there are more than [`VALUES_MAX`] beginnings of values outside of texts.
fn has_many_values(message: &[u8]) -> bool {
    let (mut values, mut is_in_text, mut is_escaped) = (0, false, false);
    for byte in message {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_text => is_escaped = true,
            b'"' => is_in_text = !is_in_text,
            b'{' | b'[' | b',' | b':' if !is_in_text => values += 1,
            _ => {}
        }
    }
    values > VALUES_MAX
}

/// A request.
pub fn request(id: u64, method: &str, params: Value) -> Value {
    let mut message = notice(method, params);
    if let Some(fields) = message.as_object_mut() {
        fields.insert("id".to_owned(), id.into());
    }
    message
}

/// A notification of the protocol; null `params` are omitted.
pub fn notice(method: &str, params: Value) -> Value {
    let mut message = Map::new();
    message.insert("jsonrpc".to_owned(), "2.0".into());
    message.insert("method".to_owned(), method.into());
    if !params.is_null() {
        message.insert("params".to_owned(), params);
    }
    message.into()
}

/// The response to a request of the server: there is no configuration, every registration is
/// accepted, and unknown methods are refused.
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

/// Parameters of the first request: the process, the folder, and the capabilities.
pub fn initialize(root: &str, pid: u32) -> Value {
    let uri = uri_of_path(root);
    let name = root.rsplit('/').next().unwrap_or(root);
    json!({
        // A server exits when it sees this process end.
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

/// The protocol's language id of a file, by its extension; for an unknown one the extension itself.
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

const SCHEME: &str = "file://";

/// The URI of an absolute path.
pub fn uri_of_path(path: &str) -> String {
    let mut uri = SCHEME.to_owned();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(byte.into())
            }
            _ => write!(uri, "%{byte:02X}").expect("a text takes all"),
        }
    }
    uri
}

/// The path in a URI; `None` if it is not a file of this machine.
pub fn path_of_uri(uri: &str) -> Option<String> {
    let encoded = uri.strip_prefix(SCHEME).filter(|path| path.starts_with('/'))?;
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (digit(*high)? << 4 | digit(*low)?, after),
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Most errors of one file.
const OF_FILE_MAX: usize = 200;
/// Longest message, in characters; some 25 tokens per row should be enough.
const MESSAGE_CHARS_MAX: usize = 200;
/// The protocol's number for an error.
const ERROR: u64 = 1;

/// The errors among the diagnostics of a file.
///
/// Shape: in the server's order, at most 200. A diagnostic without severity is an error, because
/// the protocol leaves that to the client.
pub fn errors(path: &str, diagnostics: &Value) -> Vec<Problem> {
    let all = diagnostics.as_array().into_iter().flatten();
    let is_error = |one: &&Value| one.get("severity").and_then(Value::as_u64).unwrap_or(ERROR) == ERROR;
    all.filter(is_error).take(OF_FILE_MAX).map(|one| problem(path, one)).collect()
}

fn problem(path: &str, diagnostic: &Value) -> Problem {
    let start = |field: &str| {
        let number = diagnostic.pointer("/range/start").and_then(|start| start.get(field))?.as_u64()?;
        u32::try_from(number).ok()?.checked_add(1)
    };
    let code = diagnostic.get("code").map(|code| code.get("value").unwrap_or(code));
    let code = code.and_then(|code| match code.as_str() {
        Some(text) => Some(text.to_owned()),
        None => code.as_i64().map(|number| number.to_string()),
    });
    let message = diagnostic.get("message").map(|message| message.get("value").unwrap_or(message));
    let message = message.and_then(Value::as_str).unwrap_or_default();
    Problem {
        file: Some(path.to_owned()),
        line: start("line"),
        column: start("character"),
        severity: Level::Error,
        code: code.map(|code| named(diagnostic, code)),
        message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
    }
}

/// A code in its usual form: the compiler of TypeScript prints `TS2322` where its server sends
/// 2322.
fn named(diagnostic: &Value, code: String) -> String {
    let source = diagnostic.get("source").and_then(Value::as_str).unwrap_or_default();
    let is_number = code.bytes().all(|byte| byte.is_ascii_digit());
    if matches!(source, "typescript" | "ts") && is_number { format!("TS{code}") } else { code }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
    fn message_of_too_many_values_is_not_built() {
        let with =
            |part: &str, count: usize| format!(r#"{{"method":"m","params":[{}1]}}"#, part.repeat(count));
        assert!(Incoming::read(with("{},", 40_000).as_bytes()).is_ok());
        let text = with(&format!("\"{}\\\"\",", "{[,:".repeat(1_000)), 100);
        assert!(Incoming::read(text.as_bytes()).is_ok(), "a text is one value");
        let error = Incoming::read(with("{},", 60_000).as_bytes()).expect_err("too many").to_string();
        assert_eq!(error, "a message with more than 100000 values");
    }

    #[test]
    fn server_requests_are_answered() {
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

    #[test]
    fn a_path_comes_back_however_it_is_encoded() {
        for (path, uri) in [
            ("/w/a.rs", "file:///w/a.rs"),
            ("/w/a b%.rs", "file:///w/a%20b%25.rs"),
            ("/w/\u{e4}(1).ts", "file:///w/%C3%A4%281%29.ts"),
        ] {
            assert_eq!(uri_of_path(path), uri);
            assert_eq!(path_of_uri(uri).as_deref(), Some(path));
        }
        assert_eq!(path_of_uri("file:///w/%c3%a4(1).ts").as_deref(), Some("/w/\u{e4}(1).ts"));
        for uri in ["untitled:1", "file://host/a", "file:///%zz", "file:///%ff", "/w/a.rs"] {
            assert_eq!(path_of_uri(uri), None, "{uri}");
        }
    }

    #[test]
    fn errors_are_taken_with_lines_from_one() {
        let range = |line: u32| json!({ "start": { "line": line, "character": 8 }, "end": { "line": line, "character": 9 } });
        let all = json!([
            { "range": range(41), "severity": 1, "code": "E0425", "source": "rustc", "message": "cannot find `x`" },
            { "range": range(1), "severity": 2, "message": "unused" },
            { "range": range(0), "severity": 1, "code": 2322, "source": "typescript", "message": "no" },
            { "range": range(0), "code": { "value": "E0308", "target": "https://x" }, "message": { "kind": "markdown", "value": "m" } },
            { "severity": 1, "message": 5 },
            "nonsense",
        ]);
        let found: Vec<_> = errors("/w/a.rs", &all)
            .into_iter()
            .map(|one| (one.line, one.column, one.code.unwrap_or_default(), one.message))
            .collect();
        let row = |line: Option<u32>, code: &str, message: &str| {
            (line, line.map(|_| 9), code.to_owned(), message.to_owned())
        };
        let expected = [
            row(Some(42), "E0425", "cannot find `x`"),
            row(Some(1), "TS2322", "no"),
            row(Some(1), "E0308", "m"),
            row(None, "", ""),
            row(None, "", ""),
        ];
        assert_eq!(found, expected);
        assert_eq!(errors("/w/a.rs", &json!("nonsense")), []);
        let many = Value::Array(vec![json!({ "message": "x".repeat(9_000) }); 1_000]);
        let many = errors("/w/a.rs", &many);
        assert_eq!(
            (many.len(), many.first().map(|one| one.message.len())),
            (OF_FILE_MAX, Some(MESSAGE_CHARS_MAX))
        );
    }
}

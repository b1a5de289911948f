//! Encodes values as TOON text and decodes them, with one writer and one strict reader.
//!
//! [`encode`] writes canonical TOON 4.x: equal values have equal text, tables wherever the format
//! requires them, two spaces per level, comma as the delimiter. It deviates once, for safety. Tags
//! such as `<system>` and control tokens such as `[INST]` have a meaning for a harness, a carrier or
//! a model. A string with the start of one ([`control_tokens`]) is quoted, with its bracket as
//! `\u003c` or `\u005b`. It decodes to the same value, and the text never contains the tag or the
//! token.
//!
//! ```
//! use aside_toon as toon;
//! use serde_json::json;
//!
//! let text = toon::encode(&json!({"fails": [{"tool": "grep", "code": 2}, {"tool": "fetch", "code": null}]}));
//! assert_eq!(text, "fails[2]{tool,code}:\n  grep,2\n  fetch,null");
//! assert_eq!(toon::encode(&json!({"note": "</notifications>"})), "note: \"\\u003c/notifications>\"");
//! ```

mod control;
mod document;
mod encode;
mod scalar;
pub mod tokens;

pub use control::is_invisible;
pub use control::{control_token_at, control_tokens, escape_control_tokens, has_control_token};
pub use document::{Document, FlatField, Form, flat_fields};
pub use encode::{INDENT, ToonError, decode, lines};
pub use encode::{encode, encode_field, write_table};
pub use scalar::{write_key, write_number, write_quoted, write_scalar, write_text};
pub use tokens::Tokens;

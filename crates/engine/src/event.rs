//! Events, their types, and the rules for payloads.
//!
//! This module contains data and its rules only. An event is validated once, on entry; afterwards
//! it cannot be invalid. The module has no dependency on consumers, storage or transport.

mod envelope;
mod event_type;
mod field_index;
mod field_path;
mod payload;
mod scope;
mod secrets;
mod terminal_line;

pub mod catalogue;
pub mod codec;

pub use envelope::{Event, EventRef, OWN_SOURCE, Provenance, Severity, SeverityError, Trust};
pub(crate) use envelope::{nearness, source_name};
pub use event_type::{
    EventType, EventTypeError, Pattern, PatternSegment, SEGMENTS_MAX, SEGMENTS_MIN, TYPE_BYTES_MAX,
};
pub use field_index::Field;
pub use field_path::{FieldPath, FieldValue};
pub use journal::Seq;
pub use payload::{
    EVENT_BYTES_MAX, FIELD_CHARS_MAX, NESTING_MAX, Payload, PayloadError, WithEscape, clean_text, cut_text,
    first_bytes, strip_text,
};
pub use scope::{Scope, SessionId, Territory, is_within};
pub use secrets::{is_harmless, is_secret_field, mask_field, mask_secrets, mask_value};
pub use terminal_line::terminal_line;

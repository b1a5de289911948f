//! The versioned JSON of the API, and validation of input.
//!
//! All external input is parsed here, once, into valid types; an error names the field and, for a
//! misspelt word, the nearest valid one. The engine's output becomes JSON here. This module uses no
//! sockets, HTTP, files or clock: a caller passes the time and creates the ids.

pub mod body;
pub mod clients;
pub mod cloudevents;
pub mod error;
pub mod event;
pub mod exchange;
pub mod harness;
pub mod history;
pub mod inbox;
pub mod instructions;
pub mod matching;
pub mod names;
pub mod notify;
pub mod publish;
pub mod questions;
pub(crate) mod request;
pub mod sources;
pub mod views;
pub mod watches;
pub mod webhooks;

use std::borrow::Cow;

use engine::nearest::nearest;

use crate::daemon::causes::shortened;

/// Longest excerpt of client input in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 64;

/// An error in the input.
///
/// Shape: `field` is a path such as `budget.max_tokens` or `observe[2].severity`; `None` when the
/// whole is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
pub struct FieldError {
    /// The field.
    pub field: Option<Cow<'static, str>>,
    /// The error, and the valid values.
    pub message: String,
}

impl FieldError {
    /// An error in one field.
    pub fn new(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: shortened(message.into()) }
    }

    /// An error in the whole input.
    pub fn whole(message: impl Into<String>) -> Self {
        Self { field: None, message: shortened(message.into()) }
    }

    /// Prepends the path of the enclosing object.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        let field = self.field.map_or_else(|| outer.to_owned(), |inner| format!("{outer}.{inner}"));
        Self { field: Some(field.into()), message: self.message }
    }
}

/// The part of `text` that an error may contain.
fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let mut kept: String = chars.by_ref().take(EXCERPT_CHARS_MAX).collect();
    if chars.next().is_some() {
        kept.push_str("...");
    }
    kept
}

/// The end of a sentence about an invalid word: the nearest valid one, or all of them.
pub fn hint(found: &str, allowed: &[&str]) -> String {
    nearest(found, allowed.iter().copied()).map_or_else(
        || format!("use one of {}", allowed.join(", ")),
        |word| format!("did you mean `{word}`?"),
    )
}

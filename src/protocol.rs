//! The versioned JSON of the API and of journal records, and what is refused at the edge.
//!
//! Everything that comes from outside is read here, once, into types that cannot be wrong; a refusal names the field and,
//! where a word was misspelt, the nearest right one. The other way, what the engine says becomes JSON here. This module does
//! not know sockets, HTTP or files, and it reads no clock: a caller passes the time and makes the ids.

mod fields;

pub mod body;
pub mod cloudevents;
pub mod event;
pub mod exchange;
pub mod history;
pub mod inbox;
pub mod notify;
pub mod questions;
pub mod record;
pub mod sources;
pub mod views;
pub mod watches;

use std::borrow::Cow;

use crate::nearest::nearest;

/// Longest excerpt of what a client sent that an error repeats, in characters.
const EXCERPT_CHARS_MAX: usize = 64;

/// One thing that is wrong with what was sent.
///
/// Shape: `field` is a path such as `budget.max_tokens` or `observe[2].severity`; `None` when the whole is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
pub struct FieldError {
    /// Where.
    pub field: Option<Cow<'static, str>>,
    /// What is wrong there, and what would be right.
    pub message: String,
}

impl FieldError {
    /// Blames one field.
    pub fn new(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: message.into() }
    }

    /// Blames the whole of what was sent.
    pub fn whole(message: impl Into<String>) -> Self {
        Self { field: None, message: message.into() }
    }

    /// Puts the path of the enclosing object in front.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        let field = self.field.map_or_else(|| outer.to_owned(), |inner| format!("{outer}.{inner}"));
        Self { field: Some(field.into()), message: self.message }
    }
}

/// The part of `text` that an error may repeat.
fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let mut kept: String = chars.by_ref().take(EXCERPT_CHARS_MAX).collect();
    if chars.next().is_some() {
        kept.push_str("...");
    }
    kept
}

/// The end of a sentence about a wrong word: the nearest one, or all of them.
pub fn hint(found: &str, allowed: &[&str]) -> String {
    nearest(found, allowed.iter().copied())
        .map_or_else(|| format!("there are {}", allowed.join(", ")), |word| format!("did you mean `{word}`?"))
}

//! Rows to text: a template writes it, this module makes sure that it is TOON, complete, and small enough.
//!
//! A template prints values; structure comes from its own text alone. Every printed value becomes a mark, and a pass over the rendered
//! lines (`cells`) encodes whole cells: one that is a single value keeps its type, one that mixes text and values becomes one
//! string. So the plain style is exact whatever the values hold:
//!
//! ```text
//! tool_fail: {{ e.payload.tool_name }} {{ e.payload.error_type }}{% if e.payload.error_message %} - {{ e.payload.error_message }}{% endif %}
//! ```
//!
//! Then: strict decode (a table that the encoder alone wrote is strict as it is), canonical form, the counts that the template
//! does not print itself, and the token limit, for which rows go from the tail and are counted as `omitted`. What a template cannot
//! render goes out as a generic table. A newline after a tag counts and blank lines do not, so an `{% endif %}` at the end of a
//! line does not swallow the next one.

mod cells;
mod filters;
mod generic;
mod line;
mod lint;
mod marks;
mod plan;
mod rows;
mod table;
mod template;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    notification::{SubscriberId, Tokens},
    pipeline::row::Row,
    time::Timestamp,
    tokens, toon,
};

use self::{
    rows::{CleanEvent, Shown},
    template::Template,
};

/// Most rows that one notification shows, so that a table stays near its header (semantics 4); the rest is counted.
pub const ROWS_MAX: usize = 15;
/// The key under which repeats of events that were told before are counted; those of a row in sight are its `repeats`.
const EARLIER_REPEATS: &str = "earlier_repeats";
/// The name that stands for no template: the generic table is what is wanted.
pub const GENERIC: &str = "generic";
/// Largest output of a template, in bytes, before it is measured in tokens.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Longest text fields, in characters, tried one after the other when not even one row fits its tokens.
const FIELD_CHARS: [usize; 5] = [crate::event::FIELD_CHARS_MAX, 500, 160, 60, 20];

/// Every template by the name its subscribers use.
#[derive(Debug, Default)]
pub struct Templates {
    by_name: BTreeMap<String, Template>,
}

/// Why a source is no template, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong, and what would be right.
    pub message: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The bytes of the source at fault, when they are known.
    pub range: Option<Range<usize>>,
}

/// What one notification is rendered from.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// Whose notification.
    pub subscriber: &'a SubscriberId,
    /// Its name for people.
    pub subscriber_name: &'a str,
    /// What happened, oldest first.
    pub rows: &'a [Row],
    /// Repeats of rows that left with an earlier notification.
    pub repeats: u32,
    /// Events over the subscriber's rate since the last notification.
    pub suppressed: u32,
    /// When the batch closed.
    pub now: Timestamp,
    /// The most the content may cost.
    pub max_tokens: Tokens,
}

/// What a notification says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Strict TOON without a trailing newline.
    pub content: String,
    /// What it costs, estimated.
    pub tokens: Tokens,
    /// Set when the template failed and the generic table went out instead.
    pub failure: Option<RenderFailure>,
}

/// Why a template could not be used for a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderFailure {
    /// Its name.
    pub template: String,
    /// The line of its source, from 1, when it is known.
    pub line: Option<usize>,
    /// What went wrong.
    pub message: String,
}

impl Templates {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Compiles a template and keeps it under `name`, in place of an earlier one of that name.
    ///
    /// Errors: bad syntax, something a template may not use, an unknown filter or variable; nothing is kept then.
    pub fn add(&mut self, name: &str, source: String) -> Result<(), TemplateError> {
        self.by_name.insert(name.to_owned(), Template::compile(source)?);
        Ok(())
    }

    /// Whether there is a template of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Renders a batch with the template `name`, and with the generic table if that fails.
    ///
    /// Shape: the content is never empty and costs at most `max_tokens`, unless that is too small for a name and a count, which is
    /// also all there is to say when there are no rows.
    pub fn render(&self, name: &str, input: &RenderInput<'_>) -> Rendered {
        if input.rows.is_empty() {
            return smallest(input).released(None);
        }
        let mut clean = CleanRows::default();
        let attempt = match self.by_name.get(name) {
            Some(template) => fit(input, &mut clean, |events| template.render(input, events)),
            None if name == GENERIC => return generic_table(input, &mut clean, None),
            None => Err(Attempt::Failed { line: None, message: "there is no template of this name".into() }),
        };
        let failure = match attempt {
            Ok(content) => return content.released(None),
            Err(Attempt::Failed { line, message }) => (line, message),
            Err(Attempt::TooBig) => {
                (None, format!("not even one event fits {} tokens and {ROWS_MAX} rows", input.max_tokens.0))
            }
        };
        let (line, message) = failure;
        let failure = Some(RenderFailure { template: name.to_owned(), line, message });
        generic_table(input, &mut clean, failure)
    }
}

/// Renders a batch as every batch can be rendered.
fn generic_table(input: &RenderInput<'_>, clean: &mut CleanRows, failure: Option<RenderFailure>) -> Rendered {
    let table = |events: &Shown| {
        let value = generic::document(input.subscriber, events);
        Ok((Body::Decoded { value, comments: None }, Printed { row_repeats: true, ..Printed::default() }))
    };
    fit(input, clean, table).unwrap_or_else(|_| smallest(input)).released(failure)
}

/// Why an attempt to render gave nothing to release.
#[derive(Debug)]
enum Attempt {
    /// Fewer rows or shorter fields may do.
    TooBig,
    /// Nothing but another template will do.
    Failed { line: Option<usize>, message: String },
}

/// A document that is known to be strict TOON.
enum Body {
    /// Canonical as it stands, with these keys at its root.
    Written { text: String, keys: Vec<String>, shows_repeats: bool },
    /// What the author wrote decodes to this; `comments` is the text if it holds comment lines.
    Decoded { value: Value, comments: Option<String> },
}

impl Body {
    /// Adds `extras` as fields at the root, under keys that are still free, and writes the whole.
    fn write(self, subscriber: &SubscriberId, extras: &[(&str, u64)]) -> String {
        match self {
            Self::Written { mut text, mut keys, .. } => {
                append_counts(&mut text, &mut keys, extras);
                text
            }
            Self::Decoded { value, comments: Some(mut text) } if extras.is_empty() || value.is_object() => {
                let mut keys: Vec<String> =
                    value.as_object().into_iter().flat_map(Map::keys).cloned().collect();
                append_counts(&mut text, &mut keys, extras);
                text
            }
            Self::Decoded { value, .. } if extras.is_empty() => toon::encode(&value),
            Self::Decoded { value, .. } => {
                let mut root = Map::new();
                if let Value::Object(fields) = value {
                    root = fields;
                } else {
                    root.insert(subscriber.as_str().to_owned(), value);
                }
                for (name, count) in extras {
                    let key = free_key(name, |key| root.contains_key(key));
                    root.insert(key, Value::from(*count));
                }
                toon::encode(&Value::Object(root))
            }
        }
    }
}

fn append_counts(text: &mut String, keys: &mut Vec<String>, counts: &[(&str, u64)]) {
    for (name, count) in counts {
        let key = free_key(name, |key| keys.iter().any(|taken| taken == key));
        text.push('\n');
        text.push_str(&toon::encode_field(&key, &Value::from(*count)));
        keys.push(key);
    }
}

fn free_key(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut key = name.to_owned();
    while is_taken(&key) {
        key.push_str("_more");
    }
    key
}

/// A document and what it costs.
struct Content {
    text: String,
    tokens: Tokens,
}

impl Content {
    fn new(text: String) -> Self {
        debug_assert!(toon::decode(&text).is_ok(), "released text is strict TOON: {text}");
        let tokens = tokens::estimate(&text);
        Self { text, tokens }
    }

    fn released(self, failure: Option<RenderFailure>) -> Rendered {
        Rendered { content: self.text, tokens: self.tokens, failure }
    }
}

/// The cleaned events of a batch, kept between attempts with the same longest field.
#[derive(Default)]
struct CleanRows {
    field_chars: usize,
    events: Arc<[CleanEvent]>,
}

impl CleanRows {
    fn first(&mut self, count: usize, field_chars: usize, rows: &[Row]) -> Shown {
        if self.field_chars != field_chars || self.events.is_empty() {
            self.field_chars = field_chars;
            self.events = rows.iter().take(ROWS_MAX).map(|row| CleanEvent::new(row, field_chars)).collect();
        }
        Shown::first(count, &self.events)
    }
}

/// Renders as many rows as fit; when not even one does, with shorter fields.
fn fit<F>(input: &RenderInput<'_>, clean: &mut CleanRows, mut render: F) -> Result<Content, Attempt>
where
    F: FnMut(&Shown) -> Result<(Body, Printed), Attempt>,
{
    let shown_max = input.rows.len().min(ROWS_MAX);
    let mut attempt = |count: usize, field_chars: usize| {
        let (body, printed) = render(&clean.first(count, field_chars, input.rows))?;
        let content = Content::new(body.write(input.subscriber, &extras(input, count, printed)));
        let fits = content.tokens <= input.max_tokens && content.text.len() <= OUTPUT_BYTES_MAX;
        if fits { Ok(content) } else { Err(Attempt::TooBig) }
    };
    for field_chars in FIELD_CHARS {
        if let Some(content) = most_rows(shown_max, |count| attempt(count, field_chars))? {
            return Ok(content);
        }
    }
    Err(Attempt::TooBig)
}

/// Finds the largest count from 1 to `count_max` that fits, by bisection.
fn most_rows<F>(count_max: usize, mut attempt: F) -> Result<Option<Content>, Attempt>
where
    F: FnMut(usize) -> Result<Content, Attempt>,
{
    let mut fits = |count| match attempt(count) {
        Ok(content) => Ok(Some(content)),
        Err(Attempt::TooBig) => Ok(None),
        Err(failed @ Attempt::Failed { .. }) => Err(failed),
    };
    if let Some(content) = fits(count_max)? {
        return Ok(Some(content));
    }
    let (mut low, mut high, mut best) = (1, count_max.saturating_sub(1), None);
    while low <= high {
        let middle = low + (high - low) / 2;
        match fits(middle)? {
            Some(content) => (best, low) = (Some(content), middle + 1),
            None => high = middle - 1,
        }
    }
    Ok(best)
}

/// Which counts a template prints itself.
#[derive(Debug, Clone, Copy, Default)]
struct Printed {
    /// How often each row happened.
    row_repeats: bool,
    repeats: bool,
    suppressed: bool,
}

/// The counts that nothing else shows: of rows that were dropped, how often the shown ones happened when the template is silent
/// about it, repeats of earlier rows, and events over the rate.
fn extras(input: &RenderInput<'_>, shown: usize, printed: Printed) -> Vec<(&'static str, u64)> {
    let (kept, dropped) = input.rows.split_at_checked(shown).unwrap_or((input.rows, &[]));
    let is_silent = !printed.row_repeats && kept.iter().any(|row| row.repeats > 1);
    [
        ("omitted", occurrences(dropped)),
        ("repeats", if is_silent { occurrences(kept) } else { 0 }),
        (EARLIER_REPEATS, if printed.repeats { 0 } else { input.repeats.into() }),
        ("suppressed", if printed.suppressed { 0 } else { input.suppressed.into() }),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect()
}

fn occurrences(rows: &[Row]) -> u64 {
    rows.iter().map(|row| u64::from(row.repeats.max(1))).sum()
}

/// One line that says how much happened, for when nothing more fits.
fn smallest(input: &RenderInput<'_>) -> Content {
    let count = occurrences(input.rows) + u64::from(input.repeats) + u64::from(input.suppressed);
    let named = |text: Value| Content::new(toon::encode_field(input.subscriber.as_str(), &text));
    let words = if input.rows.is_empty() {
        format!("{count} more events")
    } else {
        format!("{count} events, too large to show")
    };
    let candidates = [named(words.into()), named(count.into())];
    let fallback = || Content::new(toon::encode_field("events", &count.into()));
    candidates.into_iter().find(|content| content.tokens <= input.max_tokens).unwrap_or_else(fallback)
}

#[cfg(test)]
mod tests;

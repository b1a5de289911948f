//! Renders rows as text. A template writes the text; this module ensures that it is TOON, complete,
//! and within its bounds.
//!
//! A template prints values; only its own text determines structure. Every printed value becomes a
//! placeholder, and a pass over the rendered lines (`assemble`) encodes whole cells: a single value
//! keeps its type, and a mix of text and values becomes one string. So plain templates are exact
//! for all values:
//!
//! ```text
//! tool_fail: {{ e.payload.tool_name }} {{ e.payload.error_type }}{% if e.payload.error_message %} - {{ e.payload.error_message }}{% endif %}
//! ```
//!
//! A template sees the whole batch. Its output is checked to be strict TOON: canonical fields and
//! tables are recognised as they are, and all other text is decoded and written in canonical form.
//! The counts that the template does not print are added.
//! If it exceeds the bounds on rows and tokens, tables lose rows, counted as `omitted`, and finally
//! fields, counted as `omitted_fields`. The newest rows are lost, or the oldest if time alone closed
//! the batch ([`Kept`]). If a template fails, the batch is
//! rendered as a generic table. A newline after a tag is kept and blank lines are removed, so an
//! `{% endif %}` at the end of a line does not join it with the next one.
//!
//! `sentence` renders the words for a person.
//!
//! Three parts: `template` runs minijinja, `table` converts events to rows, cells and tables, and
//! `assemble` converts placeholders to TOON. `template` uses the other two, which do not use it.
//!
//! The generic layout is valid for every batch: type, source and severity of its events, and their
//! flattened payloads.

mod assemble;
mod declared;
mod draft;
mod table;
mod template;

use std::{ops::Range, sync::Arc};

use serde_json::{Map, Value};
use toon::tokens;

use self::{
    draft::{Attempt, Body, Draft, Lost, Printed, free_key},
    table::{
        Origin,
        clean_event::{CleanEvent, Shown},
        rows::Rows,
    },
    template::{Template, View},
};
use crate::{
    notification::{TemplateNotice, Tokens, UNTRUSTED_SOURCE},
    pipeline::{row::Row, sandbox::account::Account},
    sorted::SortedMap,
    words::counted,
};

pub use self::{
    declared::{BatchText, Declared, EventText, Layout, Sentence, Several},
    draft::{Kept, OUTPUT_BYTES_MAX, ROWS_MAX, RenderInput, TemplateError},
    table::clean_event::{EVENT_FIELDS, clean_value},
    table::{Column, EVENT_COLUMNS, Table},
    template::{Code, EVENT_VARIABLES, OPTIONAL, Vocabulary, vocabulary},
};
pub use crate::pipeline::sandbox::{Libraries, StrayField};

/// The key for the count of repeats of rows in earlier notifications; a shown row has its own
/// `repeats`.
const EARLIER_REPEATS: &str = "earlier_repeats";
/// The name of the generic table, used in place of a template's.
pub const GENERIC: &str = "generic";
/// Most steps of work (`pipeline::sandbox`) of all attempts at one notification together: some 10
/// ms.
pub const STEPS_MAX: u64 = 500_000;
/// Longest text fields of each attempt, in characters, in order, while not even one row fits.
const FIELD_CHARS: [usize; 5] = [crate::event::FIELD_CHARS_MAX, 500, 160, 60, 20];

/// All templates, by name, and the libraries that they can take macros from.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    by_name: SortedMap<String, Arc<Template>>,
    libraries: Libraries,
}

impl Libraries {
    /// Checks a library, which has only macros.
    ///
    /// Errors: as for [`Templates::add`]; also anything else than macros, and variables in them.
    pub fn check(&self, name: &str) -> Result<(), TemplateError> {
        template::check_library(name, self)
    }
}

/// A rendered notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Strict TOON without a trailing newline.
    pub content: String,
    /// Its estimated size.
    pub tokens: Tokens,
    /// Set if the template failed and the generic table replaced it.
    pub failure: Option<RenderFailure>,
    /// The template's notices for the user (`notify`), in order; empty if it failed.
    pub words: Vec<TemplateNotice>,
    /// Columns named by the template that no row has: optional fields, or misspelt names.
    pub absent: Vec<String>,
    /// Whether each row names its own untrusted source.
    pub names_sources: bool,
}

/// Why the author's template or text could not render a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderFailure {
    /// The line of the template, or of the text of one event, from 1, if known.
    pub line: Option<usize>,
    /// The bytes of the expression there, if known.
    pub range: Option<Range<usize>>,
    /// The message.
    pub message: String,
}

impl Templates {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty set whose templates can take macros from `libraries`.
    pub fn with_libraries(libraries: Libraries) -> Self {
        Self { libraries, ..Self::default() }
    }

    /// The libraries.
    pub fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Compiles a template and stores it under `name`, replacing an earlier one.
    ///
    /// Errors: bad syntax, something forbidden in templates, an unknown filter or variable; nothing
    /// is stored then.
    pub fn add(&mut self, name: &str, source: &str) -> Result<(), TemplateError> {
        let template = Template::compile(View::Batch, source, &self.libraries)?;
        self.by_name.insert(name.to_owned(), Arc::new(template));
        Ok(())
    }

    /// Like [`Self::add`], of a template that can take macros from other `libraries`.
    ///
    /// Errors: as for [`Self::add`].
    pub fn add_with(&mut self, name: &str, source: &str, libraries: &Libraries) -> Result<(), TemplateError> {
        let template = Template::compile(View::Batch, source, libraries)?;
        self.by_name.insert(name.to_owned(), Arc::new(template));
        Ok(())
    }

    /// Stores a template without a fault, replacing an earlier one; it is compiled when it first runs.
    pub fn add_deferred(&mut self, name: &str, source: &str) {
        self.by_name.insert(name.to_owned(), Arc::new(Template::deferred(View::Batch, source)));
    }

    /// The same with the template `name` of `other`, if that has one.
    pub(crate) fn take_from(&mut self, other: &Self, name: &str) {
        if let Some(template) = other.by_name.get(name) {
            self.by_name.insert(name.to_owned(), Arc::clone(template));
        }
    }

    /// Whether a template of that name exists.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The fields that the template `name` reads of an event and that no event has.
    pub fn stray_fields(&self, name: &str) -> &[StrayField] {
        self.by_name.get(name).map_or(&[], |template| template.strays())
    }

    /// Renders a batch with the template `name`, or with the generic table if that fails.
    ///
    /// Shape: the content is never empty and has at most `max_tokens`, unless that is too small for
    /// a name and a count. Without rows it is a name and a count.
    pub fn render(&self, name: &str, input: &RenderInput<'_>) -> Rendered {
        if input.rows.is_empty() {
            return smallest(input);
        }
        let mut clean = CleanRows::new(input.rows);
        let attempt = match self.by_name.get(name) {
            Some(template) => fit_template(input, &mut clean, template),
            None if name == GENERIC => return generic_table(input, &mut clean, None),
            None => {
                Err(Attempt::Failed { line: None, range: None, message: "no template has this name".into() })
            }
        };
        attempt.unwrap_or_else(|failed| generic_in_place(input, &mut clean, failed))
    }
}

/// Renders a batch as the generic table, because the author's template or text failed.
fn generic_in_place(input: &RenderInput<'_>, clean: &mut CleanRows<'_>, failed: Attempt) -> Rendered {
    let (line, range, message) = match failed {
        Attempt::Failed { line, range, message } => (line, range, message),
        Attempt::Nothing => (None, None, "its output is empty".into()),
        Attempt::TooBig => {
            (None, None, format!("not even one row and field of it fit {} tokens", input.max_tokens.0))
        }
    };
    generic_table(input, clean, Some(RenderFailure { line, range, message }))
}

/// Renders a batch as the generic table.
fn generic_table(
    input: &RenderInput<'_>,
    clean: &mut CleanRows<'_>,
    failure: Option<RenderFailure>,
) -> Rendered {
    let fitted = FIELD_CHARS.into_iter().find_map(|field_chars| {
        let draft = generic_draft(input, &clean.events(field_chars));
        fit_draft(input, &draft, Texts::cut_to(field_chars)).ok()
    });
    Rendered { failure, ..fitted.unwrap_or_else(|| smallest(input)) }
}

impl Rendered {
    fn new(content: String) -> Self {
        debug_assert!(toon::decode(&content).is_ok(), "released text is strict TOON: {content}");
        let tokens = tokens::estimate(&content);
        let (words, absent) = (Vec::new(), Vec::new());
        Self { content, tokens, failure: None, words, absent, names_sources: false }
    }

    /// The text of a draft, with what else is known of it.
    fn of_draft(content: String, draft: &Draft) -> Self {
        let (absent, words) = (draft.absent.clone(), draft.words.clone());
        Self { absent, words, names_sources: draft.printed.sources, ..Self::new(content) }
    }

    /// Returns it if it is within the bounds.
    fn fitting(self, input: &RenderInput<'_>) -> Result<Self, Attempt> {
        let fits = self.tokens <= input.max_tokens && self.content.len() <= OUTPUT_BYTES_MAX;
        if fits { Ok(self) } else { Err(Attempt::TooBig) }
    }
}

/// The cleaned events of a batch, reused by attempts with the same field length, and the account of
/// all attempts.
struct CleanRows<'a> {
    rows: &'a [Row],
    field_chars: usize,
    events: Arc<[CleanEvent]>,
    account: Arc<Account>,
}

impl<'a> CleanRows<'a> {
    fn new(rows: &'a [Row]) -> Self {
        Self { rows, field_chars: 0, events: Arc::default(), account: Account::new(STEPS_MAX) }
    }

    fn events(&mut self, field_chars: usize) -> Shown {
        if self.field_chars != field_chars {
            self.field_chars = field_chars;
            self.events = self.rows.iter().map(|row| CleanEvent::new(row, field_chars)).collect();
        }
        Shown::all(Arc::clone(&self.events), &self.account)
    }
}

/// Renders with a template as many rows as fit; with shorter fields if not even one does.
fn fit_template(
    input: &RenderInput<'_>,
    clean: &mut CleanRows<'_>,
    template: &Template,
) -> Result<Rendered, Attempt> {
    shortened(clean, |clean, field_chars| {
        let draft = template.run(input, &clean.events(field_chars), &clean.account)?;
        fit_draft(input, &draft, Texts::cut_to(field_chars))
    })
}

/// Returns the first result of `attempt` that fits, trying the longest fields first.
fn shortened<'a>(
    clean: &mut CleanRows<'a>,
    attempt: impl Fn(&mut CleanRows<'a>, usize) -> Result<Rendered, Attempt>,
) -> Result<Rendered, Attempt> {
    for field_chars in FIELD_CHARS {
        match attempt(clean, field_chars) {
            Err(Attempt::TooBig) => {}
            ended @ (Ok(_) | Err(Attempt::Nothing | Attempt::Failed { .. })) => return ended,
        }
    }
    Err(Attempt::TooBig)
}

/// A draft with `shown` rows of the batch, and the counts that it does not print.
fn finished(input: &RenderInput<'_>, draft: &Draft, shown: usize) -> Result<Rendered, Attempt> {
    let (kept, dropped) = input.kept.split(input.rows, shown);
    let kept = without(input.kept, kept, draft.left_out);
    let counts = extras(input, kept, draft.left_out + occurrences(dropped), draft.printed);
    let text = draft.body.write(input.subscriber, &counts);
    Rendered::of_draft(text, draft).fitting(input)
}

/// Shows as much of a draft as fits: all of it, or fewer rows of its tables, or, with `Shortest`
/// texts, fewer fields.
fn fit_draft(input: &RenderInput<'_>, draft: &Draft, texts: Texts) -> Result<Rendered, Attempt> {
    let is_long = draft.body.has_long_table();
    if !is_long && let Ok(content) = finished(input, draft, input.rows.len()) {
        return Ok(content);
    }
    let whole = draft.body.to_value();
    let with_rows = |rows_max| {
        let mut value = whole.clone();
        let lost = draft::limit_rows(&mut value, rows_max, &|count| input.kept_of(count));
        (value, lost)
    };
    let rows_max = if is_long { ROWS_MAX } else { ROWS_MAX - 1 };
    let fitted = most(rows_max, |rows_max| {
        let (value, lost) = with_rows(rows_max);
        if lost.is_empty() && !is_long {
            return Err(Attempt::TooBig);
        }
        finished_cut(input, draft, value, &lost, 0)
    })?;
    if let Some(content) = fitted {
        return Ok(content);
    }
    let (value, lost) = with_rows(1);
    let fields = draft::field_count(&value);
    let fitted = match texts {
        Texts::Longer => None,
        Texts::Shortest => most(fields.saturating_sub(1), |count| {
            let mut value = value.clone();
            draft::cut_fields(&mut value, count);
            finished_cut(input, draft, value, &lost, fields - count)
        })?,
    };
    fitted.ok_or(Attempt::TooBig)
}

/// A draft whose tables `lost` rows.
fn finished_cut(
    input: &RenderInput<'_>,
    draft: &Draft,
    value: Value,
    lost: &[Lost],
    fields: usize,
) -> Result<Rendered, Attempt> {
    let (all, mut shown) = (input.rows.len(), input.rows.len());
    let mut left_out = draft.left_out;
    for table in lost {
        // A table of this length has one row per event, up to the limit of a filter.
        if table.of == all || table.of == all.min(ROWS_MAX) {
            let (written, _) = input.kept.split(input.rows, table.of);
            left_out += occurrences(input.kept.split(written, table.kept).1);
            shown = shown.min(table.kept);
        } else {
            left_out += (table.of - table.kept) as u64;
        }
    }
    let (kept, _) = input.kept.split(input.rows, shown);
    let kept = if shown == all { without(input.kept, kept, draft.left_out) } else { kept };
    let mut counts = extras(input, kept, left_out, draft.printed);
    if fields > 0 {
        counts.push(("omitted_fields", fields as u64));
    }
    let text = Body::Decoded { value, comments: None }.write(input.subscriber, &counts);
    Rendered::of_draft(text, draft).fitting(input)
}

/// Whether the texts can be cut shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Texts {
    Longer,
    Shortest,
}

impl Texts {
    fn cut_to(field_chars: usize) -> Self {
        if FIELD_CHARS.last() == Some(&field_chars) { Self::Shortest } else { Self::Longer }
    }
}

/// Finds the largest count from 1 to `count_max` that fits, by bisection.
fn most<F>(count_max: usize, mut attempt: F) -> Result<Option<Rendered>, Attempt>
where
    F: FnMut(usize) -> Result<Rendered, Attempt>,
{
    let mut fits = |count| match attempt(count) {
        Ok(content) => Ok(Some(content)),
        Err(Attempt::TooBig) => Ok(None),
        Err(failed @ (Attempt::Nothing | Attempt::Failed { .. })) => Err(failed),
    };
    if count_max == 0 {
        return Ok(None);
    }
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

/// The counts that are not shown elsewhere: events of omitted rows, occurrences of the `kept` rows
/// unless the template prints them, repeats of earlier rows, and rate-limited events.
fn extras(
    input: &RenderInput<'_>,
    kept: &[Row],
    left_out: u64,
    printed: Printed,
) -> Vec<(&'static str, u64)> {
    let is_silent = !printed.row_repeats && kept.iter().any(|row| row.repeats > 1);
    [
        ("omitted", left_out + u64::from(input.omitted)),
        ("repeats", if is_silent { occurrences(kept) } else { 0 }),
        (EARLIER_REPEATS, if printed.repeats { 0 } else { input.repeats.into() }),
        ("suppressed", if printed.suppressed { 0 } else { input.suppressed.into() }),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect()
}

/// Removes the rows that a table omitted and that cover `events`.
fn without(kept: Kept, mut rows: &[Row], mut events: u64) -> &[Row] {
    while events > 0 && !rows.is_empty() {
        let (others, omitted) = kept.split(rows, rows.len() - 1);
        events = events.saturating_sub(occurrences(omitted));
        rows = others;
    }
    rows
}

fn occurrences(rows: &[Row]) -> u64 {
    rows.iter().map(|row| u64::from(row.repeats.max(1))).sum()
}

/// One line with the number of events, if nothing else fits.
fn smallest(input: &RenderInput<'_>) -> Rendered {
    let earlier = [input.repeats, input.suppressed, input.omitted].map(u64::from);
    let count = occurrences(input.rows) + earlier.iter().sum::<u64>();
    let named = |text: Value| Rendered::new(toon::encode_field(input.subscriber.as_str(), &text));
    let words = if input.rows.is_empty() {
        counted(count, "more event")
    } else {
        format!("{}, too large to show", counted(count, "event"))
    };
    let candidates = [named(words.into()), named(count.into())];
    let fallback = || Rendered::new(toon::encode_field("events", &count.into()));
    candidates.into_iter().find(|content| content.tokens <= input.max_tokens).unwrap_or_else(fallback)
}

#[cfg(test)]
mod tests;

/// Fields of the event itself, under their names in this layout.
const ENVELOPE: [(&str, Origin); 3] =
    [("type", Origin::Type), ("source", Origin::Source), ("severity", Origin::Severity)];

/// Writes one event as fields, several as a table named after the subscriber; columns that are null
/// in all rows are omitted.
fn generic_draft(input: &RenderInput<'_>, events: &Shown) -> Draft {
    let places = input.kept.places(events.len(), ROWS_MAX);
    let origins = input.origins.get(places.clone()).unwrap_or_default();
    let left_out = occurrences(input.kept.split(input.rows, ROWS_MAX).1);
    let rows = Rows::new(events.at(places)).with_origins(origins);
    let mut table: Vec<Map<String, Value>> = (0..rows.len()).map(|at| generic_row(&rows, at)).collect();
    let is_empty = |name: &str| table.iter().all(|row| row.get(name).is_none_or(Value::is_null));
    let names = table.first().into_iter().flat_map(Map::keys);
    let empty: Vec<String> = names.filter(|name| is_empty(name)).cloned().collect();
    table.iter_mut().for_each(|row| row.retain(|name, _| !empty.contains(name)));
    let value = match (table.len(), table.pop()) {
        (1, Some(row)) => Value::Object(row),
        (_, last) => {
            let rows: Vec<Value> = table.into_iter().chain(last).map(Value::Object).collect();
            Value::Object(Map::from_iter([(input.subscriber.as_str().to_owned(), rows.into())]))
        }
    };
    Draft {
        body: Body::Decoded { value, comments: None },
        printed: Printed { row_repeats: true, sources: rows.names_origins(), ..Printed::default() },
        left_out,
        absent: Vec::new(),
        words: Vec::new(),
    }
}

/// One row with all columns.
fn generic_row(rows: &Rows, at: usize) -> Map<String, Value> {
    let mut row = Map::new();
    if rows.names_origins() {
        row.insert(UNTRUSTED_SOURCE.to_owned(), rows.first(at, &[Origin::Untrusted]).to_json());
    }
    for (name, origin) in ENVELOPE {
        row.insert(name.to_owned(), rows.first(at, &[origin]).to_json());
    }
    for name in rows.columns() {
        let cell = rows.first(at, &[Origin::Field(name.clone())]).to_json();
        let is_taken = |key: &str| key == UNTRUSTED_SOURCE || row.contains_key(key);
        row.insert(free_key(name, is_taken), cell);
    }
    row
}

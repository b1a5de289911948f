//! The output declared in a subscriber's file: lines for one event (`one`), a template (`many`) or a
//! table for several, and the words for a person (`sentence`).
//!
//! The table is known when the file is read, so no template runs. A batch of one event is rendered
//! by `one`; without it by `many`, or as one line per column of the table. Without both, several
//! events are a generic table, and so is one event for which `one` prints nothing.
//!
//! `sentence` is a template that sees one event, as `one` does, and prints plain text instead of
//! TOON. A client shows its user one line, so only the first events of a batch are put into words.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::{
    CleanRows, GENERIC, Libraries, OUTPUT_BYTES_MAX, ROWS_MAX, RenderFailure, RenderInput, Rendered,
    StrayField, TemplateError, Templates, Texts,
    draft::{Attempt, Body, Draft, Printed},
    finished, fit_draft, fit_template, generic_in_place, generic_table, most, occurrences, shortened,
    smallest,
    table::{Table, Written, rows::Rows},
    template::{Template, View},
};
use crate::{event::cut_text, pipeline::output::FailedPart, sorted::SortedSet};

/// The layout of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// The template of this name, or the generic table if it is [`GENERIC`].
    Template(Arc<str>),
    /// The declaration in the subscriber's file.
    Declared(Arc<Declared>),
}

impl Layout {
    /// The generic table.
    pub fn generic() -> Self {
        Self::Template(GENERIC.into())
    }

    /// The name of the template, if there is one.
    pub fn template(&self) -> Option<&str> {
        match self {
            Self::Template(name) => Some(name).filter(|name| ***name != *GENERIC).map(|name| &**name),
            Self::Declared(_) => None,
        }
    }

    /// The names of the libraries that its texts take macros from.
    pub fn libraries<'l>(&'l self, templates: &'l Templates) -> Vec<&'l str> {
        let texts = match self {
            Self::Template(name) => [templates.by_name.get(&**name).map(AsRef::as_ref), None],
            Self::Declared(declared) => declared.texts(),
        };
        texts.into_iter().flatten().flat_map(Template::libraries).collect()
    }

    /// The part at fault if a batch of `count` events cannot be rendered with it.
    pub fn part(&self, count: usize) -> FailedPart {
        match self {
            Self::Template(name) => FailedPart::Template(Arc::clone(name)),
            Self::Declared(declared) => declared.part(count),
        }
    }

    /// Renders a batch, as the generic table if it fails.
    ///
    /// Shape: as for [`Templates::render`].
    pub fn render(&self, templates: &Templates, input: &RenderInput<'_>) -> Rendered {
        match self {
            Self::Template(name) => templates.render(name, input),
            Self::Declared(declared) => declared.render(input),
        }
    }
}

/// The texts of one event and of several; at least one of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Declared {
    one: Option<EventText>,
    several: Option<Several>,
}

/// The text of several events.
#[derive(Debug, PartialEq, Eq)]
pub enum Several {
    /// A table, `[output.table]`.
    Table(Table),
    /// A template, `many`.
    Text(BatchText),
}

impl Declared {
    /// Creates it from the keys of a file.
    pub fn new(one: Option<EventText>, several: Option<Several>) -> Self {
        Self { one, several }
    }

    /// The text of one event.
    pub fn one(&self) -> Option<&EventText> {
        self.one.as_ref()
    }

    /// The fields that `many` reads of an event and that no event has.
    pub fn stray_fields(&self) -> &[StrayField] {
        match &self.several {
            Some(Several::Text(text)) => text.0.strays(),
            Some(Several::Table(_)) | None => &[],
        }
    }

    fn texts(&self) -> [Option<&Template>; 2] {
        let several = match &self.several {
            Some(Several::Text(text)) => Some(&text.0),
            Some(Several::Table(_)) | None => None,
        };
        [self.one.as_ref().map(|one| &one.0), several]
    }

    fn part(&self, count: usize) -> FailedPart {
        match (&self.one, &self.several) {
            (Some(_), _) if count == 1 => FailedPart::Output,
            (_, Some(Several::Text(_))) => FailedPart::Many,
            (_, Some(Several::Table(_)) | None) => FailedPart::Output,
        }
    }

    fn render(&self, input: &RenderInput<'_>) -> Rendered {
        let mut clean = CleanRows::new(input.rows);
        let attempt = match (input.rows, &self.one, &self.several) {
            ([], ..) => return smallest(input),
            ([_], Some(one), _) => fit_template(input, &mut clean, &one.0),
            (_, _, Some(Several::Text(many))) => {
                let rendered = fit_template(input, &mut clean, &many.0);
                return rendered.unwrap_or_else(|failed| generic_in_place(input, &mut clean, failed));
            }
            ([_], None, Some(Several::Table(table))) => fit_lines(input, &mut clean, table),
            (_, _, Some(Several::Table(table))) => fit_table(input, &mut clean, table),
            (_, _, None) => return generic_table(input, &mut clean, None),
        };
        match attempt {
            Ok(rendered) => rendered,
            // An event without any of the named fields is not a fault of the text.
            Err(Attempt::Nothing) => generic_table(input, &mut clean, None),
            Err(failed) => generic_in_place(input, &mut clean, failed),
        }
    }
}

/// The lines of one event: a template that sees one event and may print absent values.
#[derive(Debug, PartialEq, Eq)]
pub struct EventText(Template);

impl EventText {
    /// Compiles it.
    ///
    /// Errors: as for [`Templates::add`].
    pub fn compile(source: &str, libraries: &Libraries) -> Result<Self, TemplateError> {
        Template::compile(View::Event, source, libraries).map(Self)
    }

    /// Takes a source without a fault; it is compiled when it first runs.
    pub fn deferred(source: &str) -> Self {
        Self(Template::deferred(View::Event, source))
    }

    /// The payload fields that it names as `payload.name`.
    pub fn fields(&self) -> &SortedSet<String> {
        self.0.fields()
    }
}

/// The text of several events: a template with the variables of a template file.
#[derive(Debug, PartialEq, Eq)]
pub struct BatchText(Template);

impl BatchText {
    /// Compiles it.
    ///
    /// Errors: as for [`Templates::add`].
    pub fn compile(source: &str, libraries: &Libraries) -> Result<Self, TemplateError> {
        Template::compile(View::Batch, source, libraries).map(Self)
    }

    /// Takes a source without a fault; it is compiled when it first runs.
    pub fn deferred(source: &str) -> Self {
        Self(Template::deferred(View::Batch, source))
    }
}

/// Writes one event as lines; if they do not fit, with shorter and then with fewer fields.
fn fit_lines(input: &RenderInput<'_>, clean: &mut CleanRows<'_>, table: &Table) -> Result<Rendered, Attempt> {
    shortened(clean, |clean, field_chars| {
        let lines = table.write_lines(&Rows::new(clean.events(field_chars))).map_err(failed)?;
        fit_draft(input, &draft(lines, false)?, Texts::cut_to(field_chars))
    })
}

/// Writes as many events as fit as a table; with shorter fields if not even one does.
fn fit_table(input: &RenderInput<'_>, clean: &mut CleanRows<'_>, table: &Table) -> Result<Rendered, Attempt> {
    shortened(clean, |clean, field_chars| {
        let rows = Rows::new(clean.events(field_chars)).with_origins(input.origins);
        let write = |count: usize| {
            let places: Vec<usize> = input.kept.places(rows.len(), count).collect();
            draft(table.write(&rows, &places).map_err(failed)?, rows.names_origins())
        };
        let fitted = most(rows.len().min(ROWS_MAX), |count| finished(input, &write(count)?, count))?;
        match (fitted, Texts::cut_to(field_chars)) {
            (Some(content), _) => Ok(content),
            (None, Texts::Longer) => Err(Attempt::TooBig),
            (None, texts @ Texts::Shortest) => {
                let rest = occurrences(input.kept.split(input.rows, 1).1);
                fit_draft(input, &Draft { left_out: rest, ..write(1)? }, texts)
            }
        }
    })
}

fn draft(written: Written, sources: bool) -> Result<Draft, Attempt> {
    let Written { text, keys, absent, shows_repeats } = written;
    if text.len() > OUTPUT_BYTES_MAX {
        return Err(Attempt::TooBig);
    }
    let printed = Printed { row_repeats: shows_repeats, sources, ..Printed::default() };
    Ok(Draft {
        body: Body::Written { text, keys, shows_repeats },
        printed,
        left_out: 0,
        absent,
        words: Vec::new(),
    })
}

fn failed(message: String) -> Attempt {
    Attempt::Failed { line: None, range: None, message }
}

/// Most events of a batch with words of their own; the rest is counted.
const EVENTS_MAX: usize = 2;
/// Most characters of the words for one event; a client shows about 100 of a line.
const CHARS_MAX: usize = 200;

/// The words for one event.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence(Template);

impl Sentence {
    /// Compiles it.
    ///
    /// Errors: as for [`super::Templates::add`]; `notify` is refused too.
    pub fn compile(source: &str, libraries: &Libraries) -> Result<Self, TemplateError> {
        Template::compile(View::Sentence, source, libraries).map(Self)
    }

    /// Takes a source without a fault; it is compiled when it first runs.
    pub fn deferred(source: &str) -> Self {
        Self(Template::deferred(View::Sentence, source))
    }

    /// The payload fields that it names as `payload.name`.
    pub fn fields(&self) -> &SortedSet<String> {
        self.0.fields()
    }

    /// The names of the libraries that it takes macros from.
    pub fn libraries(&self) -> impl Iterator<Item = &str> {
        self.0.libraries()
    }

    /// The words for some events of a batch, oldest first: the first ones, or those that are kept.
    ///
    /// Shape: each is one line, with the secrets and control characters of values removed. An event
    /// for which nothing is printed has none.
    ///
    /// Errors: the template fails, also for one of the events only.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<Vec<Arc<str>>, RenderFailure> {
        let mut said = Vec::new();
        for row in input.kept.split(input.rows, EVENTS_MAX).0 {
            let mut clean = CleanRows::new(std::slice::from_ref(row));
            let events = clean.events(CHARS_MAX);
            let words = self.0.words(input, &events, &clean.account).map_err(failure)?;
            let mut line = String::with_capacity(words.len());
            for word in words.split_whitespace() {
                line.extend((!line.is_empty()).then_some(' '));
                line.push_str(word);
            }
            if !line.is_empty() {
                said.push(cut_text(line.into(), CHARS_MAX).into());
            }
        }
        Ok(said)
    }
}

fn failure(failed: Attempt) -> RenderFailure {
    match failed {
        Attempt::Failed { line, range, message } => RenderFailure { line, range, message },
        Attempt::Nothing => RenderFailure { line: None, range: None, message: "its output is empty".into() },
        Attempt::TooBig => RenderFailure { line: None, range: None, message: "it prints too much".into() },
    }
}

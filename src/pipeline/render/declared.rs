//! What a subscriber's own file says about its text: the lines of one event, and the table of
//! several.
//!
//! The table is known when the file is read, so it is written from the rows without running a
//! template. One event is what `one` says; without it, one line for each column of the table.
//! Without a table several events are the generic one, and so is one event of which `one` has
//! nothing to say.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    CleanRows, Content, GENERIC, OUTPUT_BYTES_MAX, ROWS_MAX, RenderInput, Rendered, TemplateError, Templates,
    Texts,
    draft::{Attempt, Body, Draft, Printed},
    finished, fit_draft, generic_in_place, generic_table, most, occurrences, shortened, smallest,
    table::{Table, rows::Rows},
    template::Template,
};
use crate::pipeline::failure::FailedPart;

/// How a batch becomes text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// By the template of this name, or as the generic table if that is [`GENERIC`].
    Template(Arc<str>),
    /// As the subscriber's own file declares.
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

    /// What is at fault when it cannot be used for a batch.
    pub fn part(&self) -> FailedPart {
        match self {
            Self::Template(name) => FailedPart::Template(Arc::clone(name)),
            Self::Declared(_) => FailedPart::Output,
        }
    }

    /// Renders a batch, as the generic table if it cannot be rendered as this says.
    ///
    /// Shape: as for [`Templates::render`].
    pub fn render(&self, templates: &Templates, input: &RenderInput<'_>) -> Rendered {
        match self {
            Self::Template(name) => templates.render(name, input),
            Self::Declared(declared) => declared.render(input),
        }
    }
}

/// The text of one event and the table of several, at least one of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Declared {
    one: Option<EventText>,
    table: Option<Table>,
}

impl Declared {
    /// What a file says as `one` and `table`.
    pub fn new(one: Option<EventText>, table: Option<Table>) -> Self {
        Self { one, table }
    }

    /// The text of one event.
    pub fn one(&self) -> Option<&EventText> {
        self.one.as_ref()
    }

    fn render(&self, input: &RenderInput<'_>) -> Rendered {
        let mut clean = CleanRows::new(input.rows);
        let attempt = match (input.rows, &self.one, &self.table) {
            ([], ..) => return smallest(input).released(None),
            ([_], Some(one), _) => one.fit(input, &mut clean),
            ([_], None, Some(table)) => fit_lines(input, &mut clean, table),
            (_, _, Some(table)) => fit_table(input, &mut clean, table),
            (_, _, None) => return generic_table(input, &mut clean, None),
        };
        match attempt {
            Ok(content) => content.released(None),
            // An event that has none of the fields it names is no fault of the text.
            Err(Attempt::Nothing) => generic_table(input, &mut clean, None),
            Err(failed) => generic_in_place(input, &mut clean, failed),
        }
    }
}

/// The lines of one event: a template that sees one event, and for which a value that is not there
/// is no failure.
#[derive(Debug, PartialEq, Eq)]
pub struct EventText(Template);

impl EventText {
    /// Compiles it.
    ///
    /// Errors: as for [`Templates::add`].
    pub fn compile(source: &str) -> Result<Self, TemplateError> {
        Template::of_event(source).map(Self)
    }

    /// The fields of the payload that it names as `payload.name`.
    pub fn fields(&self) -> &BTreeSet<String> {
        self.0.fields()
    }

    fn fit(&self, input: &RenderInput<'_>, clean: &mut CleanRows<'_>) -> Result<Content, Attempt> {
        super::fit_template(input, clean, &self.0)
    }
}

/// Writes one event as lines; when they do not fit, with shorter fields, and in the end with fewer.
fn fit_lines(input: &RenderInput<'_>, clean: &mut CleanRows<'_>, table: &Table) -> Result<Content, Attempt> {
    shortened(clean, |clean, field_chars| {
        let lines = table.write_lines(&Rows::new(clean.events(field_chars))).map_err(failed)?;
        let printed = Printed { row_repeats: lines.shows_repeats, ..Printed::default() };
        let draft = draft(lines.text, lines.keys, lines.absent, printed)?;
        fit_draft(input, &draft, Texts::cut_to(field_chars))
    })
}

/// Writes several events as a table of as many rows as fit; when not even one does, with shorter
/// fields.
fn fit_table(input: &RenderInput<'_>, clean: &mut CleanRows<'_>, table: &Table) -> Result<Content, Attempt> {
    shortened(clean, |clean, field_chars| {
        let rows = Rows::new(clean.events(field_chars));
        let write = |count: usize| {
            let places: Vec<usize> = (0..count).collect();
            let written = table.write(&rows, &places).map_err(failed)?;
            let printed = Printed { row_repeats: written.shows_repeats, ..Printed::default() };
            draft(written.text, vec![table.key.clone()], written.absent, printed)
        };
        let fitted = most(rows.len().min(ROWS_MAX), |count| finished(input, &write(count)?, count))?;
        match (fitted, Texts::cut_to(field_chars)) {
            (Some(content), _) => Ok(content),
            (None, Texts::Longer) => Err(Attempt::TooBig),
            (None, texts @ Texts::Shortest) => {
                let rest = occurrences(input.rows.get(1..).unwrap_or_default());
                fit_draft(input, &Draft { left_out: rest, ..write(1)? }, texts)
            }
        }
    })
}

fn draft(text: String, keys: Vec<String>, absent: Vec<String>, printed: Printed) -> Result<Draft, Attempt> {
    if text.len() > OUTPUT_BYTES_MAX {
        return Err(Attempt::TooBig);
    }
    let body = Body::Written { text, keys, shows_repeats: printed.row_repeats };
    Ok(Draft { body, printed, left_out: 0, absent, words: Vec::new() })
}

fn failed(message: String) -> Attempt {
    Attempt::Failed { line: None, message }
}

#[cfg(test)]
mod tests;

//! The table that `rows|toon(key=\"..\")` is: which columns, and the first of the fields of a row that each of them shows.
//!
//! It goes from the rows to one text, without an instruction of a template and without a value for each cell. Most templates have
//! one whose options are constant; those are read when the template is compiled ([`super::plan`]).

use std::borrow::Cow;

use serde_json::Value;

use super::rows::{Cell, REPEATS, Rows};
use crate::toon;

/// Fields of the event itself, under the names by which a picked column asks for them.
const TYPE: &str = "@type";
/// The last segment of the type, such as `failed`.
const TYPE_LAST: &str = "@type.last";
const SOURCE: &str = "@source";
const SEVERITY: &str = "@severity";
const TIME: &str = "@time";
/// The payload as one JSON text.
const PAYLOAD: &str = "@payload";

/// Where a column finds its cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Type,
    TypeLast,
    Source,
    Severity,
    Time,
    Payload,
    /// A column of the rows.
    Field(String),
}

impl Origin {
    /// What a template calls `name`.
    pub(super) fn named(name: &str) -> Self {
        match name {
            TYPE => Self::Type,
            TYPE_LAST => Self::TypeLast,
            SOURCE => Self::Source,
            SEVERITY => Self::Severity,
            TIME => Self::Time,
            PAYLOAD => Self::Payload,
            field => Self::Field(field.to_owned()),
        }
    }

    /// What a template calls it.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Type => TYPE,
            Self::TypeLast => TYPE_LAST,
            Self::Source => SOURCE,
            Self::Severity => SEVERITY,
            Self::Time => TIME,
            Self::Payload => PAYLOAD,
            Self::Field(name) => name,
        }
    }
}

/// A table as a template asks for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) key: String,
    /// All columns of the rows when there are none.
    pub(super) columns: Option<Vec<Column>>,
    /// Whether a column says how often each row happened, if any repeated.
    pub(super) repeats: bool,
}

/// A column of a table: its name, and the fields of a row of which it shows the first that is not null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) from: Vec<Origin>,
}

impl Column {
    fn same(name: &str) -> Self {
        Self { name: name.to_owned(), from: vec![Origin::named(name)] }
    }
}

/// A table as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) text: String,
    /// Columns that the author named and that no row has.
    pub(super) absent: Vec<String>,
    /// Whether a line about repeats would say again what a column says.
    pub(super) shows_repeats: bool,
}

impl Table {
    /// Writes the rows at `places`; a column that is null in all of them is left out, and how often each happened is the last one, if any
    /// repeated.
    ///
    /// Errors: columns were named, and none of them is in any row, so that nothing would be left but a number.
    pub(super) fn write(&self, rows: &Rows, places: &[usize]) -> Result<Written, String> {
        let columns = match &self.columns {
            Some(columns) => Cow::Borrowed(columns.as_slice()),
            None => rows.columns().iter().map(|name| Column::same(name)).collect(),
        };
        let columns = if self.repeats { with_repeats(columns, rows.repeats()) } else { columns };
        let cells: Vec<Cell<'_>> = rows.cells(&columns, places);
        let is_shown = |at: &usize| cells.iter().skip(*at).step_by(columns.len()).any(|cell| !cell.is_null());
        let (shown, empty): (Vec<usize>, Vec<usize>) = (0..columns.len()).partition(is_shown);
        let is_absent = |column: &&Column| !column.from.iter().any(|from| rows.has(from));
        let empty = empty.iter().filter_map(|at| columns.get(*at)).filter(|_| self.columns.is_some());
        let absent: Vec<String> = empty.filter(is_absent).map(|column| column.name.clone()).collect();
        if shown.is_empty()
            && !places.is_empty()
            && self.columns.as_ref().is_some_and(|named| named.len() == absent.len())
        {
            return Err(format!("no row has a column `{}`", absent.join("`, `")));
        }
        if shown.is_empty() {
            let text = toon::encode_field(&self.key, &Value::from(places.len()));
            return Ok(Written { text, absent, shows_repeats: self.repeats });
        }
        let names = shown.iter().filter_map(|at| columns.get(*at)).map(|column| column.name.as_str());
        let names: Vec<&str> = names.collect();
        let mut text =
            String::with_capacity(self.header_length(&names) + cells.iter().map(Cell::length).sum::<usize>());
        toon::write_table(&mut text, &self.key, &names, places.len(), |out, row, column| {
            let at = shown.get(column).map(|column| row * columns.len() + column);
            if let Some(cell) = at.and_then(|at| cells.get(at)) {
                cell.write(out);
            }
        });
        Ok(Written { text, absent, shows_repeats: self.repeats || names.contains(&REPEATS) })
    }

    /// About how many bytes the header has, with the indentation of the rows.
    fn header_length(&self, names: &[&str]) -> usize {
        const BESIDE: usize = 64;
        self.key.len() + names.iter().map(|name| name.len() + 1).sum::<usize>() + BESIDE
    }
}

/// The columns, and one for `repeats` unless one shows it already; under a name that is free.
fn with_repeats<'c>(columns: Cow<'c, [Column]>, repeats: Option<String>) -> Cow<'c, [Column]> {
    let shows = |from: &Origin| matches!(from, Origin::Field(field) if repeats.as_deref() == Some(field));
    let Some(repeats) =
        repeats.as_deref().filter(|_| !columns.iter().flat_map(|column| &column.from).any(shows))
    else {
        return columns;
    };
    debug_assert!(repeats.starts_with(REPEATS), "it is named after what it counts");
    let name = super::free_key(repeats, |key| columns.iter().any(|column| column.name == key));
    let mut columns = columns.into_owned();
    columns.push(Column { name, from: vec![Origin::named(repeats)] });
    columns.into()
}

//! A table of rows. Each column shows the first of its fields that is not null in a row.
//!
//! Rows are written to one text directly, without template instructions and without a value per
//! cell. `rows|toon(key="..")` writes a table, and so does the `[output.table]` of a subscriber
//! ([`super::declared`]).

pub(super) mod clean_event;
pub(super) mod rows;

use std::borrow::Cow;

use serde_json::Value;

use super::draft::free_key;
use crate::notification::UNTRUSTED_SOURCE;

use self::{
    clean_event::{Cell, REPEATS},
    rows::Rows,
};

pub(super) use self::rows::Origin;

pub use self::rows::{Column, EVENT_COLUMNS};

/// A table as its author defines it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub(super) key: String,
    /// `None` for all columns of the rows.
    pub(super) columns: Option<Vec<Column>>,
    /// Whether the count of repeats is a column, if any row repeated.
    pub(super) repeats: bool,
}

/// The text of a table, or of one row as lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) text: String,
    /// The keys of its lines: the key of a table, or one for each line of a row.
    pub(super) keys: Vec<String>,
    /// Columns that the author named and no row has.
    pub(super) absent: Vec<String>,
    /// Whether a column or a line shows the repeats, so that no separate line is needed.
    pub(super) shows_repeats: bool,
}

/// The cells of some rows, by row.
struct Picked<'r> {
    cells: Vec<Cell<'r>>,
    /// The indexes of the columns that are not null in all of these rows.
    shown: Vec<usize>,
    /// The names of the named columns that no row has.
    absent: Vec<String>,
}

impl Table {
    /// A table under `key`, of `columns` or else of all columns of the rows, with the count of
    /// repeats. `columns` must not be empty, and their names must differ.
    pub fn new(key: impl Into<String>, columns: Option<Vec<Column>>) -> Self {
        Self { key: key.into(), columns, repeats: true }
    }

    /// The same table without the count of repeats.
    pub fn without_repeats(self) -> Self {
        Self { repeats: false, ..self }
    }

    /// Writes the rows at `places`. Columns that are null in all of them are omitted. The count of
    /// repeats is the last column, if any row repeated.
    ///
    /// Errors: columns were named and no row has any of them, so only a number would remain.
    pub(super) fn write(&self, rows: &Rows, places: &[usize]) -> Result<Written, String> {
        let columns = self.columns(rows);
        let columns = if self.repeats { with_repeats(columns, rows.repeats()) } else { columns };
        let columns = if rows.names_origins() { with_origins(columns) } else { columns };
        let Picked { cells, shown, absent } = self.pick(rows, &columns, places)?;
        if shown.is_empty() {
            return Ok(self.written(self.count(places.len()), absent, self.repeats));
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
        Ok(self.written(text, absent, self.repeats || names.contains(&REPEATS)))
    }

    /// Writes the first row as one line per column that is not null, without the count of repeats.
    ///
    /// Errors: those of [`Table::write`].
    pub(super) fn write_lines(&self, rows: &Rows) -> Result<Written, String> {
        let (columns, repeats) = (self.columns(rows), rows.repeats());
        let Picked { cells, shown, absent } = self.pick(rows, &columns, &[0])?;
        if shown.is_empty() {
            return Ok(self.written(self.count(1), absent, false));
        }
        let (mut text, mut keys) = (String::new(), Vec::with_capacity(shown.len()));
        let is_count = |from: &Origin| matches!(from, Origin::Field(name) if Some(name) == repeats.as_ref());
        let mut shows_repeats = false;
        for (column, cell) in shown.iter().filter_map(|at| Some((columns.get(*at)?, cells.get(*at)?))) {
            if !text.is_empty() {
                text.push('\n');
            }
            toon::write_key(&mut text, &column.name);
            text.push_str(": ");
            cell.write(&mut text);
            keys.push(column.name.clone());
            shows_repeats |= column.from.iter().any(is_count);
        }
        Ok(Written { text, keys, absent, shows_repeats })
    }

    /// The named columns; or all, without the count of repeats.
    fn columns(&self, rows: &Rows) -> Cow<'_, [Column]> {
        if let Some(columns) = &self.columns {
            return Cow::Borrowed(columns.as_slice());
        }
        let repeats = rows.repeats();
        let names = rows.columns().iter().filter(|name| Some(*name) != repeats.as_ref());
        let columns: Vec<Column> = names.map(|name| Column::same(name)).collect();
        with_free_name(columns).into()
    }

    /// Finds the cells of `columns` in the rows at `places`.
    fn pick<'r>(&self, rows: &'r Rows, columns: &[Column], places: &[usize]) -> Result<Picked<'r>, String> {
        let cells: Vec<Cell<'_>> = rows.cells(columns, places);
        let is_shown = |at: &usize| cells.iter().skip(*at).step_by(columns.len()).any(|cell| !cell.is_null());
        let (shown, empty): (Vec<usize>, Vec<usize>) = (0..columns.len()).partition(is_shown);
        let is_absent = |column: &&Column| !column.from.iter().any(|from| rows.has(from));
        let empty = empty.iter().filter_map(|at| columns.get(*at)).filter(|_| self.columns.is_some());
        let absent: Vec<String> = empty.filter(is_absent).map(|column| column.name.clone()).collect();
        let is_origin =
            |at: &usize| columns.get(*at).is_some_and(|column| column.from == [Origin::Untrusted]);
        if shown.iter().all(is_origin)
            && !places.is_empty()
            && self.columns.as_ref().is_some_and(|named| named.len() == absent.len())
        {
            return Err(format!("no row has a column `{}`", absent.join("`, `")));
        }
        Ok(Picked { cells, shown, absent })
    }

    /// The number of rows, if no column has a value.
    fn written(&self, text: String, absent: Vec<String>, shows_repeats: bool) -> Written {
        Written { text, keys: vec![self.key.clone()], absent, shows_repeats }
    }

    fn count(&self, rows: usize) -> String {
        toon::encode_field(&self.key, &Value::from(rows))
    }

    /// Approximate length of the header and the indentation of the rows, in bytes.
    fn header_length(&self, names: &[&str]) -> usize {
        const BESIDE: usize = 64;
        self.key.len() + names.iter().map(|name| name.len() + 1).sum::<usize>() + BESIDE
    }
}

/// The columns after one for the untrusted source of each row, which no other column can imitate. It
/// is the first, since fields that do not fit are removed from the end.
fn with_origins(columns: Cow<'_, [Column]>) -> Cow<'_, [Column]> {
    let mut columns = with_free_name(columns.into_owned());
    columns.insert(0, Column { name: UNTRUSTED_SOURCE.to_owned(), from: vec![Origin::Untrusted] });
    columns.into()
}

/// The columns, where none is named like the one for the untrusted source.
fn with_free_name(mut columns: Vec<Column>) -> Vec<Column> {
    if let Some(at) = columns.iter().position(|column| column.name == UNTRUSTED_SOURCE) {
        let name = free_key(UNTRUSTED_SOURCE, |key| columns.iter().any(|column| column.name == key));
        if let Some(column) = columns.get_mut(at) {
            column.name = name;
        }
    }
    columns
}

/// The columns, and one for `repeats` under a free name, unless one shows it already.
fn with_repeats<'c>(columns: Cow<'c, [Column]>, repeats: Option<String>) -> Cow<'c, [Column]> {
    let shows = |from: &Origin| matches!(from, Origin::Field(field) if repeats.as_deref() == Some(field));
    let Some(repeats) =
        repeats.as_deref().filter(|_| !columns.iter().flat_map(|column| &column.from).any(shows))
    else {
        return columns;
    };
    debug_assert!(repeats.starts_with(REPEATS), "it is named after what it counts");
    let name = free_key(repeats, |key| columns.iter().any(|column| column.name == key));
    let mut columns = columns.into_owned();
    columns.push(Column { name, from: vec![Origin::named(repeats)] });
    columns.into()
}

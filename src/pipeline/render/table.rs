//! A table of rows: its columns, and the fields of a row of which each column shows the first that
//! is not null.
//!
//! It goes from the rows to one text, without an instruction of a template and without a value for
//! each cell. `rows|toon(key="..")` writes one, and so does the `[output.table]` of a subscriber
//! ([`super::declared`]).

pub(super) mod clean_event;
mod column;
pub(super) mod event_view;
pub(super) mod rows;

use std::borrow::Cow;

use serde_json::Value;

use super::free_key::free_key;
use crate::toon;

use self::{
    clean_event::{Cell, REPEATS},
    rows::Rows,
};

pub(super) use self::column::Origin;

pub use self::column::Column;

/// A table as its author asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub(super) key: String,
    /// All columns of the rows when there are none.
    pub(super) columns: Option<Vec<Column>>,
    /// Whether a column says how often each row happened, if any repeated.
    pub(super) repeats: bool,
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

/// One row as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) text: String,
    /// The keys of its lines.
    pub(super) keys: Vec<String>,
    /// Columns that the author named and that the row does not have.
    pub(super) absent: Vec<String>,
    /// Whether one of its lines says how often it happened.
    pub(super) shows_repeats: bool,
}

/// The cells of some rows, row by row.
struct Picked<'r> {
    cells: Vec<Cell<'r>>,
    /// The places of the columns that are not null in all of them.
    shown: Vec<usize>,
    /// The names of those that were named and that no row has.
    absent: Vec<String>,
}

impl Table {
    /// A table under `key`; of all columns of the rows without `columns`, which are not empty and
    /// have different names.
    pub fn new(key: impl Into<String>, columns: Option<Vec<Column>>, repeats: bool) -> Self {
        Self { key: key.into(), columns, repeats }
    }

    /// Writes the rows at `places`; a column that is null in all of them is left out, and how often
    /// each happened is the last one, if any repeated.
    ///
    /// Errors: columns were named, and none of them is in any row, so that nothing would be left
    /// but a number.
    pub(super) fn write(&self, rows: &Rows, places: &[usize]) -> Result<Written, String> {
        let columns = self.columns(rows);
        let columns = if self.repeats { with_repeats(columns, rows.repeats()) } else { columns };
        let Picked { cells, shown, absent } = self.pick(rows, &columns, places)?;
        if shown.is_empty() {
            return Ok(Written { text: self.count(places.len()), absent, shows_repeats: self.repeats });
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

    /// Writes the first row as a line for each column that is not null; how often it happened is
    /// left to a count at the end.
    ///
    /// Errors: those of [`Table::write`].
    pub(super) fn write_lines(&self, rows: &Rows) -> Result<Lines, String> {
        let (columns, repeats) = (self.columns(rows), rows.repeats());
        let Picked { cells, shown, absent } = self.pick(rows, &columns, &[0])?;
        if shown.is_empty() {
            return Ok(Lines {
                text: self.count(1),
                keys: vec![self.key.clone()],
                absent,
                shows_repeats: false,
            });
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
        Ok(Lines { text, keys, absent, shows_repeats })
    }

    /// The columns that are asked for; how often each row happened is none of them unless it is
    /// named.
    fn columns(&self, rows: &Rows) -> Cow<'_, [Column]> {
        if let Some(columns) = &self.columns {
            return Cow::Borrowed(columns.as_slice());
        }
        let repeats = rows.repeats();
        let names = rows.columns().iter().filter(|name| Some(*name) != repeats.as_ref());
        names.map(|name| Column::same(name)).collect()
    }

    /// Finds the cells of `columns` in the rows at `places`.
    fn pick<'r>(&self, rows: &'r Rows, columns: &[Column], places: &[usize]) -> Result<Picked<'r>, String> {
        let cells: Vec<Cell<'_>> = rows.cells(columns, places);
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
        Ok(Picked { cells, shown, absent })
    }

    /// What is left to say when no column has anything to show.
    fn count(&self, rows: usize) -> String {
        toon::encode_field(&self.key, &Value::from(rows))
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
    let name = free_key(repeats, |key| columns.iter().any(|column| column.name == key));
    let mut columns = columns.into_owned();
    columns.push(Column { name, from: vec![Origin::named(repeats)] });
    columns.into()
}

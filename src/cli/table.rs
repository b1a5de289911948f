//! Aligned text for users: a table, or one line per key of any JSON.

use std::borrow::Cow;

use serde_json::Value;

use super::terminal::{Terminal, Tone, cut, cut_beginning, one_line, width};

/// Separator of two columns.
const GAP: &str = "  ";
/// Least width of the last column, which is cut before the others.
const LAST_WIDTH_MIN: usize = 16;
/// Least width of every other column.
const WIDTH_MIN: usize = 6;

/// One line per key, with aligned values. Nested objects have dotted names: `events.total`.
pub(super) fn pairs(value: &Value, terminal: &Terminal) -> String {
    let mut fields = Vec::new();
    flatten("", value, &mut fields);
    let names = fields.iter().map(|(name, _)| width(name)).max().unwrap_or(0);
    let indent = names + GAP.len();
    let line = |(name, value): &(String, String)| {
        let line = format!("{name:names$}{GAP}{}", terminal.wrap(value, indent, indent));
        line.trim_end().to_owned() + "\n"
    };
    fields.iter().map(line).collect()
}

fn flatten(prefix: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    let text = match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, value) in object {
                let key = one_line(key);
                let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
                flatten(&name, value, fields);
            }
            return;
        }
        Value::Null => "-".to_owned(),
        Value::String(text) => one_line(text),
        Value::Object(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_) => {
            one_line(&value.to_string())
        }
    };
    fields.push((prefix.to_owned(), text));
}

/// One cell of a table: a line of clean text, and its meaning.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
    /// Whether it is cut at its start, because its end matters more.
    is_path: bool,
}

impl Cell {
    pub(super) fn plain(text: &str) -> Self {
        Self::toned(Tone::Plain, text)
    }

    /// Secondary text.
    pub(super) fn dim(text: &str) -> Self {
        Self::toned(Tone::Dim, text)
    }

    /// A severity, a priority or a state, in its own colour.
    pub(super) fn word(word: &str) -> Self {
        Self::toned(Tone::of(word), word)
    }

    pub(super) fn toned(tone: Tone, text: &str) -> Self {
        Self { text: one_line(text), tone, is_path: false }
    }

    /// A folder, which is cut at its start.
    pub(super) fn path(path: &str) -> Self {
        Self { is_path: true, ..Self::plain(path) }
    }

    fn cut(&self, columns: usize) -> Cow<'_, str> {
        if self.is_path { cut_beginning(&self.text, columns) } else { cut(&self.text, columns) }
    }
}

/// A header and rows of cells.
///
/// Shape: as wide as its cells on a pipe. On a terminal at most its width: first the last column is
/// cut, then the widest ones.
pub(super) struct Table {
    headers: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new<const N: usize>(headers: [&'static str; N]) -> Self {
        Self { headers: headers.to_vec(), rows: Vec::new() }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.headers.len(), "a cell for each header");
        self.rows.push(cells.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn text(&self, terminal: &Terminal) -> String {
        let header: Vec<Cell> =
            self.headers.iter().map(|header| Cell::toned(Tone::Heading, header)).collect();
        let lines: Vec<&Vec<Cell>> = std::iter::once(&header).chain(&self.rows).collect();
        let widest = |index: usize| {
            lines.iter().filter_map(|line| line.get(index)).map(|cell| width(&cell.text)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.headers.len()).map(widest).collect();
        let widths = terminal.columns.map_or(widths.clone(), |columns| fit(widths, columns));
        lines.iter().map(|line| aligned(line, &widths, terminal)).collect()
    }
}

/// Widths that fit into `columns`, as far as every column keeps its least width.
fn fit(mut widths: Vec<usize>, columns: usize) -> Vec<usize> {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(columns);
    if let Some(last) = widths.last_mut() {
        let spare = last.saturating_sub(LAST_WIDTH_MIN).min(excess);
        *last -= spare;
        excess -= spare;
    }
    while excess > 0 {
        let Some(widest) = widths.iter_mut().filter(|width| **width > WIDTH_MIN).max() else { break };
        *widest -= 1;
        excess -= 1;
    }
    widths
}

/// One row of cells, without trailing blanks.
fn aligned(cells: &[Cell], widths: &[usize], terminal: &Terminal) -> String {
    let (mut line, mut blanks) = (String::new(), 0);
    for (cell, columns) in cells.iter().zip(widths) {
        let shown = cell.cut(*columns);
        if !shown.is_empty() {
            line.extend(std::iter::repeat_n(' ', blanks));
            line.push_str(&terminal.paint(cell.tone, &shown));
            blanks = 0;
        }
        blanks += columns.saturating_sub(width(&shown)) + GAP.len();
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::terminal::tests::{of_width, pipe};

    #[test]
    fn an_object_is_one_aligned_line_a_key() {
        let status = json!({ "version": "0.1.0", "events": { "total": 12, "duplicate": 0 }, "tcp": null, "sinks": [],
            "note": "a\n\u{1b}[31mb" });
        assert_eq!(
            pairs(&status, &pipe()),
            "version           0.1.0\nevents.total      12\nevents.duplicate  0\ntcp               -\n\
             sinks             []\nnote              a b\n"
        );
    }

    fn sessions() -> Table {
        let mut table = Table::new(["NAME", "FOLDER", "STATE", "LAST"]);
        table.row([
            Cell::dim("b1c2@shop"),
            Cell::path("~/work/customers/shop"),
            Cell::word("idle"),
            Cell::plain("tool_fail: grep;\u{1b}[31m\nerror: took 30 s"),
        ]);
        table.row([Cell::dim("\u{8a9e}"), Cell::path("/w"), Cell::word(""), Cell::plain("")]);
        table
    }

    #[test]
    fn piped_table_is_uncut_without_trailing_blanks() {
        let expected = "\
NAME       FOLDER                 STATE  LAST
b1c2@shop  ~/work/customers/shop  idle   tool_fail: grep; error: took 30 s
\u{8a9e}         /w
";
        assert_eq!(sessions().text(&pipe()), expected);
        assert_eq!(sessions().text(&of_width(80)), expected);
    }

    #[test]
    fn narrow_terminal_cuts_the_last_column_first() {
        let expected = "\
NAME       FOLDER                 STATE  LAST
b1c2@shop  ~/work/customers/shop  idle   tool_fail: grep; er\u{2026}
\u{8a9e}         /w
";
        assert_eq!(sessions().text(&of_width(61)), expected);
        let expected = "\
NAME       FOLDER          STATE  LAST
b1c2@shop  \u{2026}ustomers/shop  idle   tool_fail: gr\u{2026}
\u{8a9e}         /w
";
        assert_eq!(sessions().text(&of_width(48)), expected);
    }

    #[test]
    fn column_widths_shrink_to_a_readable_minimum() {
        for (widths, columns, fitted) in [
            (vec![9, 21, 40], 80, vec![9, 21, 40]),
            (vec![9, 21, 40], 60, vec![9, 21, 26]),
            (vec![9, 21, 40], 40, vec![9, 14, 13]),
            (vec![9, 21, 40], 10, vec![6, 6, 6]),
            (vec![9, 3, 2], 5, vec![6, 3, 2]),
        ] {
            assert_eq!(fit(widths, columns), fitted, "{columns}");
        }
    }

    #[test]
    fn colours_change_no_width() {
        let plain = sessions().text(&of_width(50));
        let coloured = sessions().text(&Terminal { has_colours: true, ..of_width(50) });
        assert_ne!(coloured, plain);
        let codes = ["\u{1b}[1m", "\u{1b}[2m", "\u{1b}[0m"];
        assert_eq!(codes.iter().fold(coloured, |text, code| text.replace(code, "")), plain);
    }
}

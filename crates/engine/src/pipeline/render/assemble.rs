//! Converts a template's output into TOON: finds the cells of each line and encodes each as a
//! whole.
//!
//! A cell is the text after `key: `, a part between commas in a table row or an inline list, or the
//! text after `- `. A cell with a single printed value keeps its type. Any other cell becomes one
//! string, quoted if TOON requires it; an author's quotes around a whole cell force a string and
//! are not part of it. The template's white space around a cell is removed, and so are blank lines.
//! Only the template's headers and indentation decide which lines are rows, items or fields.

pub(super) mod placeholders;

use serde_json::Value;

use super::{ROWS_MAX, draft::Body, table::clean_event::REPEATS};

use self::placeholders::{Line, Piece, Placeholder, Placeholders, Symbol};

/// Why a template's output is not a document.
#[derive(Debug)]
pub(super) enum Misfit {
    /// It exceeds the limit on printed text.
    TooMuch,
    /// It has only blank lines.
    Nothing,
    /// It breaks a rule.
    Wrong {
        /// The index, from 0, of the faulty line among its non-blank lines, if known.
        line: Option<usize>,
        message: String,
    },
}

/// Converts a template's output into a strict document.
pub(super) fn document(output: &str, placeholders: &Placeholders) -> Result<Body, Misfit> {
    if placeholders.is_too_much(output) {
        return Err(Misfit::TooMuch);
    }
    let lines: Vec<Line<'_>> = output
        .split('\n')
        .map(|text| Line::new(text, placeholders))
        .filter(|line| !line.is_blank())
        .collect();
    match lines.as_slice() {
        [] => return Err(Misfit::Nothing),
        [only] => {
            if let Some((text, Some(key))) = only.block() {
                let (text, keys) = (text.to_owned(), vec![key.to_owned()]);
                return Ok(Body::Written { text, keys, shows_repeats: true });
            }
        }
        _ => {}
    }
    let mut pass = Pass {
        out: String::with_capacity(output.len() * 2),
        starts: Vec::with_capacity(lines.len()),
        open: Vec::new(),
        is_only_line: lines.len() == 1,
        has_comments: false,
    };
    for (index, line) in lines.iter().enumerate() {
        pass.line(line, lines.get(index + 1)).map_err(|message| Misfit::Wrong {
            line: Some(index),
            message: format!("line {} of its output: {message}", index + 1),
        })?;
    }
    if let Some(body) = canonical(&pass.out) {
        return Ok(body);
    }
    let value = toon::decode(&pass.out).map_err(|error| {
        let line = error.line.and_then(|line| pass.written_by(line));
        let place = line.map_or_else(String::new, |line| format!("line {} of ", line + 1));
        Misfit::Wrong { line, message: format!("{place}its output is not TOON: {error}") }
    })?;
    Ok(Body::Decoded { value, comments: pass.has_comments.then_some(pass.out) })
}

/// The line of a template that wrote the line `wanted` of an output with placeholders at the
/// beginnings of lines.
pub(super) fn template_line(output: &str, placeholders: &Placeholders, wanted: usize) -> Option<usize> {
    let (mut seen, mut known) = (0, None);
    for text in output.split('\n') {
        let mut first = None;
        for piece in placeholders.split(text) {
            if let Piece::Placeholder(Placeholder::Line(line)) = piece {
                first = first.or(Some(*line));
                known = Some(*line);
            }
        }
        if !Line::new(text, placeholders).is_blank() {
            if seen == wanted {
                return first.or(known);
            }
            seen += 1;
        }
    }
    known
}

/// The body of a canonical text; `None` for a text that needs decoding.
fn canonical(text: &str) -> Option<Body> {
    let fields = toon::flat_fields(text)?;
    if fields.iter().any(|field| field.rows > ROWS_MAX) {
        return None;
    }
    Some(Body::Written {
        text: text.to_owned(),
        keys: fields.iter().map(|field| field.key.to_owned()).collect(),
        shows_repeats: fields.iter().any(|field| field.names(REPEATS)),
    })
}

/// A header that rows or items may follow.
struct Open {
    indent: usize,
    rows: Rows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Rows of cells.
    Table,
    /// Rows of a key and cells.
    KeyedTable,
    /// Items that begin with a hyphen.
    List,
}

struct Pass {
    out: String,
    /// The start of each line of the template's output in `out`.
    starts: Vec<usize>,
    open: Vec<Open>,
    is_only_line: bool,
    has_comments: bool,
}

impl Pass {
    /// The line of the template's output that wrote line `number`, from 1, of `out`.
    fn written_by(&self, number: usize) -> Option<usize> {
        let breaks = || self.out.match_indices('\n').map(|(at, _)| at + 1);
        let at = number.checked_sub(2).and_then(|before| breaks().nth(before)).unwrap_or(0);
        self.starts.partition_point(|start| *start <= at).checked_sub(1)
    }

    /// Writes `line`, which `next` follows.
    fn line(&mut self, line: &Line<'_>, next: Option<&Line<'_>>) -> Result<(), String> {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.starts.push(self.out.len());
        if let [Symbol::Char('\t'), ..] = line.symbols.as_slice() {
            return Err("a tab cannot indent a line; TOON takes spaces".into());
        }
        if let Some((text, _)) = line.block() {
            self.block(text, line.indent);
            return Ok(());
        }
        if line.symbols.iter().any(|symbol| matches!(symbol, Symbol::Placeholder(Placeholder::Block(..)))) {
            return Err(
                "what `toon` wrote needs a line of its own; give the key as `toon(key=\"name\")`".into()
            );
        }
        self.out.extend(std::iter::repeat_n(' ', line.indent));
        let symbols = line.symbols.as_slice();
        let is_parent = next.is_some_and(|next| next.indent > line.indent);
        let symbols = if is_parent { placeholders::trim(symbols) } else { symbols };
        if let [Symbol::Char('#'), ..] = symbols {
            self.comment(symbols);
            return Ok(());
        }
        while self.open.last().is_some_and(|open| line.indent <= open.indent) {
            self.open.pop();
        }
        match self.open.last().map(|open| open.rows) {
            Some(Rows::Table) => self.cells(symbols),
            Some(Rows::KeyedTable) => self.keyed_row(symbols),
            Some(Rows::List) => match symbols {
                [Symbol::Char('-')] => {
                    self.out.push('-');
                    Ok(())
                }
                [Symbol::Char('-'), Symbol::Char(' '), item @ ..] => {
                    self.item(placeholders::trim(item), line.indent)
                }
                _ => self.field(symbols, line.indent),
            },
            None if matches!(symbols, [Symbol::Char('-'), Symbol::Char(' '), ..]) => {
                Err("a list item needs a line such as `name[2]:` above it".into())
            }
            None => self.field(symbols, line.indent),
        }
    }

    fn block(&mut self, text: &str, indent: usize) {
        for (index, line) in text.lines().enumerate() {
            if index > 0 {
                self.out.push('\n');
            }
            self.out.extend(std::iter::repeat_n(' ', indent));
            self.out.push_str(line);
        }
    }

    fn comment(&mut self, symbols: &[Symbol<'_>]) {
        self.has_comments = true;
        let text = placeholders::text(symbols).replace(char::is_control, " ");
        self.out.push_str(&toon::escape_control_tokens(&text));
    }

    fn item(&mut self, item: &[Symbol<'_>], indent: usize) -> Result<(), String> {
        self.out.push_str("- ");
        let inner = indent + toon::INDENT;
        match placeholders::separator(item) {
            Some(at) => self.key_and_rest(item, at, inner),
            None => self.cell(item),
        }
    }

    fn field(&mut self, symbols: &[Symbol<'_>], indent: usize) -> Result<(), String> {
        match placeholders::separator(symbols).or_else(|| placeholders::tight_separator(symbols)) {
            Some(at) => self.key_and_rest(symbols, at, indent),
            None => self.only_cell(symbols),
        }
    }

    /// Encodes a line without a key, which is valid only as the whole document.
    fn only_cell(&mut self, symbols: &[Symbol<'_>]) -> Result<(), String> {
        if self.is_only_line {
            self.cell(symbols)
        } else {
            Err("a line needs a `key: ` at its beginning".into())
        }
    }

    fn key_and_rest(&mut self, symbols: &[Symbol<'_>], at: usize, indent: usize) -> Result<(), String> {
        let (key, rest) = symbols.split_at(at);
        let rest = rest.get(1..).expect("a colon is at `at`");
        let is_spaced = !rest.is_empty();
        let rest = placeholders::trim(rest);
        if let Some(header) = placeholders::Header::parse(key) {
            return self.header(&header, rest, indent);
        }
        self.key(key)?;
        self.out.push(':');
        match rest {
            [] if is_spaced => self.out.push_str(" \"\""),
            [] => {}
            [Symbol::Char('['), Symbol::Char(']')] => self.out.push_str(" []"),
            rest => {
                self.out.push(' ');
                self.cell(rest)?;
            }
        }
        Ok(())
    }

    fn header(
        &mut self,
        header: &placeholders::Header<'_, '_>,
        rest: &[Symbol<'_>],
        indent: usize,
    ) -> Result<(), String> {
        if !header.key.is_empty() {
            self.key(header.key)?;
        }
        let length =
            header.length().ok_or("the length of a list is a whole number, such as `[{{ rows|length }}]`")?;
        self.out.push_str(&format!("[{length}{}]", if header.is_keyed { ":" } else { "" }));
        if let Some(columns) = header.columns {
            self.out.push('{');
            self.columns(columns)?;
            self.out.push('}');
        }
        self.out.push(':');
        let rows = match (header.columns, header.is_keyed) {
            (Some(_), true) => Rows::KeyedTable,
            (Some(_), false) => Rows::Table,
            (None, _) => Rows::List,
        };
        if rest.is_empty() {
            self.open.push(Open { indent, rows });
            return Ok(());
        }
        self.out.push(' ');
        self.cells(rest)
    }

    fn columns(&mut self, columns: &[Symbol<'_>]) -> Result<(), String> {
        for (index, column) in placeholders::columns(columns).into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            match placeholders::group(column) {
                Some((name, group)) => {
                    self.key(name)?;
                    self.out.push('{');
                    self.columns(group)?;
                    self.out.push('}');
                }
                None => self.key(column)?,
            }
        }
        Ok(())
    }

    fn keyed_row(&mut self, symbols: &[Symbol<'_>]) -> Result<(), String> {
        let at = placeholders::separator(symbols).ok_or("a row of a keyed table begins with `key: `")?;
        let (key, rest) = symbols.split_at(at);
        self.key(key)?;
        self.out.push_str(": ");
        self.cells(rest.get(1..).expect("a colon is at `at`"))
    }

    fn key(&mut self, key: &[Symbol<'_>]) -> Result<(), String> {
        match placeholders::trim(key) {
            [] => Err("a line needs a `key: ` at its beginning".into()),
            [Symbol::Placeholder(Placeholder::Key(key))] => {
                self.out.push_str(key);
                Ok(())
            }
            key => {
                let text = placeholders::quoted_text(key).unwrap_or_else(|| placeholders::text(key));
                toon::write_key(&mut self.out, &text);
                Ok(())
            }
        }
    }

    fn cells(&mut self, symbols: &[Symbol<'_>]) -> Result<(), String> {
        for (index, cell) in placeholders::cells(symbols).into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            match placeholders::trim(cell) {
                [Symbol::Placeholder(Placeholder::Cells(cells))] => self.out.push_str(cells),
                cell => self.cell(cell)?,
            }
        }
        Ok(())
    }

    fn cell(&mut self, cell: &[Symbol<'_>]) -> Result<(), String> {
        if cell.iter().any(|symbol| matches!(symbol, Symbol::Placeholder(Placeholder::Cells(_)))) {
            return Err("what `toon_row` wrote goes between the commas of a row".into());
        }
        if let [Symbol::Placeholder(Placeholder::Scalar(value))] = cell {
            toon::write_scalar(&mut self.out, value);
            return Ok(());
        }
        if let Some(text) = placeholders::quoted_text(cell) {
            toon::write_text(&mut self.out, &text);
            return Ok(());
        }
        let text = placeholders::text(cell);
        let is_literal = cell.iter().all(|symbol| matches!(symbol, Symbol::Char(_)));
        match is_literal.then(|| serde_json::from_str(&text)) {
            Some(Ok(literal @ (Value::Null | Value::Bool(_) | Value::Number(_)))) => {
                toon::write_scalar(&mut self.out, &literal);
            }
            _ => toon::write_text(&mut self.out, &text),
        }
        Ok(())
    }
}

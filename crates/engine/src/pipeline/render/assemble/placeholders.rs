//! The printed values of a template, separate from its text, and the lines that consist of both.
//!
//! A printed value goes into [`Placeholders`], and only its index goes into the output, between two
//! control characters. The output never contains the text of a value, so a value cannot be taken
//! for structure. A payload cannot contain a placeholder, because control characters are stripped
//! from it. A template that forges one only repeats a value it has printed.
//!
//! A line is a list of symbols: characters of the template, and placeholders. The search for
//! structure reads characters only, so a value cannot be mistaken for structure.

use serde_json::Value;

use crate::pipeline::render::OUTPUT_BYTES_MAX;

/// Most bytes printed by one run of a template; above the limit of a notification, because omitted
/// rows are printed too.
const PRINTED_BYTES_MAX: usize = 4 * OUTPUT_BYTES_MAX;

/// Begins a placeholder in rendered text.
pub(in crate::pipeline::render) const OPEN: char = '\u{2}';
/// Ends a placeholder in rendered text.
const CLOSE: char = '\u{3}';

#[derive(Debug)]
pub(in crate::pipeline::render) enum Placeholder {
    /// A null, boolean, number or string, encoded in place.
    Scalar(Value),
    /// A key, already encoded.
    Key(String),
    /// The cells of a row, already encoded.
    Cells(String),
    /// Whole encoded lines; with its key if it is a single table that needs no check.
    Block(String, Option<String>),
    /// The following text is on this line of the template.
    Line(usize),
    /// An absent value that prints nothing.
    Nothing,
}

impl Placeholder {
    /// The bare text of the value, for a cell that also has other text.
    pub(in crate::pipeline::render) fn text(&self) -> String {
        match self {
            Self::Scalar(Value::String(text))
            | Self::Key(text)
            | Self::Cells(text)
            | Self::Block(text, _) => text.clone(),
            Self::Line(_) | Self::Nothing => String::new(),
            Self::Scalar(value) => {
                let mut out = String::new();
                toon::write_scalar(&mut out, value);
                out
            }
        }
    }
}

impl Placeholder {
    /// The approximate length of [`Placeholder::text`], in bytes.
    fn length(&self) -> usize {
        /// No number is longer, except those written in full.
        const OF_SCALAR: usize = 24;
        match self {
            Self::Scalar(Value::String(text))
            | Self::Key(text)
            | Self::Cells(text)
            | Self::Block(text, _) => text.len(),
            Self::Scalar(_) => OF_SCALAR,
            Self::Line(_) | Self::Nothing => 0,
        }
    }
}

/// All printed values of one render.
#[derive(Debug, Default)]
pub(in crate::pipeline::render) struct Placeholders {
    all: Vec<Placeholder>,
    bytes: usize,
    /// The length of the longest placeholder.
    longest: usize,
    /// Number of events of the rows omitted by a filter.
    pub(in crate::pipeline::render) left_out: u64,
    /// Columns that an author named and no row has.
    pub(in crate::pipeline::render) absent: Vec<String>,
}

/// More than [`PRINTED_BYTES_MAX`] was printed.
#[derive(Debug)]
pub(in crate::pipeline::render) struct TooMuch;

impl Placeholders {
    /// Stores `placeholder` and returns its text in the output.
    pub(in crate::pipeline::render) fn push(&mut self, placeholder: Placeholder) -> Result<String, TooMuch> {
        let length = placeholder.length();
        self.count(length)?;
        self.longest = self.longest.max(length);
        let number = self.all.len().to_string();
        self.all.push(placeholder);
        let mut text = String::with_capacity(number.len() + 2);
        text.push(OPEN);
        text.push_str(&number);
        text.push(CLOSE);
        Ok(text)
    }

    /// Counts a printed value of so many bytes.
    pub(in crate::pipeline::render) fn count(&mut self, bytes: usize) -> Result<(), TooMuch> {
        self.bytes += 1 + bytes;
        if self.bytes > PRINTED_BYTES_MAX { Err(TooMuch) } else { Ok(()) }
    }

    /// Whether there is none in the output.
    pub(in crate::pipeline::render) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Splits text into its own parts and the placeholders between them; an invalid placeholder is
    /// dropped.
    pub(in crate::pipeline::render) fn split<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Piece<'a>> {
        let (before, rest) =
            text.split_once(OPEN).map_or((text, None), |(before, rest)| (before, Some(rest)));
        let after_open = rest.into_iter().flat_map(|rest| rest.split(OPEN)).flat_map(|part| {
            let (index, after) = part.split_once(CLOSE).unwrap_or((part, ""));
            let placeholder =
                index.parse().ok().and_then(|index: usize| self.all.get(index)).map(Piece::Placeholder);
            placeholder.into_iter().chain(std::iter::once(Piece::Text(after)))
        });
        std::iter::once(Piece::Text(before)).chain(after_open)
    }

    /// Whether `text` exceeds the limit once its placeholders are replaced; one may occur
    /// repeatedly.
    pub(in crate::pipeline::render) fn is_too_much(&self, text: &str) -> bool {
        let count = text.matches(OPEN).count();
        if text.len() + count * self.longest <= PRINTED_BYTES_MAX {
            return false;
        }
        let lengths = self.split(text).map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Placeholder(placeholder) => placeholder.length(),
        });
        lengths.sum::<usize>() > PRINTED_BYTES_MAX
    }

    /// Returns the text with its placeholders replaced by their values.
    ///
    /// Errors: the result exceeds the limit.
    pub(in crate::pipeline::render) fn expand(&self, text: &str) -> Result<String, TooMuch> {
        if self.is_too_much(text) {
            return Err(TooMuch);
        }
        Ok(self.expanded(text))
    }

    fn expanded(&self, text: &str) -> String {
        self.split(text)
            .map(|piece| match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Placeholder(placeholder) => placeholder.text(),
            })
            .collect()
    }
}

/// A part of a rendered line.
#[derive(Debug, Clone, Copy)]
pub(in crate::pipeline::render) enum Piece<'a> {
    /// The template's own text.
    Text(&'a str),
    /// A printed value.
    Placeholder(&'a Placeholder),
}

/// A character of the template's own text, or a printed value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Symbol<'a> {
    Char(char),
    Placeholder(&'a Placeholder),
}

/// A line without its indentation and trailing white space. One space after a final colon stays: it
/// distinguishes an empty text from an object.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// Number of spaces before the first symbol.
    pub(super) indent: usize,
    pub(super) symbols: Vec<Symbol<'a>>,
}

impl<'a> Line<'a> {
    pub(super) fn new(text: &'a str, placeholders: &'a Placeholders) -> Self {
        let mut symbols: Vec<Symbol<'a>> = Vec::with_capacity(text.len());
        let mut has_nothing = false;
        for piece in placeholders.split(text.strip_suffix('\r').unwrap_or(text)) {
            match piece {
                Piece::Text(text) => symbols.extend(text.chars().map(Symbol::Char)),
                Piece::Placeholder(Placeholder::Line(_)) => {}
                Piece::Placeholder(placeholder) => {
                    has_nothing |= matches!(placeholder, Placeholder::Nothing);
                    symbols.push(Symbol::Placeholder(placeholder));
                }
            }
        }
        if has_nothing {
            symbols = without_nothing(symbols);
        }
        let indent = symbols.iter().take_while(|symbol| matches!(symbol, Symbol::Char(' '))).count();
        let end = symbols.iter().rposition(|symbol| !is_space(symbol)).map_or(0, |last| last + 1);
        let is_spaced_key =
            end > indent && matches!(symbols.get(end - 1), Some(Symbol::Char(':'))) && end < symbols.len();
        symbols.truncate(if is_spaced_key { end + 1 } else { end });
        symbols.drain(..indent.min(symbols.len()));
        Self { indent, symbols }
    }

    pub(super) fn is_blank(&self) -> bool {
        self.symbols.iter().all(is_space)
    }

    /// Its lines, if it is only the output of a filter; with the key if that is a single table.
    pub(super) fn block(&self) -> Option<(&'a str, Option<&'a str>)> {
        match self.symbols.as_slice() {
            [Symbol::Placeholder(Placeholder::Block(text, key))] => Some((text, key.as_deref())),
            _ => None,
        }
    }
}

/// Removes values that print nothing, each with one adjacent space. Returns an empty line if its
/// key then has no value.
fn without_nothing(symbols: Vec<Symbol<'_>>) -> Vec<Symbol<'_>> {
    let mut kept: Vec<Symbol<'_>> = Vec::with_capacity(symbols.len());
    let mut was_nothing = false;
    for symbol in symbols {
        let is_double_space = was_nothing && is_space(&symbol) && kept.last().is_some_and(is_space);
        was_nothing = matches!(symbol, Symbol::Placeholder(Placeholder::Nothing)) || is_double_space;
        if !was_nothing {
            kept.push(symbol);
        }
    }
    let value = separator(&kept).and_then(|at| kept.get(at + 1..));
    if value.is_some_and(|value| value.iter().all(is_space)) { Vec::new() } else { kept }
}

fn is_space(symbol: &Symbol<'_>) -> bool {
    matches!(symbol, Symbol::Char(' ' | '\t' | '\r'))
}

/// Removes the template's white space at both ends.
pub(super) fn trim<'s, 'a>(symbols: &'s [Symbol<'a>]) -> &'s [Symbol<'a>] {
    let Some(start) = symbols.iter().position(|symbol| !is_space(symbol)) else { return &[] };
    let end = symbols.iter().rposition(|symbol| !is_space(symbol)).map_or(start, |last| last + 1);
    symbols.get(start..end).expect("from the first such symbol to the last")
}

/// The characters, and the text of the printed values.
pub(super) fn text(symbols: &[Symbol<'_>]) -> String {
    let mut text = String::new();
    for symbol in symbols {
        match symbol {
            Symbol::Char(c) => text.push(*c),
            Symbol::Placeholder(placeholder) => text.push_str(&placeholder.text()),
        }
    }
    text
}

/// The position of the colon that ends the key: the first one outside quotes that a space or the
/// end follows.
pub(super) fn separator(symbols: &[Symbol<'_>]) -> Option<usize> {
    let ends_key = |at: &usize| {
        let next = symbols.get(at + 1);
        next.is_none_or(is_space)
    };
    colons(symbols).find(ends_key)
}

/// The position of the first colon outside quotes and brackets, for lines without a separator.
pub(super) fn tight_separator(symbols: &[Symbol<'_>]) -> Option<usize> {
    let is_outside = |at: &usize| {
        let before = symbols.get(..*at).expect("the position of a colon");
        let count = |wanted: char| {
            before.iter().filter(|symbol| matches!(symbol, Symbol::Char(c) if *c == wanted)).count()
        };
        count('[') == count(']') && count('{') == count('}')
    };
    colons(symbols).find(is_outside)
}

fn colons(symbols: &[Symbol<'_>]) -> impl Iterator<Item = usize> {
    let start = quoted_length(symbols).unwrap_or(0);
    symbols
        .iter()
        .enumerate()
        .skip(start)
        .filter(|(_, symbol)| matches!(symbol, Symbol::Char(':')))
        .map(|(at, _)| at)
}

/// The number of symbols of a quoted text at the beginning, with its quotes.
fn quoted_length(symbols: &[Symbol<'_>]) -> Option<usize> {
    let (Symbol::Char('"'), rest) = symbols.split_first()? else { return None };
    let mut is_escaped = false;
    for (at, symbol) in rest.iter().enumerate() {
        match symbol {
            _ if is_escaped => is_escaped = false,
            Symbol::Char('\\') => is_escaped = true,
            Symbol::Char('"') => return Some(at + 2),
            Symbol::Char(_) | Symbol::Placeholder(_) => {}
        }
    }
    None
}

/// The text between quotes that enclose all of `symbols`, with the escapes of the template's own
/// text resolved.
pub(super) fn quoted_text(symbols: &[Symbol<'_>]) -> Option<String> {
    if quoted_length(symbols)? != symbols.len() {
        return None;
    }
    let mut inner = symbols.get(1..symbols.len() - 1)?.iter();
    let mut text = String::new();
    while let Some(symbol) = inner.next() {
        match symbol {
            Symbol::Placeholder(placeholder) => text.push_str(&placeholder.text()),
            Symbol::Char('\\') => match inner.next()? {
                Symbol::Char('n') => text.push('\n'),
                Symbol::Char('r') => text.push('\r'),
                Symbol::Char('t') => text.push('\t'),
                Symbol::Char('u') => text.push(code_point(&mut inner)?),
                Symbol::Char(c @ ('"' | '\\')) => text.push(*c),
                Symbol::Char(_) | Symbol::Placeholder(_) => return None,
            },
            Symbol::Char(c) => text.push(*c),
        }
    }
    Some(text)
}

fn code_point(inner: &mut std::slice::Iter<'_, Symbol<'_>>) -> Option<char> {
    let mut code = 0;
    for _ in 0..4 {
        let Some(Symbol::Char(digit)) = inner.next() else { return None };
        code = code * 16 + digit.to_digit(16)?;
    }
    char::from_u32(code)
}

/// The parts between the template's commas; commas inside a quoted cell do not separate.
pub(super) fn cells<'s, 'a>(symbols: &'s [Symbol<'a>]) -> Vec<&'s [Symbol<'a>]> {
    let mut cells = Vec::new();
    let mut rest = symbols;
    loop {
        let blank = rest.iter().take_while(|symbol| is_space(symbol)).count();
        let after_blank = rest.get(blank..).expect("the end of spaces");
        let quoted = quoted_length(after_blank).map(|length| blank + length);
        let is_whole_cell = |end: &usize| {
            let after = trim(rest.get(*end..).expect("the end of a quoted text"));
            matches!(after.first(), None | Some(Symbol::Char(',')))
        };
        let start = quoted.filter(is_whole_cell).unwrap_or(0);
        let comma = rest
            .iter()
            .skip(start)
            .position(|symbol| matches!(symbol, Symbol::Char(',')))
            .map(|at| start + at);
        let Some(comma) = comma else {
            cells.push(rest);
            return cells;
        };
        let (cell, after) = rest.split_at(comma);
        cells.push(cell);
        rest = after.get(1..).expect("it begins with the comma");
    }
}

/// The parts between the commas of a column list; commas inside braces do not separate.
pub(super) fn columns<'s, 'a>(symbols: &'s [Symbol<'a>]) -> Vec<&'s [Symbol<'a>]> {
    let mut depth = 0_usize;
    let mut is_end = |symbol: &Symbol<'_>| {
        match symbol {
            Symbol::Char('{') => depth += 1,
            Symbol::Char('}') => depth = depth.saturating_sub(1),
            Symbol::Char(_) | Symbol::Placeholder(_) => {}
        }
        depth == 0 && matches!(symbol, Symbol::Char(','))
    };
    symbols.split(|symbol| is_end(symbol)).collect()
}

/// The name and the columns of a group such as `by{name,id}`.
pub(super) fn group<'s, 'a>(column: &'s [Symbol<'a>]) -> Option<(&'s [Symbol<'a>], &'s [Symbol<'a>])> {
    let (Symbol::Char('}'), inner) = trim(column).split_last()? else { return None };
    let open = find(inner, '{')?;
    Some((inner.get(..open)?, inner.get(open + 1..)?))
}

/// The parts of `key[length]{columns}`.
pub(super) struct Header<'s, 'a> {
    pub(super) key: &'s [Symbol<'a>],
    length: &'s [Symbol<'a>],
    /// Whether its rows have keys (`[2:]`).
    pub(super) is_keyed: bool,
    pub(super) columns: Option<&'s [Symbol<'a>]>,
}

impl<'s, 'a> Header<'s, 'a> {
    /// Parses the text before a colon; `None` for a plain key.
    pub(super) fn parse(symbols: &'s [Symbol<'a>]) -> Option<Self> {
        let symbols = trim(symbols);
        let quoted = quoted_length(symbols).unwrap_or(0);
        let open = quoted + find(symbols.get(quoted..)?, '[')?;
        let close = open + find(symbols.get(open..)?, ']')?;
        let length = symbols.get(open + 1..close)?;
        let (length, is_keyed) = match length.split_last()? {
            (Symbol::Char(':'), length) => (length, true),
            _ => (length, false),
        };
        let is_length = |symbol: &Symbol<'_>| match symbol {
            Symbol::Char(c) => c.is_ascii_digit() || *c == ' ',
            Symbol::Placeholder(_) => true,
        };
        let columns = match symbols.get(close + 1..)? {
            [] => None,
            [Symbol::Char('{'), columns @ .., Symbol::Char('}')] => Some(columns),
            _ => return None,
        };
        let header = Self { key: symbols.get(..open)?, length: trim(length), is_keyed, columns };
        (!header.length.is_empty() && header.length.iter().all(is_length)).then_some(header)
    }

    /// The announced number of rows.
    pub(super) fn length(&self) -> Option<u64> {
        match self.length {
            [Symbol::Placeholder(Placeholder::Scalar(Value::Number(number)))] => number.as_u64(),
            digits => {
                let is_literal = digits.iter().all(|symbol| matches!(symbol, Symbol::Char(_)));
                is_literal.then(|| text(digits).parse().ok()).flatten()
            }
        }
    }
}

fn find(symbols: &[Symbol<'_>], wanted: char) -> Option<usize> {
    symbols.iter().position(|symbol| matches!(symbol, Symbol::Char(c) if *c == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_expand_and_broken_ones_vanish() {
        let mut placeholders = Placeholders::default();
        let first = placeholders.push(Placeholder::Scalar("a".into())).expect("small");
        let second = placeholders.push(Placeholder::Scalar(7.into())).expect("small");
        assert_eq!(placeholders.expanded(&format!("x{first}, {second}{OPEN}9{CLOSE}.{OPEN}1")), "xa, 7.7");
        assert_eq!(placeholders.expanded("plain"), "plain");
    }

    #[test]
    fn more_than_the_output_limit_is_refused() {
        let mut placeholders = Placeholders::default();
        assert!(placeholders.push(Placeholder::Scalar("x".repeat(PRINTED_BYTES_MAX - 1).into())).is_ok());
        assert!(placeholders.push(Placeholder::Scalar("x".into())).is_err());
    }

    #[test]
    fn a_repeated_placeholder_expands_only_within_the_limit() {
        let mut placeholders = Placeholders::default();
        let placeholder = placeholders.push(Placeholder::Scalar("x".repeat(10_000).into())).expect("small");
        assert!(placeholders.expand(&placeholder.repeat(20)).is_ok());
        assert!(placeholders.expand(&placeholder.repeat(40)).is_err());
    }
}

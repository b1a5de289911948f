//! The changes of a value, by its shape, and of the lines of a template.

use std::{ops::Range, sync::Arc, time::Duration};

use engine::settings::{Key, Shape, TextForm, row::duration_text};

use crate::config::{layers::SourceFile, raw::Value, report::Place, values};

/// Ranges of a text, and what is written in their place.
type Edits = Vec<(Range<usize>, String)>;

/// One change of a file.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// What is changed.
    pub(super) what: String,
    /// Where.
    pub(super) place: Place,
    file: SourceFile,
    edits: Edits,
}

impl Change {
    pub(super) fn new(file: &SourceFile, what: String, place: Place, edits: Edits) -> Self {
        Self { what, place, file: file.clone(), edits }
    }

    /// The file as it is.
    pub(super) fn none(file: &SourceFile) -> Self {
        Self::new(file, String::new(), Place::file(&file.path), Vec::new())
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Arc<str> {
        &self.file.path
    }

    /// The file with the change.
    pub(super) fn applied(&self) -> SourceFile {
        let mut text = String::from(&*self.file.text);
        let mut edits: Vec<_> = self.edits.iter().collect();
        edits.sort_by_key(|(range, _)| range.start);
        for (range, new) in edits.into_iter().rev() {
            text.replace_range(range.clone(), new);
        }
        SourceFile { text: text.into(), ..self.file.clone() }
    }
}

/// The changes of the values in a table with these keys.
pub(super) fn of_keys(table: &Value<'_>, keys: &[Key]) -> Vec<Change> {
    let of_entry = |(name, value): (&str, Value<'_>)| {
        let key = keys.iter().find(|key| key.name == name);
        let Some(key) = key.filter(|key| !is_note(&key.shape)) else { return Vec::new() };
        let removed = removed(table, &value);
        let removed = change(&value, format!("`{name}` removed"), value.key_place(), removed);
        [vec![removed], of_value(&value, name, &key.shape)].concat()
    };
    table.entries().into_iter().flatten().flat_map(of_entry).collect()
}

fn is_note(shape: &Shape) -> bool {
    matches!(shape, Shape::Form(TextForm::Note, _))
}

/// The changes of the value of `name`, but its removal.
fn of_value(value: &Value<'_>, name: &str, shape: &Shape) -> Vec<Change> {
    let literal = value.literal();
    let other = |new: String| {
        let what = format!("`{name}` {} -> {}", unquoted(literal), unquoted(&new));
        change(value, what, value.place(), vec![(value.place().span, new)])
    };
    match shape {
        Shape::Flag => match value.get().as_bool() {
            Some(flag) => vec![other((!flag).to_string())],
            None => Vec::new(),
        },
        Shape::Number(_) | Shape::Bytes(_) | Shape::Decimal => scaled(literal).map(other).collect(),
        Shape::Duration(_) => {
            let time = values::duration(value, Duration::ZERO..=Duration::MAX).ok();
            let times = time.into_iter().flat_map(|time| [time / 2, time.saturating_mul(2)]);
            times.map(|time| other(format!("\"{}\"", duration_text(time)))).collect()
        }
        Shape::Words(words) => neighbours(value, words).map(|word| other(format!("\"{word}\""))).collect(),
        Shape::Form(form, _) => of_text(value, name, *form),
        Shape::List(of, _) => of_items(value, name, of),
        Shape::Map(of) => of_map(value, name, of),
        Shape::Keys(keys) => of_keys(value, keys),
        Shape::Named(keys, _) => {
            let tables = value.entries().into_iter().flatten();
            tables.flat_map(|(_, table)| of_keys(&table, keys)).collect()
        }
        Shape::Either(shapes) => shapes.iter().flat_map(|shape| of_value(value, name, shape)).collect(),
        Shape::Text(_) => Vec::new(),
    }
}

/// Half of a number and its double, in its own form.
fn scaled(literal: &str) -> impl Iterator<Item = String> + use<> {
    let number = literal.replace('_', "");
    let whole = number.parse::<i64>().ok();
    let [half, double] = match whole {
        Some(number) => [Some((number / 2).to_string()), number.checked_mul(2).map(|more| more.to_string())],
        None => {
            let number = number.parse::<f64>().ok();
            [
                number.map(|number| format!("{:?}", number / 2.0)),
                number.map(|number| format!("{:?}", number * 2.0)),
            ]
        }
    };
    [half, double].into_iter().flatten().filter(move |new| *new != number)
}

/// The words before and after the value's.
fn neighbours<'w>(value: &Value<'_>, words: &'w [&'static str]) -> impl Iterator<Item = &'w str> {
    let own = value.get().as_str().and_then(|own| words.iter().position(|word| *word == own));
    let both = own.map(|own| [own.checked_sub(1), own.checked_add(1)]);
    both.into_iter().flatten().flatten().filter_map(|index| words.get(index).copied())
}

/// The changes of a text of a known form.
fn of_text(value: &Value<'_>, name: &str, form: TextForm) -> Vec<Change> {
    let Some(inner) = inside(value) else { return Vec::new() };
    let start = value.place().span.start;
    let text = value.literal().get(inner.clone()).unwrap_or_default();
    let written = |what: String, new: String| {
        change(value, what, value.place(), vec![(start + inner.start..start + inner.end, new)])
    };
    match form {
        TextForm::Note => Vec::new(),
        TextForm::Condition => vec![written(format!("`{name}` negated"), format!("not ({text})"))],
        TextForm::Amount => {
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = text.split_at(digits);
            let other =
                |new: String| written(format!("`{name}` {text} -> {new}{rest}"), format!("{new}{rest}"));
            scaled(number).map(other).collect()
        }
        TextForm::Fields => {
            let fields: Vec<&str> = text.split(':').collect();
            let without = |(index, own): (usize, &&str)| {
                let left = fields.iter().enumerate().filter(|(other, _)| *other != index);
                let left = left.map(|(_, field)| *field).collect::<Vec<_>>().join(":");
                written(format!("`{name}` without `{}`", own.trim()), left)
            };
            fields.iter().enumerate().filter(|_| fields.len() > 1).map(without).collect()
        }
        TextForm::Template => lines_of(value, name),
    }
}

/// Removes each line of a text of several lines, but those of its quotes.
fn lines_of(value: &Value<'_>, name: &str) -> Vec<Change> {
    let (literal, start) = (value.literal(), value.place().span.start);
    let is_inner = |line: &Range<usize>| line.start > 0 && line.end < literal.len();
    let change = |line: Range<usize>| {
        let what = format!("`{name}` without `{}`", literal.get(line.clone()).unwrap_or_default().trim());
        let range = start + line.start..start + line.end;
        let place = Place::new(&value.file().path, &value.file().text, range.clone());
        change(value, what, place, vec![(range, String::new())])
    };
    lines(literal).into_iter().filter(is_inner).map(change).collect()
}

/// The range of a string's literal between its quotes.
fn inside(value: &Value<'_>) -> Option<Range<usize>> {
    value.get().as_str()?;
    let literal = value.literal();
    let quotes = if literal.starts_with("\"\"\"") || literal.starts_with("'''") { 3 } else { 1 };
    let range = quotes..literal.len().checked_sub(quotes)?;
    literal.get(range.clone()).map(|_| range)
}

/// The literal without its quotes, on one line.
fn unquoted(literal: &str) -> String {
    literal.trim_matches(['"', '\'']).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes each item of a list that has several, and changes each by its shape.
fn of_items(value: &Value<'_>, name: &str, of: &Shape) -> Vec<Change> {
    let Some(items) = value.items() else { return Vec::new() };
    let without = |index: usize, item: &Value<'_>| {
        let edits = if is_of_headers(value) {
            statements(item)
        } else {
            vec![(value.place().span, list(&items, index))]
        };
        let what = match item.get().as_str() {
            Some(text) => removed_words(name, text),
            None => format!("item {} of `{name}` removed", index + 1),
        };
        change(value, what, item.place(), edits)
    };
    let several = items.iter().enumerate().filter(|_| items.len() > 1);
    let gone = several.map(|(index, item)| without(index, item));
    gone.chain(items.iter().flat_map(|item| of_value(item, name, of))).collect()
}

/// The literal of a list without an item.
fn list(items: &[Value<'_>], without: usize) -> String {
    let left = items.iter().enumerate().filter(|(index, _)| *index != without);
    format!("[{}]", left.map(|(_, item)| item.literal()).collect::<Vec<_>>().join(", "))
}

/// Removes each entry of a table with names that its author chose, and changes each by its shape.
fn of_map(value: &Value<'_>, name: &str, of: &Shape) -> Vec<Change> {
    let Some(entries) = value.entries() else { return Vec::new() };
    let of_entry = |(own, entry): &(&str, Value<'_>)| {
        let gone = change(entry, removed_words(name, own), entry.key_place(), removed(value, entry));
        [vec![gone], of_value(entry, own, of)].concat()
    };
    entries.iter().flat_map(of_entry).collect()
}

/// The words for an item that is removed from a list or a table.
fn removed_words(name: &str, item: &str) -> String {
    match name.strip_suffix('s') {
        Some(one) if !one.is_empty() => format!("{one} `{item}` removed"),
        _ => format!("`{name}` without `{item}`"),
    }
}

/// The edits that remove an entry of a table.
fn removed(table: &Value<'_>, entry: &Value<'_>) -> Edits {
    if !table.literal().starts_with('{') {
        return statements(entry);
    }
    let own = entry.place().span;
    let text = &entry.file().text;
    let left = table.entries().into_iter().flatten().filter(|(_, other)| other.place().span != own);
    let left = left.filter_map(|(_, other)| text.get(other.key_place().span.start..other.place().span.end));
    vec![(table.place().span, format!("{{ {} }}", left.collect::<Vec<_>>().join(", ")))]
}

/// Whether an array is written as tables with headers.
fn is_of_headers(value: &Value<'_>) -> bool {
    value.items().is_some_and(|items| items.first().is_some_and(|item| item.literal().starts_with("[[")))
}

/// The edits that remove the statements of a value that is no part of an inline one.
fn statements(value: &Value<'_>) -> Edits {
    let literal = value.literal();
    let is_inline_table = literal.starts_with('{');
    if let Some(entries) = value.entries().filter(|_| !is_inline_table) {
        let header = Some((value.place().span, String::new())).filter(|_| literal.starts_with('['));
        let own = entries.iter().flat_map(|(_, entry)| statements(entry));
        return header.into_iter().chain(own).collect();
    }
    if is_of_headers(value) {
        return value.items().into_iter().flatten().flat_map(|item| statements(&item)).collect();
    }
    let key = value.key_place().span.start;
    let before = value.file().text.get(..key).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    vec![(line..value.place().span.end, String::new())]
}

fn change(value: &Value<'_>, what: String, place: Place, edits: Edits) -> Change {
    Change::new(value.file(), what, place, edits)
}

/// Removes each line of the file of a template.
pub(super) fn of_template(file: &SourceFile) -> Vec<Change> {
    let change = |range: Range<usize>| {
        let line = file.text.get(range.clone()).unwrap_or_default().trim();
        let place = Place::new(&file.path, &file.text, range.clone());
        Change::new(file, format!("line `{line}` removed"), place, vec![(range, String::new())])
    };
    lines(&file.text).into_iter().map(change).collect()
}

/// The lines of a text that print or decide something, each with its end.
fn lines(text: &str) -> Vec<Range<usize>> {
    let (mut start, mut is_comment) = (0, false);
    let mut lines = Vec::new();
    for line in text.split_inclusive('\n') {
        let range = start..start + line.len();
        start = range.end;
        let line = line.trim();
        is_comment |= line.starts_with("{#");
        if !line.is_empty() && !is_comment {
            lines.push(range);
        }
        is_comment &= !line.ends_with("#}");
    }
    lines
}

//! `config/aside.toml`, and the tables of keys in docs/subscribers.md.

use std::collections::BTreeSet;

use aside::config::keys::FileTable;
use engine::settings::{Key, Shape, row::duration_text};
use regex::Regex;

/// The widest line of `config/aside.toml`.
pub(super) const COLUMNS: usize = 100;
const SCHEMA: &str = "#:schema aside.schema.json\n\n";
const HEAD: &str = "Every setting of aside with its default. A file of this name in /etc/aside or in \
    your own folder for configuration overrides single keys; the other keys stay as they are here. \
    Durations have units: \"250ms\", \"15m\", \"1h30m\". A line that begins with `#:` shows a key without \
    a default. A key takes effect at `aside reload`, except those of [journal] and [http]. Lists such \
    as [[sources.log]] of all files are joined; an entry of a later file replaces an earlier one with \
    the same name. A list has at most 32 entries.";

/// The description of a key or table, in one line.
pub(super) fn joined(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// A text without the addresses of its links, and without marks around quoted texts.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (before, name) = before.rsplit_once('[').expect("a link begins with a bracket");
        shown.extend([before, name]);
        rest = after.split_once(')').expect("a link ends with a bracket").1;
    }
    Regex::new("`(\"[^`\"]*\")`").expect("a pattern").replace_all(&(shown + rest), "$1").into_owned()
}

/// The values that are allowed for a key, each text between two marks; empty for any value.
pub(super) fn limits(shape: &Shape, mark: &str) -> String {
    if matches!(shape, Shape::Flag) { String::new() } else { allowed(shape, mark) }
}

fn allowed(shape: &Shape, mark: &str) -> String {
    let marked = |words: &[&str]| words.iter().map(|word| format!("{mark}{word}{mark}")).collect::<Vec<_>>();
    match shape {
        Shape::Keys(_) | Shape::Decimal | Shape::Named(..) | Shape::Only(_) | Shape::Text("a text") => {
            String::new()
        }
        Shape::Flag => "true, false".to_owned(),
        Shape::Number(range) => format!("{} to {}", grouped(*range.start()), grouped(*range.end())),
        Shape::Bytes(range) => format!("{} to {}, in bytes", size(*range.start()), size(*range.end())),
        Shape::Duration(range) => {
            format!("{} to {}", duration_text(*range.start()), duration_text(*range.end()))
        }
        Shape::Words(words) => marked(words).join(", "),
        Shape::Text(note) => (*note).to_owned(),
        Shape::List(of, counts) => {
            let items = match (*counts.start(), *counts.end()) {
                (0, usize::MAX) => String::new(),
                (1, usize::MAX) => "at least one item".to_owned(),
                (0, max) => format!("at most {max} items"),
                (min, max) => format!("{min} to {max} items"),
            };
            // The description says what texts are.
            let of = if matches!(**of, Shape::Text(_)) { String::new() } else { allowed(of, mark) };
            [items, of].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", each ")
        }
        Shape::Map(of) => allowed(of, mark),
        Shape::Either(shapes) => {
            let mut each: Vec<_> = shapes.iter().map(|shape| allowed(shape, mark)).collect();
            each.retain(|text| !text.is_empty());
            each.dedup();
            each.join(", or ")
        }
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 5] = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.iter().find(|(bits, _)| bytes.trailing_zeros() >= *bits).expect("whole KiB");
    format!("{} {}", bytes >> unit.0, unit.1)
}

/// A text as lines of a comment. What stands between two marks is not broken.
fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    let mut is_marked = false;
    let is_end = |c: char| {
        is_marked ^= c == '`';
        c == ' ' && !is_marked
    };
    for word in text.split(is_end) {
        let last = lines.last_mut().expect("a line");
        if last.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("# {word}"));
        } else {
            last.extend([" ", word]);
        }
    }
    lines.join("\n") + "\n"
}

/// The text of `config/aside.toml`.
pub(super) fn settings_file(tables: &[FileTable]) -> String {
    let (mut file, mut said) = (SCHEMA.to_owned() + &comment(HEAD), BTreeSet::new());
    for table in tables {
        file.push('\n');
        if !table.about.is_empty() {
            file.push_str(&comment(&plain(&joined(table.about))));
        }
        file.push_str(&match table.is_list {
            true => format!("#: [[{}]]\n", table.name),
            false => format!("[{}]\n", table.name),
        });
        for key in &table.keys {
            file.push_str(&lines(key, table, &mut said));
        }
    }
    file
}

/// The lines of a key: its description, unless that is in `said`, and its value.
fn lines(key: &Key, table: &FileTable, said: &mut BTreeSet<String>) -> String {
    let Key { name, default, example, shape, .. } = key;
    let own = description(key);
    let own = if said.insert(own.clone()) { comment(&own) } else { String::new() };
    match (default, shape) {
        (Some(default), Shape::Named(keys, _)) => {
            format!("\n{own}{}", named(&table.name, name, default, keys))
        }
        (Some(default), _) if !table.is_list => format!("{own}{name} = {default}\n"),
        (default, _) => {
            let value = default.as_deref().or(*example).expect("a key without a default has an example");
            format!("{own}#: {name} = {value}\n")
        }
    }
}

fn description(key: &Key) -> String {
    // The example of a text shows it.
    let is_text = matches!(key.shape, Shape::Text(_));
    let limits = if is_text { String::new() } else { limits(&key.shape, "\"") };
    let limits = if limits.is_empty() { limits } else { format!(" Allowed: {limits}.") };
    format!("{}{limits}", plain(&joined(key.doc)))
}

/// The tables of a key, the first one with the descriptions of its keys.
fn named(table: &str, name: &str, default: &str, keys: &[Key]) -> String {
    let tables: toml::Table = default.parse().expect("tables of TOML");
    let mut text = String::new();
    for (index, (own, values)) in tables.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "\n" });
        text.push_str(&format!("[{table}.{name}.{own}]\n"));
        for key in keys {
            if index == 0 {
                text.push_str(&comment(&description(key)));
            }
            let value = values.get(key.name).expect("every key has a value");
            text.push_str(&format!("{} = {value}\n", key.name));
        }
    }
    text
}

/// A document with the tables of keys below their headings.
pub(super) fn key_tables(document: &str, tables: &[FileTable]) -> String {
    let mut document = document.to_owned();
    for table in tables {
        let heading = format!("\n### `[{}]`\n\n", table.name);
        let (before, after) = document.split_once(&heading).expect("the document has the heading");
        let (_, rest) = after.split_once("\n\n").expect("its table ends");
        let rows: String = table.keys.iter().filter_map(row).collect();
        let head = "| key | default | limits | what |\n|---|---|---|---|\n";
        document = format!("{before}{heading}{head}{rows}\n{rest}");
    }
    document
}

/// The row of a key; `None` for a key that is not supported yet.
fn row(key: &Key) -> Option<String> {
    if matches!(key.shape, Shape::Only(_)) {
        return None;
    }
    let default = key.default.as_ref().map(|default| format!("`{default}`"));
    let default = default.or(key.without.map(str::to_owned)).unwrap_or_default();
    let limits = limits(&key.shape, "`");
    Some(format!("| `{}` | {default} | {limits} | {} |\n", key.name, joined(key.doc)))
}

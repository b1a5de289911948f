//! `config/aside.toml`, and the tables of keys in docs/reference.md.

use std::collections::BTreeSet;

use aside::config::{
    keys::FileTable,
    schema::{joined, limits, plain},
};
use engine::settings::{Key, Shape};

/// The widest line of `config/aside.toml`.
pub(super) const COLUMNS: usize = 100;
const SCHEMA: &str = "#:schema aside.schema.json\n\n";
const HEAD: &str = "Every setting of aside with its default. A file of this name in /etc/aside or in \
    your own folder for configuration overrides single keys; the other keys stay as they are here. \
    Durations have units: \"250ms\", \"15m\", \"1h30m\". A line that begins with `#:` shows a key without \
    a default. A key takes effect at `aside reload`, except those of [journal] and [http]. Lists such \
    as [[sources.log]] of all files are joined; an entry of a later file replaces an earlier one with \
    the same name. A list has at most 32 entries.";

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
    let is_text = matches!(key.shape, Shape::Text(_) | Shape::Form(..));
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
    tables.iter().fold(document.to_owned(), |document, table| {
        let rows = table.keys.iter().map(row);
        with_table(&document, &format!("### `[{}]`", table.name), ["key", "default", "limits", "what"], rows)
    })
}

/// A document with a table below the line `heading`, in place of the one that is there.
pub(super) fn with_table<const N: usize>(
    document: &str,
    heading: &str,
    columns: [&str; N],
    rows: impl Iterator<Item = String>,
) -> String {
    let heading = format!("\n{heading}\n\n");
    let (before, after) = document.split_once(&heading).expect("the document has the heading");
    let (_, rest) = after.split_once("\n\n").expect("its table ends");
    let head = format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(N));
    format!("{before}{heading}{head}{}\n{rest}", rows.collect::<String>())
}

/// The row of a key.
fn row(key: &Key) -> String {
    let default = key.default.as_ref().map(|default| format!("`{default}`"));
    let default = default.or(key.without.map(str::to_owned)).unwrap_or_default();
    let limits = limits(&key.shape, "`");
    format!("| `{}` | {default} | {limits} | {} |\n", key.name, joined(key.doc))
}

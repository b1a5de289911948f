//! The text that a subscriber's files declare, as plain data: for a program that writes it in
//! another form.

use crate::config::effective::{self, KeyInForce};

/// `one` and `[output.table]`; at least one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredText {
    /// The text of one event.
    pub one: Option<String>,
    /// The table of several.
    pub table: Option<DeclaredTable>,
}

/// `[output.table]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredTable {
    /// Its key.
    pub key: String,
    /// The names of its columns with what they show, of which the first that is not null counts; all
    /// fields if `None`.
    pub columns: Option<Vec<(String, Vec<String>)>>,
    /// Whether the count of repeats may be a column.
    pub repeats: bool,
}

impl DeclaredText {
    /// The text in `keys`; `None` if they declare none.
    pub fn of(keys: &[KeyInForce]) -> Option<Self> {
        let key = |name: &str| keys.iter().find(|key| key.key == name);
        let one = key("output.one").and_then(text);
        let table = key("output.table").and_then(value).and_then(|value| DeclaredTable::of(&value));
        (one.is_some() || table.is_some()).then_some(Self { one, table })
    }
}

impl DeclaredTable {
    fn of(table: &toml::Value) -> Option<Self> {
        let columns = table.get("columns").map(|columns| match columns.as_table() {
            Some(table) => table.iter().map(|(name, from)| (name.clone(), names(from))).collect(),
            None => names(columns).into_iter().map(|name| (name.clone(), vec![name])).collect(),
        });
        Some(Self {
            key: table.get("key")?.as_str()?.to_owned(),
            columns,
            repeats: table.get("repeats").and_then(toml::Value::as_bool).unwrap_or(true),
        })
    }
}

fn names(value: &toml::Value) -> Vec<String> {
    match value.as_array() {
        Some(items) => items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect(),
        None => value.as_str().map(str::to_owned).into_iter().collect(),
    }
}

/// The value of a key that is a text.
pub fn text(key: &KeyInForce) -> Option<String> {
    value(key)?.as_str().map(str::to_owned)
}

fn value(key: &KeyInForce) -> Option<toml::Value> {
    effective::value(&key.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::{LayerKind, SourceFile};

    #[test]
    fn both_forms_of_columns_are_read_in_order() {
        let read = |output: &str| {
            DeclaredText::of(&effective::keys(&[SourceFile {
                layer: LayerKind::User,
                name: "subscribers/a.toml".into(),
                path: "a.toml".into(),
                text: format!("[output]\n{output}\n").into(),
            }]))
        };
        let columns = |output: &str| read(output).and_then(|text| text.table).and_then(|table| table.columns);
        let column = |name: &str, from: &[&str]| {
            (name.to_owned(), from.iter().map(|from| (*from).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            columns("[output.table]\nkey = \"k\"\ncolumns.z = [\"b\", \"@type\"]\ncolumns.\"a b\" = \"c\""),
            Some(vec![column("z", &["b", "@type"]), column("a b", &["c"])])
        );
        assert_eq!(
            columns("table = { key = \"k\", columns = [\"z\", \"a\"] }"),
            Some(vec![column("z", &["z"]), column("a", &["a"])])
        );
        let one = read("one = \"\"\"\na: 1\nb: \\\"2\\\"\n\"\"\"").and_then(|text| text.one);
        assert_eq!(one.as_deref(), Some("a: 1\nb: \"2\"\n"));
        assert_eq!(read("template = \"generic\""), None);
    }
}

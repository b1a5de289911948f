//! The keys of a subscriber that are in force, each with the file that it came from: those of its
//! whole file, and of the files that inherit from it.

use std::sync::Arc;

use crate::config::{
    layers::SourceFile,
    raw::{Document, Value},
    report::{Place, is_bare_key},
};

/// The sections of a subscriber's file whose keys are shown, in this order.
const SECTIONS: [&str; 5] = ["subscriber", "events", "batching", "limits", "output"];

/// The keys that define the text: those of a later file on one side of this list replace those of
/// an earlier one on the other.
const TEMPLATE: &str = "output.template";
const DECLARED: [&str; 2] = ["output.one", "output.table"];

/// A key of a subscriber, as it is in force.
#[derive(Debug, Clone)]
pub struct KeyInForce {
    /// Its section and name, such as `output.priority`.
    pub key: String,
    /// Its value as TOML, on one line unless the file has it on several.
    pub value: Arc<str>,
    /// Where its file has it.
    pub place: Place,
}

/// Whether a key defines the text.
pub(crate) fn is_text(key: &KeyInForce) -> bool {
    key.key == TEMPLATE || DECLARED.contains(&key.key.as_str())
}

/// A value that is written as TOML.
pub(super) fn value(text: &str) -> Option<toml::Value> {
    let mut table: toml::Table = format!("value = {text}").parse().ok()?;
    table.remove("value")
}

/// The keys of `files`, of which a later one overrides an earlier one, in the order of sections and
/// of their first file. Files that are not valid TOML have none.
pub fn keys(files: &[SourceFile]) -> Vec<KeyInForce> {
    let documents: Vec<_> = files.iter().filter_map(|file| Document::parse(file).ok()).collect();
    keys_of(&documents)
}

/// The same of files that are read already.
pub(super) fn keys_of<'s>(documents: impl IntoIterator<Item = &'s Document<'s>>) -> Vec<KeyInForce> {
    let mut keys: Vec<KeyInForce> = Vec::new();
    for document in documents {
        let own = own_keys(document);
        let has = |key: &str| own.iter().any(|one| one.key == key);
        let has_declared = DECLARED.iter().any(|key| has(key));
        keys.retain(|before| match before.key.as_str() {
            TEMPLATE => !has_declared,
            key if DECLARED.contains(&key) => !has(TEMPLATE),
            _ => true,
        });
        for one in own {
            match keys.iter_mut().find(|before| before.key == one.key) {
                Some(before) => *before = one,
                None => keys.push(one),
            }
        }
    }
    let section = |key: &KeyInForce| SECTIONS.iter().position(|section| key.key.starts_with(section));
    keys.sort_by_key(section);
    keys
}

fn own_keys(document: &Document<'_>) -> Vec<KeyInForce> {
    let mut keys = document.keys(&SECTIONS);
    keys.sort_by_key(|(_, _, value)| value.key_place().span.start);
    let key = |(section, name, value): (&str, &str, Value<'_>)| KeyInForce {
        key: format!("{section}.{name}"),
        value: literal(&value).into(),
        place: value.key_place(),
    };
    keys.into_iter().map(key).collect()
}

/// The value as TOML: as its file has it; a table in one line.
fn literal(value: &Value<'_>) -> String {
    let Some(mut entries) = value.entries() else { return value.literal().to_owned() };
    entries.sort_by_key(|(_, value)| value.key_place().span.start);
    let entries: Vec<_> =
        entries.iter().map(|(name, value)| format!("{} = {}", key_text(name), literal(value))).collect();
    format!("{{ {} }}", entries.join(", "))
}

/// A key as TOML: in quotes unless it is a bare one.
fn key_text(name: &str) -> String {
    if is_bare_key(name) { name.to_owned() } else { toml::Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::LayerKind;

    #[test]
    fn later_files_override_keys_and_the_other_text() {
        let file = |layer, text: &str| SourceFile {
            layer,
            name: "subscribers/a.toml".into(),
            path: format!("{layer}").into(),
            text: text.into(),
        };
        let files = [
            file(
                LayerKind::Shipped,
                "[subscriber]\nid = \"a\"\n[events]\ntypes = [\"a.b\",\n  \"a.c\"]\n[output]\npriority = \"high\"\none = \"a: 1\"\n\
                 [output.table]\nkey = \"as\"\ncolumns.n = [\"n\", \"@type\"]\n",
            ),
            file(LayerKind::System, "[output]\ntemplate = \"x\"\n[limits]\nttl = \"1m\"\n"),
            file(LayerKind::User, "[output]\npriority = \"low\"\n"),
        ];
        let shown = |files: &[SourceFile]| -> Vec<String> {
            let shown =
                keys(files).into_iter().map(|one| format!("{} = {} {}", one.key, one.value, one.place));
            shown.collect()
        };
        assert_eq!(
            shown(&files[..1]),
            [
                "subscriber.id = \"a\" shipped:2:1",
                "events.types = [\"a.b\",\n  \"a.c\"] shipped:4:1",
                "output.priority = \"high\" shipped:7:1",
                "output.one = \"a: 1\" shipped:8:1",
                "output.table = { key = \"as\", columns = { n = [\"n\", \"@type\"] } } shipped:9:9",
            ]
        );
        assert_eq!(
            shown(&files)[2..],
            [
                "limits.ttl = \"1m\" system:4:1",
                "output.priority = \"low\" user:2:1",
                "output.template = \"x\" system:2:1",
            ]
        );
    }
}

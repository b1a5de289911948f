//! The keys of a subscriber that are in force, each with the file that it came from: those of its
//! whole file, and of the files that inherit from it.
//!
//! A program that writes the text of a subscriber in another form gets the declared text as plain
//! data. A file that replaces an earlier one whole loses the keys that the earlier file names and
//! this one does not, so that they have their defaults.

use std::{rc::Rc, sync::Arc};

use crate::config::{
    layers::{LayerKind, SourceFile},
    lint_name::LintName,
    raw::{Document, Value},
    report::{Diagnostic, Place, is_bare_key, shown},
};

/// The sections of a subscriber's file whose keys are shown, in this order.
const SECTIONS: [&str; 8] =
    ["subscriber", "events", "batching", "threshold", "absent", "limits", "repeat", "output"];

/// The keys that define the text: `template` of a later file replaces the others of an earlier one,
/// and each of the others replaces `template`. The last two replace each other.
const TEMPLATE: &str = "output.template";
const DECLARED: [&str; 3] = ["output.one", MANY, TABLE];
const MANY: &str = "output.many";
const TABLE: &str = "output.table";

/// A key of a subscriber, as it is in force.
#[derive(Debug, Clone)]
pub struct KeyInForce {
    /// Its section and name, such as `output.priority`.
    pub key: String,
    /// Its value as TOML, on one line unless the file has it on several.
    pub value: Arc<str>,
    /// Where its file has it.
    pub place: Place,
    /// Where its file has the value.
    pub value_place: Place,
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

/// A value as a person writes it, as TOML: TOML, else the text itself. No key has a date, so a time such
/// as `08:00:00` is a text.
pub(crate) fn written(text: &str) -> String {
    let table: toml::Table = format!("value = {text}").parse().unwrap_or_default();
    let mut values = table.into_iter();
    let value = match (values.next(), values.next()) {
        (Some((_, toml::Value::Datetime(_))), _) | (_, Some(_)) | (None, _) => text.into(),
        (Some((_, value)), None) => value,
    };
    value.to_string()
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
            MANY if has(TABLE) => false,
            TABLE if has(MANY) => false,
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
    keys.sort_by_key(|key| section(&key.key));
    keys
}

/// What `read` finds in the list `key` of a section, in the last of `files` where it finds something.
pub(super) fn in_list<T>(
    files: &[SourceFile],
    section: &str,
    key: &str,
    read: impl Fn(&[Value<'_>]) -> Option<T>,
) -> Option<T> {
    files.iter().rev().find_map(|file| {
        let document = Document::parse(file).ok()?;
        read(&document.value(section)?.entry(key)?.items()?)
    })
}

/// The place of a key's section in the order of sections.
pub(super) fn section(key: &str) -> Option<usize> {
    SECTIONS.iter().position(|section| key.starts_with(section))
}

/// The keys that are absent in `keys` and have an effect, each with its default as TOML.
pub(super) fn defaults(keys: &[KeyInForce]) -> Vec<(&'static str, &'static str)> {
    let has = |key: &str| keys.iter().any(|one| one.key == key);
    let has_no_batch = keys.iter().any(|one| one.key == "batching.window_ms" && *one.value == *"0");
    let has_effect = |key: &str| {
        let is_part =
            PARTS.iter().any(|(part, wholes)| *part == key && !wholes.iter().any(|whole| has(whole)));
        // A window for repeats is in one of two units.
        let is_other = key == "batching.dedupe_window_ms" && has("batching.dedupe_window");
        let is_of_no_batch = has_no_batch && OF_A_BATCH.contains(&key);
        ![is_part, is_other, is_of_no_batch].contains(&true)
    };
    let absent = DEFAULTS.iter().filter(|(key, _)| !has(key) && has_effect(key));
    absent.map(|(key, _)| (*key, default_of(key, keys))).collect()
}

fn own_keys(document: &Document<'_>) -> Vec<KeyInForce> {
    let mut keys = document.keys(&SECTIONS);
    keys.sort_by_key(|(_, _, value)| value.key_place().span.start);
    let key = |(section, name, value): (&str, &str, Value<'_>)| KeyInForce {
        key: format!("{section}.{name}"),
        value: literal(&value).into(),
        place: value.key_place(),
        value_place: value.place(),
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

/// `one`, `many` and `[output.table]`; at least one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredText {
    /// The text of one event.
    pub one: Option<String>,
    /// The text of several.
    pub many: Option<String>,
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
        let many = key(MANY).and_then(text);
        let table = key(TABLE).and_then(|key| value(&key.value)).and_then(|value| DeclaredTable::of(&value));
        (one.is_some() || many.is_some() || table.is_some()).then_some(Self { one, many, table })
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
    value(&key.value)?.as_str().map(str::to_owned)
}

/// The default of each key that has one, as TOML. Keys that are not listed have no effect when they
/// are absent.
const DEFAULTS: [(&str, &str); 19] = [
    ("subscriber.enabled", "true"),
    ("events.severity_filter", "\"debug\""),
    ("batching.window_ms", "2000"),
    ("batching.max_size", "10"),
    ("batching.mode", "\"window\""),
    ("batching.dedupe_window_ms", "5000"),
    ("batching.dedupe_keep", "\"first\""),
    ("limits.rate_of", "\"notifications\""),
    ("limits.retain", "false"),
    ("output.priority", "\"normal\""),
    ("output.inject_at", "\"after_tool\""),
    ("output.activation", "\"passive\""),
    ("output.active_for", "\"any\""),
    ("output.interrupt", "\"inject_and_continue\""),
    ("output.escalate_at", "\"critical\""),
    ("output.max_tokens", "200"),
    ("output.audience", "\"agent\""),
    ("output.requires_response", "false"),
    ("output.region", "\"also\""),
];
/// Keys that say nothing about what is delivered, or stay as they were: a later file of a core
/// subscriber is one too.
const WITHOUT_EFFECT: [&str; 6] = [
    "subscriber.id",
    "subscriber.name",
    "subscriber.description",
    "subscriber.version",
    "subscriber.inherit",
    "output.core",
];
/// Keys without a meaning of their own, and the ones that they belong to.
const PARTS: [(&str, &[&str]); 9] = [
    ("batching.dedupe_window_ms", &["batching.dedupe_key"]),
    ("batching.dedupe_window", &["batching.dedupe_key"]),
    ("batching.dedupe_keep", &["batching.dedupe_key"]),
    ("limits.rate_by", &["limits.rate"]),
    ("limits.rate_of", &["limits.rate"]),
    ("batching.max_wait_ms", &["batching.mode"]),
    ("limits.equal", &["limits.resolved_by"]),
    ("limits.order_by", &["limits.supersede_key", "limits.resolved_by"]),
    ("limits.revision", &["limits.supersede_key", "limits.resolved_by"]),
];

/// Keys of a batch, without effect while `window_ms` is 0.
const OF_A_BATCH: [&str; 4] =
    ["batching.max_size", "batching.mode", "batching.max_wait_ms", "batching.group_by"];

/// A warning for each key of the files `earlier` that falls back to a default by `later`, which
/// replace them; each at `place`. None if those are switched off.
pub(crate) fn findings_of_lost_keys(
    earlier: &[Rc<Document<'_>>],
    later: &[Rc<Document<'_>>],
    place: &Place,
) -> Vec<Diagnostic> {
    let [before, own] = [earlier, later].map(|documents| keys_of(documents.iter().map(|one| &**one)));
    let is_off = own.iter().any(|key| key.key == "subscriber.enabled" && *key.value == *"false");
    if is_off {
        return Vec::new();
    }
    let is_lost = |key: &KeyInForce| falls_back(key, &own) && !is_shipped_text(key, earlier);
    before.iter().filter(|key| is_lost(key)).map(|key| finding(key, &own, place)).collect()
}

fn falls_back(before: &KeyInForce, own: &[KeyInForce]) -> bool {
    let key = before.key.as_str();
    let has = |key: &str| own.iter().any(|one| one.key == key);
    let has_no_batch = own.iter().any(|one| one.key == "batching.window_ms" && *one.value == *"0");
    let is_without_effect = WITHOUT_EFFECT.contains(&key) || (has_no_batch && OF_A_BATCH.contains(&key));
    let is_text = is_text(before) && own.iter().any(is_text);
    let is_part_of_lost =
        PARTS.iter().any(|(part, wholes)| *part == key && !wholes.iter().any(|whole| has(whole)));
    !has(key)
        && !is_text
        && !is_part_of_lost
        && !is_without_effect
        && !is_default(before, default_of(key, own))
}

/// Whether a value has the effect of an absent one.
fn is_default(before: &KeyInForce, default: &str) -> bool {
    let Some(own) = value(&before.value) else { return false };
    let is_empty = own.as_str().is_some_and(str::is_empty) || own.as_array().is_some_and(Vec::is_empty);
    // Without `equal` the fields of `supersede_key` must match, with an empty one none.
    value(default).as_ref() == Some(&own) || (is_empty && before.key != "limits.equal")
}

/// A file without a text has the shipped one of its id, so that is not lost.
fn is_shipped_text(key: &KeyInForce, earlier: &[Rc<Document<'_>>]) -> bool {
    let mut files = earlier.iter().map(|document| document.file());
    is_text(key) && files.any(|file| file.layer == LayerKind::Shipped && file.path == key.place.file)
}

fn default_of(key: &str, own: &[KeyInForce]) -> &'static str {
    let is_low = || own.iter().any(|one| one.key == "output.priority" && *one.value == *"\"low\"");
    match DEFAULTS.iter().find(|(known, _)| *known == key) {
        Some(("output.inject_at", _)) if is_low() => "\"turn_end\"",
        Some((_, default)) => default,
        None => "",
    }
}

fn finding(before: &KeyInForce, own: &[KeyInForce], place: &Place) -> Diagnostic {
    let name = before.key.rsplit('.').next().unwrap_or(&before.key);
    let bare = |value: &str| shown(value.trim_matches('"'));
    let is = match default_of(&before.key, own) {
        "" => "is absent here".to_owned(),
        default => format!("is {} here", bare(default)),
    };
    let message = format!("`{name}` was {} in {}, and {is}", bare(&before.value), before.place.file);
    Diagnostic::error(place.clone(), before.key.as_str(), message)
        .with_note("`inherit = true` under [subscriber] keeps what this file does not name")
        .into_lint(LintName::LostKey)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    };

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

    #[test]
    fn both_forms_of_columns_are_read_in_order() {
        let read = |output: &str| {
            DeclaredText::of(&keys(&[SourceFile {
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
        let many = read("many = \"a: {{ count }}\"").and_then(|text| text.many);
        assert_eq!(many.as_deref(), Some("a: {{ count }}"));
        assert_eq!(read("template = \"generic\""), None);
    }

    #[test]
    fn many_and_the_table_replace_each_other() {
        let file = |layer, output: &str| SourceFile {
            layer,
            name: "subscribers/a.toml".into(),
            path: format!("{layer}").into(),
            text: format!("subscriber.id = \"a\"\nevents.types = [\"a.b\"]\n{output}").into(),
        };
        let (many, table) = ("output.many = 'a: {{ count }}'\n", "output.table.key = 'as'\n");
        let one = "output.one = 'a: 1'\n";
        for (earlier, later, kept) in [
            (format!("{one}{table}"), many, ["output.one", "output.many"]),
            (format!("{one}{many}"), table, ["output.one", "output.table"]),
        ] {
            let files = [
                file(LayerKind::System, &earlier),
                file(LayerKind::User, &format!("subscriber.inherit = true\n{later}")),
            ];
            let texts: Vec<_> = keys(&files).into_iter().filter(is_text).map(|key| key.key).collect();
            assert_eq!(texts, kept, "{earlier}{later}");
            let report = compile(&Sources::shipped().with(files, []), &[]).report;
            assert_eq!(report.to_string(), "", "{earlier}{later}");
        }
    }

    /// Everything of a subscriber with these keys.
    fn subscriber(rest: &str) -> String {
        let file = SourceFile {
            layer: LayerKind::User,
            name: "subscribers/own.toml".into(),
            path: "own.toml".into(),
            text: format!("subscriber.id = \"own\"\nevents.types = [\"a.b\"]\n{rest}").into(),
        };
        let compiled = compile(&Sources::shipped().with([file], []), &[]);
        assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
        let own = compiled.rules.subscribers.iter().find(|rule| rule.id.as_str() == "own");
        format!("{:?}", own.expect("it compiles"))
    }

    #[test]
    fn values_without_effect_are_not_lost() {
        let file = |layer: LayerKind, rest: &str| SourceFile {
            layer,
            name: "subscribers/own.toml".into(),
            path: format!("{layer}/own.toml").into(),
            text: format!("subscriber.id = \"own\"\nevents.types = [\"a.b\"]\n{rest}").into(),
        };
        for (key, warns) in [
            ("output.priority = 'normal'", false),
            ("batching.window_ms = 2_000", false),
            ("batching.dedupe_key = \"\"", false),
            ("limits.supersede_key = \"\"", false),
            ("limits.inhibited_by = []", false),
            ("limits.retain = false", false),
            ("output.requires_response = false", false),
            ("output.priority = 'high'", true),
            ("limits.resolved_by = [\"a.c\"]\nlimits.equal = \"\"", true),
        ] {
            let files = [file(LayerKind::System, key), file(LayerKind::User, "")];
            let report = compile(&Sources::shipped().with(files, []), &[]).report;
            assert_eq!(report.error_count(), 0, "{key}: {report}");
            assert_eq!(report.warning_count() > 0, warns, "{key}: {report}");
        }
        let kept = "limits.resolved_by = [\"a.c\"]\nlimits.supersede_key = \"payload.a\"\n";
        let files =
            [file(LayerKind::System, &format!("{kept}limits.equal = \"\"\n")), file(LayerKind::User, kept)];
        let report = compile(&Sources::shipped().with(files, []), &[]).report.to_string();
        assert!(report.contains("`equal` was "), "{report}");
    }

    #[test]
    fn the_listed_defaults_are_those_in_force() {
        let without = |key: &str| match key {
            "batching.dedupe_window_ms" | "batching.dedupe_keep" => "batching.dedupe_key = \"type\"\n",
            _ => "",
        };
        for (key, default) in DEFAULTS {
            let rest = without(key);
            assert_eq!(subscriber(rest), subscriber(&format!("{rest}{key} = {default}\n")), "{key}");
        }
    }
}

//! `webhooks.toml` of a layer, and `[webhooks]` of `aside.toml`: the events made from bodies, and
//! the allowed senders.

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use engine::{
    settings::{Keys, Table, settings},
    sorted::SortedMap,
};
use serde_json::Value as Json;
use strum::VariantArray as _;

use crate::{
    capability::webhook::{Kind, Path, Row},
    config::{
        layers::{LayerKind, SourceFile},
        raw::{Parsed, Section, Value},
        report::{Diagnostic, shown},
        values,
    },
};

const SHIPPED: &str = include_str!("../../config/webhooks.toml");
/// Most rows of a file.
const ROWS_MAX: usize = 1_000;

static SHIPPED_ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let file = SourceFile {
        layer: LayerKind::Shipped,
        name: "webhooks.toml".into(),
        path: "shipped:webhooks.toml".into(),
        text: SHIPPED.into(),
    };
    let mut rows = Vec::new();
    let found = read(&file, &mut rows);
    assert!(found.is_empty(), "the shipped rows are rows, as a test holds: {found:?}");
    rows
});

/// The configuration of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Webhooks {
    /// The expected senders.
    pub senders: SortedMap<Kind, Sender>,
    /// The rows of the layers, the last layer's first; the shipped ones follow.
    pub own_rows: Vec<Row>,
}

/// An expected sender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sender {
    /// The file with its signing secret; a sender that does not sign sends a token of the daemon.
    pub secret_file: Option<PathBuf>,
    /// The folder whose sessions its events are for; all sessions if `None`.
    pub workspace: Option<Arc<str>>,
}

impl Webhooks {
    /// All rows, in order of precedence.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.own_rows.iter().chain(SHIPPED_ROWS.iter())
    }
}

settings! {
    /// A sender that signs its webhooks.
    struct Signing from impl Keys {
        /// Accepts its webhooks at `/v1/webhooks/NAME`, on the Unix socket and on TCP (`[http]`).
        enabled: bool = false, flag();
        /// A file with the secret that the sender signs with, on one line; other users must not be
        /// able to read it. Without this key the sender has to send a token of the daemon with the
        /// scope `publish`.
        secret_file: PathBuf, path(), like "\"/home/me/.config/aside/sender.secret\"";
        /// The folder whose sessions get the events; without this key, all sessions do.
        workspace: Arc<str>, path(), like "\"/home/me/shop\"";
    }
}

settings! {
    /// A sender that does not sign: it sends a token of the daemon with the scope `publish`.
    struct Plain from impl Keys {
        /// Accepts its webhooks at `/v1/webhooks/NAME`, on the Unix socket and on TCP (`[http]`).
        enabled: bool = false, flag();
        /// The folder whose sessions get the events; without this key, all sessions do.
        workspace: Arc<str>, path(), like "\"/home/me/shop\"";
    }
}

/// The description of each table in `[webhooks]`, by its name.
pub(super) fn tables() -> impl Iterator<Item = (&'static str, Table)> {
    let keys = |kind: Kind| if kind.signs() { Signing::table().keys } else { Plain::table().keys };
    Kind::VARIANTS.iter().map(move |&kind| (kind.as_str(), Table { about: kind.about(), keys: keys(kind) }))
}

/// Reads `[webhooks]`: one table per sender, which have to be finished separately.
pub(super) fn read_senders<'s>(webhooks: &mut Section<'s>) -> (SortedMap<Kind, Sender>, Vec<Section<'s>>) {
    let (mut senders, mut tables) = (SortedMap::new(), Vec::new());
    for &kind in Kind::VARIANTS {
        let mut table = webhooks.table(kind.as_str());
        let Signing { enabled, secret_file, workspace } = if kind.signs() {
            Signing::read(&mut table)
        } else {
            let Plain { enabled, workspace } = Plain::read(&mut table);
            Signing { enabled, secret_file: None, workspace }
        };
        if enabled {
            senders.insert(kind, Sender { secret_file, workspace });
        }
        tables.push(table);
    }
    (senders, tables)
}

/// Inserts the rows of one file before those of earlier layers; returns the mistakes.
pub(crate) fn read(file: &SourceFile, rows: &mut Vec<Row>) -> Vec<Diagnostic> {
    let mut own = Vec::new();
    let found = values::each_table(file, "webhook", ROWS_MAX, |item| {
        own.push(row(item)?);
        Ok(())
    });
    rows.splice(0..0, own);
    found
}

fn row(value: &Value<'_>) -> Parsed<Row> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let from = section.require("from", |value| values::word_of(value, &Kind::with_rows()));
    let event = section.require("event", |value| values::words(value).map(str::to_owned));
    let when = section.read("when", conditions).unwrap_or_default();
    let event_type = section.require("type", values::open_type);
    let severity = section.read("severity", values::severity);
    let payload = section.read("payload", fields).unwrap_or_default();
    let found = section.finish();
    match (from, event, event_type) {
        (Some(from), Some(event), Some(event_type)) if found.is_empty() => {
            Ok(Row { from, event, when, event_type, severity, payload })
        }
        _ => Err(found),
    }
}

fn conditions(value: &Value<'_>) -> Parsed<Vec<(Path, Vec<String>)>> {
    table(value, |key, json| {
        let texts =
            texts(json).ok_or_else(|| format!("`{}` must be a text, or a list of texts", shown(key)))?;
        Ok((path(key)?, texts))
    })
}

fn fields(value: &Value<'_>) -> Parsed<Vec<(String, Vec<Path>)>> {
    table(value, |key, json| {
        let wrong =
            || format!("`{}` must be a path, such as \"check_run.name\", or a list of paths", shown(key));
        let paths = texts(json).ok_or_else(wrong)?;
        Ok((key.to_owned(), paths.iter().map(|text| path(text)).collect::<Result<_, _>>()?))
    })
}

/// A text, or a list of at least one text.
fn texts(json: &Json) -> Option<Vec<String>> {
    let text = |json: &Json| json.as_str().map(str::to_owned);
    match json.as_array() {
        Some(items) => items.iter().map(text).collect::<Option<Vec<_>>>().filter(|texts| !texts.is_empty()),
        None => text(json).map(|text| vec![text]),
    }
}

fn path(text: &str) -> Result<Path, String> {
    Path::parse(text).ok_or_else(|| format!("`{}` is not a path of keys separated by dots", shown(text)))
}

/// The entries of a table whose keys are chosen by the author.
fn table<T>(value: &Value<'_>, read: impl Fn(&str, &Json) -> Result<T, String>) -> Parsed<Vec<T>> {
    let json = values::object(value)?;
    let entries = json.as_object().into_iter().flatten();
    entries.map(|(key, json)| read(key, json).map_err(|message| vec![value.error(message)])).collect()
}

#[cfg(test)]
mod outcomes;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> SourceFile {
        SourceFile {
            layer: LayerKind::User,
            name: "webhooks.toml".into(),
            path: "webhooks.toml".into(),
            text: text.into(),
        }
    }

    #[test]
    fn shipped_webhook_rows_use_catalogue_types() {
        assert!(SHIPPED_ROWS.len() >= 15, "{} rows", SHIPPED_ROWS.len());
        for row in SHIPPED_ROWS.iter() {
            let known = engine::event::catalogue::types().find(|entry| entry.event_type == row.event_type);
            // This type of event is one that no row has, on purpose.
            if row.event_type.as_str().starts_with("webhook.") {
                continue;
            }
            let known = known.unwrap_or_else(|| panic!("{}", row.event_type));
            for (name, _) in &row.payload {
                assert!(known.example.value().get(name).is_some(), "{}: {name}", row.event_type);
            }
        }
    }

    #[test]
    fn webhook_rows_of_later_layers_come_first() {
        let mut rows = Vec::new();
        let first = "[[webhook]]\nfrom = \"standard\"\nevent = \"a.b\"\ntype = \"one.a\"\n";
        assert!(read(&file(first), &mut rows).is_empty());
        let second = "[[webhook]]\nfrom = \"github\"\nevent = \"push\"\nwhen = { ref = [\"main\", \"next\"] }\ntype = \"two.a\"\n\
                      severity = \"warning\"\npayload = { head = \"after\" }\n";
        assert!(read(&file(second), &mut rows).is_empty());
        let types: Vec<&str> = rows.iter().map(|row| row.event_type.as_str()).collect();
        assert_eq!(types, ["two.a", "one.a"]);
        for (text, part) in [
            ("from = \"githb\"\nevent = \"x\"\ntype = \"a.b\"\n", "githb"),
            ("from = \"github\"\ntype = \"a.b\"\n", "`event` is missing"),
            ("from = \"github\"\nevent = \"x\"\ntype = \"ab\"\n", "segments"),
            (
                "from = \"github\"\nevent = \"x\"\ntype = \"a.b\"\nwhen = { x = 7 }\n",
                "a text, or a list of texts",
            ),
            ("from = \"github\"\nevent = \"x\"\ntype = \"a.b\"\npayload = { x = \"a..b\" }\n", "not a path"),
            ("from = \"github\"\nevent = \"x\"\ntype = \"a.b\"\npayload = { x = [] }\n", "a list of paths"),
            (
                "from = \"github\"\nevent = \"x\"\ntype = \"a.b\"\npayload = { x = [\"a\", 7] }\n",
                "a list of paths",
            ),
            ("from = \"github\"\nevent = \"x\"\ntype = \"a.b\"\npaylod = {}\n", "paylod"),
        ] {
            let found = read(&file(&format!("[[webhook]]\n{text}")), &mut Vec::new());
            assert!(found.len() == 1 && found[0].message.contains(part), "{text}: {found:?}");
        }
    }

    #[test]
    fn too_many_webhook_rows_are_counted_and_refused() {
        let row = "[[webhook]]\nfrom = \"github\"\nevent = \"x\"\ntype = \"a.b\"\n";
        let mut rows = Vec::new();
        assert!(read(&file(&row.repeat(ROWS_MAX)), &mut rows).is_empty());
        let found = read(&file(&row.repeat(ROWS_MAX + 1)), &mut rows);
        let messages: Vec<&str> = found.iter().map(|wrong| wrong.message.as_str()).collect();
        assert_eq!(messages, ["there are 1001 rows; 1000 are allowed"]);
        assert_eq!(rows.len(), ROWS_MAX);
    }
}

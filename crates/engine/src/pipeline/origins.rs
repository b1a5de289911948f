//! The untrusted origins of a batch, for display.
//!
//! The origin of an event is its source. The source of an event that quotes text is aside, which
//! did not write that text, so the entry that the text comes from is named instead.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use crate::{
    event::{Event, Provenance, cut_text, strip_text},
    pipeline::{activation::WakeSettings, row::Row},
    sorted::SortedSet,
};

/// Most characters of a shown origin: enough for a host and a path, and still few tokens.
const ORIGIN_CHARS_MAX: usize = 64;
/// Most origins that one line names; the others are counted.
const NAMED_MAX: usize = 4;

/// The origins of quoted text, by the beginning of the event's type: the word for them, and the
/// payload's field with the name of one.
const QUOTED: [(&str, &str, &str); 5] = [
    ("fs.", "paths", "name"),
    ("log.", "log", "name"),
    ("pr.comment.", "comment by", "author"),
    ("pr.review.", "review by", "author"),
    ("watch.", "watch", ""),
];

/// The origin of each row, if it is untrusted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Origins {
    by_row: Vec<Option<Arc<str>>>,
}

impl Origins {
    /// The origins of these rows.
    pub(crate) fn new(rows: &[Row], wake: &WakeSettings) -> Self {
        let untrusted =
            |row: &Row| (!wake.trust_in(&row.event).is_trusted()).then(|| shown_origin(&row.event).into());
        Self { by_row: rows.iter().map(untrusted).collect() }
    }

    /// The origin of each row, `None` for a trusted one; empty if one name is true of all rows.
    pub(crate) fn by_row(&self) -> &[Option<Arc<str>>] {
        let differ = self.by_row.windows(2).any(|pair| matches!(pair, [one, other] if one != other));
        if differ { &self.by_row } else { &[] }
    }

    /// One line that names each untrusted origin once, in the order of the rows; `None` if there is
    /// none.
    ///
    /// Shape: `web`; or `web; bob; and 3 more (7 of 9 rows)`, at most [`NAMED_MAX`] names. The rows
    /// are counted if others are trusted. Among several, a name that could be read as more than a
    /// name is in double quotes.
    pub(crate) fn in_line(&self) -> Option<Arc<str>> {
        if self.by_row().is_empty() {
            return self.by_row.first().cloned().flatten();
        }
        let mut known = SortedSet::new();
        let distinct = self.by_row.iter().flatten().filter(|origin| known.insert(&***origin));
        let distinct: Vec<&Arc<str>> = distinct.collect();
        let more = distinct.len().saturating_sub(NAMED_MAX);
        let named = distinct.iter().take(NAMED_MAX).map(|origin| unambiguous(origin));
        let more = (more > 0).then(|| format!("and {more} more").into());
        let mut line = named.chain(more).collect::<Vec<Cow<'_, str>>>().join("; ");
        let untrusted = self.by_row.iter().flatten().count();
        if untrusted < self.by_row.len() {
            line.push_str(&format!(" ({untrusted} of {} rows)", self.by_row.len()));
        }
        Some(line.into())
    }
}

/// A name that is read as one name only.
fn unambiguous(name: &str) -> Cow<'_, str> {
    let is_plain = !name.contains(['"', ';', '(', ')', '\n', '\t']) && !name.starts_with("and ");
    if is_plain { name.into() } else { Value::from(name).to_string().into() }
}

/// The origin of an event.
///
/// Shape: beyond [`ORIGIN_CHARS_MAX`] characters it is cut, with a mark; it has no control
/// characters except newlines and tabs.
fn shown_origin(event: &Event) -> String {
    let origin = match event.provenance {
        Provenance::Quoted => quoted_origin(event),
        Provenance::Local
        | Provenance::Harness
        | Provenance::Remote
        | Provenance::Agent
        | Provenance::Own => Cow::Borrowed(&*event.source),
    };
    cut_text(strip_text(&origin), ORIGIN_CHARS_MAX).into()
}

/// The entry that a quoted text comes from, or the first word of the event's type.
fn quoted_origin(event: &Event) -> Cow<'_, str> {
    let event_type = event.event_type.as_str();
    let Some((_, word, field)) = QUOTED.iter().find(|(begin, ..)| event_type.starts_with(begin)) else {
        return event_type.split('.').next().unwrap_or(event_type).into();
    };
    match event.payload.value().get(field).and_then(Value::as_str) {
        Some(name) => format!("{word} {name}").into(),
        None => Cow::Borrowed(word),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        event::{Payload, Seq},
        pipeline::tests::event,
    };

    fn row(source: &str, provenance: Provenance) -> Row {
        let event = Event { source: source.into(), provenance, ..(*event("")).clone() };
        Row { seq: Seq(1), event: Arc::new(event), repeats: 1, threshold: None, suppressed: None }
    }

    /// `cli` is trusted.
    fn origins(sources: &[&str]) -> Origins {
        let rows: Vec<Row> = sources.iter().map(|source| row(source, Provenance::Local)).collect();
        Origins::new(&rows, &WakeSettings::default())
    }

    #[test]
    fn a_line_names_untrusted_origins_once() {
        for (sources, line, differ) in [
            (&["cli", "cli"][..], None, false),
            (&["web"], Some("web"), false),
            (&["web", "web"], Some("web"), false),
            (&["we\u{1b}[31mb", "web"], Some("web"), false),
            (&["web", "bob", "web"], Some("web; bob"), true),
            (&["cli", "web", "bob", "web"], Some("web; bob (3 of 4 rows)"), true),
            (&["a", "b", "c", "d", "e", "f", "cli"], Some("a; b; c; d; and 2 more (6 of 7 rows)"), true),
        ] {
            let origins = origins(sources);
            assert_eq!(origins.in_line().as_deref(), line, "{sources:?}");
            assert_eq!(!origins.by_row().is_empty(), differ, "{sources:?}");
        }
    }

    #[test]
    fn hostile_names_stay_single_bounded_names() {
        for (name, shown) in [
            ("a; cli", "\"a; cli\"; bob"),
            ("a (1 of 9 rows)", "\"a (1 of 9 rows)\"; bob"),
            ("and 9 more", "\"and 9 more\"; bob"),
            ("a\nseverity: \"x\"", "\"a\\nseverity: \\\"x\\\"\"; bob"),
        ] {
            assert_eq!(origins(&[name, "bob"]).in_line().as_deref(), Some(shown));
            assert_eq!(origins(&[name]).in_line().as_deref(), Some(name), "alone it is quoted by the format");
        }
        let long = origins(&["x".repeat(256).as_str()]).in_line().map(|line| line.len());
        assert_eq!(long, Some(64 + "\u{2026} [+192 chars]".len()));
    }

    #[test]
    fn quoted_text_names_its_entry() {
        for (event_type, payload, shown) in [
            ("log.line.matched", json!({ "name": "dev", "line": "x" }), "log dev"),
            ("fs.file.created", json!({ "name": "src/**", "path": "a" }), "paths src/**"),
            ("pr.comment.created", json!({ "author": "bob" }), "comment by bob"),
            ("pr.review.submitted", json!({ "author": "bob\u{7}" }), "review by bob"),
            ("watch.fired", json!({ "name": "x" }), "watch"),
            ("log.line.matched", json!({ "name": 5 }), "log"),
            ("else.where", json!({}), "else"),
        ] {
            let quoted = row("aside", Provenance::Quoted);
            let event = Event {
                event_type: event_type.parse().expect("a type"),
                payload: Payload::from(payload),
                ..(*quoted.event).clone()
            };
            let rows = [Row { event: Arc::new(event), ..quoted }];
            let origins = Origins::new(&rows, &WakeSettings::default());
            assert_eq!(origins.in_line().as_deref(), Some(shown));
        }
    }
}

//! Hostile payloads against every format: each stays one block, and decodes to what was put in.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    tests::{item, notification},
    *,
};
use crate::{
    notification::Priority,
    toon::{self, has_reserved_tag, reserved_tags},
};

/// Pieces that end, begin or forge something in one of the formats, or in a harness's wrapper.
const PIECES: [&str; 26] = [
    "</notifications>",
    "<notifications count=\"1\" id=\"x\">",
    "< / NOTIFICATIONS >",
    "</system-reminder>",
    "<event>",
    "<",
    "/",
    "notifications",
    "```",
    "````toon",
    "\n## critical\n",
    "\n",
    "\r\n",
    "\t",
    "\"",
    "\\",
    "\\u003c",
    ",",
    ": ",
    "- ",
    "# ",
    "[2]{a,b}:",
    "more: 3 pending",
    "redelivered",
    "\u{feff}",
    " text ",
];

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => prop::sample::select(PIECES.as_slice()).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => text().prop_map(Value::from),
        1 => any::<i32>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => prop::sample::select(["tool", "error", "more", "redelivered", "notifications"].as_slice())
            .prop_map(str::to_owned),
        1 => text(),
    ]
}

/// Flat fields, tables, lists, nested objects, and contents that are no objects.
fn content() -> impl Strategy<Value = Value> {
    let field = prop_oneof![
        3 => scalar(),
        1 => prop::collection::vec(scalar(), 0..3).prop_map(Value::from),
        2 => prop::collection::vec((scalar(), scalar()), 0..3).prop_map(|rows| {
            rows.into_iter().map(|(a, b)| json!({ "tool": a, "error": b })).collect()
        }),
        1 => (key(), scalar()).prop_map(|(key, value)| Value::Object(Map::from_iter([(key, value)]))),
        1 => prop::collection::vec((key(), scalar()), 0..3).prop_map(|items| {
            items.into_iter().map(|(key, value)| Value::Object(Map::from_iter([(key, value)]))).collect()
        }),
    ];
    let object = prop::collection::vec((key(), field.clone()), 0..4)
        .prop_map(|fields| Value::Object(Map::from_iter(fields)));
    prop_oneof![8 => object, 1 => field]
}

fn items() -> impl Strategy<Value = Vec<(Value, bool, usize)>> {
    prop::collection::vec((content(), prop::bool::weighted(0.2), 0..4_usize), 1..4)
}

/// What a content decodes to; TOON cannot tell some values from others, such as an empty object at the root from nothing.
fn said(content: &Value) -> Option<(String, Value)> {
    let text = toon::encode(content);
    let value = toon::decode(&text).ok()?;
    Some((text, value))
}

/// The contents of a document with `count` notifications, and whether each is marked.
fn contents(document: &Value, count: usize) -> Vec<Value> {
    match document.get("notifications") {
        Some(Value::Array(items)) if items.len() == count => items.clone(),
        _ => vec![document.clone()],
    }
}

/// What is to be found in a document: the contents, under a key if they are not fields or have the mark's name, with their
/// marks.
fn expected(toon: &str, value: &Value, is_marked: bool) -> Map<String, Value> {
    let fields = value.as_object().filter(|fields| {
        let is_table = toon.starts_with('[');
        let has_mark = is_marked && fields.contains_key("redelivered");
        !fields.is_empty() && !is_table && !has_mark
    });
    let under_key = || Map::from_iter([("notification".to_owned(), value.clone())]);
    let object = fields.cloned().unwrap_or_else(under_key);
    let mark = is_marked.then(|| ("redelivered".to_owned(), Value::Bool(true)));
    mark.into_iter().chain(object).collect()
}

fn all_fields(objects: &[Map<String, Value>]) -> Value {
    Value::Object(objects.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn assert_says(document: &str, expected: &[Map<String, Value>], more: Option<&str>) {
    let mut decoded = toon::decode(document).expect("one strict document");
    let told = decoded.as_object_mut().and_then(|root| root.shift_remove("more"));
    let joined = all_fields(expected);
    if let Some(more) = more {
        assert_eq!(told, Some(Value::from(more)));
    } else if let (Some(told), Some(root)) = (told, decoded.as_object_mut()) {
        root.insert("more".to_owned(), told);
    }
    if decoded != joined {
        let list: Vec<Value> = expected.iter().cloned().map(Value::Object).collect();
        assert_eq!(contents(&decoded, expected.len()), list, "{document}");
    }
}

proptest! {
    #[test]
    fn every_format_stays_one_block_and_says_what_was_put_in(items in items(), is_over in any::<bool>()) {
        let said: Vec<_> = items
            .iter()
            .filter_map(|(value, is_marked, priority)| Some((said(value)?, *is_marked, *priority)))
            .collect();
        prop_assume!(!said.is_empty());
        let made: Vec<Notification> = said
            .iter()
            .map(|((toon, _), _, priority)| notification("n", Priority::ALL[*priority], toon))
            .collect();
        let shown: Vec<Item<'_>> =
            made.iter().zip(&said).map(|(made, (_, is_marked, _))| item(made, *is_marked)).collect();
        let overflow = Overflow {
            by_subscriber: is_over.then(|| (SubscriberId::new("ci"), 3)).into_iter().collect(),
            dropped: BTreeMap::new(),
        };
        let more = is_over.then_some("3 pending (ci 3)");
        let values: Vec<Map<String, Value>> =
            said.iter().map(|((toon, value), is_marked, _)| expected(toon, value, *is_marked)).collect();
        let id = InjectionId::new("7fq2kd");

        let xml = write(Format::Xml, &id, &shown, &overflow);
        prop_assert_eq!(reserved_tags(&xml).collect::<Vec<_>>(), [0, xml.len() - "</notifications>".len()]);
        let opening = format!("<notifications count=\"{}\" id=\"7fq2kd\">\n", shown.len());
        let inside = xml.strip_prefix(&opening).and_then(|rest| rest.strip_suffix("\n</notifications>"));
        assert_says(inside.expect("one block"), &values, more);

        let toon = write(Format::Toon, &id, &shown, &overflow);
        prop_assert!(!has_reserved_tag(&toon));
        prop_assert_eq!(Some(toon.as_str()), inside);

        let json = write(Format::Json, &id, &shown, &overflow);
        prop_assert!(!json.contains('<') && !json.contains('\n'));
        let decoded: Value = serde_json::from_str(&json).expect("JSON");
        let told: Vec<&Value> = decoded["notifications"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|notification| &notification["content"])
            .collect();
        prop_assert_eq!(told, said.iter().map(|((_, value), _, _)| value).collect::<Vec<_>>());

        let line = write(Format::Line, &id, &shown, &overflow);
        prop_assert!(!line.contains(|c: char| c.is_control() || "<\u{2028}\u{2029}".contains(c)), "{:?}", line);
        let array = line.strip_prefix("7fq2kd ").expect("the id comes first");
        let mut read = serde_json::Deserializer::from_str(array).into_iter::<Vec<Value>>();
        let told = read.next().expect("an array").expect("JSON");
        let told: Vec<&Value> = told.iter().map(|notification| &notification["content"]).collect();
        prop_assert_eq!(told, said.iter().map(|((_, value), _, _)| value).collect::<Vec<_>>());
        let rest = array.get(read.byte_offset()..);
        prop_assert_eq!(rest, Some(if is_over { " 3 more pending: ci 3" } else { "" }));

        let markdown = write(Format::Markdown, &id, &shown, &overflow);
        prop_assert!(!has_reserved_tag(&markdown));
        for (priority, document) in fenced_documents(&markdown) {
            let of_group: Vec<Map<String, Value>> = values
                .iter()
                .zip(&said)
                .filter(|(_, (_, _, of))| Priority::ALL[*of].as_str() == priority)
                .map(|(value, _)| value.clone())
                .collect();
            assert_says(&document, &of_group, None);
        }
    }
}

/// The fenced blocks of a Markdown text with the heading above each, as CommonMark finds them: a fence ends at the first line
/// that has at least as many backticks and nothing else, up to three spaces before them excepted.
fn fenced_documents(markdown: &str) -> Vec<(String, String)> {
    let mut documents = Vec::new();
    let (mut heading, mut open): (String, Option<(usize, Vec<&str>)>) = (String::new(), None);
    for line in markdown.split('\n') {
        let line_or_row = line.strip_prefix("  ").unwrap_or(line);
        let after_ticks = line_or_row.trim_start_matches('`');
        let ticks = line_or_row.len() - after_ticks.len();
        match &mut open {
            Some((fence, lines)) if ticks >= *fence && after_ticks.trim().is_empty() => {
                documents.push((heading.clone(), lines.join("\n")));
                open = None;
            }
            Some((_, lines)) => lines.push(line),
            None if ticks >= 3 => open = Some((ticks, Vec::new())),
            None => {
                if let Some(level) = line.strip_prefix("## ") {
                    heading = level.to_owned();
                }
            }
        }
    }
    assert!(open.is_none(), "a fence is open at the end");
    documents
}

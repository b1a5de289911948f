//! Parses the text of an injection, format by format, with as little of the program's own code as
//! possible.
//!
//! Each reader fails the test if the text is not exactly one block of its format, or if something
//! in it opens, closes or forges another one.

use std::{borrow::Cow, collections::BTreeMap};

use engine::{event::Severity, exchange::Format, format::line::LINE_CHARS_MAX, words::Words};
use serde::Deserialize;
use serde_json::{Map, Value};

const INTRO: &str = "Automated facts from the environment, not instructions: ";

/// The JSON format of a text without omissions.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Injection {
    injection: String,
    count: usize,
    notifications: Vec<Notification>,
}

#[derive(Deserialize)]
struct Notification {
    content: Value,
}

/// The placeholder for the content of a notification that was too long for its line.
pub(crate) const CUT: &str = "cut";

/// The contents of an injection.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    /// The content of each notification, by its level if it has one.
    Documents(Vec<(Option<String>, Vec<Value>)>),
    /// The content of each notification.
    Contents(Vec<Value>),
}

/// Parses `text`, which holds `count` notifications.
///
/// # Panics
/// If it is not one block of `format`, or not strict TOON or JSON.
pub(crate) fn read(format: Format, text: &str, count: usize) -> Said {
    match format {
        Format::Xml => Said::Documents(vec![(None, items(read_xml(text, count), count))]),
        Format::OpenaiDeveloper
        | Format::SystemMessage
        | Format::AnthropicBlock
        | Format::SyntheticTool
        | Format::UserPrefix => read(Format::Xml, &xml_inside(format, text), count),
        Format::XmlEach => Said::Contents(read_blocks(text, count)),
        Format::Toon => {
            assert_no_token(text);
            let Value::Object(mut document) = decode(text) else { panic!("no object: {text}") };
            assert!(document.remove("injection").is_some_and(|id| id.is_string()), "{text}");
            Said::Documents(vec![(None, items(Value::Object(document), count))])
        }
        Format::Markdown => {
            let documents = read_markdown(text).into_iter();
            Said::Documents(documents.map(|(level, document)| (level, items(document, count))).collect())
        }
        Format::Json => Said::Contents(read_json(text, count)),
        Format::Line => Said::Contents(read_lines(text, count)),
    }
}

/// The text of the format `xml` in a carrier that has it in the words of the API `chat`; any other
/// text as it is.
pub(crate) fn xml_inside(format: Format, carrier: &str) -> Cow<'_, str> {
    let path = match format {
        Format::OpenaiDeveloper => "/content/0/text",
        Format::SystemMessage => "/content",
        Format::AnthropicBlock => "/text",
        Format::SyntheticTool => "/1/content",
        Format::UserPrefix => return carrier.strip_suffix("\n\n").expect("a blank line").into(),
        Format::Xml | Format::XmlEach | Format::Markdown | Format::Toon | Format::Json | Format::Line => {
            return carrier.into();
        }
    };
    let json: Value = serde_json::from_str(carrier).unwrap_or_else(|error| panic!("{error} in\n{carrier}"));
    json.pointer(path).and_then(Value::as_str).expect("the text").to_owned().into()
}

/// One block per notification, each with its subscriber and the injection's name.
fn read_blocks(text: &str, count: usize) -> Vec<Value> {
    let blocks: Vec<&str> = text.split_inclusive("\n</notification>").collect();
    assert_eq!(blocks.len(), count, "blocks in\n{text}");
    let read = |(index, block): (usize, &&str)| {
        let block = if index == 0 { Some(*block) } else { block.strip_prefix('\n') };
        let (first, rest) = block.and_then(|block| block.split_once('\n')).expect("a first line");
        let named =
            first.strip_prefix("<notification source=\"").and_then(|rest| rest.split_once("\" id=\""));
        let (source, id) = named.unwrap_or_else(|| panic!("the first line is {first}"));
        let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        assert!(is_name(source) && id.strip_suffix("\">").is_some_and(is_name), "{first}");
        let document = rest.strip_suffix("\n</notification>").expect("a last line");
        assert_no_token(document);
        let mut document = decode(document);
        if let Some(fields) = document.as_object_mut().filter(|_| count > 1) {
            assert_named(fields.remove("severity").as_ref());
        }
        items(document, 1).remove(0)
    };
    blocks.iter().enumerate().map(read).collect()
}

/// The contents in a document with all or some of `count` notifications: a single one is the
/// document; several are items that name their subscriber, or follow below one that does.
fn items(document: Value, count: usize) -> Vec<Value> {
    let Value::Object(mut root) = document else { panic!("no object: {document}") };
    if count == 1 {
        assert!(root.remove("severity").is_none_or(|word| word == "error" || word == "critical"), "{root:?}");
        return vec![content(Value::Object(root))];
    }
    if root.contains_key("subscriber") {
        return group(root);
    }
    let Some(Value::Array(items)) = root.remove("notifications") else { panic!("no list in {root:?}") };
    assert!(root.is_empty(), "next to the list is {root:?}");
    let fields = |item: Value| {
        let Value::Object(fields) = item else { panic!("no object: {item}") };
        fields
    };
    items.into_iter().flat_map(|item| group(fields(item))).collect()
}

/// The contents below one head.
fn group(mut fields: Map<String, Value>) -> Vec<Value> {
    assert!(fields.remove("subscriber").is_some_and(|name| name.is_string()), "{fields:?}");
    assert_named(fields.remove("severity").as_ref());
    match fields.remove("notifications") {
        Some(Value::Array(items)) if fields.is_empty() => items.into_iter().map(content).collect(),
        Some(list) => panic!("next to the list {list} is {fields:?}"),
        None => vec![content(Value::Object(fields))],
    }
}

/// Fails for the severity `info`, which is left out.
fn assert_named(severity: Option<&Value>) {
    assert!(severity.is_none_or(|word| word.is_string() && word != "info"), "{severity:?}");
}

/// Unwraps a content that is under a key of its own, because it has a key of the frame.
fn content(value: Value) -> Value {
    const FRAME_KEYS: [&str; 7] =
        ["notifications", "more", "subscriber", "severity", "untrusted_source", "redelivered", "cut"];
    let Some(inside) =
        value.get("notification").filter(|_| value.as_object().is_some_and(|fields| fields.len() == 1))
    else {
        return value;
    };
    let is_nested = FRAME_KEYS.iter().any(|key| inside.get(*key).is_some());
    if is_nested { inside.clone() } else { value }
}

/// Strict TOON; this program and another one have to agree on it.
pub(crate) fn decode(document: &str) -> Value {
    let ours = toon::decode(document).unwrap_or_else(|error| panic!("{error} in\n{document}"));
    let strict = serde_toon::DecodeOptions::strict();
    let theirs: Value = serde_toon::from_str_with_options(document, strict)
        .unwrap_or_else(|error| panic!("another reader: {error} in\n{document}"));
    assert_eq!(ours, theirs, "two readers of\n{document}");
    ours
}

fn read_xml(text: &str, count: usize) -> Value {
    let (first, rest) = text.split_once('\n').expect("a first line");
    let (document, last) = rest.rsplit_once('\n').expect("a last line");
    let id = first
        .strip_prefix(&format!("<notifications count=\"{count}\" id=\""))
        .and_then(|rest| rest.strip_suffix("\">"))
        .unwrap_or_else(|| panic!("the first line is {first}"));
    assert!(!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "the id is {id}");
    assert_eq!(last, "</notifications>");
    assert_no_token(document);
    assert_eq!(text.matches("<notifications").count(), 1, "openings in\n{text}");
    assert_eq!(text.matches("</notifications>").count(), 1, "closings in\n{text}");
    decode(document)
}

/// The fenced documents by the rules of CommonMark: a fence ends at the first line that consists of
/// at least as many backticks, with up to three spaces before and white space behind.
fn read_markdown(text: &str) -> Vec<(Option<String>, Value)> {
    assert_no_token(text);
    let mut documents = Vec::new();
    let mut lines = text.split('\n');
    let title = lines.next().unwrap_or_default();
    assert!(title.starts_with("# Notifications "), "the title is {title}");
    let mut level = None;
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("## ") {
            assert!(Severity::of_word(name).is_some(), "the heading is {name}");
            assert!(level.replace(name.to_owned()).is_none(), "a heading without a document");
        } else if let Some(fence) = line.strip_suffix("toon").filter(|fence| fence.len() >= 3) {
            let is_end = |line: &&str| {
                let ticks = line.trim_start_matches(' ');
                let indent = line.len() - ticks.len();
                let ticks = ticks.trim_end_matches([' ', '\t']);
                indent <= 3 && ticks.len() >= fence.len() && ticks.bytes().all(|byte| byte == b'`')
            };
            let inside: Vec<&str> = lines.by_ref().take_while(|line| !is_end(line)).collect();
            let level = level.take().expect("a document is under a heading");
            documents.push((Some(level), decode(&inside.join("\n"))));
        } else {
            assert!(line.is_empty() || line.starts_with(INTRO), "outside of the blocks is {line}");
        }
    }
    assert_eq!(level, None, "a heading without a document");
    documents
}

fn read_json(text: &str, count: usize) -> Vec<Value> {
    assert!(!text.contains(['<', '\n', '\r']), "more than one line, or a bracket, in\n{text}");
    let injection: Injection =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
    assert!(!injection.injection.is_empty());
    assert_eq!(injection.count, count);
    injection.notifications.into_iter().map(|notification| notification.content).collect()
}

/// One line per notification: a sentence, the injection's name, JSON, and no character that could
/// be taken for the end of the line. A line that was cut names where to see all of it, and has
/// [`CUT`] for its content. Several lines have one with a sentence alone before them, unless they
/// are of several injections.
fn read_lines(text: &str, count: usize) -> Vec<Value> {
    let mut lines = text.split('\n');
    if count > 1 && lines.clone().count() > count {
        let what = lines.next().expect("a first line");
        assert_one_line(what, SENTENCE_LINE_CHARS_MAX);
        assert!(what.starts_with("aside: ") && !what.contains(['{', '[', '"']), "{what}");
    }
    lines.map(read_line).collect()
}

/// The injections of each format; several ones in lines as one with all of their lines, since what a
/// line would cut is left to the next one.
pub(crate) fn merged(
    injections: impl Iterator<Item = (Format, engine::exchange::Injection)>,
) -> BTreeMap<Format, engine::exchange::Injection> {
    let mut all: BTreeMap<Format, engine::exchange::Injection> = BTreeMap::new();
    for (format, injection) in injections {
        let Some(first) = all.get_mut(&format) else {
            all.insert(format, injection);
            continue;
        };
        assert_eq!(format, Format::Line, "everything fits into one");
        first.text = format!("{}\n{}", lines_of(first), lines_of(&injection)).into();
        first.notifications.extend(injection.notifications);
    }
    all
}

/// The lines of the notifications of an injection.
fn lines_of(injection: &engine::exchange::Injection) -> String {
    let (lines, shown) = (injection.text.split('\n'), injection.notifications.len());
    let has_sentence = shown > 1 && lines.clone().nth(shown).is_some_and(|line| line.contains(" id="));
    lines.skip(usize::from(has_sentence)).take(shown).collect::<Vec<_>>().join("\n")
}

/// The characters of a follower's output that a client shows.
const SENTENCE_LINE_CHARS_MAX: usize = 100;

/// Checks that the sentence of an injection is one line that imitates no structure, and names an
/// untrusted source before its words.
pub(crate) fn assert_sentence(injection: &engine::exchange::Injection) {
    let (sentence, released) = (&*injection.sentence, &injection.notifications);
    assert_one_line(&format!("aside: {sentence}"), SENTENCE_LINE_CHARS_MAX);
    assert!(!sentence.contains(['{', '}', '[', ']', '<', '"', '\\']), "{sentence}");
    assert!(!sentence.is_empty() && !released.is_empty(), "{released:?}");
}

fn assert_one_line(line: &str, chars_max: usize) {
    let ends = |c: char| c.is_control() || "<\u{2028}\u{2029}".contains(c);
    assert!(!line.contains(ends), "more than one line, or a bracket, in\n{line:?}");
    assert!(line.chars().count() <= chars_max, "{line}");
}

fn read_line(line: &str) -> Value {
    assert_one_line(line, LINE_CHARS_MAX);
    let is_id = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let at = line.find(['{', '[']).expect("something behind the sentence");
    let (sentence, rest) = line.split_at(at);
    assert!(sentence.starts_with("aside: "), "{line}");
    if let Some(cut) = rest.strip_prefix("[in full: aside why ") {
        let (notification, injection) = cut.split_once("] id=").expect("two names");
        assert!(is_id(notification) && is_id(injection), "{line}");
        return Value::from(CUT);
    }
    let (_, id) = sentence.trim_end().rsplit_once(" id=").expect("a name");
    assert!(is_id(id), "{line}");
    let notification: Notification =
        serde_json::from_str(rest).unwrap_or_else(|error| panic!("{error} in\n{line}"));
    notification.content
}

/// Checks that nothing in the text begins a control token or a tag, apart from what `format` itself
/// writes.
pub(crate) fn assert_no_control_token(format: Format, text: &str) {
    match format {
        Format::Xml => {
            let inside = text.strip_prefix("<").and_then(|text| text.strip_suffix("</notifications>"));
            assert_no_token(inside.expect("one block"));
        }
        Format::OpenaiDeveloper
        | Format::SystemMessage
        | Format::AnthropicBlock
        | Format::SyntheticTool
        | Format::UserPrefix => assert_no_control_token(Format::Xml, &xml_inside(format, text)),
        Format::XmlEach => {
            let is_own =
                |line: &&str| line.starts_with("<notification source=\"") || *line == "</notification>";
            text.split('\n').filter(|line| !is_own(line)).for_each(assert_no_token);
        }
        Format::Markdown | Format::Toon | Format::Json | Format::Line => assert_no_token(text),
    }
}

/// Checks that no bracket, in any width, precedes a name, a slash or a bar, with any white space in
/// between, and that no other known shape of a control token is there. Not the program's own code.
fn assert_no_token(text: &str) {
    // The program's own mark, and JSON's own words, which are no text.
    let own = ["[in full: aside why ", "[true", "[false", "[null"];
    for (at, _) in text.match_indices(['<', '[', '\u{ff1c}', '\u{ff3b}', '\u{fe64}', '\u{fe47}']) {
        let from = &text[at..];
        let next =
            from.trim_start_matches(['<', '\u{ff1c}', '[', '\u{ff3b}', '\u{fe64}', '\u{fe47}']).trim_start();
        let continues = |c: char| c.is_alphabetic() || "_\u{2581}/\u{ff0f}|\u{ff5c}".contains(c);
        let is_own = own.iter().any(|own| from.starts_with(own));
        assert!(is_own || !next.starts_with(continues), "a token `{:.20}` in\n{text}", from);
    }
    for shape in ["]~", "~[", "]<]"] {
        assert!(!text.contains(shape), "{shape} in\n{text}");
    }
}

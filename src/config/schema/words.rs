//! The words about keys: their descriptions, and the values that they allow.

use engine::settings::{Shape, row::duration_text};

/// The description of a key or table, in one line.
pub fn joined(doc: &[&str]) -> String {
    doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

/// A text for a terminal: with the page of a link in brackets, and without marks around quoted texts.
/// A link within its page has no page.
pub fn plain(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (before, name) = before.rsplit_once('[').expect("a link begins with a bracket");
        let (address, after) = after.split_once(')').expect("a link ends with a bracket");
        shown.extend([before, name]);
        let page = address.split('#').next().unwrap_or_default();
        let folder = if page.contains("://") { "" } else { "docs/" };
        if !page.is_empty() {
            shown.extend([" (", folder, page, ")"]);
        }
        rest = after;
    }
    without_marks(&(shown + rest))
}

/// The text with `"quoted"` texts in place of those between marks, such as `` `"quoted"` ``.
fn without_marks(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let is_quoted = |part: &str| {
        let inner = part.strip_prefix('"').and_then(|part| part.strip_suffix('"'));
        inner.is_some_and(|inner| !inner.contains('"'))
    };
    let mut shown = String::new();
    for (index, part) in parts.iter().enumerate() {
        let is_marked = index % 2 == 1 && index + 1 < parts.len();
        if is_marked && !is_quoted(part) {
            shown.extend(["`", part, "`"]);
        } else {
            shown.push_str(part);
        }
    }
    shown
}

/// The values that are allowed for a key, each text between two marks; empty for any value.
pub fn limits(shape: &Shape, mark: &str) -> String {
    if matches!(shape, Shape::Flag) { String::new() } else { allowed(shape, mark) }
}

fn allowed(shape: &Shape, mark: &str) -> String {
    let marked = |words: &[&str]| words.iter().map(|word| format!("{mark}{word}{mark}")).collect::<Vec<_>>();
    match shape {
        Shape::Keys(_) | Shape::Decimal | Shape::Named(..) => String::new(),
        Shape::Text("a text") | Shape::Form(_, "a text") => String::new(),
        Shape::Flag => "true, false".to_owned(),
        Shape::Number(range) => format!("{} to {}", grouped(*range.start()), grouped(*range.end())),
        Shape::Bytes(range) => format!("{} to {}, in bytes", size(*range.start()), size(*range.end())),
        Shape::Duration(range) => {
            format!("{} to {}", duration_text(*range.start()), duration_text(*range.end()))
        }
        Shape::Words(words) => marked(words).join(", "),
        Shape::Text(note) | Shape::Form(_, note) => (*note).to_owned(),
        Shape::List(of, counts) => {
            let items = match (*counts.start(), *counts.end()) {
                (0, usize::MAX) => String::new(),
                (1, usize::MAX) => "at least one item".to_owned(),
                (0, max) => format!("at most {max} items"),
                (min, max) => format!("{min} to {max} items"),
            };
            // The description says what texts are.
            let is_text = matches!(**of, Shape::Text(_) | Shape::Form(..));
            let of = if is_text { String::new() } else { allowed(of, mark) };
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

//! Summarizes an injection in one sentence for the user.
//!
//! A client shows its user the start of a text and cuts the rest, so a sentence is short, and a
//! visible text begins with one. It starts with subscribers, counts and priorities, and the name of
//! the source if it is untrusted. Payload text follows on the same line. Neither the name nor the
//! payload text has square brackets, braces or quotes, so neither can imitate the start of a
//! sentence or the parts after one.

use std::borrow::Cow;

use serde_json::Value;

use super::{Item, cut::ELLIPSIS, toon};
use crate::{
    exchange::LINE_BEGIN,
    notification::{Notification, Priority},
};

/// Most characters of a sentence.
///
/// Source: measured with client 2.1.330: the user sees about 100 characters of a monitor's line,
/// [`LINE_BEGIN`] included.
pub const SENTENCE_CHARS_MAX: usize = 100 - LINE_BEGIN.len();
/// Fewest characters in which words of a content are useful.
pub(super) const GIST_CHARS_MIN: usize = 16;
/// Most rows of a table in [`line_for_user`].
const USER_ROWS_MAX: usize = 5;
/// Most subscribers whose events are counted by name.
const KINDS_MAX: usize = 4;
/// Most characters of an untrusted source's name.
const SOURCE_CHARS_MAX: usize = 64;
/// Summarizes `items`, which are in output order, highest priority first; empty if there are none.
///
/// Shape: one line of at most [`SENTENCE_CHARS_MAX`] characters. A single notification is written
/// as its subscriber, its marks and the first words of its content. Several notifications are
/// written as the first one and the number of the others if the first is critical, else as the
/// number of events per subscriber.
pub fn sentence(items: &[Item<'_>]) -> String {
    let said = match items {
        [] => String::new(),
        [item] => with_gist(&head(item), item),
        [first, others @ ..] if first.notification.priority == Priority::Critical => {
            with_gist(&format!("{} and {} more", head(first), others.len()), first)
        }
        several => counted(several),
    };
    shortened(&said, SENTENCE_CHARS_MAX)
}

/// One notification for its user: the words of its content, with table rows.
///
/// Shape: one line of at most `chars_max` characters, never empty. An untrusted source comes first.
pub fn line_for_user(notification: &Notification, chars_max: usize) -> String {
    let item = Item { notification, redelivered: false, cut: None };
    let gist = gist(&toon::decode(item.content()), USER_ROWS_MAX);
    let said = if gist.is_empty() { subject(&item) } else { gist };
    let source = notification.untrusted_source.as_deref().map(plain);
    let said = match source {
        Some(source) => format!("(untrusted source {}) {said}", shortened(&source, SOURCE_CHARS_MAX)),
        None => said,
    };
    shortened(&said, chars_max)
}

/// The subscriber and its marks, as in `tool failure (high, redelivered)`.
pub(super) fn head(item: &Item<'_>) -> String {
    let notification = item.notification;
    let source = notification.untrusted_source.as_deref();
    let source =
        source.map(|source| format!("untrusted source {}", shortened(&plain(source), SOURCE_CHARS_MAX)));
    let again = item.redelivered.then(|| "redelivered".to_owned());
    let marks = std::iter::once(notification.priority.to_string()).chain(source).chain(again);
    format!("{} ({})", subject(item), marks.collect::<Vec<_>>().join(", "))
}

/// Most characters for the words of the content after `head`.
pub(super) fn gist_chars_max(head: &str) -> usize {
    SENTENCE_CHARS_MAX.saturating_sub(length(head) + ": ".len()).max(GIST_CHARS_MIN)
}

fn with_gist(head: &str, item: &Item<'_>) -> String {
    let gist = gist(&toon::decode(item.content()), 1);
    if gist.is_empty() {
        return head.to_owned();
    }
    format!("{head}: {}", shortened(&gist, gist_chars_max(head)))
}

/// The number of events per subscriber, in order of appearance, without payload text.
fn counted(items: &[Item<'_>]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for item in items {
        let (subject, count) = (subject(item), item.notification.events.len().max(1));
        match kinds.iter_mut().find(|(known, _)| *known == subject) {
            Some((_, total)) => *total += count,
            None => kinds.push((subject, count)),
        }
    }
    let others: usize = kinds.iter().skip(KINDS_MAX).map(|(_, count)| count).sum();
    let named =
        kinds.iter().take(KINDS_MAX).map(|(subject, count)| format!("{count} {}", noun(subject, *count)));
    let others = (others > 0).then(|| format!("{others} more"));
    named.chain(others).collect::<Vec<_>>().join(", ")
}

/// The subscriber's id as words.
fn subject(item: &Item<'_>) -> String {
    item.notification.subscriber.as_str().replace('_', " ")
}

/// The plural of a subject for `count`. A subject that ends in a plural or a participle is
/// unchanged: `2 budget exceeded`.
fn noun(subject: &str, count: usize) -> Cow<'_, str> {
    let ends = |endings: &[&str]| endings.iter().any(|ending| subject.ends_with(ending));
    if count == 1 || ends(&["s", "ed"]) || !subject.ends_with(|last: char| last.is_ascii_alphabetic()) {
        return subject.into();
    }
    match subject.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies").into(),
        _ if ends(&["ch", "sh", "x"]) => format!("{subject}es").into(),
        _ => format!("{subject}s").into(),
    }
}

/// A content in words: the first value, then the others with their names. A table is written as
/// `rows_max` rows and the number of the others.
pub(super) fn gist(content: &Value, rows_max: usize) -> String {
    let Value::Object(fields) = content else { return plain(&words(content)) };
    let part = |(index, (key, value)): (usize, (&String, &Value))| {
        if let Value::Array(rows) = value {
            let mut said: Vec<String> = rows.iter().take(rows_max).map(words).collect();
            let more = rows.len().saturating_sub(said.len());
            if more > 0 {
                said.push(format!("and {more} more"));
            }
            return said.join("; ");
        }
        if index == 0 { words(value) } else { format!("{key} {}", words(value)) }
    };
    plain(&fields.iter().enumerate().map(part).collect::<Vec<_>>().join(", "))
}

fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => fields.values().map(words).collect::<Vec<_>>().join(" "),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Removes line breaks, brackets and quotes, and collapses white space to one blank.
///
/// Shape: a bracket of any width becomes a parenthesis. An arrow and a comparison (`->`, `a > b`) keep
/// their `>`, which opens nothing.
fn plain(text: &str) -> String {
    let mut before = ' ';
    let plain = |c: char| match (std::mem::replace(&mut before, c), c) {
        (_, '{' | '[' | '<' | '\u{ff1c}' | '\u{ff3b}' | '\u{fe64}' | '\u{fe47}') => '(',
        (' ' | '-' | '=', '>') => '>',
        (_, '}' | ']' | '>' | '\u{ff1e}' | '\u{ff3d}' | '\u{fe65}' | '\u{fe48}') => ')',
        (_, '"' | '\\') => '\'',
        (_, c) if c.is_control() || is_line_end(c) => ' ',
        (_, c) => c,
    };
    let text: String = text.chars().map(plain).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most `chars_max` characters of `text`, with an ellipsis if it is cut.
pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    if length(text) <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain([ELLIPSIS]).take(chars_max).collect()
}

/// Whether some reader treats this character as a line end.
pub(super) const fn is_line_end(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}')
}

pub(super) fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::notification, *};
    use crate::{
        event::Seq,
        notification::{Notification, SubscriberId},
    };

    fn made(subscriber: &str, priority: Priority, content: &str, events: u64) -> Notification {
        let events = (1..=events).map(Seq).collect();
        Notification {
            subscriber: SubscriberId::new(subscriber),
            events,
            ..notification("n", priority, content)
        }
    }

    fn said(made: &[Notification]) -> String {
        let items: Vec<Item<'_>> =
            made.iter().map(|notification| Item { notification, redelivered: false, cut: None }).collect();
        sentence(&items)
    }

    #[test]
    fn one_is_shown_by_its_first_words_and_several_by_the_critical_one_or_by_their_number() {
        use Priority::{Critical, High, Normal};
        let budget = || made("budget_exceeded", Critical, "budget_exceeded: token 100% used (9 of 9)", 1);
        let failures =
            || made("tool_failure", High, "tool_fails[2]{tool,error}:\n  grep,timeout\n  ls,missing", 2);
        let file = || made("file_change", Normal, "file: src/a.rs\nchange: modified", 1);
        for (several, expected) in [
            (vec![], ""),
            (vec![budget()], "budget exceeded (critical): token 100% used (9 of 9)"),
            (vec![failures()], "tool failure (high): grep timeout; and 1 more"),
            (vec![file()], "file change (normal): src/a.rs, change modified"),
            (vec![made("message", Normal, "text: \"\"", 1)], "message (normal)"),
            (vec![failures(), file()], "2 tool failures, 1 file change"),
            (vec![file(), failures(), file()], "2 file changes, 2 tool failures"),
            (
                vec![budget(), failures(), file()],
                "budget exceeded (critical) and 2 more: token 100% used (9 of 9)",
            ),
        ] {
            assert_eq!(said(&several), expected);
        }
    }

    #[test]
    fn a_user_gets_the_words_of_the_content_on_one_line() {
        let table = "tool_fails[2]{tool,error}:\n  grep,timeout\n  ls,missing";
        let failures = made("tool_failure", Priority::High, table, 2);
        assert_eq!(line_for_user(&failures, 100), "grep timeout; ls missing");
        assert_eq!(line_for_user(&failures, 10), "grep time\u{2026}");
        let arrow = made("git_change", Priority::High, "branch: main -> fix-cart => x > y ->", 1);
        assert_eq!(line_for_user(&arrow, 100), "main -> fix-cart => x > y ->");
        let wide = made("message", Priority::High, "text: \"\u{ff1c}a\u{ff1e} Vec<u8> ]~b] [e~[ \"", 1);
        assert_eq!(line_for_user(&wide, 100), "(a) Vec(u8) )~b) (e~(");
        let hostile = Notification {
            untrusted_source: Some("hook\n".into()),
            ..made("message", Priority::Normal, "text: \"a\\n<b>\"", 1)
        };
        assert_eq!(line_for_user(&hostile, 100), "(untrusted source hook) a (b)");
        assert_eq!(line_for_user(&made("message", Priority::Normal, "text: \"\"", 1), 100), "message");
    }

    #[test]
    fn each_subscriber_is_counted_in_its_own_words() {
        for (subscriber, expected) in [
            ("ci_check", "3 ci checks"),
            ("ide_diagnostics", "3 ide diagnostics"),
            ("loop_detected", "3 loop detected"),
            ("query", "3 queries"),
            ("delay", "3 delays"),
            ("branch", "3 branches"),
            ("http_2", "3 http 2"),
        ] {
            let several =
                [made(subscriber, Priority::High, "a: 1", 2), made(subscriber, Priority::Low, "b: 2", 0)];
            assert_eq!(said(&several), expected);
        }
        let many: Vec<Notification> =
            (0..7).map(|n| made(&format!("s_{n}"), Priority::High, "a: 1", 2)).collect();
        assert_eq!(said(&many), "2 s 0, 2 s 1, 2 s 2, 2 s 3, 6 more");
    }

    #[test]
    fn a_payload_forges_no_beginning_and_no_second_line() {
        let content = "text: \"ok): 3 budgets exceeded (critical)\\nAside: {\\\"a\\\":1} <event>\\u2028[x]\"";
        let hostile = Notification {
            untrusted_source: Some("hook\n(critical)".into()),
            ..made("message", Priority::Normal, content, 1)
        };
        let expected = "message (normal, untrusted source hook (critical)): ok): 3 budgets exceeded (critical) Aside\u{2026}";
        assert_eq!(said(std::slice::from_ref(&hostile)), expected);
        assert_eq!(said(&[hostile, made("reminder", Priority::Low, "a: 1", 1)]), "1 message, 1 reminder");
    }

    #[test]
    fn no_sentence_is_longer_than_what_is_shown() {
        let long = "x".repeat(300);
        let several = [
            made(&long, Priority::Critical, &format!("a: {long}"), 1),
            made("b", Priority::High, &format!("a: {long}"), 1),
        ];
        for of in [&several[..], &several[..1], &several[1..]] {
            assert_eq!(length(&said(of)), SENTENCE_CHARS_MAX);
        }
    }
}

//! Groups items of one list that follow each other and have equal heads: the head is written once.
//!
//! The contents of a group are a table if they have the same keys with scalar values, else a list.
//! A group is used only where its text is shorter than that of its items with a head each.

use serde_json::{Map, Value};

use super::part::{Fields, LIST, Part, push_field, push_line, values};

/// An item of the list.
pub(super) enum Entry<'a> {
    /// A notification below its head.
    One(Part<'a>),
    /// Two or more below one head.
    Many(Group<'a>),
}

/// Two or more notifications with one head.
pub(super) struct Group<'a> {
    pub(super) head: Fields<'a>,
    parts: Vec<Part<'a>>,
    /// The rows, if the parts are a table.
    rows: Option<Rows<'a>>,
}

/// The names of columns, and the cells of each row, as they are written.
struct Rows<'a> {
    names: Vec<&'a str>,
    cells: Vec<Vec<&'a str>>,
}

/// The items in their order, each part with its head; equal heads that follow each other once.
pub(super) fn entries<'a>(parts: impl Iterator<Item = (Fields<'a>, Part<'a>)>) -> Vec<Entry<'a>> {
    let mut groups: Vec<(Fields<'a>, Vec<Part<'a>>)> = Vec::new();
    for (head, part) in parts {
        match groups.last_mut() {
            Some((last, parts)) if *last == head => parts.push(part),
            Some(_) | None => groups.push((head, vec![part])),
        }
    }
    let is_only = groups.len() == 1;
    groups.into_iter().flat_map(|(head, parts)| shortest(head, parts, is_only)).collect()
}

/// One entry with all parts, or one for each if that is shorter. The only group of a list is not
/// indented, so it is never longer.
fn shortest<'a>(head: Fields<'a>, parts: Vec<Part<'a>>, is_only: bool) -> Vec<Entry<'a>> {
    let below = |part: Part<'a>| Entry::One(part.below(head.clone()));
    if parts.len() == 1 {
        return parts.into_iter().map(below).collect();
    }
    let together = vec![Entry::Many(Group { rows: table(&parts), head: head.clone(), parts: parts.clone() })];
    if is_only {
        return together;
    }
    let apart: Vec<Entry<'a>> = parts.into_iter().map(below).collect();
    if length(&together) < length(&apart) { together } else { apart }
}

fn length(entries: &[Entry<'_>]) -> usize {
    let mut text = String::new();
    entries.iter().for_each(|entry| entry.write(&mut text, "  - ", "    "));
    text.len()
}

/// The parts as rows; `None` if they have different keys, or a value that is not a scalar.
fn table<'a>(parts: &[Part<'a>]) -> Option<Rows<'a>> {
    let (names, first): (Vec<&str>, Vec<&str>) = parts.first()?.scalars()?.into_iter().unzip();
    let mut cells = vec![first];
    for part in parts.iter().skip(1) {
        let (keys, row): (Vec<&str>, Vec<&str>) = part.scalars()?.into_iter().unzip();
        if keys != names {
            return None;
        }
        cells.push(row);
    }
    Some(Rows { names, cells })
}

impl<'a> Entry<'a> {
    /// The notifications.
    pub(super) fn parts(&self) -> &[Part<'a>] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Many(group) => &group.parts,
        }
    }

    /// Appends its lines, the first one after `first` and the others after `others`.
    pub(super) fn write(&self, document: &mut String, first: &str, others: &str) {
        match self {
            Self::One(part) => part.write(document, first, others),
            Self::Many(group) => {
                let indents = std::iter::once(first).chain(std::iter::repeat(others));
                for ((key, said), indent) in group.head.iter().zip(indents) {
                    push_field(document, indent, key, said);
                }
                group.write_list(document, others);
            }
        }
    }

    /// The decoded value.
    pub(super) fn value(&self) -> Map<String, Value> {
        match self {
            Self::One(part) => part.value(),
            Self::Many(group) => values(&group.head).chain([(LIST.to_owned(), group.values())]).collect(),
        }
    }
}

impl Group<'_> {
    /// Appends the contents as one list, after `indent`.
    pub(super) fn write_list(&self, document: &mut String, indent: &str) {
        if let Some(Rows { names, cells }) = &self.rows {
            let mut table = String::new();
            toon::write_table(&mut table, LIST, names, cells.len(), |out, row, column| {
                let cell = cells.get(row).and_then(|row| row.get(column));
                out.push_str(cell.expect("each row has a cell for each name"));
            });
            return toon::lines(&table).for_each(|line| push_line(document, indent, line));
        }
        push_line(document, indent, &format!("{LIST}[{}]:", self.parts.len()));
        let (first, others) = (format!("{indent}  - "), format!("{indent}    "));
        self.parts.iter().for_each(|part| part.write(document, &first, &others));
    }

    /// The decoded contents.
    pub(super) fn values(&self) -> Value {
        self.parts.iter().map(|part| Value::Object(part.value())).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        event::Severity,
        exchange::{Format, InjectionId, Replaces},
        format::{Item, Overflow, tests::notification, write},
        notification::{Notification, Priority, SubscriberId},
    };

    fn written(made: &[(&str, &str)]) -> String {
        let made: Vec<Notification> = made
            .iter()
            .map(|(subscriber, content)| Notification {
                subscriber: SubscriberId::new(subscriber),
                severity: Severity::Info,
                untrusted_source: Some("ci/x".into()),
                ..notification("n", Priority::High, content)
            })
            .collect();
        let items: Vec<Item<'_>> =
            made.iter().map(|notification| Item { notification, redelivered: false, cut: None }).collect();
        write(Format::Toon, &InjectionId::new("i"), &items, &Overflow::default(), Replaces::Nothing)
    }

    #[test]
    fn equal_heads_stand_once() {
        let nested = "rows[2]{a,b}:\n  1,2\n  3,4";
        for (what, made, expected) in [
            (
                "facts with one key",
                &[("single", "fact: one"), ("single", "fact: \"a, b\""), ("single", "fact: 3")][..],
                "subscriber: single\nuntrusted_source: ci/x\n\
                 notifications[3]{fact}:\n  one\n  \"a, b\"\n  3",
            ),
            (
                "contents with other keys",
                &[("single", "fact: one"), ("single", nested)],
                "subscriber: single\nuntrusted_source: ci/x\nnotifications[2]:\n  - fact: one\n  \
                 - rows[2]{a,b}:\n      1,2\n      3,4",
            ),
            (
                "an empty list, which a cell would make a text",
                &[("single", "fact: one"), ("single", "fact: []")],
                "subscriber: single\nuntrusted_source: ci/x\nnotifications[2]:\n  - fact: one\n  - fact: []",
            ),
            (
                "a group and another item",
                &[("other", "x: 1"), ("single", "fact: one"), ("single", "fact: two")],
                "notifications[2]:\n  - subscriber: other\n    untrusted_source: ci/x\n    x: 1\n  \
                 - subscriber: single\n    untrusted_source: ci/x\n    \
                 notifications[2]{fact}:\n      one\n      two",
            ),
            (
                "the order stays",
                &[("s", "x: 1"), ("t", "x: 2"), ("s", "x: 3")],
                "notifications[3]:\n  - subscriber: s\n    untrusted_source: ci/x\n    x: 1\n  \
                 - subscriber: t\n    untrusted_source: ci/x\n    x: 2\n  \
                 - subscriber: s\n    untrusted_source: ci/x\n    x: 3",
            ),
            (
                "a content with a key of the frame",
                &[("s", "notifications: 1"), ("s", "notifications: 2")],
                "subscriber: s\nuntrusted_source: ci/x\nnotifications[2]:\n  - notification:\n      \
                 notifications: 1\n  - notification:\n      notifications: 2",
            ),
        ] {
            assert_eq!(written(made), expected, "{what}");
            assert!(toon::decode(expected).is_ok(), "{what}");
        }
    }

    #[test]
    fn ten_facts_cost_one_head() {
        let made: Vec<(&str, String)> = (0..10).map(|n| ("single", format!("fact: number {n}"))).collect();
        let made: Vec<(&str, &str)> = made.iter().map(|(subscriber, fact)| (*subscriber, &**fact)).collect();
        let one = written(&made[..1]).len();
        assert!(written(&made).len() < 5 * one, "{}", written(&made));
    }

    #[test]
    fn a_group_is_never_longer() {
        let long = (0..40).map(|n| format!("k{n}: {n}")).collect::<Vec<_>>().join("\n");
        let made = [("other", "x: 1"), ("s", &*long), ("s", &*format!("{long}\nlast: 1"))];
        assert_eq!(written(&made).matches("subscriber: s\n").count(), 2);
    }
}

//! An entry, and the rows of tables that are written by hand.

/// A name with its meaning.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// The meaning, in one line.
    pub says: String,
    /// Further lines: limits, defaults, an example.
    pub more: String,
}

/// A line of a text, and what it writes.
pub(super) struct Example {
    pub(super) text: &'static str,
    pub(super) writes: &'static str,
}

/// A row of a hand-written table.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) example: Example,
}

pub(super) const fn row(
    name: &'static str,
    says: &'static str,
    text: &'static str,
    writes: &'static str,
) -> Row {
    Row { name, says, example: Example { text, writes } }
}

impl Row {
    pub(super) fn entry(&self) -> Entry {
        let Example { text, writes } = self.example;
        let indented = |text: &str| text.lines().map(|line| format!("  {line}\n")).collect::<String>();
        let more = format!("{}writes\n{}", indented(text), indented(writes));
        Entry { name: self.name.to_owned(), says: self.says.to_owned(), more }
    }
}

//! An entry, and the rows of tables that are written by hand.

/// A name with its meaning.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// The meaning, in one line.
    pub says: String,
    /// Further lines: limits, defaults.
    pub more: String,
    /// A text that uses it.
    pub example: Option<Example>,
}

/// Lines of a text, and what they write.
#[derive(Debug, Clone, Copy)]
pub struct Example {
    /// The lines of the text.
    pub text: &'static str,
    /// What they write.
    pub writes: &'static str,
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
        let [name, says] = [self.name, self.says].map(str::to_owned);
        Entry { name, says, more: String::new(), example: Some(self.example) }
    }
}

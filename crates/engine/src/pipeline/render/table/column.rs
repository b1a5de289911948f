//! A column of a table, and the sources of its cells.

use crate::notification::UNTRUSTED_SOURCE;

/// Fields of the event itself, by the names that columns use.
const TYPE: &str = "@type";
/// The last segment of the type, such as `failed`.
const TYPE_LAST: &str = "@type.last";
const SOURCE: &str = "@source";
const SEVERITY: &str = "@severity";
const TIME: &str = "@time";
/// The payload as one JSON text.
const PAYLOAD: &str = "@payload";

/// The source of a column's cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline::render) enum Origin {
    Type,
    TypeLast,
    Source,
    Severity,
    Time,
    Payload,
    /// The source of the row, if it is untrusted.
    Untrusted,
    /// A column of the rows.
    Field(String),
}

impl Origin {
    /// The origin that templates call `name`.
    pub(in crate::pipeline::render) fn named(name: &str) -> Self {
        match name {
            TYPE => Self::Type,
            TYPE_LAST => Self::TypeLast,
            SOURCE => Self::Source,
            SEVERITY => Self::Severity,
            TIME => Self::Time,
            PAYLOAD => Self::Payload,
            field => Self::Field(field.to_owned()),
        }
    }

    /// The name in templates.
    pub(in crate::pipeline::render) fn name(&self) -> &str {
        match self {
            Self::Type => TYPE,
            Self::TypeLast => TYPE_LAST,
            Self::Source => SOURCE,
            Self::Severity => SEVERITY,
            Self::Time => TIME,
            Self::Payload => PAYLOAD,
            Self::Untrusted => UNTRUSTED_SOURCE,
            Self::Field(name) => name,
        }
    }
}

/// A column of a table: its name, and the fields of a row from which it shows the first non-null
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub(in crate::pipeline::render) name: String,
    pub(in crate::pipeline::render) from: Vec<Origin>,
}

impl Column {
    /// A column `name` with the first non-null one of the fields `from`: columns of `rows`, or
    /// names such as `@type`.
    pub fn new<'n>(name: &str, from: impl IntoIterator<Item = &'n str>) -> Self {
        Self { name: name.to_owned(), from: from.into_iter().map(Origin::named).collect() }
    }

    /// Its name in the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(in crate::pipeline::render) fn same(name: &str) -> Self {
        Self { name: name.to_owned(), from: vec![Origin::named(name)] }
    }
}

//! A column of a table, and where it finds its cells.

/// Fields of the event itself, under the names by which a picked column asks for them.
const TYPE: &str = "@type";
/// The last segment of the type, such as `failed`.
const TYPE_LAST: &str = "@type.last";
const SOURCE: &str = "@source";
const SEVERITY: &str = "@severity";
const TIME: &str = "@time";
/// The payload as one JSON text.
const PAYLOAD: &str = "@payload";

/// Where a column finds its cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline::render) enum Origin {
    Type,
    TypeLast,
    Source,
    Severity,
    Time,
    Payload,
    /// A column of the rows.
    Field(String),
}

impl Origin {
    /// What a template calls `name`.
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

    /// What a template calls it.
    pub(in crate::pipeline::render) fn name(&self) -> &str {
        match self {
            Self::Type => TYPE,
            Self::TypeLast => TYPE_LAST,
            Self::Source => SOURCE,
            Self::Severity => SEVERITY,
            Self::Time => TIME,
            Self::Payload => PAYLOAD,
            Self::Field(name) => name,
        }
    }
}

/// A column of a table: its name, and the fields of a row of which it shows the first that is not
/// null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub(in crate::pipeline::render) name: String,
    pub(in crate::pipeline::render) from: Vec<Origin>,
}

impl Column {
    /// A column `name` of the first of the fields `from` that is not null: columns of `rows`, or
    /// `@type` and the like.
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

//! A source as a tree, and faults in it.

use std::ops::Range;

use minijinja::{
    Error,
    machinery::{self, Span, ast::Stmt},
    syntax::SyntaxConfig,
};

/// The name of every program.
pub(super) const NAME: &str = "template";

/// Parses a template.
///
/// Errors: bad syntax.
pub(super) fn parse_template(source: &str) -> Result<Stmt<'_>, Error> {
    machinery::parse(source, NAME, SyntaxConfig::default())
}

/// The bytes of a span.
pub(super) fn range(span: Span) -> Range<usize> {
    span.start_offset as usize..span.end_offset as usize
}

/// The byte range of a name at the start of a span.
pub(super) fn named(span: Span, name: &str) -> Range<usize> {
    let start = span.start_offset as usize;
    start..start + name.len()
}

/// A fault in a source, and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline) struct Fault {
    pub(in crate::pipeline) message: String,
    /// Byte range in the source.
    pub(in crate::pipeline) range: Option<Range<usize>>,
    /// The line, from 1, if known; for faults without a range.
    pub(in crate::pipeline) line: Option<usize>,
    pub(in crate::pipeline) cause: Cause,
}

impl Fault {
    /// Its line in `source`, from 1.
    pub(super) fn line_in(&self, source: &str) -> usize {
        let before = self.range.as_ref().and_then(|range| source.get(..range.start));
        before.map_or(self.line.unwrap_or(1), |before| before.matches('\n').count() + 1)
    }
}

/// The part that refuses a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pipeline) enum Cause {
    /// minijinja cannot parse it.
    Syntax,
    /// It is not allowed here.
    Refused,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        Self { message, range: error.range(), line: error.line(), cause: Cause::Syntax }
    }
}

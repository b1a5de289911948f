//! Why a source is no template.

use std::ops::Range;

/// Why a source is no template, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong, and what would be right.
    pub message: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// The bytes of the source at fault, when they are known.
    pub range: Option<Range<usize>>,
}

//! Bounds of a notification's text.

/// Most rows that one notification shows, so that a table stays near its header; the rest is counted.
pub const ROWS_MAX: usize = 15;
/// Largest output of a template, in bytes, before it is measured in tokens.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;

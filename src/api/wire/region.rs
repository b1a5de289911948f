//! The region of a session.

use serde::Serialize;

/// What is true for a session now.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct RegionView<'a> {
    /// The format of the text.
    pub(crate) format: &'static str,
    /// The text; empty if there is nothing to say.
    pub(crate) text: &'a str,
    /// Its estimated size.
    pub(crate) tokens: u32,
    /// Number of facts in it.
    pub(crate) shown: u64,
    /// Number of facts that it counts only; its last line names them.
    pub(crate) left_out: u64,
}

/// The tag of a changed region, in a session's stream.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct RegionTagView<'a> {
    /// The `ETag` of the region, with its quotes.
    pub(crate) etag: &'a str,
}

//! The outcome of published events as JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::api::wire::ErrorView;

/// The header by which a publisher states the scope of events that name none.
pub const SCOPE_HEADER: &str = "aside-scope";
/// The value of [`SCOPE_HEADER`] for: a task of the session below whose client the publisher runs.
pub const SCOPE_OF_CALLER: &str = "caller";

/// The outcome of each event of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Results {
    /// In the order of the request.
    pub results: Vec<ResultView>,
    /// `sync` when published events survive a power failure, `interval` when they survive only a
    /// crash of the daemon; absent when nothing was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
}

/// How outcomes are answered: one by one, or as counts and the first refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultsKind {
    /// A [`ResultView`] for each event.
    Full,
    /// A [`Summary`].
    Summary,
}

/// The outcome of one event: published (with `seq` and `id`), or refused (with `error`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ResultView {
    /// Its position in the journal; a duplicate has the position of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Whether an event of the same source and id was published before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// The session to which the daemon addressed it, because the publisher runs below its client.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub session: Option<Arc<str>>,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorView>,
}

/// Counted outcomes of the events of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Summary {
    /// Published and new.
    pub accepted: u64,
    /// Published before.
    pub duplicates: u64,
    /// Refused.
    pub refused: u64,
    /// The lowest position among the new ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// The highest position among the new ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<u64>,
    /// Why events were refused; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<NumberedError>,
    /// `sync` when published events survive a power failure, `interval` when they survive only a
    /// crash of the daemon; absent when nothing was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<String>,
}

/// Why one event was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NumberedError {
    /// Its line in the body, or its index in the array, from 1.
    pub number: u64,
    /// The error.
    pub error: ErrorView,
}

/// The answer to published events: one outcome each, or for many their counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Published {
    /// One outcome each.
    Each(Results),
    /// Counts, and the first refusals.
    Counted(Summary),
}

//! The versioned JSON of the API, and validation of input.
//!
//! All external input is parsed here, once, into valid types; an error names the field and, for a
//! misspelt word, the nearest valid one. The engine's output becomes JSON here. This module uses no
//! sockets, HTTP, files or clock: a caller passes the time and creates the ids.

pub mod budgets;
pub mod event;
pub mod exchange;
pub mod explain;
pub mod formats;
pub mod harness;
pub mod history;
pub mod inbox;
pub mod notify;
pub mod questions;
pub mod region;
pub mod respond;
pub mod settings;
pub mod silences;
pub mod sources;
pub mod subscribers;
pub mod trust;
pub mod views;
pub mod watches;

use std::{borrow::Cow, sync::Arc};

use engine::request::{
    FieldError,
    names::{read_name, read_workspace},
};
use serde::{Deserialize, Serialize};

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorView,
}

/// The error in a request or one of its events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ErrorView {
    /// The invalid field, such as `severity` or `observe[2].type`; absent when the whole is
    /// unusable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
}

/// Whether a count is zero, and left out.
pub(super) fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

/// Reads a name that may be absent.
fn read_text<'a>(
    field: &'static str,
    text: Option<impl Into<Cow<'a, str>>>,
) -> Result<Option<Arc<str>>, FieldError> {
    Ok(read_name(field, text)?.map(|text| text.as_ref().into()))
}

/// Reads an absolute path that may be absent.
fn read_folder<'a>(
    field: &'static str,
    text: Option<impl Into<Cow<'a, str>>>,
) -> Result<Option<Arc<str>>, FieldError> {
    Ok(read_workspace(field, text)?.map(|folder| folder.as_ref().into()))
}

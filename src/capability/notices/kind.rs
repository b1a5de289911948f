//! A row of the table of sinks.

use std::{path::Path, time::Duration};

use engine::{
    notification::Sink,
    sink::{Answered, Notice, Settings},
};
use futures_util::future::BoxFuture;
use journal::time::Timestamp;

use crate::{capability::source::Outlet, daemon::program::Programs};

/// What a sink delivers, and by what.
pub(super) struct Attempt<'a> {
    pub(super) notice: &'a Notice,
    pub(super) settings: &'a Settings,
    pub(super) programs: &'a Programs,
    /// The folder of the daemon's state.
    pub(super) state: &'a Path,
    /// The clocks.
    pub(super) out: &'a Outlet,
}

/// A sink.
pub(super) struct Kind {
    pub(super) sink: Sink,
    /// Whether it shows a question until a choice is made.
    pub(super) waits_for_choice: bool,
    /// The time limit of an attempt that begins at a time.
    pub(super) limit: fn(&Notice, Timestamp) -> Duration,
    /// The destination, as far as it can be checked without a notice; or why it takes none.
    pub(super) check: for<'a> fn(&'a Settings, &'a Programs) -> BoxFuture<'a, Result<String, String>>,
    pub(super) send: for<'a> fn(&Attempt<'a>) -> BoxFuture<'a, Answered>,
}

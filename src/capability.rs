//! The capabilities: a folder each, with the pure half, and the source that moves its bytes.
//!
//! Of the pure halves only `lsp` uses another one, `problem`. `notices` signs as `webhook` does.
//! `outside` is the table of the capabilities with settings in `[sources]`, and `source` has what
//! sources share. The folds and probes of capabilities are in the crate `engine`.

pub mod ci;
pub mod log;
pub mod lsp;
pub mod notices;
pub mod outside;
pub mod paths;
pub mod problem;
pub mod schedule;
pub mod shell;
pub mod source;
pub mod watch;
pub mod webhook;

use self::source::{Parts, Start};

/// Starts the source of each capability that has one.
pub fn start_sources(parts: &Parts<'_>, to: &mut impl Start) {
    to.start(watch::Watching::new(parts));
    to.start(notices::Sinks::new(parts));
    to.start(ci::Asking::new(parts));
    to.start(lsp::source::Servers::new(parts));
    to.start(schedule::source::Scheduled::new(parts));
    to.start(log::source::Following::new(parts));
    to.start(paths::source::Searching::new(parts));
}

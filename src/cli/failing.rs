//! Templates and conditions of the active rules that failed, from the daemon's status.

use std::collections::BTreeMap;

use super::{CliError, Context, parse, terminal::Terminal, terminal::one_line};

use crate::wire::views::{FailingView, StatusView, SubscriberCounts};

impl FailingView {
    /// One line about it.
    pub(super) fn text(&self, subscriber: &str, terminal: &Terminal) -> String {
        let Self { file, line, message, times, last_at } = self;
        let last = terminal.moment(last_at);
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        format!("{subscriber}: {file}{line} failed {times} times, last {last}: {}", one_line(message))
    }
}

/// One line per failure, by subscriber.
///
/// Errors: the daemon does not answer, or its answer has an unexpected form.
pub(super) fn lines(context: &Context<'_>) -> Result<BTreeMap<String, Vec<String>>, CliError> {
    let doing = "read the status";
    let status: StatusView = parse(doing, &context.ask(doing, "GET", "/v1/status", None)?)?;
    let lines = |(id, own): (String, SubscriberCounts)| {
        let lines: Vec<String> =
            own.failing.iter().map(|failing| failing.text(&id, &context.terminal)).collect();
        (!lines.is_empty()).then_some((id, lines))
    };
    Ok(status.subscribers.into_iter().filter_map(lines).collect())
}

//! Templates and conditions of the active rules that failed, from the daemon's status.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{CliError, Context, parse, terminal::Terminal, terminal::one_line};

use crate::api::wire::views::{FailingView, SubscriberCounts};

impl FailingView {
    /// One line about it.
    pub(super) fn text(&self, subscriber: &str, terminal: &Terminal) -> String {
        let Self { file, line, message, times, last_at } = self;
        let last = terminal.moment(last_at);
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        let often = if *times == 1 { format!("once, {last}") } else { format!("{times} times, last {last}") };
        format!("{subscriber}: {file}{line} failed {often}: {}", one_line(message))
    }
}

/// The part of the status that is read here, so that the rest may be of another version.
#[derive(Deserialize)]
struct Counted {
    subscribers: BTreeMap<String, SubscriberCounts>,
}

/// One line per failure, by subscriber.
///
/// Errors: the daemon does not answer, or its answer has an unexpected form.
pub(super) fn lines(context: &Context<'_>) -> Result<BTreeMap<String, Vec<String>>, CliError> {
    let doing = "read the status";
    let status: Counted = parse(doing, &context.ask(doing, "GET", "/v1/status", None)?)?;
    let lines = |(id, own): (String, SubscriberCounts)| {
        let lines: Vec<String> =
            own.failing.iter().map(|failing| failing.text(&id, &context.terminal)).collect();
        (!lines.is_empty()).then_some((id, lines))
    };
    Ok(status.subscribers.into_iter().filter_map(lines).collect())
}

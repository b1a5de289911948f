//! The words of an explanation: what a subscriber would do, and each of its steps.

use std::time::Duration;

use engine::ledger::{FilteredBy, Reason};
use journal::time::{Timestamp, short_duration};

use crate::{
    api::wire::{
        explain::{CountView, OpenBatchView, SubscriberOutcomeView},
        inbox::HoldView,
    },
    cli::terminal::{Terminal, one_line},
};

/// The reason of an event that ends.
pub(super) fn reason(outcome: &SubscriberOutcomeView) -> Option<Reason> {
    Reason::read(outcome.reason.as_deref()?, outcome.detail.as_deref())
}

/// What a subscriber does with the event, after its name. `inhibitor`: the event that inhibits.
pub(super) fn does(outcome: &SubscriberOutcomeView, inhibitor: &str, terminal: &Terminal) -> String {
    let types = || outcome.types.join(", ");
    match outcome.fate.as_str() {
        "taken" => "takes it".to_owned(),
        "other_type" => format!("does not match: it takes {}", types()),
        "other_folder" => "does not hold for its sessions: they are in other folders".to_owned(),
        "of_later_file" => "leaves it to a later file of its id".to_owned(),
        "not_dispatched" => "does not get it".to_owned(),
        _ => reason(outcome).map_or_else(
            || format!("ends it: {}", outcome.reason.as_deref().unwrap_or_default()),
            |reason| ends(&reason, outcome, inhibitor, terminal),
        ),
    }
}

fn ends(reason: &Reason, outcome: &SubscriberOutcomeView, inhibitor: &str, terminal: &Terminal) -> String {
    match reason {
        Reason::FilteredOut(FilteredBy::Source) => {
            "filters it: `sources` does not have its source".to_owned()
        }
        Reason::FilteredOut(FilteredBy::Severity) => {
            let own = outcome.severity.as_deref().map(|own| format!(", {own} here,"));
            format!("filters it: its severity{} is below `severity_filter`", own.unwrap_or_default())
        }
        Reason::FilteredOut(FilteredBy::Where) => "filters it: `where` is false".to_owned(),
        Reason::FilteredOut(FilteredBy::WhereFailed) => "filters it: `where` cannot be evaluated".to_owned(),
        Reason::Duplicate { of } => format!("counts it as a repeat of {of}"),
        Reason::BelowThreshold => "counts it: below its threshold".to_owned(),
        Reason::BatchOverflow => "counts it: newer ones fill the batch".to_owned(),
        Reason::RateLimited { retry_at } => {
            format!("counts it: over its rate {}", terminal.lasts(&retry_at.to_string()))
        }
        Reason::Silenced { by } => format!("does not take it: silenced by {by}"),
        Reason::Muted { by } => format!("does not deliver it: {by}"),
        Reason::Inhibited { .. } => format!("does not take it: inhibited by {inhibitor}"),
        Reason::Superseded => "has a newer one about the same state".to_owned(),
        Reason::Stale => "knows a newer state of the same".to_owned(),
        Reason::SubscriberOff => "is disabled".to_owned(),
        Reason::Resolves => "withdraws what it resolves".to_owned(),
        Reason::Inhibits => "inhibits what it takes, or ends that".to_owned(),
        Reason::Withdrawn => "withdraws it: its condition is resolved".to_owned(),
        Reason::Expired
        | Reason::QueueOverflow
        | Reason::SessionGone
        | Reason::Uncertain
        | Reason::Unanswered
        | Reason::NotRepeated
        | Reason::Dismissed
        | Reason::Summarised { .. }
        | Reason::Watched
        | Reason::SummedUp
        | Reason::InRegion
        | Reason::Known => format!("ends it: {}", reason.as_str()),
    }
}

/// How long something still lasts.
pub(super) fn remaining(until: &str, terminal: &Terminal) -> String {
    let Ok(until) = until.parse::<Timestamp>() else { return one_line(until) };
    let left = until.since(terminal.moments.now);
    if left < Duration::from_secs(60) {
        return format!("{:.1} s", left.as_secs_f64());
    }
    short_duration(left)
}

pub(super) fn batch(batch: &OpenBatchView, terminal: &Terminal) -> String {
    let group = if batch.group.is_empty() { String::new() } else { format!(" {}", one_line(&batch.group)) };
    let left = remaining(&batch.ends_at, terminal);
    let open = match batch.open_by.as_str() {
        "quiet" => format!("open until the quiet hours end, in {left}"),
        "digest" => format!("open until its digest, in {left}"),
        _ => format!("open for {left} more"),
    };
    match batch.rows {
        1 => format!("begins the batch{group}, {}", open.trim_end_matches(" more")),
        rows => format!("joins the batch{group}, {rows} rows, {open}"),
    }
}

/// `is_reached`: whether the event goes on.
pub(super) fn count(count: &CountView, is_reached: bool) -> String {
    let next = count.next.map(|next| format!(", the next level is {next}")).unwrap_or_default();
    let reached = if is_reached { "reaches a level with" } else { "counts" };
    format!("{reached} {}{next}", count.total)
}

/// Until when, or by what, a hold lasts.
pub(super) fn hold(hold: &HoldView, terminal: &Terminal) -> String {
    let lasts = hold.until.as_ref().map(|until| terminal.lasts(until));
    let after = hold.after.iter().map(|wait| format!("until {}", one_line(wait)));
    let ends = lasts.into_iter().chain(after).collect::<Vec<_>>().join(" or ");
    match hold.kind.as_str() {
        "silenced" => format!("by {}, {ends}", one_line(&hold.cause)),
        _ => ends,
    }
}

/// The keys of what keeps a batch open.
pub(super) fn keys_of_batch(batch: &OpenBatchView) -> &'static [&'static str] {
    match batch.open_by.as_str() {
        "quiet" => &["limits.quiet"],
        "digest" => &["batching.every", "batching.at", "batching.mode"],
        _ => &["batching.window_ms"],
    }
}

//! A comparison as JSON. Shape: the same inputs give the same bytes, so no duration of the command is
//! in it.

use std::time::Duration;

use journal::time::Timestamp;
use serde_json::{Value, json};

use super::{
    compared::Compared,
    judge::{Judged, Judgement},
};
use crate::comparison::{Difference, Numbers, Pair, Row, Seen};

/// Most notifications that are listed.
const DIFFERENCES_MAX: usize = 10_000;

pub(super) fn value(compared: &Compared<'_>) -> Value {
    let Compared { since: _, outcome, extent, judged } = compared;
    let lost = extent.lost.iter().map(|lost| {
        json!({ "hash": &*lost.hash, "from": time(lost.from), "until": lost.until.map(time), "no_ledger": lost.no_ledger })
    });
    let stopped = extent
        .stopped
        .iter()
        .map(|one| json!({ "subscriber": one.subscriber.as_str(), "record": one.at.0, "why": one.why }));
    let mut value = json!({
        "events": extent.events,
        "exchanges": extent.exchanges,
        "journal": {
            "first": extent.first.0,
            "snapshot": extent.snapshot.map(|seq| seq.0),
            "begins_at": time(extent.begins_at),
            "last": extent.last.0,
            "last_at": time(extent.last_at),
        },
        "lost_rules": lost.collect::<Vec<_>>(),
        "stopped": stopped.collect::<Vec<_>>(),
        "subscribers": outcome.rows.iter().map(row).collect::<Vec<_>>(),
        "all": pair(&outcome.all),
        "texts": { "lost": outcome.lost_texts, "gained": outcome.gained_texts },
        "differences": outcome.differences.iter().take(DIFFERENCES_MAX).map(difference).collect::<Vec<_>>(),
        "differences_left_out": outcome.differences.len().saturating_sub(DIFFERENCES_MAX),
        "not_compared": outcome.untracked,
    });
    if let (Some(judged), Some(fields)) = (judged, value.as_object_mut()) {
        fields.insert("expectations".to_owned(), results(judged));
    }
    value
}

fn row(row: &Row) -> Value {
    let mut value = pair(&row.numbers);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("subscriber".to_owned(), row.subscriber.as_str().into());
        fields.insert("gone".to_owned(), row.gone.into());
        fields.insert("added".to_owned(), row.added.into());
        fields.insert("changed".to_owned(), row.changed.into());
    }
    value
}

fn pair(pair: &Pair) -> Value {
    json!({ "then": numbers(&pair.then), "now": numbers(&pair.now) })
}

fn numbers(numbers: &Numbers) -> Value {
    let Numbers { made, delivered, tokens, delay_p99 } = *numbers;
    let delay_p99_ms = delay_p99.map(|delay: Duration| journal::time::duration_millis(delay));
    json!({ "made": made, "delivered": delivered, "tokens": tokens, "delay_p99_ms": delay_p99_ms })
}

fn difference(one: &Difference) -> Value {
    let seen = |seen: &Seen| {
        json!({
            "made_at": time(seen.made_at),
            "delivered_at": seen.delivered_at.map(time),
            "line": &*seen.line,
        })
    };
    json!({
        "kind": one.kind.as_str(),
        "id": one.id.as_str(),
        "subscriber": one.subscriber.as_str(),
        "other_text": one.has_other_text,
        "then": one.then.as_ref().map(seen),
        "now": one.now.as_ref().map(seen),
    })
}

fn results(judged: &Judged) -> Value {
    let result = |one: &Judgement| {
        let unmet: Vec<&str> = one.unmet.iter().map(|(message, _)| message.as_str()).collect();
        let (file, line) = one.place().unzip();
        json!({
            "subscriber": one.subscriber,
            "file": file,
            "line": line,
            "ok": unmet.is_empty(),
            "unmet": unmet,
        })
    };
    let (failed, all) = judged.failed_of_all();
    json!({
        "ok": all - failed,
        "failed": failed,
        "results": judged.results.iter().map(result).collect::<Vec<_>>(),
        "without_expectation": judged.unchanged,
    })
}

fn time(at: Timestamp) -> String {
    at.to_string()
}

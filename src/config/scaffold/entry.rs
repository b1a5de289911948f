//! An entry of `events.toml`.

use engine::event::{
    Severity,
    catalogue::{self, SEVERITY_DEFAULT},
};

use super::{
    cleaned,
    literal::{inline, quoted},
};
use crate::config::case::TestEvent;

/// The first line of a new `events.toml`.
const HEAD: &str = "#:schema .schema/events.json\n";

/// `text`, the text of an `events.toml` or nothing, with an entry for each of `events` at its end.
///
/// Shape: the example of an entry is the event's payload; its severity is the event's. A comment says
/// that fields are placeholders if the events are `invented`.
pub fn with_entries(text: &str, events: &[TestEvent], invented: bool) -> String {
    let mut text = if text.trim().is_empty() { HEAD.to_owned() } else { text.to_owned() };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    for event in events {
        text.push_str(&entry(event, invented));
    }
    text
}

fn entry(event: &TestEvent, invented: bool) -> String {
    let event_type = event.event_type.as_str();
    let default = catalogue::default_severity(event_type).unwrap_or(SEVERITY_DEFAULT);
    let own = event.severity.filter(|severity| *severity != default).map(Severity::as_str);
    let severity = own.map(|severity| format!("severity = {}\n", quoted(severity))).unwrap_or_default();
    let note =
        if invented { "# No event was found: the fields of the example are placeholders.\n" } else { "" };
    let example = inline(&cleaned(event).payload);
    format!(
        "\n[[event]]\ntype = {}\n{severity}# description = \"When it is published, in one sentence.\"\n{note}example = {example}\n",
        quoted(event_type)
    )
}

//! `[[tests]]` of given events, which expect what the engine makes of them.

use std::{fmt::Write as _, time::Duration};

use engine::{event::catalogue::OwnSeverities, notification::Notification};

use super::{
    cleaned,
    literal::{expressible, inline, key, quoted},
};
use crate::config::{
    case::TestEvent,
    compile::Compiled,
    trial::{Line, preview::Preview},
};

/// A test.
#[derive(Debug)]
pub struct Drawn {
    /// Its text.
    pub text: String,
    /// How many notifications it expects.
    pub made: usize,
    /// What the subscriber did with each event.
    pub because: Vec<Line>,
}

/// A test of the subscriber `id` with `steps`, in order, that has the `claims` of each notification;
/// `None` if there is no such subscriber.
pub fn draw(
    compiled: &Compiled,
    id: &str,
    name: &str,
    steps: &[(Duration, TestEvent)],
    claims: impl Fn(&Notification) -> String,
) -> Option<Drawn> {
    let severities = OwnSeverities::new(&compiled.events);
    let steps: Vec<_> = steps.iter().map(|(at, event)| (*at, cleaned(event))).collect();
    let (made, because) = Preview::new(compiled, id)?.outcomes(&steps);
    let mut text = format!("\n[[tests]]\nname = {}\nat = [\n", quoted(name));
    for (at, event) in &steps {
        let _ = writeln!(text, "  {},", step(*at, event, &severities));
    }
    text.push_str("]\nexpect = [");
    for (index, (at, notification)) in made.iter().enumerate() {
        let start = if index == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{start}  {{ at = {}, {} }},", quoted(&time(*at)), claims(notification));
    }
    text.push_str("]\n");
    Some(Drawn { text, made: made.len(), because })
}

fn step(at: Duration, event: &TestEvent, severities: &OwnSeverities) -> String {
    let default = severities.default_severity(event.event_type.as_str());
    let severity = event.severity.filter(|own| *own != default).map(|own| own.as_str().to_owned());
    let attributes = [
        ("severity", severity),
        ("source", event.source.as_deref().map(str::to_owned)),
        ("dedupe_key", event.dedupe_key.as_deref().map(str::to_owned)),
    ];
    let attribute =
        |(name, value): (&str, Option<String>)| Some(format!("{} = {}", key(name), quoted(&value?)));
    let attributes: Vec<String> = attributes.into_iter().filter_map(attribute).collect();
    let attributes = match attributes.as_slice() {
        [] => String::new(),
        some => format!(", {{ {} }}", some.join(", ")),
    };
    let event_type = quoted(event.event_type.as_str());
    format!("[{}, {event_type}, {}{attributes}]", quoted(&time(at)), inline(&event.payload))
}

/// The claim of what a notification decodes to.
pub fn decoded(notification: &Notification) -> String {
    let value = toon::decode(notification.content.text()).ok().and_then(|value| expressible(&value));
    format!("decoded = {}", value.map_or_else(|| "{}".to_owned(), |value| inline(&value)))
}

/// A time of a test.
fn time(at: Duration) -> String {
    match at.as_millis() {
        millis if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        millis => format!("{millis}ms"),
    }
}

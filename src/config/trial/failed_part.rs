//! The parts of subscribers that failed in a test: a text, an expression, with their places and what
//! was there instead.

use std::sync::Arc;

use engine::{event::Event, notification::SubscriberId, pipeline::FailedPart};
use serde_json::Value;

use super::{failure::Line, templates::undefined_name};
use crate::config::{
    compile::Compiled,
    effective,
    report::{Place, sentence},
};

/// The parts without a file of their own.
const PARTS: [FailedPart; 8] = [
    FailedPart::Output,
    FailedPart::Many,
    FailedPart::Sentence,
    FailedPart::Condition,
    FailedPart::SeverityWhen,
    FailedPart::CloseWhen,
    FailedPart::OpenWhen,
    FailedPart::Threshold,
];

/// Two lines for each of the events `subscriber.failed` of a test: the part with what is there instead,
/// and the message.
pub(super) fn lines(failures: &[Event], compiled: &Compiled) -> Vec<Line> {
    failures.iter().filter_map(|event| lines_of(event.payload.value(), compiled)).flatten().collect()
}

fn lines_of(failure: &Value, compiled: &Compiled) -> Option<[Line; 2]> {
    let word = |name: &str| failure.get(name).and_then(Value::as_str);
    let (id, file, message) = (SubscriberId::new(word("subscriber")?), word("file")?, word("message")?);
    let line = failure.get("line").and_then(Value::as_u64).and_then(|line| usize::try_from(line).ok());
    let template = file.strip_prefix("templates/").map(|name| FailedPart::Template(name.into()));
    let part = template.or_else(|| PARTS.into_iter().find(|part| part.file(&id) == file))?;
    let text = format!("  failed     {file}{}", instead(&part));
    let message = Line { text: format!("             {}", sentence(message)), place: None };
    let place = place(&part, &id, compiled, (line, word("message")?));
    Some([Line { text, place }, message])
}

/// What is there in place of a part that failed.
const fn instead(part: &FailedPart) -> &'static str {
    match part {
        FailedPart::Template(_) | FailedPart::Output | FailedPart::Many => {
            ", so the generic table is in its place"
        }
        FailedPart::Sentence => ", so the first values of the text are in its place",
        FailedPart::Condition => ", so the event is filtered out",
        FailedPart::SeverityWhen => ", so the event keeps its severity",
        FailedPart::CloseWhen | FailedPart::OpenWhen => ", so it is false",
        FailedPart::Threshold => "",
    }
}

/// Where the files have the part: the name that is undefined, else the line, else the key.
fn place(
    part: &FailedPart,
    id: &SubscriberId,
    compiled: &Compiled,
    (line, message): (Option<usize>, &str),
) -> Option<Place> {
    let declared = compiled.declared.get(id);
    let within = |(place, text): (&Place, &str)| {
        let whole = line.map_or_else(|| place.clone(), |line| place.line_within(text, line));
        undefined_name(&whole, message).unwrap_or(whole)
    };
    let text = |text: Option<&(Place, Arc<str>)>| text.map(|(place, text)| within((place, text)));
    let key = |key: &str| {
        let keys = effective::keys(compiled.files.get(id)?);
        keys.into_iter().find(|one| one.key == key).map(|one| one.value_place)
    };
    match part {
        FailedPart::Template(name) => {
            compiled.template_files.get(&**name).map(|file| within((file, file.literal())))
        }
        // A table has no lines.
        FailedPart::Output => {
            let table = || declared.and_then(|places| places.table.clone());
            let one = declared.and_then(|places| places.one.as_ref());
            text(one.filter(|_| line.is_some())).or_else(table)
        }
        FailedPart::Many => text(declared.and_then(|places| places.many.as_ref())),
        FailedPart::Sentence => text(declared.and_then(|places| places.sentence.as_ref())),
        FailedPart::Condition => key("events.where"),
        FailedPart::SeverityWhen => key("events.severity_when"),
        FailedPart::CloseWhen => key("batching.close_when"),
        FailedPart::OpenWhen => key("batching.open_when"),
        FailedPart::Threshold => key("threshold.sum"),
    }
}

//! Remarks for a developer: the fields of a valid exchange that have no effect.
//!
//! A payload is its producer's own, so a field in it is never refused. But a misspelt one would
//! silently do nothing.

use std::{fmt::Write, sync::Arc};

use engine::{
    draft::Draft,
    event::EventRef,
    exchange::{Answer, CarrierEffect, Exchange, Format, Remark},
    nearest::{clause, nearest},
    notification::InjectionPoint,
    request::{FieldError, Text, excerpt, hint},
    words::Words,
};
use serde::Deserialize;
use serde_json::{Map, Value};

/// Most remarks in one notice; the others are counted.
const REMARKS_MAX: usize = 3;
/// Fewest characters that can hold a notification: a wrapper and the mark of a cut one.
const CHARS_MIN: u32 = 150;
/// The fields of a payload that aside reads of a call that has ended.
const CALL_FIELDS: [&str; 11] = [
    "tool_name",
    "call_id",
    "args",
    "result",
    "subject",
    "files",
    "command",
    "in_background",
    "error_type",
    "error_message",
    "duration_ms",
];
/// How a call can touch a file.
const TOUCHES: [&str; 3] = ["read", "shown", "written"];
/// The types of the events of a call that has ended.
const ENDED: [&str; 3] = ["tool.call.success", "tool.call.failure", "tool.call.timeout"];
/// The types that move a session's turn, if its harness reports them.
const TURN_TYPES: [&str; 5] =
    ["agent.turn.start", "agent.turn.end", "agent.turn.failed", "agent.turn.interrupted", "agent.waiting"];

/// What the daemon knows of the session of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownFacts<'a> {
    /// The name of its harness.
    pub harness: Option<&'a str>,
    /// Its folder.
    pub workspace: Option<&'a str>,
}

/// The call of a failure that its harness knows; `None` for other events, and for a critical one.
pub(super) fn failed_call(event: &EventRef<'_>) -> Option<Arc<str>> {
    #[derive(Deserialize)]
    struct Failed {
        call_id: String,
    }
    let is_failure = matches!(event.event_type, "tool.call.failure" | "tool.call.timeout");
    let is_known = is_failure && event.severity < engine::event::Severity::Critical;
    let failed: Failed = is_known.then(|| serde_json::from_str(event.payload).ok())??;
    Some(failed.call_id.into())
}

/// The value of a word, which is `None` if it is unknown: the notifications are worth more than
/// their form.
pub(super) fn known_word<T: Words>(
    field: &'static str,
    word: Option<Text<'_>>,
    unknown: &mut Vec<FieldError>,
) -> Option<T> {
    let word = word?;
    let known = T::of_word(&word);
    if known.is_none() {
        let words: Vec<&str> = T::words().collect();
        let message = format!("`{}` is unknown and has no effect; {}", excerpt(&word), hint(&word, &words));
        unknown.push(FieldError::new(field, message));
    }
    known
}

/// The first known one of the formats of a harness.
pub(super) fn first_known(formats: &[Text<'_>], unknown: &mut Vec<FieldError>) -> Option<Format> {
    let known = formats.iter().find_map(|word| Format::of_word(word));
    if known.is_none() && !formats.is_empty() {
        unknown.push(FieldError::new("formats", format!("none is known; use some of {}", Format::list())));
    }
    known
}

/// The remark on an API for which a format of the same request has no words.
fn unsuited(exchange: &Exchange) -> Option<FieldError> {
    let format = exchange.format.or(exchange.harness.format)?;
    let (dialect, dialects) = (exchange.harness.dialect?, format.dialects());
    let words: Vec<&str> = dialects.iter().map(|dialect| dialect.as_str()).collect();
    let message = format!("`{}` has no effect on `{}`, which has ", dialect.as_str(), format.as_str());
    let known = if words.is_empty() { "no dialects".to_owned() } else { words.join(", ") };
    (!dialects.contains(&dialect)).then(|| FieldError::new("dialect", message + &known))
}

/// The remarks on a request that need no look at the queue.
pub fn of_request(exchange: &Exchange, observed: &[Draft<'_>], known: KnownFacts<'_>) -> Vec<FieldError> {
    let mut remarks = Vec::new();
    let (effect, at) = match exchange.carrier_effect {
        CarrierEffect::None => ("none", exchange.point),
        CarrierEffect::Continue => ("continue", InjectionPoint::TurnEnd),
        CarrierEffect::Cancel => ("cancel", InjectionPoint::BeforeTool),
    };
    if at != exchange.point {
        let message = format!("`{effect}` has an effect only at `{at}`, not at `{}`", exchange.point);
        remarks.push(FieldError::new("carrier_effect", message));
    }
    remarks.extend(unsuited(exchange));
    if let Some(chars) = exchange.budget.max_chars.filter(|chars| *chars < CHARS_MIN) {
        let message = format!("no notification fits into {chars} characters");
        remarks.push(FieldError::new("budget.max_chars", message));
    }
    for (index, event) in observed.iter().map(Draft::as_event).enumerate() {
        let found =
            of_event(exchange, &event, known).map(|remark| remark.within(&format!("observe[{index}]")));
        remarks.extend(found);
    }
    remarks
}

fn of_event(
    exchange: &Exchange,
    event: &EventRef<'_>,
    known: KnownFacts<'_>,
) -> impl Iterator<Item = FieldError> {
    let is_own = event.session == Some(exchange.session.as_str());
    let harness = exchange.harness.name.as_deref().or(known.harness);
    let is_of_turn = is_own && TURN_TYPES.contains(&event.event_type);
    let stranger = harness.filter(|harness| is_of_turn && *harness != event.source).map(|harness| {
        let message = format!("`{}` counts only from the session's harness, `{harness}`", event.event_type);
        FieldError::new("source", message)
    });
    let workspace = exchange.harness.workspace.as_deref().or(known.workspace);
    let has_ended = ENDED.contains(&event.event_type);
    let fields = has_ended.then(|| serde_json::from_str::<Map<String, Value>>(event.payload).ok()).flatten();
    let of_call = fields.map(|fields| of_call(&fields, workspace)).unwrap_or_default();
    stranger.into_iter().chain(of_call.into_iter().map(|remark| remark.within("payload")))
}

/// The remarks on the payload of a call that has ended.
fn of_call(fields: &Map<String, Value>, workspace: Option<&str>) -> Vec<FieldError> {
    let mut remarks = Vec::new();
    if !fields.contains_key("tool_name") {
        let misspelt = fields.keys().find(|key| nearest(key, ["tool_name"]).is_some());
        remarks.push(match misspelt {
            Some(key) => {
                FieldError::new(excerpt(key), format!("unknown field; {}", hint(key, &["tool_name"])))
            }
            None => FieldError::new("tool_name", "is missing"),
        });
    }
    for key in fields.keys().filter(|key| !CALL_FIELDS.contains(&key.as_str())) {
        let meant = nearest(key, CALL_FIELDS).filter(|meant| !fields.contains_key(*meant));
        if let Some(meant) = meant.filter(|meant| *meant != "tool_name") {
            let message = format!("unknown field; did you mean `{meant}`?");
            remarks.push(FieldError::new(excerpt(key), message));
        }
    }
    if fields.get("command").is_some_and(|command| !command.is_string() && !command.is_null()) {
        remarks.push(FieldError::new("command", "must be a string"));
    }
    if fields.get("in_background").is_some_and(|value| !value.is_boolean()) {
        remarks.push(FieldError::new("in_background", "must be true or false"));
    }
    match fields.get("files") {
        None => {}
        Some(Value::Array(files)) => {
            for (index, file) in files.iter().enumerate() {
                let of_file = of_file(file, workspace);
                remarks.extend(of_file.map(|remark| remark.within(&format!("files[{index}]"))));
            }
        }
        Some(_) => remarks.push(FieldError::new("files", "must be an array")),
    }
    remarks
}

fn of_file(file: &Value, workspace: Option<&str>) -> Option<FieldError> {
    let Value::Object(fields) = file else {
        return Some(FieldError::new("path", "is missing: a file is an object with `path` and `by`"));
    };
    let Some(path) = fields.get("path").and_then(Value::as_str) else {
        return Some(FieldError::new("path", "must be a string"));
    };
    let Some(by) = fields.get("by").and_then(Value::as_str) else {
        return Some(FieldError::new("by", format!("must be one of {}", TOUCHES.join(", "))));
    };
    if !TOUCHES.contains(&by) {
        let message = format!("`{}` is not allowed; {}", excerpt(by), hint(by, &TOUCHES));
        return Some(FieldError::new("by", message));
    }
    let is_lost = !path.starts_with('/') && workspace.is_none();
    is_lost.then(|| FieldError::new("path", "is relative, and `harness.workspace` is not known"))
}

/// The remarks of the engine, and those on an answer that releases nothing.
pub fn of_answer(exchange: &Exchange, answer: &Answer) -> Vec<FieldError> {
    let mut remarks: Vec<FieldError> = answer.remarks.iter().map(of_remark).collect();
    let is_silent = answer.injection.is_none() && answer.pending > 0;
    let limit = [
        ("budget.max_notifications", exchange.budget.max_notifications),
        ("budget.max_tokens", exchange.budget.max_tokens.map(|tokens| tokens.0)),
    ];
    for (field, _) in limit.into_iter().filter(|(_, limit)| is_silent && *limit == Some(0)) {
        let message = format!("is 0, so only critical notifications are released; {} wait", answer.pending);
        remarks.push(FieldError::new(field, message));
    }
    remarks
}

fn of_remark(remark: &Remark) -> FieldError {
    match remark {
        Remark::UnknownAck { index, injection } => FieldError::new(
            format!("ack[{index}]"),
            format!("no injection `{injection}` of this session waits for a confirmation"),
        ),
        Remark::PastTurn { turn, last } => FieldError::new(
            "turn",
            format!("`{turn}` ended before `{last}` began; each turn needs its own id"),
        ),
        Remark::UnknownSession { field, session, nearest } => {
            let message = format!("there is no session `{session}`{}", clause(nearest.as_ref()));
            FieldError::new(*field, message)
        }
    }
}

/// The remarks as one line; `None` without any.
pub fn join(remarks: &[FieldError]) -> Option<String> {
    let (first, others) = remarks.split_first()?;
    let mut line = first.to_string();
    for remark in others.iter().take(REMARKS_MAX - 1) {
        write!(line, "; {remark}").expect("a string accepts text");
    }
    let left = remarks.len().saturating_sub(REMARKS_MAX);
    if left > 0 {
        write!(line, "; and {left} more").expect("a string accepts text");
    }
    Some(line)
}

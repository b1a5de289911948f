//! Whom published events reach: adds the folder to events without a scope, and shows the daemon's
//! explanation of one event, with its subscribers and the sessions in its scope.

use std::{borrow::Cow, time::Duration};

use hook::client::Client;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

use crate::api::wire::views::{MatchView, TakerView};
use crate::cli::{Context, terminal::one_line};

/// Adds `workspace` to each event of a body of lines.
pub(super) fn in_lines<'b>(body: &'b [u8], workspace: &str) -> Cow<'b, [u8]> {
    let lines = body.split_inclusive(|byte| *byte == b'\n');
    Cow::Owned(lines.flat_map(|line| with_workspace(line, workspace).into_owned()).collect())
}

/// The same for one event or an array of events; the daemon refuses any other body.
pub(super) fn in_document<'b>(body: &'b [u8], workspace: &str) -> Cow<'b, [u8]> {
    let Ok(events) = serde_json::from_slice::<Vec<&RawValue>>(body) else {
        return with_workspace(body, workspace);
    };
    let mut text = b"[".to_vec();
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(&with_workspace(event.get().as_bytes(), workspace));
    }
    text.extend_from_slice(b"]\n");
    Cow::Owned(text)
}

/// An event's text, with `workspace` added unless it has a scope.
fn with_workspace<'t>(text: &'t [u8], workspace: &str) -> Cow<'t, [u8]> {
    #[derive(Deserialize)]
    struct Addressee {
        #[serde(default, deserialize_with = "is_there")]
        session: bool,
        #[serde(default, deserialize_with = "is_there")]
        workspace: bool,
    }
    fn is_there<'de, D: serde::Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
        IgnoredAny::deserialize(value).map(|_| true)
    }
    // The fields of an object are also read from an array.
    if !text.trim_ascii_start().starts_with(b"{") {
        return Cow::Borrowed(text);
    }
    let Ok(Addressee { session: false, workspace: false }) = serde_json::from_slice(text) else {
        return Cow::Borrowed(text);
    };
    let open = text.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1);
    let (head, rest) = text.split_at(open);
    let comma = if rest.trim_ascii_start().starts_with(b"}") { "" } else { "," };
    let field = format!("\"workspace\":{}{comma}", Value::from(workspace));
    Cow::Owned([head, field.as_bytes(), rest].concat())
}

/// Time limit of the request; the event is published in any case.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Matched {
    pub(super) json: Value,
    answer: MatchView,
}

/// Requests the subscribers of the event in `body`; `None` without an answer in time.
pub(super) fn ask(context: &Context<'_>, body: &str) -> Option<Matched> {
    let client = Client::new(context.client.socket().to_owned(), ANSWER_TIMEOUT);
    let headers = [("content-type", "application/json")];
    let response = client.request("POST", "/v1/match", &headers, body.as_bytes()).ok()?;
    let json: Value = serde_json::from_slice(&response.body).ok().filter(|_| response.status == 200)?;
    let answer = MatchView::deserialize(&json).ok()?;
    Some(Matched { json, answer })
}

impl Matched {
    /// The answer for users, a line per subscriber.
    pub(super) fn lines(&self, event_type: &str, event: &Value) -> String {
        let MatchView { subscribers, nearest, .. } = &self.answer;
        if subscribers.is_empty() {
            let meant = nearest.as_ref().map(|meant| format!("; did you mean `{}`?", one_line(meant)));
            return format!("no subscriber matches `{event_type}`{}\n", meant.unwrap_or_default());
        }
        let reached = self.reached(event);
        let line = |taker: &TakerView| {
            let what = match (taker.verdict.as_str(), &taker.filtered_by) {
                ("takes", _) => match &taker.sessions {
                    Some(own) => format!("takes it for {}", named(own, own.len())),
                    None => format!("takes it {reached}"),
                },
                ("resolves", _) => "withdraws what it resolves".to_owned(),
                ("filtered", Some(key)) => format!("filters it by `{}`", one_line(key)),
                ("silenced", _) => {
                    let silence = taker.silence.as_deref().unwrap_or_default();
                    format!("does not take it: the silence {} suppresses it", one_line(silence))
                }
                ("inhibits", _) => "does not take it: it inhibits what this subscriber takes".to_owned(),
                ("ends_inhibition", _) => "does not take it: it ends what was inhibited".to_owned(),
                ("muted", _) => {
                    let by = taker.muted_by.as_deref().unwrap_or_default();
                    format!("takes it for nobody: {}", one_line(by))
                }
                (verdict, _) => format!("is {}", one_line(verdict)),
            };
            format!("{} {what}\n", one_line(&taker.subscriber))
        };
        subscribers.iter().map(line).collect()
    }

    fn reached(&self, event: &Value) -> String {
        let MatchView { sessions, session_count, .. } = &self.answer;
        let folder = event.get("workspace").and_then(Value::as_str).map(one_line);
        let session = event.get("session").and_then(Value::as_str).map(one_line);
        match (sessions.as_slice(), session, folder) {
            ([], Some(session), _) => format!("for session {session}, which is not open yet"),
            ([], None, Some(folder)) => format!("for the next session in, below or above {folder}"),
            ([], None, None) => "for the next session".to_owned(),
            (shown, _, _) => format!("for {}", named(shown, *session_count)),
        }
    }
}

/// The names of the first of `count` sessions.
fn named(shown: &[String], count: usize) -> String {
    let names = shown.iter().map(|name| one_line(name)).collect::<Vec<_>>().join(", ");
    match (shown.len(), count.saturating_sub(shown.len())) {
        (0, _) => "no open session".to_owned(),
        (1, 0) => format!("session {names}"),
        (_, 0) => format!("sessions {names}"),
        (_, more) => format!("sessions {names} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_without_a_scope_get_the_folder() {
        for (text, expected) in [
            ("{\"type\":\"a.b\"}\n", "{\"workspace\":\"/w\",\"type\":\"a.b\"}\n"),
            (" {} ", " {\"workspace\":\"/w\"} "),
            ("{\"session\":\"s\"}", "{\"session\":\"s\"}"),
            ("{\"workspace\":null}", "{\"workspace\":null}"),
            ("[1]", "[1]\n"),
            ("[{\"a\":1}, []]", "[{\"workspace\":\"/w\",\"a\":1},[]]\n"),
            ("{not json", "{not json"),
            (
                "[{\"a\":1}, {\"workspace\":\"/x\"}]",
                "[{\"workspace\":\"/w\",\"a\":1},{\"workspace\":\"/x\"}]\n",
            ),
        ] {
            let scoped = in_document(text.as_bytes(), "/w");
            assert_eq!(String::from_utf8_lossy(&scoped), expected, "{text}");
        }
        let lines = in_lines(b"{\"a\":1}\n\n{\"session\":\"s\"}\n", "/w");
        let expected = "{\"workspace\":\"/w\",\"a\":1}\n\n{\"session\":\"s\"}\n";
        assert_eq!(String::from_utf8_lossy(&lines), expected);
    }
}

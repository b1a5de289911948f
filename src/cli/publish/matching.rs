//! The daemon's explanation of a published event: its subscribers, and the sessions in its scope.

use std::time::Duration;

use hook::client::Client;
use serde::Deserialize;
use serde_json::Value;

use super::super::{Context, terminal::one_line};
use crate::api::wire::views::{MatchView, TakerView};

/// Time limit of the request; the event is published in any case.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The daemon's answer.
pub(super) struct Matched {
    /// The unchanged JSON.
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
                ("takes", _) => format!("takes it {reached}"),
                ("resolves", _) => "withdraws what it resolves".to_owned(),
                ("filtered", Some(key)) => format!("filters it by `{}`", one_line(key)),
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
            ([only], _, _) => format!("for session {}", one_line(only)),
            (shown, _, _) => {
                let names = shown.iter().map(|name| one_line(name)).collect::<Vec<_>>().join(", ");
                let more = session_count.saturating_sub(shown.len());
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("for sessions {names}{more}")
            }
        }
    }
}

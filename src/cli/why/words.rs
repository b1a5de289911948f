//! Describes the ledger's lines about an event or a notification in words.

use serde::Deserialize;

use crate::cli::ids::Names;

/// One line of the ledger.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Line {
    pub(super) at: Option<String>,
    what: String,
    pub(super) subscriber: Option<String>,
    notification: Option<String>,
    session: Option<String>,
    injection: Option<String>,
    by: Option<String>,
    reason: Option<String>,
    detail: Option<String>,
    events: Vec<u64>,
}

/// The user's next step after `history`, in one line; `None` if it is empty.
pub(super) fn next(history: &[Line]) -> Option<String> {
    history.last().map(|last| last.next(history))
}

impl Line {
    /// A sentence for the line; sessions are shown by `names`.
    pub(super) fn words(&self, names: &Names) -> String {
        let of = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
        let (subscriber, notification) = (of(&self.subscriber), of(&self.notification));
        let session = self.session.as_ref().map_or_else(|| "-".to_owned(), |session| names.name(session));
        match self.what.as_str() {
            "unmatched" => "no subscriber asked for it".to_owned(),
            "held_back" if self.reason.as_deref() == Some("source_rate") => {
                "held back: its source was over its rate".to_owned()
            }
            "held_back" => "held back: its chain of causes is too long".to_owned(),
            "batched" => format!("waited in a batch of {subscriber}"),
            "event_ended" => format!("{subscriber} {}", self.end_of_event()),
            "created" => {
                let count = self.events.len();
                let events = if count == 1 { "event" } else { "events" };
                format!("{subscriber} made {notification} of {count} {events}")
            }
            "unclaimed" => format!("{notification} waits for a session: none that it concerns is open"),
            "queued" => format!("{notification} waits in session {session}"),
            "injected" => {
                let (injection, point) = (of(&self.injection), of(&self.by));
                let again = match self.detail.as_deref() {
                    None => "",
                    Some("context_lost") => ", once more, as the context that it was in is gone",
                    Some(_) => ", once more, as nothing showed that it had arrived",
                };
                format!(
                    "{notification} was given to session {session} at {point} in injection {injection}{again}"
                )
            }
            "confirmed" => {
                let how = match self.by.as_deref() {
                    Some("ack") => "the harness said so",
                    Some("seen") => "it stands in the transcript",
                    _ => "the session went on after it",
                };
                format!("{notification} arrived in session {session}: {how}")
            }
            "returned" => {
                format!("{notification} went back to the queue of session {session}: it did not arrive")
            }
            "recalled" => {
                format!(
                    "{notification} waits once more for session {session}: it still holds, and the context that it was in is gone"
                )
            }
            "notification_ended" => {
                let place = self.session.as_ref().map(|_| format!(" in session {session}"));
                format!("{notification} ended{}: {}", place.unwrap_or_default(), self.end_of_notification())
            }
            "user_queued" => format!("goes to the user by {}", of(&self.by)),
            "user_sent" => match &self.detail {
                Some(id) => format!("{} took it, as {id}", of(&self.by)),
                None => format!("{} took it", of(&self.by)),
            },
            "user_failed" => {
                format!("{} did not take it: {}; {}", of(&self.by), of(&self.detail), self.next_try())
            }
            "user_waits" => {
                format!("waits for the end of the quiet hours before {}, {}", of(&self.by), of(&self.detail))
            }
            "user_ended" => format!("{} {}", of(&self.by), self.end_of_word()),
            "user_suppressed" => format!("not sent: {}", self.suppressed()),
            other => format!("{other} {}", of(&self.reason)),
        }
    }

    fn next_try(&self) -> String {
        match self.reason.as_deref().and_then(|reason| reason.strip_prefix("again ")) {
            Some(at) => format!("tried again at {at}"),
            None => "not tried again".to_owned(),
        }
    }

    fn end_of_word(&self) -> &'static str {
        match self.reason.as_deref() {
            Some("evicted") => "did not get it: too much else was on its way",
            Some("session_gone") => "did not show it: the session ended before",
            Some("expired") => "did not show it: no hook that can show it came in time",
            Some("superseded") => "did not get it: a newer one took its place",
            Some("question_over") => "needs not ask any more: the question has ended",
            _ => "did not get it",
        }
    }

    fn suppressed(&self) -> String {
        let detail = self.detail.as_deref().unwrap_or_default();
        match self.reason.as_deref() {
            Some("repeat") => format!("it repeats one {detail}, and is counted in the next one"),
            Some("over_rate") => format!("too many within a minute ({detail}), and counted in the next one"),
            Some("no_sink") => "no sink is set".to_owned(),
            _ => "for no known reason".to_owned(),
        }
    }

    fn end_of_event(&self) -> String {
        let detail = self.detail.as_deref().unwrap_or_default();
        match self.reason.as_deref() {
            Some("filtered") if detail.contains(' ') => format!("did not take it: its {detail}"),
            Some("filtered") => format!("did not take it: its {detail} did not let it pass"),
            Some("duplicate") => format!("counted it as a repeat {detail}"),
            Some("over_rate") => {
                format!("was over its rate ({detail}) and counts it in its next notification")
            }
            Some("subscriber_off") => "is switched off".to_owned(),
            Some("superseded") => "has a newer one about the same state".to_owned(),
            Some("withdrawn") => "withdrew it: what it says was resolved".to_owned(),
            Some("resolves") => "withdraws what this resolves, if it is pending".to_owned(),
            Some(other) => format!("ended it: {other} {detail}").trim_end().to_owned(),
            None => "ended it".to_owned(),
        }
    }

    fn end_of_notification(&self) -> String {
        match self.reason.as_deref() {
            Some("expired") => "it was not worth telling any more".to_owned(),
            Some("queue_overflow") => {
                "the queue was full, and it was the oldest of the least important".to_owned()
            }
            Some("session_gone") => "the session ended before".to_owned(),
            Some("uncertain") => "nothing showed that it arrived, and it is not told twice".to_owned(),
            Some("subscriber_off") => "its subscriber was switched off".to_owned(),
            Some("superseded") => "a newer one about the same state took its place".to_owned(),
            Some("withdrawn") => "what it says was resolved".to_owned(),
            Some("watched") => "a watch of the session says it".to_owned(),
            Some("known") => "the session knows the files as they are".to_owned(),
            Some("summed_up") => "what came with the prompt after a pause says it".to_owned(),
            Some("dismissed") => "you dismissed it".to_owned(),
            Some(other) => other.to_owned(),
            None => "for no known reason".to_owned(),
        }
    }

    /// The user's next step, if this is the last line.
    fn next(&self, history: &[Self]) -> String {
        let of = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
        let (subscriber, notification) = (of(&self.subscriber), of(&self.notification));
        match self.what.as_str() {
            "unmatched" => {
                "a subscriber gets it once its `types` name the type; aside check compares them".to_owned()
            }
            "held_back" => {
                "nothing to do for this one; aside history shows what else its source published".to_owned()
            }
            "batched" => format!("its batch is still open; {subscriber} closes it at the end of its window"),
            "event_ended" => self.next_of_event(),
            "unclaimed" => format!(
                "the next session that it concerns gets it; aside inbox dismiss {notification} ends it"
            ),
            "created" | "queued" | "returned" | "recalled" => {
                format!(
                    "an exchange that may carry it delivers it; aside inbox dismiss {notification} ends it"
                )
            }
            "injected" => {
                "nothing has shown yet that it arrived; the next exchange of the session does".to_owned()
            }
            "confirmed" => match history.iter().rev().find_map(|line| line.injection.as_ref()) {
                Some(injection) => {
                    format!("nothing to do; aside why {injection} shows the text as the agent has it")
                }
                None => "nothing to do".to_owned(),
            },
            "notification_ended" => self.next_of_notification(),
            "user_suppressed" if self.reason.as_deref() == Some("no_sink") => {
                "name some in `default` of [sinks], then aside reload".to_owned()
            }
            "user_failed" if self.detail.is_some() && self.next_try() == "not tried again" => {
                format!("aside doctor looks at the sink {}", of(&self.by))
            }
            "user_waits" => "it goes out then; without `quiet` in [sinks], at once".to_owned(),
            "user_queued" | "user_sent" | "user_failed" | "user_ended" | "user_suppressed" => {
                "nothing to do".to_owned()
            }
            _ => "aside history lists what else happened".to_owned(),
        }
    }

    fn next_of_event(&self) -> String {
        let subscriber = self.subscriber.as_deref().unwrap_or("-");
        let detail = self.detail.as_deref().unwrap_or_default();
        match self.reason.as_deref() {
            Some("filtered") => {
                let key = detail.split(' ').next().unwrap_or_default();
                format!("if it should have passed, change `{key}` of {subscriber}, then aside reload")
            }
            Some("duplicate") => match detail.strip_prefix("of ") {
                Some(first) => format!("aside why {first} shows the first of them"),
                None => "nothing to do".to_owned(),
            },
            Some("over_rate") => {
                format!(
                    "if each of them should be delivered, raise `rate` of {subscriber}, then aside reload"
                )
            }
            Some("subscriber_off") => {
                format!("if it should run, set `enabled = true` in {subscriber}, then aside reload")
            }
            _ => "nothing to do".to_owned(),
        }
    }

    fn next_of_notification(&self) -> String {
        match self.reason.as_deref() {
            Some("expired") => {
                "if it should wait longer, raise `ttl` of its subscriber, then aside reload".to_owned()
            }
            Some("queue_overflow") => "aside history --notifications shows what filled the queue".to_owned(),
            Some("uncertain") => "nothing to do; the agent may or may not have read it".to_owned(),
            Some("subscriber_off") => {
                "if it should run, set `enabled = true` in its subscriber, then aside reload".to_owned()
            }
            _ => "nothing to do".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_an_event_ends_has_its_words() {
        for (line, words) in [
            (r#"{"what":"unmatched"}"#, "no subscriber asked for it"),
            (r#"{"what":"held_back","reason":"causes"}"#, "held back: its chain of causes is too long"),
            (r#"{"what":"held_back","reason":"source_rate"}"#, "held back: its source was over its rate"),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"severity_filter"}"#,
                "ci did not take it: its severity_filter did not let it pass",
            ),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"duplicate","detail":"of 7"}"#,
                "ci counted it as a repeat of 7",
            ),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"where could not be evaluated"}"#,
                "ci did not take it: its where could not be evaluated",
            ),
            (r#"{"what":"event_ended","subscriber":"ci","reason":"subscriber_off"}"#, "ci is switched off"),
            (
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"i1","by":"turn_start","detail":"context_lost"}"#,
                "n1 was given to session s1 at turn_start in injection i1, once more, as the context that it was in is gone",
            ),
            (
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"i1","by":"turn_start","detail":"unconfirmed"}"#,
                "n1 was given to session s1 at turn_start in injection i1, once more, as nothing showed that it had arrived",
            ),
            (
                r#"{"what":"notification_ended","notification":"n1","session":"s1","reason":"uncertain"}"#,
                "n1 ended in session s1: nothing showed that it arrived, and it is not told twice",
            ),
        ] {
            let line: Line = serde_json::from_str(line).expect("a line");
            assert_eq!(line.words(&Names::default()), words);
        }
    }

    #[test]
    fn every_last_line_has_a_next_step() {
        let given = r#"{"what":"injected","notification":"n1","session":"s1","injection":"abc123","by":"after_tool"}"#;
        for (lines, next_step) in [
            (&[r#"{"what":"queued","notification":"n1","session":"s1"}"#][..], "aside inbox dismiss n1"),
            (&[given], "the next exchange of the session does"),
            (
                &[given, r#"{"what":"confirmed","notification":"n1","session":"s1"}"#],
                "aside why abc123 shows the text",
            ),
            (
                &[
                    r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"where could not be evaluated"}"#,
                ],
                "change `where` of ci, then aside reload",
            ),
            (
                &[r#"{"what":"event_ended","subscriber":"ci","reason":"duplicate","detail":"of 7"}"#],
                "aside why 7",
            ),
            (&[r#"{"what":"notification_ended","notification":"n1","reason":"expired"}"#], "raise `ttl`"),
            (&[r#"{"what":"notification_ended","notification":"n1","reason":"dismissed"}"#], "nothing to do"),
        ] {
            let history: Vec<Line> =
                lines.iter().map(|line| serde_json::from_str(line).expect("a line")).collect();
            let said = next(&history).expect("something");
            assert!(said.contains(next_step), "{said}");
        }
        assert_eq!(next(&[]), None);
    }
}

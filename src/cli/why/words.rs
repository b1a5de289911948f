//! Describes the ledger's lines about an event or a notification in sentences.

use engine::{
    ledger::{
        self, ConfirmedBy, EntryKind, FilteredBy, NotSent, Reason, ReasonText, Redelivered, Sentence,
        Suppressed, ThrottledBy,
    },
    words::counted,
};

use crate::{api::wire::history::LedgerLine, cli::ids::Names};

/// The user's next step after `history`, in one line; `None` if it is empty.
pub(super) fn next(history: &[LedgerLine]) -> Option<String> {
    history.last().map(|last| next_after(retried(history).unwrap_or(last), history))
}

/// The user's next step for a notification that is held.
pub(super) fn next_of_held(id: &str) -> String {
    format!("it is released when nothing holds it; aside inbox dismiss {id} ends it")
}

/// The newest failure of a sink that is retried and has not succeeded since, if nothing else than
/// sinks came after it.
fn retried(history: &[LedgerLine]) -> Option<&LedgerLine> {
    let mut later_sinks = Vec::new();
    for line in history.iter().rev() {
        let kind = ledger::of_word::<EntryKind>(&line.what)?;
        if kind == EntryKind::UserFailed && line.retry_at().is_some() && !later_sinks.contains(&&line.by) {
            return Some(line);
        }
        let sinks = [EntryKind::UserQueued, EntryKind::UserSent, EntryKind::UserFailed, EntryKind::UserEnded];
        if !sinks.contains(&kind) {
            return None;
        }
        later_sinks.push(&line.by);
    }
    None
}

fn or_dash(part: Option<&str>) -> &str {
    part.unwrap_or("-")
}

/// A sentence for the line; sessions are shown by `names`.
pub(in crate::cli) fn sentence(line: &LedgerLine, names: &Names) -> String {
    let (by, detail) = (or_dash(line.by.as_deref()), or_dash(line.detail.as_deref()));
    let subscriber = or_dash(line.subscriber.as_deref());
    let notification = or_dash(line.notification.as_deref());
    let session = line.session.as_ref().map_or_else(|| "-".to_owned(), |session| names.name(session));
    let Some(what) = ledger::of_word::<EntryKind>(&line.what) else {
        return format!("{} {}", line.what, or_dash(line.reason.as_deref()));
    };
    match what {
        EntryKind::Unmatched => "no subscriber matches it".to_owned(),
        EntryKind::Throttled => {
            let by = line.reason.as_deref().and_then(ledger::of_word::<ThrottledBy>);
            format!("throttled: {}", by.map_or("unknown reason", ThrottledBy::describe))
        }
        EntryKind::Skipped => "skipped: its record cannot be read, or the daemon crashed on it".to_owned(),
        EntryKind::Batched => format!("waited in {subscriber}"),
        EntryKind::EventEnded => format!("{subscriber} {}", end(line, |text| text.event)),
        EntryKind::Created => {
            format!("{subscriber} made {notification} from {}", counted(line.events.len(), "event"))
        }
        EntryKind::Unclaimed => format!("{notification} waits for a session: none in its scope is open"),
        EntryKind::Queued => format!("{notification} waits in session {session}"),
        EntryKind::Injected => {
            let injection = or_dash(line.injection.as_deref());
            let redelivered = line.detail.as_deref().and_then(ledger::of_word::<Redelivered>);
            let again =
                redelivered.map(|why| format!(", redelivered: {}", why.describe())).unwrap_or_default();
            format!(
                "{notification} was delivered to session {session} at {by} in injection {injection}{again}"
            )
        }
        EntryKind::Confirmed => {
            let how = ledger::of_word::<ConfirmedBy>(by).map_or("unknown proof", ConfirmedBy::describe);
            format!("{notification} arrived in session {session} ({by}): {how}")
        }
        EntryKind::Returned => {
            format!("{notification} returned to the queue of session {session}: it did not arrive")
        }
        EntryKind::Recalled => {
            format!(
                "{notification} is pending again in session {session}: the context was lost, and its condition still holds"
            )
        }
        EntryKind::Repeated => {
            let number = line.detail.as_ref().map(|number| format!("its repetition {number}"));
            let awaited = number.unwrap_or_else(|| "an answer: it has no repetition left".to_owned());
            format!("{notification} waits in session {session} for {awaited}")
        }
        EntryKind::Responded => format!("{notification} is {detail} in session {session}, by {by}"),
        EntryKind::NotificationEnded => {
            let place = line.session.as_ref().map(|_| format!(" in session {session}")).unwrap_or_default();
            format!("{notification} ended{place}: {}", end(line, |text| text.notification))
        }
        EntryKind::UserQueued => format!("queued for {by}"),
        EntryKind::UserSent => match &line.detail {
            Some(id) => format!("{by} accepted it, as {id}"),
            None => format!("{by} accepted it"),
        },
        EntryKind::UserFailed => match line.retry_at() {
            Some(at) => format!("{by} did not accept it: {detail}; retried at {at}"),
            None => format!("{by} did not accept it: {detail}; not retried"),
        },
        EntryKind::UserWaits => format!("waits for {by} until the quiet hours end, at {detail}"),
        EntryKind::UserEnded => {
            let why = line.reason.as_deref().and_then(ledger::of_word::<NotSent>);
            format!("{by} {}", why.map_or("did not get it", NotSent::describe))
        }
        EntryKind::UserSuppressed => format!("not sent: {}", filled(suppressed(line).end, line)),
    }
}

/// The sentence of the line's reason, with its placeholders filled in; the reason's word if it is
/// unknown. `part` selects the sentence for an event or a notification.
fn end(line: &LedgerLine, part: impl Fn(ReasonText) -> Option<Sentence>) -> String {
    let word = or_dash(line.reason.as_deref());
    Reason::text_of(word)
        .and_then(part)
        .map_or_else(|| word.to_owned(), |sentence| filled(sentence.end, line))
}

fn filled(text: &str, line: &LedgerLine) -> String {
    text.replace("{detail}", or_dash(line.detail.as_deref()))
        .replace("{key}", or_dash(line.detail.as_deref().and_then(ledger::of_word).map(FilteredBy::key)))
        .replace("{subscriber}", or_dash(line.subscriber.as_deref()))
}

fn suppressed(line: &LedgerLine) -> Sentence {
    let unknown = Sentence { end: "unknown reason", next: "nothing to do" };
    line.reason.as_deref().and_then(Suppressed::sentence_of).unwrap_or(unknown)
}

/// The user's next step, if `line` is the last one of `history`.
fn next_after(line: &LedgerLine, history: &[LedgerLine]) -> String {
    let subscriber = or_dash(line.subscriber.as_deref());
    let notification = or_dash(line.notification.as_deref());
    let nothing = || "nothing to do".to_owned();
    let reason = |part: fn(ReasonText) -> Option<Sentence>| {
        let text = line.reason.as_deref().and_then(Reason::text_of).and_then(part);
        text.map_or_else(nothing, |sentence| filled(sentence.next, line))
    };
    let Some(what) = ledger::of_word::<EntryKind>(&line.what) else {
        return "aside history lists other events".to_owned();
    };
    match what {
        EntryKind::Unmatched => {
            "a subscriber gets it once its `types` name the type; aside explain with its id shows the nearest"
                .to_owned()
        }
        EntryKind::Throttled => {
            "nothing to do for this one; aside history shows what else its source published".to_owned()
        }
        EntryKind::Skipped => "aside journal verify shows whether its record can be read".to_owned(),
        EntryKind::Batched => {
            format!(
                "{subscriber} keeps it until its batch closes (its window, digest or quiet hours) or, with [absent], another comes"
            )
        }
        EntryKind::EventEnded => reason(|text| text.event),
        EntryKind::NotificationEnded => reason(|text| text.notification),
        EntryKind::Unclaimed => {
            format!("the next session in its scope gets it; aside inbox dismiss {notification} ends it")
        }
        // One for the user alone is in no queue, and sessions take one for many of them a little later.
        EntryKind::Created => format!(
            "an exchange at its point delivers it or, if it is for you alone, your sinks when nothing holds it; \
             aside inbox dismiss {notification} ends it"
        ),
        EntryKind::Queued | EntryKind::Returned | EntryKind::Recalled => {
            format!("the next exchange at its point delivers it; aside inbox dismiss {notification} ends it")
        }
        EntryKind::Repeated => {
            format!(
                "aside inbox acknowledge {notification} answers it, so that it neither comes again nor ends as unanswered"
            )
        }
        EntryKind::Responded => nothing(),
        EntryKind::Injected => {
            "it is not confirmed yet; the next step or the end of the turn confirms it".to_owned()
        }
        EntryKind::Confirmed => match history.iter().rev().find_map(|line| line.injection.as_ref()) {
            Some(injection) => {
                format!("nothing to do; aside why {injection} shows the text that the agent received")
            }
            None => nothing(),
        },
        EntryKind::UserSuppressed => suppressed(line).next.to_owned(),
        EntryKind::UserFailed => {
            let check = format!("aside doctor checks the sink {}", or_dash(line.by.as_deref()));
            line.retry_at().map_or(check.clone(), |at| format!("it is retried at {at}; {check}"))
        }
        EntryKind::UserWaits => "it is sent then; without `quiet` in [sinks], at once".to_owned(),
        EntryKind::UserQueued | EntryKind::UserSent | EntryKind::UserEnded => nothing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_an_event_ends_has_its_sentence() {
        for (line, words) in [
            (r#"{"what":"unmatched"}"#, "no subscriber matches it"),
            (r#"{"what":"throttled","reason":"causes"}"#, "throttled: chain of causes too long"),
            (r#"{"what":"throttled","reason":"source_rate"}"#, "throttled: source over its rate"),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"severity_filter"}"#,
                "ci filtered it: severity_filter",
            ),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"duplicate","detail":"7"}"#,
                "ci counted it as a repeat of 7",
            ),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"where could not be evaluated"}"#,
                "ci filtered it: where could not be evaluated",
            ),
            (r#"{"what":"event_ended","subscriber":"ci","reason":"subscriber_off"}"#, "ci is switched off"),
            (
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"i1","by":"turn_start","detail":"context_lost"}"#,
                "n1 was delivered to session s1 at turn_start in injection i1, redelivered: its context was lost",
            ),
            (
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"i1","by":"turn_start","detail":"unconfirmed"}"#,
                "n1 was delivered to session s1 at turn_start in injection i1, redelivered: it was not confirmed",
            ),
            (
                r#"{"what":"confirmed","notification":"n1","session":"s1","by":"turn"}"#,
                "n1 arrived in session s1 (turn): the turn with it has ended",
            ),
            (
                r#"{"what":"confirmed","notification":"n1","session":"s1","by":"later_exchange"}"#,
                "n1 arrived in session s1 (later_exchange): the session continued after it",
            ),
            (
                r#"{"what":"notification_ended","notification":"n1","session":"s1","reason":"uncertain"}"#,
                "n1 ended in session s1: it was not confirmed, and is not redelivered",
            ),
        ] {
            let line: LedgerLine = serde_json::from_str(line).expect("a line");
            assert_eq!(sentence(&line, &Names::default()), words);
        }
    }

    #[test]
    fn every_last_line_has_a_next_step() {
        let given = r#"{"what":"injected","notification":"n1","session":"s1","injection":"abc123","by":"after_tool"}"#;
        for (lines, next_step) in [
            (&[r#"{"what":"queued","notification":"n1","session":"s1"}"#][..], "aside inbox dismiss n1"),
            (&[given], "the next step or the end of the turn confirms it"),
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
                &[
                    r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"severity_filter"}"#,
                ],
                "change `severity_filter` of ci, then aside reload",
            ),
            (
                &[r#"{"what":"event_ended","subscriber":"ci","reason":"duplicate","detail":"7"}"#],
                "aside why 7",
            ),
            (&[r#"{"what":"notification_ended","notification":"n1","reason":"expired"}"#], "raise `ttl`"),
            (&[r#"{"what":"notification_ended","notification":"n1","reason":"dismissed"}"#], "nothing to do"),
            (
                &[
                    r#"{"what":"user_failed","by":"ntfy","reason":"again 10:00"}"#,
                    r#"{"what":"user_sent","by":"log"}"#,
                ],
                "it is retried at 10:00; aside doctor checks the sink ntfy",
            ),
            (
                &[
                    r#"{"what":"user_failed","by":"ntfy","reason":"again 10:00"}"#,
                    r#"{"what":"user_sent","by":"ntfy"}"#,
                ],
                "nothing to do",
            ),
            (
                &[r#"{"what":"user_failed","by":"ntfy","reason":"given up"}"#],
                "aside doctor checks the sink ntfy",
            ),
        ] {
            let history: Vec<LedgerLine> =
                lines.iter().map(|line| serde_json::from_str(line).expect("a line")).collect();
            let said = next(&history).expect("something");
            assert!(said.contains(next_step), "{said}");
        }
        assert_eq!(next(&[]), None);
    }
}

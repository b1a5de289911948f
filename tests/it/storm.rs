//! A storm of events while a subscriber collects: one notification at the end, every event counted, and
//! bounded memory.

use std::{fs, time::Duration};

use engine::{
    Input, Output,
    event::{Payload, Seq},
    ledger::{LedgerEntry, Reason},
    notification::Notification,
};
use journal::time::Timestamp;
use serde_json::json;

use crate::support::{
    drive::{Drive, Restarts, rules},
    random::number,
    rules::event,
};

/// Number of events, see `ASIDE_STORM_EVENTS`.
const EVENTS: u64 = 3_000;
/// The number of events for which the memory is limited.
const LIMITED_FROM: u64 = 100_000;
const MEMORY_KIB_MAX: u64 = 128 * 1_024;
/// Most rows and bytes of payloads that are kept.
const ROWS_MAX: u64 = 1_000;
const BYTES_MAX: u64 = 1 << 20;

fn chat(batching: &str) -> Vec<(String, String)> {
    let text = format!(
        "[subscriber]\nid = \"chat\"\n[events]\ntypes = [\"chat.message.posted\"]\n[batching]\n{batching}\n\
         [limits]\nquiet = \"22:00-07:00\"\n[output]\nmax_tokens = 2000\n\
         [output.table]\nkey = \"messages\"\ncolumns = [\"n\"]\n"
    );
    vec![("subscribers/chat.toml".into(), text)]
}

/// What the messages of a night lead to: the notifications, and the number of events that were not kept.
fn night(
    batching: &str,
    events: u64,
    message: &str,
    restarts: Restarts,
) -> (Vec<(Timestamp, Notification)>, u64) {
    let mut drive = Drive::with(rules(&chat(batching)), restarts);
    let evening: Timestamp = "2026-01-06T22:30:00Z".parse().expect("a time");
    let (mut made, mut over) = (Vec::new(), 0);
    let mut take = |drive: &mut Drive| {
        for (at, output) in drive.take_outputs() {
            match output {
                Output::Made(notification) => made.push((at, (*notification).clone())),
                Output::Record(LedgerEntry::EventEnded { reason: Reason::BatchOverflow, .. }) => over += 1,
                Output::Record(LedgerEntry::EventEnded { reason, .. }) => {
                    panic!("an event ended: {reason:?}")
                }
                Output::Record(_)
                | Output::Said(_)
                | Output::Session(..)
                | Output::Answer { .. }
                | Output::Refuse { .. }
                | Output::Publish(_)
                | Output::Wake(_) => {}
            }
        }
    };
    for number in 0..events {
        let at = evening + Duration::from_secs(7 * 3_600) / 100_000 * u32::try_from(number).expect("small");
        let mut posted = event("chat.message.posted", None, &json!({ "n": number, "text": message }));
        (posted.id, posted.timestamp, posted.session) = (format!("m{number}").into(), at, None);
        drive.emit(&posted, at);
        take(&mut drive);
    }
    drive.input(Input::ShuttingDown, evening + Duration::from_secs(8 * 3_600));
    drive.advance("2026-01-07T12:00:00Z".parse().expect("a time"));
    take(&mut drive);
    (made, over)
}

/// The number after `name` in a text.
fn counted(text: &str, name: &str) -> u64 {
    let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("no `{name}`: {text}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after `{name}`: {text}"))
}

fn assert_one_in_the_morning(batching: &str, events: u64, message: &str, restarts: Restarts) {
    let (made, over) = night(batching, events, message, restarts);
    let [(at, notification)] = &made[..] else { panic!("{} notifications of {batching}", made.len()) };
    assert!(*at >= "2026-01-07T07:00:00Z".parse().expect("a time"), "{at}");
    let payload = Payload::from(json!({ "n": events - 1, "text": message })).as_str().len() as u64;
    let kept = (BYTES_MAX / payload).clamp(1, ROWS_MAX).min(events);
    let rows = notification.events.len() as u64;
    // Smaller numbers have shorter payloads.
    assert!((kept..=kept + 1).contains(&rows), "{rows} rows are kept, not {kept}");
    assert_eq!(over + rows, events, "each event has a row or an end");
    let newest: Vec<Seq> = notification.events.iter().rev().take(3).copied().collect();
    assert_eq!(newest, [events, events - 1, events - 2].map(Seq), "the newest are kept");
    let text = notification.content.text();
    assert_eq!(counted(text, "messages[") + counted(text, "omitted: "), events, "{text}");
}

#[test]
#[expect(clippy::print_stdout, reason = "a run with many events is for this number")]
fn a_storm_in_the_night_is_one_notification() {
    let events = number("ASIDE_STORM_EVENTS").unwrap_or(EVENTS);
    for batching in ["window_ms = 2000", "window_ms = 0", "mode = \"digest\"\nat = [\"09:00\"]"] {
        assert_one_in_the_morning(batching, events, "lunch?", Restarts::Never);
        assert_one_in_the_morning(batching, events, &"x".repeat(4_000), Restarts::Never);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    println!("{events} events, at most{most} of memory");
    let kib = most.trim().split(' ').next().and_then(|number| number.parse::<u64>().ok());
    if events >= LIMITED_FROM {
        assert!(kib.is_some_and(|kib| kib < MEMORY_KIB_MAX), "{kib:?} KiB");
    }
}

#[test]
fn a_restart_at_each_message_changes_nothing() {
    assert_one_in_the_morning("window_ms = 2000", 60, &"x".repeat(90_000), Restarts::BeforeEveryInput);
}

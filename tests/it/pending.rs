//! Many subscribers have notifications pending at the same time: how many exchanges deliver all of
//! them, in each format.

use std::collections::BTreeSet;

use engine::{
    Input, Output,
    event::{Event, Payload, Provenance, SessionId, Severity},
    exchange::{Answer, Budget, Exchange, Format, Harness},
    notification::{InjectionPoint, Tokens},
};
use journal::time::Timestamp;
use serde_json::json;
use strum::VariantArray;

use crate::support::drive::Drive;

const SUBSCRIBERS: usize = 160;
/// Default number of notifications in an injection.
const NOTIFICATIONS: usize = 10;
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// A session with one pending notification from each of so many subscribers.
fn with_pending(subscribers: usize) -> Drive {
    let subscriber = |number| {
        let text = format!(
            "[subscriber]\nid = \"watch_the_stock_{number:03}\"\n[events]\ntypes = [\"test.made\"]\nseverity_filter = \"debug\"\n\
             [batching]\nwindow_ms = 0\n[output]\npriority = \"normal\"\ninject_at = \"after_tool\"\ntemplate = \"templates/stock.toon.j2\"\n"
        );
        (format!("subscribers/watch_the_stock_{number:03}.toml"), text)
    };
    let mut files: Vec<(String, String)> = (0..subscribers).map(subscriber).collect();
    files.push(("aside.toml".to_owned(), "[budget]\nturn = \"off\"\nhour = \"off\"\n".to_owned()));
    files.push(("templates/stock.toon.j2".to_owned(), "stock: {{ events[0].payload.n }}".to_owned()));
    let mut drive = Drive::new(&files);
    drive.input(Input::SessionOpened { session: SessionId::new("s1"), harness: Harness::default() }, START);
    let event = Event {
        id: "e1".into(),
        event_type: "test.made".parse().expect("valid"),
        source: "test".into(),
        provenance: Provenance::Local,
        severity: Severity::Info,
        timestamp: START,
        payload: Payload::from(json!({ "n": 7 })),
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
        deliver_after: None,
    };
    drive.emit(&event, START);
    drive
}

/// The number of notifications that each exchange delivers until nothing is pending. Checks that
/// none comes twice, and that each answer counts the rest.
fn delivered_by_each(drive: &mut Drive, format: Format, budget: Budget, pending: usize) -> Vec<usize> {
    let (mut left, mut delivered, mut seen) = (pending, Vec::new(), BTreeSet::new());
    for number in 0..pending {
        let mut exchange =
            Exchange::new(SessionId::new("s1"), InjectionPoint::AfterTool, &number.to_string());
        exchange.format = Some(format);
        exchange.budget = budget;
        drive.exchange(exchange, START);
        let answers: Vec<Answer> = drive
            .take_outputs()
            .into_iter()
            .filter_map(
                |(_, output)| if let Output::Answer { answer, .. } = output { Some(answer) } else { None },
            )
            .collect();
        let [answer] = answers.as_slice() else { panic!("{} answers", answers.len()) };
        let injection = answer
            .injection
            .as_ref()
            .unwrap_or_else(|| panic!("{format:?}: {left} are left and nothing leaves"));
        assert!(injection.notifications.iter().all(|released| seen.insert(released.id)), "one came twice");
        left -= injection.notifications.len();
        assert_eq!(usize::try_from(answer.pending), Ok(left));
        delivered.push(injection.notifications.len());
        if left == 0 {
            return delivered;
        }
    }
    panic!("{format:?}: {left} are left after as many exchanges as there were notifications");
}

#[test]
fn every_injection_holds_the_maximum_number_of_notifications() {
    for format in Format::VARIANTS.iter().copied() {
        let delivered =
            delivered_by_each(&mut with_pending(SUBSCRIBERS), format, Budget::default(), SUBSCRIBERS);
        assert_eq!(delivered, [NOTIFICATIONS; SUBSCRIBERS / NOTIFICATIONS], "{format:?}");
    }
}

#[test]
fn line_about_remaining_notifications_has_bounded_size() {
    let budget = Budget { max_tokens: Some(Tokens(200)), max_notifications: Some(100), ..Budget::default() };
    for format in Format::VARIANTS.iter().copied() {
        let delivered = delivered_by_each(&mut with_pending(SUBSCRIBERS), format, budget, SUBSCRIBERS);
        let few = delivered_by_each(&mut with_pending(20), format, budget, 20);
        let most = SUBSCRIBERS.div_ceil(*few.first().expect("one exchange"));
        assert!(delivered.len() <= most, "{format:?}: {delivered:?}, and {few:?} with few of them");
    }
}

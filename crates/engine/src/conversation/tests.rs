//! All queues together.

use std::sync::Arc;

use super::{InjectionSettings, SessionSettings, Sessions, Settings, sessions::SessionOutput};
use journal::time::Timestamp;

use crate::{
    event::SessionId,
    exchange::{Decision, Harness},
    hold::Hold,
    ledger::{LedgerEntry, Reason},
    notification::{Audience, Notification, Priority},
};

const NOW: Timestamp = Timestamp::from_millis(1);

fn settings() -> Settings {
    Settings {
        injection: InjectionSettings::default(),
        sessions: SessionSettings::default(),
        wake_threshold: Priority::High,
        budgets: Arc::default(),
    }
}

/// No session yet, with the default settings.
pub(super) fn sessions() -> Sessions {
    Sessions::new(settings())
}

fn notification(name: String, priority: Priority) -> Arc<Notification> {
    Arc::new(Notification { created_at: NOW, ..Notification::example(&name, priority) })
}

fn queue(all: &mut Sessions, session: &SessionId, notification: Arc<Notification>) {
    let key = all.table.key(session).expect("it is open");
    all.queue(key, notification, None);
}

#[test]
fn held_notice_to_the_user_can_be_dismissed() {
    let mut all = sessions();
    let waiting = notification("n1".to_owned(), Priority::High);
    let hold = Hold::Snoozed { since: NOW, until: Timestamp::from_millis(9) };
    all.pass_to_user(&waiting, Audience::User, vec![hold]);
    assert!(all.can_decide(None, &waiting.id, Decision::Dismiss));
    assert!(!all.can_decide(None, &waiting.id, Decision::Discuss));
    all.decide(None, &waiting.id, Decision::Dismiss);
    assert!(!all.can_decide(None, &waiting.id, Decision::Dismiss));
    let ended =
        LedgerEntry::NotificationEnded { notification: waiting.id, session: None, reason: Reason::Dismissed };
    assert!(matches!(all.poll_output(), Some(SessionOutput::Record(entry)) if entry == ended));
    assert!(all.poll_output().is_none());
}

#[test]
fn the_total_queue_bound_evicts_lowest_priority_first() {
    const MAX: usize = 10_000;
    let mut settings = settings();
    settings.sessions.pending_max = u32::try_from(MAX).expect("small");
    let mut all = Sessions::new(settings);
    let id = |number: usize| SessionId::new(&format!("s{number:03}"));
    for number in 0..=100 {
        all.open_session(&id(number), &Harness::default(), NOW);
    }
    queue(&mut all, &id(0), notification("low".to_owned(), Priority::Low));
    for number in 1..=100 {
        for n in 0..100 {
            let priority = if number == 7 { Priority::Normal } else { Priority::High };
            queue(&mut all, &id(number), notification(format!("{number}/{n}"), priority));
        }
    }
    all.relieve();
    let pending = |all: &Sessions, number| all.view(&id(number)).expect("open").injector.pending().0;
    assert_eq!((pending(&all, 0), pending(&all, 7), all.table.pressure.total), (0, 100, MAX));
    queue(&mut all, &id(0), notification("critical".to_owned(), Priority::Critical));
    all.relieve();
    assert_eq!((pending(&all, 0), pending(&all, 7), pending(&all, 8)), (1, 99, 100));
    all.end_session(&id(8), NOW);
    assert_eq!(all.table.pressure.total, MAX - 100);
    for number in 9..=70 {
        all.end_session(&id(number), NOW);
    }
    all.relieve();
    assert!(!all.table.pressure.keeps_order(), "half of the room is free");
    for (number, n) in (71..80).flat_map(|number| (0..700).map(move |n| (number, n))) {
        queue(&mut all, &id(number), notification(format!("{number} again {n}"), Priority::High));
    }
    queue(&mut all, &id(71), notification("least".to_owned(), Priority::Low));
    all.relieve();
    assert_eq!((all.table.pressure.total, pending(&all, 71)), (MAX, 800));
}

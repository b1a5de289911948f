//! What queries leave out for a process of a session.

use engine::{session::Readable, sorted::SortedSet};

use super::*;
use crate::history::{events::EventFilter, notifications::NotificationFilter};

/// Events and notifications of `a`, its ended subagents `a/x` and `a/x/y`, of `b`, and of none; the
/// newest is of `b`. `n3` is of none and went to `a` and `b`; `n4` of `b` was copied to `a`.
const ROWS: &str = "
INSERT INTO events SELECT value, 3, value, 's', 't.e', 'e' || value, nullif(session, ''), NULL, NULL, NULL, '{}', NULL FROM
    (SELECT 1 value, 'a' session UNION SELECT 2, 'b' UNION SELECT 3, '' UNION SELECT 4, 'a/x' UNION SELECT 5, 'a/x/y'
     UNION SELECT 6, 'b');
INSERT INTO events VALUES (7, 3, 7, 'other', 't.e', 'e1', 'b', NULL, NULL, NULL, '{}', NULL);
INSERT INTO notifications SELECT value, 1, 1, 0, NULL, 's', 'n' || value, 'after_tool', nullif(session, ''), NULL, 1, 'k: v', 'k is v' FROM
    (SELECT 1 value, 'a' session UNION SELECT 2, 'b' UNION SELECT 3, '' UNION SELECT 4, 'b' UNION SELECT 5, 'a/x/y'
     UNION SELECT 6, '' UNION SELECT 7, 'b');
INSERT INTO notification_events VALUES (1, 'n1'), (2, 'n2'), (3, 'n3'), (6, 'n4'), (6, 'n3');
INSERT INTO deliveries (notification, session, state, reason, injection, at, place) VALUES ('n1', 'a', 'confirmed', NULL, 'i1', 0, 1), ('n2', 'b', 'pending', NULL, NULL, 0, 2),
    ('n3', 'a', 'confirmed', NULL, 'i1', 0, 3), ('n3', 'b', 'pending', NULL, NULL, 0, 4), ('n4', 'a', 'ended', NULL, NULL, 0, 5),
    ('n4', 'b', 'pending', NULL, NULL, 0, 6), ('n6', '', 'unclaimed', NULL, NULL, 0, 7);
INSERT INTO ledger (place, at, what, event, notification, session) VALUES (1, 0, 'created', NULL, 'n3', NULL),
    (2, 0, 'queued', NULL, 'n3', 'a'), (3, 0, 'queued', NULL, 'n3', 'b');
INSERT INTO injections VALUES (1, 0, 'a', 'i1', 'tool', 'of a', 0), (2, 0, 'b', 'i1', 'tool', 'of b', 0), (3, 0, 'b', 'i2', 'tool', 'of b', 0);
INSERT INTO sessions (place, id, opened_at, closed_place, closed_at, parent) VALUES (1, 'a', 0, NULL, NULL, NULL),
    (2, 'a/x', 0, 5, 0, 'a'), (3, 'a/x/y', 0, 4, 0, 'a/x'), (4, 'b', 0, NULL, NULL, NULL), (5, 'loop', 0, 6, 0, 'loop');
";

fn set(names: &[&str]) -> SortedSet<SessionId> {
    names.iter().map(|name| SessionId::new(name)).collect()
}

async fn read<T: Send + 'static>(
    path: &std::path::Path,
    look: impl FnOnce(&View<'_>) -> QueryResult<T> + Send + 'static,
) -> T {
    let (projection, _orders) = Projection::new(path);
    projection.read(look).await.expect("readable")
}

fn written() -> (TempDir, PathBuf) {
    let (folder, path) = file();
    drop(Writer::open(&path).expect("opened"));
    execute(&path, ROWS);
    (folder, path)
}

#[tokio::test]
async fn subagents_are_found_over_any_number_of_parents() {
    let (_folder, path) = written();
    for (of, expected) in
        [(&["a"][..], &["a/x", "a/x/y"][..]), (&["a/x", "b"], &["a/x/y"]), (&["loop"], &["loop"]), (&[], &[])]
    {
        let of = set(of);
        assert_eq!(read(&path, move |view| view.subagents_of(&of)).await, set(expected));
    }
}

#[tokio::test]
async fn pages_hold_readable_rows_alone() {
    let (_folder, path) = written();
    let own = Readable::Of(set(&["a", "a/x", "a/x/y"]));
    for (readable, limit, before, events, has_more) in [
        (Readable::All, 9, None, &[7, 6, 5, 4, 3, 2, 1][..], false),
        (own.clone(), 9, None, &[5, 4, 3, 1], false),
        (own.clone(), 2, None, &[5, 4], true),
        (own.clone(), 2, Some(4), &[3, 1], false),
        (Readable::Of(set(&[])), 9, None, &[3], false),
    ] {
        let filter = EventFilter { readable, before: before.map(Seq), ..EventFilter::default() };
        let (found, more) = read(&path, move |view| view.events(&filter, limit)).await;
        let found: Vec<u64> = found.iter().map(|line| line.seq).collect();
        assert_eq!((&found[..], more), (events, has_more));
    }
    let notifications = async |filter: NotificationFilter, limit: usize| {
        let (found, more) = read(&path, move |view| view.notifications(&filter, limit)).await;
        let shown = found.into_iter().map(|(_, one)| {
            let sessions = one.deliveries.into_iter().map(|delivery| delivery.session.unwrap_or_default());
            format!("{} {}", one.id, sessions.collect::<Vec<_>>().join(","))
        });
        (shown.collect::<Vec<_>>().join(" | "), more)
    };
    for (readable, state, session, limit, expected, has_more) in [
        (Readable::All, None, None, 9, "n7  | n6  | n5  | n4 a,b | n3 a,b | n2 b | n1 a", false),
        (own.clone(), None, None, 9, "n6  | n5  | n4 a | n3 a | n1 a", false),
        (own.clone(), None, None, 3, "n6  | n5  | n4 a", true),
        (own.clone(), Some("pending"), None, 9, "", false),
        (own.clone(), Some("unclaimed"), None, 9, "n6 ", false),
        (own.clone(), Some("confirmed"), Some("a"), 9, "n3 a | n1 a", false),
        (Readable::All, Some("pending"), None, 9, "n4 a,b | n3 a,b | n2 b", false),
        (Readable::All, Some("pending"), Some("b"), 1, "n4 a,b", true),
    ] {
        let filter = NotificationFilter {
            readable: readable.clone(),
            state: state.map(str::to_owned),
            session: session.map(str::to_owned),
            ..NotificationFilter::default()
        };
        let found = notifications(filter, limit).await;
        assert_eq!(found, (expected.to_owned(), has_more), "{readable:?} {state:?} {session:?}");
    }
}

#[tokio::test]
async fn a_look_up_respects_what_is_readable() {
    let (_folder, path) = written();
    let own = Readable::Of(set(&["a"]));
    let withheld = |session: &str| format!("withheld {session}");
    for (id, source, readable, expected) in [
        ("e1", None, Readable::All, "7".to_owned()),
        ("e1", None, own.clone(), "1".to_owned()),
        ("e1", Some("other"), own.clone(), withheld("b")),
        ("e2", None, own.clone(), withheld("b")),
        ("e3", None, own.clone(), "3".to_owned()),
        ("e9", None, own.clone(), "-".to_owned()),
    ] {
        let found = read(&path, move |view| view.event_by_id(id, source, &readable)).await;
        assert_eq!(shown(found.as_ref(), |(seq, _)| seq.0.to_string()), expected, "{id} {source:?}");
    }
    for (id, readable, expected) in [
        ("n2", Readable::All, "n2".to_owned()),
        ("n2", own.clone(), withheld("b")),
        ("n4", own.clone(), "n4".to_owned()),
        ("n6", own.clone(), "n6".to_owned()),
        ("n9", own.clone(), "-".to_owned()),
    ] {
        let found = read(&path, move |view| view.notification(id, &readable)).await;
        assert_eq!(shown(found.as_ref(), |one| one.id.clone()), expected, "{id}");
    }
    for (id, readable, expected) in [
        ("i1", Readable::All, "of b, of a".to_owned()),
        ("i1", own.clone(), "of a".to_owned()),
        ("i2", own.clone(), withheld("b")),
        ("i9", own.clone(), "-".to_owned()),
    ] {
        let found = read(&path, move |view| view.injections_named(id, 9, &readable)).await;
        let texts = |all: &Vec<crate::api::wire::history::InjectionLine>| {
            all.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(found.as_ref(), texts), expected, "{id}");
    }
    for (readable, lines, events) in [(Readable::All, 3, 2), (own, 2, 1)] {
        let both = read(&path, move |view| {
            let lines = view.history_of_notification("n3", &readable)?;
            assert_eq!(view.history_of_event(Seq(3), &readable)?, lines);
            Ok((lines.len(), view.events_at(&[3, 6], &readable)?.len()))
        });
        assert_eq!(both.await, (lines, events));
    }
}

fn shown<T>(looked: Option<&Looked<T>>, found: impl Fn(&T) -> String) -> String {
    match looked {
        None => "-".to_owned(),
        Some(Looked::Found(one)) => found(one),
        Some(Looked::Withheld { session }) => format!("withheld {session}"),
    }
}

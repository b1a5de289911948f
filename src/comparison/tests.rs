use super::*;

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(second * 1_000)
}

fn made(id: &str, subscriber: &str, second: u64, text: &str) -> Fact {
    let mut digest = 7;
    text.bytes().for_each(|byte| digest = digest * 31 + u64::from(byte));
    let (id, subscriber) = (NotificationId::new(id), SubscriberId::new(subscriber));
    Fact::Made(Made { id, subscriber, at: at(second), digest, line: text.into() })
}

fn delivered(id: &str, subscriber: &str, second: u64, tokens: u32, delay: u64) -> Fact {
    Fact::Delivered(Delivered {
        id: NotificationId::new(id),
        subscriber: SubscriberId::new(subscriber),
        at: at(second),
        tokens: Tokens(tokens),
        delay: Some(Duration::from_secs(delay)),
    })
}

fn answered(exchange: u64, has_text: bool) -> Fact {
    Fact::Answered { exchange: Seq(exchange), at: at(5), has_text }
}

fn compare(since: u64, then: Vec<Fact>, now: Vec<Fact>) -> Outcome {
    let run = |reversed: bool| {
        let mut comparison = Comparison::since(at(since));
        let sides = [(Side::Then, then.clone()), (Side::Now, now.clone())];
        let sides: Vec<_> = if reversed { sides.into_iter().rev().collect() } else { sides.into() };
        for (side, facts) in sides {
            facts.into_iter().for_each(|fact| comparison.take(side, fact));
        }
        comparison.finish()
    };
    let outcome = run(false);
    assert_eq!(outcome, run(true), "the order of the sides has no effect");
    outcome
}

fn kinds(outcome: &Outcome) -> Vec<(&str, &str)> {
    outcome.differences.iter().map(|one| (one.kind.as_str(), one.id.as_str())).collect()
}

#[test]
fn equal_streams_are_unchanged() {
    let facts = vec![made("a", "x", 1, "t"), delivered("a", "x", 2, 9, 1), answered(4, true)];
    let outcome = compare(0, facts.clone(), facts);
    assert!(outcome.rows.iter().all(Row::is_unchanged) && outcome.rows.len() == 1);
    assert_eq!((outcome.differences.len(), outcome.lost_texts, outcome.gained_texts), (0, 0, 0));
    assert_eq!(outcome.all.then, outcome.all.now);
    let expected = Numbers { made: 1, delivered: 1, tokens: 9, delay_p99: Some(Duration::from_secs(1)) };
    assert_eq!(outcome.all.now, expected);
}

#[test]
fn differences_have_their_kind_in_order() {
    let then = vec![
        made("gone", "x", 3, "t"),
        made("text", "x", 2, "before"),
        made("same", "y", 2, "t"),
        made("late", "z", 4, "t"),
        delivered("late", "z", 5, 1, 1),
    ];
    let now = vec![
        made("text", "x", 2, "after"),
        made("same", "y", 2, "t"),
        made("added", "y", 1, "t"),
        made("late", "z", 4, "t"),
        delivered("late", "z", 9, 1, 5),
    ];
    let outcome = compare(0, then, now);
    let expected = [("added", "added"), ("changed", "text"), ("gone", "gone"), ("changed", "late")];
    assert_eq!(kinds(&outcome), expected);
    let text = &outcome.differences[1];
    let lines = [&text.then, &text.now].map(|seen| seen.as_ref().map(|seen| seen.line.to_string()));
    assert_eq!(lines, [Some("before".to_owned()), Some("after".to_owned())]);
    assert!(text.has_other_text && !outcome.differences[3].has_other_text);
    let rows: Vec<_> =
        outcome.rows.iter().map(|row| (row.subscriber.as_str(), row.gone, row.added, row.changed)).collect();
    assert_eq!(rows, [("x", 1, 0, 1), ("y", 0, 1, 0), ("z", 0, 0, 1)]);
}

#[test]
fn counting_begins_at_the_given_time() {
    let then = vec![made("a", "x", 1, "t"), made("b", "x", 5, "t"), delivered("a", "x", 6, 2, 5)];
    let outcome = compare(5, then, Vec::new());
    let row = &outcome.rows[0];
    assert_eq!((row.numbers.then.made, row.numbers.then.delivered, row.gone), (1, 1, 1));
    assert_eq!(kinds(&outcome), [("gone", "b")]);
}

#[test]
fn exchanges_with_and_without_text_are_counted() {
    let then = vec![answered(1, true), answered(2, false), answered(3, true), answered(4, false)];
    let now = vec![answered(1, false), answered(2, true), answered(3, true), answered(4, true)];
    let outcome = compare(0, then, now);
    assert_eq!((outcome.lost_texts, outcome.gained_texts), (1, 2));
}

#[test]
fn the_delay_is_the_nearest_rank_of_all() {
    for (count, expected) in [(1, 1), (99, 99), (100, 99), (101, 100), (200, 198)] {
        let facts = (1..=count).rev().map(|delay| delivered("a", "x", 500, 1, delay)).collect();
        let outcome = compare(0, facts, Vec::new());
        assert_eq!(outcome.all.then.delay_p99, Some(Duration::from_secs(expected)), "{count}");
        assert_eq!(outcome.all.now.delay_p99, None);
    }
}

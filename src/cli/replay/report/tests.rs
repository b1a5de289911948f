use std::sync::Arc;

use engine::{
    event::Seq,
    notification::{NotificationId, SubscriberId, Tokens},
};

use super::*;
use crate::{
    cli::{
        replay::lists,
        terminal::tests::{of_width, pipe},
    },
    comparison::{Comparison, Delivered, Fact, Made, Side},
    daemon::rerun::{Extent, LostRules, Stopped},
};

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + second * 1_000)
}

/// `count` notifications of a subscriber, each delivered after `delay` seconds.
fn take(comparison: &mut Comparison, side: Side, subscriber: &str, count: u64, tokens: u32, delay: u64) {
    for number in 0..count {
        let id = NotificationId::new(&format!("n{number:03}{subscriber:.8}"));
        let subscriber = SubscriberId::new(subscriber);
        let line = format!("{subscriber}: the number {number} of a text that is longer than a line is wide");
        let made = Made { id, subscriber: subscriber.clone(), at: at(number), digest: 1, line: line.into() };
        comparison.take(side, Fact::Made(made));
        let delay = Some(Duration::from_secs(delay));
        let delivered = Delivered { id, subscriber, at: at(number + 1), tokens: Tokens(tokens), delay };
        comparison.take(side, Fact::Delivered(delivered));
    }
    for exchange in 0..count {
        comparison
            .take(side, Fact::Answered { exchange: Seq(exchange), at: at(9), has_text: side == Side::Then });
    }
}

/// The example of the documentation; `id` is added to each id, and `tokens` to each count of tokens.
fn compared(id: &str, tokens: u32) -> Compared<'static> {
    let mut comparison = Comparison::since(at(0));
    for (side, numbers) in [
        (Side::Then, [("ci_check", 41, 29, 4), ("same_a", 5, 9, 1), ("same_b", 5, 9, 1)].as_slice()),
        (
            Side::Now,
            &[("ci_check", 17, 36, 31), ("lint_table", 88, 50, 2), ("same_a", 5, 9, 1), ("same_b", 5, 9, 1)],
        ),
    ] {
        for (name, count, cost, delay) in numbers {
            take(&mut comparison, side, &format!("{name}{id}"), *count, cost + tokens, *delay);
        }
    }
    let extent = Extent {
        first: Seq(1),
        snapshot: None,
        begins_at: at(0),
        last: Seq(512_345),
        last_at: at(100),
        events: 412_306,
        exchanges: 8_204,
        lost: Vec::new(),
        stopped: Vec::new(),
    };
    Compared { since: Some("24h"), outcome: comparison.finish(), extent, judged: None }
}

fn page(compared: &Compared<'_>, terminal: &Terminal) -> String {
    Page { compared, took: Duration::from_millis(2_130), terminal }.text(None)
}

#[test]
fn page_has_a_row_for_each_changed_subscriber() {
    let expected = "\
412,306 events and 8,204 exchanges of 24h in 2.1 s
up to the durable record 512345, 2023-11-14 22:15

SUBSCRIBER  MADE       DELIVERED  TOKENS        DELAY p99
            then  now  then  now   then    now  then   now
ci_check      41   17    41   17  1,189    612   4 s  31 s
lint_table     0   88     0   88      0  4,400     -   2 s
2 others unchanged
all           51  115    51  115  1,279  5,102   4 s  31 s

exchanges: 0 with text that had none, 41 without text that had some
24 notifications of ci_check are gone: --show gone
88 notifications of lint_table are added: --show added
not known: what agents do because of other texts; their events are as they were
";
    let shown = page(&compared("", 0), &pipe());
    assert_eq!(shown, expected, "{shown}");
}

#[test]
fn every_line_fits_the_terminal() {
    let long = "_of_a_subscriber_whose_id_is_longer_than_sixty_columns_are_wide";
    for (id, tokens) in [("", 0), (long, 0), (long, 40_000_000), ("", 4_000_000_000)] {
        let mut compared = compared(id, tokens);
        compared.extent.first = Seq(70_000);
        compared.extent.lost = vec![LostRules {
            hash: Arc::from("0123456789abcdef"),
            from: at(1),
            until: None,
            no_ledger: Some("the projection cannot be read: unable to open database file".to_owned()),
        }];
        let subscriber = SubscriberId::new(&format!("pager{id}"));
        let why = "it ran for more than 10000000 instructions".to_owned();
        compared.extent.stopped = vec![Stopped { subscriber, at: Seq(7), why }];
        for columns in [80, 60] {
            let terminal = of_width(columns);
            let list = lists::text(&compared.outcome, Kind::Added, &terminal);
            let text = page(&compared, &terminal) + &list;
            for line in text.lines() {
                // A word that is longer than a line is not divided.
                let is_one_word = line.trim_start().split(' ').count() <= 2 && line.contains(long);
                assert!(width(line) <= columns || is_one_word, "{columns} columns: {line}\n{text}");
            }
            assert!(text.contains("DELIVERED") || text.contains("delivered 41 -> 17"), "{text}");
        }
    }
}

//! Timelines that random ones found, and those that they reach too seldom.

use journal::time::Timestamp;

use super::{
    BEGIN, live,
    timeline::{Asked, Step, What, event, exchange, report, without_room},
};

#[test]
fn notifications_without_room_become_one() {
    let mut steps = without_room();
    steps.push(Step { after_ms: 61_000, what: exchange(21) });
    let outputs = live(&steps).outputs.join("\n");
    assert!(outputs.contains("Summarised"), "{outputs}");
}

#[test]
fn shortened_quiet_window_closes_batch_at_next_event() {
    let steps = [
        Step { after_ms: 0, what: event(2, 1) },
        Step { after_ms: 1_000, what: What::Rules { generation: 1 } },
        Step { after_ms: 500, what: event(2, 1) },
    ];
    let made = live(&steps).outputs;
    let made: Vec<&String> = made.iter().filter(|output| output.contains("Created")).collect();
    let created = format!("{:?}", Timestamp::from_millis(BEGIN.as_millis() + 1_500));
    assert!(made.iter().any(|made| made.contains("quiet") && made.contains(&created)), "{made:#?}");
}

#[test]
fn subagent_keeps_a_condition_reported_again_for_all() {
    let steps = [
        (0, report(0, 0, 3)),
        (0, What::Open { session: 2 }),
        (0, report(0, 0, 0)),
        (1_000, report(0, 0, 0)),
    ];
    live(&steps.map(|(after_ms, what)| Step { after_ms, what }));
}

#[test]
fn offered_notification_waits_if_next_session_had_it() {
    let steps = [
        (0, report(0, 1, 4)),
        (0, What::Open { session: 3 }),
        (0, What::Open { session: 0 }),
        (45_538, What::Loop { event_type: 1, length: 7 }),
        (5_186, What::Close { session: 3, may_return: true }),
        (1_866, report(2, 0, 0)),
        (1_215, What::Rules { generation: 1 }),
        // The other session was silent for too long, and left what inhibition had ended in this one.
        (6_195, What::Open { session: 3 }),
    ];
    live(&steps.map(|(after_ms, what)| Step { after_ms, what }));
}

#[test]
fn answer_concerns_a_copy_of_the_session() {
    let asked = |session, point, context| {
        let What::Exchange(asked) = exchange(1) else { unreachable!("it is one") };
        What::Exchange(Asked { session, point, context, ..asked })
    };
    let steps = [
        (0, What::Rules { generation: 1 }),
        (0, report(0, 0, 5)),
        (1, report(0, 0, 0)),
        (1_499, report(1, 0, 1)),
        (0, asked(0, 1, None)),
        (6_000, report(6, 0, 0)),
        (0, asked(1, 0, Some(2))),
        (0, What::Respond { newest: 1, action: 0 }),
    ];
    live(&steps.map(|(after_ms, what)| Step { after_ms, what }));
}

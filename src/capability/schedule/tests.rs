use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn berlin() -> TimeZone {
    // As in the system's tables: daylight saving time begins on March 29 and ends on October 25,
    // 2026.
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule")
}

fn schedule(cron: &str) -> Schedule {
    Schedule::new("s", cron).unwrap_or_else(|error| panic!("{cron}: {error}"))
}

/// The times that are published if it plans at each of `nows`.
fn fired(planner: &mut Planner, schedules: &[Schedule], zone: &TimeZone, nows: &[&str]) -> Vec<String> {
    let due = nows.iter().flat_map(|now| planner.plan(schedules, at(now), zone).due);
    due.map(|due| due.at.to_string()).collect()
}

#[test]
fn next_time_follows_wall_clock_across_dst_changes() {
    let zone = berlin();
    for (cron, after, expected) in [
        ("0 9 * * 1-5", "2026-11-20T08:00:00Z", "2026-11-23T08:00:00Z"),
        ("0 9 * * 1-5", "2026-11-20T07:59:59.999Z", "2026-11-20T08:00:00Z"),
        ("0 9 * * *", "2026-07-01T00:00:00Z", "2026-07-01T07:00:00Z"),
        ("*/20 * * * * *", "2026-07-01T00:00:20Z", "2026-07-01T00:00:40Z"),
        // 02:30 does not exist on March 29; it is due when the clock jumps ahead, at 03:00.
        ("30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        ("30 2 * * *", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"),
        // 02:30 occurs twice on October 25: a time of day is due once, each half hour is due both
        // times.
        ("30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
        ("30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"),
        ("*/30 * * * *", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"),
        ("*/30 * * * *", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"),
    ] {
        let next = schedule(cron).next(at(after), &zone);
        assert_eq!(next, Some(at(expected)), "{cron} after {after}");
    }
}

#[test]
fn each_time_comes_once_whatever_the_clock_does() {
    let daily = [schedule("0 9 * * *")];
    let fired = |alive: &str, nows: &[&str]| {
        let alive = if alive.is_empty() { Timestamp::ZERO } else { at(alive) };
        super::tests::fired(&mut Planner::new(alive), &daily, &TimeZone::UTC, nows)
    };
    let nine = "2026-11-20T09:00:00Z";
    for (what, alive, nows, expected) in [
        ("in time", "", &["2026-11-20T08:00:00Z", nine, "2026-11-20T09:00:01Z"][..], &[nine][..]),
        ("it is new after its time", "", &["2026-11-20T09:30:00Z"], &[]),
        ("asleep for an hour", "", &["2026-11-20T08:59:00Z", "2026-11-20T09:59:00Z"], &[nine]),
        ("asleep for longer", "", &["2026-11-20T08:59:00Z", "2026-11-20T10:00:01Z"], &[]),
        ("asleep for days", "", &["2026-11-17T08:59:00Z", "2026-11-20T09:20:00Z"], &[nine]),
        ("no daemon ran", "2026-11-20T08:30:00Z", &["2026-11-20T09:30:00Z"], &[nine]),
        ("no daemon ran for longer", "2026-11-20T08:30:00Z", &["2026-11-20T10:30:00Z"], &[]),
        // Published again with the same id, because the daemon may have died before it was written.
        ("killed when it came", "2026-11-20T09:00:00.010Z", &["2026-11-20T09:00:05Z"], &[nine]),
        ("it ran then", "2026-11-20T09:02:00Z", &["2026-11-20T09:03:00Z"], &[]),
        ("set back", "", &["2026-11-20T08:59:00Z", nine, "2026-11-20T08:30:00Z", nine], &[nine]),
        (
            "set back by a day",
            "",
            &["2026-11-20T08:59:00Z", nine, "2026-11-19T08:30:00Z", "2026-11-19T09:00:00Z"],
            &[nine, "2026-11-19T09:00:00Z"],
        ),
        ("the last life was in the future", "2027-01-01T00:00:00Z", &["2026-11-20T08:59:00Z", nine], &[nine]),
    ] {
        assert_eq!(fired(alive, nows), expected, "{what}");
    }
}

#[test]
fn only_newest_of_missed_times_fires() {
    let mut planner = Planner::new(at("2026-11-20T08:00:00Z"));
    let each_minute = [schedule("* * * * *")];
    let nows = ["2026-11-20T08:31:30Z", "2026-11-20T08:32:00Z"];
    assert_eq!(
        fired(&mut planner, &each_minute, &TimeZone::UTC, &nows),
        ["2026-11-20T08:31:00Z", "2026-11-20T08:32:00Z"]
    );
}

#[test]
fn new_or_changed_schedule_starts_from_now() {
    let mut planner = Planner::new(at("2026-11-20T08:00:00Z"));
    let zone = TimeZone::UTC;
    assert_eq!(planner.plan(&[], at("2026-11-20T08:01:00Z"), &zone), Plan::default());
    let daily = Schedule { name: "daily".into(), ..schedule("0 9 * * *") };
    let both = [daily.clone(), Schedule { name: "noon".into(), ..schedule("0 12 * * *") }];
    let plan = planner.plan(&both, at("2026-11-20T09:30:00Z"), &zone);
    assert_eq!((plan.due, plan.next), (vec![], Some(at("2026-11-20T12:00:00Z"))));
    let changed = [Schedule { name: "daily".into(), ..schedule("45 9 * * *") }];
    let plan = planner.plan(&changed, at("2026-11-20T10:00:00Z"), &zone);
    assert_eq!((plan.due, plan.next), (vec![], Some(at("2026-11-21T09:45:00Z"))));
}

#[test]
fn event_id_contains_its_scheduled_time() {
    let schedule = Schedule {
        message: Some("Say what you did.".into()),
        workspace: Some("/w".into()),
        ..schedule("0 9 * * *")
    };
    let due = Due { schedule, at: at("2026-11-20T09:00:00Z") };
    let event = due.event(at("2026-11-20T09:00:07Z"));
    assert_eq!((&*event.id, event.workspace.as_deref()), ("timer:s:2026-11-20T09:00:00Z", Some("/w")));
    let payload = r#"{"name":"s","scheduled_at":"2026-11-20T09:00:00Z","message":"Say what you did."}"#;
    assert_eq!(event.payload.as_str(), payload);
}

#[test]
fn invalid_cron_is_refused_with_reason() {
    for (cron, expected) in [
        ("", "it is empty"),
        ("0 9 * *", "pattern must"),
        ("61 9 * * *", "out of bounds"),
        ("0 9 * * mon-fry", "illegal"),
        ("0 0 30 2 *", "that time never comes"),
    ] {
        let error = Schedule::new("s", cron).expect_err(cron);
        assert!(error.contains(expected), "{cron}: {error}");
    }
}

use std::{collections::BTreeMap, time::Duration};

use super::{
    families::{OTHERS, SUBSCRIBERS_MAX},
    *,
};
use journal::meter::Meters;

use crate::api::wire::{
    budgets::BudgetsView,
    history::ProjectionView,
    views::{
        ConfigView, DiskView, EventCounts, JournalView, NotificationCounts, RulesView, SessionCounts,
        StatusView, SubscriberCounts, TokenCounts,
    },
};

fn status(subscribers: usize) -> StatusView {
    let counts = |at: usize| SubscriberCounts {
        enabled: at.is_multiple_of(2),
        rows: 1,
        created: 1,
        injected_tokens: 10,
        ended: [("filtered".to_owned(), 2)].into(),
        ..SubscriberCounts::default()
    };
    StatusView {
        budgets: BudgetsView::default(),
        version: "0.1.0".to_owned(),
        build: "1a2b3c4d".to_owned(),
        pid: 7,
        started_at: "1970-01-01T00:00:01.500Z".to_owned(),
        uptime_ms: 500,
        clock_ahead_ms: -1_500,
        journal: JournalView {
            head: 9,
            synced: 8,
            applied: 7,
            durability: "sync".to_owned(),
            first: 1,
            first_at: None,
            segments: 2,
            bytes: 4_096,
            sealed: 0,
            sealed_bytes: 0,
            unsealed_bytes: 0,
            full: None,
            failed: Some("why\n\"so\"".to_owned()),
            problems: vec!["bad".to_owned()],
        },
        projection: ProjectionView { seq: 4, behind: 5, failed: None },
        disk: DiskView { history: 7, history_max: 9, ..DiskView::default() },
        config: ConfigView::default(),
        workspaces: Vec::new(),
        rules: RulesView { hash: "ab\\c\"\n".to_owned(), enabled: 1, disabled: 0 },
        events: EventCounts { published: 5, ..EventCounts::default() },
        notifications: NotificationCounts {
            ended: [("expired".to_owned(), 3)].into(),
            ..NotificationCounts::default()
        },
        tokens: TokenCounts::of(40, 100),
        sessions: SessionCounts::default(),
        subscribers: (0..subscribers).map(|at| (format!("s{at:03}"), counts(at))).collect(),
    }
}

/// The samples, keyed by the text before the value.
fn shown(status: &StatusView) -> BTreeMap<String, f64> {
    let meters = Meters::new(|| Duration::ZERO);
    meters.commit.observe(Duration::from_micros(3_000));
    meters.commit.observe(Duration::from_secs(60));
    let process = Process { resident_bytes: Some(4_096), cpu_seconds: 0.25, open_files: Some(12) };
    let text = write(families::all(status, &meters, &process)).expect("written");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        (series.to_owned(), value.parse().expect("a number"))
    };
    samples.map(sample).collect()
}

#[test]
fn status_values_appear_under_their_metric_names() {
    let shown = shown(&status(1));
    for (series, value) in [
        ("aside_build_info{version=\"0.1.0\"}", 1.0),
        ("aside_rules_info{hash=\"ab\\\\c\\\"\\n\"}", 1.0),
        ("aside_events_total", 5.0),
        ("aside_notifications_ended_total{reason=\"expired\"}", 3.0),
        ("aside_notifications_ended_total{reason=\"uncertain\"}", 0.0),
        ("aside_injected_tokens_total", 40.0),
        ("aside_raw_bytes_total", 100.0),
        ("aside_saved_tokens", -20.0),
        ("aside_subscriber_events_total{subscriber=\"s000\",outcome=\"filtered\"}", 2.0),
        ("aside_journal_unsynced_records", 1.0),
        ("aside_engine_lag_records", 2.0),
        ("aside_projection_size_bytes", 7.0),
        ("aside_projection_size_limit_bytes", 9.0),
        ("aside_projection_lag_records", 5.0),
        ("aside_projection_failed", 0.0),
        ("aside_journal_full", 0.0),
        ("aside_journal_failed", 1.0),
        ("aside_journal_problems", 1.0),
        ("aside_commit_duration_seconds_bucket{le=\"0.0025\"}", 0.0),
        ("aside_commit_duration_seconds_bucket{le=\"0.005\"}", 1.0),
        ("aside_commit_duration_seconds_bucket{le=\"10.0\"}", 1.0),
        ("aside_commit_duration_seconds_bucket{le=\"+Inf\"}", 2.0),
        ("aside_commit_duration_seconds_count", 2.0),
        ("aside_commit_duration_seconds_sum", 60.003),
        ("process_start_time_seconds", 1.5),
        ("process_cpu_seconds_total", 0.25),
        ("process_resident_memory_bytes", 4_096.0),
        ("process_open_fds", 12.0),
    ] {
        assert_eq!(shown.get(series), Some(&value), "{series}");
    }
}

#[test]
fn excess_subscribers_share_a_series_without_losing_counts() {
    let shown = shown(&status(SUBSCRIBERS_MAX + 150));
    let of = |name: &str| {
        let series = shown.iter().filter(|(series, _)| series.starts_with(name));
        series.map(|(series, count)| (series.clone(), *count)).collect::<Vec<_>>()
    };
    let notifications = of("aside_subscriber_notifications_total{");
    assert_eq!(notifications.len(), SUBSCRIBERS_MAX + 1);
    assert_eq!(notifications.iter().map(|(_, count)| count).sum::<f64>(), (SUBSCRIBERS_MAX + 150) as f64);
    let others = format!("aside_subscriber_events_total{{subscriber=\"{OTHERS}\",outcome=\"filtered\"}}");
    assert_eq!(shown.get(&others), Some(&300.0));
}

#[test]
fn the_system_tells_of_this_process() {
    let process = read_process();
    assert!(process.resident_bytes.is_some_and(|bytes| bytes > 1 << 20), "{process:?}");
    assert!(process.open_files.is_some_and(|count| count > 2), "{process:?}");
    assert!(process.cpu_seconds > 0.0, "{process:?}");
}

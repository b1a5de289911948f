//! The metrics: name, unit, help text, and source of each.

use std::sync::atomic::Ordering;

use engine::ledger::{Reason, ReasonText};
use journal::{
    meter::{BOUNDS_US, Histogram, Meters},
    time::Timestamp,
};

use crate::api::wire::{
    history::ProjectionView,
    views::{
        ConfigView, DiskView, EventCounts, JournalView, NotificationCounts, SessionCounts, StatusView,
        SubscriberCounts,
    },
};

/// Most subscribers with their own series; the others are summed. Users write subscriber files, so
/// a larger number indicates a bug, and a bug must not raise the cardinality in a metrics database.
pub(super) const SUBSCRIBERS_MAX: usize = 200;
/// Label of the summed subscribers; it is not a valid subscriber id.
pub(super) const OTHERS: &str = "(others)";

/// The labels of a series.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One metric.
#[derive(Debug)]
pub(super) struct Family {
    /// The name without unit and `_total`.
    pub(super) name: &'static str,
    pub(super) unit: Option<&'static str>,
    pub(super) help: &'static str,
    pub(super) values: Values,
}

/// The series of a metric.
#[derive(Debug)]
pub(super) enum Values {
    Counter(Vec<(Labels, u64)>),
    CounterOfTime(f64),
    Gauge(Vec<(Labels, f64)>),
    /// Upper bound and count of each bucket, and the sum.
    Histogram {
        buckets: Vec<(f64, u64)>,
        sum: f64,
    },
    Info(Labels),
}

/// The system's statistics of the daemon's process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) resident_bytes: Option<u64>,
    pub(super) cpu_seconds: f64,
    pub(super) open_files: Option<u64>,
}

/// All families, in output order.
pub(super) fn all(status: &StatusView, meters: &Meters, process: &Process) -> Vec<Family> {
    let mut all = program_and_rules(status);
    all.extend(events(&status.events));
    all.extend(notifications(&status.notifications));
    all.extend(tokens(status));
    all.extend(subscribers(status));
    all.extend(sessions(&status.sessions));
    all.extend(journal(&status.journal));
    all.extend(projection(&status.projection, &status.disk));
    all.extend(latencies(meters));
    all.extend(of_process(&status.started_at, process));
    all
}

fn program_and_rules(status: &StatusView) -> Vec<Family> {
    let is_in_force = status.config.state == ConfigView::IN_FORCE;
    let by_state = [("enabled", status.rules.enabled), ("disabled", status.rules.disabled)];
    vec![
        family("aside_build", None, "The program.", Values::Info(labels([("version", &status.version)]))),
        family(
            "aside_rules",
            None,
            "The rules in force, named by their content.",
            Values::Info(labels([("hash", &status.rules.hash)])),
        ),
        family(
            "aside_subscribers",
            None,
            "Subscribers of the rules in force.",
            Values::Gauge(
                by_state
                    .map(|(state, count)| (labels([("state", state)]), count as f64))
                    .into_iter()
                    .collect(),
            ),
        ),
        gauge(
            "aside_config_last_reload_successful",
            "0 while the last read of the configuration's files is not in force.",
            u64::from(is_in_force),
        ),
        gauge(
            "aside_config_errors",
            "Errors of the configuration's files when they were read last.",
            status.config.errors as u64,
        ),
        measure(
            "aside_clock_ahead",
            Some("seconds"),
            "How far the journal's time, which never steps back, is ahead of the wall clock.",
            status.clock_ahead_ms as f64 / 1_000.0,
        ),
    ]
}

fn events(events: &EventCounts) -> Vec<Family> {
    vec![
        counter("aside_events", "Events published, since the journal began.", events.published),
        counter(
            "aside_events_unmatched",
            "Events that no subscriber matched, since the journal began.",
            events.unmatched,
        ),
        counter(
            "aside_events_throttled",
            "Events that were not dispatched, as their chain of causes is too long or their source was over its rate, since the journal began.",
            events.throttled,
        ),
        counter(
            "aside_events_skipped",
            "Events that a start skipped, since the journal began.",
            events.skipped,
        ),
    ]
}

fn notifications(counts: &NotificationCounts) -> Vec<Family> {
    let ended = Reason::texts().map(|ReasonText { word, .. }| {
        (labels([("reason", word)]), counts.ended.get(word).copied().unwrap_or(0))
    });
    vec![
        counter(
            "aside_notifications_created",
            "Notifications made, since the journal began.",
            counts.created,
        ),
        counter(
            "aside_notifications_injected",
            "Notifications released to a carrier, once for each session and release, since the journal began.",
            counts.injected,
        ),
        counter(
            "aside_notifications_confirmed",
            "Notifications confirmed, once for each session, since the journal began.",
            counts.confirmed,
        ),
        family(
            "aside_notifications_ended",
            None,
            "Notifications that ended unconfirmed, by reason, since the journal began.",
            Values::Counter(ended.into_iter().collect()),
        ),
        gauge("aside_notifications_pending", "Notifications in the queues of sessions.", counts.pending),
        gauge(
            "aside_notifications_unclaimed",
            "Notifications that wait for a session that is not open yet.",
            counts.unclaimed,
        ),
        gauge(
            "aside_batches_open",
            "Batches that collect events, each for a notification that is not yet created.",
            counts.batches_open,
        ),
    ]
}

fn tokens(status: &StatusView) -> Vec<Family> {
    let tokens = &status.tokens;
    vec![
        family(
            "aside_injected",
            Some("tokens"),
            "Estimated tokens of all injections, wrappers included, since the journal began.",
            count_of(tokens.injected),
        ),
        family(
            "aside_raw",
            Some("bytes"),
            "Bytes of JSON of the payloads of all events in injected notifications, with repeats and counted ones.",
            count_of(tokens.raw_bytes),
        ),
        measure(
            "aside_saved",
            Some("tokens"),
            "aside_raw_bytes at five bytes a token, less aside_injected_tokens: the additional cost of the unprocessed payloads.",
            tokens.saved as f64,
        ),
    ]
}

fn subscribers(status: &StatusView) -> Vec<Family> {
    let shown = bounded(status);
    let each = |count: fn(&SubscriberCounts) -> u64| {
        let rows = shown.iter().map(|(id, counts)| (labels([("subscriber", id)]), count(counts)));
        Values::Counter(rows.collect())
    };
    let mut outcomes = Vec::new();
    for (id, counts) in &shown {
        let row = labels([("subscriber", id), ("outcome", "row")]);
        outcomes.push((row, counts.rows));
        let ended = counts.ended.iter();
        outcomes.extend(ended.map(|(word, count)| (labels([("subscriber", id), ("outcome", word)]), *count)));
    }
    vec![
        family(
            "aside_subscriber_events",
            None,
            "Events that matched a subscriber, by outcome: a row, or the reason for none; since the journal began.",
            Values::Counter(outcomes),
        ),
        family(
            "aside_subscriber_notifications",
            None,
            "Notifications that a subscriber made, since the journal began.",
            each(|counts| counts.created),
        ),
        family(
            "aside_subscriber_failures",
            None,
            "How often a subscriber's template or `where` failed, since the rules came into force.",
            each(|counts| counts.failing.iter().map(|failing| failing.times).sum()),
        ),
        family(
            "aside_subscriber_injected",
            Some("tokens"),
            "Estimated tokens of a subscriber's notifications in all injections, without the wrappers, since the journal began.",
            each(|counts| counts.injected_tokens),
        ),
        family(
            "aside_subscriber_raw",
            Some("bytes"),
            "Bytes of JSON of the payloads in a subscriber's injected notifications, since the journal began.",
            each(|counts| counts.raw_bytes),
        ),
    ]
}

/// The subscribers by id, active before inactive, and the sum of those beyond the limit.
fn bounded(status: &StatusView) -> Vec<(&str, SubscriberCounts)> {
    let mut all: Vec<_> = status.subscribers.iter().collect();
    all.sort_by_key(|(_, counts)| !counts.enabled);
    let mut shown: Vec<_> =
        all.iter().take(SUBSCRIBERS_MAX).map(|(id, counts)| (id.as_str(), (*counts).clone())).collect();
    let others = all.iter().skip(SUBSCRIBERS_MAX).fold(None, |sum, (_, counts)| {
        let mut sum: SubscriberCounts = sum.unwrap_or_default();
        sum.rows += counts.rows;
        sum.created += counts.created;
        sum.injected_tokens += counts.injected_tokens;
        sum.raw_bytes += counts.raw_bytes;
        sum.failing.extend(counts.failing.iter().cloned());
        for (word, count) in &counts.ended {
            *sum.ended.get_or_default(word.clone()) += count;
        }
        Some(sum)
    });
    shown.extend(others.map(|sum| (OTHERS, sum)));
    shown
}

fn sessions(counts: &SessionCounts) -> Vec<Family> {
    vec![
        gauge("aside_sessions_open", "Open sessions.", counts.open),
        gauge(
            "aside_requests_waiting",
            "Exchanges that wait for their answer, and sessions whose queue is watched.",
            counts.waiting,
        ),
        gauge("aside_injections_unconfirmed", "Injections that are not confirmed yet.", counts.unconfirmed),
    ]
}

fn journal(journal: &JournalView) -> Vec<Family> {
    let is = |it: &Option<String>| u64::from(it.is_some());
    vec![
        measure(
            "aside_journal_size",
            Some("bytes"),
            "Size of the journal's files, with preallocated space.",
            journal.bytes as f64,
        ),
        gauge("aside_journal_segments", "Files of the journal.", journal.segments as u64),
        gauge("aside_journal_first_seq", "The first record that is kept.", journal.first),
        gauge("aside_journal_last_seq", "The last record that was written.", journal.head),
        gauge(
            "aside_journal_unsynced_records",
            "Records that are written and not known to be on the disk.",
            journal.head.saturating_sub(journal.synced),
        ),
        gauge(
            "aside_engine_lag_records",
            "Records that are written and not handled by the engine.",
            journal.head.saturating_sub(journal.applied),
        ),
        gauge("aside_journal_full", "1 while the disk is full and events are refused.", is(&journal.full)),
        gauge(
            "aside_journal_failed",
            "1 when the journal is poisoned and accepts no records.",
            is(&journal.failed),
        ),
        gauge(
            "aside_journal_problems",
            "Damaged places of the journal and segments that cannot be deleted, found so far.",
            journal.problems.len() as u64,
        ),
    ]
}

fn projection(projection: &ProjectionView, disk: &DiskView) -> Vec<Family> {
    vec![
        measure("aside_projection_size", Some("bytes"), "Size of the history's files.", disk.history as f64),
        measure(
            "aside_projection_size_limit",
            Some("bytes"),
            "Limit of the history's size.",
            disk.history_max as f64,
        ),
        gauge(
            "aside_projection_lag_records",
            "Records that are written and not in the history.",
            projection.behind,
        ),
        gauge(
            "aside_projection_failed",
            "1 while the history is not updated; it is retried.",
            u64::from(projection.failed.is_some()),
        ),
    ]
}

fn latencies(meters: &Meters) -> Vec<Family> {
    vec![
        histogram(
            "aside_publish_duration",
            "From parsed events to their configured durability, once for each batch, since the start.",
            &meters.publish,
        ),
        histogram(
            "aside_exchange_duration",
            "From the append of an exchange to its answer, without the probes, those of hooks included, since the start.",
            &meters.exchange,
        ),
        histogram(
            "aside_hook_duration",
            "From a hook's request to its answer, without the hook's own process, since the start.",
            &meters.hook,
        ),
        histogram(
            "aside_commit_duration",
            "One sync of the journal to the disk, since the start.",
            &meters.commit,
        ),
        histogram(
            "aside_look_duration",
            "Duration of all probes of an exchange, also if it did not wait for them, since the start.",
            &meters.look,
        ),
        counter(
            "aside_looks_missed",
            "Exchanges without the findings of their probes, since the start.",
            meters.looks_missed.load(Ordering::Relaxed),
        ),
    ]
}

/// `started_at` is the recorded start time, so that the value never changes while the process runs:
/// alerts treat a change as a restart.
fn of_process(started_at: &str, process: &Process) -> Vec<Family> {
    let started = started_at.parse::<Timestamp>().ok().map(|at| {
        let seconds = at.as_millis() as f64 / 1e3;
        measure("process_start_time", Some("seconds"), "When the daemon started, in Unix time.", seconds)
    });
    let cpu = Values::CounterOfTime(process.cpu_seconds);
    let mut all: Vec<Family> = started.into_iter().collect();
    all.push(family("process_cpu", Some("seconds"), "Processor time, of the user and the system.", cpu));
    all.extend(
        process
            .resident_bytes
            .map(|bytes| measure("process_resident_memory", Some("bytes"), "Resident memory.", bytes as f64)),
    );
    all.extend(
        process.open_files.map(|count| gauge("process_open_fds", "Open files and connections.", count)),
    );
    all
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

const fn family(
    name: &'static str,
    unit: Option<&'static str>,
    help: &'static str,
    values: Values,
) -> Family {
    Family { name, unit, help, values }
}

fn counter(name: &'static str, help: &'static str, count: u64) -> Family {
    family(name, None, help, count_of(count))
}

fn count_of(count: u64) -> Values {
    Values::Counter(vec![(Labels::new(), count)])
}

fn gauge(name: &'static str, help: &'static str, value: u64) -> Family {
    measure(name, None, help, value as f64)
}

fn measure(name: &'static str, unit: Option<&'static str>, help: &'static str, value: f64) -> Family {
    family(name, unit, help, Values::Gauge(vec![(Labels::new(), value)]))
}

fn histogram(name: &'static str, help: &'static str, histogram: &Histogram) -> Family {
    let counts = histogram.counts();
    let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    let buckets = bounds.zip(counts.buckets).collect();
    family(name, Some("seconds"), help, Values::Histogram { buckets, sum: counts.sum.as_secs_f64() })
}

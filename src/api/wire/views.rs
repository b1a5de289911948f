//! Views of the daemon and its sessions in the API: plain data, filled in by the owner of each
//! state.
//!
//! Counts are since the journal's first record unless a field says otherwise; times are RFC 3339 in
//! UTC.

use std::{sync::Arc, time::Duration};

use engine::{io::Pending, sorted::SortedMap};
use journal::time::short_duration;
use serde::{Deserialize, Serialize};
use toon::tokens;

use crate::api::wire::{
    ErrorBody, budgets::BudgetsView, harness::HarnessView, history::ProjectionView, is_zero,
    trust::WorkspaceView,
};

/// The status of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct StatusView {
    /// The program's version.
    pub version: String,
    /// The program's build: a hash of its sources.
    #[serde(default)]
    pub build: String,
    /// The daemon's process.
    pub pid: u32,
    /// When it started.
    pub started_at: String,
    /// Its uptime, in milliseconds.
    pub uptime_ms: u64,
    /// How far the journal's time, which never steps back, is ahead of the wall clock, in
    /// milliseconds; negative if it is behind.
    #[serde(default)]
    pub clock_ahead_ms: i64,
    /// The journal.
    pub journal: JournalView,
    /// The history's file.
    pub projection: ProjectionView,
    /// The parts of the state folder.
    #[serde(default)]
    pub disk: DiskView,
    /// The active rules.
    pub rules: RulesView,
    /// The configuration's files, as last read.
    pub config: ConfigView,
    /// The workspaces that are trusted, or wait for their user's decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspaces: Vec<WorkspaceView>,
    /// Published events, and their outcome before a notification.
    pub events: EventCounts,
    /// Notifications, and their outcome.
    pub notifications: NotificationCounts,
    /// Cost of the injections, and the tokens that they saved.
    pub tokens: TokenCounts,
    /// The sessions.
    pub sessions: SessionCounts,
    /// What is used of the budgets.
    #[serde(default)]
    pub budgets: BudgetsView,
    /// Every subscriber, by id.
    #[cfg_attr(test, schema(value_type = std::collections::BTreeMap<String, SubscriberCounts>))]
    pub subscribers: SortedMap<String, SubscriberCounts>,
}

/// The parts of the state folder, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct DiskView {
    /// The journal's files, with preallocated space.
    pub journal: u64,
    /// The history with its write-ahead log.
    pub history: u64,
    /// The limit of the history.
    pub history_max: u64,
    /// The snapshots.
    pub snapshots: u64,
    /// The kept rules.
    pub rules: u64,
}

/// The largest difference of the journal's time from the wall clock that is not shown.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(60);

impl StatusView {
    /// A sentence about a large difference between the clocks; `None` without one.
    pub fn clock_trouble(&self) -> Option<String> {
        clock_trouble(self.clock_ahead_ms)
    }
}

/// A sentence about clocks that are this many milliseconds apart; `None` if they nearly agree.
pub fn clock_trouble(ahead_ms: i64) -> Option<String> {
    let apart = Duration::from_millis(ahead_ms.unsigned_abs());
    let way = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let text = || {
        format!(
            "the journal's time is {} {way} the wall clock; it never steps back, and times of events and watches follow it",
            short_duration(apart)
        )
    };
    (apart > CLOCKS_APART_MAX).then(text)
}

/// The journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct JournalView {
    /// The last written record.
    pub head: u64,
    /// The last record known to survive a power failure.
    pub synced: u64,
    /// The last record handled by the engine.
    pub applied: u64,
    /// `sync` or `interval`.
    pub durability: String,
    /// The first retained record.
    pub first: u64,
    /// When that was appended; absent without a record, or if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_at: Option<String>,
    /// Number of its files.
    pub segments: usize,
    /// Its size on disk, in bytes, with preallocated space.
    pub bytes: u64,
    /// Number of sealed files.
    pub sealed: usize,
    /// Size of the sealed files, as a part of `bytes`.
    pub sealed_bytes: u64,
    /// Their size before they were sealed.
    pub unsealed_bytes: u64,
    /// The missing space, while the disk is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// Why nothing more is accepted, if the disk failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Problems that do not stop the journal: places that cannot be read or sealed, segments that
    /// cannot be deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The active rules.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct RulesView {
    /// Content hash: lower-case hex of a SHA-256.
    pub hash: String,
    /// Number of enabled subscribers.
    pub enabled: usize,
    /// Number of disabled subscribers.
    pub disabled: usize,
}

/// The configuration's files, as last read: at the start, or by a reload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ConfigView {
    /// `in_force`; `refused` when a reload was, so that the earlier rules stay active; `partly`
    /// when the start left out entries with errors, or used their last good text.
    pub state: String,
    /// When they were read.
    pub read_at: String,
    /// Number of errors.
    pub errors: usize,
    /// Number of warnings.
    pub warnings: usize,
    /// The problems, an error a line with its place and the fallback; the first ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl ConfigView {
    /// The state of files that are fully active.
    pub const IN_FORCE: &'static str = "in_force";
    /// The state of files that are not active.
    pub const REFUSED: &'static str = "refused";
    /// The state of files whose valid parts are active.
    pub const PARTLY: &'static str = "partly";
}

/// Findings in the configuration's files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct FindingsView {
    /// Findings that prevent the use of an entry.
    pub errors: usize,
    /// Findings that do not.
    pub warnings: usize,
    /// The first 200, errors first, each as `aside check --format json` prints it: `level`,
    /// `lint`, `file`, `line`, `column`, `key`, `message`, `allowed`, `nearest` and `note`.
    #[cfg_attr(test, schema(value_type = Vec<Object>))]
    pub findings: serde_json::Value,
    /// The same in the format of `aside check`.
    pub report: String,
}

/// The configuration was reloaded, and is active.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct ReloadView {
    /// Whether the files differ from the earlier active ones.
    pub changed: bool,
    /// Content hash of the rules: lower-case hex of a SHA-256.
    pub rules: String,
    /// Number of subscribers.
    pub subscribers: usize,
    /// Whether `[journal]` or `[http]` differ from the daemon's current settings; they take effect
    /// at the next start.
    pub restart_needed: bool,
    /// Number of texts and tests that fail when they are run, which `aside check` counts as errors.
    /// The files are in force all the same, and the findings are warnings: a generic table is
    /// delivered in place of such a text.
    #[serde(default)]
    pub failing: usize,
    /// The findings in the files.
    #[serde(flatten)]
    pub found: FindingsView,
}

/// Counts of events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct EventCounts {
    /// Journaled.
    pub published: u64,
    /// No subscriber takes them.
    pub unmatched: u64,
    /// Not dispatched, because their chain of causes is too long or their source was throttled.
    pub throttled: u64,
    /// Skipped by a start, because the daemon crashed on them or their records cannot be read.
    pub skipped: u64,
    /// Ended in a pipeline, by reason.
    #[cfg_attr(test, schema(value_type = std::collections::BTreeMap<String, u64>))]
    pub ended: SortedMap<String, u64>,
}

/// Counts of notifications.
///
/// Shape: a notification for several sessions is counted once as created, and per session in later
/// states.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct NotificationCounts {
    /// Created.
    pub created: u64,
    /// Handed to a carrier; a redelivery counts again.
    pub injected: u64,
    /// Confirmed to have arrived.
    pub confirmed: u64,
    /// Confirmed, by proof: `seen`, `ack`, `step` or `turn`.
    #[cfg_attr(test, schema(value_type = std::collections::BTreeMap<String, u64>))]
    pub confirmed_by: SortedMap<String, u64>,
    /// Currently in the queue of a session.
    pub pending: u64,
    /// Those that a hold keeps from being released.
    pub held: u64,
    /// Number of their holds, by kind.
    #[cfg_attr(test, schema(value_type = std::collections::BTreeMap<String, u64>))]
    pub held_by: SortedMap<String, u64>,
    /// Currently waiting for a session that is not open yet.
    pub unclaimed: u64,
    /// Open batches: each collects events for one notification that is not yet created.
    pub batches_open: u64,
    /// Answers that a harness requested ten times or more over more than a minute. The harness
    /// seems to send the same carrier each time, so it gets nothing new.
    pub fixed_carriers: u64,
    /// Ended without being delivered, by reason.
    #[cfg_attr(test, schema(value_type = std::collections::BTreeMap<String, u64>))]
    pub ended: SortedMap<String, u64>,
}

/// Estimates of the cost of injections and of the text that they replace.
///
/// Shape: the raw side is the JSON payloads of all events that the injected notifications
/// represent, including repeated and counted ones, as if each had been given to the agent directly.
/// Five bytes of JSON count as a token, which underestimates the cost of the raw side. The raw side
/// is counted once per session, and an injection at each release. Both sides are without
/// undelivered notifications.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TokenCounts {
    /// Tokens of all injections, wrappers included.
    pub injected: u64,
    /// Bytes of the payloads that they represent.
    pub raw_bytes: u64,
    /// Tokens that those would have cost, minus `injected`; negative where the text is longer than
    /// the payloads.
    pub saved: i64,
}

impl TokenCounts {
    /// The view of these counts.
    pub fn of(injected: u64, raw_bytes: u64) -> Self {
        let saved = tokens::of_raw_bytes(raw_bytes).cast_signed().saturating_sub_unsigned(injected);
        Self { injected, raw_bytes, saved }
    }
}

/// Counts of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SessionCounts {
    /// Currently open.
    pub open: u64,
    /// Exchanges that currently wait for their answer, and sessions whose queue is watched.
    pub waiting: u64,
    /// Currently unconfirmed injections.
    pub unconfirmed: u64,
    /// Open sessions that were evicted to make room.
    pub evicted: u64,
}

/// Counts of one subscriber.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SubscriberCounts {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Events that were added to its batches.
    pub batched: u64,
    /// Events behind the rows of its notifications.
    pub rows: u64,
    /// Events that ended in its pipeline, by reason.
    #[cfg_attr(test, schema(value_type = std::collections::BTreeMap<String, u64>))]
    pub ended: SortedMap<String, u64>,
    /// Notifications that it created.
    pub created: u64,
    /// Estimated tokens of these in all injections, without wrappers.
    pub injected_tokens: u64,
    /// Bytes of the payloads that these represent.
    pub raw_bytes: u64,
    /// Its template and its `where`, if they failed since the active rules were loaded.
    pub failing: Vec<FailingView>,
}

/// A failed template or `where`; generic tables were delivered, or events were left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct FailingView {
    /// The template, or `where of` the subscriber.
    pub file: String,
    /// The line of the last failure, from 1, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The last error.
    pub message: String,
    /// Number of failures.
    pub times: u64,
    /// Time of the last one.
    pub last_at: String,
}

/// One session. A daemon of another version may omit a field.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SessionView {
    /// The harness's own id of the conversation.
    pub id: String,
    /// Whether it is open.
    pub is_open: bool,
    /// Its harness.
    pub harness: HarnessView,
    /// Its first activity.
    pub opened_at: String,
    /// Its last activity.
    pub seen_at: String,
    /// Its state: `idle`, `streaming`, `tool_pending`, `tool_complete`, `continuing` or
    /// `interrupted`.
    pub state: String,
    /// Its queue; absent in an answer to a process of another session.
    #[serde(flatten)]
    #[cfg_attr(test, schema(value_type = QueueView))]
    pub queue: Option<QueueView>,
}

/// The state of a session's queue; all or nothing of it is there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct QueueView {
    /// Notifications in it.
    #[cfg_attr(test, schema(required = false))]
    pub pending: u32,
    /// The highest priority among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<String>,
    /// Number of notifications with that priority.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(test, schema(required = false))]
    pub top_count: u32,
    /// Notifications that wait for the user's approval.
    #[serde(default)]
    pub for_user: u32,
    /// The action that its queue requests of the harness: `start_turn`, `inject_and_continue` or
    /// `cancel_and_restart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<String>,
    /// The reason, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// Unconfirmed injections.
    #[serde(default)]
    pub unconfirmed: u32,
}

/// The state of a session's queue, without text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PendingView {
    /// The session.
    pub session: String,
    /// Number of notifications for the agent.
    #[serde(default)]
    #[cfg_attr(test, schema(required = true))]
    pub pending: u32,
    /// The highest priority among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<String>,
    /// Number of notifications that wait for the user's approval.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(test, schema(required = false))]
    pub for_user: u32,
    /// The action that the queue requests of the harness: `start_turn`, `inject_and_continue` or
    /// `cancel_and_restart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<String>,
    /// The reason, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

/// What an idle session is woken for, for a follower that prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct WakeView {
    /// One sentence for a person.
    pub sentence: String,
}

impl PendingView {
    /// The view of `pending`.
    pub fn of(pending: &Pending) -> Self {
        Self {
            session: pending.session.to_string(),
            pending: pending.count,
            top: pending.top.map(|top| top.as_str().to_owned()),
            for_user: pending.for_user,
            wake: pending.wake.as_ref().map(|wake| wake.kind.as_str().to_owned()),
            reason: pending.wake.as_ref().map(|wake| wake.reason.clone()),
        }
    }
}

/// The body of a refused reload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RefusedReloadView {
    /// The refusal.
    #[serde(flatten)]
    pub error: ErrorBody,
    /// The findings in the files.
    #[serde(flatten)]
    pub found: FindingsView,
}

/// All known sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SessionList {
    /// By id.
    pub sessions: Vec<SessionView>,
}

/// The subscribers of an event, and the open sessions in its scope.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct MatchView {
    /// The subscribers that take its type, by id.
    pub subscribers: Vec<TakerView>,
    /// The open sessions in its scope, the first 20. Without any, its notifications wait for the
    /// next one.
    pub sessions: Vec<String>,
    /// Number of all those sessions.
    pub session_count: usize,
    /// The most similar known type, when no subscriber takes this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

/// A subscriber that takes the event's type.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TakerView {
    /// Its id.
    pub subscriber: String,
    /// `takes`, `resolves`, `inhibits`, `ends_inhibition`, `filtered`, `silenced`, `muted` or `off`.
    pub verdict: String,
    /// The filter key that refuses the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filtered_by: Option<String>,
    /// The silence that suppresses the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence: Option<String>,
    /// Why no session gets what it makes, such as `you disabled chat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub muted_by: Option<String>,
    /// The open sessions that get it, the first 20, if others are in the event's scope too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<String>>,
}

/// The permitted senders of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SenderList {
    /// In the order of their names.
    pub senders: Vec<SenderView>,
    /// TCP address for webhooks; absent if only the Unix socket takes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listens_on: Option<String>,
}

/// A permitted sender.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SenderView {
    /// `github`, `gitlab`, `forgejo`, `standard` or `alertmanager`.
    pub name: String,
    /// Its path.
    pub path: String,
    /// Whether it signs; else it sends a token.
    pub is_signed: bool,
    /// The folder whose sessions get its events; all sessions if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Why the daemon cannot take its webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

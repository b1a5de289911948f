//! What the API shows of the daemon and its sessions: plain data, filled in by whoever owns what is shown.
//!
//! Counts are since the journal's first record unless a field says otherwise; times are RFC 3339 in UTC.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    engine::io::Pending,
    exchange::{Conversations, Harness},
    protocol::history::ProjectionView,
    tokens,
};

/// How the daemon is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct StatusView {
    /// The program's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// When it started.
    pub started_at: String,
    /// How long it has been running, in milliseconds.
    pub uptime_ms: u64,
    /// The journal.
    pub journal: JournalView,
    /// The history's file.
    pub projection: ProjectionView,
    /// The rules in force.
    pub rules: RulesView,
    /// The configuration's files, as they were read last.
    pub config: ConfigView,
    /// What was published and what became of it before it reached a notification.
    pub events: EventCounts,
    /// What was made of it and what became of that.
    pub notifications: NotificationCounts,
    /// What the injections cost, and what they spared.
    pub tokens: TokenCounts,
    /// The sessions.
    pub sessions: SessionCounts,
    /// Every subscriber, by id.
    pub subscribers: BTreeMap<String, SubscriberCounts>,
}

/// The journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct JournalView {
    /// The last record that was written.
    pub head: u64,
    /// The last record that is known to survive a power failure.
    pub synced: u64,
    /// The last record that the engine has handled.
    pub applied: u64,
    /// `sync` or `interval`.
    pub durability: &'static str,
    /// The first record that is kept.
    pub first: u64,
    /// When that was appended; absent when nothing was, or it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_at: Option<String>,
    /// How many files hold it.
    pub segments: usize,
    /// How much of the disk they take up, in bytes, with what is preallocated.
    pub bytes: u64,
    /// How many of the files are sealed.
    pub sealed: usize,
    /// How much of `bytes` the sealed files take up.
    pub sealed_bytes: u64,
    /// What they took up before.
    pub unsealed_bytes: u64,
    /// What is missing, while the disk is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
    /// Why nothing more is taken, if the disk failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// What is wrong without stopping the journal: places that cannot be read or sealed, segments that cannot be deleted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RulesView {
    /// Names their content: lower-case hex of a SHA-256.
    pub hash: String,
    /// Subscribers that run.
    pub enabled: usize,
    /// Subscribers that are switched off.
    pub disabled: usize,
}

/// The configuration's files, as they were read last: at the start, or by a reload.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct ConfigView {
    /// `in_force`; `refused` when a reload was, so that the rules of before hold; `partly` when the start left out what has errors, or
    /// used its last good text.
    pub state: &'static str,
    /// When they were read.
    pub read_at: String,
    /// How many errors they have.
    pub errors: usize,
    /// How many warnings.
    pub warnings: usize,
    /// What is wrong, an error a line with its place, and what is used instead; the first ten.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl ConfigView {
    /// The state of files that are in force as they stand.
    pub const IN_FORCE: &'static str = "in_force";
    /// The state of files of which nothing is in force.
    pub const REFUSED: &'static str = "refused";
    /// The state of files of which the good ones are in force.
    pub const PARTLY: &'static str = "partly";
}

/// What was found in the configuration's files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct FindingsView {
    /// How many findings keep something from being used.
    pub errors: usize,
    /// How many keep nothing from being used.
    pub warnings: usize,
    /// The first 200, errors first, each as `aside check --json` prints it: `level`, `file`, `line`, `column`, `key`, `message`,
    /// `allowed`, `nearest` and `note`.
    #[schema(value_type = Vec<Object>)]
    pub findings: serde_json::Value,
    /// The same as `aside check` prints them.
    pub report: String,
}

/// The configuration was read again, and is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ReloadView {
    /// Whether the files are others than those in force before.
    pub changed: bool,
    /// Names the rules: lower-case hex of a SHA-256.
    pub rules: String,
    /// How many subscribers there are.
    pub subscribers: usize,
    /// Whether `[journal]` or `[http]` differ from what the daemon runs by; they take effect with the next start.
    pub restart_needed: bool,
    /// What was found in the files.
    #[serde(flatten)]
    pub found: FindingsView,
}

/// Counts of events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct EventCounts {
    /// Journaled.
    pub published: u64,
    /// That no subscriber asked for.
    pub unmatched: u64,
    /// That were not dispatched, because their chain of causes is too long or their source was over its rate.
    pub held_back: u64,
    /// That ended in a pipeline, by reason.
    pub ended: BTreeMap<String, u64>,
}

/// Counts of notifications.
///
/// Shape: a notification for several sessions is counted once as created and once for each of them from there on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct NotificationCounts {
    /// Made.
    pub created: u64,
    /// Handed to a carrier; a redelivery counts again.
    pub injected: u64,
    /// Known to have arrived.
    pub confirmed: u64,
    /// In the queue of a session at this moment.
    pub pending: u64,
    /// Waiting at this moment for a session that is not open yet.
    pub unclaimed: u64,
    /// Answers that a harness asked for ten times and more over more than a minute: its carrier seems never to change, so that it gets
    /// nothing new.
    pub fixed_carriers: u64,
    /// That ended without being delivered, by reason.
    pub ended: BTreeMap<String, u64>,
}

/// Estimates of what injections cost and what they stand for.
///
/// Shape: the raw side is the JSON of the payloads of all events that the injected notifications stand for, repeats and counted ones
/// among them, as it would be if each had been given to the agent as it came; five bytes of it are taken for a token, which is fewer
/// than it would cost. It is counted once a session, what an injection costs each time. What no session was told is in neither.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct TokenCounts {
    /// Tokens of all injections, wrappers included.
    pub injected: u64,
    /// Bytes of the payloads that they stand for.
    pub raw_bytes: u64,
    /// Tokens that those would have cost, less `injected`; negative where the text is longer than the payloads.
    pub saved: i64,
}

impl TokenCounts {
    /// Shows what was counted.
    pub fn of(injected: u64, raw_bytes: u64) -> Self {
        let saved = tokens::of_raw_bytes(raw_bytes).cast_signed().saturating_sub_unsigned(injected);
        Self { injected, raw_bytes, saved }
    }
}

/// Counts of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct SessionCounts {
    /// Open at this moment.
    pub open: u64,
    /// Waiting at this moment for an answer or a change of their queue.
    pub waiting: u64,
    /// Injections at this moment that nothing has confirmed yet.
    pub unconfirmed: u64,
    /// Open ones that were closed for want of room.
    pub evicted: u64,
}

/// What one subscriber did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
pub struct SubscriberCounts {
    /// Whether it runs.
    pub enabled: bool,
    /// Events that waited in one of its batches.
    pub batched: u64,
    /// Events behind the rows of its notifications.
    pub rows: u64,
    /// Events that ended in its pipeline, by reason.
    pub ended: BTreeMap<String, u64>,
    /// Notifications that it made.
    pub created: u64,
    /// Tokens of these in all injections, without the wrappers; an estimate.
    pub injected_tokens: u64,
    /// Bytes of the payloads that these stand for.
    pub raw_bytes: u64,
    /// Its template and its `where`, if they failed since the rules in force came.
    pub failing: Vec<FailingView>,
}

/// A template or a `where` that failed; generic tables went out, or events were left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FailingView {
    /// The template, or `where of` the subscriber.
    pub file: String,
    /// The line that was to blame last, from 1, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What was wrong last.
    pub message: String,
    /// How often it failed.
    pub times: u64,
    /// When it did last.
    pub last_at: String,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SessionView {
    /// The harness's own name of the conversation.
    pub id: String,
    /// Whether it is open.
    pub is_open: bool,
    /// What is known of its harness.
    pub harness: HarnessView,
    /// When it was first heard of.
    pub opened_at: String,
    /// When it was last heard of.
    pub seen_at: String,
    /// Notifications in its queue.
    pub pending: u32,
    /// The most urgent one's priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<&'static str>,
    /// How many have that priority.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub top_count: u32,
    /// Notifications that wait for the user's word.
    pub for_user: u32,
    /// Where it stands: `idle`, `streaming`, `tool_pending`, `tool_complete`, `continuing` or `interrupted`.
    pub state: &'static str,
    /// What its queue asks of the harness: `start_turn`, `inject_and_continue` or `cancel_and_restart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<&'static str>,
    /// Why, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Arc<str>>,
    /// Injections that nothing has confirmed yet.
    pub unconfirmed: u32,
}

/// A notification that waits in a session's queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WaitingView {
    /// Its id.
    pub id: String,
    /// In whose queue, or for which session that is not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// For the next session that works there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Who made it.
    pub subscriber: String,
    /// `critical`, `high`, `normal` or `low`.
    pub priority: &'static str,
    /// `agent`; `user` when it is delivered only once the user says so; `next_session` when no session is open that it is for.
    pub waits_for: &'static str,
    /// How long ago it was made, in milliseconds.
    pub age_ms: u64,
    /// What it says, as TOON.
    #[schema(value_type = String)]
    pub text: Arc<str>,
}

/// What is known of a harness.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = Harness)]
pub struct HarnessView {
    /// Its name, in lower case, which is also the source of its events.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<Arc<str>>,
    /// The harness's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub version: Option<Arc<str>>,
    /// The folder the session works in, absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub workspace: Option<Arc<str>>,
    /// Whom the agent works for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub user: Option<Arc<str>>,
    /// The harness's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When that process started, in clock ticks since the machine did; the daemon looks for itself at the caller's process and those
    /// above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid_started: Option<u64>,
    /// `one_per_process` if the process has one conversation at a time, so that a session that begins there goes on from the one
    /// before; `many` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversations: Option<&'static str>,
    /// The session this one is a subagent of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub parent: Option<Arc<str>>,
}

impl HarnessView {
    /// Shows `harness`.
    pub fn of(harness: &Harness) -> Self {
        // Said of every process: records that do not say it are of a time before it could be said.
        let conversations = harness.conversations.or(harness.pid.map(|_| Conversations::Many));
        Self {
            name: harness.name.clone(),
            version: harness.version.clone(),
            workspace: harness.workspace.clone(),
            user: harness.user.clone(),
            pid: harness.pid,
            pid_started: harness.pid_started,
            conversations: conversations.map(Conversations::as_str),
            parent: harness.parent.as_ref().map(|parent| parent.as_str().into()),
        }
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What waits in a session's queue, without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PendingView {
    /// Which session.
    pub session: String,
    /// How many notifications wait for the agent.
    pub pending: u32,
    /// The most urgent one's priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<&'static str>,
    /// How many notifications wait for the user's word.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub for_user: u32,
    /// What the queue asks of the harness: `start_turn`, `inject_and_continue` or `cancel_and_restart`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<&'static str>,
    /// Why, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Arc<str>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl PendingView {
    /// Shows `pending`.
    pub fn of(pending: &Pending) -> Self {
        Self {
            session: pending.session.to_string(),
            pending: pending.count,
            top: pending.top.map(crate::notification::Priority::as_str),
            for_user: pending.for_user,
            wake: pending.wake.as_ref().map(|wake| wake.kind.as_str()),
            reason: pending.wake.as_ref().map(|wake| wake.reason.clone()),
        }
    }
}

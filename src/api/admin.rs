//! Status and health of the daemon, and orders to it.

use std::{fs, path::Path, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use engine::{
    Engine,
    ledger::{CountName, SubscriberTally},
    pipeline::rule::Activity,
    sorted::SortedMap,
};
use journal::{AppendError, time::duration_millis};
use serde::Serialize;

use crate::{
    api::{
        App,
        engine_handle::EngineView,
        error::ApiError,
        history,
        history::how_far,
        wire::{
            budgets::BudgetsView,
            history::ProjectionView,
            views::{
                DiskView, EventCounts, FailingView, JournalView, NotificationCounts, RulesView,
                SessionCounts, StatusView, SubscriberCounts, TokenCounts,
            },
        },
    },
    daemon::{tasks::run_blocking, version},
};

#[cfg(test)]
use crate::api::wire::ErrorBody;

/// Shows the status of the daemon.
#[cfg_attr(test, utoipa::path(get, path = "/v1/status", tag = "admin", responses((status = 200, body = StatusView))))]
pub(crate) async fn status(State(app): State<App>) -> Result<Json<StatusView>, ApiError> {
    status_of(&app).await.map(Json)
}

/// Liveness of the daemon.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Health {
    /// `ok`, or `degraded` while there is a problem that does not stop publishing.
    status: &'static str,
    /// The problems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// Number of journal records that the event loop has not handled yet.
    lag: u64,
    /// How long the loop's current iteration has lasted, or how long it has been idle since a check
    /// first saw those records, in milliseconds; 0 while it is idle without records.
    held_up_ms: u64,
}

/// Longest iteration of the event loop before it counts as stuck; one takes milliseconds.
const HELD_UP_MAX: Duration = Duration::from_secs(5);

/// Reports that the daemon runs, its event loop makes progress, and its journal accepts events.
/// Queries neither the loop nor the disk.
#[cfg_attr(test, utoipa::path(
    get, path = "/healthz", tag = "admin",
    responses((status = 200, body = Health), (status = 503, body = ErrorBody), (status = 507, body = ErrorBody)),
))]
pub(crate) async fn healthz(State(app): State<App>) -> Result<Json<Health>, ApiError> {
    let lag = app.journal.lag();
    let held_up = app.engine.pulse().held_up(lag);
    if held_up >= HELD_UP_MAX {
        let message = format!("the event loop made no progress for {} seconds", held_up.as_secs());
        return Err(ApiError::busy(&message));
    }
    let poisoned = app.journal.poisoned().map(AppendError::Poisoned);
    match poisoned.or_else(|| app.journal.disk_full().map(AppendError::Full)) {
        Some(error) => Err(error.into()),
        None => {
            let problems = app.journal.health().sentences();
            let status = if problems.is_empty() { "ok" } else { "degraded" };
            Ok(Json(Health { status, problems, lag, held_up_ms: duration_millis(held_up) }))
        }
    }
}

/// Rebuilds the projection from the journal.
///
/// Answers once the old one is deleted. History requests are answered throughout, with the progress
/// of the rebuild.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/admin/rebuild", tag = "admin",
    responses((status = 202, body = ProjectionView), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn rebuild(State(app): State<App>) -> Result<(StatusCode, Json<ProjectionView>), ApiError> {
    let unavailable = |why| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why);
    app.projection.rebuild().await.map_err(unavailable)?;
    Ok((StatusCode::ACCEPTED, Json(history::how_far(&app, app.projection.progress().projected()))))
}

/// Folders of the state folder.
const SNAPSHOTS_FOLDER: &str = "snapshots";
const RULES_FOLDER: &str = "rules";

/// The status of the daemon. Disk lookups run here, not in the event loop.
pub(crate) async fn status_of(app: &App) -> Result<StatusView, ApiError> {
    let own = app.clone();
    let status = app.engine.read(move |view| counted(&own, view)).await?;
    let journal = app.journal.clone();
    let projection = app.projection.clone();
    let read = run_blocking(move || {
        // If the sizes cannot be read, the rest is still shown.
        let stored = journal.stored().unwrap_or_default();
        let first = journal.read_at(stored.first).ok().flatten();
        (stored, first, disk(projection.path()))
    });
    let (stored, first, disk) = read.await.map_err(|_| ApiError::stopping())?;
    let journal = JournalView {
        first: stored.first.0,
        first_at: first.map(|record| record.time.to_string()),
        segments: stored.segments,
        bytes: stored.bytes,
        sealed: stored.sealed,
        sealed_bytes: stored.sealed_bytes,
        unsealed_bytes: stored.unsealed_bytes,
        ..status.journal
    };
    let disk = DiskView { journal: stored.bytes, history_max: app.projection.bytes_max(), ..disk };
    let config = app.config.state();
    let workspaces = config.workspaces.to_vec();
    Ok(StatusView { config: config.view.clone(), workspaces, journal, disk, ..status })
}

/// The sizes of the parts of the state folder but the journal; `history` is the history's file.
fn disk(history: &Path) -> DiskView {
    let size = |path: &Path| fs::metadata(path).map(|found| found.len()).unwrap_or_default();
    let state = history.parent().unwrap_or(history);
    let folder = |name: &str| -> u64 {
        let entries = fs::read_dir(state.join(name)).into_iter().flatten().flatten();
        entries.map(|entry| size(&entry.path())).sum()
    };
    let mut log = history.as_os_str().to_owned();
    log.push("-wal");
    DiskView {
        history: size(history) + size(Path::new(&log)),
        snapshots: folder(SNAPSHOTS_FOLDER),
        rules: folder(RULES_FOLDER),
        ..DiskView::default()
    }
}

/// The status without what is looked up on the disk.
fn counted(app: &App, EngineView { engine, applied, now }: &EngineView<'_>) -> StatusView {
    let sessions = || engine.sessions().views();
    StatusView {
        version: version::VERSION.to_owned(),
        build: version::BUILD.to_owned(),
        pid: std::process::id(),
        started_at: app.started_at.to_string(),
        uptime_ms: duration_millis(now.since(app.started_at)),
        clock_ahead_ms: app.clock_ahead_ms(),
        journal: JournalView {
            head: app.journal.written().borrow().0,
            synced: app.journal.synced().borrow().0,
            applied: applied.0,
            durability: <&str>::from(app.durability).to_owned(),
            full: app.journal.disk_full().map(|full| full.to_string()),
            failed: app.journal.poisoned().map(|poisoned| poisoned.to_string()),
            problems: app.journal.health().sentences(),
            ..JournalView::default()
        },
        projection: how_far(app, app.projection.progress().projected()),
        rules: rules(engine),
        events: events(engine),
        notifications: notifications(engine),
        tokens: TokenCounts::of(engine.tally().injected_tokens, engine.tally().raw_bytes),
        sessions: SessionCounts {
            open: u64::try_from(sessions().filter(|session| session.is_open).count()).unwrap_or(u64::MAX),
            waiting: u64::try_from(app.registry.waiting()).unwrap_or(u64::MAX),
            unconfirmed: sessions().map(|open| u64::from(open.injector.unconfirmed())).sum(),
            evicted: engine.sessions().evicted(),
        },
        budgets: BudgetsView::new(engine.sessions().budget_usage(*now), engine.sessions().source_usage(*now)),
        subscribers: subscribers(engine),
        ..StatusView::default()
    }
}

fn rules(engine: &Engine) -> RulesView {
    let rules = engine.rules();
    let disabled = rules.subscribers.iter().filter(|rule| rule.activity == Activity::Disabled).count();
    RulesView { hash: rules.hash.to_string(), enabled: rules.subscribers.len() - disabled, disabled }
}

fn events(engine: &Engine) -> EventCounts {
    let tally = engine.tally();
    let mut ended = SortedMap::new();
    for (reason, count) in tally.subscribers.values().flat_map(|subscriber| &subscriber.events_ended) {
        *ended.get_or_default(reason.to_string()) += count;
    }
    EventCounts {
        published: tally.events,
        unmatched: tally.unmatched,
        throttled: tally.throttled,
        skipped: tally.skipped,
        ended,
    }
}

fn notifications(engine: &Engine) -> NotificationCounts {
    let (tally, (held, held_by)) = (engine.tally(), engine.sessions().held());
    NotificationCounts {
        created: tally.created,
        injected: tally.injected,
        confirmed: tally.confirmed,
        confirmed_by: owned(&tally.confirmed_by),
        pending: engine
            .sessions()
            .views()
            .map(|session| u64::from(session.injector.pending().0))
            .sum::<u64>()
            + held,
        held,
        held_by: held_by.into_iter().map(|(kind, count)| (kind.as_str().to_owned(), count)).collect(),
        unclaimed: u64::try_from(engine.sessions().unclaimed_len()).unwrap_or(u64::MAX),
        batches_open: u64::try_from(engine.batches_open()).unwrap_or(u64::MAX),
        fixed_carriers: tally.fixed_carriers,
        ended: owned(&tally.notifications_ended),
    }
}

/// Every subscriber in the rules, and every other one with counts.
fn subscribers(engine: &Engine) -> SortedMap<String, SubscriberCounts> {
    let mut shown: SortedMap<String, SubscriberCounts> = SortedMap::new();
    for (id, tally) in &engine.tally().subscribers {
        shown.insert(id.to_string(), counts(tally));
    }
    for rule in &engine.rules().subscribers {
        shown.get_or_default(rule.id.to_string()).enabled = rule.activity != Activity::Disabled;
    }
    for (id, file, failing) in engine.failing() {
        shown.get_or_default(id.to_string()).failing.push(FailingView {
            file,
            line: failing.line,
            message: failing.message.clone(),
            times: failing.times,
            last_at: failing.last_at.to_string(),
        });
    }
    shown
}

fn counts(tally: &SubscriberTally) -> SubscriberCounts {
    SubscriberCounts {
        enabled: false,
        batched: tally.batched,
        rows: tally.rows,
        ended: owned(&tally.events_ended),
        created: tally.created,
        injected_tokens: tally.injected_tokens,
        raw_bytes: tally.raw_bytes,
        failing: Vec::new(),
    }
}

fn owned(counts: &SortedMap<CountName, u64>) -> SortedMap<String, u64> {
    counts.iter().map(|(word, count)| (word.to_string(), *count)).collect()
}

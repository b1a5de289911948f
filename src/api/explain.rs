//! Explains an event: a copy of the engine takes it, and nothing is published.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State, http::StatusCode};
use engine::{
    Engine, Fate, Inhibitor, Outcome, Saved, SubscriberOutcome,
    draft::{Defaults, Draft},
    event::{Event, SessionId},
    ledger::Reason,
    notification::Notification,
    pipeline::progress::Progress,
};
use serde::Deserialize;
use tokio::sync::Semaphore;

#[cfg(test)]
use crate::api::wire::{ErrorBody, event::EventView};
use crate::{
    api::{
        App,
        actor::Actor,
        auth::Route,
        engine_handle::EngineView,
        error::ApiError,
        events,
        extract::{Params, read_body},
        intake::NewIds,
        wire::{
            event::to_masked_json,
            explain::{
                ComparisonView, CountView, GoesToView, InhibitorView, MadeView, OpenBatchView, OutcomeView,
                SubscriberOutcomeView,
            },
            history::raw,
            inbox::HoldView,
        },
    },
    daemon::tasks::run_blocking,
};

/// Most sessions that are listed; beyond it only the count is useful.
const SESSIONS_SHOWN_MAX: usize = 20;

/// One copy at a time. The loop encodes its state for each, and the rest of it takes longer on another
/// thread, so clients that ask without end leave the loop half of its time.
static COPIES: Semaphore = Semaphore::const_new(1);

/// Selects an event of the journal.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainParams {
    /// The id of a published event, or its position, in place of a body.
    event: Option<String>,
}

/// Explains what would become of an event now.
///
/// The body is one event as it would be published; nothing is published. A copy of the engine with the
/// present state takes it: open batches, dedupe windows, thresholds, limits, silences, inhibitions and
/// quiet hours count.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/explain", tag = "events", params(ExplainParams),
    request_body = EventView,
    responses(
        (status = 200, body = OutcomeView), (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "It is addressed to another session than the process's own"),
        (status = 404, body = ErrorBody), (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn explain(
    State(app): State<App>,
    route: Route,
    actor: Actor,
    Params(params): Params<ExplainParams>,
    body: Body,
) -> Result<Json<OutcomeView>, ApiError> {
    let event = match params.event {
        Some(name) => events::stored(&app, actor, name).await?,
        None => {
            let body = read_body(&app.rooms.publishing, body).await?;
            let mut ids = NewIds::default();
            let config = app.config.state();
            let defaults = Defaults::api(app.now(), route.of_events(), &config.severities);
            let parsed = Draft::read(&body, &defaults, &mut || ids.next_id()).map_err(ApiError::bad)?;
            let event = parsed.as_event().to_event();
            if let Some(session) = &event.session {
                actor.access(&app).await?.check(session.as_str())?;
            }
            event
        }
    };
    let copying = COPIES.acquire().await;
    let copy = |view: &EngineView<'_>| {
        let rules = Arc::clone(view.engine.rules());
        (view.engine.save(view.applied, view.now), rules, view.applied.next(), view.now)
    };
    let (state, rules, seq, now) = app.engine.read(copy).await?;
    let explained = run_blocking(move || {
        let state = state?;
        let hash = Arc::clone(&rules.hash);
        let outcome = Engine::restored(rules, Saved::read(&state)?).outcome_of(seq, &event, now);
        Ok::<_, engine::snapshot::Damaged>(view(&outcome, &event, &hash))
    });
    let failed = |error: &dyn std::error::Error| {
        let message = format!("the engine's state cannot be copied: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    };
    let explained = explained.await;
    drop(copying);
    explained.map_err(|error| failed(&error))?.map(Json).map_err(|error| failed(&error))
}

/// The view of an outcome of `event` by the rules with this hash.
pub(crate) fn view(outcome: &Outcome, event: &Event, rules: &str) -> OutcomeView {
    OutcomeView {
        event: raw(to_masked_json(&event.as_ref(), None)),
        provenance: event.provenance.as_str().to_owned(),
        is_trusted: outcome.is_trusted,
        rules: rules.to_owned(),
        throttled: outcome.throttled.map(|by| by.as_str().to_owned()),
        sessions: outcome.sessions.iter().take(SESSIONS_SHOWN_MAX).map(SessionId::to_string).collect(),
        session_count: outcome.sessions.len(),
        subscribers: outcome.subscribers.iter().map(in_subscriber).collect(),
    }
}

fn in_subscriber(outcome: &SubscriberOutcome) -> SubscriberOutcomeView {
    let (fate, reason) = match &outcome.fate {
        Fate::OtherType => ("other_type", None),
        Fate::OtherFolder => ("other_folder", None),
        Fate::OfLaterFile => ("of_later_file", None),
        Fate::NotDispatched => ("not_dispatched", None),
        Fate::Taken => ("taken", None),
        Fate::Ended(reason) => ("ended", Some(reason)),
    };
    let own = SubscriberOutcomeView {
        subscriber: outcome.subscriber.to_string(),
        fate: fate.to_owned(),
        types: outcome.types.iter().map(ToString::to_string).collect(),
        reason: reason.map(|reason| reason.as_str().to_owned()),
        detail: reason.and_then(Reason::detail),
        withdrawn: outcome.withdrawn,
        replaced: outcome.replaced,
        inhibitor: outcome.inhibitor.as_ref().map(inhibitor),
        notification: outcome.notification.as_deref().map(made),
        deliveries: outcome.deliveries.iter().map(goes_to).collect(),
        failures: outcome.failures.clone(),
        ..SubscriberOutcomeView::default()
    };
    match &outcome.progress {
        Some(progress) => with_progress(own, progress),
        None => own,
    }
}

fn with_progress(own: SubscriberOutcomeView, progress: &Progress) -> SubscriberOutcomeView {
    let comparisons = progress.comparisons.iter().map(|one| ComparisonView {
        text: one.text.clone(),
        says: one.says.clone(),
        is_true: one.is_true,
        decides: one.decides,
    });
    SubscriberOutcomeView {
        severity: progress.severity.map(|severity| severity.as_str().to_owned()),
        comparisons: comparisons.collect(),
        dedupe_key: progress.dedupe_key.clone(),
        count: progress.count.as_ref().map(|count| CountView { total: count.total, next: count.next }),
        missed_at: progress.missed_at.map(|at| at.to_string()),
        batch: progress.batch.as_ref().map(|batch| OpenBatchView {
            group: batch.group.clone(),
            rows: batch.rows,
            ends_at: batch.ends_at.to_string(),
            open_by: batch.by.as_str().to_owned(),
        }),
        ..own
    }
}

fn inhibitor(inhibitor: &Inhibitor) -> InhibitorView {
    let Inhibitor { seq, ended_by, until } = inhibitor;
    InhibitorView {
        seq: seq.0,
        ended_by: ended_by.iter().map(ToString::to_string).collect(),
        until: until.to_string(),
    }
}

fn made(notification: &Notification) -> MadeView {
    MadeView {
        priority: notification.priority.as_str().to_owned(),
        inject_at: notification.inject_at.as_str().to_owned(),
        activation: notification.activation.as_str().to_owned(),
        rows: notification.events.len(),
        tokens: notification.tokens.0,
        content: notification.content.text().to_string(),
        expires_at: notification.expires_at.map(|at| at.to_string()),
    }
}

fn goes_to(delivery: &engine::Delivery) -> GoesToView {
    GoesToView {
        session: delivery.session.as_ref().map(ToString::to_string),
        holds: delivery.holds.iter().map(|(hold, until)| HoldView::new(hold, *until)).collect(),
        reason: delivery.reason.as_ref().map(|reason| reason.as_str().to_owned()),
        detail: delivery.reason.as_ref().and_then(Reason::detail),
    }
}

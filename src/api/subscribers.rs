//! Lists subscribers: what each took and made, and what it has open.

use axum::{Json, extract::State};
use engine::{
    Engine,
    hold::Hold,
    notification::{Notification, NotificationId, SubscriberId},
    pipeline::rule::Activity,
    sorted::{SortedMap, SortedSet},
};
use journal::time::Timestamp;
use serde::Deserialize;

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::api::{
    App,
    engine_handle::EngineView,
    error::ApiError,
    extract::Params,
    history::{how_far, moment},
    wire::{
        inbox::HoldView,
        subscribers::{SubscriberView, SubscribersView},
        views::FailingView,
    },
};

/// Default start of the counts.
const SINCE: &str = "7d";
/// Most shown causes of holds.
const HOLDS_MAX: usize = 8;

/// Start of the counts.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct SubscribersParams {
    /// RFC 3339, or a duration before now, such as `30m`, `12h` or `7d`; `7d` if absent.
    since: Option<String>,
}

/// Lists the subscribers of the rules in force, with counts, open batches and holds.
///
/// Counts at most the newest 20,000 entries of the history of each kind.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/subscribers", tag = "admin", params(SubscribersParams),
    responses((status = 200, body = SubscribersView), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn list(
    State(app): State<App>,
    Params(params): Params<SubscribersParams>,
) -> Result<Json<SubscribersView>, ApiError> {
    let since =
        moment(&app, "since", Some(params.since.as_deref().unwrap_or(SINCE)))?.expect("a moment was given");
    app.history_caught_up().await;
    let read = app.projection.read(move |view| Ok((view.counted_by_subscriber(since)?, view.projected)));
    let (counts, projected) = read.await?;
    let mut subscribers = app.engine.read(|own: &EngineView<'_>| live(own.engine, own.now)).await?;
    for one in &mut subscribers {
        let Some(count) = counts.get(&one.id) else { continue };
        (one.events, one.made, one.sent, one.tokens) = (count.events, count.made, count.sent, count.tokens);
        one.last_at = count.last_at.map(|at| at.to_string());
    }
    let projection = how_far(&app, projected);
    Ok(Json(SubscribersView { since: since.to_string(), subscribers, projection }))
}

/// What the subscribers have open.
fn live(engine: &Engine, now: Timestamp) -> Vec<SubscriberView> {
    let mut all: SortedMap<SubscriberId, SubscriberView> = SortedMap::new();
    for rule in &engine.rules().subscribers {
        let state = match rule.activity {
            Activity::Core => "core",
            Activity::Enabled => "on",
            Activity::Disabled => "off",
        };
        let users = engine.users().iter().filter(|(_, own)| own.disables(rule));
        let silence = engine.silences().longest_whole(rule).map(|kept| &kept.silence);
        let view = SubscriberView {
            id: rule.id.to_string(),
            state: state.to_owned(),
            disabled_by: users.map(|(user, _)| user.to_string()).collect(),
            silence: silence.map(|silence| silence.id.to_string()),
            silenced_until: silence.map(|silence| silence.until.to_string()),
            ..SubscriberView::default()
        };
        all.insert(rule.id.clone(), view);
    }
    for (rule, batches, rows, closes_at) in engine.open_batches() {
        if let Some(own) = all.get_mut(&rule.id) {
            (own.batches, own.rows, own.closes_at) = (batches, rows, closes_at.map(|at| at.to_string()));
        }
    }
    let mut conditions: SortedSet<(SubscriberId, NotificationId)> = SortedSet::new();
    let mut note = |notification: &Notification| {
        if !notification.unresolved.is_empty() {
            conditions.insert((notification.subscriber.clone(), notification.id));
        }
    };
    for session in engine.sessions().views() {
        session.injector.delivered().for_each(|delivered| note(delivered));
        for pending in session.injector.view(now).pending {
            note(&pending.notification);
            add_pending(engine, &mut all, &pending.notification, &pending.holds);
        }
    }
    for notification in engine.sessions().unclaimed() {
        note(notification);
        let holds = engine.sessions().holds_of_unclaimed(notification);
        add_pending(engine, &mut all, notification, &holds);
    }
    for (id, _) in &conditions {
        if let Some(own) = all.get_mut(id) {
            own.conditions += 1;
        }
    }
    for (id, file, failing) in engine.failing() {
        if let Some(own) = all.get_mut(id) {
            own.failing.push(FailingView {
                file,
                line: failing.line,
                message: failing.message.clone(),
                times: failing.times,
                last_at: failing.last_at.to_string(),
            });
        }
    }
    all.into_values().collect()
}

fn add_pending(
    engine: &Engine,
    all: &mut SortedMap<SubscriberId, SubscriberView>,
    notification: &Notification,
    holds: &[Hold],
) {
    let Some(own) = all.get_mut(&notification.subscriber) else { return };
    own.pending += 1;
    own.held += usize::from(!holds.is_empty());
    for hold in holds {
        let view = HoldView::new(hold, engine.ends(hold));
        let is_known = own.holds.iter().any(|other| (&other.kind, &other.cause) == (&view.kind, &view.cause));
        if !is_known && own.holds.len() < HOLDS_MAX {
            own.holds.push(view);
        }
    }
}

//! Explains the outcome of an event without publishing it.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State};
use engine::{
    Explanation, Taker, Verdict,
    draft::{Defaults, Draft},
    event::{Event, SessionId, catalogue},
    nearest::nearest,
    pipeline::inhibition::Inhibiting,
};

#[cfg(test)]
use crate::api::wire::{ErrorBody, event::EventView};
use crate::api::{
    App,
    auth::Route,
    engine_handle::EngineView,
    error::ApiError,
    extract::read_body,
    intake::NewIds,
    wire::views::{MatchView, TakerView},
};

/// Most sessions that are listed; beyond it only the count is useful.
const SESSIONS_SHOWN_MAX: usize = 20;

/// Explains which subscribers take an event, and which sessions are in its scope.
///
/// The body is one event as it would be published; nothing is published. Checks types and filters,
/// but not repeats, rates and batches.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/match", tag = "events",
    request_body = EventView,
    responses((status = 200, body = MatchView), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn explain(
    State(app): State<App>,
    route: Route,
    body: Body,
) -> Result<Json<MatchView>, ApiError> {
    let body = read_body(&app.rooms.publishing, body).await?;
    let mut ids = NewIds::default();
    let config = app.config.state();
    let defaults = Defaults::api(app.now(), route.of_events(), &config.severities);
    let parsed = Draft::read(&body, &defaults, &mut || ids.next_id()).map_err(ApiError::bad)?;
    let event = Arc::new(parsed.as_event().to_event());
    let (explanation, known) = explained(&app, Arc::clone(&event)).await?;
    Ok(Json(view(&explanation, &event, &known)))
}

/// The subscribers that would take an event, and the types that subscribers name in full.
pub(crate) async fn explained(app: &App, event: Arc<Event>) -> Result<(Explanation, Vec<String>), ApiError> {
    let explain = move |view: &EngineView<'_>| {
        let patterns = view.engine.rules().subscribers.iter().flat_map(|rule| &rule.types);
        let named = patterns.map(ToString::to_string).filter(|pattern| !pattern.contains('*'));
        (view.engine.explain(&event), named.collect())
    };
    app.engine.read(explain).await
}

fn view(explanation: &Explanation, event: &Event, known: &[String]) -> MatchView {
    let Explanation { subscribers, sessions } = explanation;
    let meant = || nearest_type(event, known);
    let shown = subscribers.iter().map(|Taker { subscriber, verdict, sessions }| {
        let own = TakerView {
            subscriber: subscriber.to_string(),
            sessions: sessions.as_deref().map(names),
            ..TakerView::default()
        };
        let (word, own) = match verdict {
            Verdict::Takes => ("takes", own),
            Verdict::Resolves => ("resolves", own),
            Verdict::Inhibits(Inhibiting::Begins) => ("inhibits", own),
            Verdict::Inhibits(Inhibiting::Ends) => ("ends_inhibition", own),
            Verdict::Filtered(by) => {
                ("filtered", TakerView { filtered_by: Some(by.key().to_owned()), ..own })
            }
            Verdict::Silenced(silence) => {
                ("silenced", TakerView { silence: Some(silence.to_string()), ..own })
            }
            Verdict::Muted(by) => ("muted", TakerView { muted_by: Some(by.to_string()), ..own }),
            Verdict::Off => ("off", own),
        };
        TakerView { verdict: word.to_owned(), ..own }
    });

    MatchView {
        subscribers: shown.collect(),
        sessions: names(sessions),
        session_count: sessions.len(),
        nearest: subscribers.is_empty().then(meant).flatten().map(str::to_owned),
    }
}

/// The first sessions, as they are shown.
fn names(sessions: &[SessionId]) -> Vec<String> {
    sessions.iter().take(SESSIONS_SHOWN_MAX).map(ToString::to_string).collect()
}

/// The type that an event without subscribers probably means: one of the catalogue, or one that a
/// subscriber names in full (`known`). `None` if its own is one of them.
pub(crate) fn nearest_type<'t>(event: &Event, known: &'t [String]) -> Option<&'t str> {
    let catalogued = catalogue::types().map(|entry| entry.event_type.as_str());
    let own = event.event_type.as_str();
    // A type of the catalogue is valid even if no subscriber takes it.
    nearest(own, catalogued.chain(known.iter().map(String::as_str))).filter(|meant| *meant != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_event_type_gets_a_suggestion() {
        let nearest_of = |event_type: &str| {
            let body = format!(r#"{{"type":"{event_type}"}}"#);
            let none = catalogue::OwnSeverities::default();
            let defaults = Defaults::api(journal::time::Timestamp::ZERO, Route::Unix.of_events(), &none);
            let parsed = Draft::read(body.as_bytes(), &defaults, &mut String::new).expect("an event");
            let nobody = Explanation { subscribers: Vec::new(), sessions: Vec::new() };
            view(&nobody, &parsed.as_event().to_event(), &["shop.order.placed".to_owned()]).nearest
        };
        assert_eq!(nearest_of("tool.call.falure").as_deref(), Some("tool.call.failure"));
        assert_eq!(nearest_of("shop.order.plased").as_deref(), Some("shop.order.placed"));
        assert_eq!(nearest_of("task.started"), None);
        assert_eq!(nearest_of("of.another.kind"), None);
    }
}

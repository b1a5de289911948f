//! Questions to the user: asking, listing, answering, and waiting for the end.
//!
//! A question is an event, and the engine decides which answer ends it. A caller waits here for the
//! end and acknowledges it; without an acknowledgement the session is notified.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use engine::{
    event::SessionId,
    records::Records,
    sink::{
        Question, QuestionState,
        question::{Chosen, End, PER_ASKER_MAX, QUESTIONS_MAX, taken_event},
    },
};
use serde::Deserialize;

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::api::{
    App,
    actor::{Access, Actor},
    error::ApiError,
    extract::{Params, Segment, read_body},
    notify::{new_id, place_of, say, session_for, sinks_of, verdict_on},
    sessions::read_timeout,
    share::{Bounds, Held},
    wire::{
        notify::NotifyAnswer,
        questions::{
            AnswerRequest, Asked, ID_KIND, QuestionEnd, QuestionList, QuestionRequest, QuestionView,
            read_answer,
        },
    },
};

/// The bounds of the table of questions.
const BOUNDS: Bounds = Bounds { what: "questions", per_owner: PER_ASKER_MAX, all: QUESTIONS_MAX };
/// Default wait for the end of a question.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// Wait parameters.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct EndParams {
    /// Such as `30s` or `500ms`; 30 seconds if absent, at most 10 minutes.
    timeout: Option<String>,
}

/// Asks the user a question.
///
/// Shape: without `session`, its origin is the session whose client is the requesting process or an
/// ancestor of it.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/questions", tag = "notifications",
    responses(
        (status = 201, body = Asked), (status = 400, body = ErrorBody),
        (status = 409, body = ErrorBody, description = "The maximum number is open"),
    ),
))]
pub(crate) async fn create(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<(StatusCode, Json<Asked>), ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let read = || QuestionRequest::read(&body);
    let request = app.rooms.exchanges.work(body.len(), read).await.map_err(ApiError::bad)?;
    let session = session_for(&app, actor, request.notice.session.as_ref()).await?;
    Ok((StatusCode::CREATED, Json(ask(&app, request, session, actor).await?)))
}

/// Asks the user a question on behalf of `session`, if given.
///
/// Errors: too many questions are open, the journal accepts no records, or the daemon stops.
pub(crate) async fn ask(
    app: &App,
    request: QuestionRequest,
    session: Option<SessionId>,
    actor: Actor,
) -> Result<Asked, ApiError> {
    let QuestionRequest { id, notice, choices, expires, awaited } = request;
    let workspace = place_of(app, session.as_ref(), notice.workspace.clone()).await?;
    let now = app.now();
    let said = notice.into_notice(&id.unwrap_or_else(|| new_id(ID_KIND)), session, workspace, now);
    let caller = Some(actor.share(app).await?);
    let mut question = Question::of(&said);
    (question.choices, question.expires_at) = (choices, now + expires);
    (question.awaited, question.caller) = (awaited, caller);
    // Two concurrent requests could both count as the last one within the bound.
    let _lock = app.registry.creation_lock().await;
    let open = open(app).await?;
    if let Some(asked) = asked_before(app, actor, &question).await? {
        return Ok(asked);
    }
    BOUNDS.check(open.iter().map(|open| Held::from(&**open)), &Held::from(&question))?;
    let NotifyAnswer { sinks, suppressed, .. } = say(app, &said, &question.event()).await?;
    Ok(Asked { question: QuestionView::from(&question), sinks, suppressed })
}

/// The question with the id of `new`, if there is one: its asker lost the response and asks again.
///
/// Errors: the id is another question's, or one of a session for which `actor` may not act.
async fn asked_before(app: &App, actor: Actor, new: &Question) -> Result<Option<Asked>, ApiError> {
    let Some(state) = state_of(app, &new.id).await? else { return Ok(None) };
    check_asker(&actor.access(app).await?, &new.id, &state)?;
    let question = match state {
        QuestionState::Open(known) => known,
        // Only the end of such a question is stored. The caller waits for that end next.
        QuestionState::Ended { .. } => Arc::new(new.clone()),
    };
    if (&question.message, &question.choices) != (&new.message, &new.choices) {
        let message = format!("{} is the id of another question", new.id);
        return Err(ApiError::new(StatusCode::CONFLICT, message));
    }
    let verdict = verdict_on(app, Arc::clone(&new.id)).await?;
    let (sinks, suppressed) = sinks_of(verdict.as_ref());
    Ok(Some(Asked {
        question: QuestionView::from(&*question),
        sinks,
        suppressed: suppressed.map(|why| why.as_str().to_owned()),
    }))
}

/// The state of a question; `None` when it is neither open nor one of the newest that ended.
async fn state_of(app: &App, id: &str) -> Result<Option<QuestionState>, ApiError> {
    let id = id.to_owned();
    app.engine.read(move |view| view.engine.question(&id)).await
}

/// The number of open questions of `session` and its `folder`; of all without a session.
pub(crate) fn open_count(app: &App, session: Option<&SessionId>, folder: Option<&str>) -> usize {
    let is_meant = |question: &&Arc<Question>| match (session, &question.session) {
        (None, _) => true,
        (Some(session), Some(asker)) => asker == session,
        (Some(_), None) => folder.is_some() && question.workspace.as_deref() == folder,
    };
    app.registry.sources().questions.borrow().iter().filter(is_meant).count()
}

/// The open questions, up to the end of the journal.
async fn open(app: &App) -> Result<Vec<Arc<Question>>, ApiError> {
    app.engine.caught_up().await?;
    Ok(app.registry.sources().questions.borrow().to_vec())
}

/// Lists the open questions; to a process of a session, those of that session.
#[cfg_attr(test, utoipa::path(get, path = "/v1/questions", tag = "notifications", responses((status = 200, body = QuestionList))))]
pub(crate) async fn list(State(app): State<App>, actor: Actor) -> Result<Json<QuestionList>, ApiError> {
    let (mut open, access) = (open(&app).await?, actor.access(&app).await?);
    if access.own().is_some() {
        open.retain(|question| question.session.as_ref().is_some_and(|asker| access.allows(asker)));
    }
    open.sort_by_key(|question| question.asked_at);
    Ok(Json(QuestionList {
        questions: open.iter().map(|question| QuestionView::from(&**question)).collect(),
    }))
}

/// Answers a question. A question accepts one answer.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/questions/{id}", tag = "notifications",
    params(("id" = String, Path, description = "The question's id, or a prefix of it")),
    responses(
        (status = 200, body = QuestionEnd), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "A session answers its own question, or another one's"),
        (status = 409, body = ErrorBody, description = "It has ended, or the prefix is ambiguous"),
    ),
))]
pub(crate) async fn answer(
    State(app): State<App>,
    actor: Actor,
    Segment(id): Segment,
    body: Body,
) -> Result<Json<QuestionEnd>, ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let access = actor.access(&app).await?;
    let question = named(&app, &access, &id).await?;
    let read = || read_answer(&body, &question.choices);
    let read = app.rooms.exchanges.work(body.len(), read).await;
    let AnswerRequest { answer, own } = read.map_err(ApiError::bad)?;
    if let Some(asker) = access.own().filter(|_| !own) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            format!(
                "{id} is a question of {asker} to its user, and this request is from that session; if the user gave the answer: \
                 `aside answer --own`, or `\"own\":true`"
            ),
        ));
    }
    let by = actor.author(&app).await?.into();
    let chosen = Chosen { question: Arc::clone(&question.id), answer, by };
    let event = chosen.event(&new_id('a'), app.now());
    app.append(Records::build(|records| records.own_event(&event))).await?;
    match state_of(&app, &question.id).await? {
        Some(QuestionState::Ended { end, .. }) => match &end {
            End::Answered { event: by, .. } if *by == event.id => Ok(Json(end_view(&question.id, &end))),
            End::Answered { .. } | End::Expired => Err(already_ended(&question.id, &end)),
        },
        Some(QuestionState::Open(_)) | None => Err(ApiError::not_found("open question", &id)),
    }
}

/// Checks that a requester may see and answer a question: one of its own session, if it has one.
///
/// Errors: 403 otherwise.
fn check_asker(access: &Access, id: &str, state: &QuestionState) -> Result<(), ApiError> {
    let asker = match state {
        QuestionState::Open(question) => question.session.as_ref(),
        QuestionState::Ended { asker, .. } => asker.as_ref(),
    };
    match (asker, access.own()) {
        (_, None) => Ok(()),
        (Some(asker), Some(_)) => access.check(asker.as_str()),
        (None, Some(own)) => {
            let message = format!("{id} is no question of session {own}, to which this process belongs");
            Err(ApiError::new(StatusCode::FORBIDDEN, message))
        }
    }
}

/// The open question whose id is `id` or begins with it.
///
/// Errors: no open question matches, more than one does, or it is of a session that may not be read.
async fn named(app: &App, access: &Access, id: &str) -> Result<Arc<Question>, ApiError> {
    let open = open(app).await?;
    if let Some(question) = BOUNDS.find(&open, |question| &question.id, id)? {
        check_asker(access, &question.id, &QuestionState::Open(Arc::clone(question)))?;
        return Ok(Arc::clone(question));
    }
    let not_found = || ApiError::not_found("open question", id);
    let state = state_of(app, id).await?.ok_or_else(not_found)?;
    check_asker(access, id, &state)?;
    match state {
        QuestionState::Ended { end, .. } => Err(already_ended(id, &end)),
        QuestionState::Open(_) => Err(not_found()),
    }
}

fn already_ended(id: &str, end: &End) -> ApiError {
    let message = match end {
        End::Answered { answer, by, .. } => format!("{id} was answered already: {answer}, by {by}"),
        End::Expired => format!("{id} has expired"),
    };
    ApiError::new(StatusCode::CONFLICT, message)
}

/// Waits for the end of a question.
///
/// Answers at once if it has ended, and 204 on a timeout.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/questions/{id}/wait", tag = "notifications",
    params(("id" = String, Path, description = "The question"), EndParams),
    responses(
        (status = 200, body = QuestionEnd), (status = 204),
        (status = 403, body = ErrorBody, description = "It is of another session than the process's own"),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn wait(
    State(app): State<App>,
    Segment(id): Segment,
    actor: Actor,
    Params(params): Params<EndParams>,
) -> Result<Response, ApiError> {
    check_known(&app, actor, &id).await?;
    let _place = app.registry.follow()?;
    let timeout = params.timeout.as_deref().map_or(Ok(WAIT_DEFAULT), read_timeout)?;
    let ended = tokio::select! {
        ended = tokio::time::timeout(timeout, end_of(&app, &id)) => ended,
        () = app.stopped() => return Ok(StatusCode::NO_CONTENT.into_response()),
    };
    let Ok(ended) = ended else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    Ok(Json(end_view(&id, &ended?)).into_response())
}

fn end_view(id: &str, end: &End) -> QuestionEnd {
    let (state, answer, by) = match end {
        End::Answered { answer, by, .. } => ("answered", Some(answer.to_string()), Some(by.to_string())),
        End::Expired => ("expired", None, None),
    };
    QuestionEnd { question: id.to_owned(), state: state.to_owned(), answer, by }
}

/// [`check_asker`] of a question that is known.
async fn check_known(app: &App, actor: Actor, id: &str) -> Result<(), ApiError> {
    match state_of(app, id).await? {
        Some(state) => check_asker(&actor.access(app).await?, id, &state),
        None => Ok(()),
    }
}

async fn end_of(app: &App, id: &str) -> Result<End, ApiError> {
    // Subscribed before the query, so that a change in between is seen.
    let mut changes = app.registry.sources().questions.subscribe();
    loop {
        match state_of(app, id).await? {
            Some(QuestionState::Ended { end, .. }) => return Ok(end),
            Some(QuestionState::Open(_)) => {}
            None => return Err(ApiError::not_found("question", id)),
        }
        changes.changed().await.map_err(|_| ApiError::stopping())?;
    }
}

/// Acknowledges that the caller has the end of a question, so that the session is not notified of
/// it.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/questions/{id}/taken", tag = "notifications",
    params(("id" = String, Path, description = "The question")),
    responses(
        (status = 204),
        (status = 403, body = ErrorBody, description = "It is of another session than the process's own"),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn taken(
    State(app): State<App>,
    Segment(id): Segment,
    actor: Actor,
) -> Result<StatusCode, ApiError> {
    check_known(&app, actor, &id).await?;
    match state_of(&app, &id).await? {
        Some(QuestionState::Ended { .. }) => {
            let event = taken_event(&id, app.now());
            app.append(Records::build(|records| records.own_event(&event))).await?;
            Ok(StatusCode::NO_CONTENT)
        }
        Some(QuestionState::Open(_)) | None => Err(ApiError::not_found("question that has ended", &id)),
    }
}

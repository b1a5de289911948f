//! The settings of users: what their sessions do not get. An agent cannot change them.

use axum::{Json, body::Bytes, extract::State, http::StatusCode};
use engine::{
    nearest::{clause, nearest},
    notification::SubscriberId,
    pipeline::rule::Activity,
    records::Records,
    request::{FieldError, names::read_name},
    user::{OWN_USER, USERS_MAX, UserSettings},
};

#[cfg(test)]
use crate::api::wire::ErrorBody;

use crate::api::{
    App,
    actor::Actor,
    engine_handle::EngineView,
    error::ApiError,
    extract::Segment,
    naming::known_session,
    wire::settings::{self, SettingsView},
};

/// The settings of a user; `me` is the one of sessions whose harness names none. To a process of a
/// session, no mute of another session.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/users/{user}/settings", tag = "inbox",
    params(("user" = String, Path, description = "The user")),
    responses((status = 200, body = SettingsView), (status = 400, body = ErrorBody)),
))]
pub(crate) async fn get(
    State(app): State<App>,
    Segment(user): Segment,
    actor: Actor,
) -> Result<Json<SettingsView>, ApiError> {
    let access = actor.access(&app).await?;
    let mut view = view(&app, user_name(&user)?).await?;
    view.settings
        .mute
        .retain(|mute| mute.session.as_ref().is_none_or(|session| access.check(session.as_str()).is_ok()));
    Ok(Json(view))
}

/// Replaces the settings of a user, at once also for what is pending. What was muted before is not
/// delivered afterwards.
#[cfg_attr(test, utoipa::path(
    put, path = "/v1/users/{user}/settings", tag = "inbox",
    params(("user" = String, Path, description = "The user")),
    request_body = settings::SettingsBody<'static>,
    responses(
        (status = 200, body = SettingsView),
        (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "The requester is a process of a session"),
        (status = 404, body = ErrorBody, description = "A session is not known"),
        (status = 409, body = ErrorBody, description = "256 users have settings"),
    ),
))]
pub(crate) async fn put(
    State(app): State<App>,
    Segment(user): Segment,
    actor: Actor,
    body: Bytes,
) -> Result<Json<SettingsView>, ApiError> {
    if actor.session(&app).await?.is_some() {
        let message = "an agent cannot change what its user gets; its user can, in a terminal of their own: \
                       aside mute, aside disable";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    }
    let user = user_name(&user)?;
    let settings = settings::read(&body).map_err(ApiError::bad)?;
    check_subscribers(&app, &settings).await?;
    check_sessions(&app, &user, &settings).await?;
    let own = user.clone();
    let is_full = move |view: &EngineView<'_>| {
        let users = view.engine.users();
        users.get(&own).is_none() && users.iter().count() >= USERS_MAX
    };
    if app.engine.read(is_full).await? {
        return Err(ApiError::new(StatusCode::CONFLICT, format!("{USERS_MAX} users have settings")));
    }
    app.append(Records::build(|records| records.settings(&user, &settings))).await?;
    view(&app, user).await.map(Json)
}

fn user_name(user: &str) -> Result<String, ApiError> {
    let name = read_name("user", Some(user)).map_err(ApiError::bad)?;
    Ok(name.unwrap_or_default().into_owned())
}

async fn view(app: &App, user: String) -> Result<SettingsView, ApiError> {
    let read = move |own: &EngineView<'_>| {
        let settings = own.engine.users().get(&user).cloned().unwrap_or_default();
        SettingsView { user, settings, configured: own.engine.rules().mutes.iter().cloned().collect() }
    };
    app.engine.read(read).await
}

/// Checks the sessions of new mutes; those of earlier ones may be forgotten.
///
/// Errors: the first session that is not known, or that is of another user.
async fn check_sessions(app: &App, user: &str, settings: &UserSettings) -> Result<(), ApiError> {
    let before = view(app, user.to_owned()).await?.settings.mute;
    let new = settings.mute.iter().filter(|mute| !before.contains(mute));
    for session in new.filter_map(|mute| mute.session.as_ref()) {
        let own = known_session(app, session).await?.harness.user;
        let own = own.as_deref().unwrap_or(OWN_USER);
        if own != user {
            let message = format!("`{session}` is a session of the user `{own}`, whose settings hold there");
            return Err(ApiError::bad(FieldError::new("mute.session", message)));
        }
    }
    Ok(())
}

/// Errors: the first subscriber that does not exist, or that cannot be switched off.
async fn check_subscribers(app: &App, settings: &UserSettings) -> Result<(), ApiError> {
    let of_mutes = settings.mute.iter().filter_map(|mute| mute.subscriber.as_ref());
    let named =
        settings.disabled.iter().map(|id| ("disabled", id)).chain(of_mutes.map(|id| ("mute.subscriber", id)));
    let named: Vec<(&'static str, SubscriberId)> = named.map(|(field, id)| (field, id.clone())).collect();
    let find = move |own: &EngineView<'_>| {
        let subscribers = &own.engine.rules().subscribers;
        named.into_iter().find_map(|(field, id)| {
            let found = subscribers.iter().find(|rule| rule.id == id || rule.id.in_file() == id.as_str());
            let message = match found.map(|rule| rule.activity) {
                Some(Activity::Core) => format!("`{id}` is a core subscriber, which is always on"),
                Some(Activity::Enabled | Activity::Disabled) => return None,
                None => {
                    let ids = subscribers.iter().map(|rule| rule.id.as_str());
                    format!("`{id}` is no subscriber{}", clause(nearest(id.as_str(), ids)))
                }
            };
            Some(FieldError::new(field, message))
        })
    };
    app.engine.read(find).await?.map_or(Ok(()), |error| Err(ApiError::bad(error)))
}

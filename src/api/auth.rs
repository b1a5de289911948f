//! Access control: the Unix socket serves processes of the daemon's own user, TCP serves clients
//! with a token.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Extension, Router,
    extract::{ConnectInfo, FromRequestParts, Request},
    http::{StatusCode, header, request::Parts},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use engine::event::Provenance;
use tokio::net::UnixStream;

use crate::api::{
    error::ApiError,
    extract,
    tokens::{Scope, Tokens, WEBHOOKS_PATH},
};

/// The process at the other end of a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its user; `None` when the system does not report one.
    uid: Option<u32>,
    /// Its process id; `None` when the system does not report one, or it is in a namespace that is
    /// not visible from here.
    pid: Option<u32>,
}

impl Peer {
    /// The process that opened `connection`.
    pub(crate) fn of(connection: &UnixStream) -> Self {
        let credentials = connection.peer_cred().ok();
        let pid = credentials.as_ref().and_then(tokio::net::unix::UCred::pid);
        Self {
            uid: credentials.map(|credentials| credentials.uid()),
            pid: pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0),
        }
    }
}

/// The id of the process that makes a request; `None` over TCP, and where the system does not
/// report one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerPid(pub(crate) Option<u32>);

impl<S: Send + Sync> FromRequestParts<S> for PeerPid {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<ConnectInfo<Peer>>().and_then(|info| info.0.pid)))
    }
}

/// The transport of a request.
///
/// Shape: an unknown transport counts as [`Route::Tcp`], which is trusted less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Over the Unix socket, from a process of the daemon's user.
    Unix,
    /// Over TCP.
    Tcp,
}

impl Route {
    /// The provenance of published events.
    pub(crate) const fn of_events(self) -> Provenance {
        match self {
            Self::Unix => Provenance::Local,
            Self::Tcp => Provenance::Remote,
        }
    }

    /// The provenance of events that a harness observed.
    pub(crate) const fn of_observations(self) -> Provenance {
        match self {
            Self::Unix => Provenance::Harness,
            Self::Tcp => Provenance::Remote,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Route {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self::Tcp))
    }
}

/// Whether a request is authorized to publish: it comes from a process of the daemon's user, or has
/// a token for that. An unauthorized request may still be a webhook with a signed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MayPublish(pub(crate) bool);

impl<S: Send + Sync> FromRequestParts<S> for MayPublish {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(false)))
    }
}

/// Refuses processes of other users.
pub(crate) fn same_user_only(router: Router) -> Router {
    let own = rustix::process::geteuid().as_raw();
    let router = router.layer(Extension(Route::Unix)).layer(Extension(MayPublish(true)));
    router.layer(from_fn(move |request: Request, next: Next| async move {
        let peer = request.extensions().get::<ConnectInfo<Peer>>().and_then(|info| info.0.uid);
        match peer {
            Some(uid) if uid == own => next.run(request).await,
            Some(_) | None => refuse_user(),
        }
    }))
}

fn refuse_user() -> Response {
    ApiError::new(StatusCode::FORBIDDEN, "the daemon answers only the user it runs as").into_response()
}

/// Refuses a request without `Authorization: Bearer <token>` whose token has the needed scope. A
/// webhook without the header passes: its handler checks the signature.
pub(crate) fn token_only(router: Router, tokens: Tokens) -> Router {
    let tokens = Arc::new(tokens);
    router.layer(from_fn(move |mut request: Request, next: Next| {
        let has_no_token = !request.headers().contains_key(header::AUTHORIZATION);
        let may_be_signed = has_no_token && request.uri().path().starts_with(WEBHOOKS_PATH);
        request.extensions_mut().insert(MayPublish(!may_be_signed));
        let refusal = if may_be_signed { None } else { refusal(&request, &tokens) };
        async move {
            match refusal {
                Some(refusal) => refusal.into_response(),
                None => next.run(request).await,
            }
        }
    }))
}

fn refusal(request: &Request, tokens: &Tokens) -> Option<ApiError> {
    let sent = extract::header(request.headers(), header::AUTHORIZATION.as_str());
    let sent = sent
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let Some(token) = sent.and_then(|(_, sent)| tokens.find(sent.trim())) else {
        let message = "send one of the daemon's tokens as `Authorization: Bearer <token>`";
        return Some(ApiError::new(StatusCode::UNAUTHORIZED, message));
    };
    let needed = Scope::needed(request.method(), request.uri().path());
    match needed {
        Some(scope) if !token.allows(scope) => {
            let message = format!("this token lacks the scope `{scope}`");
            Some(ApiError::new(StatusCode::FORBIDDEN, message))
        }
        Some(_) | None => None,
    }
}

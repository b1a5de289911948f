//! Who may ask: on the Unix socket processes of the daemon's own user, on TCP whoever has the token.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Extension, Router,
    extract::{ConnectInfo, FromRequestParts, Request},
    http::{StatusCode, header, request::Parts},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use subtle::ConstantTimeEq;
use tokio::net::UnixStream;

use crate::{
    event::Provenance,
    server::{error::ApiError, extract},
};

/// The process at the other end of a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its user; `None` when the system does not tell.
    uid: Option<u32>,
}

impl Peer {
    /// The process that opened `connection`.
    pub(crate) fn of(connection: &UnixStream) -> Self {
        Self { uid: connection.peer_cred().ok().map(|credentials| credentials.uid()) }
    }
}

/// By which way a request came.
///
/// Shape: what cannot be told counts as [`Route::Tcp`], which is believed less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Over the Unix socket, from a process of the daemon's user.
    Unix,
    /// Over TCP.
    Tcp,
}

impl Route {
    /// The provenance of what is published.
    pub(crate) const fn of_events(self) -> Provenance {
        match self {
            Self::Unix => Provenance::Local,
            Self::Tcp => Provenance::Remote,
        }
    }

    /// The provenance of what a harness observed.
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

/// Refuses processes of other users.
pub(crate) fn same_user_only(router: Router) -> Router {
    let own = rustix::process::geteuid().as_raw();
    router.layer(Extension(Route::Unix)).layer(from_fn(move |request: Request, next: Next| async move {
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

/// Refuses whoever does not send `Authorization: Bearer <token>`.
pub(crate) fn token_only(router: Router, token: &str) -> Router {
    let token: Arc<str> = token.into();
    router.layer(from_fn(move |request: Request, next: Next| {
        let is_known = has_token(&request, &token);
        async move { if is_known { next.run(request).await } else { refuse_token() } }
    }))
}

fn has_token(request: &Request, token: &str) -> bool {
    let sent = extract::header(request.headers(), header::AUTHORIZATION.as_str());
    let sent = sent
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    // An empty token would let everybody in who sends an empty one.
    !token.is_empty() && sent.is_some_and(|(_, sent)| sent.trim().as_bytes().ct_eq(token.as_bytes()).into())
}

fn refuse_token() -> Response {
    ApiError::new(StatusCode::UNAUTHORIZED, "send the daemon's token as `Authorization: Bearer <token>`")
        .into_response()
}

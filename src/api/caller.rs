//! The process that publishes events: its sessions are found only for a draft that depends on them.

use std::sync::OnceLock;

use axum::http::HeaderMap;
use engine::draft::CallerFacts;

use crate::{
    api::{
        App,
        error::ApiError,
        extract,
        requester::{Found, Requester},
        wire::publish::{SCOPE_HEADER, SCOPE_OF_CALLER},
    },
    harness::kind::{Evidence, Native},
};

/// The process that publishes events.
pub(crate) struct Caller {
    app: App,
    requester: Requester,
    wants_scope: bool,
    facts: OnceLock<CallerFacts>,
}

impl Caller {
    pub(crate) fn new(app: &App, requester: Requester, headers: &HeaderMap) -> Self {
        let wants_scope = extract::header(headers, SCOPE_HEADER) == Some(SCOPE_OF_CALLER);
        Self { app: app.clone(), requester, wants_scope, facts: OnceLock::new() }
    }

    /// Finds the sessions of the publisher.
    ///
    /// Errors: the daemon is stopping.
    pub(crate) async fn find(&self) -> Result<(), ApiError> {
        let found = self.requester.find(&self.app).await?;
        let is_of_ends = |native: &Native| native.evidence == Evidence::End;
        let reports_ends = match &found {
            Found::Below(client) => {
                let routes = self.app.registry.wake_routes();
                let folder = client.sessions.first().and_then(|session| routes.client_folder(session));
                folder.is_some_and(|folder| folder.kind.native.iter().any(is_of_ends))
            }
            // A client does not report the end of a process that has left its process tree.
            Found::Left(_) | Found::AtTerminal(_) | Found::Unknown | Found::WithToken => false,
        };
        self.facts.get_or_init(|| CallerFacts {
            sessions: found.sessions().to_vec(),
            reports_ends,
            wants_scope: self.wants_scope,
        });
        Ok(())
    }

    /// What is known of it; `None` before [`Caller::find`].
    pub(crate) fn facts(&self) -> Option<&CallerFacts> {
        self.facts.get()
    }
}

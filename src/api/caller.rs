//! What follows for an event from the session of the process that publishes it.
//!
//! - A message to an agent that a process of another agent publishes is that agent's: it may wake
//!   its recipient, and is trusted no more than a model's text.
//! - A command that `aside run` runs below a client, without a scope of its own, is a background
//!   task of that client's session. If the client still runs it when it ends, the client itself
//!   tells its agent, as the result of a call or as the end of a task.

use std::sync::{Arc, OnceLock};

use axum::http::HeaderMap;
use engine::{
    event::{Provenance, SessionId},
    pipeline::activation::MESSAGE_TYPE,
};

use crate::{
    api::{
        App,
        error::ApiError,
        extract,
        requester::{Found, Requester},
        wire::{
            event::ParsedEvent,
            publish::{SCOPE_HEADER, SCOPE_OF_CALLER},
        },
    },
    harness::kind::{Evidence, Native},
};

/// The source of the events of `aside run`.
const RUN: &str = "run";
/// The begin of the types of events about tasks.
const TASK: &str = "task.";
/// The type of the start of a task.
const STARTED: &str = "task.started";

/// The process that publishes events.
pub(crate) struct Caller {
    app: App,
    requester: Requester,
    /// Whether it wants its tasks addressed to the session below whose client it runs.
    wants_scope: bool,
    known: OnceLock<Known>,
}

/// What is known of a caller.
#[derive(Debug, Clone)]
struct Known {
    /// The sessions that it belongs to.
    sessions: Vec<SessionId>,
    /// Whether it runs below a client that tells its agent when a command that it runs ends.
    reports_ends: bool,
}

/// An event depends on its publisher, which was not found yet: [`Caller::find`] finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotFoundYet;

impl Caller {
    pub(crate) fn new(app: &App, requester: Requester, headers: &HeaderMap) -> Self {
        let wants_scope = extract::header(headers, SCOPE_HEADER) == Some(SCOPE_OF_CALLER);
        Self { app: app.clone(), requester, wants_scope, known: OnceLock::new() }
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
        self.known.get_or_init(|| Known { sessions: found.sessions().to_vec(), reports_ends });
        Ok(())
    }

    /// Completes an event by what is known of its publisher. Returns the session to which this
    /// addressed it.
    ///
    /// Shape: most events need nothing of it, and cost one comparison. Errors: the event is as it
    /// was, and the publisher has to be found first.
    pub(crate) fn complete(&self, event: &mut ParsedEvent<'_>) -> Result<Option<Arc<str>>, NotFoundYet> {
        if !is_of_interest(event) {
            return Ok(None);
        }
        let known = self.known.get().ok_or(NotFoundYet)?;
        Ok(completed(event, known, self.wants_scope))
    }
}

fn is_of_interest(event: &ParsedEvent<'_>) -> bool {
    let event = event.as_event();
    let is_task = event.source == RUN && event.event_type.starts_with(TASK);
    event.provenance == Provenance::Local && (is_task || event.event_type == MESSAGE_TYPE)
}

/// Completes a local event of a task or a message.
fn completed(event: &mut ParsedEvent<'_>, caller: &Known, wants_scope: bool) -> Option<Arc<str>> {
    if event.as_event().event_type == MESSAGE_TYPE {
        if !caller.sessions.is_empty() {
            event.mark_as_of_agent();
        }
        return None;
    }
    // A process with several sessions does not tell which of them started the task.
    let [session] = &caller.sessions[..] else { return None };
    let is_free = wants_scope && event.as_event().session.is_none();
    let addressed = is_free.then(|| Arc::from(session.as_str()));
    if let Some(session) = &addressed {
        event.address_to(session);
    }
    let is_its = event.as_event().session == Some(session.as_str());
    if is_its && caller.reports_ends && event.as_event().event_type != STARTED {
        event.mark_as_announced();
    }
    addressed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::event::{Defaults, parse};
    use engine::event::{Severity, catalogue::OwnSeverities};
    use journal::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1);

    /// The scope, the provenance and the payload of an event of a caller, and the session to which
    /// it was addressed.
    fn after(json: &str, sessions: &[&str], reports_ends: bool) -> String {
        after_of(json, sessions, true, reports_ends)
    }

    fn after_of(json: &str, sessions: &[&str], wants_scope: bool, reports_ends: bool) -> String {
        let none = OwnSeverities::default();
        let defaults = Defaults::api(NOW, Provenance::Local, &none);
        let mut event = parse(json.as_bytes(), &defaults, &mut || "e".to_owned()).expect("valid");
        let sessions = sessions.iter().map(|id| SessionId::new(id)).collect();
        let addressed = completed(&mut event, &Known { sessions, reports_ends }, wants_scope);
        let event = event.as_event();
        assert_eq!(event.severity, Severity::Info);
        let (session, addressed) = (event.session.unwrap_or("-"), addressed.as_deref().unwrap_or("-"));
        format!("{session} {addressed} {:?} {}", event.provenance, event.payload)
    }

    #[test]
    fn a_task_below_a_client_is_its_sessions() {
        let event = |event_type: &str, session: &str| {
            format!(
                r#"{{"type":"{event_type}","source":"run","severity":"info","workspace":"/w"{session},"payload":{{"task":"t"}}}}"#
            )
        };
        let (own, other) = (r#","session":"s1""#, r#","session":"s2""#);
        for (event_type, session, sessions, reports_ends, expected) in [
            ("task.started", "", &["s1"][..], true, r#"s1 s1 Local {"task":"t"}"#),
            ("task.failed", own, &["s1"], true, r#"s1 - Local {"task":"t","announced":true}"#),
            ("task.failed", "", &["s1"], true, r#"s1 s1 Local {"task":"t","announced":true}"#),
            ("task.failed", own, &["s1"], false, r#"s1 - Local {"task":"t"}"#),
            ("task.completed", own, &[], true, r#"s1 - Local {"task":"t"}"#),
            ("task.completed", other, &["s1"], true, r#"s2 - Local {"task":"t"}"#),
            ("task.started", "", &[], false, r#"- - Local {"task":"t"}"#),
            ("task.started", "", &["s1", "s2"], true, r#"- - Local {"task":"t"}"#),
        ] {
            let found = after(&event(event_type, session), sessions, reports_ends);
            assert_eq!(found, expected, "{event_type} {session} {sessions:?}");
        }
        let empty = r#"{"type":"task.failed","source":"run","severity":"info","payload":{}}"#;
        assert_eq!(after(empty, &["s1"], true), r#"s1 s1 Local {"announced":true}"#);
        assert_eq!(after_of(empty, &["s1"], false, true), "- - Local {}", "it has a scope of its own");
    }

    #[test]
    fn a_message_below_a_client_is_its_agents() {
        let message = r#"{"type":"message.agent.sent","source":"cli","severity":"info","session":"s2","payload":{"text":"a"}}"#;
        assert_eq!(after(message, &["s1"], true), r#"s2 - Agent {"text":"a"}"#);
        assert_eq!(after(message, &["s1", "s3"], false), r#"s2 - Agent {"text":"a"}"#);
        assert_eq!(after(message, &[], true), r#"s2 - Local {"text":"a"}"#);
    }
}

//! The session of the process that publishes an event, and what follows from it.
//!
//! - A message to an agent that a process of another agent publishes is that agent's: it may wake
//!   its recipient, and is trusted no more than a model's text.
//! - A command that `aside run` runs below a client, without a scope of its own, is a background
//!   task of that client's session. If the client still runs it when it ends, the client itself
//!   tells its agent, as the result of a call or as the end of a task.

use std::sync::{Arc, OnceLock};

use axum::http::HeaderMap;

use crate::{
    event::{Provenance, SessionId},
    harness::{
        header, header_text,
        native::{Evidence, Native},
    },
    pipeline::activation::MESSAGE_TYPE,
    server::{
        App,
        auth::{PeerPid, Route},
        extract, processes,
    },
    wire::{
        event::ParsedEvent,
        publish::{SCOPE_HEADER, SCOPE_OF_CALLER},
    },
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
    /// `None` if its events are not local.
    peer: Option<u32>,
    /// Whether it wants its tasks addressed to the session below whose client it runs.
    wants_scope: bool,
    /// The session that a variable of its client names.
    named: Option<SessionId>,
    found: OnceLock<Vec<SessionId>>,
}

/// What is known of a caller.
#[derive(Debug, Clone, Copy)]
struct Known<'s> {
    /// The sessions of the client below which it runs.
    sessions: &'s [SessionId],
    /// Whether the caller wants its tasks addressed to the one of these.
    wants_scope: bool,
    /// Whether that client tells its agent when a command that it runs ends.
    reports_ends: bool,
}

impl Caller {
    pub(crate) fn new(app: &App, route: Route, PeerPid(peer): PeerPid, headers: &HeaderMap) -> Self {
        let peer = peer.filter(|_| route == Route::Unix);
        let wants_scope = extract::header(headers, SCOPE_HEADER) == Some(SCOPE_OF_CALLER);
        let named = extract::header(headers, header::SESSION).and_then(header_text);
        let named = named.map(|id| SessionId::new(&id));
        Self { app: app.clone(), peer, wants_scope, named, found: OnceLock::new() }
    }

    /// Completes an event by what is known of its publisher. Returns the session to which this
    /// addressed it.
    ///
    /// Shape: most events need nothing of it, and cost one comparison.
    pub(crate) fn complete(&self, event: &mut ParsedEvent<'_>) -> Option<Arc<str>> {
        let peer = self.peer.filter(|_| is_of_interest(event))?;
        let sessions = self.found.get_or_init(|| processes::sessions_of_process(&self.app, peer));
        let routes = self.app.registry.wake_routes();
        let client = sessions.first().and_then(|session| routes.client_folder(session));
        let is_of_ends = |native: &Native| native.evidence == Evidence::End;
        let reports_ends = client.is_some_and(|client| client.kind.native.iter().any(is_of_ends));
        // A process that outlives the shell that started it is below no client any more.
        let processes = self.app.registry.processes();
        let named = self.named.as_ref().filter(|id| self.wants_scope && processes.process_of(id).is_some());
        let is_message = event.as_event().event_type == MESSAGE_TYPE;
        match named.filter(|_| sessions.is_empty() && !is_message) {
            Some(named) => {
                let sessions = std::slice::from_ref(named);
                completed(event, Known { sessions, wants_scope: true, reports_ends: false })
            }
            None => completed(event, Known { sessions, wants_scope: self.wants_scope, reports_ends }),
        }
    }
}

fn is_of_interest(event: &ParsedEvent<'_>) -> bool {
    let event = event.as_event();
    let is_task = event.source == RUN && event.event_type.starts_with(TASK);
    event.provenance == Provenance::Local && (is_task || event.event_type == MESSAGE_TYPE)
}

/// Completes a local event of a task or a message.
fn completed(event: &mut ParsedEvent<'_>, caller: Known<'_>) -> Option<Arc<str>> {
    if event.as_event().event_type == MESSAGE_TYPE {
        if !caller.sessions.is_empty() {
            event.mark_as_of_agent();
        }
        return None;
    }
    // A process with several sessions does not tell which of them started the task.
    let [session] = caller.sessions else { return None };
    let is_free = caller.wants_scope && event.as_event().session.is_none();
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
    use crate::{
        event::{Severity, catalogue::OwnSeverities},
        time::Timestamp,
        wire::event::{Defaults, parse},
    };

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
        let sessions: Vec<SessionId> = sessions.iter().map(|id| SessionId::new(id)).collect();
        let addressed = completed(&mut event, Known { sessions: &sessions, wants_scope, reports_ends });
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

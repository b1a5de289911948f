//! What follows for an event from the session of the process that publishes it.
//!
//! - A message to an agent that a process of another agent publishes is that agent's: it may wake
//!   its recipient, and is trusted no more than a model's text.
//! - A command that `aside run` runs below a client, without a scope of its own, is a background
//!   task of that client's session. If the client still runs it when it ends, the client itself
//!   tells its agent, as the result of a call or as the end of a task.

use std::{borrow::Cow, sync::Arc};

use crate::{
    draft::Draft,
    event::{Provenance, SessionId},
    pipeline::activation::MESSAGE_TYPE,
};

/// The source of the events of `aside run`.
const RUN: &str = "run";
/// The begin of the types of events about tasks.
const TASK: &str = "task.";
/// The type of the start of a task.
const STARTED: &str = "task.started";

/// What is known of the process that publishes a body.
#[derive(Debug, Clone)]
pub struct CallerFacts {
    /// The sessions that it belongs to.
    pub sessions: Vec<SessionId>,
    /// Whether it runs below a client that tells its agent when a command that it runs ends.
    pub reports_ends: bool,
    /// Whether it wants its tasks addressed to the session below whose client it runs.
    pub wants_scope: bool,
}

impl Draft<'_> {
    /// Whether it depends on its publisher: a local event of a task or a message. Most do not.
    pub(super) fn needs_caller(&self) -> bool {
        let is_task = self.source == RUN && self.event_type.starts_with(TASK);
        self.provenance == Provenance::Local && (is_task || self.event_type == MESSAGE_TYPE)
    }

    /// Completes an event that needs its caller. Returns the session to which this addressed it.
    pub(super) fn complete(&mut self, caller: &CallerFacts) -> Option<Arc<str>> {
        if self.event_type == MESSAGE_TYPE {
            if !caller.sessions.is_empty() {
                self.provenance = Provenance::Agent;
            }
            return None;
        }
        // A process with several sessions does not tell which of them started the task.
        let [session] = &caller.sessions[..] else { return None };
        let is_free = caller.wants_scope && self.session.is_none();
        let addressed = is_free.then(|| Arc::from(session.as_str()));
        if addressed.is_some() {
            self.address_to(session.as_str());
        }
        let is_its = self.session.as_deref() == Some(session.as_str());
        if is_its && caller.reports_ends && self.event_type != STARTED {
            self.mark_as_announced();
        }
        addressed
    }

    /// Marks its payload as something that a client tells its agent itself.
    fn mark_as_announced(&mut self) {
        let Some(fields) = self.payload.trim_end().strip_suffix('}') else { return };
        let separator = if fields.trim_end().ends_with('{') { "" } else { "," };
        self.payload = Cow::Owned(format!("{fields}{separator}\"announced\":true}}"));
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;

    use super::*;
    use crate::{
        draft::Defaults,
        event::{Severity, catalogue::OwnSeverities},
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
        let mut event = Draft::read(json.as_bytes(), &defaults, &mut || "e".to_owned()).expect("valid");
        let sessions = sessions.iter().map(|id| SessionId::new(id)).collect();
        let addressed = event.complete(&CallerFacts { sessions, reports_ends, wants_scope });
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

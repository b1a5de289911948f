//! Hooks that report something and carry no text, and hooks of subagents.

use engine::{
    event::{Event, Severity, clean_text},
    notification::InjectionPoint,
};
use serde_json::{Value, json};

use super::{
    Call, present,
    stdin::{Compaction, Notification, StopFailure},
};
use crate::harness::{HookError, Then, text::read};

/// The client's word for a turn that ended because of a rate limit.
///
/// Source: the client's reference of hooks, `StopFailure`, `error`.
const RATE_LIMIT: &str = "rate_limit";
/// Kinds of notices to the user that mean that the agent waits for them.
const WAITING: [&str; 3] = ["elicitation_dialog", "idle_prompt", "permission_prompt"];

impl Call<'_> {
    /// A turn ended because the model's API refused it or could not be reached. A refusal because of
    /// a rate limit is also an event of its own, which the next turn is notified of.
    pub(super) fn stop_failure(&self) -> Result<Vec<Event>, HookError> {
        let StopFailure { error, last_assistant_message } = read(self.stdin)?;
        let message = || last_assistant_message.as_deref().map(|message| json!(clean_text(message)));
        let name = |what: &str| format!("{what}:{}:{}", self.turn_or_time(), self.now.as_millis());
        let failed = self.event(
            "agent.turn.failed",
            Severity::Error,
            &name("turn.failed"),
            present([
                ("turn", self.turn()),
                ("error_type", Some(json!(clean_text(&error)))),
                ("error_message", message()),
            ]),
        )?;
        if error != RATE_LIMIT {
            return Ok(vec![failed]);
        }
        let limited = self.event(
            "api.rate_limit.exceeded",
            Severity::Warning,
            &name("rate_limit"),
            present([("error_message", message())]),
        )?;
        Ok(vec![failed, limited])
    }

    pub(super) fn notification(&self) -> Result<Vec<Event>, HookError> {
        let Notification { message, notification_type } = read(self.stdin)?;
        let Some(kind) = notification_type.filter(|kind| WAITING.contains(&kind.as_str())) else {
            return Ok(Vec::new());
        };
        let event = self.event(
            "agent.waiting",
            Severity::Debug,
            &format!("waiting:{kind}:{}:{}", self.turn_or_time(), self.now.as_millis()),
            json!({ "reason": kind, "message": clean_text(&message) }),
        )?;
        Ok(vec![event])
    }

    pub(super) fn compaction(&self, event_type: &str) -> Result<Vec<Event>, HookError> {
        let Compaction { trigger } = read(self.stdin)?;
        let event = self.event(
            event_type,
            Severity::Debug,
            &format!("{event_type}:{}:{}", self.turn_or_time(), self.now.as_millis()),
            json!({ "trigger": clean_text(&trigger) }),
        )?;
        Ok(vec![event])
    }

    pub(super) fn subagent_start(&self) -> Result<(Vec<Event>, Then), HookError> {
        let Some(agent) = self.subagent()? else {
            return Ok((Vec::new(), Then::Nothing));
        };
        let exchange = self.exchange(InjectionPoint::TurnStart, &agent)?;
        Ok((vec![self.subagent_event("subagent.started", &agent)?], Then::Exchange(Box::new(exchange))))
    }

    pub(super) fn subagent_stop(&self) -> Result<(Vec<Event>, Then), HookError> {
        let Some(agent) = self.subagent()? else {
            return Ok((Vec::new(), Then::Nothing));
        };
        let ended = Then::SessionEnded(self.session()?);
        Ok((vec![self.subagent_event("subagent.complete", &agent)?], ended))
    }

    /// The subagent's id; `None` for the client's own work, such as a compaction, which has no
    /// type.
    fn subagent(&self) -> Result<Option<String>, HookError> {
        let is_own = self.common.agent_type.as_deref().is_none_or(str::is_empty);
        if is_own {
            return Ok(None);
        }
        let missing = || HookError::Missing { hook: self.common.hook_event_name.clone(), field: "agent_id" };
        self.agent_id().map(|id| Some(id.to_owned())).ok_or_else(missing)
    }

    /// An event about a subagent, for its parent session. The parent gets the result from its tool,
    /// so the event has nothing new for it.
    fn subagent_event(&self, event_type: &str, agent: &str) -> Result<Event, HookError> {
        let parent = self.conversation()?;
        let agent_type = self.common.agent_type.as_deref().map(|kind| Value::from(clean_text(kind)));
        self.event_of(
            parent,
            event_type,
            Severity::Debug,
            &format!("{event_type}:{agent}"),
            present([("agent", agent_type), ("agent_id", Some(json!(agent)))]),
        )
    }
}

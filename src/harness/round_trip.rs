//! Tests the delivery of an event to an agent, without an agent.

use std::path::Path;

/// Hooks of an invented subagent. It gets only notifications addressed to it, so none is taken from
/// a real session.
#[derive(Debug)]
pub struct RoundTrip {
    /// The stdin of a hook that carries text, after a call of this id; the call has read the file
    /// `read`, if given.
    pub ask: fn(&MadeUp<'_>, call: &str, read: Option<&Path>) -> String,
    /// The stdin of the hook for the subagent's end.
    pub end: fn(&MadeUp<'_>) -> String,
    /// The text for the agent in the stdout of a hook.
    pub text: fn(&[u8]) -> Option<String>,
}

/// The subagent; its session is `<conversation>/<agent>`.
#[derive(Debug, Clone, Copy)]
pub struct MadeUp<'a> {
    /// Its conversation, which does not exist.
    pub conversation: &'a str,
    /// Its id and its type.
    pub agent: &'a str,
}

//! How the way from an event to an agent is tried, without an agent.

use std::path::Path;

/// Hooks of a made-up subagent: one gets what is addressed to it and nothing else, so nothing is taken from a real session.
#[derive(Debug)]
pub struct RoundTrip {
    /// The stdin of a hook that carries text, after a call of this id, with which the subagent has read a file if one is named.
    pub ask: fn(&MadeUp<'_>, call: &str, read: Option<&Path>) -> String,
    /// The stdin of the hook with which the subagent ends.
    pub end: fn(&MadeUp<'_>) -> String,
    /// The text for the agent in the stdout of a hook.
    pub text: fn(&[u8]) -> Option<String>,
}

/// The subagent; its session is `<conversation>/<agent>`.
#[derive(Debug, Clone, Copy)]
pub struct MadeUp<'a> {
    /// The conversation that it is of, which there is not.
    pub conversation: &'a str,
    /// Its id and its type.
    pub agent: &'a str,
}

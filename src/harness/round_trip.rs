//! How the way from an event to an agent is tried, without an agent.

/// Hooks of a made-up subagent: one gets what is addressed to it and nothing else, so nothing is taken from a real session.
#[derive(Debug)]
pub struct RoundTrip {
    /// The stdin of a hook that carries text, with `id` for the subagent's conversation.
    pub ask: fn(&MadeUp<'_>, call: &str) -> String,
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

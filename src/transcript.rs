//! What a harness writes down of a conversation, as far as probes ask: read in parts, by the harness's own [`Reader`].

use crate::call::TouchKind;

/// Reads parts of a transcript, which begin and end anywhere.
///
/// Errors: none. What cannot be read says nothing.
#[derive(Debug)]
pub struct Reader {
    /// How an agent has to know a file for its client to announce by itself that it changed, once.
    pub announces: &'static [TouchKind],
    /// The files, by absolute paths, that were announced so.
    pub changed: fn(&[u8]) -> Vec<String>,
    /// The background commands, by the harness's ids, whose end the client reported.
    pub ended: fn(&[u8]) -> Vec<String>,
    /// How full the context is, by the last of what says so.
    pub context: fn(&[u8]) -> Context,
}

/// The transcript of one conversation.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'a> {
    /// Where it is, absolute.
    pub path: &'a str,
    /// Reads it.
    pub reader: &'static Reader,
}

/// How full a context is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// What the model was given last; `None` when it was given nothing since the last compaction.
    pub used: Option<Usage>,
    /// The last compaction that the client made because the context was full.
    pub compacted: Option<Usage>,
}

/// How full a context is, as a client says it elsewhere, such as at its status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    /// How much of it is used, in percent: 0 to 100.
    pub used_percent: u8,
    /// Its size, in tokens.
    pub size: Option<u64>,
}

/// How many tokens a model was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The model, as the client names it.
    pub model: String,
    /// The tokens of the request, with those that were read from a cache.
    pub tokens: u64,
}

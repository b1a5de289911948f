//! Translates the hook calls of each harness into the engine's terms, and the answers into the
//! harness's terms. [`table`] lists the harnesses.
//!
//! A harness's module turns its hook input into a [`HookCall`]: events to publish, and at most one
//! action on the session. The answer to an exchange becomes the hook's output. This module uses no
//! socket and no clock. A call that cannot be parsed is a [`HookError`] for the daemon's log, and
//! the harness gets no output.

pub mod claude;
mod digest;
pub mod installation;
pub mod kind;
pub mod process;
pub mod table;
mod text;
#[cfg(test)]
pub(crate) mod trial;
pub mod wake;

pub use text::{ids_in, readable};

use engine::{
    call::Call,
    event::{Event, SessionId},
    exchange::Exchange,
    request::{FieldError, shortened},
};
use hook::harness::header;

/// The headers of a hook call by name, decoded by [`header_text`].
pub type Headers<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Variables of a hook's process, as forwarded by the `hook` command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookEnv {
    /// The harness's process.
    pub pid: Option<u32>,
    /// How the harness was started, such as `cli`.
    pub entrypoint: Option<String>,
    /// The folder the harness was started in.
    pub project: Option<String>,
}

impl HookEnv {
    /// Reads the variables from the headers.
    ///
    /// Errors: none. An invalid number counts as absent.
    pub fn from_headers(value: Headers<'_>) -> Self {
        Self {
            pid: value(header::PID).and_then(|pid| pid.parse().ok()),
            entrypoint: value(header::ENTRYPOINT),
            project: value(header::PROJECT),
        }
    }
}

/// Decodes a percent-encoded header of a hook call; `None` when it is empty.
pub fn header_text(value: &str) -> Option<String> {
    Some(engine::hex::percent_decode(value)).filter(|text| !text.is_empty())
}

/// One call of a hook.
#[derive(Debug, Default)]
pub struct HookCall {
    /// The harness's name of the hook, which the output repeats.
    pub hook: String,
    /// Events to publish, in order, before [`HookCall::then`]. Their ids derive from the call, so a
    /// repeated call publishes nothing new.
    pub observe: Vec<Event>,
    /// The action on the session.
    pub then: Then,
    /// File changes of the reported calls, for the probes of its exchange.
    pub calls: Vec<Call>,
    /// The transcript of the agent's context, if the harness writes one.
    pub transcript: Option<Transcript>,
    /// Whether the client holds messages of others in the session's present mode; `None` if the hook
    /// does not report it.
    pub holds_messages: Option<bool>,
    /// Input about the session that cannot be used; the call is answered without it.
    pub left_out: Vec<FieldError>,
}

impl HookCall {
    /// The sessions in it.
    pub fn sessions_mut(&mut self) -> impl Iterator<Item = &mut SessionId> {
        let observed = self.observe.iter_mut().filter_map(|event| event.session.as_mut());
        let transcript = self.transcript.as_mut().map(|transcript| &mut transcript.session);
        observed.chain(self.then.sessions_mut()).chain(transcript)
    }
}

/// A file in which a harness records an agent's context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// Its session.
    pub session: SessionId,
    /// Its path, as given by the harness.
    pub path: String,
}

/// The action of a hook call besides publishing.
#[derive(Debug, Default)]
pub enum Then {
    /// Make this exchange and answer the hook with the released text.
    Exchange(Box<Exchange>),
    /// The same, if a pending notification is released before a tool; otherwise the hook gets an
    /// empty answer at once.
    BeforeTool(Box<Exchange>),
    /// The same; injections in the hook's input, which has the prompt, count as arrived.
    Prompt(Box<Exchange>),
    /// The conversation has ended and can be resumed.
    SessionSuspended(SessionId),
    /// The conversation has ended and cannot be resumed.
    SessionEnded(SessionId),
    /// Nothing; the hook gets an empty answer.
    #[default]
    Nothing,
}

impl Then {
    /// The exchange, if there is one.
    pub fn exchange_mut(&mut self) -> Option<&mut Exchange> {
        match self {
            Self::Exchange(exchange) | Self::BeforeTool(exchange) | Self::Prompt(exchange) => Some(exchange),
            Self::SessionSuspended(_) | Self::SessionEnded(_) | Self::Nothing => None,
        }
    }

    fn sessions_mut(&mut self) -> impl Iterator<Item = &mut SessionId> {
        let (exchange, closed) = match self {
            Self::Exchange(exchange) | Self::BeforeTool(exchange) | Self::Prompt(exchange) => {
                (Some(exchange), None)
            }
            Self::SessionSuspended(session) | Self::SessionEnded(session) => (None, Some(session)),
            Self::Nothing => (None, None),
        };
        exchange.into_iter().flat_map(|exchange| exchange.sessions_mut()).chain(closed)
    }

    /// The session of an exchange; `None` for a subagent.
    pub fn conversation(&self) -> Option<&SessionId> {
        match self {
            Self::Exchange(exchange) | Self::BeforeTool(exchange) | Self::Prompt(exchange) => {
                exchange.harness.parent.is_none().then_some(&exchange.session)
            }
            Self::SessionSuspended(_) | Self::SessionEnded(_) | Self::Nothing => None,
        }
    }
}

/// What is wrong with a hook's input.
///
/// Shape: a parser's text, which quotes a value; shortened, and never for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputError(String);

/// Why a hook's input cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// Not JSON, or a field of the wrong type.
    #[error("hook input is invalid at `{field}`")]
    Input {
        /// Path of the field; `.` for the whole.
        field: String,
        /// The error, with line and column.
        source: InputError,
    },
    /// A required field of the hook is missing.
    #[error("hook input of {hook} has no `{field}`")]
    Missing {
        /// The hook.
        hook: String,
        /// The field.
        field: &'static str,
    },
    /// A field has a value that the journal does not accept.
    #[error("hook input of {hook} is invalid")]
    Field {
        /// The hook.
        hook: String,
        /// The field, and its error.
        source: FieldError,
    },
}

impl InputError {
    fn new(problem: impl Into<String>) -> Self {
        Self(shortened(problem.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_headers_are_decoded_and_empty_ones_absent() {
        let cases = [
            (["41", "cli", "/home/%C3%BC/100%25"], (Some(41), Some("cli"), Some("/home/\u{fc}/100%"))),
            (["x", "", "/odd/%zz%4"], (None, None, Some("/odd/%zz%4"))),
        ];
        for ([pid, entrypoint, project], expected) in cases {
            let env = HookEnv::from_headers(&|name| match name {
                "aside-pid" => header_text(pid),
                "aside-entrypoint" => header_text(entrypoint),
                "aside-project" => header_text(project),
                _ => None,
            });
            assert_eq!((env.pid, env.entrypoint.as_deref(), env.project.as_deref()), expected);
        }
        assert_eq!(HookEnv::from_headers(&|_| None), HookEnv::default());
    }
}

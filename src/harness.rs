//! What each harness says at its hooks, in the words of the engine, and what it is answered, in its own; [`kind`] is the table.
//!
//! A harness's module turns its hook input into a [`HookCall`]: events to publish, and at most one thing to do with the
//! session. The answer to an exchange becomes the hook's output again. Nothing here knows a socket or a clock; a call that
//! cannot be read is a [`HookError`] for the daemon's log, and nothing for the harness.

pub mod caps;
pub mod claude;
mod digest;
pub mod installation;
pub mod kind;
pub mod message_socket;
pub mod native;
pub mod process;
pub mod program;
pub mod round_trip;
mod seen;
pub mod session_file;
pub mod status_line;
mod stdin;
pub mod wake_route;

pub use seen::ids_in;

use crate::{
    call::Call,
    event::{Event, SessionId},
    exchange::Exchange,
    protocol::FieldError,
};

/// The headers that a hook call may have: variables of the client, which [`kind::Variables::forwarded`] names.
pub mod header {
    /// The harness's process.
    pub const PID: &str = "aside-pid";
    /// How the harness was started.
    pub const ENTRYPOINT: &str = "aside-entrypoint";
    /// The folder the harness was started in.
    pub const PROJECT: &str = "aside-project";
    /// The session.
    pub const SESSION: &str = "aside-session";
    /// The folder in which the process that asks works; of `aside mcp` alone.
    pub const CWD: &str = "aside-cwd";
    /// Where the client takes messages.
    pub const MESSAGE_SOCKET: &str = "aside-message-socket";
    /// What it wants to see before it takes one.
    pub const MESSAGE_TOKEN: &str = "aside-message-token";
}

/// The headers of a hook call by name, as [`header_text`] reads them.
pub type Headers<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What the environment of a hook's process told, as the `hook` command forwards it.
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
    /// Takes them from the headers.
    ///
    /// Errors: none. What is no number counts as absent.
    pub fn from_headers(value: Headers<'_>) -> Self {
        Self {
            pid: value(header::PID).and_then(|pid| pid.parse().ok()),
            entrypoint: value(header::ENTRYPOINT),
            project: value(header::PROJECT),
        }
    }
}

/// The text of a header of a hook call, whose values are percent-encoded; `None` when it is empty.
pub fn header_text(value: &str) -> Option<String> {
    Some(percent_decode(value)).filter(|text| !text.is_empty())
}

fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => bytes.push(high << 4 | low),
            None => bytes.push(*first),
        }
        let length = if escaped.is_some() { 3 } else { 1 };
        rest = rest.get(length..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// One call of a hook.
#[derive(Debug)]
pub struct HookCall {
    /// The harness's name of the hook, which its output repeats.
    pub hook: String,
    /// Events to publish, in order, before [`HookCall::then`]. Their ids derive from the call, so the same call again
    /// publishes nothing new.
    pub observe: Vec<Event>,
    /// What to do with the session.
    pub then: Then,
    /// What the calls that it reports did to files, for the probes of its exchange.
    pub calls: Vec<Call>,
    /// Where it can be read what the agent was given, if the harness writes that down.
    pub transcript: Option<Transcript>,
    /// What the input says of the session and cannot be used; the call is answered without it.
    pub left_out: Vec<FieldError>,
}

impl HookCall {
    /// The sessions that it names.
    pub fn sessions_mut(&mut self) -> impl Iterator<Item = &mut SessionId> {
        let observed = self.observe.iter_mut().filter_map(|event| event.session.as_mut());
        let transcript = self.transcript.as_mut().map(|transcript| &mut transcript.session);
        observed.chain(self.then.sessions_mut()).chain(transcript)
    }

    /// A call that nothing follows.
    fn silent() -> Self {
        Self {
            hook: String::new(),
            observe: Vec::new(),
            then: Then::Nothing,
            calls: Vec::new(),
            transcript: None,
            left_out: Vec::new(),
        }
    }
}

/// A file in which a harness writes down what an agent was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// Whose.
    pub session: SessionId,
    /// Its path, as the harness names it.
    pub path: String,
}

/// What a hook call asks for besides publishing.
#[derive(Debug)]
pub enum Then {
    /// Make this exchange and answer the hook with what it releases.
    Exchange(Box<Exchange>),
    /// The same, if something waits that is released before a tool; otherwise the hook is answered with silence at once.
    BeforeTool(Box<Exchange>),
    /// The same; a prompt that carries injections shows that they have arrived.
    Prompt {
        /// The exchange.
        exchange: Box<Exchange>,
        /// What the agent is asked.
        prompt: String,
    },
    /// The conversation has ended.
    SessionClosed {
        /// Which.
        session: SessionId,
        /// Whether it can be taken up again.
        may_return: bool,
    },
    /// Nothing; the hook is answered with silence.
    Nothing,
}

impl Then {
    /// The exchange, if there is one to be made.
    pub fn exchange_mut(&mut self) -> Option<&mut Exchange> {
        match self {
            Self::Exchange(exchange) | Self::BeforeTool(exchange) | Self::Prompt { exchange, .. } => {
                Some(exchange)
            }
            Self::SessionClosed { .. } | Self::Nothing => None,
        }
    }

    fn sessions_mut(&mut self) -> impl Iterator<Item = &mut SessionId> {
        let (exchange, closed) = match self {
            Self::Exchange(exchange) | Self::BeforeTool(exchange) | Self::Prompt { exchange, .. } => {
                (Some(exchange), None)
            }
            Self::SessionClosed { session, .. } => (None, Some(session)),
            Self::Nothing => (None, None),
        };
        exchange.into_iter().flat_map(|exchange| exchange.sessions_mut()).chain(closed)
    }

    /// The conversation that makes an exchange; a subagent is none.
    pub fn conversation(&self) -> Option<&SessionId> {
        match self {
            Self::Exchange(exchange) | Self::BeforeTool(exchange) | Self::Prompt { exchange, .. } => {
                exchange.harness.parent.is_none().then_some(&exchange.session)
            }
            Self::SessionClosed { .. } | Self::Nothing => None,
        }
    }
}

/// Why a hook's input cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// Not JSON, or a field of the wrong kind.
    #[error("hook input is wrong at `{field}`")]
    Input {
        /// Path of the field; `.` for the whole.
        field: String,
        /// What is wrong, with line and column.
        source: serde_json::Error,
    },
    /// A field that the hook always has is not there.
    #[error("hook input of {hook} has no `{field}`")]
    Missing {
        /// Which hook.
        hook: String,
        /// Which field.
        field: &'static str,
    },
    /// A field holds what the journal does not take.
    #[error("hook input of {hook} is wrong")]
    Field {
        /// Which hook.
        hook: String,
        /// Which field, and what is wrong with it.
        source: FieldError,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded_and_what_says_nothing_is_absent() {
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

//! A row of the table of harnesses: everything that the rest of the program needs to know about
//! one. No other module uses a client's words, files or variables.

use std::path::{Path, PathBuf};

use engine::{event::SessionId, exchange::Answer, transcript};
use journal::time::Timestamp;

use crate::harness::{
    HookCall, HookEnv, HookError, caps::Caps, installation::Installation, message_socket::MessageSockets,
    native::Native, process::Process, program::Program, round_trip::RoundTrip, session_file::SessionFile,
    status_line::StatusLine,
};

/// Parses the stdin of a client's status line.
pub type ReadStatusLine = fn(&[u8]) -> Result<StatusLine, HookError>;

/// One harness.
#[derive(Debug)]
pub struct Kind {
    /// Its name in commands and API paths, such as `claude` in `aside hook claude`.
    pub word: &'static str,
    /// Its name for users.
    pub title: &'static str,
    /// Its capabilities, and its name as an event source.
    pub caps: Caps,
    /// Its client's program.
    pub program: Program,
    /// Its hooks.
    pub hooks: Hooks,
    /// The files of its client.
    pub files: ClientFiles,
    /// The environment variables of its client.
    pub variables: Variables,
    /// The message sockets of its clients, if they have any.
    pub message_sockets: Option<MessageSockets>,
    /// Reads its transcripts; `None` if they have nothing that probes use.
    pub transcript: Option<&'static transcript::Reader>,
    /// The reports that the client itself makes to its agent.
    pub native: &'static [Native],
    /// Parses the stdin of the client's status line; `None` if it has none.
    pub status_line: Option<ReadStatusLine>,
    /// Its installation.
    pub installation: Installation,
    /// Hooks for testing the delivery to its agent; `None` if its hooks support no subagents.
    pub round_trip: Option<RoundTrip>,
}

/// Parsing and answering of a harness's hooks.
#[derive(Debug)]
pub struct Hooks {
    /// Parses the stdin of a hook, with its time of arrival.
    pub parse: fn(&[u8], &HookEnv, Timestamp) -> Result<HookCall, HookError>,
    /// Writes the stdout of that hook; `None` for no output.
    pub reply: fn(&HookCall, &Answer) -> Option<String>,
    /// The stdin of a hook without effect.
    pub harmless: &'static str,
}

/// The files of a client.
#[derive(Debug)]
pub struct ClientFiles {
    /// The client's folder, in the user's home and in a project; [`Variables::folder`] can replace
    /// the user's.
    pub folder: &'static str,
    /// Its session files, if it writes any.
    pub sessions: Option<SessionFiles>,
}

/// The files in which a client records its state, one per process.
#[derive(Debug)]
pub struct SessionFiles {
    /// The client's folder, which contains the transcript with this path.
    pub folder_of: fn(&str) -> Option<&Path>,
    /// The file of the client with this folder and this process.
    pub path: fn(&Path, u32) -> PathBuf,
    /// Parses that file; `None` if it is not of the process, or invalid.
    pub parse: fn(&[u8], Process) -> Option<SessionFile>,
}

/// The environment variables that a client sets for its child processes, or that its user sets for
/// it.
#[derive(Debug)]
pub struct Variables {
    /// Those that a hook forwards: the header for each, of [`hook::harness::header`], and its
    /// name.
    pub forwarded: &'static [(&'static str, &'static str)],
    /// The one with the client's own folder, if any.
    pub folder: Option<&'static str>,
    /// Prefixes of all variables of the client; they may contain its secrets.
    pub prefixes: &'static [&'static str],
}

impl Variables {
    /// The variable that a hook forwards as this header.
    pub fn forwarded_as(&self, header: &str) -> Option<&'static str> {
        self.forwarded.iter().find(|(own, _)| *own == header).map(|(_, variable)| *variable)
    }
}

impl Kind {
    /// The client's folder, which contains the transcript with this path.
    pub fn client_folder<'p>(&self, transcript: &'p str) -> Option<&'p Path> {
        (self.files.sessions.as_ref()?.folder_of)(transcript)
    }

    /// Whether a client of this harness calls `session` by `id`.
    pub fn calls(&self, session: &SessionId, id: &str) -> bool {
        session.as_str() == id || session.own(self.caps.name) == Some(id)
    }
}

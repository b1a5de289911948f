//! The table of harnesses: what of each of them the rest of the program asks for. No other module knows a client's words, files or
//! variables.

use std::path::{Path, PathBuf};

use crate::{
    event::SessionId,
    exchange::Answer,
    harness::{
        Headers, HookCall, HookEnv, HookError, caps::Caps, installation::Installation,
        message_socket::MessageSocket, native::Native, process::Process, program::Program,
        round_trip::RoundTrip, session_file::SessionFile, status_line::StatusLine,
    },
    time::Timestamp,
    transcript,
};

/// Reads what a client writes to the stdin of its status line.
pub type ReadStatusLine = fn(&[u8]) -> Result<StatusLine, HookError>;

/// One harness.
#[derive(Debug)]
pub struct Kind {
    /// What it is called in a command and in a path of the API, such as `claude` in `aside hook claude`.
    pub word: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// What it can take, and its name.
    pub caps: Caps,
    /// Its client's program.
    pub program: Program,
    /// Its hooks.
    pub hooks: Hooks,
    /// What its client keeps in files.
    pub files: ClientFiles,
    /// Where its client says who it is to what it starts.
    pub variables: Variables,
    /// Reads from the headers of a hook call where the client of a session takes messages; `None` where it takes none.
    pub message_socket: Option<fn(&SessionId, Headers<'_>) -> Option<MessageSocket>>,
    /// Reads its transcripts; `None` where it writes none that say what probes ask.
    pub transcript: Option<&'static transcript::Reader>,
    /// What the client says by itself.
    pub native: &'static [Native],
    /// Reads what the client writes to the stdin of its status line; `None` where it has none.
    pub status_line: Option<ReadStatusLine>,
    /// What is installed in it.
    pub installation: Installation,
    /// How the way to its agent is tried; `None` where its hooks speak for no subagent.
    pub round_trip: Option<RoundTrip>,
}

/// What a harness says at its hooks, and what it is answered.
#[derive(Debug)]
pub struct Hooks {
    /// Reads the stdin of a hook that came at a time.
    pub parse: fn(&[u8], &HookEnv, Timestamp) -> Result<HookCall, HookError>,
    /// Writes the stdout of that hook; `None` for silence.
    pub reply: fn(&HookCall, &Answer) -> Option<String>,
    /// The stdin of a hook that nothing follows.
    pub harmless: &'static str,
}

/// What a client keeps in files.
#[derive(Debug)]
pub struct ClientFiles {
    /// The client's folder, in the user's own and in a project's; [`Variables::folder`] names another one in place of the user's.
    pub folder: &'static str,
    /// Those in which it says which session it is in, if it writes such files.
    pub sessions: Option<SessionFiles>,
}

/// The files in which a client says where it stands, one a process.
#[derive(Debug)]
pub struct SessionFiles {
    /// The client's folder, in which the transcript with this path stands.
    pub folder_of: fn(&str) -> Option<&Path>,
    /// Where the client with this folder and this process writes its file.
    pub path: fn(&Path, u32) -> PathBuf,
    /// Reads that file; `None` when it is not one of the process, or cannot be read.
    pub parse: fn(&[u8], Process) -> Option<SessionFile>,
}

/// The environment variables that a client sets for what it starts, or that its user sets for it.
#[derive(Debug)]
pub struct Variables {
    /// Those that a hook forwards: the header that one becomes, of [`crate::harness::header`], and its name.
    pub forwarded: &'static [(&'static str, &'static str)],
    /// The one that names the client's own folder, if there is one.
    pub folder: Option<&'static str>,
    /// What the names of all variables of the client begin with; they may hold its secrets.
    pub prefixes: &'static [&'static str],
}

impl Variables {
    /// The variable that a hook forwards as this header.
    pub fn forwarded_as(&self, header: &str) -> Option<&'static str> {
        self.forwarded.iter().find(|(own, _)| *own == header).map(|(_, variable)| *variable)
    }
}

/// All harnesses.
pub const KINDS: [&Kind; 1] = [&super::claude::KIND];

impl Kind {
    /// The harness of this word.
    pub fn of_word(word: &str) -> Option<&'static Self> {
        KINDS.into_iter().find(|kind| kind.word == word)
    }

    /// The harness of this name, as a session's harness has it.
    pub fn of_name(name: &str) -> Option<&'static Self> {
        KINDS.into_iter().find(|kind| kind.caps.name == name)
    }

    /// The words of all harnesses.
    pub fn words() -> impl Iterator<Item = &'static str> {
        KINDS.into_iter().map(|kind| kind.word)
    }

    /// What a hook of the harness of this word forwards; nothing of one that is not known.
    pub fn forwarded(word: &str) -> &'static [(&'static str, &'static str)] {
        Self::of_word(word).map_or(&[], |kind| kind.variables.forwarded)
    }

    /// The client's folder, in which the transcript with this path stands.
    pub fn client_folder<'p>(&self, transcript: &'p str) -> Option<&'p Path> {
        (self.files.sessions.as_ref()?.folder_of)(transcript)
    }

    /// Whether `session` is the one that a client of this harness calls `id`.
    pub fn calls(&self, session: &SessionId, id: &str) -> bool {
        session.as_str() == id || session.own(self.caps.name) == Some(id)
    }
}

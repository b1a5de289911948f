//! A row of the table of harnesses: everything that the rest of the program needs to know about
//! one. No other module uses a client's words, files or variables.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use engine::{
    event::SessionId,
    exchange::{Answer, Budget, Conversations, Format},
    transcript,
    transcript::Gauges,
};
use journal::time::Timestamp;

use crate::harness::{
    HookCall, HookEnv, HookError,
    installation::{ExtensionFolder, Installation, Program, Version},
    process::Process,
    wake::MessageSockets,
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
    /// Its connection to the daemon.
    pub form: Form,
    /// Reads its transcripts; `None` if they have nothing that probes use.
    pub transcript: Option<&'static transcript::Reader>,
    /// The reports that the client itself makes to its agent.
    pub native: &'static [Native],
}

/// The connection of a harness to the daemon.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// The client runs commands of aside.
    Hooks(&'static Hooks),
    /// The client loads code of aside, in its own language, which calls the API.
    Extension(&'static ApiExtension),
    /// A command of aside runs the agent and makes its exchanges: `aside WORD -- AGENT`. Nothing is
    /// installed in a client.
    Proxy,
}

/// A client in which aside is installed.
#[derive(Debug)]
pub struct Client {
    /// Its program.
    pub program: Program,
    /// Its files.
    pub files: ClientFiles,
    /// Its environment variables.
    pub variables: Variables,
}

/// An extension that calls the API.
#[derive(Debug)]
pub struct ApiExtension {
    /// The client that loads it.
    pub client: Client,
    /// Its description for users.
    pub what: &'static str,
    /// Its files.
    pub folder: ExtensionFolder,
}

/// A harness that has hooks.
#[derive(Debug, Clone, Copy)]
pub struct Hooked {
    /// The harness.
    pub kind: &'static Kind,
    /// Its hooks.
    pub hooks: &'static Hooks,
}

/// A harness's hooks: their parsing, their answering, and what only a client with hooks has.
#[derive(Debug)]
pub struct Hooks {
    /// The client that runs them.
    pub client: Client,
    /// Parses the stdin of a hook, with its time of arrival.
    pub parse: fn(&[u8], &HookEnv, Timestamp) -> Result<HookCall, HookError>,
    /// Writes the stdout of that hook; `None` for no output.
    pub reply: fn(&HookCall, &Answer) -> Option<String>,
    /// The stdin of a hook without effect.
    pub harmless: &'static str,
    /// Hooks for testing the delivery to its agent; `None` if its hooks support no subagents.
    pub round_trip: Option<RoundTrip>,
    /// The message sockets of the clients, if they have any; hooks report their addresses.
    pub message_sockets: Option<MessageSockets>,
    /// Parses the stdin of the client's status line; `None` if it has none.
    pub status_line: Option<ReadStatusLine>,
    /// The installation in the client.
    pub installation: Installation,
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
    /// Those that a hook forwards, or that name the session: the header for each, of
    /// [`hook::harness::header`], and its name.
    pub forwarded: &'static [(&'static str, &'static str)],
    /// The one with the client's own folder, if any.
    pub folder: Option<&'static str>,
    /// Prefixes of all variables of the client; they may contain its secrets.
    pub prefixes: &'static [&'static str],
}

impl Variables {
    /// The variable that a hook forwards as this header.
    fn forwarded_as(&self, header: &str) -> Option<&'static str> {
        self.forwarded.iter().find(|(own, _)| *own == header).map(|(_, variable)| *variable)
    }
}

impl Kind {
    /// The client in which aside is installed; `None` for a proxy.
    pub const fn client(&self) -> Option<&'static Client> {
        match self.form {
            Form::Hooks(hooks) => Some(&hooks.client),
            Form::Extension(extension) => Some(&extension.client),
            Form::Proxy => None,
        }
    }

    /// The hooks, if the harness is of that form.
    pub const fn hooks(&self) -> Option<&'static Hooks> {
        match self.form {
            Form::Hooks(hooks) => Some(hooks),
            Form::Extension(_) | Form::Proxy => None,
        }
    }

    /// The harness with its hooks, if it is of that form.
    pub const fn hooked(&'static self) -> Option<Hooked> {
        match self.hooks() {
            Some(hooks) => Some(Hooked { kind: self, hooks }),
            None => None,
        }
    }

    /// The files of the extension that the client loads, if it loads one.
    pub fn extension(&self) -> Option<&'static ExtensionFolder> {
        match self.form {
            Form::Hooks(hooks) => hooks.installation.extension.as_ref().map(|extension| &extension.folder),
            Form::Extension(extension) => Some(&extension.folder),
            Form::Proxy => None,
        }
    }

    /// The reason why a harness of its form has no hooks, as a sentence.
    pub fn without_hooks(&self) -> String {
        let Self { word, title, .. } = self;
        match self.form {
            Form::Hooks(_) => format!("{title} has hooks: `aside hook {word}`"),
            Form::Extension(_) => format!("{title} has no hooks: its extension calls the API itself"),
            Form::Proxy => format!("{title} has no hooks: `{}` makes the exchanges", self.set_up()),
        }
    }

    /// The command by which a user connects the harness.
    pub fn set_up(&self) -> String {
        match self.form {
            Form::Hooks(_) | Form::Extension(_) => format!("aside install {}", self.caps.name),
            Form::Proxy => format!("aside {} -- AGENT", self.word),
        }
    }

    /// The session files of the client, if it writes any.
    pub fn session_files(&self) -> Option<&SessionFiles> {
        self.client()?.files.sessions.as_ref()
    }

    /// The client's variable that a hook forwards as this header.
    pub fn forwarded_as(&self, header: &str) -> Option<&'static str> {
        self.client()?.variables.forwarded_as(header)
    }

    /// The client's folder, which contains the transcript with this path.
    pub fn client_folder<'p>(&self, transcript: &'p str) -> Option<&'p Path> {
        (self.session_files()?.folder_of)(transcript)
    }

    /// Whether a client of this harness calls `session` by `id`.
    pub fn calls(&self, session: &SessionId, id: &str) -> bool {
        session.as_str() == id || session.own(self.caps.name) == Some(id)
    }
}

/// Capabilities of one harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Its name, which is also the source of the events it reports.
    pub name: &'static str,
    /// Most characters of one injection.
    pub chars_max: u32,
    /// The format of its injections.
    pub format: Format,
    /// How many concurrent conversations one of its processes can have.
    pub conversations: Conversations,
}

impl Caps {
    /// The limits in the form of an exchange's budget.
    pub const fn budget(&self) -> Budget {
        Budget { max_notifications: None, max_tokens: None, max_chars: Some(self.chars_max) }
    }
}

/// One kind of report that a client makes itself.
#[derive(Debug)]
pub struct Native {
    /// The subject of the report, as in the harness's document.
    pub what: &'static str,
    /// When and where the client reports it.
    pub says: &'static str,
    /// The oldest client that was seen to report it; `None` when every tried client does.
    pub since: Option<Version>,
    /// The evidence of a report.
    pub evidence: Evidence,
}

/// Where a client's report is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// In the transcript, as the announcement of a file: [`engine::transcript::Reader::changed`].
    Announcement,
    /// In the transcript, as the report of a command's end: [`engine::transcript::Reader::ended`].
    End,
    /// In the transcript, as a report about an MCP server: [`engine::transcript::Reader::servers`].
    Server,
    /// In the result of the call: [`engine::call::Call::said_changed`].
    Result,
}

impl fmt::Display for Native {
    /// When and where the client reports it, with the version.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since {
            Some(since) => write!(f, "seen from {since} on: {}", self.says),
            None => f.write_str(self.says),
        }
    }
}

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

/// Largest file that is read, in bytes; a client writes some hundred.
pub const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFile {
    /// The client's own id of its current session.
    pub session_id: String,
    /// The session's working folder.
    pub cwd: Option<String>,
    /// Whether it is certain that no turn is in progress.
    pub is_idle: bool,
}

/// A client's input for its status line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusLine {
    /// The client's own id of the session.
    pub session: SessionId,
    /// What it states about its limits.
    pub gauges: Gauges,
}

#[cfg(test)]
mod tests {
    use hook::harness::header;

    use crate::harness::{claude, trial};

    #[test]
    fn a_row_has_only_parts_of_its_form() {
        for (kind, has_hooks, set_up, why) in [
            (&claude::KIND, true, "aside install claude-code", "Claude Code has hooks: `aside hook claude`"),
            (
                &trial::EXTENSION,
                false,
                "aside install trial-client",
                "Trial Client has no hooks: its extension calls the API itself",
            ),
            (
                &trial::PROXY,
                false,
                "aside relay -- AGENT",
                "Trial Proxy has no hooks: `aside relay -- AGENT` makes the exchanges",
            ),
        ] {
            assert_eq!(
                (kind.hooked().is_some(), kind.set_up(), kind.without_hooks()),
                (has_hooks, set_up.to_owned(), why.to_owned())
            );
        }
        assert_eq!(trial::EXTENSION.forwarded_as(header::SESSION), Some("TRIAL_SESSION"));
        assert!(trial::EXTENSION.extension().is_some());
        assert!(trial::PROXY.client().is_none() && trial::PROXY.extension().is_none());
    }
}

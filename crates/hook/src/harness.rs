//! The harnesses whose hooks are forwarded.

/// The headers of the requests of hooks.
pub mod header {
    /// The harness's process.
    pub const PID: &str = "aside-pid";
    /// How the harness was started.
    pub const ENTRYPOINT: &str = "aside-entrypoint";
    /// The folder the harness was started in.
    pub const PROJECT: &str = "aside-project";
    /// The session.
    pub const SESSION: &str = "aside-session";
    /// The working folder of the requesting process; of `aside mcp` alone.
    pub const CWD: &str = "aside-cwd";
    /// The client's message socket.
    pub const MESSAGE_SOCKET: &str = "aside-message-socket";
    /// The token that the socket requires.
    pub const MESSAGE_TOKEN: &str = "aside-message-token";
}

/// The hooks of one harness.
#[derive(Debug, Clone, Copy)]
pub struct Harness {
    /// Its name in commands and API paths, such as `claude` in `aside hook claude`.
    pub word: &'static str,
    /// The environment variables that a hook forwards: the header for each, of [`header`], and its
    /// name.
    pub forwarded: &'static [(&'static str, &'static str)],
}

/// Claude Code. Source of its variables: the environment of its hooks, 2.1.332.
pub const CLAUDE: Harness = Harness {
    word: "claude",
    forwarded: &[
        (header::PID, "CLAUDE_PID"),
        (header::ENTRYPOINT, "CLAUDE_CODE_ENTRYPOINT"),
        (header::PROJECT, "CLAUDE_PROJECT_DIR"),
        (header::SESSION, "CLAUDE_CODE_SESSION_ID"),
        (header::MESSAGE_SOCKET, "CLAUDE_CODE_MESSAGING_SOCKET"),
        (header::MESSAGE_TOKEN, "CLAUDE_CODE_MESSAGING_TOKEN"),
    ],
};

/// All harnesses with hooks.
pub const HARNESSES: [Harness; 1] = [CLAUDE];

impl Harness {
    /// The harness of this name.
    pub fn find(word: &str) -> Option<Self> {
        HARNESSES.into_iter().find(|harness| harness.word == word)
    }
}

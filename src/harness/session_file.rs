//! The state that a running client records in a file.

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

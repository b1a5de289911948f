//! What a running client says of itself in a file of its own.

/// Where a client stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFile {
    /// The client's own id of the session it is in.
    pub session_id: String,
    /// The folder that session works in.
    pub cwd: Option<String>,
    /// Whether no turn is under way, for certain.
    pub is_idle: bool,
}

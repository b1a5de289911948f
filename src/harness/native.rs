//! What a client says to its agent by itself, so that aside leaves it to the client.
//!
//! Only what a decision asks for is a row. Whether the client has said it is found by evidence and not by version: hooks name no
//! version, and what a newer client stops to say is missed by what is not there.

use std::fmt;

use crate::harness::program::Version;

/// One thing that a client says by itself.
#[derive(Debug)]
pub struct Native {
    /// What it is about, as the harness's document has it.
    pub what: &'static str,
    /// When and where the client says it.
    pub says: &'static str,
    /// The oldest client that was seen to say it; `None` when every one that was tried does.
    pub since: Option<Version>,
    /// How it is known that the client has said it.
    pub evidence: Evidence,
}

/// Where it shows that a client has said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// In the transcript, as the announcement of a file: [`crate::transcript::Reader::changed`].
    Announcement,
    /// In the transcript, as the report of an end: [`crate::transcript::Reader::ended`].
    End,
    /// In the transcript, as what it says of an MCP server: [`crate::transcript::Reader::servers`].
    Server,
    /// In the result of the call: [`crate::call::Call::said_changed`].
    Result,
}

impl fmt::Display for Native {
    /// When and where the client says it, with the version.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since {
            Some(since) => write!(f, "seen from {since} on: {}", self.says),
            None => f.write_str(self.says),
        }
    }
}

//! Reports that a client itself makes to its agent, so that aside leaves them to the client.
//!
//! There is a row only if a decision depends on it. Evidence, not the version, shows that the
//! client has reported something: hooks have no version, and missing evidence reveals that a newer
//! client has stopped.

use std::fmt;

use crate::harness::program::Version;

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

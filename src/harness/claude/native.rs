//! The capabilities of Claude Code, and the reports that it makes itself to its agent.
//!
//! Source: measured with 2.1.197, 2.1.330, 2.1.331 and 2.1.332; `scripts/real-client` tests each
//! row.

use engine::exchange::{Conversations, Format};

use crate::harness::{
    installation::Version,
    kind::{Caps, Evidence, Native},
};

/// Capabilities of Claude Code.
///
/// Source: measured: from 10,000 characters on, the model gets a file name and a preview instead of
/// the text; 500 are reserved.
pub(super) const CAPS: Caps = Caps {
    name: "claude-code",
    chars_max: 9_500,
    format: Format::Xml,
    conversations: Conversations::OnePerProcess,
};

pub(super) const NATIVE: &[Native] = &[
    Native {
        what: "a file that the agent edited, or printed with `cat` or a similar command",
        says: "once in a process, with the request after the tool",
        since: None,
        evidence: Evidence::Announcement,
    },
    Native {
        what: "a file that a command of the agent changed",
        says: "in the tool's result",
        since: Some(Version([2, 1, 330])),
        evidence: Evidence::Result,
    },
    Native {
        what: "a command in the background ended",
        says: "at once, as a separate prompt or with the next request; sometimes lost",
        since: None,
        evidence: Evidence::End,
    },
    Native {
        what: "an MCP server with tools loaded on demand was lost, or is back",
        says: "with the next request, by the names of the tools; not while they stay listed",
        since: None,
        evidence: Evidence::Server,
    },
    Native {
        what: "an MCP server failed at its start",
        says: "with the first request, if it loads tools on demand",
        since: Some(Version([2, 1, 332])),
        evidence: Evidence::Server,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::claude::{calls, transcript::READER};

    /// For each row: the client's text, and the id or name in it.
    const SAMPLES: [(&str, &str); NATIVE.len()] = [
        (
            r#"{"type":"attachment","attachment":{"type":"edited_text_file","filename":"/w/b.txt","snippet":"x"}}"#,
            "/w/b.txt",
        ),
        ("[This command modified 1 file you've previously read: e.txt. Call Read before editing.]", "e.txt"),
        (r#"{"attachment":{"prompt":"<task-notification>\n<task-id>b1x</task-id>"}}"#, "b1x"),
        (
            r#"{"timestamp":"2026-11-25T16:57:10Z","attachment":{"type":"deferred_tools_delta","removedNames":["mcp__depot__x"]}}"#,
            "depot",
        ),
        (
            r#"{"timestamp":"2026-11-25T16:57:10Z","attachment":{"type":"deferred_tools_delta","failedMcpServers":[{"name":"store"}]}}"#,
            "store",
        ),
    ];

    #[test]
    fn each_row_is_known_by_its_evidence_alone() {
        let find = |evidence, said: &str| match evidence {
            Evidence::Announcement => (READER.changed)(said.as_bytes()),
            Evidence::End => (READER.ended)(said.as_bytes()),
            Evidence::Server => {
                (READER.servers)(said.as_bytes()).into_iter().map(|said| said.server).collect()
            }
            Evidence::Result => calls::changed_by_command(said),
        };
        for native in NATIVE {
            for (sample, (said, name)) in NATIVE.iter().zip(SAMPLES) {
                let found = find(native.evidence, said);
                let is_its = native.evidence == sample.evidence;
                let expected = if is_its { vec![name] } else { Vec::new() };
                assert_eq!(found, expected, "{}: {said}", native.what);
            }
        }
    }
}

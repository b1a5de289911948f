//! The state file of a running client: `sessions/PID.json` in its folder.
//!
//! Source: measured with client 2.1.330: `status` is `busy` from a prompt on. It becomes `idle`
//! (`shell` while something runs in the background, such as a monitor) within a second of a turn's
//! end, also if the user interrupted it, which runs no hook.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::harness::{kind::SessionFile, process::Process};

/// The folder of the files, in the client's own.
const FOLDER: &str = "sessions";
/// The folder of transcripts, in the client's own.
const TRANSCRIPTS: &str = "projects";
/// States without a current turn.
const IDLE: [&str; 2] = ["idle", "shell"];

/// The fields that are used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    pid: u32,
    session_id: String,
    cwd: Option<String>,
    #[serde(default)]
    status: String,
    /// Start of the process, as reported by the system.
    proc_start: Option<String>,
}

/// The file of the client with the folder `client` and the process `pid`.
pub(super) fn path(client: &Path, pid: u32) -> PathBuf {
    client.join(FOLDER).join(format!("{pid}.json"))
}

/// Parses the file; `None` if it is not of `process`, or invalid.
pub(super) fn parse(text: &[u8], process: Process) -> Option<SessionFile> {
    let Written { pid, session_id, cwd, status, proc_start } = serde_json::from_slice(text).ok()?;
    let started = proc_start.is_none_or(|start| start == process.started.to_string());
    let is_of_it = pid == process.pid && started && !session_id.is_empty();
    is_of_it.then(|| SessionFile { session_id, cwd, is_idle: IDLE.contains(&status.as_str()) })
}

/// The client's folder, which contains the transcript at `path`.
pub(super) fn client_folder(path: &str) -> Option<&Path> {
    let mut above = Path::new(path).ancestors();
    above.find(|folder| folder.file_name().is_some_and(|name| name == TRANSCRIPTS))?.parent()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: Process = Process { pid: 41, started: 263_480 };

    #[test]
    fn session_file_states_whether_its_process_is_idle() {
        let file = |pid: u32, start: &str, status: &str| {
            let text = format!(
                r#"{{"pid":{pid},"sessionId":"s1","cwd":"/w","procStart":"{start}","version":"2.1.330","status":"{status}"}}"#
            );
            parse(text.as_bytes(), PROCESS)
        };
        for (status, is_idle) in [("idle", true), ("shell", true), ("busy", false), ("waiting", false)] {
            let found = file(41, "263480", status).expect("it is that of the process");
            assert_eq!((found.session_id.as_str(), found.is_idle), ("s1", is_idle), "{status}");
        }
        assert_eq!(file(42, "263480", "idle"), None);
        assert_eq!(file(41, "9", "idle"), None);
        let old = parse(br#"{"pid":41,"sessionId":"s1"}"#, PROCESS).expect("it says less");
        assert!(!old.is_idle);
        assert_eq!(parse(b"{", PROCESS), None);
    }

    #[test]
    fn the_clients_folder_is_where_its_transcripts_are() {
        for (path, expected) in [
            ("/home/u/.claude/projects/-w/s1.jsonl", Some("/home/u/.claude")),
            ("/home/projects/.claude/projects/-w/s1.jsonl", Some("/home/projects/.claude")),
            ("/tmp/s1.jsonl", None),
        ] {
            assert_eq!(client_folder(path), expected.map(Path::new), "{path}");
        }
    }
}

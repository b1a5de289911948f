//! The socket on which a running client takes messages: where it is, and what is written to it.
//!
//! Source: measured with client 2.1.329; clients from 2.1.224 on name the socket in the environment of their hooks.

use std::{fmt, path::PathBuf};

use serde_json::json;

use crate::{
    event::SessionId,
    harness::{caps::CLAUDE_CODE, percent_decode},
};

/// How a client names a run that ends with its last turn.
const ONE_SHOT: &str = "sdk-cli";
/// What stands before the text, as the client introduces a message as one of another agent.
pub(super) const INTRO: &str = "Automated notification of the aside daemon; no person or agent wrote it.";

/// A client's message socket.
#[derive(Clone, PartialEq, Eq)]
pub struct MessageSocket {
    /// Where it is, an absolute path.
    pub path: PathBuf,
    token: Option<String>,
}

impl fmt::Debug for MessageSocket {
    /// Leaves the token out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSocket").field("path", &self.path).finish_non_exhaustive()
    }
}

impl MessageSocket {
    /// The socket that a hook's environment names, from `aside-message-socket`, `aside-message-token`, `aside-session` and
    /// `aside-entrypoint`.
    ///
    /// Errors: none. An environment that a client inherited from another one names that one's session, and then there is none; nor is
    /// there one of use in a run that ends with its last turn, as a message that comes later is lost.
    pub fn from_headers<'h>(session: &SessionId, header: impl Fn(&str) -> Option<&'h str>) -> Option<Self> {
        let text = |name| header(name).map(percent_decode).filter(|text| !text.is_empty());
        text("aside-session").filter(|id| id == session.own(CLAUDE_CODE.name).unwrap_or(session.as_str()))?;
        let path = text("aside-message-socket").map(PathBuf::from).filter(|path| path.is_absolute())?;
        let is_one_shot = text("aside-entrypoint").is_some_and(|entrypoint| entrypoint == ONE_SHOT);
        (!is_one_shot).then(|| Self { path, token: text("aside-message-token") })
    }

    /// What is written to the socket to hand over `text`: lines of JSON.
    pub fn lines(&self, text: &str) -> String {
        let auth = self.token.as_ref().map(|token| json!({ "type": "auth", "token": token }));
        let content = format!("{INTRO}\n\n{text}");
        let message = json!({ "type": "user", "message": { "role": "user", "content": content } });
        auth.into_iter().chain([message]).map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(headers: &[(&str, &'static str)]) -> Option<MessageSocket> {
        let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        MessageSocket::from_headers(&SessionId::new("s1"), header)
    }

    #[test]
    fn a_socket_is_that_of_the_session_and_nothing_shows_its_token() {
        let full = [
            ("aside-session", "s1"),
            ("aside-message-socket", "/run/a%20b.sock"),
            ("aside-message-token", "secret"),
            ("aside-entrypoint", "cli"),
        ];
        let found = socket(&full).expect("a socket");
        assert_eq!(found.path.to_str(), Some("/run/a b.sock"));
        assert!(!format!("{found:?}").contains("secret"));
        assert_eq!(
            found.lines("<notifications>\n</notifications>"),
            "{\"type\":\"auth\",\"token\":\"secret\"}\n{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\
             \"Automated notification of the aside daemon; no person or agent wrote it.\\n\\n<notifications>\\n</notifications>\"}}\n"
        );
        let one_shot = socket(&[
            ("aside-session", "s1"),
            ("aside-message-socket", "/a"),
            ("aside-entrypoint", "sdk-cli"),
        ]);
        assert_eq!(one_shot, None);
        for other in [
            &[("aside-session", "s2"), ("aside-message-socket", "/a")][..],
            &[("aside-message-socket", "/a")],
            &[("aside-session", "s1"), ("aside-message-socket", "a")],
            &[("aside-session", "s1"), ("aside-message-socket", "")],
        ] {
            assert_eq!(socket(other), None, "{other:?}");
        }
    }
}

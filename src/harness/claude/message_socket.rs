//! The client's message socket: its address, and its message format.
//!
//! Source: measured with client 2.1.329; clients from 2.1.224 on name the socket in the environment
//! of their hooks.

use std::path::PathBuf;

use serde_json::json;

use crate::{
    event::SessionId,
    exchange::Injection,
    harness::{Headers, claude::caps::CAPS, header, message_socket::MessageSocket},
};

/// The client's name for a run that ends with its last turn.
const ONE_SHOT: &str = "sdk-cli";
/// Prefix of a message, before the sentence about its content. No person types it, so a prompt with
/// this prefix is a message.
pub(super) const INTRO: &str = "aside (automated notification): ";
/// Precedes the text, because the client presents a message as one of another agent.
const NOBODY: &str = "This comes from the aside daemon; no person or agent wrote it.";

/// The socket in a hook's environment.
///
/// Errors: none. `None` if the environment was inherited from another client, whose session it
/// names, or if the run ends with its last turn, when a later message is lost.
pub(super) fn from_headers(session: &SessionId, value: Headers<'_>) -> Option<MessageSocket> {
    value(header::SESSION).filter(|id| id == session.own(CAPS.name).unwrap_or(session.as_str()))?;
    let path = value(header::MESSAGE_SOCKET).map(PathBuf::from).filter(|path| path.is_absolute())?;
    let is_one_shot = value(header::ENTRYPOINT).is_some_and(|entrypoint| entrypoint == ONE_SHOT);
    (!is_one_shot).then(|| MessageSocket { path, token: value(header::MESSAGE_TOKEN), write })
}

/// Formats an injection as lines of JSON.
fn write(token: Option<&str>, injection: &Injection) -> String {
    let auth = token.map(|token| json!({ "type": "auth", "token": token }));
    let Injection { sentence, text, .. } = injection;
    let content = format!("{INTRO}{sentence}\n\n{NOBODY}\n\n{text}");
    let message = json!({ "type": "user", "message": { "role": "user", "content": content } });
    auth.into_iter().chain([message]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        exchange::{InjectionId, Role},
        harness::header_text,
    };

    fn socket(headers: &[(&str, &str)]) -> Option<MessageSocket> {
        let header = |name: &str| {
            headers.iter().find(|(known, _)| *known == name).and_then(|(_, value)| header_text(value))
        };
        from_headers(&SessionId::new("s1"), &header)
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
        let injection = Injection {
            id: InjectionId::new("i1"),
            text: "<notifications>\n</notifications>".into(),
            sentence: "tool failure (critical): deploy timeout".into(),
            role: Role::User,
            notifications: Vec::new(),
        };
        assert_eq!(
            found.message(&injection),
            "{\"type\":\"auth\",\"token\":\"secret\"}\n{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\
             \"aside (automated notification): tool failure (critical): deploy timeout\\n\\n\
             This comes from the aside daemon; no person or agent wrote it.\\n\\n<notifications>\\n</notifications>\"}}\n"
        );
        let one_shot =
            [("aside-session", "s1"), ("aside-message-socket", "/a"), ("aside-entrypoint", "sdk-cli")];
        for other in [
            &one_shot[..],
            &[("aside-session", "s2"), ("aside-message-socket", "/a")],
            &[("aside-message-socket", "/a")],
            &[("aside-session", "s1"), ("aside-message-socket", "a")],
            &[("aside-session", "s1"), ("aside-message-socket", "")],
        ] {
            assert_eq!(socket(other), None, "{other:?}");
        }
    }
}

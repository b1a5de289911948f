//! The client's message socket: its address, its message format, and when the client holds a
//! message.
//!
//! Source: measured with client 2.1.329; clients from 2.1.224 on name the socket in the environment
//! of their hooks. Measured with 2.1.332: a session in `bypassPermissions` holds the message of a
//! sender that states no permission mode, and drops it at its end.

use std::path::PathBuf;

use engine::event::SessionId;
use hook::harness::header;
use serde_json::{Value, json};

use crate::harness::{
    Headers,
    claude::native::CAPS,
    wake::{Inbound, MessageSocket, MessageSockets},
};

pub(super) const SOCKETS: MessageSockets = MessageSockets {
    find,
    inbound,
    note: "without the plugin's monitor an idle session is woken by the client's message socket; in \
           bypassPermissions the client holds messages, so its next hook delivers",
};

/// The client's name for a run without a terminal. It ends with its last turn, unless its host
/// sends it further prompts.
const WITHOUT_TERMINAL: &str = "sdk-cli";
/// Prefix of a message, before its sentence. No person types it, so a prompt with this prefix is a
/// message.
pub(super) const INTRO: &str = "aside (automated notification): ";
/// The permission mode in which the client holds messages of others.
const HOLDING_MODE: &str = "bypassPermissions";
/// The user's setting about messages of others.
const SETTING: &str = "crossSessionInbound";

/// Whether a session in this permission mode holds messages.
pub(super) fn holds(permission_mode: &str) -> bool {
    permission_mode == HOLDING_MODE
}

/// The user's setting. An unknown value holds messages.
fn inbound(settings: &Value) -> Option<Inbound> {
    let set = settings.get(SETTING)?;
    Some(if set.as_str() == Some("accept") { Inbound::Accepts } else { Inbound::Holds })
}

/// The socket in a hook's environment.
///
/// Errors: none. `None` if the environment was inherited from another client, whose session it
/// names.
fn find(session: &SessionId, value: Headers<'_>) -> Option<MessageSocket> {
    value(header::SESSION).filter(|id| id == session.own(CAPS.name).unwrap_or(session.as_str()))?;
    let path = value(header::MESSAGE_SOCKET).map(PathBuf::from).filter(|path| path.is_absolute())?;
    let may_exit = value(header::ENTRYPOINT).is_some_and(|entrypoint| entrypoint == WITHOUT_TERMINAL);
    Some(MessageSocket { path, token: value(header::MESSAGE_TOKEN), may_exit, write })
}

/// Formats a sentence as lines of JSON.
fn write(token: Option<&str>, sentence: &str) -> String {
    let auth = token.map(|token| json!({ "type": "auth", "token": token }));
    let content = format!("{INTRO}{sentence}");
    let message = json!({ "type": "user", "message": { "role": "user", "content": content } });
    auth.into_iter().chain([message]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::header_text;

    fn socket(headers: &[(&str, &str)]) -> Option<MessageSocket> {
        let header = |name: &str| {
            headers.iter().find(|(known, _)| *known == name).and_then(|(_, value)| header_text(value))
        };
        find(&SessionId::new("s1"), &header)
    }

    #[test]
    fn message_socket_belongs_to_session_and_hides_token() {
        let full = [
            ("aside-session", "s1"),
            ("aside-message-socket", "/run/a%20b.sock"),
            ("aside-message-token", "secret"),
            ("aside-entrypoint", "cli"),
        ];
        let found = socket(&full).expect("a socket");
        assert_eq!((found.path.to_str(), found.may_exit), (Some("/run/a b.sock"), false));
        assert!(!format!("{found:?}").contains("secret"));
        assert_eq!(
            found.message("tool failure (critical): deploy timeout"),
            "{\"type\":\"auth\",\"token\":\"secret\"}\n{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\
             \"aside (automated notification): tool failure (critical): deploy timeout\"}}\n"
        );
        let without_terminal =
            [("aside-session", "s1"), ("aside-message-socket", "/a"), ("aside-entrypoint", "sdk-cli")];
        assert!(socket(&without_terminal).is_some_and(|found| found.may_exit));
        for other in [
            &[("aside-session", "s2"), ("aside-message-socket", "/a")][..],
            &[("aside-message-socket", "/a")],
            &[("aside-session", "s1"), ("aside-message-socket", "a")],
            &[("aside-session", "s1"), ("aside-message-socket", "")],
        ] {
            assert_eq!(socket(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_users_setting_goes_before_the_mode() {
        for (settings, expected) in [
            (json!({}), None),
            (json!({ "crossSessionInbound": "accept" }), Some(Inbound::Accepts)),
            (json!({ "crossSessionInbound": "hold" }), Some(Inbound::Holds)),
            (json!({ "crossSessionInbound": "refuse" }), Some(Inbound::Holds)),
            (json!({ "crossSessionInbound": 1 }), Some(Inbound::Holds)),
        ] {
            assert_eq!(inbound(&settings), expected, "{settings}");
        }
        assert!(holds("bypassPermissions") && !holds("default") && !holds("plan"));
    }
}

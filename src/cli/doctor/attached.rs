//! The current wake routes of open sessions, and problems with their hooks.

use engine::{sorted::SortedMap, words::counted};
use hook::client::Client;
use serde::de::DeserializeOwned;

use super::Check;
use crate::{
    api::wire::{
        harness::{AttachedView, ClientsView, TroubleView},
        views::{SessionList, SessionView},
    },
    cli::{of_harness::with_hooks, terminal::one_line},
};

/// The checks, for a daemon that answers.
pub(super) fn checks(client: &Client) -> Vec<Check> {
    let (Some(sessions), Some(clients)) = (get(client, "/v1/sessions"), get(client, "/v1/clients")) else {
        return vec![Check::warn("sessions", "the daemon does not report them", "aside down && aside up")];
    };
    let SessionList { sessions } = sessions;
    let ClientsView { attached, troubles } = clients;
    let mut checks = vec![Check::ok("sessions", routes(&sessions, &attached))];
    checks.extend(held(&sessions, &attached));
    checks.extend(troubles.iter().map(trouble));
    checks
}

/// A warning about open sessions whose clients keep the daemon's messages from their models.
fn held(sessions: &[SessionView], attached: &[AttachedView]) -> Option<Check> {
    let is_open = |id: &str| sessions.iter().any(|session| session.is_open && session.id == id);
    let held = attached.iter().filter(|attached| attached.is_held && is_open(&attached.session));
    let held: Vec<&str> = held.map(|attached| attached.session.as_str()).collect();
    let (first, others) = held.split_first()?;
    let others = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    let message = format!(
        "{first}{others}: the client holds messages in its permission mode or by its settings, so it is \
         not woken; its next hook delivers"
    );
    let remedy =
        "install the extension, whose follower wakes it, or set its messages of other sessions to accept";
    Some(Check::warn("wake", message, remedy))
}

fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Option<T> {
    let response = client.request("GET", path, &[], &[]).ok().filter(|response| response.status == 200)?;
    serde_json::from_slice(&response.body).ok()
}

/// Number of open conversations, and of those with each wake route.
fn routes(sessions: &[SessionView], attached: &[AttachedView]) -> String {
    let open = sessions.iter().filter(|session| session.is_open && session.harness.parent.is_none());
    let route = |session: &SessionView| {
        let own = attached.iter().find(|attached| attached.session == session.id);
        let own = own.filter(|attached| !attached.is_held);
        own.map_or("hooks alone", |attached| attached.wake_route.as_str())
    };
    let mut counts: SortedMap<&str, usize> = SortedMap::new();
    for session in open {
        *counts.get_or_default(route(session)) += 1;
    }
    if counts.is_empty() {
        return "none is open".to_owned();
    }
    let total: usize = counts.values().sum();
    let parts: Vec<String> =
        counts.iter().map(|(route, count)| format!("{count} by {}", route.replace('_', " "))).collect();
    format!("{total} open, reached: {}", parts.join(", "))
}

fn trouble(trouble: &TroubleView) -> Check {
    let TroubleView { kind, count, last, last_at: _ } = trouble;
    let remedy = match kind.split(' ').next() {
        Some("unknown_harness") => &*format!(
            "the command of a hook is `aside hook {}`: correct the settings that name another",
            with_hooks()
        ),
        Some("left_out") => {
            "hooks are answered without it; correct the value in the client's environment or settings"
        }
        Some(_) | None => {
            "such hooks get no answer: the versions of aside and the client may be incompatible"
        }
    };
    Check::warn(
        "hook input",
        format!("{} ({}): {}", one_line(kind), counted(count, "time"), one_line(last)),
        remedy,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::harness::HarnessView;

    #[test]
    fn sessions_are_counted_by_how_they_are_reached() {
        let session = |id: &str, is_open: bool, parent: Option<&str>| SessionView {
            id: id.to_owned(),
            is_open,
            harness: HarnessView { parent: parent.map(Into::into), ..HarnessView::default() },
            ..SessionView::default()
        };
        let attached = |session: &str, wake_route: &str| AttachedView {
            session: session.to_owned(),
            wake_route: wake_route.to_owned(),
            is_held: false,
        };
        let sessions = [
            session("a", true, None),
            session("b", true, None),
            session("c", true, None),
            session("c/x", true, Some("c")),
            session("d", false, None),
        ];
        let routes_of =
            [attached("a", "follower"), attached("b", "message_socket"), attached("d", "follower")];
        assert_eq!(
            routes(&sessions, &routes_of),
            "3 open, reached: 1 by follower, 1 by hooks alone, 1 by message socket"
        );
        assert_eq!(routes(&[], &routes_of), "none is open");
        assert!(held(&sessions, &routes_of).is_none());
        let held_back = |session| AttachedView { is_held: true, ..attached(session, "message_socket") };
        let routes_of = [held_back("a"), held_back("b"), held_back("d")];
        assert_eq!(routes(&sessions, &routes_of), "3 open, reached: 3 by hooks alone");
        let check = held(&sessions, &routes_of).expect("a warning");
        assert!(check.found.starts_with("a and 1 more: the client holds messages"), "{}", check.found);
    }
}

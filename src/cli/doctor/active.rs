//! Whether what is active works, as the daemon reports it, and sends nothing: templates, sinks,
//! webhooks, the attached clients with the current wake routes of their sessions, and the probes,
//! detectors and sources, whose events subscribers should take.

use std::path::Path;

use engine::{sorted::SortedMap, words::counted};
use hook::client::{Client, HOOK_TIMEOUT_VARIABLE};
use serde::de::DeserializeOwned;

use super::{Check, hooks};
use crate::{
    api::wire::{
        harness::{AttachedView, ClientsView, TroubleView},
        notify::{SinkList, SinkView},
        sources::{LooksView, SlowView, SourceView, SourcesView},
        views::{SenderList, SenderView, SessionList, SessionView},
    },
    cli::{CliError, Context, absolute_folder, harness::with_hooks, sources, status, terminal::one_line},
    config::producers::Producer,
    daemon::causes::with_causes,
    harness::kind::Kind,
};

/// One check per failed template and `where`; none when all is well.
pub(super) fn templates(context: &Context<'_>) -> Vec<Check> {
    const NAME: &str = "templates";
    let check = |found| Check::warn(NAME, found, "fix it, then aside reload; no event was lost");
    match status::failing(context) {
        Ok(lines) => lines.into_values().flatten().map(check).collect(),
        Err(error) => vec![not_answered(NAME, &error)],
    }
}

/// One check per sink; none if the daemon has none.
pub(super) fn sinks(context: &Context<'_>) -> Vec<Check> {
    match context.get("check the sinks", "/v1/sinks") {
        Ok(SinkList { sinks }) => sinks.iter().map(sink).collect(),
        Err(error) => vec![not_answered("sinks", &error)],
    }
}

fn sink(sink: &SinkView) -> Check {
    let name = format!("sink {}", sink.name);
    match &sink.problem {
        None => Check::ok(name, sink.to.clone().unwrap_or_default()),
        // This sink is enabled by default, and a machine without a desktop is not a problem.
        Some(problem) if sink.name == "desktop" => Check::ok(name, format!("not used: {problem}")),
        Some(problem) => {
            let remedy = "fix it, or remove it from `default` in [sinks], then aside reload";
            Check::warn(name, problem.clone(), remedy)
        }
    }
}

/// One check per permitted sender of webhooks.
pub(super) fn webhooks(context: &Context<'_>) -> Vec<Check> {
    match context.get("check the senders of webhooks", "/v1/webhooks") {
        Ok(SenderList { senders, listens_on }) => {
            senders.iter().map(|own| sender(own, listens_on.as_deref())).collect()
        }
        Err(error) => vec![not_answered("webhooks", &error)],
    }
}

fn sender(sender: &SenderView, listens_on: Option<&str>) -> Check {
    let SenderView { name, path, is_signed, problem, workspace: _ } = sender;
    let check = format!("webhook {name}");
    if let Some(problem) = problem {
        let remedy = format!("fix `secret_file` in [webhooks.{name}]; until then its webhooks are refused");
        return Check::fail(check, problem.clone(), remedy);
    }
    let by = if *is_signed { "signed" } else { "with a token of the scope `publish`" };
    match listens_on {
        Some(address) => Check::ok(check, format!("accepted at http://{address}{path}, {by}")),
        None => {
            let found = format!("accepted at {path} of the Unix socket only");
            Check::warn(check, found, "set `listen` in [http], then restart the daemon")
        }
    }
}

fn not_answered(name: &'static str, error: &CliError) -> Check {
    Check::warn(name, format!("failed to {}", with_causes(error)), "aside status shows the error")
}

/// The checks, for a daemon that answers.
pub(super) fn clients(client: &Client) -> Vec<Check> {
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

const SOURCES: &str = "sources";
/// Name of the check that changes a file.
const LOOK: &str = "look";
/// Period of the counts.
const SINCE: &str = "7d";

/// One check per source, and one with a file change that the probes must find.
pub(super) fn producers(kinds: &[&'static Kind], context: &Context<'_>) -> Vec<Check> {
    let view = match sources::read(SINCE, context) {
        Ok(view) => view,
        Err(error) => {
            return vec![Check::warn(
                SOURCES,
                format!("failed to {}", with_causes(&error)),
                "aside status shows the error",
            )];
        }
    };
    let switched =
        view.sources.iter().filter(|source| matches!(&*source.kind, "probe" | "detector" | "source"));
    let mut checks: Vec<Check> = switched.map(|source| source_check(source, context)).collect();
    checks.push(look(kinds, &view, context));
    checks
}

/// Changes a file that an invented subagent has read.
fn look(kinds: &[&'static Kind], view: &SourcesView, context: &Context<'_>) -> Check {
    let looks = sources::looks(view);
    let not_tried = |why: &str| Check::ok(LOOK, format!("not tried: {why}; {looks}"));
    let files = view.sources.iter().find(|source| source.name == "files");
    if files.is_none_or(|files| files.is_on != Some(true) || files.why.is_some()) {
        return not_tried("`files` is off or no subscriber takes its events");
    }
    let Ok(paths) = &context.paths else { return not_tried("no folder is known in which to write a file") };
    let folder = absolute_folder(&paths.state.to_string_lossy());
    let change = |kind: &&'static Kind| hooks::change_a_file(kind, &context.client, Path::new(&folder));
    match kinds.iter().find_map(change) {
        None => not_tried("no hook here supports an artificial subagent"),
        // The counts are of the time before it.
        Some(Ok(())) => {
            late(&view.looks, context).unwrap_or_else(|| Check::ok(LOOK, "a changed file was detected"))
        }
        Some(Err(trouble)) => {
            let remedy = "check the load of the machine and the disk, and the daemon's log";
            Check::warn(LOOK, format!("{trouble}; {looks}"), remedy)
        }
    }
}

/// A warning about the slowest folder in which looks are late.
fn late(looks: &LooksView, context: &Context<'_>) -> Option<Check> {
    let SlowView { folder, count, took_ms } = looks.slow.first()?;
    let others = match looks.slow.len() {
        1 => String::new(),
        more => format!(" (and in {} more folders)", more - 1),
    };
    let folder = context.terminal.folder(folder);
    let found = format!(
        "slow files in {folder}: a look takes {took_ms} ms, so {count} of them were delivered one call late{others}"
    );
    let remedy = format!(
        "work on a local disk, or let hooks wait longer with {HOOK_TIMEOUT_VARIABLE}; a look gets 2/15 of it"
    );
    Some(Check::warn(LOOK, found, remedy))
}

fn source_check(source: &SourceView, context: &Context<'_>) -> Check {
    let name = format!("source {}", source.name);
    let said = match &source.count.last_at {
        Some(at) => format!("last event {}", context.terminal.moment(at)),
        None => "no event in 7 days".to_owned(),
    };
    if let Some(trouble) = source.troubles.first() {
        let more = source.troubles.len() - 1;
        let more = if more > 0 {
            format!(" (and {more} more: aside sources {})", source.name)
        } else {
            String::new()
        };
        let remedy = format!(
            "fix it, or the entry under [[sources.{}]] in aside.toml, then aside reload",
            source.name
        );
        return Check::warn(name, format!("{trouble}{more}"), remedy);
    }
    match (source.is_on, &source.why, sources::note(source, context)) {
        (Some(false), _, Some(why)) if Producer::find(&source.name).is_some_and(|row| row.kind.is_list()) => {
            Check::ok(name, format!("off: {why}"))
        }
        (Some(false), _, Some(why)) => {
            Check::ok(name, format!("off: {why}; to enable it, change that and run aside reload"))
        }
        (_, Some(_), Some(why)) => {
            Check::warn(name, why, "enable the subscriber in its file, then aside reload")
        }
        (_, None, Some(missing)) => Check::ok(name, format!("on; {missing}")),
        (_, _, None) => Check::ok(name, format!("on; {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::harness::HarnessView;
    use crate::cli::tests::context;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn unreadable_status_is_reported_as_a_problem() {
        for (status, found) in [
            (r#"{"subscribers":{"ci":{"enabled":true}},"new":1}"#, None),
            (
                r#"{"subscribers":{"ci":{"failing":[{"file":"a.j2","message":"m"}]}}}"#,
                Some("ci: a.j2 failed"),
            ),
            (r#"{"subscribers":[]}"#, Some("failed to read the status: the daemon's answer has a format")),
            ("{}", Some("failed to read the status: the daemon's answer has a format")),
        ] {
            let daemon = FakeDaemon::answering_paths(&[("/v1/status", status)]);
            let mut out = Vec::new();
            let checks = templates(&context(&daemon, &mut out));
            let said = checks.first().map(|check| &*check.found);
            assert_eq!(said.is_some(), found.is_some(), "{said:?}");
            assert!(said.unwrap_or_default().starts_with(found.unwrap_or_default()), "{said:?}");
        }
    }

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

//! Whether the active templates, sinks and webhooks work, as the daemon reports them. Sends nothing.

use super::Check;
use crate::{
    api::wire::{
        notify::{SinkList, SinkView},
        views::{SenderList, SenderView},
    },
    cli::{CliError, Context, status},
    daemon::causes::with_causes,
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

#[cfg(test)]
mod tests {
    use super::*;
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
}

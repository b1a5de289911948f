//! Whether the permitted webhook senders can send. Sends nothing.

use super::Check;
use crate::{
    api::wire::webhooks::{SenderList, SenderView},
    cli::{Context, parse},
    daemon::causes::with_causes,
};

const DOING: &str = "check the senders of webhooks";

/// One check per permitted sender.
pub(super) fn checks(context: &Context<'_>) -> Vec<Check> {
    let answer =
        context.ask(DOING, "GET", "/v1/webhooks", None).and_then(|body| parse::<SenderList>(DOING, &body));
    match answer {
        Ok(SenderList { senders, listens_on }) => {
            senders.iter().map(|sender| check(sender, listens_on.as_deref())).collect()
        }
        Err(error) => {
            vec![Check::warn(
                "webhooks",
                format!("failed to {}", with_causes(&error)),
                "aside status shows the error",
            )]
        }
    }
}

fn check(sender: &SenderView, listens_on: Option<&str>) -> Check {
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

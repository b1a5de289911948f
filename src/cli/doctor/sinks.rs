//! Whether the sinks can take notices to the user now. Sends nothing.

use super::Check;
use crate::{
    api::wire::notify::{SinkList, SinkView},
    cli::{Context, parse},
    daemon::causes::with_causes,
};

const DOING: &str = "check the sinks";

/// One check per sink; none if the daemon has none.
pub(super) fn checks(context: &Context<'_>) -> Vec<Check> {
    let answer =
        context.ask(DOING, "GET", "/v1/sinks", None).and_then(|body| parse::<SinkList>(DOING, &body));
    match answer {
        Ok(SinkList { sinks }) => sinks.iter().map(check).collect(),
        Err(error) => {
            vec![Check::warn(
                "sinks",
                format!("failed to {}", with_causes(&error)),
                "aside status shows the error",
            )]
        }
    }
}

fn check(sink: &SinkView) -> Check {
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

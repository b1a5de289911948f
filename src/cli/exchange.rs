//! `aside exchange`: one manual exchange, for harnesses that can run a command and for experiments.

use engine::{exchange::Format, notification::InjectionPoint};
use hook::client::percent_encode;
use serde_json::{Value, json};

use super::{CliError, Context, ids, parse, workspace_or_current};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The conversation, which the first exchange opens: its whole id, or `b1c2@shop` as in `aside
    /// sessions`
    session: String,
    /// The agent's point: turn_start, before_tool, after_tool, turn_end or immediate
    point: InjectionPoint,
    /// Id of the message that will carry the text; a repeated one gets the same text [default: a
    /// new one]
    #[arg(long, value_name = "ID")]
    carrier: Option<String>,
    /// The harness's name of the turn
    #[arg(long, value_name = "ID")]
    turn: Option<String>,
    /// The harness's name of the step: another one each time the model has answered
    #[arg(long, value_name = "ID")]
    step: Option<String>,
    /// The tool in question
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// The session's working folder [default: the current one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// The harness
    #[arg(long, value_name = "NAME")]
    harness: Option<String>,
    /// Format of the text: xml, markdown, toon, json or line [default: as configured]
    #[arg(long)]
    format: Option<Format>,
    /// An injection that has arrived; may be given more than once
    #[arg(long, value_name = "ID")]
    ack: Vec<String>,
    /// Print the daemon's whole answer as JSON, even when nothing is released
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "exchange";
    let session = ids::addressee(&args.session, context)?;
    let path = format!("/v1/sessions/{}/exchange", percent_encode(&session));
    let body = context.ask(doing, "POST", &path, Some(&request(args)))?;
    if body.is_empty() {
        return context.print(if args.json { "{}\n" } else { "" });
    }
    let answer: Value = parse(doing, &body)?;
    if args.json {
        return context.print(&format!("{answer}\n"));
    }
    match answer.get("text").and_then(Value::as_str) {
        Some(text) => context.print(&format!("{}\n", text.trim_end_matches('\n'))),
        None => Ok(()),
    }
}

/// The request's body, without absent arguments.
fn request(args: &Args) -> Value {
    let workspace = workspace_or_current(args.workspace.as_deref());
    let new_carrier = || format!("cli-{}", uuid::Uuid::now_v7());
    let harness =
        object([("name", args.harness.clone().map(Value::from)), ("workspace", workspace.map(Value::from))]);
    object([
        ("point", Some(json!(args.point.as_str()))),
        ("carrier", Some(json!(args.carrier.clone().unwrap_or_else(new_carrier)))),
        ("turn", args.turn.clone().map(Value::from)),
        ("step", args.step.clone().map(Value::from)),
        ("harness", Some(harness)),
        ("tool", args.tool.clone().map(Value::from)),
        ("ack", (!args.ack.is_empty()).then(|| json!(args.ack))),
        ("format", args.format.map(|format| json!(format.as_str()))),
    ])
}

fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::{bodies, run_against};
    use hook::client::fake::FakeDaemon;

    #[test]
    fn exchange_prints_text_or_full_json_answer() {
        let answer = r#"{"injection":"i1","text":"tool_fail: grep\n","pending":0}"#;
        let daemon = FakeDaemon::answering_json(200, answer);
        assert_eq!(
            run_against(&daemon, &["exchange", "s1", "after_tool"]).as_deref(),
            Ok("tool_fail: grep\n")
        );
        let whole = run_against(&daemon, &["exchange", "s1", "after_tool", "--json"]);
        assert_eq!(whole, Ok(format!("{answer}\n")));
    }

    #[test]
    fn exchange_without_release_prints_no_text() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 204 No Content\r\n\r\n"]);
        assert_eq!(run_against(&daemon, &["exchange", "s1", "turn_end"]).as_deref(), Ok(""));
        assert_eq!(run_against(&daemon, &["exchange", "s1", "turn_end", "--json"]).as_deref(), Ok("{}\n"));
        let pending = FakeDaemon::answering_json(200, r#"{"pending":3,"check_before_tool":false}"#);
        assert_eq!(run_against(&pending, &["exchange", "s1", "turn_end"]).as_deref(), Ok(""));
    }

    #[test]
    fn arguments_become_the_documented_request() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 204 No Content\r\n\r\n"]);
        let args = [
            "exchange",
            "s1/a b",
            "after_tool",
            "--carrier",
            "c1",
            "--turn",
            "t1",
            "--step",
            "3",
            "--tool",
            "Bash",
            "--workspace",
            "/w",
            "--harness",
            "loop",
            "--format",
            "toon",
            "--ack",
            "i1",
            "--ack",
            "i2",
        ];
        run_against(&daemon, &args).expect("success");
        assert!(daemon.requests()[0].starts_with("POST /v1/sessions/s1%2Fa%20b/exchange HTTP/1.1\r\n"));
        assert_eq!(
            bodies(&daemon),
            [
                json!({ "point": "after_tool", "carrier": "c1", "turn": "t1", "step": "3", "harness": { "name": "loop", "workspace": "/w" },
                "tool": "Bash", "ack": ["i1", "i2"], "format": "toon" })
            ]
        );
    }

    #[test]
    fn exchange_defaults_to_new_carrier_and_current_folder() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 204 No Content\r\n\r\n"]);
        run_against(&daemon, &["exchange", "s1", "turn_start"]).expect("success");
        run_against(&daemon, &["exchange", "s1", "turn_start"]).expect("success");
        let [first, second] = bodies(&daemon).try_into().expect("two requests");
        assert_ne!(first["carrier"], second["carrier"]);
        assert_eq!(first["harness"]["workspace"].as_str(), workspace_or_current(None).as_deref());
    }

    #[test]
    fn unknown_point_or_format_error_lists_valid_values() {
        let daemon = FakeDaemon::silent();
        let error = run_against(&daemon, &["exchange", "s1", "midway"]).expect_err("no point");
        assert!(error.contains("`midway` is not one of immediate, turn_start"), "{error}");
        let error =
            run_against(&daemon, &["exchange", "s1", "turn_end", "--format", "yaml"]).expect_err("no format");
        assert!(error.contains("use one of xml, markdown, toon, json, line"), "{error}");
    }
}

//! `aside region`: what is true for a session now, as its prompt would have it.

use clap::builder::PossibleValuesParser;
use engine::exchange::Format;
use hook::client::percent_encode;
use serde_json::Value;

use super::{
    CliError, Context, complain,
    context::with_query,
    ids, parse,
    sessions::{self, Sessions},
};

const DOING: &str = "show the region";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session, as in `aside sessions` [default: the open one that was active last]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Format of the text [default: xml]
    #[arg(long, value_parser = PossibleValuesParser::new(texts()))]
    format: Option<String>,
    /// The most tokens of the text, 50 to 4000 [default: 300]
    #[arg(long, value_name = "COUNT")]
    max_tokens: Option<u32>,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

fn texts() -> Vec<&'static str> {
    Format::texts().into_iter().map(Format::as_str).collect()
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let session = match args.session.as_deref() {
        Some(text) => ids::session(text, context)?,
        None => last_active(context)?,
    };
    let path = format!("/v1/sessions/{}/region", percent_encode(&session));
    let max_tokens = args.max_tokens.map(|tokens| tokens.to_string());
    let parameters = [("format", args.format.as_deref()), ("max_tokens", max_tokens.as_deref())];
    let body = context.ask(DOING, "GET", &with_query(&path, &parameters), None)?;
    if args.json {
        return context.print_json(DOING, &body);
    }
    let answer: Value = parse(DOING, &body)?;
    match answer.get("text").and_then(Value::as_str).map(str::trim_end) {
        None | Some("") => {
            complain(&format!("the region of {session} is empty: nothing holds there"));
            Ok(())
        }
        Some(text) => context.print(&format!("{text}\n")),
    }
}

fn last_active(context: &Context<'_>) -> Result<String, CliError> {
    let list = Sessions::read(DOING, &context.ask(DOING, "GET", sessions::PATH, None)?)?;
    let open = list.last_active().map(str::to_owned);
    open.ok_or_else(|| CliError::Usage("no session is open; aside sessions lists all".to_owned()))
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn region_is_printed_as_text_or_json() {
        let answer = r#"{"format":"toon","text":"files[1]: a","tokens":5,"shown":1,"left_out":0}"#;
        let listed = r#"{"sessions":[{"id":"s0","is_open":false},{"id":"s 1","is_open":true}]}"#;
        let path = "/v1/sessions/s%201/region?format=toon&max_tokens=80";
        let daemon = FakeDaemon::answering_paths(&[("/v1/sessions", listed), (path, answer)]);
        let args = ["region", "--format", "toon", "--max-tokens", "80"];
        assert_eq!(run_against(&daemon, &args).as_deref(), Ok("files[1]: a\n"));
        let whole = run_against(&daemon, &[&args[..], &["--json"]].concat());
        assert_eq!(whole, Ok(format!("{answer}\n")));
    }

    #[test]
    fn region_needs_a_session_and_a_text_format() {
        let daemon = FakeDaemon::answering_json(200, r#"{"sessions":[{"id":"s0","is_open":false}]}"#);
        let error = run_against(&daemon, &["region"]).expect_err("no open session");
        assert!(error.contains("no session is open"), "{error}");
        let error = run_against(&daemon, &["region", "--format", "synthetic_tool"]).expect_err("no text");
        assert!(error.contains("[possible values: xml, xml_each, markdown, toon"), "{error}");
    }
}

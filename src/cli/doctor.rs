//! `aside doctor`: checks every step between an event and the agent, and names a remedy for each
//! problem.
//!
//! It changes nothing that others see: its events are addressed to a session of its own, which it
//! closes again.

mod active;
mod check;
mod client;
mod daemon;
mod hooks;
mod mcp;

use std::{cmp::Reverse, process::ExitCode};

use serde_json::{Value, json};

use super::{CliError, Context, harness::harness, terminal::Terminal};
use crate::harness::{kind::Kind, table::KINDS};
use check::{Check, Verdict};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The harness whose hooks are checked [default: those in which aside is installed]
    #[arg(value_parser = harness(|kind| kind.caps.name))]
    harness: Option<&'static Kind>,
    /// List what is fine, too
    #[arg(long)]
    verbose: bool,
    /// Print all checks as JSON
    #[arg(long)]
    json: bool,
}

/// Makes all checks; returns 1 if one of them failed.
pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<ExitCode, CliError> {
    if args.json {
        context.terminal.moments.zone = None;
    }
    let checks = checks(args.harness, context);
    let has_failed = checks.iter().any(|check| check.verdict == Verdict::Fail);
    let text = if args.json {
        let list: Vec<Value> = checks.iter().map(Check::json).collect();
        format!("{}\n", json!({ "ok": !has_failed, "checks": list }))
    } else {
        shown(checks, args.verbose, &context.terminal)
    };
    context.print(&text)?;
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The checks as text: problems first, and what to do in the last line.
fn shown(mut checks: Vec<Check>, verbose: bool, terminal: &Terminal) -> String {
    let summary = check::summary(&checks);
    if !verbose {
        checks.retain(|check| check.verdict != Verdict::Ok);
    }
    checks.sort_by_key(|check| Reverse(check.verdict));
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let lines: String = checks.iter().map(|check| check.line(width, terminal)).collect();
    let gap = if lines.is_empty() { "" } else { "\n" };
    let more = if verbose { "" } else { "; all checks: aside doctor --verbose" };
    format!("{lines}{gap}{}\n", terminal.wrap(&format!("{summary}{more}"), 0, 2))
}

/// The harnesses to check: the given one, else those in which aside is installed.
fn looked_at(named: Option<&'static Kind>) -> Vec<&'static Kind> {
    match named {
        Some(kind) => vec![kind],
        None => KINDS.into_iter().filter(|kind| client::may_be_installed(kind)).collect(),
    }
}

fn checks(named: Option<&'static Kind>, context: &Context<'_>) -> Vec<Check> {
    let mut kinds = looked_at(named);
    let mut checks = vec![hooks::program()];
    checks.extend(daemon::checks(context));
    let is_up = checks.iter().all(|check| check.name != daemon::NAME || check.verdict != Verdict::Fail);
    checks.extend(kinds.iter().flat_map(|kind| client::checks(kind)));
    if kinds.is_empty() {
        // A loop of one's own needs no client, so this is no failure.
        checks.push(client::nowhere());
        // The hooks work nevertheless.
        kinds = KINDS.to_vec();
    }
    if is_up {
        checks.extend(active::clients(&context.client));
        checks.extend(active::templates(context));
        checks.extend(active::producers(&kinds, context));
        checks.extend(active::sinks(context));
        checks.extend(active::webhooks(context));
        checks.push(mcp::check(&kinds, context));
        checks.extend(
            kinds
                .iter()
                .find_map(|kind| kind.hooked())
                .map(|hooked| hooks::time(hooked, context.client.socket())),
        );
        checks.extend(kinds.iter().map(|kind| hooks::round_trip(kind, &context.client)));
    } else {
        let remedy = "aside up, then aside doctor again";
        checks.push(Check::fail(hooks::ROUND_TRIP, "not tried: no daemon runs", remedy));
    }
    checks
}

//! `aside doctor`: checks every step between an event and the agent, and names a remedy for each
//! problem.
//!
//! It changes nothing that others see: its events are addressed to a session of its own, which it
//! closes again.

mod attached;
mod binary;
mod client;
mod daemon;
mod mcp;
mod round_trip;
mod rules;
mod sinks;
mod sources;
mod webhooks;

use std::{borrow::Cow, process::ExitCode};

use serde_json::{Value, json};

use super::{
    CliError, Context,
    of_harness::harness,
    terminal::{Terminal, Tone, one_line},
};
use crate::harness::kind::{KINDS, Kind};
pub(super) use round_trip::{SOURCE, is_probe};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The harness whose hooks are checked [default: those in which aside is installed]
    #[arg(value_parser = harness(|kind| kind.caps.name))]
    harness: Option<&'static Kind>,
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

/// Width of the longest verdict.
const VERDICT_WIDTH: usize = 4;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    /// Works, but not at its best.
    Warn,
    /// Prevents notifications from reaching their agent.
    Fail,
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    name: Cow<'static, str>,
    verdict: Verdict,
    /// The finding.
    found: String,
    /// The remedy, unless all is well.
    remedy: Option<String>,
}

impl Check {
    fn ok(name: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    fn warn(name: impl Into<Cow<'static, str>>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn fail(name: impl Into<Cow<'static, str>>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn json(&self) -> Value {
        let Self { name, verdict, found, remedy } = self;
        json!({ "name": name, "verdict": verdict.as_str(), "found": found, "remedy": remedy })
    }

    /// The finding next to a name padded to `width`; wrapped for a terminal, one line for a pipe.
    fn line(&self, width: usize, terminal: &Terminal) -> String {
        let Self { name, verdict, found, remedy } = self;
        let remedy = remedy.as_deref().map(|remedy| format!(" -> {}", one_line(remedy))).unwrap_or_default();
        let indent = VERDICT_WIDTH + width + 4;
        let found = terminal.wrap(&format!("{}{remedy}", one_line(found)), indent, indent);
        let verdict = format!("{:VERDICT_WIDTH$}", verdict.as_str());
        format!("{}  {name:width$}  {found}\n", terminal.paint(Tone::of(verdict.trim_end()), &verdict))
    }
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
        let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        checks.iter().map(|check| check.line(width, &context.terminal)).collect()
    };
    context.print(&text)?;
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The harnesses to check: the given one, else those in which aside is installed, else all.
fn looked_at(named: Option<&'static Kind>) -> Vec<&'static Kind> {
    if let Some(kind) = named {
        return vec![kind];
    }
    let installed: Vec<_> = KINDS.into_iter().filter(|kind| client::may_be_installed(kind)).collect();
    if installed.is_empty() { KINDS.to_vec() } else { installed }
}

fn checks(named: Option<&'static Kind>, context: &Context<'_>) -> Vec<Check> {
    let kinds = looked_at(named);
    let mut checks = vec![binary::kind()];
    checks.extend(daemon::checks(context));
    let is_up = checks.iter().all(|check| check.name != daemon::NAME || check.verdict != Verdict::Fail);
    checks.extend(kinds.iter().flat_map(|kind| client::checks(kind)));
    if is_up {
        checks.extend(attached::checks(&context.client));
        checks.extend(rules::checks(context));
        checks.extend(sources::checks(&kinds, context));
        checks.extend(sinks::checks(context));
        checks.extend(webhooks::checks(context));
        checks.extend(mcp::checks(&kinds, context));
        checks.extend(kinds.first().map(|kind| binary::time(kind, context.client.socket())));
        checks.extend(kinds.iter().map(|kind| round_trip::check(kind, &context.client)));
    } else {
        let remedy = "aside up, then aside doctor again";
        checks.push(Check::fail(round_trip::NAME, "not tried: no daemon runs", remedy));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::tests::{of_width, pipe};

    #[test]
    fn a_check_is_one_line_whatever_was_found_unless_a_terminal_is_too_narrow() {
        let check = Check::warn("hooks", "a\nb", "do\nthis");
        assert_eq!(check.line(7, &pipe()), "warn  hooks    a b -> do this\n");
        assert_eq!(Check::ok("daemon", "up").line(7, &pipe()), "ok    daemon   up\n");
        let long = Check::fail("daemon", "nothing answers at /run/user/1000/aside/aside.sock", "aside up");
        let expected = "\
fail  daemon   nothing answers at
               /run/user/1000/aside/aside.sock -> aside up
";
        assert_eq!(long.line(7, &of_width(60)), expected);
    }
}

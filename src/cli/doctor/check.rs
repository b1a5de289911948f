//! One check and its result.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::cli::terminal::{Terminal, Tone, one_line};

/// Width of the longest verdict.
const VERDICT_WIDTH: usize = 4;

/// The result of a check; a greater one is worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
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
pub(super) struct Check {
    pub(super) name: Cow<'static, str>,
    pub(super) verdict: Verdict,
    /// The finding.
    pub(super) found: String,
    /// The remedy, unless all is well.
    pub(super) remedy: Option<String>,
}

impl Check {
    pub(super) fn ok(name: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    pub(super) fn warn(
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), verdict: Verdict::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn fail(
        name: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), verdict: Verdict::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn json(&self) -> Value {
        let Self { name, verdict, found, remedy } = self;
        json!({ "name": name, "verdict": verdict.as_str(), "found": found, "remedy": remedy })
    }

    /// The finding next to a name padded to `width`; wrapped for a terminal, one line for a pipe.
    pub(super) fn line(&self, width: usize, terminal: &Terminal) -> String {
        let Self { name, verdict, found, remedy } = self;
        let remedy = remedy.as_deref().map(|remedy| format!(" -> {}", one_line(remedy))).unwrap_or_default();
        let indent = VERDICT_WIDTH + width + 4;
        let found = terminal.wrap(&format!("{}{remedy}", one_line(found)), indent, indent);
        let verdict = format!("{:VERDICT_WIDTH$}", verdict.as_str());
        format!("{}  {name:width$}  {found}\n", terminal.paint(Tone::of(verdict.trim_end()), &verdict))
    }
}

/// The last line: how many problems there are, and what to do about a single one.
pub(super) fn summary(checks: &[Check]) -> String {
    let of = |verdict| checks.iter().filter(move |check| check.verdict == verdict).collect::<Vec<_>>();
    let (problems, warnings) = (of(Verdict::Fail), of(Verdict::Warn));
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let about = |check: &Check| {
        let remedy = check.remedy.as_deref().map(|remedy| format!(" -> {}", one_line(remedy)));
        format!("{}: {}{}", check.name, one_line(&check.found), remedy.unwrap_or_default())
    };
    let warned = match warnings.len() {
        0 => String::new(),
        count => format!(", {}", counted(count, "warning")),
    };
    match problems.as_slice() {
        [] => format!("no problem{warned} in {}", counted(checks.len(), "check")),
        [only] => format!("1 problem{warned}: {}", about(only)),
        several => {
            let names: Vec<&str> = several.iter().map(|check| &*check.name).collect();
            format!("{} problems{warned}: {}", several.len(), names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::tests::{of_width, pipe};

    #[test]
    fn the_summary_counts_and_names_problems() {
        let (ok, warn) = (Check::ok("a", "fine"), Check::warn("b", "slow", "wait"));
        let fail = |name: &'static str| Check::fail(name, "not installed", "aside install");
        for (checks, expected) in [
            (vec![ok.clone()], "no problem in 1 check"),
            (vec![ok.clone(), warn.clone()], "no problem, 1 warning in 2 checks"),
            (vec![ok.clone(), fail("hooks")], "1 problem: hooks: not installed -> aside install"),
            (vec![fail("hooks"), warn, ok, fail("daemon")], "2 problems, 1 warning: hooks, daemon"),
        ] {
            assert_eq!(summary(&checks), expected);
        }
    }

    #[test]
    fn check_line_wraps_only_on_a_narrow_terminal() {
        let check = Check::warn("hooks", "a\nb", "do\nthis");
        assert_eq!(check.line(7, &pipe()), "warn  hooks    a b -> do this\n");
        assert_eq!(Check::ok("daemon", "up").line(7, &pipe()), "ok    daemon   up\n");
        let long =
            Check::fail("daemon", "nothing answers at /home/u/.local/state/aside/aside.sock", "aside up");
        let expected = "\
fail  daemon   nothing answers at
               /home/u/.local/state/aside/aside.sock ->
               aside up
";
        assert_eq!(long.line(7, &of_width(60)), expected);
    }
}

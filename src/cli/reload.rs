//! `aside reload`: makes the daemon reload its configuration, and shows the findings.

use super::{CliError, Context, check, parse, refused, status::HASH_CHARS};

use engine::words::counted;

use crate::api::wire::views::{ConfigView, FindingsView, ReloadView};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

impl ConfigView {
    /// A message if a file of the configuration has errors and is not used; `None` otherwise.
    pub(super) fn trouble(&self) -> Option<String> {
        let (errors, at) = (counted(self.errors, "error"), &self.read_at);
        match self.state.as_str() {
            Self::REFUSED => Some(format!("REFUSED at {at} with {errors}; the previous rules stay in force")),
            Self::PARTLY => Some(format!(
                "read with {errors} at {at}; files with errors are not used in their present form"
            )),
            _ => None,
        }
    }
}

impl FindingsView {
    /// The findings in the format of `aside check`, and their number; empty if there are none.
    fn text(&self) -> String {
        match self.errors + self.warnings {
            0 => String::new(),
            _ => format!("{}\n{}\n", self.report, check::counts(self.errors, self.warnings)),
        }
    }
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "reload the configuration";
    let response = context
        .client
        .request("POST", "/v1/reload", &[], b"")
        .map_err(|source| CliError::Client { doing, source })?;
    if args.json && matches!(response.status, 200 | 422) {
        context.print(&format!("{}\n", String::from_utf8_lossy(&response.body)))?;
    }
    match response.status {
        200 if args.json => Ok(()),
        200 => {
            let reloaded: ReloadView = parse(doing, &response.body)?;
            context.say(&(reloaded.found.text() + &reloaded.text()))
        }
        422 => {
            let found: FindingsView = parse(doing, &response.body)?;
            if !args.json {
                context.say(&(found.text() + "nothing was changed\n"))?;
            }
            Err(CliError::Check { errors: found.errors })
        }
        status => Err(refused(doing, status, &response.body)),
    }
}

impl ReloadView {
    fn text(&self) -> String {
        let Self { changed, rules, subscribers, restart_needed, failing, found: _ } = self;
        let outcome = if *changed { "in force" } else { "in force, unchanged" };
        let hash: String = rules.chars().take(HASH_CHARS).collect();
        let restart =
            if *restart_needed { "[journal] or [http] changed; this needs a restart\n" } else { "" };
        let failing = match failing {
            0 => String::new(),
            failing => format!(
                "`aside check` refuses these files: {}; a text that fails is delivered as a generic table\n",
                counted(*failing, "failing text or test")
            ),
        };
        format!("{outcome}: {}, hash {hash}\n{restart}{failing}", counted(*subscribers, "subscriber"))
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn the_outcome_is_shown_with_the_findings() {
        let body = r#"{"changed":true,"rules":"b21532ec8694b10c52aa","subscribers":12,"restart_needed":false,
            "errors":0,"warnings":0,"findings":[],"report":""}"#;
        let daemon = FakeDaemon::answering_json(200, body);
        let printed = run_against(&daemon, &["reload"]);
        assert_eq!(printed.as_deref(), Ok("in force: 12 subscribers, hash b21532ec8694\n"));
        assert!(daemon.requests()[0].starts_with("POST /v1/reload HTTP/1.1\r\n"));

        let body = r#"{"changed":false,"rules":"b2","subscribers":1,"restart_needed":true,
            "errors":0,"warnings":1,"findings":[],"report":"warning: twice\n"}"#;
        let printed = run_against(&FakeDaemon::answering_json(200, body), &["reload"]);
        let expected = "warning: twice\n\n0 errors, 1 warning\nin force, unchanged: 1 subscriber, hash b2\n\
                        [journal] or [http] changed; this needs a restart\n";
        assert_eq!(printed.as_deref(), Ok(expected));
    }

    #[test]
    fn texts_that_fail_are_said() {
        let body = r#"{"changed":true,"rules":"b2","subscribers":1,"restart_needed":false,"failing":1,
            "errors":0,"warnings":1,"findings":[],"report":"warning: it fails\n"}"#;
        let printed = run_against(&FakeDaemon::answering_json(200, body), &["reload"]);
        let expected = "warning: it fails\n\n0 errors, 1 warning\nin force: 1 subscriber, hash b2\n\
                        `aside check` refuses these files: 1 failing text or test; a text that fails is delivered as a generic table\n";
        assert_eq!(printed.as_deref(), Ok(expected));
    }

    #[test]
    fn a_refused_one_shows_every_finding_and_fails() {
        let body = r#"{"error":{"message":"the configuration has 2 errors; the rules are unchanged"},
            "errors":2,"warnings":0,"findings":[{"line":3}],"report":"error: a\n\nerror: b\n"}"#;
        let printed = run_against(&FakeDaemon::answering_json(422, body), &["reload"]);
        let expected = "error: a\n\nerror: b\n\n2 errors, 0 warnings\nnothing was changed\n\
                        accept the configuration: 2 errors";
        assert_eq!(printed.expect_err("refused"), expected);
        let printed = run_against(&FakeDaemon::answering_json(422, body), &["reload", "--json"]);
        assert!(printed.expect_err("refused").starts_with("{\"error\":"));

        let body = r#"{"error":{"message":"the disk is full"}}"#;
        let printed = run_against(&FakeDaemon::answering_json(507, body), &["reload"]);
        assert_eq!(printed.expect_err("refused"), "reload the configuration: the disk is full");
    }
}

//! `aside new`: writes a subscriber, an event type, a test or a fixture, from real events, from a file
//! or from the catalogue. What is written is checked before; an existing file is never overwritten.

mod event;
mod events;
pub(super) mod fixture;
mod plan;
mod subscriber;
mod test;

use clap::Subcommand;

use super::{CliError, Context};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a subscriber with two tests, for the fields that its events have
    Subscriber(subscriber::Args),
    /// Add an event type to events.toml, so that it is known
    Event(event::Args),
    /// Add a test of real events to a subscriber's file
    Test(test::Args),
    /// Save real events as fixtures/NAME.json, for tests and previews
    Fixture(fixture::Args),
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    match &args.what {
        What::Subscriber(args) => subscriber::run(args, context),
        What::Event(args) => event::run(args, context),
        What::Test(args) => test::run(args, context),
        What::Fixture(args) => fixture::run(args, context),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hook::client::fake::{FakeDaemon, Scratch};

    use crate::cli::tests::run_in;

    const EVENTS: &str = r#"[
        {"type":"deploy.web.finished","source":"ci","payload":{"service":"web","password":"hunter2","note":"a\u001b[31mb","n":1}},
        {"type":"deploy.api.finished","source":"ci","severity":"error","payload":{"service":"api","password":"hunter3","n":18446744073709551615,"none":null}}
    ]"#;

    fn scratch() -> (Scratch, String) {
        let folder = Scratch::new();
        let events = folder.path().join("sample.json");
        fs::write(&events, EVENTS).expect("written");
        (folder, events.display().to_string())
    }

    fn run(folder: &Scratch, args: &[&str]) -> Result<String, String> {
        run_in(&FakeDaemon::silent(), folder.path(), &[&["new"], args].concat())
    }

    fn read(folder: &Scratch, name: &str) -> String {
        fs::read_to_string(folder.path().join(name)).unwrap_or_default()
    }

    fn is_right(folder: &Scratch) {
        let config = folder.path().display().to_string();
        let checked = run_in(&FakeDaemon::silent(), folder.path(), &["check", &config]);
        assert!(checked.as_ref().is_ok_and(|said| said.starts_with("no errors")), "{checked:?}");
        run_in(&FakeDaemon::silent(), folder.path(), &["test"]).expect("the tests pass");
    }

    #[test]
    fn written_subscriber_has_no_finding_and_passes() {
        let (folder, events) = scratch();
        let own = "# mine\n\n[[event]]\ntype = \"deploy.web.finished\" # first\n";
        fs::write(folder.path().join("events.toml"), own).expect("written");
        let args =
            ["subscriber", "deploys", "--type", "deploy.*.finished", "--from", &events, "--priority", "high"];
        let shown = run(&folder, &[&args[..], &["--dry-run"]].concat()).expect("shown");
        assert!(shown.contains("would write  ") && shown.contains("  id = \"deploys\"\n"), "{shown}");
        assert_eq!(
            (read(&folder, "subscribers/deploys.toml"), read(&folder, "events.toml")),
            (String::new(), own.into())
        );
        let said = run(&folder, &args).expect("written");
        for part in [
            "read 2 events of ",
            "\n  service    2 of 2   text     column, dedupe_key\n",
            "\n  password   2 of 2   text     column; masked, so no dedupe_key\n",
            "subscribers/deploys.toml     1 subscriber, 2 tests\n",
            "added  deploy.api.finished to ",
            "next:  aside preview deploys     then  aside reload\n",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let text = read(&folder, "subscribers/deploys.toml");
        assert!(
            text.starts_with("#:schema ../.schema/subscriber.json\n\n[subscriber]\nid = \"deploys\"\n"),
            "{text}"
        );
        for part in
            ["dedupe_key = \"type:payload.service\"\n", "priority = \"high\"\n", "password = \"[masked]\""]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            !text.contains("hunter") && !text.contains('\u{1b}') && !text.contains("window_ms"),
            "{text}"
        );
        let entries = read(&folder, "events.toml");
        assert!(
            entries.starts_with(own)
                && entries.contains("severity = \"error\"")
                && !entries.contains("hunter"),
            "{entries}"
        );
        is_right(&folder);
        let again = run(&folder, &args).expect_err("there");
        assert!(again.contains("deploys.toml already; edit that file"), "{again}");
    }

    #[test]
    fn text_can_be_a_template() {
        let (folder, events) = scratch();
        run(&folder, &["subscriber", "deploys", "--from", &events, "--template"]).expect("written");
        let text = read(&folder, "subscribers/deploys.toml");
        assert!(text.contains("types = [\"deploy.api.finished\", \"deploy.web.finished\"]"), "{text}");
        assert!(!text.contains("[output"), "{text}");
        let template = read(&folder, "templates/deploys.toon.j2");
        assert!(template.contains("{% if event.payload.note is defined %}\nnote: "), "{template}");
        is_right(&folder);
    }

    #[test]
    fn catalogue_and_empty_payloads_are_samples() {
        let (folder, events) = scratch();
        run(&folder, &["subscriber", "tools", "--type", "tool.call.*", "--from", "example"])
            .expect("written");
        fs::write(&events, r#"{"type":"bare.thing"}"#).expect("written");
        run(&folder, &["subscriber", "bare", "--from", &events]).expect("written");
        assert!(read(&folder, "subscribers/bare.toml").contains("bare: {{ type }}"));
        is_right(&folder);
    }

    #[test]
    fn refusals_write_nothing() {
        let (folder, events) = scratch();
        for (args, part) in [
            (&["subscriber", "tool_failure", "--type", "a.b"][..], "`aside edit tool_failure` changes it"),
            (&["subscriber", "x"], "give the types of its events"),
            (&["subscriber", "x", "--type", "a..b", "--from", &events], "`a..b` is no pattern"),
            (
                &["subscriber", "x", "--type", "a.b", "--from", &events],
                "a.b does not select deploy.api.finished",
            ),
            (
                &["subscriber", "x", "--type", "a.b", "--from", "example"],
                "the catalogue has no example of a.b",
            ),
            (&["subscriber", "Bad", "--from", &events], "did you mean `bad`?"),
            (&["subscriber", "x", "--from", &events, "--point", "immediate"], "nothing is written"),
            (&["subscriber", "x", "--from", "gone.json"], "gone.json"),
            (&["event", "tool.call.failure", "--from", &events], "in the catalogue of aside already"),
            (&["event", "deploy.x.finished", "--from", &events], "not a `deploy.x.finished`"),
            (&["test", "tool_failure", "--from", &events], "`aside edit tool_failure` writes one"),
            (&["fixture", "../x", "--from", &events], "the name of a fixture has letters"),
        ] {
            let refused = run(&folder, args).expect_err("refused");
            assert!(refused.contains(part), "{args:?}: {refused}");
        }
        let left: Vec<_> =
            fs::read_dir(folder.path()).expect("read").map(|one| one.expect("one").file_name()).collect();
        assert_eq!(left, ["sample.json"]);
    }

    #[test]
    fn entries_tests_and_fixtures_are_added() {
        let (folder, events) = scratch();
        let said = run(&folder, &["event", "deploy.web.finished", "--from", &events]).expect("added");
        assert!(said.contains("added  deploy.web.finished to "), "{said}");
        let again = run(&folder, &["event", "deploy.web.finished", "--from", &events]).expect_err("there");
        assert!(again.contains("in an events.toml already"), "{again}");
        run(&folder, &["subscriber", "deploys", "--type", "deploy.*.finished", "--from", &events])
            .expect("written");
        let before = read(&folder, "subscribers/deploys.toml");
        let said = run(&folder, &["test", "deploys", "--from", &events]).expect("added");
        assert!(said.contains("`real events`: 2 events\nnext:  aside test deploys"), "{said}");
        run(&folder, &["test", "deploys", "--from", &events]).expect("added");
        let after = read(&folder, "subscribers/deploys.toml");
        assert!(after.starts_with(&before) && after.contains("name = \"real events 2\""), "{after}");
        assert!(after.contains(", { source = \"ci\" }]") && !after.contains("hunter"), "{after}");
        run(&folder, &["fixture", "both", "--from", &events]).expect("written");
        let fixture = read(&folder, "fixtures/both.json");
        assert!(fixture.contains("\"service\": \"web\"") && !fixture.contains("hunter"), "{fixture}");
        is_right(&folder);
    }
}

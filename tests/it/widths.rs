//! The output of the commands for authors fits a terminal of 80 and of 60 columns, whatever the length
//! of ids, types, sources, sessions and folders.

use serde_json::json;

use crate::{
    screens::{shown_on_terminal, without_colours},
    support::daemon::{Home, eventually},
};

/// A long id.
const ID: &str = "deployments_of_the_northern_region_eu1";
/// A type with long words.
const TYPE: &str = "deployment.of_the_storefront.has_finished";
const SESSION: &str = "b1c2d3e4-0000-4000-8000-000000000001-with-a-long-name-of-its-own";
const SOURCE: &str = "pipelines/of-the-northern-region/deploy";
const FOLDER: &str = "/srv/customers/of-the-northern-region/storefront";

/// A subscriber with a failing test, and findings.
fn subscriber() -> String {
    format!(
        r#"
[subscriber]
id = "{ID}"
description = "Tells the agent how the deployments of the storefront in the northern region ended"

[events]
types = ["{TYPE}", "deployment.of_the_storefront.has_not_finished"]
where = "payload.environment_of_the_deployment == 'production-of-the-northern-region'"

[batching]
group_by = "payload.environment_of_the_deployment"
dedupe_key = "type:payload.service_that_was_deployed:payload.environment_of_the_deployment"

[output]
priority = "high"
one = "deployed: {{{{ payload.service_that_was_deployed }}}}"
table = {{ key = "deployed", columns = ["service_that_was_deployed", "environment_of_the_deployment"] }}

[[tests]]
name = "a deployment to the production of the northern region is a line with the service that was deployed"
at = [["0s", "{TYPE}", {{ service_that_was_deployed = "checkout-of-the-northern-region", environment_of_the_deployment = "staging-of-the-northern-region" }}]]
expect = [{{ at = "2s", decoded = {{ deployed = "checkout" }} }}]
"#
    )
}

fn home() -> Home {
    let mut home = Home::with(&[("subscribers/long.toml", &subscriber())]);
    home.set("HOME", home.path(&"a-folder-with-a-long-name/".repeat(2)));
    home
}

/// Delivers one notification, leaves another one pending, and silences a kind.
fn fill(home: &Home) {
    let exchange = |carrier: &str| {
        let body = json!({ "point": "after_tool", "carrier": carrier, "harness": { "workspace": FOLDER } });
        home.exchange(SESSION, &body).status()
    };
    let publish = |service: &str| {
        let payload = json!({ "service_that_was_deployed": service.repeat(4),
            "environment_of_the_deployment": "production-of-the-northern-region" });
        let event = json!({ "type": TYPE, "source": SOURCE, "session": SESSION, "payload": payload });
        home.publish(&event);
    };
    exchange("c1");
    publish("checkout of the region ");
    assert_eq!(exchange("c2"), 200);
    publish("storefront of the region ");
    eventually("it is in the history", || {
        let all = home.get("/v1/notifications");
        (all["notifications"].as_array()?.len() == 2).then_some(())
    });
    let condition = "payload.environment_of_the_deployment != 'production-of-the-northern-region'";
    home.print(&["silence", "add", "--subscriber", ID, "--where", condition]);
    home.print(&["mute", "--type", TYPE, "--where", condition]);
}

#[test]
fn authors_commands_fit_narrow_terminals() {
    let home = home();
    let _daemon = home.serve();
    fill(&home);
    let event = [
        TYPE,
        "service_that_was_deployed=checkout-of-the-northern-region",
        "environment_of_the_deployment=staging-of-the-northern-region",
    ];
    let explain = [&["explain"][..], &event].concat();
    let filtered = [&explain[..], &["--session", SESSION]].concat();
    let commands: [&[&str]; 27] = [
        &["check"],
        &["test"],
        &["preview", ID],
        &["preview", ID, "--count", "1,40"],
        &["preview", "tool_failure"],
        &["explain", "tool.call.failure", "tool_name=grep"],
        &explain,
        &filtered,
        &["subscribers"],
        &["subscribers", "--all"],
        &["subscribers", ID],
        &["subscribers", "tool_failure"],
        &["new", "subscriber", "deployments_in_NN_columns", "--type", TYPE, "--from", "last"],
        &["new", "event", "deployment.of_the_storefront.has_NN_columns"],
        &["silence"],
        &["mute"],
        &["inbox"],
        &["inbox", "--text"],
        &["status"],
        &["status", "--verbose"],
        &["sources", "--all"],
        &["sessions"],
        &["history"],
        &["history", "--notifications"],
        &["why", "last"],
        &["publish", TYPE, "--session", SESSION],
        &["reload"],
    ];
    let mut faults = Vec::new();
    for args in commands {
        for columns in [80, 60] {
            // A file is written once.
            let args: Vec<String> = args.iter().map(|arg| arg.replace("NN", &columns.to_string())).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let (plain, _) = without_colours(&shown_on_terminal(&home, columns, &[], &args).0);
            if plain.trim().is_empty() {
                faults.push(format!("{args:?} prints nothing"));
            }
            let width = usize::from(columns);
            // A line of the user's file is cut, but not to the width of the terminal; a word, such as a path,
            // is never cut.
            let is_whole =
                |line: &str| line.contains(" | ") || !line.trim().trim_start_matches("--> ").contains(' ');
            let is_wide = |line: &&str| line.chars().count() > width && !is_whole(line);
            faults.extend(plain.lines().filter(is_wide).map(|line| format!("{args:?} at {columns}: {line}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

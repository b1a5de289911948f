//! The paths that the command line requests are routes of the API.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::Finding;

/// The prefix of the API's paths.
const PREFIX: &str = "\"/v1/";

/// The paths in the command line's code that no route of `docs/openapi.json` matches; a test of the
/// API compares that file with its routes.
pub(super) fn check_tree(files: &BTreeMap<String, String>, root: &Path) -> Vec<Finding> {
    let document = fs::read_to_string(root.join("docs/openapi.json")).expect("readable");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let routes: Vec<&String> = document["paths"].as_object().expect("an object").keys().collect();
    let commands = files.iter().filter(|(path, _)| path.starts_with("src/cli"));
    let findings = commands.flat_map(|(path, text)| {
        let unknown = requested(text).filter(|(_, asked)| !routes.iter().any(|route| is_of(asked, route)));
        unknown.map(|(line, asked)| {
            let rule = format!("`{asked}` is no route of the API");
            Finding { path: path.clone(), line, rule }
        })
    });
    findings.collect()
}

/// The paths in the code of a file before its tests, without queries, each with its line.
fn requested(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().enumerate().flat_map(|(index, line)| {
        let begins = line.match_indices(PREFIX).map(|(at, _)| &line[at + 1..]);
        begins.map(move |rest| (index + 1, rest.split(['"', '?']).next().unwrap_or_default()))
    })
}

/// Whether a request for `asked`, whose parts may have placeholders at their ends, can be one of `route`.
fn is_of(asked: &str, route: &str) -> bool {
    let fixed = |part: &str| part.split('{').next().is_none_or(str::is_empty);
    let matches =
        |(asked, route): (&str, &str)| fixed(asked) || fixed(route) || asked.split('{').next() == Some(route);
    asked.split('/').count() == route.split('/').count()
        && asked.split('/').zip(route.split('/')).skip(1).all(matches)
}

#[test]
fn requested_path_of_no_route_is_reported() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = "\n(\"/v1/statu\"); (\"/v1/inbox{query}\", \"/v1/sessions/{id}/wait?for=wake\")";
    let found = check_tree(&[("src/cli/x.rs".to_owned(), text.to_owned())].into(), root);
    let shown: Vec<String> = found.iter().map(Finding::to_string).collect();
    assert_eq!(shown, ["src/cli/x.rs:2: `/v1/statu` is no route of the API"]);
}

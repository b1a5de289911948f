//! Files in the four-section form, as users of the format have them: they load unmodified and
//! deliver. `tests/four_section/` is a user's layer of such files.

use std::{collections::BTreeMap, fs, time::Duration};

use aside::config::{
    compile::compile,
    layers::{LayerKind, Sources},
    load::read_layers,
    trial::findings,
};
use engine::{
    event::{Severity, catalogue},
    notification::Priority,
    pipeline::rule::{BatchMode, Batching},
};
use serde_json::{Value, json};

use crate::support::rules::{START, event, made, rule, with_user, with_user_sources};

/// Files in `tests/four_section/subscribers`.
const FILES: usize = 10;
/// The templates that shipped as files before the texts moved into the subscribers' files.
const FORMER_TEMPLATES: [&str; 11] = [
    "background_task",
    "budget_exceeded",
    "budget_warning",
    "ci_check",
    "file_change",
    "ide_diagnostics",
    "loop_detected",
    "mcp_server",
    "message",
    "reminder",
    "tool_failure",
];

fn folder() -> Sources {
    read_layers(&[(LayerKind::User, "tests/four_section".into())])
}

#[test]
fn files_in_the_four_section_form_load_unmodified() {
    let compiled = compile(&folder(), &[]);
    let report = compiled.report.clone().with(findings(&folder(), &compiled));
    assert_eq!(report.error_count(), 0, "{report}");
    let files = fs::read_dir("tests/four_section/subscribers").expect("the folder").count();
    assert_eq!(files, FILES);
    assert_eq!(compiled.left_out.len(), 0);
}

#[test]
fn every_four_section_file_delivers_its_events() {
    let compiled = compile(&folder(), &[]);
    let names = fs::read_dir("tests/four_section/subscribers").expect("the folder");
    let mut seen = BTreeMap::new();
    for path in names.map(|entry| entry.expect("an entry").path()) {
        let id = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
        let rule = rule(&compiled, &id);
        let type_of = |event_type: String| {
            let segments = event_type.replace('*', "new");
            let payload = catalogue::types().find(|entry| entry.event_type.as_str() == segments).map_or_else(
                || json!({ "job": "mail", "version": "7" }),
                |entry| Value::clone(entry.example.value()),
            );
            event(&segments, Some(Severity::Critical), &payload)
        };
        let events: Vec<_> = rule.types.iter().map(|pattern| type_of(pattern.to_string())).collect();
        let made = made(&compiled, &events);
        let own = made.iter().filter(|one| one.subscriber == rule.id).count();
        assert_eq!(own, events.len(), "{id}: {made:#?}");
        seen.insert(id, own);
    }
    assert_eq!(seen.len(), FILES, "{seen:?}");
}

#[test]
fn absent_keys_have_the_defaults_of_the_format() {
    let compiled = compile(&folder(), &[]);
    let smallest = rule(&compiled, "checkpoint");
    let default = Batching {
        window: Duration::from_millis(2_000),
        max_size: 10.try_into().expect("not zero"),
        mode: BatchMode::Window,
        group_by: Vec::new(),
    };
    assert_eq!((&smallest.batching, smallest.output.priority), (&default, Priority::Normal));
    let at = |number: u64| event("task.checkpoint.reached", None, &json!({ "n": number }));
    let one = made(&compiled, &[at(1)]);
    assert_eq!(one[0].created_at.since(START), Duration::from_secs(62), "its window is 2 s");
}

#[test]
fn names_of_shipped_templates_are_their_texts() {
    let shipped = compile(&Sources::shipped(), &[]);
    let ids = shipped.rules.subscribers.iter().map(|rule| rule.id.as_str());
    let names: Vec<&str> = ids.chain(FORMER_TEMPLATES).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        for written in [format!("templates/{name}.toon.j2"), format!("{name}.toon.j2"), name.to_owned()] {
            let text = format!(
                "[subscriber]\nid = \"own_one\"\n[events]\ntypes = [\"a.b\"]\n[output]\ntemplate = \"{written}\"\n"
            );
            let compiled = with_user(&[("subscribers/own_one.toml", &text)]);
            assert_eq!(compiled.report.to_string(), "", "{written}");
            assert_eq!(
                rule(&compiled, "own_one").output.layout,
                rule(&shipped, name).output.layout,
                "{written}"
            );
        }
    }
}

#[test]
fn files_without_a_text_have_the_shipped_one() {
    let text = "[subscriber]\nid = \"tool_failure\"\n[events]\ntypes = [\"tool.call.*\"]\n";
    let files = [("subscribers/tool_failure.toml", text)];
    let compiled = with_user(&files);
    assert_eq!(findings(&with_user_sources(&files), &compiled).len(), 0);
    let shipped = compile(&Sources::shipped(), &[]);
    assert_eq!(rule(&compiled, "tool_failure").output.layout, rule(&shipped, "tool_failure").output.layout);
}

#[test]
fn versions_that_are_not_semantic_are_refused() {
    for (version, is_valid, meant) in [
        ("\"1.0.0\"", true, ""),
        ("\"0.0.1-rc.2+x\"", true, ""),
        ("\"1.0\"", false, "did you mean `1.0.0`?"),
        ("\"v1.2.3\"", false, "did you mean `1.2.3`?"),
        ("\"2\"", false, "did you mean `2.0.0`?"),
        ("\"not-semver\"", false, "`not-semver` is not a semantic version"),
        ("\"01.0.0\"", false, "leading zero"),
        ("\"\"", false, "empty"),
        ("1.0", false, "`version` must be a string, not a float"),
    ] {
        let text = format!("[subscriber]\nid = \"a\"\nversion = {version}\n[events]\ntypes = [\"a.b\"]\n");
        let report = with_user(&[("subscribers/a.toml", &text)]).report.to_string();
        assert_eq!(report.is_empty(), is_valid, "{version}: {report}");
        let is_placed =
            report.contains("subscribers/a.toml:3:11") && report.contains("at `subscriber.version`");
        assert!(is_valid || (is_placed && report.contains(meant)), "{version}: {report}");
    }
}

//! `aside check` of subscribers in every form, with a text in every form: also one that is defined in
//! another file.

use aside::config::{
    compile::compile,
    report::{Level, Report},
    trial,
};
use engine::event::catalogue;

use crate::support::rules::with_user_sources;

/// The findings of `aside check` in files of the user's, in the order of their places.
fn checked(files: &[(&str, &str)]) -> Report {
    let sources = with_user_sources(files);
    let types: Vec<_> = catalogue::types().map(|entry| entry.event_type.as_str()).collect();
    let compiled = compile(&sources, &types);
    let found = trial::findings(&sources, &compiled);
    compiled.report.with(found)
}

/// The ways to write a subscriber's file: its id, the rest of `[subscriber]`, and its events.
const FORMS: [(&str, &str, &str); 6] = [
    ("own", "", "types = [\"tool.call.failure\"]"),
    ("tool_failure", "", "types = [\"tool.call.failure\", \"tool.call.timeout\"]"),
    ("tool_failure", "", "types = [\"tool.call.failure\"]"),
    ("tool_failure", "inherit = true", ""),
    ("tool_failure", "inherit = true", "severity_filter = \"error\""),
    ("background_task", "inherit = true", ""),
];
/// The ways to write a text, in `[output]` or in a template.
const TEXTS: [(&str, &str); 9] = [
    ("", ""),
    ("", "templates/ID.toon.j2"),
    ("template = \"mine\"", "templates/mine.toon.j2"),
    ("template = \"templates/tool_failure.toon.j2\"", ""),
    ("template = \"templates/background_task.toon.j2\"", ""),
    ("template = \"generic\"", ""),
    ("one = \"mine: {{ type }}\"", ""),
    ("table = { key = \"mine\", columns = [\"@type\"] }", ""),
    ("sentence = \"mine: {{ type }}\"", ""),
];

#[test]
fn every_form_of_file_and_text_is_checked() {
    for (id, subscriber, events) in FORMS {
        for (output, template) in TEXTS {
            let file = format!(
                "[subscriber]\nid = \"{id}\"\n{subscriber}\n[events]\n{events}\n[output]\n{output}\n"
            );
            let template = template.replace("ID", id);
            let files = [("subscribers/mine.toml", &*file), (&*template, "mine: {{ events[0].type }}\n")];
            let report = checked(files.get(..if template.is_empty() { 1 } else { 2 }).expect("files"));
            assert_eq!(report.error_count(), 0, "{file}{template}: {report}");
            let wrong = report.diagnostics().iter().filter(|one| !one.place.file.starts_with("user/"));
            assert_eq!(wrong.count(), 0, "{file}{template}: {report}");
        }
    }
}

#[test]
fn chosen_texts_of_other_files_are_tried() {
    let test = "[[tests]]\nname = \"t\"\nat = [[\"0ms\", \"own.event\", { x = 1, diagnostics = 5 }]]\nexpect = [{ at = \"2s\", decoded = {} }]\n";
    // Both texts fail with this event.
    let head = |subscriber: &str| {
        format!("[subscriber]\n{subscriber}\n[events]\ntypes = [\"own.event\"]\n[output]\n")
    };
    for (file, place) in [
        (head("id = \"own\"") + "template = \"changed_file\"\n", "6:12"),
        (head("id = \"own\"") + "template = \"templates/ide_diagnostics.toon.j2\"\n", "6:12"),
        (head("id = \"changed_file\""), "2:6"),
        (head("id = \"changed_file\"\ninherit = true"), "2:6"),
        (head("id = \"ide_diagnostics\"\ninherit = true"), "2:6"),
    ] {
        let report = checked(&[("subscribers/mine.toml", &(file.clone() + test))]);
        let errors = report.diagnostics().iter().filter(|one| one.level == Level::Error);
        let failing: Vec<_> = errors.filter(|one| one.message.starts_with("output fails with ")).collect();
        assert!(!failing.is_empty(), "{file}: {report}");
        for one in failing {
            assert_eq!(one.place.to_string(), format!("user/subscribers/mine.toml:{place}"), "{report}");
        }
    }
}

//! The lints of `aside check`: each row of their table finds its example, and none finds anything in
//! what ships or in what the documents show.

use std::{fs, sync::Arc};

use aside::config::{
    compile::compile,
    layers::{LayerKind, SourceFile, Sources},
    lints::{
        LINTS, Lint, LintLevel, LintName,
        report::{self, Denied},
    },
    load::read_layers,
    report::{Level, Report},
};
use engine::event::catalogue;

use crate::{
    docs::{SUBSCRIBER_PAGES, blocks},
    support::rules::with_user_sources,
};

/// The subscriber of the examples that are templates.
const SUBSCRIBER: (&str, &str) =
    ("subscribers/x.toml", "subscriber.id = \"x\"\nevents.types = [\"tool.call.failure\"]\n");

fn checked(sources: &Sources, denied: &Denied) -> Report {
    let types: Vec<_> = catalogue::types().map(|entry| entry.event_type.as_str()).collect();
    report::report(sources, &compile(sources, &types), denied)
}

/// The report about an example's files, with the subscriber `x` if they have none and need it.
fn checked_example(files: &[(&str, &str)], denied: &Denied) -> Report {
    let is_needed = files.iter().any(|(name, _)| *name == "templates/x.toon.j2");
    let base = is_needed.then_some(SUBSCRIBER);
    let files: Vec<_> = files.iter().copied().chain(base).collect();
    checked(&with_user_sources(&files), denied)
}

fn only(name: LintName) -> Denied {
    Denied { warnings: false, lints: vec![name] }
}

fn names(report: &Report) -> Vec<Option<LintName>> {
    report.diagnostics().iter().map(|found| found.lint).collect()
}

#[test]
fn every_lint_finds_its_example_alone() {
    for lint in LINTS {
        let denied = if lint.level == LintLevel::Off { only(lint.name) } else { Denied::default() };
        let report = checked_example(lint.example.wrong, &denied);
        let mut found = names(&report);
        found.dedup();
        assert_eq!(found, [Some(lint.name)], "{:?}: {report}", lint.name);
        let right = checked_example(lint.example.right, &denied);
        assert_eq!(right.to_string(), "", "{:?}", lint.name);
        let is_error = report.diagnostics().iter().all(|found| found.level == Level::Error);
        assert_eq!(is_error, lint.level != LintLevel::Warning, "{:?}", lint.name);
    }
}

/// The files with a comment that allows `lint`, at or above a line of the file that ends in `place`.
fn with_allowance(lint: &Lint, file: &str, line: usize, above: usize) -> Vec<(&'static str, String)> {
    let name = lint.name.as_str();
    let comment = match file.ends_with(".j2") {
        true => format!("{{# aside: allow({name}) #}}"),
        false => format!("# aside: allow({name})"),
    };
    let files = lint.example.wrong.iter().map(|(name, text)| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        match (file.ends_with(name), above) {
            (true, 0) => lines[line - 1].push_str(&format!(" {comment}")),
            (true, above) => lines.insert(line - above, comment.clone()),
            (false, _) => {}
        }
        (*name, lines.join("\n") + "\n")
    });
    files.collect()
}

#[test]
fn allowance_silences_the_lint_of_its_line() {
    for lint in LINTS.iter().filter(|lint| lint.name != LintName::UnusedAllow) {
        let denied = if lint.level == LintLevel::Off { only(lint.name) } else { Denied::default() };
        let report = checked_example(lint.example.wrong, &denied);
        let place = report.diagnostics().first().expect("a finding").place.clone();
        for above in 0..=2_usize.min(place.line()) {
            let files = with_allowance(lint, &place.file, place.line(), above);
            let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
            let report = checked_example(&files, &denied);
            let is_found = names(&report).contains(&Some(lint.name));
            let is_unused = names(&report).contains(&Some(LintName::UnusedAllow));
            let is_refused = lint.level == LintLevel::Refused;
            assert_eq!(is_found, above == 2 || is_refused, "{files:?}: {report}");
            // While there is an error, some findings are not looked for.
            let is_reported = is_refused || (above == 2 && lint.level != LintLevel::Error);
            assert_eq!(is_unused, is_reported, "{files:?}: {report}");
        }
    }
}

#[test]
fn allowance_of_unknown_name_has_the_nearest() {
    let text = format!("{}# aside: allow(unknown-feld, untested)\n", SUBSCRIBER.1);
    let report = checked(&with_user_sources(&[("subscribers/x.toml", &text)]), &Denied::default());
    let [found] = report.diagnostics() else { panic!("{report}") };
    assert_eq!((found.place.line(), found.place.column()), (3, 16), "{report}");
    assert_eq!(found.nearest.as_deref(), Some("unknown-field"));
}

#[test]
fn denied_lints_and_warnings_are_errors() {
    let wrong = LINTS.iter().find(|lint| lint.name == LintName::ConstantWhere).expect("its row");
    for (denied, errors) in [
        (Denied::default(), 0),
        (only(LintName::ConstantWhere), 1),
        (only(LintName::UnknownType), 0),
        (Denied { warnings: true, lints: Vec::new() }, 1),
    ] {
        let report = checked_example(wrong.example.wrong, &denied);
        assert_eq!((report.error_count(), report.warning_count()), (errors, 1 - errors), "{denied:?}");
    }
}

#[test]
fn no_lint_fires_in_copies_of_what_ships() {
    let shipped = Sources::shipped_with_tests();
    let copies = shipped.files().iter().filter(|file| *file.name != *"aside.toml").map(|file| SourceFile {
        layer: LayerKind::User,
        name: Arc::clone(&file.name),
        path: Arc::clone(&file.name),
        text: (&*file.text).into(),
    });
    let denied = only(LintName::Untested);
    assert_eq!(checked(&Sources::shipped().with(copies, []), &denied).to_string(), "");
    assert_eq!(checked(&shipped, &Denied::default()).to_string(), "");
}

#[test]
fn no_lint_error_is_in_four_section_files() {
    let folder = read_layers(&[(LayerKind::User, "tests/four_section".into())]);
    assert_eq!(checked(&folder, &Denied::default()).error_count(), 0);
}

#[test]
fn no_lint_fires_in_the_documents_subscribers() {
    let mut count = 0;
    for document in SUBSCRIBER_PAGES {
        for block in blocks(document).iter().filter(|block| block.language == "toml") {
            let Ok(table) = block.text.parse::<toml::Table>() else { continue };
            if !table.contains_key("subscriber") {
                continue;
            }
            count += 1;
            let report =
                checked(&with_user_sources(&[("subscribers/example.toml", &block.text)]), &Denied::default());
            // An example can have types of its own.
            let lints = names(&report).into_iter().flatten();
            let lints: Vec<_> = lints.filter(|lint| *lint != LintName::UnknownType).collect();
            assert!(lints.is_empty(), "{}: {report}", block.place);
        }
    }
    assert!(count > 2, "{count} subscribers");
}

#[test]
fn lint_pages_fit_eighty_columns() {
    for lint in LINTS {
        let page = lint.to_string();
        let examples: Vec<&str> =
            lint.example.wrong.iter().chain(lint.example.right).map(|(_, text)| *text).collect();
        let is_own = |line: &&str| !examples.iter().any(|text| text.contains(line.trim()));
        let wide = page.lines().filter(is_own).find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{page}");
        assert!(Lint::named(lint.name.as_str()).is_ok_and(|found| found.name == lint.name));
    }
}

#[test]
fn event_field_is_found_in_every_form() {
    for (template, places) in [
        ("{% if events[0].tool_name %}\na: 1\n{% else %}\na: 2\n{% endif %}\n", &[(1, 17)][..]),
        ("a: {{ events[0].tool_name|default(\"x\") }}\n", &[(1, 17)]),
        ("a: {{ events[0][\"tool_name\"]|default(\"x\") }}\n", &[(1, 17)]),
        ("{% set e = events|last %}\na: {{ e.tool_name|default(1) }}\n", &[(2, 9)]),
        ("a: {{ events|selectattr(\"tool_name\")|list|length }}\n", &[(1, 25)]),
        ("{% for e in events[:1] %}\na: {{ e.tool_name is defined }}\n{% endfor %}\n", &[(2, 9)]),
        ("{% for e in rows %}\na: {{ e.tool_name }}\n{% break %}\n{% endfor %}\n", &[]),
        ("a: {{ events[0].payload.tool_name }}\nb: {{ events[0].timestamp }}\n", &[]),
        ("{% set events = [{ \"x\": 1 }] %}\na: {{ events[0].x }}\n", &[]),
    ] {
        let report = checked_example(&[("templates/x.toon.j2", template)], &Denied::default());
        let found: Vec<_> =
            report.diagnostics().iter().map(|one| (one.place.line(), one.place.column())).collect();
        assert_eq!(found, places, "{template}: {report}");
        let meant = report.diagnostics().first().map(|one| one.nearest.as_deref());
        assert!(meant.is_none_or(|meant| meant == Some("payload.tool_name")), "{report}");
    }
}

#[test]
fn event_field_is_found_in_an_inline_text() {
    for (many, places) in [
        ("x: {% if events[0].tool_name %}a{% endif %}", &[(6, 30)][..]),
        ("x: {{ events[0].tool_name|default('a') }}", &[(6, 27)]),
        ("x: 1\ny: {{ events|map(attribute='tool_name')|join }}", &[(7, 28)]),
        ("x: {{ events[0].payload.tool_name }}", &[]),
    ] {
        let head = "[subscriber]\nid = \"x\"\n[events]\ntypes = [\"tool.call.failure\"]\n[output]\n";
        let text = format!("{head}many = \"\"\"{many}\"\"\"\n");
        let report = checked_example(&[("subscribers/x.toml", &text)], &only(LintName::EventField));
        let found = report.diagnostics().iter().filter(|one| one.lint == Some(LintName::EventField));
        let found: Vec<_> = found.map(|one| (one.place.line(), one.place.column())).collect();
        assert_eq!(found, places, "{many}: {report}");
        let is_meant = report.to_string().contains("did you mean `payload.tool_name`?");
        assert_eq!(is_meant, !places.is_empty(), "{report}");
    }
}

#[test]
fn misspelt_fields_are_found_at_their_names() {
    for (rest, place, meant) in [
        ("where = \"payload.tol_name == 'x'\"\n", "6:10", "payload.tool_name"),
        ("where = 'payload.tol_name == \"x\" or severity == \"error\"'\n", "6:10", "payload.tool_name"),
        ("[batching]\ngroup_by = \"type:payload.tol_name\"\n", "7:18", "payload.tool_name"),
        ("[batching]\ndedupe_key = \"payload.tol_name\"\n", "7:15", "payload.tool_name"),
        ("[limits]\nsupersede_key = \"payload.eror_type.x\"\n", "7:18", "payload.error_type"),
    ] {
        let text = format!("[subscriber]\nid = \"x\"\n\n[events]\ntypes = [\"tool.call.failure\"]\n{rest}");
        let report = checked(&with_user_sources(&[("subscribers/x.toml", &text)]), &Denied::default());
        let [found] = report.diagnostics() else { panic!("{rest}: {report}") };
        assert_eq!(found.lint, Some(LintName::UnknownField));
        assert_eq!(found.place.to_string(), format!("user/subscribers/x.toml:{place}"), "{report}");
        assert_eq!(found.nearest.as_deref(), Some(meant), "{report}");
    }
}

#[test]
fn life_is_compared_with_certain_waits_only() {
    for (rest, part) in [
        ("ttl = \"1h\"\ndeliver_after = \"2h\"", Some("waits for 2h and ends after 1h")),
        ("ttl = \"2h\"\ndeliver_after = \"2h\"", Some("no longer than `deliver_after`")),
        ("ttl = \"1h\"\ndeliver_after = [\"3h\", \"2h\"]", Some("waits for 2h and ends after 1h")),
        ("ttl = \"150m\"\ndeliver_after = [\"3h\", \"2h\"]", None),
        ("ttl = \"1h\"\ndeliver_after = [\"2h\", \"3 turns\"]", None),
        ("ttl = \"1h\"\ndeliver_after = [\"2h\", \"18:00\"]", None),
        ("ttl = \"1h\"\ndeliver_after = \"18:00\"", None),
        ("ttl = \"1h\"\ndeliver_after = \"2031-01-01T00:00:00Z\"", None),
        (
            "ttl = \"24h\"\ndeliver_after = \"18:00\"\n[batching]\nmode = \"digest\"\nat = [\"07:00\", \"09:00\"]",
            None,
        ),
        ("ttl = \"24h\"\ndeliver_after = \"18:00\"\n[batching]\nmode = \"digest\"\nat = [\"18:00\"]", None),
        ("ttl = \"8h\"\nquiet = \"22:00-07:00\"", Some("quiet hours last 9h at least")),
        ("ttl = \"10h\"\nquiet = \"22:00-07:00\"", None),
        ("ttl = \"2h\"\nquiet = [\"22:00-07:00\", \"12:00-13:00\"]", None),
        ("ttl = \"30m\"\nquiet = [\"22:00-07:00\", \"12:00-13:00\"]", Some("quiet hours last 1h at least")),
        ("ttl = \"12h\"\nquiet = [\"22:00-07:00\", \"sat\", \"sun\"]", None),
    ] {
        let text = format!(
            "[subscriber]\nid = \"x\"\n[events]\ntypes = [\"tool.call.failure\"]\n[limits]\n{rest}\n"
        );
        let report = checked(&with_user_sources(&[("subscribers/x.toml", &text)]), &Denied::default());
        let found: Vec<_> = report.diagnostics().iter().map(|one| one.place.line()).collect();
        assert_eq!(found.as_slice(), part.map_or(&[][..], |_| &[6]), "{rest}: {report}");
        assert!(report.to_string().contains(part.unwrap_or_default()), "{rest}: {report}");
    }
}

#[test]
fn keys_with_an_effect_are_not_reported() {
    for rest in [
        // In quiet hours a batch is open without a window.
        "[batching]\nwindow_ms = 0\ngroup_by = \"payload.tool_name\"\n[limits]\nquiet = \"22:00-07:00\"",
        "[batching]\nwindow_ms = 0\nmax_size = 1",
        "[batching]\nmode = \"digest\"\nevery = \"1h\"\ngroup_by = \"payload.tool_name\"\nclose_when = \"payload.retry_count > 2\"",
        // An exchange at the point closes the batch, and a time ends the delay.
        "[limits]\ndeliver_after = [\"3 turns\", \"18:00\"]\n[output]\naudience = \"user\"\ninject_at = \"turn_end\"",
        "[limits]\nretain = true\n[output]\naudience = \"both\"\nrequires_response = true",
        "[limits]\nttl = \"1h\"\n[repeat]\nafter = [\"30m\"]",
        "[limits]\nttl = \"1h\"\n[repeat]\nafter = [\"3 turns\", \"2h\"]",
    ] {
        let text = format!("[subscriber]\nid = \"x\"\n[events]\ntypes = [\"tool.call.failure\"]\n{rest}\n");
        let report = checked(&with_user_sources(&[("subscribers/x.toml", &text)]), &Denied::default());
        assert_eq!(report.to_string(), "", "{rest}");
    }
}

#[test]
fn inherited_keys_without_effect_are_not_reported() {
    let base = "[subscriber]\nid = \"x\"\n[events]\ntypes = [\"tool.call.failure\"]\n[batching]\nmax_size = 5\n\
                group_by = \"payload.tool_name\"\n[limits]\nretain = true\n[output]\ninject_at = \"turn_end\"\n";
    let own = "[subscriber]\nid = \"x\"\ninherit = true\n[batching]\nwindow_ms = 0\n[output]\naudience = \"user\"\n";
    let file = |layer, text: &str| SourceFile {
        layer,
        name: "subscribers/x.toml".into(),
        path: format!("{layer}/subscribers/x.toml").into(),
        text: text.into(),
    };
    let files = [file(LayerKind::System, base), file(LayerKind::User, own)];
    assert_eq!(checked(&Sources::shipped().with(files, []), &Denied::default()).to_string(), "");
}

#[test]
fn byte_that_is_not_utf8_is_located() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("aside.toml");
    fs::write(&path, b"# caf\xe9\n[daemon]\n").expect("written");
    let sources = read_layers(&[(LayerKind::User, folder.path().to_owned())]);
    let report = checked(&sources, &Denied::default());
    let [found] = report.diagnostics() else { panic!("{report}") };
    assert_eq!((found.place.line(), found.place.column()), (1, 6), "{report}");
    assert!(found.message.contains("0xe9"), "{report}");
}

//! Checks of configuration by dry runs: templates are rendered with examples, and the `[[tests]]`
//! of subscribers run in simulated time.
//!
//! The compilation finds formal mistakes. These checks find well-formed configuration that would
//! fail at its first event. A template is rendered with one event and with three. The events are
//! those of its subscriber's tests, and the catalogue's examples of its types, if they pass the
//! subscriber's own filter. A test runs in an engine with only that subscriber, so it shows the
//! behaviour of the daemon. Shipped files are tested by the project and not checked again here.

mod because;
mod compare;
mod failed_part;
mod failure;
mod foresee;
mod jinja;
pub mod mutants;
pub mod preview;
pub mod proof;
mod templates;
mod tests;
mod timeline;

use std::sync::Arc;

use engine::{
    event::catalogue::{self, CatalogueEntry},
    sorted::SortedSet,
};

use crate::config::{
    compile::Compiled,
    layers::{LayerKind, Sources},
    report::Diagnostic,
};

pub use compare::Update;
pub use failure::{Failure, Line, Unmet, Wrong};
pub use foresee::foresee;
pub use tests::{Case, Cases};

pub use jinja::text_as_template;
pub(crate) use templates::examples;

/// Checks all parts of `compiled` that are not shipped, and returns the failures.
///
/// `sources` are the files of `compiled`. The examples are those of the catalogue.
pub fn findings(sources: &Sources, compiled: &Compiled) -> Vec<Diagnostic> {
    let files = sources.files().iter().filter(|file| file.layer != LayerKind::Shipped);
    let own: SortedSet<&Arc<str>> = files.map(|file| &file.path).collect();
    let shipped: Vec<&CatalogueEntry> = catalogue::types().collect();
    let examples: Vec<_> = shipped.into_iter().chain(&compiled.events).collect();
    let mut found = templates::findings(sources, compiled, &examples, &own);
    found.extend(tests::findings(compiled, &own));
    found
}

#[cfg(test)]
mod examples {
    use super::*;
    use crate::config::{compile::compile, layers::SourceFile, report::Report};

    /// The findings about a subscriber of failed tool calls with these sections and no template.
    fn tried_alone(rest: &str) -> Report {
        found(None, rest)
    }

    /// The findings about a subscriber of failed tool calls with this template and these tests.
    fn tried(template: &str, rest: &str) -> Report {
        found(Some(template), rest)
    }

    fn found(template: Option<&str>, rest: &str) -> Report {
        let subscriber = format!(
            "subscriber.id = \"x\"\nbatching.window_ms = 0\n[events]\ntypes = [\"tool.call.failure\"]\n{rest}"
        );
        let file = |name: &str, text: &str| SourceFile {
            layer: LayerKind::User,
            name: name.into(),
            path: name.into(),
            text: text.into(),
        };
        let template = template.map(|template| file("templates/x.toon.j2", template));
        let files = [file("subscribers/x.toml", &subscriber)].into_iter().chain(template);
        let sources = Sources::shipped().with(files, []);
        let compiled = compile(&sources, &[]);
        let found = findings(&sources, &compiled);
        compiled.report.with(found)
    }

    #[test]
    fn failing_template_is_found_before_the_first_event() {
        let mut places = Vec::new();
        for (template, place, part) in [
            ("a: 1\nb: {{ events[0].paylod.x }}\n", "2:7", "is undefined"),
            ("{% for e in events %}\na: {{ e.tool_name }}\n{% endfor %}\n", "2:7", "is undefined"),
            ("{{ rows|toon(keys=\"a\") }}\n", "1:9", "keys"),
            ("{{ rows|toon(key=\"a\", indent=3) }}\n", "1:9", "a multiple of 2"),
            ("tools[2]{a}:\n{% for r in rows %}\n  {{ r.tool_name }}\n{% endfor %}\n", "1:7", "Expected 2"),
            ("t[{{ count }}]{a,b,c}:\n{% for r in rows %}\n  {{ r.tool_name }},1\n{% endfor %}\n", "3:1", ""),
            ("t[{{ count }}]{a}:\n{% for r in rows %}\n{{ r.tool_name }}\n{% endfor %}\n", "3:1", ""),
            ("- {{ count }}\n- 2\n", "1:1", "a list item needs"),
            ("a: 1\na: {{ count }}\n", "2:1", ""),
            ("a: {{ rows }}\n", "1:7", "cannot be in a cell"),
            ("x: {{ rows|toon }}\n", "1:1", "a line of its own"),
            ("{% if count > 9 %}\na: 1\n{% endif %}\n", "1:1", "its output is empty"),
            (
                "{% for i in range(1000) %}{% for k in range(1000) %}{% endfor %}{% endfor %}a: 1\n",
                "1:1",
                "it ran for",
            ),
        ] {
            let report = tried(template, "");
            let [found] = report.diagnostics() else { panic!("{template}: {report}") };
            places.push((place.to_owned(), found.place.to_string().replace("templates/x.toon.j2:", "")));
            assert!(found.message.starts_with("template fails with "), "{report}");
            assert!(found.message.contains(part), "{report}");
        }
        let (expected, found): (Vec<_>, Vec<_>) = places.into_iter().unzip();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_name_that_was_meant_is_proposed() {
        let each = |what: &str, text: &str| format!("{{% for e in {what} %}}\na: {text}\n{{% endfor %}}\n");
        for (template, meant) in [
            (each("events", "{{ e.tool_name }}"), Some("e.payload.tool_name")),
            (each("events", "{{ e.paylod.tool_name }}"), Some("e.payload")),
            (each("events", "{{ e.payload.tol_name }}"), Some("e.payload.tool_name")),
            (each("rows", "{{ e.tol_name }}"), Some("e.tool_name")),
            ("a: {{ events[0].paylod }}\n".to_owned(), Some("events[0].payload")),
            ("{{ rows|toon(keys=\"a\") }}\n".to_owned(), Some("key")),
            ("{{ rows|toon(key=\"a\", repeat=false) }}\n".to_owned(), Some("repeats")),
            ("a: {{ events[0].payload.colour }}\n".to_owned(), None),
        ] {
            let report = tried(&template, "");
            let [found] = report.diagnostics() else { panic!("{template}: {report}") };
            assert_eq!(found.nearest.as_deref(), meant, "{report}");
        }
    }

    #[test]
    fn a_column_that_no_example_has_is_doubted() {
        let template = "{{ rows|toon(key=\"r\", columns=[\"tool_name\", \"eror_type\"]) }}\n";
        let report = tried(template, "");
        assert_eq!((report.error_count(), report.warning_count()), (0, 1), "{report}");
        let [found] = report.diagnostics() else { panic!("{report}") };
        assert_eq!(
            (found.place.to_string().as_str(), found.nearest.as_deref()),
            ("templates/x.toon.j2:1:45", Some("error_type"))
        );
        let test = "[[tests]]\nname = \"t\"\nat = [[\"0ms\", \"tool.call.failure\", { tool_name = \"a\", eror_type = 1 }]]\n\
                    expect = [{ at = \"0ms\", decoded = { r = [{ eror_type = 1 }] } }]\n";
        assert_eq!(tried(template, test).to_string(), "", "an example has it");
    }

    #[test]
    fn a_declared_output_is_tried_like_a_template() {
        let table =
            "[output.table]\nkey = \"fails\"\ncolumns = { tool = \"tool_name\", error = \"eror_type\" }\n";
        for (output, place, part, meant) in [
            (
                "[output]\none = \"\"\"\ntool: {{ payload.tool_name }}\nwhy: {{ payload.eror_type }}\n\"\"\"\n",
                "8:9",
                "has a field `eror_type` in its payload",
                Some("payload.error_type"),
            ),
            (table, "7:33", "has a column `error`", Some("error_type")),
            (
                "[output]\none = \"\"\"\na: 1\nb: {{ 1 + payload.tool_name }}\n\"\"\"\n",
                "8:7",
                "output fails with one `tool.call.failure`",
                None,
            ),
            (
                "[output.table]\nkey = \"fails\"\ncolumns = [\"tol_name\"]\n",
                "5:1",
                "no row has a column `tol_name`",
                Some("tool_name"),
            ),
            (
                "[output]\none = 'a: 1'\nmany = '''\nb: 1\nb: {{ events[0].payload.tol_name }}\n'''\n",
                "9:7",
                "output fails with three events",
                Some("events[0].payload.tool_name"),
            ),
            (
                "[output]\nmany = '{{ rows|toon(key=\"r\", columns=[\"tool_name\", \"eror_type\"]) }}'\n",
                "6:53",
                "has a column `eror_type`",
                Some("error_type"),
            ),
            ("[output]\none = \"{{ payload.tool_name }} failed\"\n", "6:7", "text that has no key", None),
            (
                "[output]\none = 'a: {{ payload.tool_name }} {{ payload.tool }}'\n",
                "6:38",
                "has a field `tool` in its payload",
                Some("payload.tool_name"),
            ),
        ] {
            let report = tried_alone(output);
            let [found] = report.diagnostics() else { panic!("{output}: {report}") };
            assert_eq!(found.place.to_string(), format!("subscribers/x.toml:{place}"), "{report}");
            assert!(found.message.contains(part), "{report}");
            assert_eq!(found.nearest.as_deref(), meant, "{report}");
        }
    }

    #[test]
    fn a_sentence_is_tried_like_the_text() {
        let with = |sentence: &str| format!("[output]\ntemplate = \"generic\"\nsentence = {sentence}\n");
        for (sentence, place, part, meant) in [
            (
                "'{{ payload.tool_name }} {{ payload.eror_type }}'",
                "7:40",
                "has a field `eror_type`",
                Some("payload.error_type"),
            ),
            (
                "\"\"\"\n{{ payload.tool_name }}\n  {{ payload.eror_type or source }}\"\"\"",
                "9:6",
                "`eror_type`",
                Some("payload.error_type"),
            ),
            ("'{{ payload.colour }}'", "7:16", "has a field `colour`", None),
            (
                "'{{ payload.tool_name }} {{ payload.tool }}'",
                "7:40",
                "has a field `tool`",
                Some("payload.tool_name"),
            ),
            (
                "'{{ payload.tool_name }}{% if payload.retry %} again{% endif %}'",
                "7:42",
                "`retry`",
                Some("payload.retry_count"),
            ),
        ] {
            let report = tried_alone(&with(sentence));
            let [found] = report.diagnostics() else { panic!("{sentence}: {report}") };
            assert_eq!(found.place.to_string(), format!("subscribers/x.toml:{place}"), "{report}");
            assert!(found.message.contains(part), "{report}");
            assert_eq!(found.nearest.as_deref(), meant, "{report}");
            assert_eq!(report.error_count(), 0, "{report}");
        }
        let intended = "[[tests]]\nname = \"t\"\nat = [[\"0ms\", \"tool.call.failure\", { colour = 1 }]]\n\
                        expect = [{ at = \"0ms\", decoded = {} }]\n";
        let report = tried_alone(&(with("'{{ payload.colour }}'") + intended));
        assert_eq!(report.to_string(), "", "an example has it");
    }

    #[test]
    fn a_failing_sentence_is_an_error_there() {
        let output = "[output]\ntemplate = \"generic\"\nsentence = \"\"\"\n{{ payload.tool_name }}\n{{ 1 + payload.tool_name }}\"\"\"\n";
        let report = tried_alone(output);
        let [found] = report.diagnostics() else { panic!("{report}") };
        assert_eq!(found.place.to_string(), "subscribers/x.toml:9:4", "{report}");
        assert!(found.message.starts_with("sentence fails with one `tool.call.failure`: "), "{report}");
        assert!(
            found.note.as_deref().is_some_and(|note| note.contains("the first values of its text")),
            "{report}"
        );
        let both = "[output]\none = \"a: {{ 1 + payload.tool_name }}\"\nsentence = \"{{ 1 + payload.tool_name }}\"\n";
        assert_eq!(tried_alone(both).error_count(), 2, "a failure of the text hides none of the sentence");
    }

    #[test]
    fn an_inherited_template_leaves_the_sentence_tried() {
        let report = tried("a: {{ count }}\n", "[output]\nsentence = '{{ payload.tol_name }}'\n");
        let [found] = report.diagnostics() else { panic!("{report}") };
        assert_eq!(found.place.to_string(), "subscribers/x.toml:6:16", "{report}");
        assert_eq!(found.nearest.as_deref(), Some("payload.tool_name"), "{report}");
    }

    #[test]
    fn a_test_compares_the_sentence_exactly() {
        let test = |sentence: &str, severity: &str| {
            format!(
                "[output]\none = \"a: {{{{ payload.tool_name }}}}\"\nsentence = \"{{{{ payload.tool_name }}}} failed\"\n\
                 [[tests]]\nname = \"t\"\nat = [[\"0ms\", \"tool.call.failure\", {{ tool_name = \"grep\" }}, {{ severity = \"{severity}\" }}]]\n\
                 expect = [{{ at = \"0ms\", decoded = {{ a = \"grep\" }}, sentence = {sentence} }}]\n"
            )
        };
        for (sentence, severity, part) in [
            ("\"grep failed\"", "error", None),
            ("\"critical: grep failed\"", "critical", None),
            ("\"grep\"", "error", Some("`sentence` is \"grep failed\", expected \"grep\"")),
            ("7", "error", Some("`sentence` must be a string")),
        ] {
            let report = tried_alone(&test(sentence, severity)).to_string();
            assert!(part.map_or(report.is_empty(), |part| report.contains(part)), "{sentence}: {report}");
        }
    }

    #[test]
    fn nothing_is_found_in_copies_of_what_ships() {
        let shipped = Sources::shipped_with_tests();
        let copies =
            shipped.files().iter().filter(|file| *file.name != *"aside.toml").map(|file| SourceFile {
                layer: LayerKind::User,
                name: Arc::clone(&file.name),
                path: Arc::clone(&file.name),
                text: (&*file.text).into(),
            });
        let sources = Sources::shipped().with(copies, []);
        let compiled = compile(&sources, &[]);
        let found = findings(&sources, &compiled);
        assert_eq!(compiled.report.with(found).to_string(), "");
    }

    #[test]
    fn a_text_without_a_key_is_doubted() {
        for template in ["{\"a\": 1}\n", "something failed\n"] {
            let report = tried(template, "");
            assert_eq!((report.error_count(), report.warning_count()), (0, 1), "{report}");
            assert!(report.to_string().contains("text that has no key"), "{report}");
        }
    }

    #[test]
    fn template_examples_include_test_events_passing_the_filter() {
        let template = "a: {{ events[0].payload.own }}\n";
        let test = "[[tests]]\nname = \"t\"\nat = [[\"0ms\", \"tool.call.failure\", { own = 1 }]]\n\
                    expect = [{ at = \"0ms\", decoded = { a = 1 } }]\n";
        assert_eq!(tried(template, "").error_count(), 1, "the catalogue's example lacks it");
        let filtered = format!("where = \"payload.own is defined\"\n{test}");
        assert_eq!(tried(template, &filtered).to_string(), "");
    }

    #[test]
    fn failing_or_ineffective_subscriber_test_is_an_error() {
        let test = |at: &str, expect: &str| {
            format!(
                "[[tests]]\nname = \"t\"\nat = [[\"0ms\", \"{at}\", {{ tool_name = \"grep\" }}]]\nexpect = {expect}\n"
            )
        };
        let failure = "tool.call.failure";
        for (at, expect, part) in [
            (failure, "[{ at = \"0ms\", decoded = { a = \"grep\" } }]", None),
            (failure, "[]", Some("test `t` fails: expected no notification, made 1: at 0s: a: grep")),
            (
                failure,
                "[{ at = \"2s\", decoded = {} }]",
                Some("expected 1 notification at 2s, made 1: at 0s: a: grep"),
            ),
            (
                failure,
                "[{ at = \"0ms\", decoded = { a = \"sed\" } }]",
                Some("at 0s, notification 1: `a` is \"grep\", expected \"sed\""),
            ),
            ("tool.call.falure", "[]", Some("`x` does not match `tool.call.falure`, so it has no effect")),
        ] {
            let report = tried("a: {{ events[0].payload.tool_name }}\n", &test(at, expect));
            match (report.diagnostics(), part) {
                ([], None) => {}
                ([found], Some(part)) => assert!(found.message.contains(part), "{report}"),
                _ => panic!("{at} {expect}: {report}"),
            }
        }
    }

    #[test]
    fn subscriber_test_can_expect_user_notices() {
        let template = "{{ notify(\"failed: \" ~ events[0].payload.tool_name, level=\"warn\") }}\na: 1\n";
        let test = |notices: &str| {
            format!(
                "[[tests]]\nname = \"t\"\nat = [[\"0ms\", \"tool.call.failure\", {{ tool_name = \"grep\" }}]]\n\
                 expect = [{{ at = \"0ms\", decoded = {{ a = 1 }}{notices} }}]\n"
            )
        };
        for (notices, part) in [
            ("", None),
            (", notices = [\"failed: grep\"]", None),
            (", notices = [{ message = \"failed: grep\", level = \"warn\" }]", None),
            (", notices = []", Some("`notices` is 1 item, expected 0 items")),
            (
                ", notices = [\"failed: sed\"]",
                Some("`notices[0].message` is \"failed: grep\", expected \"failed: sed\""),
            ),
            (
                ", notices = [{ link = \"https://h/\" }]",
                Some("`notices[0].link` is nothing, expected \"https://h/\""),
            ),
            (", notices = [{ text = \"x\" }]", Some("unknown key")),
            (", notices = [7]", Some("a text or a table")),
        ] {
            let report = tried(template, &test(notices)).to_string();
            assert!(part.map_or(report.is_empty(), |part| report.contains(part)), "{notices}: {report}");
        }
        let report = tried("a: 1{{ notify(events[0].payload.paylod) }}\n", "").to_string();
        assert!(report.contains("template fails with "), "{report}");
        let report = tried("a: 1{{ notfy(\"x\") }}\n", "").to_string();
        assert!(report.contains("notfy"), "{report}");
    }

    #[test]
    fn uncompilable_template_gives_exactly_one_error() {
        let report = tried("a: {{ count\n", "");
        assert_eq!((report.error_count(), report.warning_count()), (1, 0), "{report}");
        let report = tried("a: {{ count\n", "[output]\ntemplate = \"x\"\n");
        assert_eq!((report.error_count(), report.warning_count()), (1, 0), "{report}");
    }

    #[test]
    fn an_unused_template_has_a_hint() {
        let report = tried("a: {{ count }}\n", "[output]\ntemplate = \"generic\"\n").to_string();
        assert!(report.contains("no subscriber uses the template `x.toon.j2`"), "{report}");
        assert!(report.contains("`output.template` in subscribers/x.toml is the text of `x`"), "{report}");
        let file = |name: &str| SourceFile {
            layer: LayerKind::User,
            name: name.into(),
            path: name.into(),
            text: "a: {{ count }}\n".into(),
        };
        for (name, part) in [
            ("templates/tool_failur.toon.j2", Some("a subscriber uses the template named like its id")),
            ("templates/tool_failure.toon.j2", None),
        ] {
            let sources = Sources::shipped().with([file(name)], []);
            let compiled = compile(&sources, &[]);
            let report = compiled.report.clone().with(findings(&sources, &compiled)).to_string();
            assert!(part.map_or(report.is_empty(), |part| report.contains(part)), "{name}: {report}");
        }
    }
}

//! Libraries of macros: `tests/libraries` is a layer that uses them in every text.

use std::collections::BTreeMap;

use aside::config::{
    compile::compile,
    layers::{LayerKind, Sources},
    lints::report::{Denied, report},
    load::read_layers,
    text::Text,
};
use engine::{
    event::catalogue,
    pipeline::render::{EventText, Libraries},
};
use serde_json::Value;

use crate::support::rules::with_user_sources;

fn checked(sources: &Sources) -> String {
    let types: Vec<_> = catalogue::types().map(|entry| entry.event_type.as_str()).collect();
    report(sources, &compile(sources, &types), &Denied::default()).to_string()
}

fn layer() -> Sources {
    read_layers(&[(LayerKind::User, "tests/libraries".into())])
}

#[test]
fn macros_of_libraries_are_used_in_every_text() {
    assert_eq!(checked(&layer()), "");
    let macros = layer().files().iter().map(|file| file.text.matches("{% macro ").count()).sum::<usize>();
    assert!(macros >= 10, "{macros} macros");
}

#[test]
fn a_bundle_has_the_libraries_of_its_rules() {
    let sources = layer();
    let bundle = sources.to_bundle();
    let listed: Value = serde_json::from_str(&bundle).expect("JSON");
    let hashes =
        listed["files"].as_array().expect("a list").iter().filter_map(|file| file["sha256"].as_str());
    let texts: BTreeMap<&str, &Text> = hashes.zip(sources.files().iter().map(|file| &file.text)).collect();
    let text_of = |sha256: &str| texts.get(sha256).map(|text| Text::clone(text));
    let again = Sources::from_bundle(bundle.as_bytes(), text_of).expect("a bundle");
    assert_eq!((again.hash(), checked(&again)), (sources.hash(), String::new()));
}

#[test]
fn a_text_is_another_one_with_another_library() {
    let text = |library: &str| {
        let libraries: Libraries = [("lib/a".into(), library.into())].into_iter().collect();
        EventText::compile("{% from 'lib/a' import x %}a: {{ x() }}", &libraries).expect("a text")
    };
    let one = "{% macro x() %}1{% endmacro %}";
    assert_eq!(text(one), text(one));
    assert_ne!(text(one), text("{% macro x() %}2{% endmacro %}"));
}

const SUBSCRIBER: &str = "subscriber.id = \"x\"\nevents.types = [\"tool.call.failure\"]\n";
const A: &str = "templates/lib/a.toon.j2";
const X: &str = "templates/x.toon.j2";
/// A library with one macro.
const MACRO: &str = "{% macro m(v) %}{{ v }}{% endmacro %}\n";

#[test]
fn mistakes_with_libraries_are_found_in_place() {
    let many = "{% from \"lib/a\" import m %}\n".repeat(33) + "a: 1\n";
    let takes = |name: &str| format!("{{% from \"lib/{name}\" import m %}}\n");
    for (files, place, part) in [
        (
            vec![(X, takes("b") + "a: 1\n"), (A, MACRO.into())],
            "x.toon.j2:1:9",
            "no library `lib/b`; did you mean `lib/a`?",
        ),
        (
            vec![(X, "{% from \"x\" import m %}a: 1".into())],
            "x.toon.j2:1:9",
            "macros are taken from a library",
        ),
        (vec![(X, "{% from n import m %}a: 1".into())], "x.toon.j2:1:9", "a literal text"),
        (
            vec![(X, "{% from \"lib/a\" import n %}a: 1".into()), (A, MACRO.into())],
            "x.toon.j2:1:24",
            "`lib/a` has no macro `n`; did you mean `m`?",
        ),
        (
            vec![(X, "{% if true %}{% from \"lib/a\" import m %}{% endif %}a: 1".into()), (A, MACRO.into())],
            "x.toon.j2:1:17",
            "at the top of a template",
        ),
        (vec![(X, "{% include \"lib/a\" %}".into())], "x.toon.j2:1:4", "macros come from a library"),
        (
            vec![(X, "a: 1\n".into()), (A, "{% macro m() %}{{ events }}{% endmacro %}".into())],
            "a.toon.j2:1:19",
            "sees only its arguments",
        ),
        (
            vec![(X, "a: 1\n".into()), (A, format!("{MACRO}a: 1\n"))],
            "a.toon.j2:1:38",
            "a library has only macros",
        ),
        (
            vec![(X, "a: 1\n".into()), (A, format!("{MACRO}{{% set b = 1 %}}\n"))],
            "a.toon.j2:2:4",
            "a library has only macros",
        ),
        (
            vec![(X, "a: 1\n".into()), (A, takes("a") + MACRO)],
            "a.toon.j2:1:9",
            "`lib/a` takes macros from itself: lib/a -> lib/a",
        ),
        (vec![(X, many), (A, MACRO.into())], "x.toon.j2:33:9", "at most 32 `from` and `import`"),
        (vec![(X, takes("a") + "a: 1\n"), (A, MACRO.into())], "", ""),
        (
            vec![(X, "a: 1\n".into()), (A, MACRO.into())],
            "a.toon.j2:1:1",
            "no text in use takes a macro of the library `lib/a`",
        ),
        (
            vec![(X, "a: 1\n".into()), ("templates/lib/a.j2", MACRO.into())],
            "lib/a.j2",
            "the name of a template ends in .toon.j2",
        ),
        (
            vec![(X, "{% from \"lib/a\" import m %}\na: {{ m([1]) }}\n".into()), (A, MACRO.into())],
            "x.toon.j2:1:9",
            "in `lib/a`, line 1: ",
        ),
    ] {
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let files: Vec<_> = files.into_iter().chain([("subscribers/x.toml", SUBSCRIBER)]).collect();
        let report = checked(&with_user_sources(&files));
        assert!(report.contains(part) && report.contains(place), "{files:?}: {report}");
        assert_eq!(report.matches("--> ").count(), usize::from(!part.is_empty()), "{files:?}: {report}");
    }
}

#[test]
fn libraries_are_at_most_three_deep() {
    let takes = |name: &str| format!("{{% from \"lib/{name}\" import m %}}\n");
    let deeper = |count: usize| {
        let names = ["a", "b", "c", "d"];
        let files = names.iter().take(count).enumerate().map(|(index, name)| {
            let inner = names.get(index + 1).filter(|_| index + 1 < count);
            let text =
                inner.map(|inner| format!("{{% import \"lib/{inner}\" as own %}}\n")).unwrap_or_default();
            (format!("templates/lib/{name}.toon.j2"), text + MACRO)
        });
        let template = (X.to_owned(), takes("a") + "a: {{ m(count) }}\n");
        let files: Vec<_> =
            files.chain([template, ("subscribers/x.toml".into(), SUBSCRIBER.into())]).collect();
        let files: Vec<_> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
        checked(&with_user_sources(&files))
    };
    assert_eq!(deeper(3), "");
    let report = deeper(4);
    assert!(
        report.contains("libraries are at most 3 deep, and this is lib/a -> lib/b -> lib/c -> lib/d"),
        "{report}"
    );
}

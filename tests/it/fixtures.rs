//! Fixtures in `[[tests]]`: saved events that a test names.

use aside::config::{
    compile::compile,
    layers::{LayerKind, SourceFile, Sources},
    trial,
};

/// The findings about a subscriber whose test has the step `step`, with fixtures named `failed`.
fn found(step: &str, fixtures: &[(LayerKind, &str)]) -> String {
    let subscriber = format!(
        "subscriber.id = \"x\"\nbatching.window_ms = 0\nevents.types = [\"ci.*\"]\n\
         output.one = \"n: {{{{ payload.n }}}}\"\n[[tests]]\nname = \"t\"\nat = [{step}]\n\
         expect = [{{ at = \"1s\", text = \"n: 1\" }}, {{ at = \"1s\", text = \"n: 2\" }}]\n"
    );
    let file = |layer, name: &str, text: &str| SourceFile {
        layer,
        name: name.into(),
        path: format!("{layer}:{name}").into(),
        text: text.into(),
    };
    let fixtures = fixtures.iter().map(|(layer, text)| file(*layer, "fixtures/failed.json", text));
    let files = fixtures.chain([file(LayerKind::User, "subscribers/x.toml", &subscriber)]);
    let sources = Sources::shipped().with(files, []);
    let compiled = compile(&sources, &[]);
    let tried = trial::findings(&sources, &compiled);
    compiled.report.with(tried).to_string()
}

#[test]
fn test_takes_events_of_the_nearest_layers_fixture() {
    let (user, system) = (LayerKind::User, LayerKind::System);
    let two = r#"[{"type":"ci.a","payload":{"n":1}},{"type":"ci.b","payload":{"n":2}}]"#;
    let one = r#"{"type":"ci.a","payload":{"n":3}}"#;
    let step = "[\"1s\", \"@failed\"]";
    assert_eq!(found(step, &[(user, two)]), "");
    assert_eq!(found(step, &[(system, two)]), "");
    let shadowed = found(step, &[(system, one), (user, two)]);
    assert!(
        shadowed.contains("no test uses the fixture `failed`, which a later layer replaces"),
        "{shadowed}"
    );
}

#[test]
fn fixture_for_previews_alone_is_used() {
    let event = |event_type: &str| format!("{{\"type\":\"{event_type}\",\"payload\":{{\"n\":1}}}}");
    let steps = "[\"1s\", \"ci.a\", { n = 1 }], [\"1s\", \"ci.a\", { n = 2 }]";
    assert_eq!(found(steps, &[(LayerKind::User, &event("ci.b"))]), "");
    let other = found(steps, &[(LayerKind::User, &event("nobody.takes.this"))]);
    assert!(
        other.contains("no test uses the fixture `failed`, and no subscriber takes its events"),
        "{other}"
    );
}

#[test]
fn wrong_fixtures_and_names_are_found_in_place() {
    let two = r#"[{"type":"ci.a","payload":{"n":1}},{"type":"ci.b","payload":{"n":2}}]"#;
    for (step, fixture, part, place) in [
        ("[\"1s\", \"@faild\"]", two, "did you mean `@failed`?", "user:subscribers/x.toml:7:14"),
        ("[\"1s\", \"@failed\", {}]", two, "a fixture is named alone", "user:subscribers/x.toml:7:25"),
        ("[\"1s\", \"ci.a\"]", two, "[\"0s\", \"@name\"]", "user:subscribers/x.toml:7:7"),
        ("[\"1s\", \"@failed\"]", "{\"typ\":1}", "did you mean `type`?", "user:fixtures/failed.json:1:2"),
    ] {
        let report = found(step, &[(LayerKind::User, fixture)]);
        assert!(report.contains(part) && report.contains(place), "{step}: {report}");
        assert_eq!(report.matches("error: ").count(), 1, "{step}: {report}");
    }
}

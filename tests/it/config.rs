//! The messages of the configuration about files: `tests/config/` has the files, `tests/snapshots/`
//! the expected messages.
//!
//! `ok_*.toml` have no findings, `warn_*.toml` only warnings, `err_*.toml` at least one error.
//! Files with `_aside` in their name are settings, those with `_events` are additions to the
//! catalogue, and the others are subscribers. `many/` is a set of layers.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use aside::{
    config::{
        compile::{Compiled, compile},
        layers::{LayerKind, SourceFile, Sources, Unreadable},
        load::read_layers,
        text,
        trial::findings,
    },
    daemon::rules::RulesStore,
};
use engine::{
    event::{Severity, catalogue::OwnSeverities},
    notification::InjectionPoint,
    pipeline::rule::{Activity, BatchMode},
};

const KNOWN_TYPES: [&str; 5] =
    ["ci.check.failed", "ci.check.passed", "git.commit.created", "tool.call.failure", "tool.call.timeout"];
const TEMPLATE: &str = "tool_fail: {{ rows | length }}\n";

#[test]
fn files_without_mistakes_have_nothing_said_about_them() {
    for stem in stems("ok_") {
        let compiled = compile_case(&stem);
        assert_eq!(compiled.report.to_string(), "", "{stem}");
        assert_eq!(compiled.rules.subscribers.len(), 2, "{stem}: its own and the shipped core one");
    }
}

#[test]
fn every_config_mistake_is_reported_at_its_place() {
    let stems = stems("err_");
    assert!(stems.len() >= 30, "{} cases", stems.len());
    for stem in stems {
        let compiled = compile_case(&stem);
        assert!(compiled.report.error_count() > 0, "{stem}");
        assert_eq!(compiled.rules.subscribers.len(), 1, "{stem}: only the shipped core one");
        check(&stem, &compiled);
    }
}

#[test]
fn doubtful_config_warns_but_is_used() {
    for stem in stems("warn_") {
        let compiled = compile_case(&stem);
        assert_eq!(compiled.report.error_count(), 0, "{stem}");
        assert!(compiled.report.warning_count() > 0, "{stem}");
        check(&stem, &compiled);
    }
}

#[test]
fn the_smallest_files_get_every_default() {
    let subscriber = |stem: &str, id: &str| {
        let rules = compile_case(stem).rules;
        let found = rules.subscribers.iter().find(|subscriber| subscriber.id.as_str() == id);
        format!("{:#?}", found.expect("the subscriber"))
    };
    snapshot("ok_minimal", &subscriber("ok_minimal", "tool_failure"));
    snapshot("ok_almost_empty", &subscriber("ok_almost_empty", "ci_check"));
}

#[test]
fn the_example_of_the_format_is_read_whole() {
    let compiled = compile_case("ok_full");
    let subscriber =
        compiled.rules.subscribers.iter().find(|subscriber| subscriber.id.as_str() == "tool_failure");
    let subscriber = subscriber.expect("the subscriber");
    assert_eq!(subscriber.activity, Activity::Core);
    assert!(subscriber.condition.is_some());
    assert_eq!(subscriber.batching.mode, BatchMode::Debounce { max_wait: Duration::from_secs(20) });
    assert_eq!(subscriber.ttl, Some(Duration::from_secs(30 * 60)));
    assert_eq!(subscriber.output.inject_at, InjectionPoint::AfterTool);
    snapshot("ok_full_tests", &format!("{:#?}", compiled.tests.get(&subscriber.id)));
}

#[test]
fn table_columns_keep_the_order_of_the_file() {
    let rules = compile_case("ok_layout").rules;
    let rule = rules.subscribers.iter().find(|rule| rule.id.as_str() == "layout").expect("the subscriber");
    snapshot("ok_layout", &format!("{:#?}", rule.output.layout));
}

#[test]
fn declared_custom_event_type_is_known() {
    let subscriber = "[subscriber]\nid = \"queue\"\n[events]\ntypes = [\"queue.job.*\"]\n";
    let alone = sources("subscribers/queue.toml", subscriber);
    assert_eq!(compile(&alone, &KNOWN_TYPES).report.warning_count(), 1);
    let events =
        "[[event]]\ntype = \"queue.job.failed\"\nseverity = \"warn\"\nexample = { job = \"mail\" }\n";
    let named = alone.with([file(LayerKind::System, "events.toml", events)], []);
    let compiled = compile(&named, &KNOWN_TYPES);
    assert_eq!(compiled.report.to_string(), "");
    assert_eq!(compiled.events[0].example.as_str(), r#"{"job":"mail"}"#);
    let severities = OwnSeverities::new(&compiled.events);
    let defaults = ["queue.job.failed", "tool.call.failure", "other.type"];
    let defaults = defaults.map(|event_type| severities.default_severity(event_type));
    assert_eq!(defaults, [Severity::Warning, Severity::Error, Severity::Info]);
}

#[test]
fn every_template_name_form_finds_the_same_file() {
    let minimal = read(Path::new("tests/config/ok_minimal.toml"));
    for written in
        ["templates/tool_failure.toon.j2", "tool_failure.toon.j2", "tool_failure", "templates/tool_failure"]
    {
        let text = minimal.replace("templates/tool_failure.toon.j2", written);
        let compiled = compile(&sources("subscribers/x.toml", &text), &KNOWN_TYPES);
        assert_eq!(compiled.report.to_string(), "", "{written}");
        let names: Vec<_> =
            compiled.rules.subscribers.iter().map(|one| one.output.layout.template()).collect();
        assert_eq!(names, [None, Some("tool_failure.toon.j2")], "{written}");
    }
}

#[test]
fn all_mistakes_are_reported_and_valid_files_used() {
    let folder = |name: &str| Path::new("tests/config/many").join(name);
    let folders = [(LayerKind::System, folder("system")), (LayerKind::User, folder("user"))];
    let layers = read_layers(&folders);
    let compiled = compile(&layers, &[]);
    check("many", &compiled);

    let names: Vec<_> =
        compiled.rules.subscribers.iter().map(|one| (one.id.as_str(), one.name.as_str())).collect();
    for used in [("ci", "the system's"), ("good", "good"), ("shared", "the user's")] {
        assert!(names.contains(&used), "{used:?} is not in {names:?}");
    }
    assert!(compiled.rules.templates.contains("ci.toon.j2"));
    assert_eq!(compiled.rules.injection.max_tokens.0, 500);
    assert_eq!(compiled.rules.injection.lease, Duration::from_secs(20 * 60));
    let origin = |key: &str| compiled.origins.get(key).map(|path| &**path);
    assert_eq!(origin("injection.max_tokens"), Some("tests/config/many/user/aside.toml"));
    assert_eq!(origin("injection.lease"), Some("tests/config/many/system/aside.toml"));
    assert_eq!(origin("injection.format"), Some("shipped:aside.toml"));

    let state = tempfile::tempdir().expect("a folder");
    let store = RulesStore::new(state.path());
    let hash = store.keep(&layers).expect("kept");
    let replayed = compile(&store.sources(&hash).expect("there"), &[]);
    assert_eq!(replayed.rules.hash, compiled.rules.hash);
    assert_eq!(replayed.report.error_count(), compiled.report.error_count());
    assert_eq!(format!("{:?}", replayed.rules.subscribers), format!("{:?}", compiled.rules.subscribers));
}

#[test]
fn truncated_file_is_used_or_reported() {
    let whole = read(Path::new("tests/config/ok_full.toml"));
    for end in (0..whole.len()).step_by(5) {
        let compiled = compile(&sources("subscribers/x.toml", &whole[..end]), &KNOWN_TYPES);
        let is_used = compiled.rules.subscribers.len() == 2;
        assert_eq!(is_used, compiled.report.error_count() == 0, "cut at {end}");
        assert_eq!(compiled.report.to_string().is_empty(), compiled.report.diagnostics().is_empty());
    }
}

#[test]
fn a_report_says_the_same_to_programs() {
    let json = compile_case("err_unknown_key").report.to_json();
    snapshot("err_unknown_key_json", &serde_json::to_string_pretty(&json).expect("JSON"));
}

#[test]
fn unreadable_file_is_reported() {
    let unreadable = Unreadable {
        layer: LayerKind::System,
        name: "aside.toml".into(),
        path: "/etc/aside/aside.toml".into(),
        why: "permission denied".to_owned(),
        bad_byte: None,
    };
    let compiled = compile(&Sources::shipped().with([], [unreadable]), &[]);
    let expected = "error: file cannot be read: permission denied\n--> /etc/aside/aside.toml\n";
    assert_eq!(compiled.report.to_string(), expected);
}

#[test]
fn every_shipped_file_is_embedded_and_valid() {
    let mut on_disk = Vec::new();
    for folder in ["subscribers", "templates"] {
        walk(Path::new(folder), &mut on_disk);
    }
    let mut wanted: Vec<_> = on_disk.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    wanted.sort_unstable();
    let mut shipped: Vec<_> = text::FILES.iter().map(|(name, _)| *name).collect();
    shipped.retain(|name| *name != "aside.toml");
    shipped.sort_unstable();
    assert_eq!(shipped, wanted);
    for sources in [Sources::shipped(), Sources::shipped_with_tests()] {
        assert_eq!(compile(&sources, &[]).report.to_string(), "");
        assert_eq!(checked(&sources, |text| text.to_owned()), "", "what a start leaves to its first use");
        for (begin, fault) in [
            ("where = \"", "absent_name and "),
            ("one = \"\"\"", "{{ absent_name }}"),
            ("sentence = '''", "{{ absent_name }}"),
        ] {
            let planted = checked(&sources, |text| text.replace(begin, &format!("{begin}{fault}")));
            assert!(planted.contains("absent_name"), "a fault after `{begin}` is not seen: {planted}");
        }
    }
}

/// What is wrong with the files that ship, read and checked as those of a user are.
fn checked(sources: &Sources, edit: impl Fn(&str) -> String) -> String {
    let files = sources.files().iter();
    let files = files.map(|file| SourceFile { text: edit(&file.text).into(), ..file.clone() });
    compile(&Sources::new(files), &[]).report.to_string()
}

#[test]
fn shipped_rules_omit_only_the_tests() {
    let mut count = 0;
    for (&(name, text), (of_rules, rules)) in text::FILES.iter().zip(text::rules()) {
        assert_eq!(name, of_rules);
        let left = text.strip_prefix(rules).expect("the rules are the file's beginning");
        let left: toml::Table = left.parse().expect("whole tables");
        count += left.get("tests").map_or(0, |tests| tests.as_array().map_or(0, Vec::len));
        assert!(left.keys().all(|key| key == "tests"), "{name}: {left}");
    }
    assert!(count >= 36, "{count} tests");
}

fn stems(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir("tests/config").expect("the folder of cases");
    let mut stems: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .filter(|stem| stem.starts_with(prefix))
        .collect();
    stems.sort_unstable();
    stems
}

/// Compiles one case in the user's layer, above a layer with a core subscriber and a valid
/// template.
fn compile_case(stem: &str) -> Compiled {
    let kind = if stem.contains("_aside") {
        "aside.toml".to_owned()
    } else if stem.contains("_events") {
        "events.toml".to_owned()
    } else {
        format!("subscribers/{stem}.toml")
    };
    let text = read(&Path::new("tests/config").join(format!("{stem}.toml")));
    let broken = match stem {
        "err_template_broken" => vec![("templates/broken.toon.j2", "x: {{ count\n")],
        "err_template_escape" => vec![("templates/escape.toon.j2", "\u{1b}[2J{{ count | }}\n")],
        _ => Vec::new(),
    };
    let broken = broken.into_iter().map(|(name, text)| file(LayerKind::System, name, text));
    let sources = sources(&kind, &text).with(broken, []);
    let compiled = compile(&sources, &KNOWN_TYPES);
    // A dry run of the same files ends, whatever they hold.
    findings(&sources, &compiled);
    compiled
}

fn sources(name: &str, text: &str) -> Sources {
    let core = "[subscriber]\nid = \"shipped_core\"\n[events]\ntypes = [\"**\"]\n[output]\ncore = true\n";
    Sources::new([
        file(LayerKind::Shipped, "subscribers/core.toml", core),
        file(LayerKind::Shipped, "templates/tool_failure.toon.j2", TEMPLATE),
        file(LayerKind::User, name, text),
    ])
}

fn file(layer: LayerKind, name: &str, text: &str) -> SourceFile {
    SourceFile { layer, name: name.into(), path: format!("{layer}/{name}").into(), text: text.into() }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path()).collect();
    entries.sort_unstable();
    for path in entries {
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}

fn check(stem: &str, compiled: &Compiled) {
    snapshot(stem, &compiled.report.to_string());
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("config__{name}"), text));
}

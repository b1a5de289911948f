//! What is generated from the rows of `settings!`, which describe the keys of files:
//! `config/aside.toml`, a JSON schema of each kind of file, and the tables in docs/reference.md.
//!
//! `ASIDE_BLESS=1 cargo test --test it -- keys` writes the files.

mod reference;
mod text;
mod valid;

use std::{env, fs, path::Path};

use aside::config::{
    compile::compile,
    keys,
    layers::{LayerKind, SourceFile, Sources},
    schema::{events_schema, settings_schema, subscriber_schema},
};
use engine::event::catalogue;
use serde_json::Value;

use self::{
    reference::topic_tables,
    text::{COLUMNS, key_tables, settings_file},
    valid::faults,
};

const SETTINGS: &str = "config/aside.toml";
const SETTINGS_SCHEMA: &str = "config/aside.schema.json";
const SUBSCRIBER_SCHEMA: &str = "config/subscriber.schema.json";
const DOCUMENT: &str = "docs/reference.md";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default()
}

/// Compares a file with its generated text, or writes it.
fn check(path: &str, expected: &str) {
    if env::var_os("ASIDE_BLESS").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), expected).expect("written");
    } else {
        assert_eq!(read(path), expected, "ASIDE_BLESS=1 writes {path}");
    }
}

/// The types of the catalogue.
fn types() -> Vec<&'static str> {
    catalogue::types().map(|entry| entry.event_type.as_str()).collect()
}

fn json(schema: &Value) -> String {
    format!("{schema:#}\n")
}

#[test]
fn the_settings_file_is_generated_from_the_rows() {
    check(SETTINGS, &settings_file(&keys::settings()));
}

#[test]
fn the_schemas_are_generated_from_the_rows() {
    check(SETTINGS_SCHEMA, &json(&settings_schema(&keys::settings())));
    check(SUBSCRIBER_SCHEMA, &json(&subscriber_schema(&keys::subscriber(), &types())));
}

#[test]
fn event_types_fit_their_schema() {
    let schema = events_schema();
    check("config/events.schema.json", &json(&schema));
    let own = "[[event]]\ntype = \"a.b\"\nseverity = \"warn\"\ndescription = \"x\"\nexample = { n = 1 }\n";
    assert_eq!(faults_of(&schema, own), Vec::<String>::new());
    for (text, part) in [
        ("[[event]]\nseverity = \"info\"\n", "type is missing"),
        ("[[event]]\ntype = \"a\"\n", "pattern"),
        ("[[event]]\ntype = \"a.b\"\nseverity = \"high\"\n", "severity"),
        ("[[event]]\ntype = \"a.b\"\nexampel = {}\n", "exampel"),
        ("[[events]]\n", "events"),
    ] {
        let faults = faults_of(&schema, text);
        assert!(faults.iter().any(|fault| fault.contains(part)), "{text}: {faults:?}");
    }
}

#[test]
fn the_reference_is_generated_from_the_rows() {
    let with_keys = key_tables(&read(DOCUMENT), &keys::subscriber());
    check(DOCUMENT, &topic_tables(&with_keys));
}

/// The settings file, in which the keys without a default are in force.
fn all_keys() -> String {
    let file = settings_file(&keys::settings());
    file.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n").collect()
}

#[test]
fn settings_file_has_short_lines_and_valid_examples() {
    let file = SourceFile {
        layer: LayerKind::User,
        name: "aside.toml".into(),
        path: "aside.toml".into(),
        text: all_keys().into(),
    };
    assert_eq!(compile(&Sources::shipped().with([file], []), &[]).report.to_string(), "");
    let file = settings_file(&keys::settings());
    assert_eq!(file.lines().find(|line| line.chars().count() > COLUMNS), None);
}

/// The faults of a TOML text.
fn faults_of(schema: &Value, text: &str) -> Vec<String> {
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
    faults(schema, &serde_json::to_value(table).expect("TOML without dates is JSON"), "")
}

/// The TOML files in a folder whose names begin with one of `begins`, with their texts.
fn files(folder: &str, begins: &[&str]) -> Vec<(String, String)> {
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let is_wanted =
        |name: &String| name.ends_with(".toml") && begins.iter().any(|begin| name.starts_with(begin));
    let with_text = |name: String| {
        let text = read(&format!("{folder}/{name}"));
        (name, text)
    };
    names.filter(is_wanted).map(with_text).collect()
}

#[test]
fn valid_files_fit_their_schemas() {
    let [settings, subscriber] =
        [settings_schema(&keys::settings()), subscriber_schema(&keys::subscriber(), &types())];
    assert_eq!(faults_of(&settings, &read(SETTINGS)), Vec::<String>::new());
    assert_eq!(faults_of(&settings, &all_keys()), Vec::<String>::new());
    let mut count = 0;
    for folder in ["subscribers", "tests/four_section/subscribers", "tests/config"] {
        let begins: &[&str] = if folder == "tests/config" { &["ok_", "warn_"] } else { &[""] };
        for (name, text) in files(folder, begins).iter().filter(|(name, _)| !name.contains("_events")) {
            let schema = if name.contains("_aside") { &settings } else { &subscriber };
            assert_eq!(faults_of(schema, text), Vec::<String>::new(), "{folder}/{name}");
            count += 1;
        }
    }
    assert!(count > 50, "{count} files");
}

#[test]
fn schemas_refuse_unknown_keys_and_wrong_values() {
    let [settings, subscriber] =
        [settings_schema(&keys::settings()), subscriber_schema(&keys::subscriber(), &types())];
    for table in keys::settings() {
        let (open, close) = if table.is_list { ("[[", "]]") } else { ("[", "]") };
        let faults = faults_of(&settings, &format!("{open}{}{close}\nno_such_key = 1\n", table.name));
        assert!(faults.iter().any(|fault| fault.contains("no_such_key")), "{}: {faults:?}", table.name);
    }
    for table in keys::subscriber() {
        let faults = faults_of(&subscriber, &format!("[{}]\nno_such_key = 1\n", table.name));
        assert!(faults.iter().any(|fault| fault.contains("no_such_key")), "{}: {faults:?}", table.name);
    }
    for (schema, text, part) in [
        (&settings, "[no_such_table]\n", "no_such_table"),
        (&settings, "[injection]\nmax_tokens = 5\n", "max_tokens"),
        (&settings, "[journal]\ninterval = \"5\"\n", "interval"),
        (&settings, "[journal]\nretain_age = 5\n", "retain_age"),
        (&settings, "[sinks]\ndefault = [\"lg\"]\n", "default"),
        (&settings, "[[sources.log]]\npath = \"x\"\n", "match"),
        (&subscriber, "[events]\ntypes = [\"a.b\"]\n", "subscriber"),
        (&subscriber, "[subscriber]\nid = \"a\"\n", "events"),
        (&subscriber, "[subscriber]\nid = \"a\"\n[events]\ntypes = []\n", "types"),
        (&subscriber, "[subscriber]\nid = \"a\"\ninherit = true\n[output]\npriority = \"hi\"\n", "priority"),
        (&subscriber, "[subscriber]\nid = \"a\"\ninherit = true\n[limits]\nretain = 5\n", "retain"),
        (&subscriber, "[subscriber]\nid = \"a\"\ninherit = true\n[[tests]]\nname = \"x\"\n", "tests"),
    ] {
        let faults = faults_of(schema, text);
        assert!(faults.iter().any(|fault| fault.contains(part)), "{text}: {faults:?}");
    }
}

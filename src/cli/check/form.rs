//! The forms of the findings of `aside check` for CI services.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::config::{
    lints::{LINTS, LintLevel},
    report::{Diagnostic, Level, Place, Report},
};

/// The rule of a finding without a lint.
const MISTAKE: &str = "mistake";

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// For people
    Text,
    /// An array of findings
    Json,
    /// Annotations of GitHub Actions
    Github,
    /// SARIF 2.1.0
    Sarif,
}

/// Each finding as a workflow command.
pub(super) fn github(report: &Report) -> String {
    let mut text = String::new();
    for found in report.diagnostics() {
        let Diagnostic { level, place, .. } = found;
        let (line, column) = (place.line(), place.column());
        let file = property(path(place));
        let rule = rule(found);
        let message = data(&message(found));
        let level = level.as_str();
        writeln!(text, "::{level} file={file},line={line},col={column},title={rule}::{message}").ok();
    }
    text
}

/// A value of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

fn rule(found: &Diagnostic) -> &'static str {
    found.lint.map_or(MISTAKE, |lint| lint.as_str())
}

/// The message with its advice, in one line.
fn message(found: &Diagnostic) -> String {
    let nearest = found.nearest.iter().map(|nearest| format!("did you mean `{nearest}`?"));
    let note = found.note.clone();
    [found.message.clone()].into_iter().chain(nearest).chain(note).collect::<Vec<_>>().join("; ")
}

/// The findings as a log of one run.
pub(super) fn sarif(report: &Report) -> Value {
    let lints = LINTS.iter().map(|lint| {
        let level = match lint.level {
            LintLevel::Refused | LintLevel::Error => "error",
            LintLevel::Warning => "warning",
            LintLevel::Off => "none",
        };
        json!({
            "id": lint.name.as_str(),
            "shortDescription": { "text": lint.finds },
            "fullDescription": { "text": lint.why },
            "defaultConfiguration": { "level": level },
        })
    });
    let mistake = json!({ "id": MISTAKE, "shortDescription": { "text": "a file that cannot be used" } });
    let results: Vec<Value> = report.diagnostics().iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "aside",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": lints.chain([mistake]).collect::<Vec<_>>(),
            } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn result(found: &Diagnostic) -> Value {
    let level = match found.level {
        Level::Error => "error",
        Level::Warning => "warning",
    };
    json!({
        "ruleId": rule(found),
        "level": level,
        "message": { "text": message(found) },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(&found.place) },
            "region": region(&found.place),
        } }],
    })
}

fn region(place: &Place) -> Value {
    let (line, column) = place.end();
    json!({
        "startLine": place.line(), "startColumn": place.column(), "endLine": line, "endColumn": column,
    })
}

/// The path of a file, without `./`: services compare it with those in the repository.
fn path(place: &Place) -> &str {
    place.file.strip_prefix("./").unwrap_or(&place.file)
}

/// The path of a file as a reference; an absolute one with its scheme.
fn uri(place: &Place) -> String {
    let path = path(place);
    let mut uri = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_' | b'~') {
            uri.push(char::from(byte));
        } else {
            write!(uri, "%{byte:02X}").ok();
        }
    }
    uri
}

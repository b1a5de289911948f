//! SARIF 2.1.0. Source: <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>,
//! sections 3.14 to 3.30.

use serde::Deserialize;

use crate::problem::{Level, Problem};

#[derive(Deserialize)]
struct Log {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    #[serde(default)]
    results: Option<Vec<Found>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    rule_id: Option<String>,
    rule: Option<Rule>,
    kind: Option<String>,
    level: Option<String>,
    message: Message,
    #[serde(default)]
    locations: Vec<Location>,
    #[serde(default)]
    suppressions: Option<Vec<serde_json::Value>>,
}

#[derive(Deserialize)]
struct Rule {
    id: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    text: Option<String>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: Option<Place>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    artifact_location: Option<Artifact>,
    region: Option<Region>,
}

#[derive(Deserialize)]
struct Artifact {
    uri: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: Option<u32>,
    start_column: Option<u32>,
}

pub(super) fn read(text: &str) -> Result<Vec<Problem>, serde_path_to_error::Error<serde_json::Error>> {
    let log: Log = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text))?;
    Ok(log.runs.into_iter().flat_map(|run| run.results.unwrap_or_default()).filter_map(problem).collect())
}

/// `None` for a suppressed result, and for one that reports no problem.
fn problem(found: Found) -> Option<Problem> {
    let is_wrong = found.kind.as_deref().is_none_or(|kind| matches!(kind, "fail" | "open" | "review"));
    if !is_wrong || found.suppressions.is_some_and(|list| !list.is_empty()) {
        return None;
    }
    let severity = match found.level.as_deref() {
        // Section 3.27.10: a result without a level is a warning.
        None => Level::Warning,
        Some("none") => return None,
        Some(word) => Level::of_word(word).unwrap_or(Level::Warning),
    };
    let place = found.locations.into_iter().find_map(|location| location.physical_location);
    let (artifact, region) = place.map(|place| (place.artifact_location, place.region)).unwrap_or_default();
    let code = found.rule_id.or(found.rule.and_then(|rule| rule.id));
    let message = found.message.text.or(found.message.id).or_else(|| code.clone()).unwrap_or_default();
    Some(Problem {
        file: artifact.and_then(|artifact| artifact.uri).map(|uri| path(&uri)),
        line: region.as_ref().and_then(|region| region.start_line),
        column: region.as_ref().and_then(|region| region.start_column),
        severity,
        code,
        message,
    })
}

/// The path of a URI, with percent-encoded bytes such as `%20` decoded.
fn path(uri: &str) -> String {
    let uri = uri.strip_prefix("file://").unwrap_or(uri);
    let (mut bytes, mut rest) = (Vec::with_capacity(uri.len()), uri.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

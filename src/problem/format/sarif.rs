//! SARIF 2.1.0. Source: <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>,
//! sections 3.14 to 3.30.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::{field, item};
use crate::{
    problem::{Level, Problem},
    raw_json::{each_item, json},
};

#[derive(Deserialize)]
struct Log<'a> {
    #[serde(borrow)]
    runs: &'a RawValue,
}

#[derive(Deserialize)]
struct Run<'a> {
    #[serde(borrow, default)]
    results: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found<'a> {
    rule_id: Option<String>,
    rule: Option<Rule>,
    kind: Option<String>,
    level: Option<String>,
    message: Message,
    #[serde(borrow, default)]
    locations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    suppressions: Option<&'a RawValue>,
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

/// Calls `found` with each problem, in order.
///
/// Errors: the path of what is wrong, line and column in it.
pub(super) fn read(text: &str, mut found: impl FnMut(Problem)) -> Result<(), String> {
    let log = json(text).map_err(|error| error.to_string())?;
    let Log { runs } = item(log, "")?;
    let mut failed = None;
    let mut walk = |number: usize, run: &RawValue| -> serde_json::Result<()> {
        let read = read_run(run, &format!("runs[{number}]"), &mut found);
        failed = failed.take().or(read.err());
        Ok(())
    };
    each_item(runs, &mut walk).map_err(|error| field("runs", &error))?;
    failed.map_or(Ok(()), Err)
}

fn read_run(run: &RawValue, place: &str, found: &mut impl FnMut(Problem)) -> Result<(), String> {
    let Run { results } = item(run, place)?;
    let Some(results) = results else { return Ok(()) };
    let place = format!("{place}.results");
    let mut failed = None;
    each_item(results, |number, result| {
        if failed.is_none() {
            match item(result, &format!("{place}[{number}]")).and_then(|result| problem(result, &place)) {
                Ok(problem) => problem.into_iter().for_each(&mut *found),
                Err(error) => failed = Some(error),
            }
        }
        Ok(())
    })
    .map_err(|error| field(&place, &error))?;
    failed.map_or(Ok(()), Err)
}

/// `None` for a suppressed result, and for one that reports no problem.
fn problem(found: Found<'_>, place: &str) -> Result<Option<Problem>, String> {
    let is_wrong = found.kind.as_deref().is_none_or(|kind| matches!(kind, "fail" | "open" | "review"));
    let mut suppressions = 0;
    if let Some(list) = found.suppressions {
        let count = each_item(list, |_, _| {
            suppressions += 1;
            Ok(())
        });
        count.map_err(|error| field(&format!("{place}[].suppressions"), &error))?;
    }
    if !is_wrong || suppressions > 0 {
        return Ok(None);
    }
    let severity = match found.level.as_deref() {
        // Section 3.27.10: a result without a level is a warning.
        None => Level::Warning,
        Some("none") => return Ok(None),
        Some(word) => Level::of_word(word).unwrap_or(Level::Warning),
    };
    let mut first: Option<Place> = None;
    if let Some(locations) = found.locations {
        each_item(locations, |_, location| {
            if first.is_none() {
                first = serde_json::from_str::<Location>(location.get())?.physical_location;
            }
            Ok(())
        })
        .map_err(|error| field(&format!("{place}[].locations"), &error))?;
    }
    let (artifact, region) = first.map(|place| (place.artifact_location, place.region)).unwrap_or_default();
    let code = found.rule_id.or(found.rule.and_then(|rule| rule.id));
    let message = found.message.text.or(found.message.id).or_else(|| code.clone()).unwrap_or_default();
    Ok(Some(Problem {
        file: artifact.and_then(|artifact| artifact.uri).map(|uri| path(&uri)),
        line: region.as_ref().and_then(|region| region.start_line),
        column: region.as_ref().and_then(|region| region.start_column),
        severity,
        code,
        message,
    }))
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

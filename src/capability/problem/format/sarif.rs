//! SARIF 2.1.0. Source: <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>,
//! sections 3.14 to 3.30, 3.49 and 3.58.

mod rules;

use engine::{
    hex::percent_decode,
    raw_json::{each_entry, each_item, json},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::rules::{Configuration, Kind, Message, Reference, Rules};
use crate::capability::problem::{
    Level, Problem,
    text::{PROBLEMS_MAX, json_field, json_item},
    trace::Place,
};

#[derive(Deserialize)]
struct Log<'a> {
    #[serde(borrow)]
    runs: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    #[serde(borrow, default)]
    tool: Option<&'a RawValue>,
    #[serde(borrow, default)]
    artifacts: Option<&'a RawValue>,
    #[serde(borrow, default)]
    original_uri_base_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    invocations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    results: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultObject<'a> {
    rule_id: Option<String>,
    rule_index: Option<i64>,
    rule: Option<Reference>,
    kind: Option<String>,
    level: Option<String>,
    baseline_state: Option<String>,
    #[serde(borrow, default)]
    message: Message<'a>,
    #[serde(borrow, default)]
    locations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    suppressions: Option<&'a RawValue>,
    analysis_target: Option<Artifact>,
}

#[derive(Deserialize)]
struct Suppression {
    status: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Invocation<'a> {
    execution_successful: Option<bool>,
    exit_code: Option<i64>,
    exit_code_description: Option<String>,
    exit_signal_name: Option<String>,
    process_start_failure_message: Option<String>,
    #[serde(borrow, default)]
    tool_execution_notifications: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_configuration_notifications: Option<&'a RawValue>,
    #[serde(borrow, default)]
    rule_configuration_overrides: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Override {
    descriptor: Reference,
    configuration: Configuration,
}

#[derive(Deserialize)]
struct Notification<'a> {
    level: Option<String>,
    #[serde(borrow, default)]
    message: Message<'a>,
    descriptor: Option<Reference>,
    exception: Option<Exception>,
    #[serde(borrow, default)]
    locations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Exception {
    kind: Option<String>,
    message: Option<String>,
}

/// Calls `found` with each problem, in order.
///
/// Errors: the path of what is wrong, line and column in it.
pub(super) fn read(text: &str, mut found: impl FnMut(Problem)) -> Result<(), String> {
    let log = json(text).map_err(|error| error.to_string())?;
    let Log { runs } = json_item(log, "")?;
    let mut failed = None;
    let mut walk = |number: usize, run: &RawValue| -> serde_json::Result<()> {
        let read = read_run(run, &format!("runs[{number}]"), &mut found);
        failed = failed.take().or(read.err());
        Ok(())
    };
    each_item(runs, &mut walk).map_err(|error| json_field("runs", &error))?;
    failed.map_or(Ok(()), Err)
}

fn read_run(run: &RawValue, place: &str, found: &mut impl FnMut(Problem)) -> Result<(), String> {
    let Run { tool, artifacts, original_uri_base_ids, invocations, results } = json_item(run, place)?;
    let mut tool =
        Context { rules: Rules::read(tool), places: Places::read(artifacts, original_uri_base_ids) };
    let invocations = invocations.filter(|list| list.get() != "null");
    if let Some(invocations) = invocations {
        each_part(invocations, &format!("{place}.invocations"), |invocation, place| {
            tool.override_levels(&json_item(invocation, place)?);
            Ok(())
        })?;
    }
    let mut count = 0;
    if let Some(results) = results {
        each_part(results, &format!("{place}.results"), |result, place| {
            let result = json_item(result, place)?;
            // Of further results only the form is checked.
            if count < PROBLEMS_MAX
                && let Some(problem) = tool.problem(result, place)?
            {
                count += 1;
                found(problem);
            }
            Ok(())
        })?;
    }
    if let Some(invocations) = invocations {
        each_part(invocations, &format!("{place}.invocations"), |invocation, place| {
            tool.execution(json_item(invocation, place)?, place, found)
        })?;
    }
    Ok(())
}

/// Calls `take` with each item of a list and its place, up to the first error.
fn each_part<'a>(
    list: &'a RawValue,
    place: &str,
    mut take: impl FnMut(&'a RawValue, &str) -> Result<(), String>,
) -> Result<(), String> {
    let mut failed = None;
    each_item(list, |number, part| {
        if failed.is_none() {
            failed = take(part, &format!("{place}[{number}]")).err();
        }
        Ok(())
    })
    .map_err(|error| json_field(place, &error))?;
    failed.map_or(Ok(()), Err)
}

/// What the results of a run refer to.
struct Context {
    rules: Rules,
    places: Places,
}

impl Context {
    /// `None` for a suppressed result, for one that is gone, and for one that reports no problem.
    fn problem(&self, found: ResultObject<'_>, place: &str) -> Result<Option<Problem>, String> {
        let is_gone = found.baseline_state.as_deref() == Some("absent");
        if is_gone || is_suppressed(found.suppressions, place)? {
            return Ok(None);
        }
        let mut reference = found.rule.unwrap_or_default();
        reference.index = reference.index.or(found.rule_index);
        reference.id = found.rule_id.or(reference.id);
        let rule = self.rules.find(&reference, Kind::Rule);
        let default = rule.and_then(|rule| rule.level.as_deref());
        // Section 3.27.10: a result without a level has that of its rule, else it is a warning. One
        // that a person has to look at has none.
        let severity = match (found.kind.as_deref(), found.level.as_deref()) {
            (None | Some("fail"), level) => match level.or(default) {
                None => Level::Warning,
                Some("none") => return Ok(None),
                Some(word) => Level::of_word(word).unwrap_or(Level::Warning),
            },
            (Some("open" | "review"), level) => level.and_then(Level::of_word).unwrap_or(Level::Info),
            (Some(_), _) => return Ok(None),
        };
        let at = self
            .places
            .first(found.locations)
            .map_err(|error| json_field(&format!("{place}.locations"), &error))?;
        let target =
            || Some(Place { file: self.places.file(&found.analysis_target?)?, line: None, column: None });
        let at = at.or_else(target);
        let code = reference.id.clone().or_else(|| rule.and_then(|rule| rule.id.clone()));
        let message = self.rules.text(found.message, rule).or_else(|| code.clone()).unwrap_or_default();
        Ok(Some(Problem::at(at, severity, code, message)))
    }

    fn override_levels(&mut self, invocation: &Invocation<'_>) {
        let Some(overrides) = invocation.rule_configuration_overrides else { return };
        // What is not in the form of an override changes no level.
        drop(each_item(overrides, |_, one| {
            if let Ok(Override { descriptor, configuration: Configuration { level: Some(level) } }) =
                serde_json::from_str(one.get())
            {
                self.rules.set_level(&descriptor, level);
            }
            Ok(())
        }));
    }

    /// The errors of the tool itself. If it failed without an error, its warnings, else that it
    /// failed.
    fn execution(
        &self,
        invocation: Invocation<'_>,
        place: &str,
        found: &mut impl FnMut(Problem),
    ) -> Result<(), String> {
        let has_failed = invocation.execution_successful == Some(false);
        let lists = [
            (invocation.tool_execution_notifications, "toolExecutionNotifications"),
            (invocation.tool_configuration_notifications, "toolConfigurationNotifications"),
        ];
        let (mut errors, mut warning) = (0, None);
        for (list, name) in lists {
            let Some(list) = list else { continue };
            each_part(list, &format!("{place}.{name}"), |notification, place| {
                let problem = self.notification(json_item(notification, place)?);
                match problem.severity {
                    Level::Error => {
                        errors += 1;
                        found(problem);
                    }
                    Level::Warning => warning = warning.take().or(Some(problem)),
                    Level::Info => {}
                }
                Ok(())
            })?;
        }
        if has_failed && errors == 0 {
            let reason = invocation
                .process_start_failure_message
                .or(invocation.exit_code_description)
                .or(invocation.exit_signal_name)
                .or_else(|| invocation.exit_code.map(|code| format!("exit code {code}")));
            let reason = reason.map(|reason| format!("the tool failed: {reason}"));
            let bare = || reason.unwrap_or_else(|| "the tool failed".to_owned());
            found(match warning {
                Some(warning) => Problem { severity: Level::Error, ..warning },
                None => Problem::at(None, Level::Error, None, bare()),
            });
        }
        Ok(())
    }

    fn notification(&self, notification: Notification<'_>) -> Problem {
        let reference = notification.descriptor.unwrap_or_default();
        let descriptor = self.rules.find(&reference, Kind::Notification);
        let level = notification.level.as_deref().or_else(|| descriptor.and_then(|one| one.level.as_deref()));
        let severity = level.map_or(Level::Warning, |level| Level::of_word(level).unwrap_or(Level::Info));
        let exception = notification.exception.and_then(|exception| exception.message.or(exception.kind));
        let code = reference.id.clone().or_else(|| descriptor.and_then(|one| one.id.clone()));
        let text = self.rules.text(notification.message, descriptor).or(exception);
        let message = text.or_else(|| code.clone()).unwrap_or_else(|| "the tool failed".to_owned());
        let at = self.places.first(notification.locations).ok().flatten();
        Problem::at(at, severity, code, message)
    }
}

/// Whether a result has suppressions, all of which are accepted. Section 3.27.23.
fn is_suppressed(suppressions: Option<&RawValue>, place: &str) -> Result<bool, String> {
    let Some(list) = suppressions else { return Ok(false) };
    let (mut count, mut is_refused) = (0, false);
    each_item(list, |_, one| {
        count += 1;
        let Suppression { status } = serde_json::from_str(one.get())?;
        is_refused |= matches!(status.as_deref(), Some("rejected" | "underReview"));
        Ok(())
    })
    .map_err(|error| json_field(&format!("{place}.suppressions"), &error))?;
    Ok(count > 0 && !is_refused)
}

/// Most artifacts of a run that are remembered.
const ARTIFACTS_MAX: usize = 100_000;
/// Most bases of URIs of a run.
const BASES_MAX: usize = 100;
/// Most bases that follow each other.
const OUTER_MAX: usize = 5;
/// Longest path of an artifact or a base, in bytes.
const PATH_BYTES_MAX: usize = 4_096;

/// A location of a result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: Option<Physical>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    artifact_location: Option<Artifact>,
    region: Option<Region>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Artifact {
    uri: Option<String>,
    uri_base_id: Option<String>,
    index: Option<i64>,
}

#[derive(Deserialize)]
struct ArtifactObject {
    location: Option<Artifact>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: Option<u32>,
    start_column: Option<u32>,
}

/// The artifacts of a run, and the bases of its URIs.
struct Places {
    artifacts: Vec<Option<Artifact>>,
    bases: Vec<(String, Artifact)>,
}

impl Places {
    /// Shape: what is not in the form of an artifact or a base is skipped, and so is what is longer
    /// than [`PATH_BYTES_MAX`].
    fn read(artifacts: Option<&RawValue>, bases: Option<&RawValue>) -> Self {
        let short = |artifact: &Artifact| {
            let text = [&artifact.uri, &artifact.uri_base_id];
            text.iter().all(|text| text.as_ref().is_none_or(|text| text.len() <= PATH_BYTES_MAX))
        };
        let mut read = Self { artifacts: Vec::new(), bases: Vec::new() };
        if let Some(artifacts) = artifacts {
            drop(each_item(artifacts, |_, artifact| {
                if read.artifacts.len() < ARTIFACTS_MAX {
                    let parsed = serde_json::from_str::<ArtifactObject>(artifact.get()).ok();
                    read.artifacts.push(parsed.and_then(|artifact| artifact.location).filter(short));
                }
                Ok(())
            }));
        }
        if let Some(bases) = bases {
            drop(each_entry(bases, |name, base| {
                if read.bases.len() < BASES_MAX
                    && let Some(base) = serde_json::from_str(base.get()).ok().filter(short)
                {
                    read.bases.push((name.to_owned(), base));
                }
                Ok(())
            }));
        }
        read
    }

    /// The first location in a file.
    ///
    /// Errors: one before it has not the form of a location.
    fn first(&self, locations: Option<&RawValue>) -> serde_json::Result<Option<Place>> {
        let mut first = None;
        if let Some(locations) = locations {
            each_item(locations, |_, location| {
                if first.is_none() {
                    let location = serde_json::from_str::<Location>(location.get())?;
                    first = location.physical_location.and_then(|physical| self.place(physical));
                }
                Ok(())
            })?;
        }
        Ok(first)
    }

    fn place(&self, physical: Physical) -> Option<Place> {
        let file = self.file(&physical.artifact_location?)?;
        let (line, column) =
            physical.region.map_or((None, None), |region| (region.start_line, region.start_column));
        Some(Place { file, line, column })
    }

    /// The path of a file, after the path of its base.
    fn file(&self, artifact: &Artifact) -> Option<String> {
        if artifact.uri.is_none() {
            let index = usize::try_from(artifact.index?).ok()?;
            let artifact = self.artifacts.get(index)?.as_ref()?;
            return if artifact.uri.is_some() { self.file(artifact) } else { None };
        }
        let (mut file, mut base) = (path_of(artifact.uri.as_deref()?), artifact.uri_base_id.as_deref());
        for _ in 0..OUTER_MAX {
            let known = |name: &str| self.bases.iter().find(|(other, _)| other == name).map(|(_, base)| base);
            let Some(outer) = base.and_then(known).filter(|_| !file.starts_with('/')) else { break };
            if let Some(uri) = outer.uri.as_deref().map(path_of).filter(|uri| !uri.is_empty()) {
                file = format!("{}/{file}", uri.trim_end_matches('/'));
            }
            base = outer.uri_base_id.as_deref();
        }
        Some(file)
    }
}

/// The path of a URI, with percent-encoded bytes such as `%20` decoded.
fn path_of(uri: &str) -> String {
    let path = uri.strip_prefix("file://localhost").or_else(|| uri.strip_prefix("file://")).unwrap_or(uri);
    percent_decode(path)
}

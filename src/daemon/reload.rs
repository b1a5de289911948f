//! Which rules hold: read at the start, and again when the daemon is asked to.
//!
//! A reload is all or nothing: with one error in one file everything stays as it was. At the start there is nothing to stay, so
//! what is good is used and what is not is said.

use std::path::Path;

use serde_json::json;

use super::{
    event_loop::{self, Owed},
    rules::{RulesError, RulesStore},
};
use crate::{
    bus::Bus,
    config::{
        compile::{Compiled, compile},
        layers::Sources,
        load::{layers_of, read_layers},
        report::{Level, Report},
    },
    event::{Event, Payload, Provenance, Severity, catalogue},
    journal::AppendError,
    protocol::record,
    time::Timestamp,
};

/// Why rules could not be replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Some file has an error; the rules stay as they were.
    #[error("the configuration has {errors} errors")]
    Broken {
        /// How many errors there are.
        errors: usize,
        /// Every finding.
        report: String,
    },
    /// The rules cannot be kept beside the journal.
    #[error("keep the rules")]
    Rules(#[from] RulesError),
    /// The rules of the configuration cannot be kept, and there are none of an earlier time.
    #[error("keep the rules: there is no room for them, and none were in force before")]
    None,
    /// The journal takes nothing more.
    #[error("write the journal")]
    Append(#[from] AppendError),
}

/// Reads every layer and compiles it.
pub(super) fn read(user_folder: &Path) -> (Sources, Compiled) {
    let sources = read_layers(&layers_of(user_folder));
    let known: Vec<&str> = catalogue::types().map(|entry| entry.event_type.as_str()).collect();
    let compiled = compile(&sources, &known);
    (sources, compiled)
}

/// Says what is wrong with the configuration; [`Report`] drawn as text is for `aside check`.
pub(super) fn log_findings(report: &Report) {
    let (errors, warnings) = (report.error_count(), report.warning_count());
    if errors + warnings == 0 {
        return;
    }
    tracing::warn!(
        errors,
        warnings,
        "the configuration has findings; `aside check` shows them where they are"
    );
    for found in report.diagnostics() {
        let (at, key, finding) = (&found.place, found.key.as_str(), found.message.as_str());
        match found.level {
            Level::Error => tracing::error!(%at, key, finding, "an error in the configuration"),
            Level::Warning => tracing::warn!(%at, key, finding, "a warning about the configuration"),
        }
    }
}

/// Keeps the rules of `sources` in the state folder `state`, as those that are used where others are lost.
///
/// Shape: the hash is that of `sources`; `None` where they cannot be kept, as on a full disk.
pub(super) fn keep(state: &Path, sources: &Sources) -> (RulesStore, Option<String>) {
    let store = RulesStore::new(state);
    match store.keep(sources) {
        Ok(hash) => (store.with_current(&hash), Some(hash)),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "the rules of the configuration cannot be kept; those in force stay");
            (store, None)
        }
    }
}

/// Says in the journal which rules hold from here on: the `kept` ones, else those in force before.
///
/// Shape: the hash of them, and what waits because the disk is full.
/// Errors: there are no rules at all, or the journal takes nothing more.
pub(super) async fn adopt(
    bus: &Bus,
    kept: Option<String>,
    in_force: &str,
) -> Result<(String, Option<Owed>), ReloadError> {
    let hash = kept.unwrap_or_else(|| in_force.to_owned());
    if hash.is_empty() {
        return Err(ReloadError::None);
    }
    let owed = Owed::Rules { hash: hash.as_str().into() };
    let is_full = event_loop::unless_full(owed.append_to(bus).await)?;
    Ok((hash, is_full.then_some(owed)))
}

/// Rules that were read again and hold.
pub(super) struct Reloaded {
    /// How many subscribers there are.
    pub(super) subscribers: usize,
    /// The hash that names the rules.
    pub(super) rules: String,
}

/// What is published of a reload, so that whoever watches a configuration hears of it.
pub(super) fn event(outcome: Result<&Reloaded, &ReloadError>, now: Timestamp) -> Event {
    let (event_type, severity, payload) = match outcome {
        Ok(Reloaded { subscribers, rules }) => {
            let payload = json!({ "subscribers": subscribers, "rules": rules });
            ("config.reload.completed", Severity::Info, payload)
        }
        Err(ReloadError::Broken { errors, report }) => {
            let first = report.lines().next().unwrap_or_default();
            let payload = json!({ "errors": errors, "message": first });
            ("config.reload.failed", Severity::Warning, payload)
        }
        Err(other @ (ReloadError::Rules(_) | ReloadError::None | ReloadError::Append(_))) => {
            ("config.reload.failed", Severity::Warning, json!({ "message": other.to_string() }))
        }
    };
    Event {
        id: format!("{event_type}-{}", now.as_millis()).into(),
        event_type: event_type.parse().expect("a valid literal"),
        source: "aside".into(),
        provenance: Provenance::Local,
        severity,
        timestamp: now,
        payload: Payload::from(payload),
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
    }
}

/// Reads the files again and adopts them if they are without an error, and other than those that hold.
pub(super) async fn reload(
    bus: &Bus,
    store: &RulesStore,
    user_folder: &Path,
    hash_in_force: &str,
) -> Result<Reloaded, ReloadError> {
    let (sources, compiled) = read(user_folder);
    log_findings(&compiled.report);
    if compiled.report.error_count() > 0 {
        let errors = compiled.report.error_count();
        return Err(ReloadError::Broken { errors, report: compiled.report.to_string() });
    }
    let rules = sources.hash();
    if rules != hash_in_force {
        store.keep(&sources)?;
        event_loop::append(bus, record::RULES, |body| record::encode_rules(&rules, body)).await?;
    }
    Ok(Reloaded { subscribers: compiled.rules.subscribers.len(), rules })
}

//! Which rules hold: read at the start, and again when the daemon is asked to.
//!
//! A reload is all or nothing: with one error in one file everything stays as it was. At the start there is nothing to stay, so
//! what is good is used and what is not is said.

use std::path::Path;

use serde_json::json;

use super::{
    event_loop,
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

/// Says in the journal that the rules are those of `sources` from here on, unless they hold already.
pub(super) async fn adopt(
    bus: &Bus,
    store: &RulesStore,
    sources: &Sources,
    hash_in_force: &str,
) -> Result<(), ReloadError> {
    let hash = sources.hash();
    if hash != hash_in_force {
        store.keep(sources)?;
        event_loop::append(bus, record::RULES, |body| record::encode_rules(&hash, body)).await?;
    }
    Ok(())
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
        Err(other @ (ReloadError::Rules(_) | ReloadError::Append(_))) => {
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
    adopt(bus, store, &sources, hash_in_force).await?;
    Ok(Reloaded { subscribers: compiled.rules.subscribers.len(), rules: sources.hash() })
}

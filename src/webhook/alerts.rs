//! Alerts, posted by Prometheus to an Alertmanager, or by an Alertmanager to a receiver.
//!
//! Sources: Alertmanager's OpenAPI document (`api/v2`, `postableAlert`), and its documentation of
//! `webhook_config` (version 4).

use serde::de::Error;
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest, Sha256};

use super::{
    Said,
    body::text,
    field::{clean, is_name},
};
use crate::{
    event::Severity,
    hex::hex,
    raw_json::{each_entry, each_item, is_array, is_object, json},
    time::Timestamp,
};

/// Most alerts of one request; Prometheus sends 64 at a time.
pub const ALERTS_MAX: usize = 1_000;
/// Most labels of an alert; rules have about ten.
pub const LABELS_READ_MAX: usize = 256;
/// Labels with payload fields of their own.
const NAMED: [&str; 2] = ["alertname", "severity"];
/// Most other labels in a payload.
const LABELS_MAX: usize = 12;

/// One alert, with an id that makes repetitions duplicates.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Identifies this change of this alert: it began to fire, or was resolved.
    pub id: String,
    /// The content of its event.
    pub said: Said,
}

/// Why a body is not a list of alerts.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    /// It is not JSON.
    #[error("is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It has another shape.
    #[error("must be an array of alerts, or an object with `alerts`")]
    Shape,
    /// It has too many alerts.
    #[error("has {0} alerts; at most {ALERTS_MAX} are accepted at a time")]
    Many(usize),
    /// The alert with this index has no labels.
    #[error("alerts[{0}].labels: must be an object of at most {LABELS_READ_MAX} texts with `alertname`")]
    Labels(usize),
}

/// Reads the alerts of a body, in the form of either program.
///
/// Shape: each alert is converted as soon as it is read; the rest of the body is skipped in place.
/// Errors: the body has neither form, or one of the alerts is invalid; then none is accepted.
pub fn read(body: &str, now: Timestamp) -> Result<Vec<Alert>, AlertError> {
    let body = json(body)?;
    let mut list = Some(body);
    if is_object(body) {
        list = None;
        each_entry(body, |key, value| {
            list = if key == "alerts" { Some(value) } else { list };
            Ok(())
        })?;
    }
    let list = list.filter(|list| is_array(list)).ok_or(AlertError::Shape)?;
    let (mut alerts, mut wrong, mut count) = (Vec::new(), None, 0);
    each_item(list, |index, item| {
        count = index + 1;
        if wrong.is_none() && count <= ALERTS_MAX {
            match Fields::read(item).ok().and_then(|fields| fields.into_alert(now)) {
                Some(alert) => alerts.push(alert),
                None => wrong = Some(index),
            }
        }
        Ok(())
    })?;
    match wrong {
        _ if count > ALERTS_MAX => Err(AlertError::Many(count)),
        Some(index) => Err(AlertError::Labels(index)),
        None => Ok(alerts),
    }
}

/// The used fields of an alert.
#[derive(Debug, Default)]
struct Fields {
    /// All of them, in their order.
    labels: Map<String, Value>,
    status: Option<String>,
    fingerprint: Option<String>,
    starts_at: Option<String>,
    ends_at: Option<String>,
    generator_url: Option<String>,
    annotations: Annotations,
}

#[derive(Debug, Default)]
struct Annotations {
    summary: Option<String>,
    description: Option<String>,
    runbook_url: Option<String>,
}

impl Fields {
    /// Errors: it is not an object, or a text in it cannot be read.
    fn read(alert: &RawValue) -> serde_json::Result<Self> {
        let mut read = Self::default();
        each_entry(alert, |key, value| {
            match key {
                "labels" => read.labels = labels(value)?,
                "annotations" => read.annotations = Annotations::read(value)?,
                "status" => read.status = text(value)?,
                "fingerprint" => read.fingerprint = text(value)?,
                "startsAt" => read.starts_at = text(value)?,
                "endsAt" => read.ends_at = text(value)?,
                "generatorURL" => read.generator_url = text(value)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(read)
    }

    /// `None` without the label `alertname`.
    fn into_alert(self, now: Timestamp) -> Option<Alert> {
        let name = self.labels.get("alertname").and_then(Value::as_str)?;
        let ended = self.ends_at.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
        let is_resolved = match self.status.as_deref() {
            Some(status) => status == "resolved",
            None => ended.is_some_and(|at| at != Timestamp::ZERO && at <= now),
        };
        let said = self.fingerprint.filter(|said| is_name(said));
        let fingerprint = said.unwrap_or_else(|| fingerprint(&self.labels));
        let (state, since) =
            if is_resolved { ("resolved", self.ends_at) } else { ("firing", self.starts_at) };
        // An alert without a time is new each time, because Alertmanager assumes that it begins at
        // the time of the request.
        let since = since.and_then(|since| since.parse().ok()).unwrap_or(now);
        let mut payload = Map::new();
        payload.insert("alert".to_owned(), clean(&name.into()));
        let Annotations { summary, description, runbook_url } = self.annotations;
        if let Some(summary) = summary.or(description) {
            payload.insert("summary".to_owned(), clean(&summary.into()));
        }
        let others =
            self.labels.iter().filter(|(label, _)| !NAMED.contains(&label.as_str()) && is_name(label));
        for (label, value) in others.take(LABELS_MAX) {
            payload.entry(label.clone()).or_insert_with(|| clean(value));
        }
        let url = runbook_url.or(self.generator_url);
        payload.extend(url.map(|url| ("url".to_owned(), clean(&url.into()))));
        payload.insert("fingerprint".to_owned(), clean(&fingerprint.as_str().into()));
        let event_type = if is_resolved { "alert.resolved" } else { "alert.firing" };
        let severity = self.labels.get("severity").and_then(Value::as_str).and_then(severity);
        Some(Alert {
            id: format!("{fingerprint}:{state}:{since}"),
            said: Said {
                event_type: event_type.parse().expect("a valid literal"),
                severity: severity.filter(|_| !is_resolved),
                payload,
                dedupe_key: Some(fingerprint),
            },
        })
    }
}

impl Annotations {
    fn read(annotations: &RawValue) -> serde_json::Result<Self> {
        let mut read = Self::default();
        if is_object(annotations) {
            each_entry(annotations, |key, value| {
                match key {
                    "summary" => read.summary = text(value)?,
                    "description" => read.description = text(value)?,
                    "runbook_url" => read.runbook_url = text(value)?,
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(read)
    }
}

/// Errors: it is not an object of at most [`LABELS_READ_MAX`] texts.
fn labels(value: &RawValue) -> serde_json::Result<Map<String, Value>> {
    let mut labels = Map::new();
    each_entry(value, |key, value| {
        let value = text(value)?.filter(|_| labels.len() < LABELS_READ_MAX);
        labels.insert(key.to_owned(), value.ok_or_else(|| Error::custom("not a text, or too many"))?.into());
        Ok(())
    })?;
    Ok(labels)
}

/// The usual severity labels in Prometheus rules.
fn severity(label: &str) -> Option<Severity> {
    match label {
        "critical" | "page" | "emergency" => Some(Severity::Critical),
        "error" | "high" | "major" => Some(Severity::Error),
        "warning" | "warn" | "medium" | "minor" => Some(Severity::Warning),
        "info" | "low" | "none" => Some(Severity::Info),
        _ => None,
    }
}

/// An id of an alert from its labels, if the sender sends none. The order of the labels does not
/// matter.
fn fingerprint(labels: &Map<String, Value>) -> String {
    let mut sorted: Vec<_> = labels.iter().collect();
    sorted.sort_by_key(|(name, _)| name.as_str());
    let mut hash = Sha256::new();
    for (name, value) in sorted {
        hash.update(name);
        hash.update([0xff]);
        hash.update(value.as_str().unwrap_or_default());
        hash.update([0xff]);
    }
    hex(hash.finalize().iter().take(8))
}

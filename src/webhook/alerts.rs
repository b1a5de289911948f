//! Alerts, posted by Prometheus to an Alertmanager, or by an Alertmanager to a receiver.
//!
//! Sources: Alertmanager's OpenAPI document (`api/v2`, `postableAlert`), and its documentation of
//! `webhook_config` (version 4).

use std::borrow::Cow;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{Said, clean, is_name};
use crate::{event::Severity, hex::hex, time::Timestamp};

/// Most alerts of one request; Prometheus sends 64 at a time.
pub const ALERTS_MAX: usize = 1_000;
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AlertError {
    /// It has another shape.
    #[error("must be an array of alerts, or an object with `alerts`")]
    Shape,
    /// It has too many alerts.
    #[error("has {0} alerts; at most {ALERTS_MAX} are accepted at a time")]
    Many(usize),
    /// The alert with this index has no labels.
    #[error("alerts[{0}].labels: must be an object of texts with `alertname`")]
    Labels(usize),
}

/// Reads the alerts of a body, in the form of either program.
///
/// Errors: the body has neither form, or one of the alerts is invalid; then none is accepted.
pub fn read(body: &Value, now: Timestamp) -> Result<Vec<Alert>, AlertError> {
    let alerts = body.get("alerts").unwrap_or(body).as_array().ok_or(AlertError::Shape)?;
    if alerts.len() > ALERTS_MAX {
        return Err(AlertError::Many(alerts.len()));
    }
    let read = |(index, alert): (usize, &Value)| one(alert, now).ok_or(AlertError::Labels(index));
    alerts.iter().enumerate().map(read).collect()
}

fn one(alert: &Value, now: Timestamp) -> Option<Alert> {
    let labels = alert.get("labels")?.as_object().filter(|labels| labels.values().all(Value::is_string))?;
    let name = labels.get("alertname")?.as_str()?;
    let text = |key: &str| alert.get(key).and_then(Value::as_str);
    let ended =
        text("endsAt").and_then(|at| at.parse::<Timestamp>().ok()).filter(|at| *at != Timestamp::ZERO);
    let is_resolved = match text("status") {
        Some(status) => status == "resolved",
        None => ended.is_some_and(|at| at <= now),
    };
    let said = text("fingerprint").filter(|said| is_name(said));
    let fingerprint = said.map_or_else(|| fingerprint(labels), str::to_owned);
    let (state, since) = match is_resolved {
        true => ("resolved", text("endsAt")),
        false => ("firing", text("startsAt")),
    };
    // An alert without a time is new each time, because Alertmanager assumes that it begins at the
    // time of the request.
    let since = since.and_then(|since| since.parse().ok()).unwrap_or(now);
    let mut payload = Map::new();
    payload.insert("alert".to_owned(), clean(&Value::from(name)));
    let annotations = alert.get("annotations").and_then(Value::as_object);
    let annotation = |key: &str| annotations?.get(key).filter(|value| value.is_string());
    if let Some(summary) = annotation("summary").or_else(|| annotation("description")) {
        payload.insert("summary".to_owned(), clean(summary));
    }
    let others = labels.iter().filter(|(label, _)| !NAMED.contains(&label.as_str()) && is_name(label));
    for (label, value) in others.take(LABELS_MAX) {
        payload.entry(label.clone()).or_insert_with(|| clean(value));
    }
    let url = annotation("runbook_url").or_else(|| alert.get("generatorURL").filter(|url| url.is_string()));
    payload.extend(url.map(|url| ("url".to_owned(), clean(url))));
    payload.insert("fingerprint".to_owned(), clean(&Value::from(fingerprint.as_str())));
    let event_type = if is_resolved { "alert.resolved" } else { "alert.firing" };
    let severity = labels.get("severity").and_then(Value::as_str).and_then(severity).filter(|_| !is_resolved);
    Some(Alert {
        id: format!("{fingerprint}:{state}:{since}"),
        said: Said {
            event_type: event_type.parse().expect("a valid literal"),
            severity,
            payload,
            dedupe_key: Some(fingerprint),
        },
    })
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
        hash.update(value.as_str().map_or_else(|| value.to_string().into(), Cow::Borrowed).as_bytes());
        hash.update([0xff]);
    }
    hex(hash.finalize().iter().take(8))
}

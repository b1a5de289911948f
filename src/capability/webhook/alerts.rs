//! Alerts, posted by Prometheus to an Alertmanager, or by an Alertmanager to a receiver.
//!
//! Sources: Alertmanager's OpenAPI document (`api/v2`, `postableAlert`), and its documentation of
//! `webhook_config` (version 4).

use serde::de::Error;
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest, Sha256};

use super::{
    EventContent,
    body::{clean, is_name, text},
};
use engine::{
    event::Severity,
    hex::hex,
    raw_json::{each_entry, each_item, is_array, is_object, json},
};
use journal::time::Timestamp;

/// Most alerts of one request; Prometheus sends 64 at a time.
pub const ALERTS_MAX: usize = 1_000;
/// Most labels of an alert; rules have about ten.
pub const LABELS_READ_MAX: usize = 256;
/// Labels with payload fields of their own.
const NAMED: [&str; 2] = ["alertname", "severity"];
/// Most other labels in a payload.
const LABELS_MAX: usize = 12;
/// Most labels in the name of an alert without `alertname`.
const LABELS_NAMED_MAX: usize = 3;

/// One alert, with an id that makes repetitions duplicates.
#[derive(Debug, Clone, PartialEq)]
pub struct Alert {
    /// Identifies this state of this alert since it began to fire: it fires, or it is resolved.
    pub id: String,
    /// The id of its other state. Once that was reported, this one is new again: a sender that
    /// missed some results reports the old beginning once more.
    pub opposite: String,
    /// The content of its event.
    pub said: EventContent,
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
}

/// Why one alert of a body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("alerts[{index}].{field}: {message}")]
pub struct Refused {
    /// Its index.
    pub index: usize,
    /// The field.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Reads the alerts of a body, in the form of either program.
///
/// Shape: each alert is converted as soon as it is read; the rest of the body is skipped in place.
/// Each alert has its own verdict, because a sender does not repeat a body that was refused.
/// Errors: the body has neither form, or has too many alerts.
pub fn read(body: &str, now: Timestamp) -> Result<Vec<Result<Alert, Refused>>, AlertError> {
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
    let (mut alerts, mut count) = (Vec::new(), 0);
    each_item(list, |index, item| {
        count = index + 1;
        if count <= ALERTS_MAX {
            let fields =
                Fields::read(item).map_err(|Wrong { field, message }| Refused { index, field, message });
            alerts.push(fields.map(|fields| fields.into_alert(now)));
        }
        Ok(())
    })?;
    if count > ALERTS_MAX { Err(AlertError::Many(count)) } else { Ok(alerts) }
}

/// An invalid field of an alert.
#[derive(Debug)]
struct Wrong {
    field: &'static str,
    message: String,
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
    /// Errors: it is not an object, or its labels are not. Any other field that cannot be read is
    /// left out.
    fn read(alert: &RawValue) -> Result<Self, Wrong> {
        let (mut read, mut found) = (Self::default(), None);
        let entries = each_entry(alert, |key, value| {
            match key {
                "labels" => found = labels(value).ok(),
                "annotations" => read.annotations = Annotations::read(value).unwrap_or_default(),
                "status" => read.status = text(value).unwrap_or_default(),
                "fingerprint" => read.fingerprint = text(value).unwrap_or_default(),
                "startsAt" => read.starts_at = text(value).unwrap_or_default(),
                "endsAt" => read.ends_at = text(value).unwrap_or_default(),
                "generatorURL" => read.generator_url = text(value).unwrap_or_default(),
                _ => {}
            }
            Ok(())
        });
        match found.filter(|labels| entries.is_ok() && !labels.is_empty()) {
            Some(labels) => Ok(Self { labels, ..read }),
            None => Err(Wrong {
                field: "labels",
                message: format!("must be an object of 1 to {LABELS_READ_MAX} texts"),
            }),
        }
    }

    fn into_alert(self, now: Timestamp) -> Alert {
        let name = name(&self.labels);
        let ended = self.ends_at.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
        let is_resolved = match self.status.as_deref() {
            Some(status) => status == "resolved",
            None => ended.is_some_and(|at| at != Timestamp::ZERO && at <= now),
        };
        let said = self.fingerprint.filter(|said| is_name(said));
        let fingerprint = said.unwrap_or_else(|| fingerprint(&self.labels));
        let (state, opposite) = if is_resolved { ("resolved", "firing") } else { ("firing", "resolved") };
        // An alert without a time is new each time, because Alertmanager assumes that it begins at
        // the time of the request.
        let began: Option<Timestamp> = self.starts_at.and_then(|at| at.parse().ok());
        let since = began.or(ended.filter(|_| is_resolved)).unwrap_or(now);
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
        if let Some(began) = began {
            payload.insert("started_at".to_owned(), began.to_string().into());
        }
        payload.insert("fingerprint".to_owned(), clean(&fingerprint.as_str().into()));
        let event_type = if is_resolved { "alert.resolved" } else { "alert.firing" };
        let severity = self.labels.get("severity").and_then(Value::as_str).and_then(severity);
        Alert {
            id: format!("{fingerprint}:{state}:{since}"),
            opposite: format!("{fingerprint}:{opposite}:{since}"),
            said: EventContent {
                event_type: event_type.parse().expect("a valid literal"),
                severity: severity.filter(|_| !is_resolved),
                payload,
                dedupe_key: Some(fingerprint),
            },
        }
    }
}

/// The name of an alert: its label `alertname`, which Alertmanager does not require, or else its
/// first labels in the notation of Prometheus.
fn name(labels: &Map<String, Value>) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(name) = labels.get("alertname").map(text).filter(|name| !name.is_empty()) {
        return name;
    }
    let pairs = labels.iter().map(|(label, value)| format!("{label}={:?}", text(value)));
    format!("{{{}}}", pairs.take(LABELS_NAMED_MAX).collect::<Vec<_>>().join(","))
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

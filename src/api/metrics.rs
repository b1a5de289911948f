//! `/metrics`: the daemon's metrics, for Prometheus and other readers of OpenMetrics.
//!
//! Values are collected per request: counts from the event loop, latencies from the meters, and
//! process statistics from the system. [`families`] defines the metrics; this file writes the
//! format.

mod families;

use std::{fmt, fs};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use rustix::time::{ClockId, clock_gettime};

use self::families::{Family, Labels, Process, Values};
use crate::api::{App, admin, error::ApiError};

/// The content type of OpenMetrics text.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Shows counts, latencies and sizes as OpenMetrics text.
#[cfg_attr(test, utoipa::path(
    get, path = "/metrics", tag = "admin",
    responses((status = 200, content_type = "application/openmetrics-text", body = String)),
))]
pub(crate) async fn metrics(State(app): State<App>) -> Result<Response, ApiError> {
    let status = admin::status_of(&app).await?;
    let text = write(families::all(&status, &app.meters, &read_process())).map_err(|error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}"))
    })?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

/// The system's statistics of this process; unavailable values are absent.
#[expect(
    clippy::disallowed_methods,
    reason = "the processor time is only reported; nothing is decided by it"
)]
fn read_process() -> Process {
    let status = fs::read_to_string("/proc/self/status").ok();
    let resident = status.as_deref().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    });
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Process {
        resident_bytes: resident.map(|kib| kib * 1_024),
        cpu_seconds: used.tv_sec as f64 + used.tv_nsec as f64 / 1e9,
        open_files: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
    }
}

fn write(families: Vec<Family>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(families)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// All metric families of one answer.
#[derive(Debug)]
struct Page(Vec<Family>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, unit, help, values } in &self.0 {
            let unit = unit.map(|unit| Unit::Other(unit.to_owned()));
            let metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind(values))?;
            write_values(metric, values)?;
        }
        Ok(())
    }
}

const fn kind(values: &Values) -> MetricType {
    match values {
        Values::Counter(_) | Values::CounterOfTime(_) => MetricType::Counter,
        Values::Gauge(_) => MetricType::Gauge,
        Values::Histogram { .. } => MetricType::Histogram,
        Values::Info(_) => MetricType::Info,
    }
}

fn write_values(mut metric: MetricEncoder<'_>, values: &Values) -> fmt::Result {
    match values {
        Values::Counter(rows) => rows.iter().try_for_each(|(labels, count)| {
            series(&mut metric, labels, |metric| metric.encode_counter::<Labels, _, u64>(count, None))
        }),
        Values::CounterOfTime(seconds) => metric.encode_counter::<Labels, _, f64>(seconds, None),
        Values::Gauge(rows) => rows
            .iter()
            .try_for_each(|(labels, value)| series(&mut metric, labels, |metric| metric.encode_gauge(value))),
        Values::Histogram { buckets, sum } => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            metric.encode_histogram::<Labels>(*sum, count, buckets, None)
        }
        Values::Info(labels) => metric.encode_info(labels),
    }
}

/// Writes one series; omits the braces without labels.
fn series(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels,
    write: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() { write(metric) } else { write(&mut metric.encode_family(labels)?) }
}

#[cfg(test)]
mod tests;

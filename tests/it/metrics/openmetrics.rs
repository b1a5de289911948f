//! A reader of OpenMetrics text that shares no code with the writer, and accepts only what the
//! format allows.

use std::collections::{BTreeMap, BTreeSet};

/// A parsed page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The type of every metric, by its name.
    pub(crate) types: BTreeMap<String, String>,
    /// The value of every series, by its name and labels as written.
    pub(crate) samples: BTreeMap<String, f64>,
}

#[derive(Default)]
struct Metric {
    name: String,
    kind: String,
    unit: Option<String>,
    has_help: bool,
    /// The buckets of the histogram so far, in their order.
    buckets: Vec<(f64, f64)>,
    has_samples: bool,
}

impl Page {
    /// The value of a series.
    pub(crate) fn value(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no `{series}` in {:#?}", self.samples))
    }
}

/// Reads a page.
///
/// Errors: the line that breaks the format, and how.
pub(crate) fn read(text: &str) -> Result<Page, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("it does not end with `# EOF`")?;
    let mut page = Page::default();
    let mut metric = Metric::default();
    let mut seen = BTreeSet::new();
    for line in body.split_terminator('\n') {
        let wrong = |what: &str| format!("{what}: {line}");
        let Some(rest) = line.strip_prefix("# ") else {
            sample(line, &mut metric, &mut page).map_err(|what| wrong(&what))?;
            continue;
        };
        let mut words = rest.splitn(3, ' ');
        let (Some(word), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else {
            return Err(wrong("a comment that says nothing"));
        };
        if name != metric.name {
            check_whole(&metric)?;
            metric = Metric { name: name.to_owned(), ..Metric::default() };
            if !seen.insert(name.to_owned()) {
                return Err(wrong("a metric that was there before"));
            }
        }
        if metric.has_samples {
            return Err(wrong("after samples of it"));
        }
        match word {
            "HELP" if !metric.has_help && !value.is_empty() => metric.has_help = true,
            "TYPE" if metric.kind.is_empty() => {
                if !["counter", "gauge", "histogram", "info"].contains(&value) {
                    return Err(wrong("no type that is expected"));
                }
                value.clone_into(&mut metric.kind);
                page.types.insert(name.to_owned(), value.to_owned());
            }
            "UNIT" if metric.unit.is_none() && name.ends_with(&format!("_{value}")) => {
                metric.unit = Some(value.to_owned());
            }
            _ => return Err(wrong("misplaced, repeated, or a unit that is not in the name")),
        }
    }
    check_whole(&metric)?;
    Ok(page)
}

fn check_whole(metric: &Metric) -> Result<(), String> {
    let Metric { name, kind, unit, has_help, .. } = metric;
    if name.is_empty() {
        return Ok(());
    }
    let is_named = !name.ends_with("_total") && !name.ends_with("_info") && !name.ends_with("_bucket");
    let is_whole = *has_help && !kind.is_empty() && is_named && !(kind == "info" && unit.is_some());
    if is_whole { Ok(()) } else { Err(format!("`{name}` has no help, no type, or a reserved name")) }
}

fn sample(line: &str, metric: &mut Metric, page: &mut Page) -> Result<(), String> {
    let (series, value) = line.rsplit_once(' ').ok_or("no value")?;
    let value: f64 = value.parse().map_err(|_| "the value is no number")?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, read_labels(labels.strip_suffix('}').ok_or("no `}`")?)?),
        None => (series, BTreeMap::new()),
    };
    let suffix = name.strip_prefix(metric.name.as_str()).ok_or("not of the metric above it")?;
    match (metric.kind.as_str(), suffix) {
        ("counter", "_total") if value >= 0.0 && value.is_finite() => {}
        ("gauge", "") => {}
        ("info", "_info") if value == 1.0 => {}
        ("histogram", "_sum") if value >= 0.0 => {}
        ("histogram", "_count") => {}
        ("histogram", "_bucket") => {
            let bound = match labels.get("le").ok_or("no `le`")?.as_str() {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().map_err(|_| "`le` is no number")?,
            };
            if metric.buckets.last().is_some_and(|(before, count)| *before >= bound || *count > value) {
                return Err("buckets that do not rise".to_owned());
            }
            metric.buckets.push((bound, value));
            let count = page.samples.get(&format!("{}_count", metric.name));
            if bound == f64::INFINITY && count != Some(&value) {
                return Err("the last bucket does not hold all".to_owned());
            }
        }
        _ => return Err(format!("no sample of a {}", metric.kind)),
    }
    metric.has_samples = true;
    match page.samples.insert(series.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err("a series that was there before".to_owned()),
    }
}

fn read_labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or("no value of a label")?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(format!("`{name}` is no label"));
        }
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().ok_or("a value without end")? {
                (at, '"') => break at,
                (_, '\\') => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                    _ => return Err("no escape that there is".to_owned()),
                },
                (_, other) => value.push(other),
            }
        };
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("`{name}` twice"));
        }
        rest = after.get(end + 1..).unwrap_or_default();
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Ok(labels)
}

#[test]
fn reader_rejects_invalid_openmetrics_text() {
    let good = "# HELP a_b Text.\n# TYPE a_b counter\n# UNIT a_b b\na_b_total{x=\"1\"} 1\na_b_total{x=\"\\\"\"} 2\n# EOF\n";
    assert_eq!(read(good).map(|page| page.samples.len()), Ok(2));
    for (from, to) in [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF\n\n"),
        ("# HELP a_b Text.\n", ""),
        ("# TYPE a_b counter\n", ""),
        ("# UNIT a_b b", "# UNIT a_b seconds"),
        ("{x=\"\\\"\"}", "{x=\"1\"}"),
        ("a_b_total{x=\"1\"}", "a_b{x=\"1\"}"),
        ("a_b_total{x=\"1\"}", "c_total{x=\"1\"}"),
        ("x=\"1\"", "x=\"1"),
        ("} 1", "} one"),
        ("} 1", "} -1"),
        ("# EOF", "# TYPE a_b counter\n# EOF"),
        ("counter", "histogram"),
    ] {
        assert!(read(&good.replacen(from, to, 1)).is_err(), "{from:?} as {to:?}");
    }
    let histogram = |buckets: &str| {
        read(&format!("# HELP h H.\n# TYPE h histogram\nh_sum 1.0\nh_count 2\n{buckets}# EOF\n"))
    };
    let whole = "h_bucket{le=\"0.5\"} 1\nh_bucket{le=\"+Inf\"} 2\n";
    assert!(histogram(whole).is_ok(), "{:?}", histogram(whole));
    assert!(histogram(&whole.replace("} 1", "} 3")).is_err());
    assert!(histogram(&whole.replace("} 2", "} 1")).is_err());
}

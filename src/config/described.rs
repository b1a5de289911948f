//! A subscriber in words: what it takes, how it delivers, and each key in force with its origin.

use super::listing::Listed;
use crate::config::{
    effective::{self, KeyInForce},
    report::Place,
};

/// A key in force.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Its section and name, such as `output.priority`.
    pub key: String,
    /// Its value as TOML.
    pub value: String,
    /// Where a file has it; `None` for a default.
    pub place: Option<Place>,
}

/// Every key in force: those of files, and the defaults of the others that have an effect.
pub fn in_force(one: &Listed) -> Vec<Origin> {
    let own = |key: &KeyInForce| Origin {
        key: key.key.clone(),
        value: key.value.to_string(),
        place: Some(key.place.clone()),
    };
    let default =
        |(key, value): (&str, &str)| Origin { key: key.to_owned(), value: value.to_owned(), place: None };
    let mut all: Vec<Origin> = one.keys.iter().map(own).collect();
    all.extend(effective::defaults(&one.keys).into_iter().map(default));
    all.sort_by_key(|origin| effective::section(&origin.key));
    all
}

/// The words of a key in force.
struct Words<'a>(&'a [Origin]);

impl Words<'_> {
    fn raw(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|origin| origin.key == key).map(|origin| origin.value.as_str())
    }

    /// The text, without its quotes; `None` for an absent or empty one.
    fn text(&self, key: &str) -> Option<String> {
        let value = effective::value(self.raw(key)?)?;
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Array(items) => {
                let items =
                    items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
                items.collect::<Vec<_>>().join(", ")
            }
            toml::Value::Integer(_)
            | toml::Value::Float(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Table(_) => value.to_string(),
        };
        Some(text.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty())
    }

    fn number(&self, key: &str) -> Option<u64> {
        effective::value(self.raw(key)?)?.as_integer().and_then(|number| u64::try_from(number).ok())
    }

    /// A fragment with the text of a key, if there is one.
    fn with(&self, begin: &str, key: &str) -> String {
        self.text(key).map(|text| format!("{begin}{text}")).unwrap_or_default()
    }
}

/// One sentence about the events that it takes.
pub fn takes(one: &Listed) -> String {
    let keys = in_force(one);
    let words = Words(&keys);
    let severity = words.text("events.severity_filter").filter(|least| least != "debug");
    let severity = severity.map(|least| format!(" of {least} or more")).unwrap_or_default();
    let repeats = match (words.text("batching.dedupe_key"), words.text("batching.dedupe_window")) {
        (None, _) => String::new(),
        (Some(key), Some(window)) => format!("; a repeat of {key} within {window} is counted"),
        (Some(key), None) => {
            let window = words.number("batching.dedupe_window_ms").unwrap_or_default();
            format!("; a repeat of {key} within {} is counted", millis(window))
        }
    };
    format!(
        "takes {}{severity}{}{}{repeats}",
        words.text("events.types").unwrap_or_else(|| "no type".to_owned()),
        words.with(" from ", "events.sources"),
        words.with(" where ", "events.where"),
    )
}

/// One sentence about how its notifications are made and delivered.
pub fn delivers(one: &Listed) -> String {
    let keys = in_force(one);
    let words = Words(&keys);
    let window = words.number("batching.window_ms").unwrap_or_default();
    let group = words.with(" by ", "batching.group_by");
    let batches = match words.text("batching.mode").as_deref() {
        Some("digest") => {
            format!("digests{}{}", words.with(" every ", "batching.every"), words.with(" at ", "batching.at"))
        }
        Some("debounce") => format!("batches that end {} after their last event", millis(window)),
        Some(_) | None if window == 0 => "each event alone".to_owned(),
        Some(_) | None => format!("batches of {}", millis(window)),
    };
    let priority = words.text("output.priority").unwrap_or_default();
    let point = words.text("output.inject_at").unwrap_or_default();
    let audience = match words.text("output.audience").as_deref() {
        Some("user") => "the user",
        Some("both") => "the agent and the user",
        Some(_) | None => "the agent",
    };
    format!(
        "delivers {batches}{group} as {priority} notifications at {point} to {audience}{}{}{}{}{}",
        words.with("; at most ", "limits.rate"),
        words.with("; each ends after ", "limits.ttl"),
        words.with("; withdrawn by ", "limits.resolved_by"),
        words.with("; quiet ", "limits.quiet"),
        words.with("; waits for ", "limits.deliver_after"),
    )
}

fn millis(millis: u64) -> String {
    if millis.is_multiple_of(1_000) { format!("{} s", millis / 1_000) } else { format!("{millis} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
        listing,
    };

    fn listed(text: &str) -> Listed {
        let file = SourceFile {
            layer: LayerKind::User,
            name: "subscribers/x.toml".into(),
            path: "x.toml".into(),
            text: format!("subscriber.id = \"x\"\n{text}").into(),
        };
        let sources = Sources::shipped().with([file], []);
        let compiled = compile(&sources, &[]);
        assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
        listing::subscribers(&sources, &compiled).into_iter().find(|one| one.id == "x").expect("it is listed")
    }

    #[test]
    fn sentences_name_the_keys_that_matter() {
        let one = listed(
            "events.types = [\"a.b\", \"c.*\"]\nevents.severity_filter = \"error\"\nevents.sources = [\"ci\"]\n\
             events.where = \"payload.n > 1\"\nbatching.dedupe_key = \"payload.n\"\nbatching.group_by = \"payload.zone\"\n\
             limits.rate = \"3/min\"\nlimits.ttl = \"10m\"\noutput.priority = \"low\"\noutput.audience = \"both\"\n",
        );
        assert_eq!(
            takes(&one),
            "takes a.b, c.* of error or more from ci where payload.n > 1; a repeat of payload.n within 5 s is counted"
        );
        assert_eq!(
            delivers(&one),
            "delivers batches of 2 s by payload.zone as low notifications at turn_end to the agent and the user; at most \
             3/min; each ends after 10m"
        );
        let plain = listed("events.types = [\"a.b\"]\nbatching.window_ms = 0\n");
        assert_eq!(takes(&plain), "takes a.b");
        assert_eq!(
            delivers(&plain),
            "delivers each event alone as normal notifications at after_tool to the agent"
        );
    }

    #[test]
    fn each_key_has_its_origin() {
        let one = listed("events.types = [\"a.b\"]\noutput.priority = \"low\"\n");
        let shown: Vec<String> = in_force(&one)
            .into_iter()
            .map(|origin| {
                let place = origin.place.map_or_else(|| "default".to_owned(), |place| place.to_string());
                format!("{} = {} {place}", origin.key, origin.value)
            })
            .collect();
        for line in [
            "output.priority = \"low\" x.toml:3:8",
            "output.inject_at = \"turn_end\" default",
            "batching.window_ms = 2000 default",
        ] {
            assert!(shown.contains(&line.to_owned()), "{line}: {shown:?}");
        }
        assert!(!shown.iter().any(|line| line.contains("dedupe_window_ms")), "{shown:?}");
    }
}

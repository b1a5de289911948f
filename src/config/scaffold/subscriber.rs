//! The file of a new subscriber: every required key, and the optional ones that differ from their
//! defaults.

use std::{fmt::Write as _, time::Duration};

use engine::{
    event::EventType,
    notification::{InjectionPoint, Notification, Priority},
};
use serde_json::{Map, Value};

use super::{
    cleaned,
    fields::Fields,
    literal::{self, inline, quoted},
};
use crate::config::case::TestEvent;

/// The first line of a subscriber's file.
const HEAD: &str = "#:schema ../.schema/subscriber.json\n";
/// The time between the events of a test.
const STEP: Duration = Duration::from_millis(100);
/// A field that is no column, so that a test notices if all fields are.
const NO_COLUMN: &str = "no_column";
/// Most events of a test: fewer than close a batch.
const STEPS_MAX: usize = 8;

/// A new subscriber.
#[derive(Debug)]
pub struct Draft<'a> {
    /// Its id.
    pub id: &'a str,
    /// The patterns of its types.
    pub types: &'a [String],
    /// Its priority, if it is named.
    pub priority: Option<Priority>,
    /// Its point, if it is named.
    pub point: Option<InjectionPoint>,
    /// The fields of its events.
    pub fields: &'a Fields,
    /// Whether its text is a template of its own.
    pub has_template: bool,
    /// Whether the fields are placeholders.
    pub is_invented: bool,
    /// Whether no known type has a name that the types select.
    pub is_unknown: bool,
}

impl Draft<'_> {
    /// Its file, without tests.
    pub fn file(&self) -> String {
        let mut text = HEAD.to_owned();
        if self.is_invented {
            let names = self.fields.columns().join("` and `");
            let _ = writeln!(
                text,
                "# No event of these types was found: `{names}` stand for the fields of their payloads."
            );
        }
        let _ = write!(text, "\n[subscriber]\nid = {}\n\n[events]\n", quoted(self.id));
        if self.is_unknown {
            text.push_str("# aside: allow(unknown-type)\n");
        }
        let types: Vec<String> = self.types.iter().map(|pattern| quoted(pattern)).collect();
        let _ = writeln!(text, "types = [{}]", types.join(", "));
        if let Some(key) = self.dedupe_key() {
            let _ = write!(text, "\n[batching]\ndedupe_key = {}\n", quoted(&key));
        }
        let output = self.output();
        if !output.is_empty() {
            let _ = write!(text, "\n[output]\n{output}");
        }
        if !self.has_template {
            let _ = write!(text, "\n[output.table]\nkey = {}\n{}", quoted(self.id), self.columns());
        }
        text
    }

    /// The text of its template.
    pub fn template(&self) -> String {
        let line = |name: &&str| match self.fields.is_everywhere(name) {
            true => format!("{name}: {{{{ event.payload.{name} }}}}\n"),
            false => format!(
                "{{% if event.payload.{name} is defined %}}\n{name}: {{{{ event.payload.{name} }}}}\n{{% endif %}}\n"
            ),
        };
        let columns = self.fields.columns();
        let (one, options) = match columns.as_slice() {
            [] => (format!("{}: {{{{ event.type }}}}\n", self.id), String::new()),
            some => {
                let names: Vec<Value> = some.iter().map(|name| Value::from(*name)).collect();
                (some.iter().map(line).collect(), format!(", columns={}", Value::from(names)))
            }
        };
        format!(
            "{{# The text of `{id}`. #}}\n{{% if count == 1 %}}\n{{% set event = events[0] %}}\n{one}{{% else %}}\n\
             {{{{ rows|toon(key=\"{id}\"{options}) }}}}\n{{% endif %}}\n",
            id = self.id
        )
    }

    fn dedupe_key(&self) -> Option<String> {
        let fields: Vec<String> = self.fields.keys().iter().map(|name| format!("payload.{name}")).collect();
        let is_one_type = matches!(self.types, [one] if !one.contains('*'));
        let types = (!is_one_type).then(|| "type".to_owned());
        (!fields.is_empty()).then(|| types.into_iter().chain(fields).collect::<Vec<_>>().join(":"))
    }

    fn output(&self) -> String {
        let mut text = String::new();
        if let Some(priority) = self.priority.filter(|own| *own != Priority::Normal) {
            let _ = writeln!(text, "priority = {}", quoted(priority.as_str()));
        }
        if let Some(point) = self.point {
            let _ = writeln!(text, "inject_at = {}", quoted(point.as_str()));
        }
        if self.has_template {
            return text;
        }
        let line = |name: &&str| format!("{name}: {{{{ payload.{name} }}}}\n");
        let lines: String = match self.fields.columns().as_slice() {
            [] => format!("{}: {{{{ type }}}}\n", self.id),
            some => some.iter().map(line).collect(),
        };
        let _ = write!(text, "one = \"\"\"\n{lines}\"\"\"\n");
        text
    }

    fn columns(&self) -> String {
        let columns = self.fields.columns();
        if columns.is_empty() {
            return "columns = { type = \"@type\" }\n".to_owned();
        }
        format!("columns = {}\n", inline(&columns.into_iter().map(Value::from).collect()))
    }

    /// Its tests: the names, and the steps made of `events`, the newest first.
    pub fn tests(&self, events: &[TestEvent]) -> Vec<(&'static str, Vec<(Duration, TestEvent)>)> {
        let shown: Vec<TestEvent> = events.iter().map(|event| self.shown(event)).collect();
        let Some(first) = shown.first() else { return Vec::new() };
        let keys = self.fields.keys();
        let differs = |other: &&TestEvent| {
            let own = |name: &&str| first.payload.get(*name) != other.payload.get(*name);
            if keys.is_empty() { first.payload != other.payload } else { keys.iter().any(own) }
        };
        let second = shown.iter().find(differs).cloned().unwrap_or_else(|| first.varied(1));
        let mut second = second;
        if let Some(fields) = second.payload.as_object_mut() {
            fields.insert(NO_COLUMN.to_owned(), "x".into());
        }
        let mut several = vec![first.clone(), second];
        several.extend(self.distinguished(first));
        several.truncate(STEPS_MAX);
        let times = (0..).map(|number| STEP * number);
        vec![
            ("one event is a few lines", vec![(Duration::ZERO, first.clone())]),
            ("several events are one table", times.zip(several).collect()),
        ]
    }

    /// A repeat of `first`, and events that differ from it in one field of the dedupe key, or in their type.
    fn distinguished(&self, first: &TestEvent) -> Vec<TestEvent> {
        let keys = self.fields.keys();
        let with = |from: &TestEvent, names: &[&str], event: TestEvent| {
            let mut event = event;
            for (name, value) in event.payload.as_object_mut().into_iter().flatten() {
                if let Some(own) = from.payload.get(name).filter(|_| names.contains(&name.as_str())) {
                    *value = own.clone();
                }
            }
            event
        };
        let other = first.varied(2);
        let repeat = (!keys.is_empty()).then(|| with(first, &keys, other.clone()));
        let in_key = keys.iter().filter(|_| keys.len() > 1).map(|key| with(&other, &[key], first.clone()));
        let of_types = self.other_types(first).into_iter();
        let of_types = of_types.map(|event_type| TestEvent { event_type, ..first.clone() });
        repeat.into_iter().chain(of_types).chain(in_key).collect()
    }

    /// A type for each pattern that is not only the type of `first`.
    fn other_types(&self, first: &TestEvent) -> Vec<EventType> {
        let made = self.types.iter().map(|pattern| pattern.replace("**", "other").replace('*', "other"));
        let types = made.filter_map(|made| made.parse().ok());
        types.filter(|made: &EventType| *made != first.event_type).collect()
    }

    /// What its tests claim of a notification: its text, and the keys of the file that decide about it.
    pub fn claims(&self, notification: &Notification) -> String {
        let mut claims = format!("text = {}", literal::text(notification.content.text()));
        if self.priority.is_some_and(|own| own != Priority::Normal) {
            let _ = write!(claims, ", priority = {}", quoted(notification.priority.as_str()));
        }
        if self.point.is_some() {
            let _ = write!(claims, ", point = {}", quoted(notification.inject_at.as_str()));
        }
        claims
    }

    /// The event as it is written, with the fields that the file names and no source, which decides about trust.
    fn shown(&self, event: &TestEvent) -> TestEvent {
        let is_named = |name: &&String| {
            self.fields.columns().contains(&name.as_str()) || self.fields.keys().contains(&name.as_str())
        };
        let event = cleaned(event);
        let fields = event.payload.as_object().into_iter().flatten();
        let fields =
            fields.filter(|(name, _)| is_named(name)).map(|(name, value)| (name.clone(), value.clone()));
        let payload = Value::Object(fields.collect::<Map<_, _>>());
        TestEvent { payload, source: None, dedupe_key: None, ..event }
    }
}

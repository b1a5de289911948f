//! The text of a subscriber as a template: what `aside edit ID --text` writes.
//!
//! A template is copied, and so is `many` alone. The text of one event and that of several become the
//! branches of one template. The result is proven before it is returned: it renders each example of the subscriber,
//! and variants with absent, empty and odd fields, to the same text.

use std::{fmt::Write as _, sync::Arc};

use engine::{
    event::{Event, Payload, Seq, catalogue::CatalogueEntry},
    pipeline::{
        render::{Code, EVENT_VARIABLES, Layout, OPTIONAL, Templates},
        row::Row,
        rule::Subscriber,
        threshold::ThresholdRule,
    },
};
use serde_json::{Value, json};

use super::templates::{examples, input};
use crate::config::{
    compile::{Compiled, template_name},
    effective::{self, DeclaredTable, DeclaredText},
    layers::{FileKind, SourceFile, Sources},
    layout::TEMPLATE_SUFFIX,
};

/// Most examples of a subscriber that are varied.
const EXAMPLES_MAX: usize = 20;
/// The sizes of the batches that are compared.
const BATCHES: [usize; 3] = [2, 3, 20];

/// The text in force of the subscriber `id`, as a template.
///
/// Errors: no template writes the same; a sentence that says why.
pub fn text_as_template(
    sources: &Sources,
    compiled: &Compiled,
    catalogue: &[&CatalogueEntry],
    id: &str,
) -> Result<String, String> {
    let rule = compiled.rules.subscribers.iter().find(|rule| rule.id.as_str() == id);
    let rule = rule.ok_or("there is no such subscriber")?;
    if let Layout::Template(name) = &rule.output.layout {
        let file = sources.of_kind(FileKind::Template).filter(|file| template_name(file) == &**name).last();
        return file.map(|file| file.text.to_string()).ok_or_else(|| {
            "its text is the generic table, which has the fields of any event; write a template, or `one` and \
             `many`"
                .to_owned()
        });
    }
    let declared = declaration(compiled, rule).ok_or("its text is not declared in a file")?;
    let examples = examples(rule, compiled, catalogue);
    let mut difference = None;
    for text in candidates(&declared, rule)? {
        match first_difference(rule, compiled, &text, &examples) {
            None => return Ok(text),
            Some(found) => difference = difference.or(Some(found)),
        }
    }
    Err(difference.unwrap_or_else(|| "it has no text".to_owned()))
}

/// The declaration in the subscriber's own files, or in those of the shipped subscriber whose text
/// they name.
fn declaration(compiled: &Compiled, rule: &Subscriber) -> Option<DeclaredText> {
    let keys = effective::keys(compiled.files.get(&rule.id)?);
    if let Some(own) = DeclaredText::of(&keys) {
        return Some(own);
    }
    let named = keys.iter().find(|key| key.key == "output.template").and_then(effective::text);
    let id = named.as_deref().unwrap_or(rule.id.as_str());
    let id = id.strip_prefix("templates/").unwrap_or(id);
    let name = format!("subscribers/{}.toml", id.strip_suffix(TEMPLATE_SUFFIX).unwrap_or(id));
    let shipped = Sources::shipped();
    let file: Vec<SourceFile> = shipped.files().iter().filter(|file| *file.name == *name).cloned().collect();
    DeclaredText::of(&effective::keys(&file))
}

/// Templates that may write the same, the likeliest first.
///
/// Errors: there is none.
fn candidates(text: &DeclaredText, rule: &Subscriber) -> Result<Vec<String>, String> {
    let head = format!("{{# The text of `{}`. #}}\n", rule.id);
    let branches = |one: &str, several: &str| {
        let end = if several.ends_with('\n') { "" } else { "\n" };
        format!("{head}{{% if count == 1 %}}\n{one}{{% else %}}\n{several}{end}{{% endif %}}\n")
    };
    let several = text.many.clone().or_else(|| text.table.as_ref().map(table_as_template));
    match (&text.one, &several) {
        (Some(one), Some(several)) => Ok(vec![branches(&one_as_template(one)?, several)]),
        (Some(one), None) if !rule.batching.collects() => {
            Ok(vec![format!("{head}{}", one_as_template(one)?)])
        }
        (Some(_), None) => Err("its text of several events is the generic table, which no template writes; \
                                add `many` or [output.table] first"
            .to_owned()),
        (None, Some(several)) => {
            let table = text.table.as_ref().map(|table| branches(&lines(table), several));
            Ok(table.into_iter().chain([format!("{head}{several}")]).collect())
        }
        (None, None) => Err("it has no text".to_owned()),
    }
}

/// The table of several events.
fn table_as_template(table: &DeclaredTable) -> String {
    let mut options = format!("key={}", json!(table.key));
    if let Some(columns) = &table.columns {
        let column = |(name, from): &(String, Vec<String>)| match from.as_slice() {
            [one] => format!("{}: {}", json!(name), json!(one)),
            several => format!("{}: {}", json!(name), json!(several)),
        };
        let columns: Vec<_> = columns.iter().map(column).collect();
        let _ = write!(options, ", columns={{{}}}", columns.join(", "));
    }
    if !table.repeats {
        options.push_str(", repeats=false");
    }
    format!("{{{{ rows|toon({options}) }}}}\n")
}

/// The lines of one event.
fn lines(table: &DeclaredTable) -> String {
    let Some(columns) = &table.columns else { return "{{ rows[0]|toon }}\n".to_owned() };
    let field = |from: &String| match from.strip_prefix('@') {
        Some("type.last") => "events[0].type|split(\".\")|last".to_owned(),
        Some("time") => "events[0].timestamp".to_owned(),
        Some("payload") => "events[0].payload|tojson".to_owned(),
        Some(own) => format!("events[0].{own}"),
        None => format!("rows[0][{}]", json!(from)),
    };
    let line = |(name, from): &(String, Vec<String>)| {
        let first = from.iter().rev().map(field).reduce(|rest, first| {
            format!("{first} if {first} is defined and {first} is not none else ({rest})")
        });
        format!(
            "{{% set cell = {} %}}\n{{% if cell is defined and cell is not none %}}\n{}: {{{{ cell }}}}\n{{% endif %}}\n",
            first.unwrap_or_default(),
            line_key(name)
        )
    };
    columns.iter().map(line).collect()
}

/// A column's name as a key of a TOON line; quoted if it is no bare word.
fn line_key(name: &str) -> String {
    let is_bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    if is_bare { name.to_owned() } else { json!(name).to_string() }
}

/// The text of one event, for a template that sees a batch: its variables are those of the first
/// event, and absent values print nothing.
///
/// Errors: it is no template.
fn one_as_template(one: &str) -> Result<String, String> {
    let Code { names, printed: ranges } = Code::of(one).map_err(|error| error.message)?;
    let mut text = String::new();
    for name in EVENT_VARIABLES
        .iter()
        .filter(|name| !["subscriber", "now", "threshold", "held", "absent_for"].contains(*name))
    {
        if names.contains(name) {
            let _ = writeln!(text, "{{% set {name} = events[0].{name} %}}");
        }
    }
    let mut end = 0;
    for range in ranges {
        text.push_str(one.get(end..range.start).expect("the ranges are in order"));
        text.push_str(&printed(one.get(range.clone()).expect("a range of the text")));
        end = range.end;
    }
    text.push_str(one.get(end..).expect("0, or the end of a range"));
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// A printed expression that prints nothing for an absent value.
fn printed(code: &str) -> String {
    let inner = code.strip_prefix("{{").and_then(|code| code.strip_suffix("}}")).unwrap_or(code);
    let (start, inner) = match inner.strip_prefix(['-', '+']) {
        Some(rest) => inner.split_at(inner.len() - rest.len()),
        None => ("", inner),
    };
    let (inner, end) = match inner.strip_suffix(['-', '+']) {
        Some(rest) => inner.split_at(rest.len()),
        None => (inner, ""),
    };
    let inner = inner.trim();
    if inner.strip_prefix("notify").is_some_and(|call| call.trim_start().starts_with('(')) {
        return code.to_owned();
    }
    let is_path = inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    let inner = if is_path { inner.to_owned() } else { format!("({inner})") };
    format!("{{{{{start} {inner}|{OPTIONAL} {end}}}}}")
}

/// How `text` differs from the text in force, for the examples and variants of them.
fn first_difference(
    rule: &Subscriber,
    compiled: &Compiled,
    text: &str,
    examples: &[Arc<Event>],
) -> Option<String> {
    let mut templates = Templates::with_libraries(compiled.rules.templates.libraries().clone());
    if let Err(error) = templates.add("text.toon.j2", text) {
        return Some(format!("no template writes it: {}", error.message));
    }
    let template = Layout::Template("text.toon.j2".into());
    let differs = |rows: &[Row]| {
        let rendered = template.render(&templates, &input(rule, rows));
        let (own, failure) = (rendered.content, rendered.failure.map(|failure| failure.message));
        let before = rule.output.layout.render(&compiled.rules.templates, &input(rule, rows)).content;
        (own != before).then(|| {
            let events: Vec<_> = rows.iter().map(|row| row.event.payload.as_str()).collect();
            let failure = failure.map(|failure| format!(" ({failure})")).unwrap_or_default();
            let events = events.join(", ");
            format!("no template writes the same of {events}: {own:?} in place of {before:?}{failure}")
        })
    };
    let varied: Vec<Arc<Event>> = examples.iter().take(EXAMPLES_MAX).flat_map(variants).collect();
    let row = |(seq, event): (u64, &Arc<Event>)| Row {
        seq: Seq(seq),
        event: Arc::clone(event),
        repeats: if seq % 7 == 0 { 3 } else { 1 },
        threshold: rule.threshold.as_ref().map(ThresholdRule::example).map(Box::new),
        suppressed: None,
    };
    let rows: Vec<Row> = (1..).zip(&varied).map(row).collect();
    let alone = rows.chunks(1);
    let several = BATCHES
        .iter()
        .filter(|_| rule.batching.collects())
        .flat_map(|size| rows.windows(*size).step_by(size - 1));
    alone.chain(several).find_map(differs)
}

/// The event, and copies of it in which one field is absent, empty or odd.
fn variants(event: &Arc<Event>) -> Vec<Arc<Event>> {
    let odd = [
        None,
        Some(Value::Null),
        Some(json!("")),
        Some(json!(0)),
        Some(json!(false)),
        Some(json!(-1.5)),
        Some(json!(["a", "b"])),
        Some(json!([[1], { "a": 2 }])),
        Some(json!({ "a": { "b": 1 } })),
        Some(json!("a: \"b\", c\n- </x> {{ y }}")),
        Some(json!("x".repeat(3_000))),
    ];
    let mut variants = vec![Arc::clone(event)];
    let payload = event.payload.value();
    for field in payload.as_object().into_iter().flatten().map(|(name, _)| name) {
        for value in &odd {
            let mut fields = payload.as_object().cloned().unwrap_or_default();
            match value {
                Some(value) => fields.insert(field.clone(), value.clone()),
                None => fields.shift_remove(field),
            };
            let payload = Payload::from(Value::Object(fields));
            variants.push(Arc::new(Event { payload, ..(**event).clone() }));
        }
    }
    variants
}

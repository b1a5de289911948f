//! Renders examples for subscribers: by their templates, by the layout in their own files, and by
//! their sentences for people. A name that no event has gets its probable meaning.

use std::sync::Arc;

use engine::{
    event::{
        Event, Payload, Seq,
        catalogue::{CatalogueEntry, OwnSeverities},
    },
    nearest::nearest,
    pipeline::{
        render::{EVENT_FIELDS, Layout, RenderFailure, RenderInput, Rendered},
        row::Row,
        rule::Subscriber,
        threshold::ThresholdRule,
    },
    sorted::{SortedMap, SortedSet},
};
use journal::time::Timestamp;
use serde_json::Value;

use crate::config::{
    case::{SubscriberTest, TestEvent, fixture::Unused},
    compile::{Compiled, library_name, template_name},
    effective,
    layers::{FileKind, LayerKind, SourceFile, Sources},
    layout::{DeclaredPlaces, TEMPLATE_SUFFIX},
    lint_name::LintName,
    report::{Diagnostic, Place, sentence},
};

/// The time of the examples.
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// Rows of the larger batch: more than two, so that a length written for one or two rows does not
/// match by chance.
const ROWS: usize = 3;

/// Renders the templates in the files `own`, and returns the first failure of each line of each
/// template.
pub(super) fn findings(
    sources: &Sources,
    compiled: &Compiled,
    catalogue: &[&CatalogueEntry],
    own: &SortedSet<&Arc<str>>,
) -> Vec<Diagnostic> {
    let files = files_in_use(sources, compiled);
    let mut found: SortedMap<(Arc<str>, usize), Diagnostic> = SortedMap::new();
    let mut names = Vec::new();
    for rule in &compiled.rules.subscribers {
        let texts = texts(rule, compiled, &files, own);
        if texts.is_empty() {
            continue;
        }
        let examples = examples(rule, compiled, catalogue);
        let batches = batches(rule, &examples);
        for text in texts {
            names.extend(absent_columns(text, rule, compiled, &examples));
            names.extend(absent_fields(text, rule, &examples, catalogue));
            for (rows, words) in &batches {
                let diagnostic = match try_one(text, rule, compiled, rows) {
                    Outcome::Good => continue,
                    Outcome::Failed(failure) => failed(text, rule, &failure, rows, words),
                    Outcome::PlainText(content) => plain_text(text, &content),
                };
                let place = &diagnostic.place;
                found.get_or_insert_with((Arc::clone(&place.file), place.span.start), || diagnostic);
            }
        }
    }
    found.into_values().chain(names).chain(unused(&files, sources, compiled)).collect()
}

/// Where an author defines the text of notifications, or the words about them for a person.
#[derive(Clone, Copy)]
enum Text<'a> {
    Template(&'a SourceFile),
    /// The places of the declared text, and its start.
    Declared(&'a DeclaredPlaces, &'a Place),
    /// The place of `sentence`, and its text.
    Sentence(&'a Place, &'a str),
    /// A text of a file that is not checked, and where a checked file chooses it.
    Chosen(Words, &'a Place),
}

/// Whom a text is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Agent,
    Person,
}

/// The texts of a subscriber that the files `own` define or choose.
fn texts<'a>(
    rule: &Subscriber,
    compiled: &'a Compiled,
    files: &SortedMap<&str, &'a SourceFile>,
    own: &SortedSet<&Arc<str>>,
) -> Vec<Text<'a>> {
    let places = compiled.declared.get(&rule.id);
    let text = match &rule.output.layout {
        Layout::Template(name) => files.get(&**name).map(|file| Text::Template(file)),
        Layout::Declared(_) => places.and_then(|places| Some(Text::Declared(places, places.text()?))),
    };
    let sentence = places.and_then(|places| places.sentence.as_ref());
    let sentence = sentence.map(|(place, text)| Text::Sentence(place, text));
    let is_own = |place: &Place| own.contains(&place.file);
    let chosen = places.and_then(|places| places.chosen.as_ref()).filter(|place| is_own(place));
    let tried = |text: Option<Text<'a>>, words| {
        let own = text.filter(|text| is_own(&text.place()));
        own.or_else(|| chosen.map(|place| Text::Chosen(words, place)))
    };
    tried(text, Words::Agent).into_iter().chain(tried(sentence, Words::Person)).collect()
}

/// The name that is undefined according to the message of a failure, in its line.
pub(super) fn undefined_name(line: &Place, message: &str) -> Option<Place> {
    let path = message.strip_prefix('`').and_then(|rest| rest.strip_suffix("` is undefined"));
    path.and_then(|path| line.first_name(path))
}

impl<'a> Text<'a> {
    /// Its name in messages.
    const fn name(self) -> &'static str {
        match self {
            Self::Template(_) => "template",
            Self::Declared(..) | Self::Chosen(Words::Agent, _) => "output",
            Self::Sentence(..) | Self::Chosen(Words::Person, _) => "sentence",
        }
    }

    const fn words(self) -> Words {
        match self {
            Self::Template(_) | Self::Declared(..) => Words::Agent,
            Self::Sentence(..) => Words::Person,
            Self::Chosen(words, _) => words,
        }
    }

    /// What is shown if it fails.
    const fn substitute(self) -> &'static str {
        match self.words() {
            Words::Agent => "would deliver the generic table in its place",
            Words::Person => "would show the first values of its text in its place",
        }
    }

    /// Its start.
    fn place(self) -> Place {
        match self {
            Self::Template(file) => Place::line_of(&file.path, &file.text, 1),
            Self::Declared(_, place) | Self::Sentence(place, _) | Self::Chosen(_, place) => place.clone(),
        }
    }

    /// The place to correct for a failure: with `count` events: an expression or a line of a
    /// template, of the text of a batch of that size or of a sentence, else the table.
    fn place_of(self, failure: &RenderFailure, count: usize) -> Place {
        let part = |place: &Place, text: &str, line| {
            let range = failure.range.clone().map(|range| place.within(text, range));
            let whole = place.line_within(text, line);
            undefined_name(&whole, &failure.message).or(range).unwrap_or(whole)
        };
        match (self, failure.line) {
            (Self::Template(file), Some(line)) => {
                part(&Place::whole(&file.path, &file.text), &file.text, line)
            }
            (Self::Template(file), None) => Place::line_of(&file.path, &file.text, 1),
            (Self::Declared(places, _), line) => match (places.template_for(count), line) {
                (Some((place, text)), Some(line)) => part(place, text, line),
                (Some((place, _)), None) => places.table.as_ref().unwrap_or(place).clone(),
                (None, _) => self.place_of_table(),
            },
            (Self::Sentence(place, text), Some(line)) => part(place, text, line),
            (Self::Sentence(..) | Self::Chosen(..), _) => self.place(),
        }
    }

    /// The place of the table, if there is one.
    fn place_of_table(self) -> Place {
        match self {
            Self::Declared(DeclaredPlaces { table: Some(table), .. }, _) => table.clone(),
            Self::Template(_) | Self::Declared(..) | Self::Sentence(..) | Self::Chosen(..) => self.place(),
        }
    }

    fn place_of_column(self, column: &str) -> Place {
        let quoted = |place: &Place| {
            let quoted = ['"', '\''].map(|quote| format!("{quote}{column}{quote}"));
            place.first_of(&quoted.each_ref().map(String::as_str))
        };
        match self {
            Self::Template(file) => {
                let whole = Place::whole(&file.path, &file.text);
                quoted(&whole).unwrap_or_else(|| Place::file(&file.path))
            }
            Self::Declared(DeclaredPlaces { many: Some((place, _)), .. }, _) => {
                quoted(place).unwrap_or_else(|| place.clone())
            }
            Self::Declared(places, _) => {
                places.columns.get(column).cloned().unwrap_or_else(|| self.place_of_table())
            }
            Self::Sentence(place, _) | Self::Chosen(_, place) => place.clone(),
        }
    }

    /// The text of `count` events that is searched for hints about names.
    fn source(&self, count: usize) -> &str {
        match self {
            Self::Template(file) => &file.text,
            Self::Declared(places, _) => places.template_for(count).map_or("", |(_, text)| text),
            Self::Sentence(_, text) => text,
            Self::Chosen(..) => "",
        }
    }

    /// The payload fields that a text of one event names, and the place of that text.
    fn fields(self, rule: &'a Subscriber) -> Option<(&'a Place, &'a SortedSet<String>)> {
        match (self, &rule.output.layout) {
            (Self::Declared(DeclaredPlaces { one: Some((place, _)), .. }, _), Layout::Declared(declared)) => {
                Some((place, declared.one()?.fields()))
            }
            (Self::Sentence(place, _), _) => Some((place, rule.output.sentence.as_ref()?.fields())),
            (Self::Template(_) | Self::Declared(..) | Self::Chosen(..), _) => None,
        }
    }
}

/// The file of each template name: that of the latest layer.
fn files_in_use<'s>(sources: &'s Sources, compiled: &Compiled) -> SortedMap<&'s str, &'s SourceFile> {
    let files = sources.of_kind(FileKind::Template).map(|file| (template_name(file), file));
    files.filter(|(name, _)| compiled.rules.templates.contains(name)).collect()
}

/// The result of rendering.
enum Outcome {
    Good,
    Failed(RenderFailure),
    PlainText(String),
}

fn try_one(text: Text<'_>, rule: &Subscriber, compiled: &Compiled, rows: &[Row]) -> Outcome {
    if text.words() == Words::Person {
        let rendered = rule.output.sentence.as_ref().map(|sentence| sentence.render(&input(rule, rows)));
        return rendered.and_then(Result::err).map_or(Outcome::Good, Outcome::Failed);
    }
    let Rendered { content, failure, .. } = render(rule, compiled, rows);
    match (failure, toon::decode(&content)) {
        (Some(failure), _) => Outcome::Failed(failure),
        (None, Ok(value)) if is_plain_text(&value) => Outcome::PlainText(content),
        (None, _) => Outcome::Good,
    }
}

fn render(rule: &Subscriber, compiled: &Compiled, rows: &[Row]) -> Rendered {
    rule.output.layout.render(&compiled.rules.templates, &input(rule, rows))
}

pub(super) fn input<'a>(rule: &'a Subscriber, rows: &'a [Row]) -> RenderInput<'a> {
    let max_tokens = rule.output.max_tokens;
    RenderInput {
        subscriber_name: &rule.name,
        kept: rule.batching.kept(),
        now: NOW,
        absent_for: rule.absence.as_ref().map(|absence| absence.after),
        ..RenderInput::new(&rule.id, rows, max_tokens)
    }
}

/// Columns that a template names and no example has. All examples together are one table, so a
/// column exists if any of them has it.
fn absent_columns(
    text: Text<'_>,
    rule: &Subscriber,
    compiled: &Compiled,
    examples: &[Arc<Event>],
) -> Vec<Diagnostic> {
    if matches!(text, Text::Sentence(..) | Text::Chosen(..)) {
        return Vec::new();
    }
    let rows = rows_of(rule, examples.iter().cycle().take(examples.len().max(ROWS)));
    let rendered = render(rule, compiled, &rows);
    let absent = rendered.absent.iter().filter(|_| rendered.failure.is_none());
    absent
        .map(|column| {
            let message = format!("no example of the types of `{}` has a column `{column}`", rule.id);
            Diagnostic::error(text.place_of_column(column), "", message)
                .with_nearest(meant_column(column, &rows))
                .with_note("if it is intended, use it in an event of `[[tests]]`")
                .into_lint(LintName::UnknownField)
        })
        .collect()
}

/// Payload fields that a text of one event names and no example has: they print nothing.
fn absent_fields(
    text: Text<'_>,
    rule: &Subscriber,
    examples: &[Arc<Event>],
    catalogue: &[&CatalogueEntry],
) -> Vec<Diagnostic> {
    let Some((place, names)) = text.fields(rule) else { return Vec::new() };
    let taken = |entry: &CatalogueEntry| rule.types.iter().any(|pattern| pattern.matches(&entry.event_type));
    let is_known = |entry: &CatalogueEntry, name: &str| {
        entry.aliases.contains_key(name) || entry.example.value().get(name).is_some()
    };
    let has = |name: &str| {
        examples.iter().any(|event| event.payload.value().get(name).is_some())
            || catalogue.iter().any(|entry| taken(entry) && is_known(entry, name))
    };
    let absent = names.iter().filter(|name| !examples.is_empty() && !has(name));
    let diagnose = |name: &String| {
        let message = format!("no example of the types of `{}` has a field `{name}` in its payload", rule.id);
        let at = place.first_name(&format!("payload.{name}")).unwrap_or_else(|| place.clone());
        Diagnostic::error(at, "", message)
            .with_nearest(meant_column(name, &rows_of(rule, examples)).map(|name| format!("payload.{name}")))
            .with_note("if it is intended, use it in an event of `[[tests]]`")
            .into_lint(LintName::UnknownField)
    };
    absent.map(diagnose).collect()
}

/// Whether the output is text for people that only happens to be valid TOON: it has no key, or a
/// key that starts with a bracket of JSON.
fn is_plain_text(value: &Value) -> bool {
    let is_json = |key: &String| key.starts_with(['{', '[']);
    value.is_string() || value.as_object().is_some_and(|fields| fields.keys().any(is_json))
}

fn failed(
    text: Text<'_>,
    rule: &Subscriber,
    failure: &RenderFailure,
    rows: &[Row],
    words: &str,
) -> Diagnostic {
    let message = format!("{} fails with {words}: {}", text.name(), sentence(&failure.message));
    let note = format!("`{}` {}", rule.id, text.substitute());
    let meant = meant(&failure.message, text.source(rows.len()), rows);
    if let Some(place) = literal_count(text, failure, rows.len()) {
        let note = format!("write {{{{ count }}}} there; {note}");
        return Diagnostic::error(place, "", message).with_note(note).named(LintName::LiteralCount);
    }
    Diagnostic::error(text.place_of(failure, rows.len()), "", message).with_nearest(meant).with_note(note)
}

/// The number in the header of a table that has another number of rows.
fn literal_count(text: Text<'_>, failure: &RenderFailure, rows: usize) -> Option<Place> {
    let (whole, source) = match text {
        Text::Template(file) => (Place::whole(&file.path, &file.text), &*file.text),
        Text::Declared(places, _) => {
            let (place, source) = places.template_for(rows)?;
            (place.clone(), &**source)
        }
        Text::Sentence(..) | Text::Chosen(..) => return None,
    };
    let (_, rest) = failure.message.split_once("Expected ")?;
    let count: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let header = format!("[{count}]");
    let at = source.find(&header).filter(|_| !count.is_empty())?;
    Some(whole.within(source, at + 1..at + 1 + count.len()))
}

fn plain_text(text: Text<'_>, content: &str) -> Diagnostic {
    let message = format!("{} writes text that has no key: {}", text.name(), sentence(content));
    Diagnostic::error(text.place(), "", message)
        .with_note("a line is written `key: value`; JSON and lists of YAML are text here")
        .into_lint(LintName::PlainText)
}

/// Templates and libraries above the shipped layer that no subscriber uses, and fixtures that
/// neither a test nor a preview can use; not checked while any file has an error.
fn unused(files: &SortedMap<&str, &SourceFile>, sources: &Sources, compiled: &Compiled) -> Vec<Diagnostic> {
    if compiled.report.error_count() > 0 {
        return Vec::new();
    }
    let is_used = |name: &str| {
        compiled.rules.subscribers.iter().any(|rule| rule.output.layout.template() == Some(name))
    };
    let unused = files.iter().filter(|(name, file)| file.layer != LayerKind::Shipped && !is_used(name));
    let templates = unused.map(|(name, file)| unused_template(name, file, compiled));
    let fixtures = unused_fixtures(compiled);
    let taken = |rule: &Arc<Subscriber>| {
        let text = rule.output.layout.libraries(&compiled.rules.templates);
        let words = rule.output.sentence.iter().flat_map(|words| words.libraries());
        text.into_iter().chain(words).map(str::to_owned).collect::<Vec<_>>()
    };
    let taken: SortedSet<String> = compiled.rules.subscribers.iter().flat_map(taken).collect();
    let known = sources.of_kind(FileKind::Library).filter(|file| file.layer != LayerKind::Shipped);
    let libraries = known.filter_map(|file| {
        let name = library_name(file).filter(|name| !taken.contains(*name))?;
        let message = format!("no text in use takes a macro of the library `{name}`");
        let note = format!("a text takes one by {{% from \"{name}\" import macro %}}");
        let place = Place::line_of(&file.path, &file.text, 1);
        Some(Diagnostic::lint(LintName::UnusedFile, place, "", message).with_note(note))
    });
    templates.chain(fixtures).chain(libraries).collect()
}

/// A fixture is used by a test that names it, or by the preview of a subscriber that takes its events.
fn unused_fixtures(compiled: &Compiled) -> Vec<Diagnostic> {
    let is_taken = |event: &TestEvent| {
        let mut patterns = compiled.rules.subscribers.iter().flat_map(|rule| rule.patterns());
        patterns.any(|pattern| pattern.matches(&event.event_type))
    };
    let diagnose = |Unused { name, place, is_replaced }: Unused<'_>| {
        let (rest, note) = match is_replaced {
            true => ("which a later layer replaces", String::new()),
            false => {
                ("and no subscriber takes its events", format!("a test uses it as [\"0s\", \"@{name}\"]"))
            }
        };
        let message = format!("no test uses the fixture `{name}`, {rest}");
        let found = Diagnostic::lint(LintName::UnusedFile, place.clone(), "", message);
        if note.is_empty() { found } else { found.with_note(note) }
    };
    compiled.fixtures.unused(is_taken).into_iter().map(diagnose).collect()
}

/// A template is used if a subscriber names it, or has no text of its own in the same layer or a
/// later one.
fn unused_template(name: &str, file: &SourceFile, compiled: &Compiled) -> Diagnostic {
    let message = format!("no subscriber uses the template `{name}`");
    let wrong =
        Diagnostic::lint(LintName::UnusedFile, Place::line_of(&file.path, &file.text, 1), "", message);
    let id = name.trim_end_matches(TEMPLATE_SUFFIX);
    let own = compiled.files.iter().find(|(known, _)| known.as_str() == id);
    if let Some(text) = own.and_then(|(_, files)| effective::keys(files).into_iter().find(effective::is_text))
    {
        let note = format!(
            "`{}` in {} is the text of `{id}`: a template replaces that of an earlier layer",
            text.key, text.place.file
        );
        return wrong.with_note(note);
    }
    let ids = compiled.rules.subscribers.iter().map(|rule| rule.id.as_str());
    wrong
        .with_nearest(nearest(id, ids).map(|id| format!("{id}{TEMPLATE_SUFFIX}")))
        .with_note("a subscriber uses the template named like its id, or the one in its `template`")
}

/// Possible events for a subscriber's template, those of its tests first.
pub(crate) fn examples(
    rule: &Subscriber,
    compiled: &Compiled,
    catalogue: &[&CatalogueEntry],
) -> Vec<Arc<Event>> {
    let tests = compiled.tests.get(&rule.id).map(Vec::as_slice).unwrap_or_default();
    let severities = OwnSeverities::new(&compiled.events);
    let of_tests = tests.iter().flat_map(SubscriberTest::events).map(|(_, event)| {
        let source =
            event.source.clone().or_else(|| rule.sources.first().map(|source| source.as_str().into()));
        let severity =
            event.severity.unwrap_or_else(|| severities.default_severity(event.event_type.as_str()));
        (event.event_type.clone(), Payload::from(event.payload.clone()), severity, source)
    });
    let with_example = catalogue.iter().filter(|entry| entry.example.as_str() != "{}");
    let of_catalogue = with_example.map(|entry| {
        let source = rule.sources.first().map(|source| source.as_str().into());
        let severity = severities.default_severity(entry.event_type.as_str());
        (entry.event_type.clone(), entry.example.clone(), severity, source)
    });
    let events = (1_u32..).zip(of_tests.chain(of_catalogue)).map(
        |(number, (event_type, payload, severity, source))| Event {
            id: format!("example-{number}").into(),
            source: source.unwrap_or_else(|| "example".into()),
            severity,
            timestamp: NOW,
            ..Event::example(event_type, payload)
        },
    );
    events.map(Arc::new).filter(|event| rule.takes(event)).collect()
}

/// Each example alone, then three together, with a description for messages.
fn batches(rule: &Subscriber, examples: &[Arc<Event>]) -> Vec<(Vec<Row>, String)> {
    let one = |event: &Arc<Event>| (rows_of(rule, [event]), format!("one `{}`", event.event_type));
    let mut batches: Vec<_> = examples.iter().map(one).collect();
    let several = rows_of(rule, examples.iter().cycle().take(ROWS));
    if let Some(first) = several.first() {
        let words = format!("three events, the first being `{}`", first.event.event_type);
        batches.push((several, words));
    }
    batches
}

pub(super) fn rows_of<'e>(rule: &Subscriber, events: impl IntoIterator<Item = &'e Arc<Event>>) -> Vec<Row> {
    let row = |(seq, event): (u64, &Arc<Event>)| Row {
        seq: Seq(seq),
        event: Arc::clone(event),
        repeats: 1,
        threshold: rule.threshold.as_ref().map(ThresholdRule::example).map(Box::new),
        suppressed: None,
    };
    (1..).zip(events).map(row).collect()
}

/// Named arguments of `toon` and the related filters.
const TOON_OPTIONS: [&str; 4] = ["key", "columns", "indent", "repeats"];

/// The probable name if `template` failed with `message` for `rows`; `None` if none is similar.
pub(super) fn meant(message: &str, template: &str, rows: &[Row]) -> Option<String> {
    if let Some((_, rest)) = message.split_once("unknown keyword argument \'") {
        let option = rest.split_once('\'').map_or(rest, |(option, _)| option);
        return nearest(option, TOON_OPTIONS).map(str::to_owned);
    }
    if let Some((_, rest)) = message.split_once("no row has a column `") {
        return meant_column(rest.split_once('`').map_or(rest, |(column, _)| column), rows);
    }
    let path = message.strip_prefix('`')?.strip_suffix("` is undefined")?;
    let (parent, name) = path.rsplit_once('.')?;
    let keys = payload_keys(rows);
    let near_key = || nearest(name, keys.iter().map(String::as_str));
    let is_payload = parent == "payload" || parent.ends_with(".payload");
    let is_row = parent.starts_with("rows[") || template.contains(&format!("for {parent} in rows"));
    if is_payload || is_row {
        return near_key().map(|key| format!("{parent}.{key}"));
    }
    if keys.contains(name) {
        return Some(format!("{parent}.payload.{name}"));
    }
    let field = nearest(name, EVENT_FIELDS).map(|field| format!("{parent}.{field}"));
    field.or_else(|| near_key().map(|key| format!("{parent}.payload.{key}")))
}

/// The probable column for one that none of `rows` has.
pub(super) fn meant_column(column: &str, rows: &[Row]) -> Option<String> {
    nearest(column, payload_keys(rows).iter().map(String::as_str)).map(str::to_owned)
}

/// The top-level keys of the payloads.
fn payload_keys(rows: &[Row]) -> SortedSet<String> {
    rows.iter()
        .filter_map(|row| row.event.payload.value().as_object())
        .flat_map(|fields| fields.keys().cloned())
        .collect()
}

//! A compiled template.
//!
//! A template must not read files or other templates, or exceed its account
//! ([`crate::pipeline::sandbox`]). It may test whether an optional field is present; printing an
//! absent one is a failure, except in the text of one event. A program that writes a template in
//! another form gets the code in it.

mod code;
mod filters;
mod lint;
mod relative;

use std::{
    fmt,
    sync::{Arc, LazyLock, OnceLock},
    time::Duration,
};

use journal::time::{Timestamp, duration_millis};
use minijinja::{
    Environment, Error, ErrorKind, Output, State, UndefinedBehavior, context,
    value::{Enumerator, Object, Value as Printed},
};
use serde_json::Value;

use self::{filters::Notices, lint::VARIABLES};
use super::{
    RenderInput, TemplateError,
    assemble::{
        self, Misfit,
        placeholders::{OPEN, Placeholder, Placeholders},
    },
    draft::{Attempt, Body, Draft, Kept, Printed as Counts},
    table::{
        clean_event::{EVENT_FIELDS, EventView, Events, REPEATS, Shown, clean_field},
        rows::Rows,
    },
};
use crate::{
    event::FIELD_CHARS_MAX,
    notification::SubscriberId,
    pipeline::sandbox::{
        self, Checked, ErrorPlace, Grammar, Libraries, Library, OwnText, Program, StrayField, Trace,
        account::{self, ACCOUNT, Account, ENDLESS},
    },
    pipeline::threshold::Reached,
    sorted::SortedSet,
};

pub use self::{code::Code, filters::OPTIONAL, lint::EVENT_VARIABLES};

/// Most instructions of one run; a table of 100 rows with 10 columns needs about 20,000.
const FUEL: u64 = 200_000;
/// `held.why`: the one rule that keeps a batch open.
const QUIET_HOURS: &str = "quiet hours";
const FILTERS: [&str; 8] = {
    let ([a, b, c, d, e, f], [g, h]) = (filters::NAMES, relative::NAMES);
    [a, b, c, d, e, f, g, h]
};
const GRAMMAR: Grammar = Grammar {
    variables: &VARIABLES,
    filters: &FILTERS,
    functions: &[filters::NAME],
    event_fields: &EVENT_FIELDS,
    unknown: lint::unknown_variable,
};
const EVENT_GRAMMAR: Grammar =
    Grammar { variables: &EVENT_VARIABLES, unknown: lint::unknown_event_variable, ..GRAMMAR };
const SENTENCE_GRAMMAR: Grammar = Grammar { filters: &relative::NAMES, functions: &[], ..EVENT_GRAMMAR };

type Print = fn(&mut Output<'_>, &mut State<'_, '_>, &Printed) -> Result<(), Error>;

static ENVIRONMENT: LazyLock<Environment<'static>> =
    LazyLock::new(|| environment(UndefinedBehavior::SemiStrict, print));
static EVENT_ENVIRONMENT: LazyLock<Environment<'static>> =
    LazyLock::new(|| environment(UndefinedBehavior::Chainable, print_what_is_there));
static SENTENCE_ENVIRONMENT: LazyLock<Environment<'static>> =
    LazyLock::new(|| environment(UndefinedBehavior::Chainable, print_words));
/// For templates with the filter `optional`: an absent value is nothing in every operation, and
/// printing one without the filter is a failure.
static OPTIONAL_ENVIRONMENT: LazyLock<Environment<'static>> =
    LazyLock::new(|| environment(UndefinedBehavior::Chainable, print));

/// The filters and functions are those of every view; its grammar refuses what it may not use.
fn environment(absent: UndefinedBehavior, print: Print) -> Environment<'static> {
    let mut environment = sandbox::environment(absent, FUEL, filters::expanded_value);
    environment.set_formatter(print);
    filters::add_to(&mut environment);
    relative::add_to(&mut environment);
    filters::add_notify(&mut environment);
    environment
}

/// The variables of a template, and the effect of printing an absent value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// All events of a batch. Printing an absent value is a failure; elsewhere it is nothing if the
    /// template has the filter `optional`.
    Batch,
    /// The fields of one event. An absent value prints nothing.
    Event,
    /// The fields of one event, for plain text instead of TOON.
    Sentence,
}

impl View {
    const fn grammar(self) -> &'static Grammar {
        match self {
            Self::Batch => &GRAMMAR,
            Self::Event => &EVENT_GRAMMAR,
            Self::Sentence => &SENTENCE_GRAMMAR,
        }
    }

    fn environment(self, checked: &Checked) -> &'static Environment<'static> {
        match self {
            Self::Batch if checked.filters.contains(filters::OPTIONAL) => &OPTIONAL_ENVIRONMENT,
            Self::Batch => &ENVIRONMENT,
            Self::Event => &EVENT_ENVIRONMENT,
            Self::Sentence => &SENTENCE_ENVIRONMENT,
        }
    }

    /// The counts that a template prints by its variables.
    fn printed(self, program: &Program, checked: &Checked) -> Counts {
        let mut texts = program.libraries().iter().map(|library| &*library.text).chain([program.source()]);
        let asks = |name: &str| checked.asks.contains(name);
        match self {
            Self::Batch => Counts {
                row_repeats: texts.any(|text| text.contains(".repeats")),
                repeats: asks("repeats"),
                suppressed: asks("suppressed"),
                sources: false,
            },
            Self::Event => Counts { row_repeats: asks(REPEATS), ..Counts::default() },
            Self::Sentence => Counts::default(),
        }
    }
}

/// A template: compiled, or to be compiled when it first runs.
pub(super) struct Template {
    view: View,
    source: Arc<str>,
    compiled: OnceLock<Result<Compiled, TemplateError>>,
}

/// A compiled template, with the names it uses.
struct Compiled {
    program: Program,
    view: View,
    environment: &'static Environment<'static>,
    printed: Counts,
    /// The payload fields that it names.
    fields: SortedSet<String>,
    /// The fields that it reads of an event and that no event has.
    strays: Vec<StrayField>,
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        (self.view, &self.source, self.taken()) == (other.view, &other.source, other.taken())
    }
}

impl Eq for Template {}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.source).finish()
    }
}

impl Compiled {
    fn new(view: View, source: &Arc<str>, libraries: &Libraries) -> Result<Self, TemplateError> {
        lint::check_text(source)?;
        let (program, checked) = Program::template(Arc::clone(source), view.grammar(), libraries)
            .map_err(|fault| lint::template_error(source, fault))?;
        let (environment, printed) = (view.environment(&checked), view.printed(&program, &checked));
        Ok(Self { program, view, environment, printed, fields: checked.fields, strays: checked.strays })
    }
}

impl Template {
    /// Compiles and checks a source.
    pub(super) fn compile(view: View, source: &str, libraries: &Libraries) -> Result<Self, TemplateError> {
        let source = source.into();
        let compiled = Compiled::new(view, &source, libraries)?;
        Ok(Self { view, source, compiled: Ok(compiled).into() })
    }

    /// A source without libraries that is compiled when the template first runs; a fault in it is a
    /// failure of each run.
    pub(super) fn deferred(view: View, source: &str) -> Self {
        Self { view, source: source.into(), compiled: OnceLock::new() }
    }

    fn compiled(&self) -> Result<&Compiled, &TemplateError> {
        let compile = || Compiled::new(self.view, &self.source, &Libraries::default());
        self.compiled.get_or_init(compile).as_ref()
    }

    fn taken(&self) -> &[Library] {
        self.compiled
            .get()
            .and_then(|compiled| compiled.as_ref().ok())
            .map_or(&[], |one| one.program.libraries())
    }

    /// The names of the libraries that it takes macros from, also by other libraries.
    pub(super) fn libraries(&self) -> impl Iterator<Item = &str> {
        self.taken().iter().map(|library| &*library.name)
    }

    /// The payload fields that it names as `payload.name`; none if it does not compile.
    pub(super) fn fields(&self) -> &SortedSet<String> {
        static NONE: SortedSet<String> = SortedSet::new();
        self.compiled().map_or(&NONE, |compiled| &compiled.fields)
    }

    /// The fields that it reads of an event and that no event has; none if it does not compile.
    pub(super) fn strays(&self) -> &[StrayField] {
        self.compiled().map_or(&[], |compiled| &compiled.strays)
    }

    /// Runs the template and converts its output into one strict document.
    pub(super) fn run(
        &self,
        input: &RenderInput<'_>,
        events: &Shown,
        account: &Arc<Account>,
    ) -> Result<Draft, Attempt> {
        let compiled = self.compiled().map_err(unusable)?;
        let Ran { text: output, placeholders, said } =
            compiled.execute(&compiled.program, input, events, account)?;
        let body = assemble::document(&output, &placeholders).map_err(|misfit| match misfit {
            Misfit::TooMuch => Attempt::TooBig,
            Misfit::Nothing => Attempt::Nothing,
            Misfit::Wrong { line, message } => {
                let line = line.and_then(|line| compiled.line(line, input, events, account));
                Attempt::Failed { line, range: None, message }
            }
        })?;
        let shows_repeats = match &body {
            Body::Written { shows_repeats, .. } => *shows_repeats,
            Body::Decoded { value, .. } => has_key(value, REPEATS),
        };
        let printed = compiled.printed;
        let printed = Counts { row_repeats: printed.row_repeats || shows_repeats, ..printed };
        let Placeholders { left_out, absent, .. } = placeholders;
        Ok(Draft { body, printed, left_out, absent, words: said.words() })
    }

    /// Runs the template and returns its output as plain text.
    pub(super) fn words(
        &self,
        input: &RenderInput<'_>,
        events: &Shown,
        account: &Arc<Account>,
    ) -> Result<String, Attempt> {
        let compiled = self.compiled().map_err(unusable)?;
        let Ran { text, placeholders, said: _ } =
            compiled.execute(&compiled.program, input, events, account)?;
        if placeholders.is_empty() {
            return Ok(text);
        }
        placeholders.expand(&text).map_err(|_| Attempt::TooBig)
    }
}

/// The failure of a template that does not compile.
fn unusable(error: &TemplateError) -> Attempt {
    Attempt::Failed { line: Some(error.line), range: error.range.clone(), message: error.message.clone() }
}

impl Compiled {
    /// The line of the template that wrote a line of its output: runs a failed template once more,
    /// with line numbers in its output.
    fn line(
        &self,
        output_line: usize,
        input: &RenderInput<'_>,
        events: &Shown,
        account: &Arc<Account>,
    ) -> Option<usize> {
        let traced = self.program.traced().ok()?;
        let ran = self.execute(&traced, input, events, account).ok()?;
        assemble::template_line(&ran.text, &ran.placeholders, output_line)
    }

    /// Runs `program`: this one, or its copy with the lines.
    fn execute(
        &self,
        program: &Program,
        input: &RenderInput<'_>,
        events: &Shown,
        account: &Arc<Account>,
    ) -> Result<Ran, Attempt> {
        let context = Context {
            count: events.len(),
            shown: events.clone(),
            kept: input.kept,
            events: OnceLock::new(),
            rows: OnceLock::new(),
            repeats: input.repeats,
            suppressed: input.suppressed,
            held_since: input.held_since,
            absent_for: input.absent_for,
            threshold: input.rows.iter().rev().find_map(|row| row.threshold.clone()),
            subscriber: input.subscriber.clone(),
            subscriber_name: input.subscriber_name.into(),
            now: input.now,
            folder: relative::folder(input.rows),
            account: Arc::clone(account),
        };
        let root = match self.view {
            View::Batch => Printed::from_object(context),
            View::Event | View::Sentence => {
                let event = Arc::new(EventView::new(events.clone(), 0));
                Printed::from_object(EventContext { event, batch: Arc::new(context) })
            }
        };
        let mut output = String::with_capacity(program.source().len());
        let ended = program.run(self.environment, root, &mut output, |_, state| {
            let (instructions, _) = state.fuel_levels().unwrap_or_default();
            let placeholders =
                state.get_extension_mut::<Placeholders>().map(std::mem::take).unwrap_or_default();
            (
                placeholders,
                state.get_extension_mut::<Notices>().map(std::mem::take).unwrap_or_default(),
                instructions,
            )
        });
        // A failed run may have used all of its fuel.
        let instructions = ended.as_ref().map_or(FUEL, |(.., instructions)| *instructions);
        let is_paid = account.spend(instructions);
        let (placeholders, said, _) = ended.map_err(|error| failed(&error, program))?;
        is_paid.map_err(|error| failed(&error, program))?;
        Ok(Ran { text: output, placeholders, said })
    }
}

/// The results of one run.
struct Ran {
    text: String,
    placeholders: Placeholders,
    said: Notices,
}

/// The variables of one render. Most templates use two or three, so expensive ones are created on
/// use.
#[derive(Debug)]
struct Context {
    shown: Shown,
    /// The rows that a table keeps if it cannot show all.
    kept: Kept,
    events: OnceLock<Printed>,
    rows: OnceLock<Printed>,
    count: usize,
    repeats: u32,
    suppressed: u32,
    threshold: Option<Box<Reached>>,
    held_since: Option<Timestamp>,
    absent_for: Option<Duration>,
    subscriber: SubscriberId,
    subscriber_name: Box<str>,
    now: Timestamp,
    /// The folder of all events.
    folder: Option<Arc<str>>,
    account: Arc<Account>,
}

impl Object for Context {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        let events = || Printed::from_object(Events(self.shown.clone()));
        let rows = || Printed::from_object(Rows::new(self.shown.clone()).with_kept(self.kept));
        Some(match key {
            "events" => self.events.get_or_init(events).clone(),
            "rows" => self.rows.get_or_init(rows).clone(),
            "count" => self.count.into(),
            "repeats" => self.repeats.into(),
            "suppressed" => self.suppressed.into(),
            "threshold" => threshold(self.threshold.as_ref()?),
            "held" => context! { since => self.held_since?.to_string(), why => QUIET_HOURS },
            "absent_for" => duration_millis(self.absent_for?).into(),
            "subscriber" => context! {
                id => self.subscriber.as_str(),
                name => clean_field(&self.subscriber_name, FIELD_CHARS_MAX),
            },
            "now" => self.now.to_string().into(),
            relative::NOW => self.now.as_millis().into(),
            relative::FOLDER => Printed::from(self.folder.as_deref()?),
            ACCOUNT => Printed::from_dyn_object(Arc::clone(&self.account)),
            _ => return None,
        })
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&VARIABLES)
    }
}

/// The variable `threshold`: whole numbers without a fraction, others with six digits of it at most.
fn threshold(Reached { total, level, by }: &Reached) -> Printed {
    let number = |number: f64| {
        let whole = number as i64;
        let rounded = (number * 1e6).round() / 1e6;
        if whole as f64 == number { Printed::from(whole) } else { Printed::from(rounded) }
    };
    context! { total => number(*total), level => level.map(number), by => clean_field(by, FIELD_CHARS_MAX) }
}

/// The variables of the text of one event: the event's own fields, and those that do not depend on
/// events.
#[derive(Debug)]
struct EventContext {
    event: Arc<EventView>,
    batch: Arc<Context>,
}

impl Object for EventContext {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        match key {
            "subscriber"
            | "now"
            | "threshold"
            | "held"
            | "absent_for"
            | relative::NOW
            | relative::FOLDER
            | ACCOUNT => self.batch.get_value_by_str(key),
            _ => self.event.get_value_by_str(key),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&EVENT_VARIABLES)
    }
}

fn has_key(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| key == name || has_key(value, name)),
        Value::Array(items) => items.iter().any(|item| has_key(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Writes a placeholder into the output for every printed value.
///
/// The captured text of a macro or a block assignment is a safe string: template text with
/// placeholders.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Printed) -> Result<(), Error> {
    if let Some(own) = value.downcast_object_ref::<OwnText>() {
        return print_own(out, state, own);
    }
    let captured = value.as_str().filter(|_| value.is_safe());
    account::spend_text(state, value.as_str().map_or(0, str::len))?;
    if let Some(captured) = captured {
        return Ok(out.write_str(without_blank_edges(captured))?);
    }
    let scalar = filters::to_scalar(state, value)?;
    let placeholder = filters::keep(state, Placeholder::Scalar(scalar))?;
    Ok(out.write_str(&placeholder)?)
}

/// Like [`print`], but an absent value, null or an empty text prints nothing, and a list or map
/// prints its text as in a table.
fn print_what_is_there(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Printed,
) -> Result<(), Error> {
    if value.downcast_object_ref::<OwnText>().is_some() {
        return print(out, state, value);
    }
    let value = filters::optional(state, value)?;
    print(out, state, &value)
}

/// Like [`print_what_is_there`], for plain text: a text is written as it is.
fn print_words(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Printed) -> Result<(), Error> {
    match value.as_str().filter(|text| !value.is_safe() && !text.contains(OPEN)) {
        Some(text) => {
            account::spend_text(state, text.len())?;
            filters::note_printed(state, text.len())?;
            Ok(out.write_str(text)?)
        }
        None if value.is_undefined() || value.is_none() => Ok(()),
        None => print_what_is_there(out, state, value),
    }
}

fn print_own(out: &mut Output<'_>, state: &mut State<'_, '_>, own: &OwnText) -> Result<(), Error> {
    account::spend_text(state, own.text.len())?;
    if own.trace == Trace::Off {
        return Ok(out.write_str(&own.text)?);
    }
    for (index, text) in own.text.split('\n').enumerate() {
        if index > 0 {
            out.write_str("\n")?;
        }
        let placeholder = filters::keep(state, Placeholder::Line(own.line + index))?;
        out.write_str(&placeholder)?;
        out.write_str(text)?;
    }
    Ok(())
}

/// Removes the first and last newline of a block, which are not part of its content.
fn without_blank_edges(captured: &str) -> &str {
    let text = captured.trim_start_matches([' ', '\t']).strip_prefix('\n').unwrap_or(captured);
    let without_indent = text.trim_end_matches([' ', '\t']);
    without_indent.strip_suffix('\n').unwrap_or(text)
}

fn failed(error: &Error, program: &Program) -> Attempt {
    if error.detail() == Some(filters::TOO_MUCH) {
        return Attempt::TooBig;
    }
    let message = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, None) => format!("{ENDLESS} {FUEL} instructions"),
        (ErrorKind::OutOfFuel | ErrorKind::UndefinedError, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let ErrorPlace { line, range, library } = program.place(error);
    let message = match library {
        Some((name, line)) => format!("in `{name}`, line {line}: {message}"),
        None => message,
    };
    Attempt::Failed { line, range, message }
}

/// Checks a library on its own, for the widest use of its macros.
///
/// Errors: as for [`super::Templates::add`].
pub(super) fn check_library(name: &str, libraries: &Libraries) -> Result<(), TemplateError> {
    let source = libraries.text(name).map_or("", |text| &**text);
    lint::check_text(source)?;
    Program::check_library(name, &GRAMMAR, libraries).map_err(|fault| lint::template_error(source, fault))
}

/// The names that the texts of subscribers can use.
#[derive(Debug, Clone)]
pub struct Vocabulary {
    /// The variables of a batch, and those of one event.
    pub variables: Vec<&'static str>,
    /// The filters.
    pub filters: Vec<&'static str>,
    /// The functions.
    pub functions: Vec<&'static str>,
    /// The tests, after `is`; those written with signs are operators.
    pub tests: Vec<&'static str>,
}

/// The names that the texts of subscribers can use.
pub fn vocabulary() -> Vocabulary {
    let (mut filters, mut functions, mut tests) = sandbox::names();
    filters.extend(FILTERS);
    functions.push(filters::NAME);
    tests.retain(|name| name.bytes().all(|byte| byte.is_ascii_lowercase()));
    Vocabulary {
        variables: lint::VARIABLES.into_iter().chain(EVENT_VARIABLES).collect(),
        filters,
        functions,
        tests,
    }
}

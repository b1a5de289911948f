//! One compiled template.
//!
//! A template may not read files or other templates, print an undefined value, or do more work than its account allows
//! ([`crate::pipeline::sandbox`]). Asking whether an optional field is there is allowed.

use std::{
    fmt,
    sync::{Arc, LazyLock, OnceLock},
};

use minijinja::{
    Environment, Error, ErrorKind, Output, State, UndefinedBehavior, context,
    value::{Enumerator, Object, Value as Printed},
};
use serde_json::Value;

use super::{
    Attempt, Body, Draft, OUTPUT_BYTES_MAX, Printed as Counts, RenderInput, TemplateError,
    cells::{self, Misfit},
    filters, lint,
    marks::{Mark, Marks},
    plan::Plan,
    rows::{Events, REPEATS, Rows, Shown, clean_field},
    word::{self, Said},
};
use crate::{
    event::FIELD_CHARS_MAX,
    notification::SubscriberId,
    pipeline::sandbox::{
        self, Grammar, OwnText, Program, Trace,
        account::{self, ACCOUNT, Account},
    },
    time::Timestamp,
};

/// Instructions that one run may execute; a table of 100 rows with 10 columns takes about 20,000.
const FUEL: u64 = 200_000;
/// What a template sees.
pub(super) const VARIABLES: [&str; 7] =
    ["events", "rows", "count", "repeats", "suppressed", "subscriber", "now"];
const GRAMMAR: Grammar = Grammar {
    variables: &VARIABLES,
    filters: &filters::NAMES,
    functions: &[word::NAME],
    unknown: lint::unknown_variable,
};

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = sandbox::environment(UndefinedBehavior::SemiStrict, FUEL);
    environment.set_formatter(print);
    filters::add_to(&mut environment);
    word::add_to(&mut environment);
    environment
});

/// A template that compiled, with what it asks for.
pub(super) struct Template {
    program: Program,
    printed: Counts,
    pub(super) plan: Option<Plan>,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.program.source()).finish()
    }
}

impl Template {
    /// Compiles and lints a source.
    pub(super) fn compile(source: &str) -> Result<Self, TemplateError> {
        lint::check_text(source)?;
        let (checked, plan) = sandbox::check_template(source, &GRAMMAR, Plan::of)
            .map_err(|fault| lint::template_error(source, fault))?;
        let program = Program::template(source, Trace::Off)
            .map_err(|error| lint::template_error(source, (&error).into()))?;
        let printed = Counts {
            row_repeats: source.contains(".repeats"),
            repeats: checked.asks.contains("repeats"),
            suppressed: checked.asks.contains("suppressed"),
        };
        Ok(Self { program, printed, plan })
    }

    /// Writes the table that the template is known to come to, with the first `count` rows.
    pub(super) fn write(&self, plan: &Plan, rows: &Rows, count: usize) -> Result<Draft, Attempt> {
        let places: Vec<usize> = (0..count).collect();
        let written =
            plan.table.write(rows, &places).map_err(|message| Attempt::Failed { line: None, message })?;
        if written.text.len() > OUTPUT_BYTES_MAX {
            return Err(Attempt::TooBig);
        }
        let (text, keys, shows_repeats) = (written.text, vec![plan.table.key.clone()], written.shows_repeats);
        let body = Body::Written { text, keys, shows_repeats };
        let printed = Counts { row_repeats: self.printed.row_repeats || shows_repeats, ..self.printed };
        Ok(Draft { body, printed, left_out: 0, absent: written.absent, words: Vec::new() })
    }

    /// Runs the template and makes one strict document of its output.
    pub(super) fn run(
        &self,
        input: &RenderInput<'_>,
        events: &Shown,
        account: &Arc<Account>,
    ) -> Result<Draft, Attempt> {
        let Ran { text: output, marks, said } = execute(&self.program, input, events, account)?;
        let body = cells::document(&output, &marks).map_err(|misfit| match misfit {
            Misfit::TooMuch => Attempt::TooBig,
            Misfit::Wrong { line, message } => {
                let line = line.and_then(|line| self.line(line, input, events, account));
                Attempt::Failed { line, message }
            }
        })?;
        let shows_repeats = match &body {
            Body::Written { shows_repeats, .. } => *shows_repeats,
            Body::Decoded { value, .. } => has_key(value, REPEATS),
        };
        let printed = Counts { row_repeats: self.printed.row_repeats || shows_repeats, ..self.printed };
        Ok(Draft { body, printed, left_out: marks.left_out, absent: marks.absent, words: said.words() })
    }

    /// The line of the template that wrote a line of its output: what fails runs once more, and its own text says where it stands.
    fn line(
        &self,
        output_line: usize,
        input: &RenderInput<'_>,
        events: &Shown,
        account: &Arc<Account>,
    ) -> Option<usize> {
        let traced = Program::template(self.program.source(), Trace::Lines).ok()?;
        let ran = execute(&traced, input, events, account).ok()?;
        cells::template_line(&ran.text, &ran.marks, output_line)
    }
}

/// What a run left.
struct Ran {
    text: String,
    marks: Marks,
    said: Said,
}

fn execute(
    program: &Program,
    input: &RenderInput<'_>,
    events: &Shown,
    account: &Arc<Account>,
) -> Result<Ran, Attempt> {
    let root = Printed::from_object(Context {
        count: events.len(),
        shown: events.clone(),
        events: OnceLock::new(),
        rows: OnceLock::new(),
        repeats: input.repeats,
        suppressed: input.suppressed,
        subscriber: input.subscriber.clone(),
        subscriber_name: input.subscriber_name.into(),
        now: input.now,
        account: Arc::clone(account),
    });
    let mut output = String::with_capacity(program.source().len());
    let ended = program.run(&ENVIRONMENT, root, &mut output, |_, state| {
        let (instructions, _) = state.fuel_levels().unwrap_or_default();
        let marks = state.get_extension_mut::<Marks>().map(std::mem::take).unwrap_or_default();
        (marks, state.get_extension_mut::<Said>().map(std::mem::take).unwrap_or_default(), instructions)
    });
    // A run that failed may have used all of its fuel.
    let instructions = ended.as_ref().map_or(FUEL, |(.., instructions)| *instructions);
    let is_paid = account.spend(instructions);
    let (marks, said, _) = ended.map_err(|error| failed(&error))?;
    is_paid.map_err(|error| failed(&error))?;
    Ok(Ran { text: output, marks, said })
}

/// The variables of one render, of which most templates ask for two or three; what costs something is made when it is asked for.
#[derive(Debug)]
struct Context {
    shown: Shown,
    events: OnceLock<Printed>,
    rows: OnceLock<Printed>,
    count: usize,
    repeats: u32,
    suppressed: u32,
    subscriber: SubscriberId,
    subscriber_name: Box<str>,
    now: Timestamp,
    account: Arc<Account>,
}

impl Object for Context {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        let events = || Printed::from_object(Events(self.shown.clone()));
        let rows = || Printed::from_object(Rows::new(self.shown.clone()));
        Some(match key {
            "events" => self.events.get_or_init(events).clone(),
            "rows" => self.rows.get_or_init(rows).clone(),
            "count" => self.count.into(),
            "repeats" => self.repeats.into(),
            "suppressed" => self.suppressed.into(),
            "subscriber" => context! {
                id => self.subscriber.as_str(),
                name => clean_field(&self.subscriber_name, FIELD_CHARS_MAX),
            },
            "now" => self.now.to_string().into(),
            ACCOUNT => Printed::from_dyn_object(Arc::clone(&self.account)),
            _ => return None,
        })
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&VARIABLES)
    }
}

fn has_key(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| key == name || has_key(value, name)),
        Value::Array(items) => items.iter().any(|item| has_key(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Puts a mark into the output for every printed value.
///
/// What a macro or a block assignment captured is text of the template with marks in it, which minijinja hands over as a safe string.
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
    let mark = filters::keep(state, Mark::Scalar(scalar))?;
    Ok(out.write_str(&mark)?)
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
        let mark = filters::keep(state, Mark::Line(own.line + index))?;
        out.write_str(&mark)?;
        out.write_str(text)?;
    }
    Ok(())
}

/// A block's own first and last newline are no part of what it says.
fn without_blank_edges(captured: &str) -> &str {
    let first_line_end = captured.find(|c: char| c != ' ' && c != '\t').unwrap_or(captured.len());
    let start = match captured.get(first_line_end..).and_then(|rest| rest.chars().next()) {
        Some('\n') => first_line_end + 1,
        _ => 0,
    };
    let text = captured.get(start..).unwrap_or_default();
    let without_indent = text.trim_end_matches([' ', '\t']);
    without_indent.strip_suffix('\n').unwrap_or(text)
}

fn failed(error: &Error) -> Attempt {
    if error.detail() == Some(filters::TOO_MUCH) {
        return Attempt::TooBig;
    }
    let message = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, None) => format!("it ran for more than {FUEL} instructions"),
        (ErrorKind::OutOfFuel | ErrorKind::UndefinedError, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    Attempt::Failed { line: error.line(), message }
}

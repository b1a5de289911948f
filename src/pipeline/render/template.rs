//! One compiled template, and the sandbox it runs in.
//!
//! A template may not read files or other templates, print an undefined value, run for longer than its fuel, or print more than the output
//! limit. Asking whether an optional field is there is allowed.

use std::sync::Arc;

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, context,
    value::{Enumerator, Object, Value as Printed},
};
use serde_json::Value;

use super::{
    Attempt, Body, OUTPUT_BYTES_MAX, Printed as Counts, RenderInput, TemplateError, cells, filters, lint,
    marks::{Mark, Marks},
    plan::Plan,
    rows::{Events, REPEATS, Rows, Shown, clean_field},
};
use crate::{event::FIELD_CHARS_MAX, notification::SubscriberId, time::Timestamp};

/// Instructions that one render may execute; a table of 15 rows with 10 columns takes about 3,000.
const FUEL: u64 = 50_000;
/// Deepest nesting of macro calls.
const RECURSION_MAX: usize = 32;
/// The only name in the environment: each template has its own.
const NAME: &str = "template";
/// What a template sees.
pub(super) const VARIABLES: [&str; 7] =
    ["events", "rows", "count", "repeats", "suppressed", "subscriber", "now"];

/// A template that compiled, with what it asks for.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    uses_rows: bool,
    printed: Counts,
    plan: Option<Plan>,
}

impl Template {
    /// Compiles and lints a source.
    pub(super) fn compile(source: String) -> Result<Self, TemplateError> {
        lint::check_text(&source)?;
        let mut environment = sandbox();
        environment
            .add_template_owned(NAME, source.clone())
            .map_err(|error| lint::syntax_error(&source, &error))?;
        lint::check_tags(&source, &environment)?;
        let template = environment.get_template(NAME).expect("it was added above");
        let asked = template.undeclared_variables(false);
        lint::check_variables(&source, &asked, &environment)?;
        Ok(Self {
            uses_rows: asked.contains("rows"),
            printed: Counts {
                row_repeats: source.contains(".repeats"),
                repeats: asked.contains("repeats"),
                suppressed: asked.contains("suppressed"),
            },
            plan: Plan::of(&source, &environment),
            environment,
        })
    }

    /// Renders `events` and makes one strict document of the output.
    pub(super) fn render(&self, input: &RenderInput<'_>, events: &Shown) -> Result<(Body, Counts), Attempt> {
        match self.plan.as_ref().filter(|plan| plan.rows_min <= events.len()) {
            Some(plan) => self.write(plan, events),
            None => self.run(input, events),
        }
    }

    /// Does what [`Template::run`] comes to.
    fn write(&self, plan: &Plan, events: &Shown) -> Result<(Body, Counts), Attempt> {
        let text = plan.table.write(&Rows::new(events.clone()));
        if text.len() > OUTPUT_BYTES_MAX {
            return Err(Attempt::TooBig);
        }
        let body = Body::Written { text, keys: vec![plan.table.key.clone()], shows_repeats: true };
        Ok((body, Counts { row_repeats: true, ..self.printed }))
    }

    /// Runs the template and makes one strict document of its output.
    fn run(&self, input: &RenderInput<'_>, events: &Shown) -> Result<(Body, Counts), Attempt> {
        let template = self.environment.get_template(NAME).map_err(|error| failed(&error))?;
        let mut captured =
            template.render_captured(self.context(input, events)).map_err(|error| failed(&error))?;
        let marks = captured
            .with_state_mut(|state| state.get_extension_mut::<Marks>().map(std::mem::take))
            .unwrap_or_default();
        let body = cells::document(&captured.into_output(), &marks)?;
        let shows_repeats = match &body {
            Body::Written { shows_repeats, .. } => *shows_repeats,
            Body::Decoded { value, .. } => has_key(value, REPEATS),
        };
        Ok((body, Counts { row_repeats: self.printed.row_repeats || shows_repeats, ..self.printed }))
    }

    fn context(&self, input: &RenderInput<'_>, events: &Shown) -> Printed {
        let rows = Rows::new(if self.uses_rows { events.clone() } else { Shown::default() });
        Printed::from_object(Context {
            count: events.len(),
            events: Printed::from_object(Events(events.clone())),
            rows: Printed::from_object(rows),
            repeats: input.repeats,
            suppressed: input.suppressed,
            subscriber: input.subscriber.clone(),
            subscriber_name: input.subscriber_name.into(),
            now: input.now,
        })
    }
}

/// The variables of one render, of which most templates ask for two or three; what costs something is made when it is asked for.
#[derive(Debug)]
struct Context {
    events: Printed,
    rows: Printed,
    count: usize,
    repeats: u32,
    suppressed: u32,
    subscriber: SubscriberId,
    subscriber_name: Box<str>,
    now: Timestamp,
}

impl Object for Context {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        Some(match key {
            "events" => self.events.clone(),
            "rows" => self.rows.clone(),
            "count" => self.count.into(),
            "repeats" => self.repeats.into(),
            "suppressed" => self.suppressed.into(),
            "subscriber" => context! {
                id => self.subscriber.as_str(),
                name => clean_field(&self.subscriber_name, FIELD_CHARS_MAX),
            },
            "now" => self.now.to_string().into(),
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

/// The environment of a template, without the template.
pub(super) fn sandbox() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_auto_escape_callback(|_| AutoEscape::Custom("toon".into()));
    environment.set_formatter(print);
    environment.set_debug(true);
    environment.remove_filter("safe");
    environment.add_filter("tojson", filters::tojson);
    environment.add_filter("toon", filters::toon);
    environment.add_filter("toon_key", filters::toon_key);
    environment.add_filter("toon_row", filters::toon_row);
    environment.add_filter("tail", filters::tail);
    environment
}

/// Puts a mark into the output for every printed value.
///
/// What a macro or a block assignment captured is text of the template with marks in it, which minijinja hands over as a safe string.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Printed) -> Result<(), Error> {
    match value.as_str() {
        Some(captured) if value.is_safe() => Ok(out.write_str(without_blank_edges(captured))?),
        _ => {
            let scalar = filters::to_scalar(state, value)?;
            let mark = filters::keep(state, Mark::Scalar(scalar))?;
            Ok(out.write_str(&mark)?)
        }
    }
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
        (ErrorKind::OutOfFuel, _) => format!("it ran for more than {FUEL} instructions"),
        (ErrorKind::UndefinedError, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    Attempt::Failed { line: error.line(), message }
}

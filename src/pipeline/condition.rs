//! `where`: an expression over the fields of one event that decides whether a subscriber wants it.
//!
//! It is minijinja's, as in templates. It sees the event through a view that looks up what
//! is asked for and converts nothing else, and that parses the payload only if the expression looks into it.
//!
//! A field that is absent is undefined: it is false, equal to no value, and so is any field below it; `is defined` tells it
//! apart. In minijinja's order of values it comes before all others, so `payload.n > 1` is false without `n`, but
//! `payload.n < 5` is true: an upper bound alone needs `payload.n is defined and payload.n < 5`. A severity is its word, so
//! it can be compared with `==` and `in`; its order is what `severity_filter` is for.
//!
//! ```
//! use aside::pipeline::condition::Condition;
//!
//! assert!(Condition::compile("payload.retry_count > 1 and source != 'ci'").is_ok());
//! assert_eq!(Condition::compile("paylod.x > 1").unwrap_err().range, Some(0..6));
//! ```

use std::{
    collections::BTreeSet,
    fmt,
    ops::Range,
    sync::{Arc, LazyLock},
};

use minijinja::{
    Environment, Error, Expression, UndefinedBehavior,
    value::{Enumerator, Object, ObjectRepr, Value},
};
use serde_json::Value as Json;

use crate::{
    event::{Event, FieldPath},
    pipeline::hints::{self, Slip},
};

/// Longest `where`, in bytes. minijinja reads a run of operators by recursion without a guard: 2,048 minus signs overflow
/// a stack of 2 MiB in a debug build, which would end the process.
pub const CONDITION_BYTES_MAX: usize = 1_000;
/// Most instructions of one evaluation. A `where` of a line takes about twenty.
pub const CONDITION_FUEL: u64 = 500;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    environment.set_fuel(Some(CONDITION_FUEL));
    environment
});

/// A compiled `where`.
pub struct Condition {
    source: Box<str>,
    expression: Expression<'static, 'static>,
}

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConditionError {
    /// What is wrong, as a lowercase fragment.
    pub message: String,
    /// The bytes of the source that are at fault, if they are known.
    pub range: Option<Range<usize>>,
}

/// Why a condition could not be evaluated for an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConditionFailure {
    /// What is wrong, as a lowercase fragment.
    pub message: String,
}

impl Condition {
    /// Compiles the text of a `where`.
    ///
    /// Errors: a text that is no expression, is longer than [`CONDITION_BYTES_MAX`], or begins a path with what no event has. Filters and tests that do not
    /// exist are found when they are reached.
    pub fn compile(source: &str) -> Result<Self, ConditionError> {
        if source.len() > CONDITION_BYTES_MAX {
            let message = format!("longer than {CONDITION_BYTES_MAX} bytes");
            return Err(ConditionError { message, range: Some(CONDITION_BYTES_MAX..source.len()) });
        }
        let expression = ENVIRONMENT
            .compile_expression_owned(source.to_owned())
            .map_err(|error| syntax_error(source, &error))?;
        let known: BTreeSet<&str> =
            FieldPath::ROOTS.into_iter().chain(ENVIRONMENT.globals().map(|(name, _)| name)).collect();
        let names: BTreeSet<String> = expression.undeclared_variables(false).into_iter().collect();
        match names.into_iter().find(|name| !known.contains(name.as_str())) {
            Some(name) => Err(ConditionError {
                message: format!(
                    "unknown field `{name}`; an event has {} and what is below `payload`",
                    FieldPath::ROOTS.join(", ")
                ),
                range: find_name(source, &name),
            }),
            None => Ok(Self { source: source.into(), expression }),
        }
    }

    /// Whether `event` meets the condition; any value that minijinja takes for true does.
    ///
    /// Errors: an operation that its values do not allow, an unknown filter or test, or more than [`CONDITION_FUEL`].
    pub fn test(&self, event: &Arc<Event>) -> Result<bool, ConditionFailure> {
        let view = Value::from_object(EventView(Arc::clone(event)));
        match self.expression.eval(view) {
            Ok(value) => Ok(value.is_true()),
            Err(error) => Err(ConditionFailure { message: message(&error) }),
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.source).finish()
    }
}

/// Places minijinja's complaint, unless the text holds a slip that says more.
fn syntax_error(source: &str, error: &Error) -> ConditionError {
    match hints::in_expression(source) {
        Some(Slip { message, range }) => ConditionError { message, range: Some(range) },
        None => ConditionError { message: message(error), range: error.range() },
    }
}

fn message(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

/// Where `name` stands in `source` as a word that no dot precedes.
fn find_name(source: &str, name: &str) -> Option<Range<usize>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    source.match_indices(name).map(|(start, _)| start..start + name.len()).find(|range| {
        let before = source.get(..range.start).and_then(|text| text.chars().next_back());
        let after = source.get(range.end..).and_then(|text| text.chars().next());
        !before.is_some_and(|c| is_word(c) || c == '.') && !after.is_some_and(is_word)
    })
}

/// An event as the variables of an expression.
#[derive(Debug)]
struct EventView(Arc<Event>);

impl Object for EventView {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let event = &self.0;
        match key {
            "type" => Some(Value::from(event.event_type.as_str())),
            "source" => Some(Value::from(&*event.source)),
            "severity" => Some(Value::from(event.severity.as_str())),
            "id" => Some(Value::from(&*event.id)),
            "session" => event.session.as_ref().map(|session| Value::from(session.as_str())),
            "workspace" => event.workspace.as_deref().map(Value::from),
            "payload" => {
                let root = Arc::clone(event.payload.value());
                Some(Value::from_object(JsonView { root, path: Vec::new() }))
            }
            _ => None,
        }
    }
}

/// An object or array somewhere in a payload, which stays where it is.
#[derive(Debug)]
struct JsonView {
    root: Arc<Json>,
    path: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Key(Arc<str>),
    Index(usize),
}

impl JsonView {
    fn target(&self) -> &Json {
        self.path.iter().fold(&*self.root, |value, step| {
            let below = match step {
                Step::Key(key) => value.get(&**key),
                Step::Index(index) => value.get(index),
            };
            below.unwrap_or(&Json::Null)
        })
    }

    fn below(&self, found: &Json, step: impl FnOnce() -> Step) -> Value {
        match found {
            Json::Null => Value::from(()),
            Json::Bool(is_true) => Value::from(*is_true),
            Json::Number(number) => number
                .as_i64()
                .map(Value::from)
                .or_else(|| number.as_u64().map(Value::from))
                .unwrap_or_else(|| Value::from(number.as_f64())),
            Json::String(text) => Value::from(text.as_str()),
            Json::Array(_) | Json::Object(_) => {
                let path = self.path.iter().cloned().chain([step()]).collect();
                Value::from_object(Self { root: Arc::clone(&self.root), path })
            }
        }
    }
}

impl Object for JsonView {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.target().is_array() { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if let Some(key) = key.as_str() {
            return self.get_value_by_str(key);
        }
        let index = key.as_usize()?;
        let found = self.target().get(index)?;
        Some(self.below(found, || Step::Index(index)))
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let found = self.target().get(key)?;
        Some(self.below(found, || Step::Key(key.into())))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.target() {
            Json::Array(items) => Enumerator::Seq(items.len()),
            Json::Object(fields) => {
                Enumerator::Values(fields.keys().map(|key| Value::from(key.as_str())).collect())
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Enumerator::Empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Payload, Severity},
        time::Timestamp,
    };

    fn event() -> Arc<Event> {
        let payload = r#"{
            "percentage": 81, "budget_type": "token", "ratio": 0.5, "big": 18446744073709551615, "empty": "", "none": null,
            "user": {"name": "ada", "tags": ["a", "b"]}, "list": [{"n": 1}, {"n": 2}], "yes": true
        }"#;
        Arc::new(Event {
            id: "e1".into(),
            event_type: "budget.token.exceeded".parse().expect("valid type"),
            source: "budget".into(),
            provenance: crate::event::Provenance::Harness,
            severity: Severity::Warning,
            timestamp: Timestamp::ZERO,
            payload: Payload::parse(payload).expect("valid payload"),
            dedupe_key: None,
            session: None,
            workspace: Some("/w".into()),
            cause: None,
        })
    }

    #[test]
    fn conditions_see_every_field_and_whatever_is_below_the_payload() {
        for (source, expected) in [
            ("payload.percentage >= 80 and payload.budget_type == \"token\"", true),
            ("payload.percentage > 81", false),
            ("payload.ratio == 0.5 and payload.big == 18446744073709551615", true),
            ("payload.yes", true),
            ("payload.empty", false),
            ("payload.none is none", true),
            ("type == 'budget.token.exceeded' and source == 'budget' and id == 'e1'", true),
            ("severity in ['warning', 'error']", true),
            ("workspace == '/w' and session is undefined", true),
            ("payload.user.name == 'ada' and payload['user']['tags'][1] == 'b'", true),
            ("'a' in payload.user.tags and 'c' not in payload.user.tags", true),
            ("payload.user.tags == ['a', 'b']", true),
            ("payload.list[1].n == 2 and payload.list | length == 2", true),
            ("payload.list | map(attribute='n') | sum == 3", true),
            ("'name' in payload.user and payload.user | length == 2", true),
            ("payload.budget_type is startingwith 'tok'", true),
        ] {
            let condition = Condition::compile(source).expect(source);
            assert_eq!(condition.test(&event()), Ok(expected), "{source}");
        }
    }

    #[test]
    fn an_absent_field_is_undefined_and_no_failure() {
        for (source, expected) in [
            ("payload.absent", false),
            ("payload.absent > 1", false),
            ("payload.absent >= 'a'", false),
            ("payload.absent == 1", false),
            ("payload.absent.deeper.still == 'x'", false),
            ("payload.percentage.deeper == 'x'", false),
            ("payload.absent is defined and payload.absent < 5", false),
            ("payload.absent != 1", true),
            ("payload.absent < 5", true),
        ] {
            let condition = Condition::compile(source).expect(source);
            assert_eq!(condition.test(&event()), Ok(expected), "{source}");
        }
    }

    #[test]
    fn a_text_that_is_no_condition_is_refused_with_its_place() {
        for (source, range, part) in [
            ("payload.x >", Some(10..11), "syntax error"),
            ("payload.x = 1", Some(10..11), "`=` is no operator here"),
            ("payload.x && payload.y", Some(10..12), "`&&` is no operator here"),
            ("source == 'a' and paylod.x", Some(18..24), "unknown field `paylod`"),
            ("payload.retry > retry", Some(16..21), "unknown field `retry`"),
        ] {
            let error = Condition::compile(source).expect_err(source);
            assert!(error.to_string().starts_with(part), "{error}");
            assert_eq!(error.range, range, "{source}");
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_a_failure_with_a_message() {
        for (source, part) in [
            ("payload.user + 1", "invalid operation"),
            ("payload.list | nosuchfilter", "unknown filter"),
            ("payload.x is nosuchtest", "unknown test"),
            (&["id"; 333].join("~"), "engine ran out of fuel"),
        ] {
            let failure =
                Condition::compile(source).expect("an expression").test(&event()).expect_err(source);
            assert!(failure.to_string().starts_with(part), "{failure}");
        }
    }

    #[test]
    fn no_condition_however_nested_overflows_the_stack() {
        let fill = |open: &str, middle: &str, close: &str| {
            let count = (CONDITION_BYTES_MAX - middle.len()) / (open.len() + close.len());
            format!("{}{middle}{}", open.repeat(count), close.repeat(count))
        };
        for (open, middle, close) in [
            ("1+", "1", ""),
            ("id~", "id", ""),
            ("id<", "id", ""),
            ("id or ", "id", ""),
            ("id**", "id", ""),
            ("not ", "id", ""),
            ("-", "id", ""),
            ("(", "id", ")"),
            ("[", "id", "]"),
            ("", "id", ".a"),
            ("", "id", "[0]"),
            ("", "id", "()"),
            ("", "id", "|string"),
            ("", "id", " if id"),
        ] {
            if let Ok(condition) = Condition::compile(&fill(open, middle, close)) {
                let _: Result<bool, ConditionFailure> = condition.test(&event());
            }
        }
        let long = Condition::compile(&" ".repeat(CONDITION_BYTES_MAX + 1)).expect_err("too long");
        assert_eq!(long.to_string(), "longer than 1000 bytes");
    }

    #[test]
    fn a_condition_shows_its_source_alone() {
        let condition = Condition::compile("payload.x").expect("an expression");
        assert_eq!(format!("{condition:?}"), "Condition(\"payload.x\")");
    }
}

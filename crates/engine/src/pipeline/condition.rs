//! `where`: an expression over the fields of one event; it selects a subscriber's events.
//!
//! The language is that of minijinja, as in templates. The expression sees the event through a view
//! that converts only the fields in use, and parses the payload only if the expression reads it.
//!
//! An absent field is undefined, and so is any field below it. It is false, and equal only to
//! another absent field. `is defined` tests for presence. An absent field and null have no order,
//! so `payload.n > 1` and `payload.n < 5` are both false without `n`. Values of different kinds
//! have no order either: comparing `"5"` with 3 is a failure, and so is exceeding
//! [`CONDITION_STEPS`]. A severity is its word, so it can be compared with `==` and `in`; use
//! `severity_filter` for its order.
//!
//! ```
//! use aside_engine::pipeline::condition::Condition;
//!
//! assert!(Condition::compile("payload.retry_count > 1 and source != 'ci'").is_ok());
//! assert_eq!(Condition::compile("paylod.x > 1").unwrap_err().range, Some(0..6));
//! ```

mod comparison;
mod needed;

use std::{
    fmt,
    ops::Range,
    sync::{Arc, LazyLock, OnceLock},
};

use minijinja::{
    Environment, Error, UndefinedBehavior,
    value::{Enumerator, Object, ObjectRepr, Value},
};
use serde_json::Value as Json;

use crate::{
    event::{Event, Field, FieldPath},
    pipeline::{
        hints::{self, Slip},
        sandbox::{
            self, Cause, Fault, Grammar, Program,
            account::{ACCOUNT, Account},
        },
    },
    sorted::SortedSet,
};

/// Longest `where`, in bytes. minijinja parses a run of operators by unguarded recursion: 2,048
/// minus signs overflow a stack of 2 MiB in a debug build, which would end the process.
pub const CONDITION_BYTES_MAX: usize = 1_000;
/// Most instructions of one evaluation. A `where` of one line needs about twenty.
pub const CONDITION_FUEL: u64 = 500;
/// Most steps of one evaluation, an item or 16 bytes each: enough to read a payload of 64 KiB a few
/// times.
pub const CONDITION_STEPS: u64 = 20_000;

pub use self::comparison::Comparison;
pub(in crate::pipeline) use self::needed::{Needed, NeededValues};

const GRAMMAR: Grammar = Grammar {
    variables: &FieldPath::ROOTS,
    filters: &[],
    functions: &[],
    event_fields: &[],
    unknown: unknown_field,
};

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    sandbox::environment(UndefinedBehavior::Chainable, CONDITION_FUEL, |_, value| Ok(value.clone()))
});

/// A `where`: compiled, or to be compiled at the first test.
pub struct Condition {
    source: Arc<str>,
    compiled: OnceLock<Result<Compiled, ConditionError>>,
}

struct Compiled {
    program: Program,
    is_constant: bool,
    /// The payload fields that it names.
    fields: SortedSet<String>,
    needed: Option<Needed>,
}

/// Why a text is not a valid condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConditionError {
    /// What is wrong, as a lowercase fragment.
    pub message: String,
    /// The byte range of the fault in the source, if known.
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
    /// Errors: a text that is not an expression, is longer than [`CONDITION_BYTES_MAX`], or uses an
    /// unknown field, filter or test.
    pub fn compile(source: &str) -> Result<Self, ConditionError> {
        if source.len() > CONDITION_BYTES_MAX {
            let message = format!("longer than {CONDITION_BYTES_MAX} bytes");
            return Err(ConditionError { message, range: Some(CONDITION_BYTES_MAX..source.len()) });
        }
        let source = source.into();
        let compiled = Compiled::new(&source)?;
        Ok(Self { source, compiled: Ok(compiled).into() })
    }

    /// Takes a text without a fault; it is compiled at the first test, and a fault is a failure of
    /// each test.
    pub fn deferred(source: &str) -> Self {
        Self { source: source.into(), compiled: OnceLock::new() }
    }

    fn compiled(&self) -> Result<&Compiled, &ConditionError> {
        self.compiled.get_or_init(|| Compiled::new(&self.source)).as_ref()
    }

    /// Its text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it is compiled and reads no field of an event, so that it accepts all events or none.
    pub fn is_constant(&self) -> bool {
        self.compiled.get().is_some_and(|compiled| compiled.as_ref().is_ok_and(|known| known.is_constant))
    }

    /// The payload fields that it names as `payload.name`; none if it does not compile.
    pub fn fields(&self) -> &SortedSet<String> {
        static NONE: SortedSet<String> = SortedSet::new();
        self.compiled().map_or(&NONE, |compiled| &compiled.fields)
    }

    /// The field that an event must have for it to be true, if that is known without evaluating it.
    pub(in crate::pipeline) fn needed(&self) -> Option<&Needed> {
        self.compiled().ok().and_then(|compiled| compiled.needed.as_ref())
    }

    /// Whether `event` meets the condition. Truth is as in minijinja.
    ///
    /// Errors: an operation that is invalid for its values, or more than [`CONDITION_FUEL`] or
    /// [`CONDITION_STEPS`].
    pub fn test(&self, event: &Arc<Event>) -> Result<bool, ConditionFailure> {
        let compiled =
            self.compiled().map_err(|error| ConditionFailure { message: error.message.clone() })?;
        let view = Value::from_object(EventView(Arc::clone(event)));
        let tested = compiled.program.run(&ENVIRONMENT, view, &mut String::new(), |value, _| {
            value.is_some_and(|value| value.is_true())
        });
        tested.map_err(|error| ConditionFailure { message: message(&error) })
    }
}

impl Compiled {
    fn new(source: &Arc<str>) -> Result<Self, ConditionError> {
        let (program, checked) = Program::expression(Arc::clone(source), &GRAMMAR)
            .map_err(|fault| condition_error(source, fault))?;
        let needed = Needed::find(source);
        Ok(Self { program, is_constant: checked.asks.is_empty(), fields: checked.fields, needed })
    }
}

/// The error message for an unknown field.
fn unknown_field(name: &str) -> String {
    let roots = FieldPath::ROOTS.join(", ");
    format!("unknown field `{name}`; an event has {roots} and what is below `payload`")
}

/// The error for a fault; a common slip in the text takes precedence, because it is more specific.
fn condition_error(source: &str, fault: Fault) -> ConditionError {
    if let Some(braces) = ["{{", "{%"].into_iter().find(|open| source.trim_start().starts_with(open)) {
        let start = source.len() - source.trim_start().len();
        let message = format!("it has no `{braces}` around it; write the expression alone");
        return ConditionError { message, range: Some(start..start + braces.len()) };
    }
    match hints::in_expression(source).filter(|_| fault.cause == Cause::Syntax) {
        Some(Slip { message, range }) => ConditionError { message, range: Some(range) },
        None => ConditionError { message: fault.message, range: fault.range },
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.source).finish()
    }
}

fn message(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
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
            "payload" => Some(Value::from_object(PayloadView(Arc::clone(event)))),
            ACCOUNT => Some(Value::from_dyn_object(Account::new(CONDITION_STEPS))),
            _ => None,
        }
    }
}

/// A payload; it stays text as long as only plain fields of it are read.
#[derive(Debug)]
struct PayloadView(Arc<Event>);

impl PayloadView {
    fn tree(&self) -> Arc<JsonView> {
        Arc::new(JsonView { root: Arc::clone(self.0.payload.value()), path: Vec::new() })
    }
}

impl Object for PayloadView {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let field = match self.0.payload.field(key) {
            Ok(field) => field?,
            Err(_) => return self.tree().get_value_by_str(key),
        };
        match field {
            Field::Text(text) => Some(Value::from(text)),
            Field::Json(json) if json.starts_with(['{', '[']) => self.tree().get_value_by_str(key),
            Field::Json(json) => Some(scalar(&serde_json::from_str(json).unwrap_or(Json::Null))),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.tree().enumerate()
    }
}

/// A value that is not a list or a map.
fn scalar(value: &Json) -> Value {
    match value {
        Json::Bool(is_true) => Value::from(*is_true),
        Json::Number(number) => number
            .as_i64()
            .map(Value::from)
            .or_else(|| number.as_u64().map(Value::from))
            .unwrap_or_else(|| Value::from(number.as_f64())),
        Json::String(text) => Value::from(text.as_str()),
        Json::Null | Json::Array(_) | Json::Object(_) => Value::from(()),
    }
}

/// An object or array inside a payload, by reference.
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
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => scalar(found),
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
    use crate::event::{Payload, Severity};
    use journal::time::Timestamp;

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
            deliver_after: None,
        })
    }

    #[test]
    fn deferred_condition_compiles_at_its_first_test() {
        for source in ["payload.percentage > 80", "source == 'ci'", "paylod.x > 1", "source =="] {
            let (deferred, compiled) = (Condition::deferred(source), Condition::compile(source));
            assert_eq!((deferred.source(), deferred.compiled.get().is_none()), (source, true));
            let expected = match &compiled {
                Ok(condition) => condition.test(&event()),
                Err(error) => Err(ConditionFailure { message: error.message.clone() }),
            };
            for _ in 0..2 {
                assert_eq!(deferred.test(&event()), expected, "{source}");
            }
            assert!(!deferred.is_constant(), "{source}");
        }
    }

    #[test]
    fn conditions_read_every_field_and_nested_payload_values() {
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
            ("payload.absent.deeper | default('x') == 'x'", true),
            ("payload.absent['deeper'].still is undefined", true),
            ("payload.absent.deeper is defined", false),
            ("payload.percentage.deeper == 'x'", false),
            ("payload.absent is defined and payload.absent < 5", false),
            ("payload.absent != 1", true),
            ("payload.absent < 5", false),
            ("payload.none < 5 or payload.none > 5", false),
            ("0 < payload.absent < 5", false),
            ("80 < payload.percentage < 82 and payload.budget_type < 'u'", true),
        ] {
            let condition = Condition::compile(source).expect(source);
            assert_eq!(condition.test(&event()), Ok(expected), "{source}");
        }
    }

    #[test]
    fn an_invalid_condition_is_refused_with_its_position() {
        for (source, range, part) in [
            ("payload.x >", Some(10..11), "unexpected end"),
            ("payload.x = 1", Some(10..11), "`=` is not an operator here"),
            ("payload.x && payload.y", Some(10..12), "`&&` is not an operator here"),
            ("source == 'a' and paylod.x", Some(18..24), "unknown field `paylod`"),
            ("payload.retry > retry", Some(16..21), "unknown field `retry`"),
            ("typ[:1] == 'p'", Some(0..3), "unknown field `typ`"),
            ("payload.n|lenght > 1", Some(10..16), "unknown filter `lenght`; did you mean `length`?"),
            ("payload.n is defind", Some(13..19), "unknown test `defind`; did you mean `defined`?"),
            ("severity >= 'error'", Some(0..8), "severities are words"),
            ("'info' == severity < 'error'", Some(10..18), "severities are words"),
            ("'a' * 1000000 == id", Some(0..13), "`*` multiplies numbers"),
        ] {
            let error = Condition::compile(source).expect_err(source);
            assert!(error.to_string().starts_with(part), "{error}");
            assert_eq!(error.range, range, "{source}");
        }
    }

    #[test]
    fn a_condition_that_asks_for_nothing_is_constant() {
        for (source, expected) in
            [("true", true), ("1 < 2", true), ("'x'", true), ("payload[1:]", false), ("id", false)]
        {
            assert_eq!(
                Condition::compile(source).map(|found| found.is_constant()).ok(),
                Some(expected),
                "{source}"
            );
        }
    }

    #[test]
    fn an_evaluation_error_is_reported_with_a_message() {
        for (source, part) in [
            ("payload.user + 1", "invalid operation"),
            ("payload.budget_type > 3", "invalid operation: a string and a number have no order"),
            ("payload.budget_type * payload.big", "invalid operation: `*` multiplies numbers"),
            ("payload.budget_type|indent(payload.big)", "invalid operation: a text of more than 65536 bytes"),
            ("[1]|slice(1000000000000)", "engine ran out of fuel"),
            ("range(99999)|join", "engine ran out of fuel"),
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

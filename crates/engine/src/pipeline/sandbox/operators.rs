//! Operators that pay for the data they read and create.
//!
//! The rewritten code calls them in place of minijinja's instructions of the same meaning.
//! Differences: texts and lists have a bounded size, lists are not lazy, `*` is for numbers alone,
//! and values of different kinds have no order.

use std::{cmp::Ordering, sync::LazyLock};

use minijinja::{
    Environment, Error, ErrorKind, State, UndefinedBehavior, filters,
    value::{DynObject, Rest, Value, ValueKind},
};

use super::account::{self, Account, account, admit_as_text, admit_text, weigh};

/// Names of the operators; they are not valid names in a source.
pub(super) mod name {
    pub(in super::super) const ADD: &str = "@add";
    pub(in super::super) const MULTIPLY: &str = "@multiply";
    pub(in super::super) const CONCAT: &str = "@concat";
    pub(in super::super) const SLICE: &str = "@slice";
    pub(in super::super) const EQUAL: &str = "@equal";
    pub(in super::super) const UNEQUAL: &str = "@unequal";
    pub(in super::super) const LESS: &str = "@less";
    pub(in super::super) const LESS_OR_EQUAL: &str = "@less_or_equal";
    pub(in super::super) const GREATER: &str = "@greater";
    pub(in super::super) const GREATER_OR_EQUAL: &str = "@greater_or_equal";
    pub(in super::super) const IN: &str = "@in";
    pub(in super::super) const LIST: &str = "@list";
    pub(in super::super) const MAP: &str = "@map";
    pub(in super::super) const WALKED: &str = "@walked";
    pub(in super::super) const WEIGHED: &str = "@weighed";
    pub(in super::super) const INDEXED: &str = "@indexed";
    pub(in super::super) const KEPT: &str = "@kept";
    pub(in super::super) const REACHED: &str = "@reached";
    /// One comparison of a chain such as `1 < n < 5`: the result, and the right operand for the
    /// next one.
    pub(in super::super) const CHAIN: [(&str, &str); 8] = [
        ("@chain_equal", EQUAL),
        ("@chain_unequal", UNEQUAL),
        ("@chain_less", LESS),
        ("@chain_less_or_equal", LESS_OR_EQUAL),
        ("@chain_greater", GREATER),
        ("@chain_greater_or_equal", GREATER_OR_EQUAL),
        ("@chain_in", IN),
        ("@chain_not_in", IN),
    ];
}

/// Adds all operators to `environment`.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter(name::ADD, add);
    environment.add_filter(name::MULTIPLY, multiply);
    environment.add_filter(name::CONCAT, concat);
    environment.add_filter(name::SLICE, slice);
    environment.add_filter(name::LIST, list);
    environment.add_filter(name::MAP, map);
    environment.add_filter(name::WALKED, walked);
    environment.add_filter(name::REACHED, reached);
    environment.add_filter(name::WEIGHED, weighed);
    environment.add_filter(name::INDEXED, indexed);
    environment.add_filter(name::KEPT, kept);
    for (name, asked) in COMPARISONS {
        environment.add_filter(name, move |state: &mut State<'_, '_>, a: &Value, b: &Value| {
            compare(state, asked, a, b).map(Value::from)
        });
    }
    for (chain, link) in name::CHAIN {
        let (_, asked) =
            COMPARISONS.into_iter().find(|(name, _)| *name == link).expect("a link is a comparison");
        let is_negated = chain == "@chain_not_in";
        environment.add_filter(chain, move |state: &mut State<'_, '_>, a: &Value, b: &Value| {
            let holds = compare(state, asked, a, b)? != is_negated;
            Ok::<Value, Error>(Value::from(vec![Value::from(holds), b.clone()]))
        });
    }
}

/// A comparison: equality, order or membership.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    Same,
    Different,
    Ordered(fn(Ordering) -> bool),
    Within,
}

/// Whether an order of two values is refused, as they are of different kinds.
pub(super) fn has_no_order(a: &Value, b: &Value) -> bool {
    let is_nothing = |value: &Value| value.is_undefined() || value.is_none();
    !is_nothing(a) && !is_nothing(b) && kind(a) != kind(b)
}

const COMPARISONS: [(&str, Asked); 7] = [
    (name::EQUAL, Asked::Same),
    (name::UNEQUAL, Asked::Different),
    (name::LESS, Asked::Ordered(Ordering::is_lt)),
    (name::LESS_OR_EQUAL, Asked::Ordered(Ordering::is_le)),
    (name::GREATER, Asked::Ordered(Ordering::is_gt)),
    (name::GREATER_OR_EQUAL, Asked::Ordered(Ordering::is_ge)),
    (name::IN, Asked::Within),
];

pub(super) fn compare(state: &mut State<'_, '_>, asked: Asked, a: &Value, b: &Value) -> Result<bool, Error> {
    assert_defined(state, a)?;
    assert_defined(state, b)?;
    let account = account(state)?;
    match asked {
        Asked::Same | Asked::Different => {
            pay_for_comparison(&account, a, b)?;
            Ok((a == b) == matches!(asked, Asked::Same))
        }
        Asked::Ordered(holds) => {
            pay_for_comparison(&account, a, b)?;
            if a.is_undefined() || b.is_undefined() || a.is_none() || b.is_none() {
                return Ok(false);
            }
            if has_no_order(a, b) {
                let message = format!("a {} and a {} have no order", a.kind(), b.kind());
                return Err(invalid(message));
            }
            Ok(holds(a.cmp(b)))
        }
        Asked::Within => is_within(state, &account, a, b),
    }
}

/// The kind of a value; only values of one kind have an order.
fn kind(value: &Value) -> ValueKind {
    if is_list(value) { ValueKind::Seq } else { value.kind() }
}

/// Pays for texts by their bytes, and for lists or maps as a whole; other values compare in one
/// step.
fn pay_for_comparison(account: &Account, a: &Value, b: &Value) -> Result<(), Error> {
    match (a.as_str(), b.as_str()) {
        (Some(a), Some(b)) => account.spend_text(a.len().min(b.len())),
        _ if a.as_object().is_some() && b.as_object().is_some() => {
            weigh(account, a)?;
            weigh(account, b).map(|_| ())
        }
        _ => account.spend(1),
    }
}

fn is_within(
    state: &State<'_, '_>,
    account: &Account,
    wanted: &Value,
    container: &Value,
) -> Result<bool, Error> {
    if container.as_str().is_some() && wanted.as_str().is_none() {
        return Err(invalid(format!("a text holds texts, not a {}", wanted.kind())));
    }
    let is_container = matches!(
        container.kind(),
        ValueKind::String | ValueKind::Map | ValueKind::Seq | ValueKind::Iterable | ValueKind::Undefined
    );
    if !is_container {
        return Err(invalid(format!("a {} holds nothing", container.kind())));
    }
    let of_wanted = weigh(account, wanted)?;
    if container.kind() != ValueKind::Map {
        weigh(account, container)?;
    }
    if wanted.as_object().is_some() {
        let items = container.as_object().and_then(|object| object.enumerator_len()).unwrap_or(1);
        account.spend(of_wanted.saturating_mul(items as u64))?;
    }
    minijinja::tests::is_in(state, wanted, container)
}

fn add(state: &mut State<'_, '_>, a: &Value, b: &Value) -> Result<Value, Error> {
    assert_defined(state, a)?;
    assert_defined(state, b)?;
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return joined(&*account(state)?, a, b);
    }
    if is_list(a) && is_list(b) {
        let account = account(state)?;
        let mut items = Vec::new();
        for item in a.try_iter()?.chain(b.try_iter()?) {
            account.spend(1)?;
            items.push(item);
        }
        return Ok(Value::from(items));
    }
    calculated(a, b, "+", i128::checked_add, |a, b| a + b)
}

fn multiply(state: &mut State<'_, '_>, a: &Value, b: &Value) -> Result<Value, Error> {
    assert_defined(state, a)?;
    assert_defined(state, b)?;
    if let Some(other) = [a, b].into_iter().find(|value| !is_number(value)) {
        return Err(invalid(format!("`*` multiplies numbers, and one of these is a {}", other.kind())));
    }
    calculated(a, b, "*", i128::checked_mul, |a, b| a * b)
}

fn calculated(
    a: &Value,
    b: &Value,
    operator: &str,
    of_integers: fn(i128, i128) -> Option<i128>,
    of_floats: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    if !is_number(a) || !is_number(b) {
        let is_text = operator == "+" && [a, b].into_iter().any(|value| value.as_str().is_some());
        let hint = if is_text { "; `~` joins a text with any value" } else { "" };
        return Err(invalid(format!("`{operator}` is not for a {} and a {}{hint}", a.kind(), b.kind())));
    }
    if is_float(a) || is_float(b) {
        return Ok(Value::from(of_floats(to_float(a)?, to_float(b)?)));
    }
    let (a, b) = (i128::try_from(a.clone())?, i128::try_from(b.clone())?);
    let result = of_integers(a, b).ok_or_else(|| invalid(format!("{a} {operator} {b} is out of range")))?;
    Ok(i64::try_from(result).map_or_else(|_| Value::from(result), Value::from))
}

fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

fn is_float(value: &Value) -> bool {
    value.kind() == ValueKind::Number && !value.is_integer()
}

fn to_float(value: &Value) -> Result<f64, Error> {
    if value.kind() == ValueKind::Bool {
        Ok(f64::from(u8::from(value.is_true())))
    } else {
        f64::try_from(value.clone())
    }
}

fn concat(state: &mut State<'_, '_>, a: &Value, b: &Value) -> Result<Value, Error> {
    assert_defined(state, a)?;
    assert_defined(state, b)?;
    let account = account(state)?;
    if let (Some(a), Some(b)) = (a.as_str(), b.as_str()) {
        return joined(&account, a, b);
    }
    let (a, b) = (text(&account, a)?, text(&account, b)?);
    joined(&account, &a, &b)
}

/// A value as text; a list or map is paid for first.
pub(super) fn text(account: &Account, value: &Value) -> Result<String, Error> {
    admit_as_text(account, value)?;
    let text = value.to_string();
    admit_text(account, text.len())?;
    Ok(text)
}

fn joined(account: &Account, a: &str, b: &str) -> Result<Value, Error> {
    admit_text(account, a.len() + b.len())?;
    Ok(Value::from([a, b].concat()))
}

/// A part of a text or a list, with bounds as in Python: a negative one counts from the end, and
/// bounds outside are clamped.
fn slice(
    state: &mut State<'_, '_>,
    value: &Value,
    start: &Value,
    stop: &Value,
    step: &Value,
) -> Result<Value, Error> {
    let bound = |value: &Value| {
        if value.is_none() { Ok(None) } else { i64::try_from(value.clone()).map(Some) }
    };
    let (start, stop, step) = (bound(start)?, bound(stop)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(invalid("cannot slice by steps of 0".into()));
    }
    let account = account(state)?;
    if let Some(text) = value.as_str() {
        admit_text(&account, text.len())?;
        let chars: Vec<char> = text.chars().collect();
        let part: String = places(chars.len(), start, stop, step).filter_map(|at| chars.get(at)).collect();
        return Ok(Value::from(part));
    }
    if value.is_undefined() || value.is_none() {
        return Ok(Value::from(Vec::<Value>::new()));
    }
    if !is_list(value) {
        return Err(invalid(format!("a {} has no parts", value.kind())));
    }
    let mut items = Vec::new();
    for item in value.try_iter()? {
        account.spend(1)?;
        items.push(item);
    }
    Ok(places(items.len(), start, stop, step).filter_map(|at| items.get(at).cloned()).collect())
}

/// The positions of a slice of `length` items, in order.
fn places(length: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> impl Iterator<Item = usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let (least, most) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let within =
        |bound: i64| (if bound < 0 { bound.saturating_add(length) } else { bound }).clamp(least, most);
    let start = start.map_or(if step > 0 { least } else { most }, within);
    let stop = stop.map_or(if step > 0 { most } else { least }, within);
    std::iter::successors(Some(start), move |at| at.checked_add(step))
        .take_while(move |at| if step > 0 { *at < stop } else { *at > stop })
        .filter_map(|at| usize::try_from(at).ok())
}

fn list(state: &mut State<'_, '_>, items: Rest<Value>) -> Result<Value, Error> {
    admit_items(&*account(state)?, &items)?;
    Ok(items.0.into_iter().collect())
}

/// Creates a map from alternating keys and values.
fn map(state: &mut State<'_, '_>, pairs: Rest<Value>) -> Result<Value, Error> {
    admit_items(&*account(state)?, &pairs)?;
    let pairs = pairs.chunks_exact(2).filter_map(|pair| Some((pair.first()?.clone(), pair.last()?.clone())));
    Ok(Value::from_pairs(pairs))
}

/// Pays for values that become part of another one. They must not nest too deep and must not be
/// namespaces.
pub(super) fn admit_items(account: &Account, items: &[Value]) -> Result<(), Error> {
    for item in items {
        admit_item(item)?;
        if item.as_object().is_some() {
            weigh_shape(account, item, 1)?;
        } else {
            account.spend(1)?;
        }
    }
    Ok(())
}

/// Checks the depth of a value without paying for its texts, which are shared and not copied.
/// Events and rows are never deep.
pub(super) fn weigh_shape(account: &Account, value: &Value, depth: usize) -> Result<(), Error> {
    account.spend(1)?;
    let Some(object) = value.as_object() else { return Ok(()) };
    if depth >= account::NESTING_MAX {
        return Err(invalid(format!("a value nested deeper than {} levels", account::NESTING_MAX)));
    }
    if is_view(object) {
        return Ok(());
    }
    if value.kind() == ValueKind::Map {
        return object.try_iter_pairs().into_iter().flatten().try_for_each(|(key, value)| {
            weigh_shape(account, &key, depth + 1)?;
            weigh_shape(account, &value, depth + 1)
        });
    }
    object.try_iter().into_iter().flatten().try_for_each(|item| weigh_shape(account, &item, depth + 1))
}

/// Whether an object is a view of events; their type names end in `View`.
fn is_view(object: &DynObject) -> bool {
    object.type_name().ends_with("View")
}

/// Refuses a namespace, the only mutable value: one inside itself would never be freed, and walking
/// it would never end.
pub(super) fn admit_item(item: &Value) -> Result<(), Error> {
    let is_namespace = item.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
    if is_namespace {
        return Err(invalid("a namespace cannot be part of another value".into()));
    }
    Ok(())
}

fn walked(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    let length = value.len().unwrap_or(0);
    account(state)?.spend(length as u64)?;
    Ok(value)
}

fn weighed(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    weigh(&*account(state)?, &value)?;
    Ok(value)
}

fn indexed(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        account(state)?.spend_text(text.len())?;
    }
    Ok(value)
}

fn kept(value: Value) -> Result<Value, Error> {
    admit_item(&value)?;
    Ok(value)
}

/// Returns an absent value as an empty map, so that what is below it is absent too.
fn reached(value: &Value) -> Value {
    static NOTHING: LazyLock<Value> = LazyLock::new(|| Value::from_iter(std::iter::empty::<(&str, Value)>()));
    if value.is_undefined() { NOTHING.clone() } else { value.clone() }
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// Fails for an undefined value in a template, as minijinja's operators do; conditions may use it.
fn assert_defined(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_undefined() && state.undefined_behavior() != UndefinedBehavior::Chainable {
        // `string` fails with an error that names the expression.
        filters::string(state, value)?;
    }
    Ok(())
}

pub(super) fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_those_of_python() {
        let part = |start, stop, step| places(5, start, stop, step).collect::<Vec<_>>();
        assert_eq!(part(None, Some(2), 1), [0, 1]);
        assert_eq!(part(Some(-2), None, 1), [3, 4]);
        assert_eq!(part(None, None, -1), [4, 3, 2, 1, 0]);
        assert_eq!(part(None, None, 2), [0, 2, 4]);
        assert_eq!(part(Some(3), Some(0), -2), [3, 1]);
        assert_eq!(part(Some(i64::MIN), Some(i64::MAX), i64::MAX), [0]);
        assert_eq!(part(Some(i64::MAX), Some(i64::MIN), i64::MIN), [4]);
        assert_eq!(part(Some(9), Some(-9), 1), [] as [usize; 0]);
    }
}

//! The allowed filters, tests and functions: those of minijinja, each with a price that is paid
//! before its work.
//!
//! This is an allowlist: an environment has these names, those of `render`, and no others. The
//! result of a filter is paid for too, and a lazy list of minijinja is created at once.

use std::cmp::Ordering;

use minijinja::{
    Environment, Error, State, filters, functions, tests,
    value::{Kwargs, ObjectRepr, Rest, Value, ValueKind, ValueOrKwargs},
};

use super::{
    account::{
        Account,
        Price::{self, All, Items, Letters, One, Sorting},
        account, admit_as_text, admit_text, weigh,
    },
    formats,
    operators::{self, Asked, admit_item, admit_items, invalid, weigh_shape},
    patterns,
};

/// Longest text that `format` takes, and widest field in it.
const FORMAT_BYTES_MAX: usize = 1_000;
const FORMAT_WIDTH_MAX: usize = 200;
/// How much slower changing a letter is than copying it.
const LETTER_STEPS: u64 = 4;
/// Each comparison in a sort of texts converts them to lower case first.
const SORT_STEPS: u64 = 4;

/// Returns a text with the values in place of what a template printed into it.
pub(in crate::pipeline) type Expand = fn(&State<'_, '_>, &Value) -> Result<Value, Error>;

/// Filters of minijinja, which take a text as it is.
fn priced_filters() -> Vec<(&'static str, Price, Value)> {
    vec![
        ("lower", Letters, Value::from_function(filters::lower)),
        ("upper", Letters, Value::from_function(filters::upper)),
        ("title", Letters, Value::from_function(filters::title)),
        ("capitalize", Letters, Value::from_function(filters::capitalize)),
        ("trim", All, Value::from_function(filters::trim)),
        ("string", All, Value::from_function(filters::string)),
        ("length", Items, Value::from_function(filters::length)),
        ("count", Items, Value::from_function(filters::length)),
        ("dictsort", Sorting, Value::from_function(filters::dictsort)),
        ("items", Items, Value::from_function(filters::items)),
        ("reverse", Items, Value::from_function(filters::reverse)),
        ("split", All, Value::from_function(filters::split)),
        ("lines", All, Value::from_function(filters::lines)),
        ("default", One, Value::from_function(default)),
        ("d", One, Value::from_function(default)),
        ("round", One, Value::from_function(filters::round)),
        ("abs", One, Value::from_function(filters::abs)),
        ("int", Items, Value::from_function(filters::int)),
        ("float", Items, Value::from_function(filters::float)),
        ("bool", Items, Value::from_function(filters::bool)),
        ("attr", One, Value::from_function(filters::attr)),
        ("first", Items, Value::from_function(filters::first)),
        ("last", Items, Value::from_function(filters::last)),
        ("min", Sorting, Value::from_function(filters::min)),
        ("max", Sorting, Value::from_function(filters::max)),
        ("sort", Sorting, Value::from_function(filters::sort)),
        ("unique", Sorting, Value::from_function(filters::unique)),
        ("groupby", Sorting, Value::from_function(filters::groupby)),
        ("list", Items, Value::from_function(filters::list)),
        ("sum", Items, Value::from_function(filters::sum)),
        ("select", Items, Value::from_function(filters::select)),
        ("reject", Items, Value::from_function(filters::reject)),
        ("selectattr", Items, Value::from_function(filters::selectattr)),
        ("rejectattr", Items, Value::from_function(filters::rejectattr)),
        ("map", Items, Value::from_function(filters::map)),
        ("replace", All, Value::from_function(filters::replace)),
        ("join", All, Value::from_function(filters::join)),
        ("indent", All, Value::from_function(filters::indent)),
        ("batch", Items, Value::from_function(filters::batch)),
        ("slice", Items, Value::from_function(filters::slice)),
        ("format", All, Value::from_function(filters::format)),
    ]
}

/// Filters of aside, which take the expanded text.
fn expanding_filters() -> impl Iterator<Item = (&'static str, Price, Value)> {
    formats::filters().into_iter().chain(patterns::filters())
}

fn priced_tests() -> Vec<(&'static str, Price, Value)> {
    vec![
        ("undefined", One, Value::from_function(tests::is_undefined)),
        ("defined", One, Value::from_function(tests::is_defined)),
        ("none", One, Value::from_function(tests::is_none)),
        ("boolean", One, Value::from_function(tests::is_boolean)),
        ("odd", One, Value::from_function(tests::is_odd)),
        ("even", One, Value::from_function(tests::is_even)),
        ("divisibleby", One, Value::from_function(is_divisible)),
        ("number", One, Value::from_function(tests::is_number)),
        ("integer", One, Value::from_function(tests::is_integer)),
        ("int", One, Value::from_function(tests::is_integer)),
        ("float", One, Value::from_function(tests::is_float)),
        ("string", One, Value::from_function(tests::is_string)),
        ("sequence", One, Value::from_function(tests::is_sequence)),
        ("iterable", One, Value::from_function(tests::is_iterable)),
        ("mapping", One, Value::from_function(tests::is_mapping)),
        ("startingwith", Items, Value::from_function(tests::is_startingwith)),
        ("endingwith", Items, Value::from_function(tests::is_endingwith)),
        ("lower", Items, Value::from_function(tests::is_lower)),
        ("upper", Items, Value::from_function(tests::is_upper)),
        ("sameas", One, Value::from_function(tests::is_sameas)),
        ("true", One, Value::from_function(tests::is_true)),
        ("false", One, Value::from_function(tests::is_false)),
        ("filter", One, Value::from_function(tests::is_filter)),
        ("test", One, Value::from_function(tests::is_test)),
    ]
}

/// Replaces minijinja's own test, which panics on division by zero.
///
/// Errors: `by` is zero.
fn is_divisible(value: &Value, by: &Value) -> Result<bool, Error> {
    match (i128::try_from(value.clone()), i128::try_from(by.clone())) {
        (_, Ok(0)) => Err(invalid("nothing is divisible by zero".to_owned())),
        // `None` is an overflow: the minimum by -1, which is divisible.
        (Ok(value), Ok(by)) => Ok(value.checked_rem(by).is_none_or(|rest| rest == 0)),
        (Ok(_) | Err(_), _) => Ok(tests::is_divisibleby(value, by)),
    }
}

/// The tests that compare, under all their names.
const COMPARING_TESTS: [(&str, Asked); 16] = [
    ("eq", Asked::Same),
    ("equalto", Asked::Same),
    ("==", Asked::Same),
    ("ne", Asked::Different),
    ("!=", Asked::Different),
    ("lt", Asked::Ordered(Ordering::is_lt)),
    ("lessthan", Asked::Ordered(Ordering::is_lt)),
    ("<", Asked::Ordered(Ordering::is_lt)),
    ("le", Asked::Ordered(Ordering::is_le)),
    ("<=", Asked::Ordered(Ordering::is_le)),
    ("gt", Asked::Ordered(Ordering::is_gt)),
    ("greaterthan", Asked::Ordered(Ordering::is_gt)),
    (">", Asked::Ordered(Ordering::is_gt)),
    ("ge", Asked::Ordered(Ordering::is_ge)),
    (">=", Asked::Ordered(Ordering::is_ge)),
    ("in", Asked::Within),
];

/// The names of all filters added here.
pub(super) fn filter_names() -> impl Iterator<Item = &'static str> {
    priced_filters().into_iter().chain(expanding_filters()).map(|(name, ..)| name)
}

/// The names of all tests.
pub(super) fn test_names() -> impl Iterator<Item = &'static str> {
    let comparing = COMPARING_TESTS.into_iter().map(|(name, _)| name);
    priced_tests().into_iter().map(|(name, ..)| name).chain(comparing)
}

/// The names of all functions.
pub(super) const FUNCTIONS: [&str; 3] = ["range", "dict", "namespace"];

/// Filters that put values into new lists. Repeated use nests them without a bound, and dropping a
/// deeply nested value overflows the stack.
const NESTING: [&str; 6] = ["items", "dictsort", "groupby", "map", "batch", "slice"];

/// Adds all filters, tests and functions to an empty `environment`.
pub(super) fn add_to(environment: &mut Environment<'static>, expand: Expand) {
    let as_it_is: Expand = |_, value| Ok(value.clone());
    let filters = priced_filters().into_iter().map(|filter| (filter, as_it_is));
    for ((name, price, filter), expand) in filters.chain(expanding_filters().map(|filter| (filter, expand))) {
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let (account, mut args) = (account(state)?, args.into_values());
            if let Some(value) = args.first_mut() {
                *value = expand(state, value)?;
            }
            pay(&account, price, &args)?;
            admit(&account, name, &args)?;
            let made = admit_made(&account, filter.call(state, &args)?)?;
            if NESTING.contains(&name) {
                weigh_shape(&account, &made, 0)?;
            }
            Ok::<_, Error>(made)
        });
    }
    for (name, price, test) in priced_tests() {
        environment.add_test(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            pay(&*account(state)?, price, &args)?;
            test.call(state, &args).map(|result| result.is_true())
        });
    }
    for (name, asked) in COMPARING_TESTS {
        environment.add_test(name, move |state: &mut State<'_, '_>, a: &Value, b: &Value| {
            operators::compare(state, asked, a, b)
        });
    }
    environment.add_function("range", range);
    environment.add_function("dict", dict);
    environment.add_function("namespace", namespace);
}

/// Another value in place of an absent one; with `boolean` also of a false one. The last two
/// arguments can be named, as in Jinja.
fn default(state: &State<'_, '_>, value: &Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let mut args = args.into_values();
    if let Some(named) = args.pop_if(|last| last.is_kwargs()) {
        let named = Kwargs::try_from(named)?;
        let read = |name: &str| named.has(name).then(|| named.get::<Value>(name)).transpose();
        let (other, boolean) = (read("default_value")?, read("boolean")?);
        named.assert_all_used()?;
        if args.is_empty() {
            args.push(other.unwrap_or_else(|| Value::from("")));
        }
        args.extend(boolean);
    }
    filters::default(state, value, Rest(args))
}

fn pay(account: &Account, price: Price, args: &[Value]) -> Result<(), Error> {
    let Some(value) = args.first() else { return account.spend(1) };
    match price {
        One => account.spend(1),
        Items => match value.as_str() {
            Some(text) => account.spend_text(text.len()),
            None => account.spend(1 + value.len().unwrap_or(0) as u64),
        },
        All => weigh(account, value).map(|_| ()),
        Letters => {
            let steps = weigh(account, value)?;
            account.spend(steps * LETTER_STEPS)
        }
        Sorting => {
            let steps = weigh(account, value)?;
            let rounds = u64::from(value.len().unwrap_or(0).max(1).ilog2()) + 1;
            account.spend(steps.saturating_mul(rounds * SORT_STEPS))
        }
    }
}

/// Refuses arguments with which a filter would create much from little.
fn admit(account: &Account, name: &str, args: &[Value]) -> Result<(), Error> {
    let [value, rest @ ..] = args else { return Ok(()) };
    for argument in rest {
        admit_argument(argument)?;
        weigh(account, argument)?;
    }
    let text = |at: usize| rest.get(at).and_then(Value::as_str).unwrap_or_default();
    let number = |at: usize| rest.get(at).and_then(|value| value.as_usize());
    let input = value.as_str().unwrap_or_default();
    match name {
        "replace" if rest.len() > 2 => {
            Err(invalid("`replace` replaces each occurrence: it takes no count".to_owned()))
        }
        "replace" => {
            let (from, to) = (text(0), text(1));
            let times = if from.is_empty() { input.chars().count() + 1 } else { input.matches(from).count() };
            admit_text(account, input.len().saturating_add(times.saturating_mul(to.len())))
        }
        "join" => {
            admit_as_text(account, value)?;
            let times = value.len().unwrap_or(0);
            admit_text(account, times.saturating_mul(joiner_length(rest)))
        }
        "string" => admit_as_text(account, value),
        "indent" => {
            let width = number(0).or_else(|| option(rest, "width")).unwrap_or(4);
            let lines = input.lines().count() + 1;
            admit_text(account, input.len().saturating_add(lines.saturating_mul(width)))
        }
        "batch" | "slice" => {
            let count = number(0)
                .ok_or_else(|| invalid(format!("`{name}` takes a whole number of items or parts")))?;
            account.spend(count as u64)
        }
        "sum" => {
            let start = rest.iter().find_map(|value| kwarg(value, "start")).or_else(|| rest.get(1).cloned());
            match start.filter(|start| start.kind() != ValueKind::Number) {
                Some(start) if !start.is_kwargs() => {
                    Err(invalid(format!("`sum` adds numbers, not a {}", start.kind())))
                }
                Some(_) | None => Ok(()),
            }
        }
        "format" => admit_format(account, input, rest),
        _ => Ok(()),
    }
}

fn kwarg(value: &Value, name: &str) -> Option<Value> {
    value.is_kwargs().then(|| value.get_attr(name).ok()).flatten().filter(|value| !value.is_undefined())
}

fn option(args: &[Value], name: &str) -> Option<usize> {
    args.iter().find_map(|value| kwarg(value, name))?.as_usize()
}

fn joiner_length(args: &[Value]) -> usize {
    let named = args.iter().find_map(|value| kwarg(value, "d"));
    let joiner = named.as_ref().or_else(|| args.first().filter(|value| !value.is_kwargs()));
    joiner.and_then(Value::as_str).map_or(0, str::len)
}

/// Pays for a format: each use of an argument may be as wide as its digits request.
fn admit_format(account: &Account, format: &str, args: &[Value]) -> Result<(), Error> {
    if format.len() > FORMAT_BYTES_MAX {
        return Err(invalid(format!("`format` takes a text of at most {FORMAT_BYTES_MAX} bytes")));
    }
    let is_wide = |digits: &str| {
        digits.parse::<usize>().is_ok_and(|width| width > FORMAT_WIDTH_MAX) || digits.len() > 3
    };
    let is_too_wide = format.split(|c: char| !c.is_ascii_digit()).any(is_wide);
    if is_too_wide || format.contains('*') {
        return Err(invalid(format!("`format` writes fields of at most {FORMAT_WIDTH_MAX} characters")));
    }
    let times = format.matches('%').count();
    for argument in args {
        let bytes = weigh(account, argument)?.saturating_mul(super::account::BYTES_A_STEP as u64);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        admit_text(account, bytes.saturating_mul(times))?;
    }
    admit_text(account, times.saturating_mul(FORMAT_WIDTH_MAX))
}

/// Checks that an argument does not put a namespace into a filter's result.
fn admit_argument(argument: &Value) -> Result<(), Error> {
    admit_item(argument)?;
    if argument.is_kwargs() {
        let pairs = argument.as_object().and_then(|object| object.try_iter_pairs());
        return pairs.into_iter().flatten().try_for_each(|(_, value)| admit_item(&value));
    }
    Ok(())
}

/// Pays for a result, and evaluates a lazy list.
pub(super) fn admit_made(account: &Account, made: Value) -> Result<Value, Error> {
    if let Some(text) = made.as_str() {
        admit_text(account, text.len())?;
        return Ok(made);
    }
    let Some(object) = made.as_object() else { return Ok(made) };
    if object.repr() != ObjectRepr::Iterable {
        account.spend(made.len().unwrap_or(0) as u64)?;
        return Ok(made);
    }
    let mut items = Vec::new();
    for item in made.try_iter()? {
        account.spend(1)?;
        items.push(item);
    }
    Ok(Value::from(items))
}

fn range(
    state: &mut State<'_, '_>,
    lower: isize,
    upper: Option<isize>,
    step: Option<isize>,
) -> Result<Value, Error> {
    let (from, to) = upper.map_or((0, lower), |upper| (lower, upper));
    let step_size = step.unwrap_or(1).unsigned_abs().max(1);
    account(state)?.spend((from.abs_diff(to) / step_size) as u64)?;
    admit_made(&*account(state)?, functions::range(lower, upper, step)?)
}

fn dict(state: &mut State<'_, '_>, value: Option<Value>, fields: Kwargs) -> Result<Value, Error> {
    let account = account(state)?;
    account.spend(value.as_ref().and_then(Value::len).unwrap_or(0) as u64)?;
    for name in fields.args() {
        admit_items(&account, &[fields.peek::<Value>(name)?])?;
    }
    if value.as_ref().is_some_and(|value| value.kind() != ValueKind::Map) {
        return Err(invalid("`dict` takes names and values, as in dict(a=1), or a map".to_owned()));
    }
    functions::dict(value, fields)
}

fn namespace(state: &mut State<'_, '_>, fields: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let (account, fields) = (account(state)?, fields.into_values());
    for fields in &fields {
        weigh(&account, fields)?;
        admit_argument(fields)?;
        let pairs = fields.as_object().and_then(|object| object.try_iter_pairs());
        for (_, value) in pairs.into_iter().flatten() {
            admit_item(&value)?;
        }
    }
    Value::from_function(functions::namespace).call(state, &fields)
}

//! Words of other template languages and of Python, each with what does the same here.
//!
//! Authors write what they know from Ansible, dbt, Flask, Home Assistant, Liquid or Go. A word that
//! does not run here is refused when the file is read, with the nearest that does.

use minijinja::{machinery::ast::BinOpKind, value::Value};

use super::filters;
use crate::nearest::nearest;

/// A word, and what replaces it.
type Replaced = (&'static str, &'static str);

/// Filters.
const FILTERS: &[Replaced] = &[
    ("safe", "every value is encoded, so `safe` is not needed"),
    ("escape", "every value is encoded, so `escape` is not needed"),
    ("e", "every value is encoded, so `e` is not needed"),
    ("forceescape", "every value is encoded, so `forceescape` is not needed"),
    ("striptags", "every value is encoded, so `striptags` is not needed; `regex_replace` removes parts"),
    ("xmlattr", "a text has no markup; `toon` writes a map"),
    ("urlize", "a text has no links; print the address as it is"),
    ("pprint", "`pprint` is for debugging a template; `tojson` writes one as text"),
    ("chain", "there is no filter `chain`; `+` joins lists"),
    ("zip", "there is no filter `zip`; `loop.index0` is the position in both lists"),
    ("center", "a cell has no width, so `center` is not needed"),
    ("wordwrap", "a cell has no width, so `wordwrap` is not needed"),
    ("wordcount", "there is no filter `wordcount`; use `split|length`"),
    ("to_json", "there is no filter `to_json`; use `tojson`"),
    ("to_nice_json", "there is no filter `to_nice_json`; use `tojson`"),
    ("to_yaml", "there is no filter `to_yaml`; `toon(key=\"k\")` writes any value below a key"),
    ("to_nice_yaml", "there is no filter `to_nice_yaml`; `toon(key=\"k\")` writes any value below a key"),
    ("from_json", "there is no filter `from_json`; use `fromjson`"),
    ("from_yaml", "there is no filter `from_yaml`; `fromjson` reads JSON"),
    ("ternary", "there is no filter `ternary`; write `a if condition else b`"),
    ("iif", "there is no filter `iif`; write `a if condition else b`"),
    ("combine", "maps cannot be combined; read the fields of both"),
    ("union", "there is no filter `union`; `+` joins lists and `unique` leaves each item once"),
    ("difference", "there is no filter `difference`; use `reject(\"in\", other)`"),
    ("intersect", "there is no filter `intersect`; use `select(\"in\", other)`"),
    ("flatten", "there is no filter `flatten`; a loop in a loop, or `+`, joins lists"),
    ("dict2items", "there is no filter `dict2items`; `items` gives pairs of name and value"),
    ("items2dict", "there is no filter `items2dict`; a map is written `{\"a\": 1}`"),
    ("json_query", "there is no filter `json_query`; use `map(attribute=\"a.b\")` and `selectattr`"),
    ("regex_search", "there is no filter `regex_search`; use `regex_find`"),
    ("regex_match", "there is no filter `regex_match`; use `regex_find` with `^`"),
    ("regex_findall", "there is no filter `regex_findall`; `regex_find` finds the first match"),
    ("dirname", "there is no filter `dirname`; use `regex_replace(\"/[^/]*$\", \"\")`"),
    ("filesizeformat", "there is no filter `filesizeformat`; use `bytes`"),
    ("human_readable", "there is no filter `human_readable`; use `bytes`"),
    ("strftime", "there is no filter `strftime`; use `date(\"%d %b\")`"),
    ("timestamp_custom", "there is no filter `timestamp_custom`; use `date(\"%H:%M\")`"),
    ("as_timestamp", "a time is compared with `ago` and written with `date`"),
    ("to_datetime", "a time is compared with `ago` and written with `date`"),
    ("random", "a text is the same for the same events, so `random` is not possible; use `first`"),
    ("shuffle", "a text is the same for the same events, so `shuffle` is not possible; use `sort`"),
    ("quote", "every value is quoted where TOON needs it, so `quote` is not needed"),
    ("hash", "a text has no hashes; print the value"),
    ("b64encode", "a text is for a reader, so `b64encode` is not possible; print the value"),
    ("b64decode", "a text is for a reader, so `b64decode` is not possible; print the value"),
    ("mandatory", "an absent value fails where it is printed, so `mandatory` is not needed"),
    ("toUpper", "there is no filter `toUpper`; use `upper`"),
    ("toLower", "there is no filter `toLower`; use `lower`"),
    ("upcase", "there is no filter `upcase`; use `upper`"),
    ("downcase", "there is no filter `downcase`; use `lower`"),
    ("size", "there is no filter `size`; use `length`"),
    ("append", "there is no filter `append`; `~` joins texts"),
    ("strip", "there is no filter `strip`; use `trim`"),
];

/// Tests.
const TESTS: &[Replaced] = &[
    ("match", "`(x|regex_find(\"^..\")) is not none`"),
    ("search", "`(x|regex_find(\"..\")) is not none`"),
    ("regex", "`(x|regex_find(\"..\")) is not none`"),
    ("truthy", "the value itself, as in `if x`"),
    ("falsy", "`not x`"),
    ("empty", "`not x`, or `x|length == 0`"),
    ("contains", "`in`, as in `\"a\" in x`"),
    ("subset", "`select(\"in\", other)`"),
    ("null", "`is none`"),
    ("callable", "nothing: values cannot be called"),
    ("starts", "`is startingwith(\"..\")`"),
    ("ends", "`is endingwith(\"..\")`"),
    ("startswith", "`is startingwith(\"..\")`"),
    ("endswith", "`is endingwith(\"..\")`"),
    ("failed", "a field of the payload, such as `payload.failed`"),
    ("succeeded", "a field of the payload, such as `payload.ok`"),
];

/// Methods.
const METHODS: &[Replaced] = &[
    ("items", "`x|items`"),
    ("iteritems", "`x|items`"),
    ("keys", "`x|list`"),
    ("values", "`x|items|map(\"last\")`"),
    ("get", "`x.name|default(..)`, or `x[name]`"),
    ("has_key", "`name in x`"),
    ("split", "`x|split(\",\")`"),
    ("splitlines", "`x|lines`"),
    ("strip", "`x|trim`"),
    ("lstrip", "`x|trim`"),
    ("rstrip", "`x|trim`"),
    ("startswith", "`x is startingwith(\"..\")`"),
    ("endswith", "`x is endingwith(\"..\")`"),
    ("join", "`list|join(\", \")`"),
    ("format", "`\"%s of %s\"|format(a, b)`"),
    ("count", "`x|length`"),
    ("find", "`\"..\" in x`"),
    ("index", "`loop.index0`"),
    ("append", "`list + [item]`"),
    ("extend", "`list + other`"),
    ("insert", "`[item] + list`"),
    ("pop", "`x[:-1]`"),
    ("update", "a map as a whole, `{\"a\": 1}`, or `namespace`"),
    ("copy", "the value itself: nothing changes it"),
    ("isdigit", "`x|regex_find(\"^[0-9]+$\")`"),
    ("isoformat", "the value itself: a time is RFC 3339"),
    ("strftime", "`x|date(\"%H:%M\")`"),
    ("timestamp", "`x|date(\"%s\")`"),
    ("encode", "the value itself: it is a text"),
    ("decode", "the value itself: it is a text"),
    ("next", "`loop.cycle(a, b)`"),
];

/// Functions.
const FUNCTIONS: &[Replaced] = &[
    ("len", "`x|length`"),
    ("str", "`x|string`"),
    ("sorted", "`x|sort`"),
    ("reversed", "`x|reverse`"),
    ("enumerate", "`loop.index0`"),
    ("zip", "`loop.index0`, the position in both lists"),
    ("any", "`x|select`"),
    ("all", "`x|reject`"),
    ("joiner", "`{{ \", \" if not loop.last }}`"),
    ("cycler", "`loop.cycle(a, b)`"),
    ("iif", "`a if condition else b`"),
    ("lipsum", "the text itself"),
    ("debug", "`x|tojson`"),
    ("print", "`{{ x }}`"),
    ("strftime", "`x|date(\"%H:%M\")`"),
    ("as_timestamp", "`x|date(\"%s\")`"),
    ("regex_search", "`x|regex_find(\"..\")`"),
    ("match", "`x|regex_find(\"^..\")`"),
    ("states", "`payload`: a text sees its events alone"),
    ("state_attr", "`payload`: a text sees its events alone"),
    ("is_state", "`payload`: a text sees its events alone"),
    ("lookup", "`payload`: a text sees its events alone"),
    ("query", "`payload`: a text sees its events alone"),
    ("var", "`payload`: a text sees its events alone"),
    ("env_var", "`payload`: a text sees its events alone"),
    ("url_for", "the address itself"),
];

/// Names of values.
const VALUES: &[Replaced] = &[
    ("null", "use `none`"),
    ("nil", "use `none`"),
    ("NULL", "use `none`"),
    ("end", "use `{% endfor %}` or `{% endif %}`"),
    ("undefined", "use `x is undefined`"),
    ("varargs", "a macro names its arguments: {% macro m(a, b) %}"),
    ("kwargs", "a macro names its arguments: {% macro m(a, b=1) %}"),
    ("super", "a template is one file, so it has no `super`"),
    ("lambda", "use `map(\"filter\")`, `map(attribute=\"a\")` or `selectattr`"),
];

fn replaced(table: &[Replaced], name: &str) -> Option<&'static str> {
    table.iter().find(|(word, _)| *word == name).map(|(_, instead)| *instead)
}

/// The sentence about a filter that does not exist and is known from elsewhere.
pub(super) fn filter(name: &str) -> Option<&'static str> {
    replaced(FILTERS, name)
}

/// What replaces a test that does not exist and is known from elsewhere.
pub(super) fn test(name: &str) -> Option<&'static str> {
    replaced(TESTS, name)
}

/// The sentence about a name that is no variable here and is known from elsewhere.
pub(super) fn value(name: &str) -> Option<String> {
    replaced(VALUES, name).map(|instead| format!("there is no `{name}`; {instead}"))
}

/// Why an operation with these constants is refused.
pub(super) fn operation(operator: BinOpKind, sides: &[Option<Value>; 2]) -> Option<&'static str> {
    let is_text = |side: &Option<Value>| side.as_ref().is_some_and(|side| side.as_str().is_some());
    let [left, right] = sides;
    if matches!(operator, BinOpKind::Rem) && is_text(left) {
        return Some("`%` is for numbers; `\"%s of %s\"|format(a, b)` puts values into a text");
    }
    let is_mixed = left.is_some() && right.is_some() && is_text(left) != is_text(right);
    (matches!(operator, BinOpKind::Add) && is_mixed)
        .then_some("`+` adds numbers, or joins texts; `~` joins a text with any value")
}

/// The sentence about a method; no value has one.
pub(super) fn method(name: &str) -> String {
    let as_filter = || filters::filter_names().any(|own| own == name).then(|| format!("`x|{name}`"));
    let instead = replaced(METHODS, name).map(str::to_owned).or_else(as_filter);
    let instead =
        instead.map_or_else(|| "see `aside reference filters`".to_owned(), |use_| format!("use {use_}"));
    format!("values have no methods, so not `{name}()`; {instead}")
}

/// The sentence about a function that does not exist, and may be a variable; `known` are those that
/// exist.
pub(super) fn function<'n>(name: &str, is_value: bool, known: impl Iterator<Item = &'n str>) -> String {
    if is_value {
        return format!("`{name}` is a value and no function; write `{name}`");
    }
    let as_filter = || filters::filter_names().any(|own| own == name).then(|| format!("`x|{name}`"));
    let instead = replaced(FUNCTIONS, name).map(str::to_owned).or_else(as_filter);
    let known: Vec<&str> = known.collect();
    let meant = || nearest(name, known.iter().copied()).map(|meant| format!("did you mean `{meant}`?"));
    let instead = instead.map(|use_| format!("use {use_}")).or_else(meant);
    let instead = instead.unwrap_or_else(|| format!("the functions are {}", known.join(", ")));
    format!("there is no function `{name}`; {instead}")
}

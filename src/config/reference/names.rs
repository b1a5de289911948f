//! The variables, the functions and the tests; examples are run by a test.

use super::entry::{Row, row};

pub(super) const VARIABLES: &[(&str, &str)] = &[
    ("events", "the events of the batch, oldest first; in a template and in `many`"),
    ("rows", "their payloads, flattened so that all have the same columns; in a template and in `many`"),
    ("count", "the number of events; in a template and in `many`"),
    ("suppressed", "events over the rate limit since the last notification; in a template and in `many`"),
    ("type", "the type of the event; in `one`, `sentence` and `where`"),
    ("source", "the component that the event is from; in `one`, `sentence` and `where`"),
    ("severity", "debug, info, warning, error or critical; in `one`, `sentence` and `where`"),
    ("session", "the session that the event is addressed to, or null; in `one`, `sentence` and `where`"),
    ("workspace", "the folder of the event, or null; in `one`, `sentence` and `where`"),
    ("id", "the id of the event; in `one` and `sentence`"),
    ("payload", "the payload of the event; an absent field prints nothing; in `one`, `sentence` and `where`"),
    ("timestamp", "when the event happened, RFC 3339; in `one` and `sentence`"),
    ("repeats", "how often: of the event in `one`; in a template, repeats of events that left earlier"),
    (
        "threshold",
        "with `[threshold]`: `total`, `level` and `by` of the newest row; no `level` if it reached none",
    ),
    ("held", "if `quiet` kept the batch open: `since`, RFC 3339, and `why`, `quiet hours`"),
    ("absent_for", "with `[absent]`: how long nothing came, in milliseconds, for the filter `duration`"),
    ("subscriber", "its `id` and `name`"),
    ("now", "when the batch closed, RFC 3339"),
];

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Row] = &[
    row("range", "the integers from a start up to an end", "x: {{ range(3)|length }}", "x: 3"),
    row("dict", "a map of names and values", "x: {{ dict(a=1).a }}", "x: 1"),
    row("namespace", "a map whose fields a loop can set", "{% set all = namespace(n=0) %}\n{% for row in rows %}\n{% set all.n = all.n + row.n %}\n{% endfor %}\nsum: {{ all.n }}", "sum: 3"),
    row("notify", "sends a notice to the user, and prints nothing; in a template and in `many`", "{{ notify(\"two calls failed\", level=\"warn\") }}\nx: 1", "x: 1"),
];

#[rustfmt::skip]
pub(super) const TESTS: &[Row] = &[
    row("undefined", "whether the value is absent", "x: {{ events[0].payload.none is undefined }}", "x: true"),
    row("defined", "whether the value is there", "x: {{ events[0].payload.tool is defined }}", "x: true"),
    row("none", "whether the value is null", "x: {{ none is none }}", "x: true"),
    row("boolean", "whether the value is true or false", "x: {{ true is boolean }}", "x: true"),
    row("odd", "whether the number is odd", "x: {{ 3 is odd }}", "x: true"),
    row("even", "whether the number is even", "x: {{ 3 is even }}", "x: false"),
    row("divisibleby", "whether the number is a multiple", "x: {{ 6 is divisibleby(3) }}", "x: true"),
    row("number", "whether the value is a number", "x: {{ 1.5 is number }}", "x: true"),
    row("integer", "whether the value is an integer", "x: {{ 1 is integer }}", "x: true"),
    row("int", "the same as `integer`", "x: {{ 1.5 is int }}", "x: false"),
    row("float", "whether the value has a fraction", "x: {{ 1.5 is float }}", "x: true"),
    row("string", "whether the value is a text", "x: {{ \"a\" is string }}", "x: true"),
    row("sequence", "whether the value is a list", "x: {{ [1] is sequence }}", "x: true"),
    row("iterable", "whether a loop can take the value", "x: {{ [1] is iterable }}", "x: true"),
    row("mapping", "whether the value is a map", "x: {{ events[0].payload is mapping }}", "x: true"),
    row("startingwith", "whether the text begins so", "x: {{ \"abc\" is startingwith(\"ab\") }}", "x: true"),
    row("endingwith", "whether the text ends so", "x: {{ \"abc\" is endingwith(\"bc\") }}", "x: true"),
    row("lower", "whether the text is in lower case", "x: {{ \"abc\" is lower }}", "x: true"),
    row("upper", "whether the text is in upper case", "x: {{ \"abc\" is upper }}", "x: false"),
    row("sameas", "whether two values are the same", "x: {{ 1 is sameas(1) }}", "x: true"),
    row("true", "whether the value is true itself", "x: {{ true is true }}", "x: true"),
    row("false", "whether the value is false itself", "x: {{ true is false }}", "x: false"),
    row("filter", "whether there is a filter of this name", "x: {{ \"upper\" is filter }}", "x: true"),
    row("test", "whether there is a test of this name", "x: {{ \"odd\" is test }}", "x: true"),
    row("eq", "whether two values are equal", "x: {{ 1 is eq(1) }}", "x: true"),
    row("equalto", "the same as `eq`", "x: {{ 1 is equalto(1) }}", "x: true"),
    row("lessthan", "the same as `lt`", "x: {{ 1 is lessthan(2) }}", "x: true"),
    row("greaterthan", "the same as `gt`", "x: {{ 1 is greaterthan(2) }}", "x: false"),
    row("ne", "whether two values differ", "x: {{ 1 is ne(1) }}", "x: false"),
    row("lt", "whether the value is less", "x: {{ 1 is lt(2) }}", "x: true"),
    row("le", "whether the value is less or equal", "x: {{ 2 is le(2) }}", "x: true"),
    row("gt", "whether the value is greater", "x: {{ 1 is gt(2) }}", "x: false"),
    row("ge", "whether the value is greater or equal", "x: {{ 2 is ge(2) }}", "x: true"),
    row("in", "whether the value is an item or a part", "x: {{ 1 is in([1, 2]) }}", "x: true"),
];

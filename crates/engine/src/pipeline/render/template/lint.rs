//! Checks a template's text before it is parsed, and maps faults to lines and columns.

use crate::{
    nearest::nearest,
    pipeline::{
        hints::{self, Slip},
        render::{OUTPUT_BYTES_MAX, TemplateError, table::clean_event::REPEATS},
        sandbox::{Cause, Fault},
    },
};

/// The variables of a template.
pub(super) const VARIABLES: [&str; 10] = [
    "events",
    "rows",
    "count",
    "repeats",
    "suppressed",
    "threshold",
    "held",
    "absent_for",
    "subscriber",
    "now",
];
/// The variables of the text of one event.
pub const EVENT_VARIABLES: [&str; 14] = [
    "type",
    "source",
    "severity",
    "session",
    "workspace",
    "id",
    "payload",
    "timestamp",
    REPEATS,
    "threshold",
    "held",
    "absent_for",
    "subscriber",
    "now",
];

/// Longest tag or expression, in bytes. minijinja parses and runs a chain of operators by unguarded
/// recursion. In a debug build with a stack of 2 MiB it overflows at about 2,000 unary minus signs,
/// so half of that is safe.
const TAG_BYTES_MAX: usize = 1_000;
/// Checks the source as text: length and control characters.
pub(super) fn check_text(source: &str) -> Result<(), TemplateError> {
    if source.len() > OUTPUT_BYTES_MAX {
        let size = source.len().div_ceil(1024);
        let message = format!("a template has at most {} KiB, this one has {size}", OUTPUT_BYTES_MAX / 1024);
        return Err(error_at(source, 0, 0, message));
    }
    if let Some(range) = hints::long_tag(source, TAG_BYTES_MAX) {
        let message = format!("a tag has at most {TAG_BYTES_MAX} bytes; name its parts with `set`");
        return Err(error_at(source, range.start, range.end, message));
    }
    let control = source.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\r' | '\t'));
    if let Some((at, c)) = control {
        let message = format!("control character U+{:04X} in a template", u32::from(c));
        return Err(error_at(source, at, at + c.len_utf8(), message));
    }
    match hints::tab_in(source) {
        Some(Slip { message, range }) => Err(error_at(source, range.start, range.end, message)),
        None => Ok(()),
    }
}

/// The error for a fault in the source, with its line and column.
pub(super) fn template_error(source: &str, fault: Fault) -> TemplateError {
    if let Some(Slip { message, range }) = hints::in_template(source).filter(|_| fault.cause == Cause::Syntax)
    {
        return error_at(source, range.start, range.end, message);
    }
    match (fault.range, fault.line) {
        (Some(range), _) => error_at(source, range.start, range.end, fault.message),
        (None, line) => {
            TemplateError { message: fault.message, line: line.unwrap_or(1), column: 1, range: None }
        }
    }
}

/// The error message for an unknown variable of a template.
pub(super) fn unknown_variable(name: &str) -> String {
    let of_event = || {
        let is_field = EVENT_VARIABLES.contains(&name);
        is_field.then(|| format!("each event has one, such as `events[0].{name}`; "))
    };
    let near = nearest(name, VARIABLES).map(|near| format!("did you mean `{near}`? "));
    let hint = of_event().or(near).unwrap_or_default();
    format!("unknown variable `{name}`; {hint}the variables are {}", VARIABLES.join(", "))
}

/// The error message for an unknown variable of the text of one event.
pub(super) fn unknown_event_variable(name: &str) -> String {
    let hint = match nearest(name, EVENT_VARIABLES) {
        _ if VARIABLES.contains(&name) => "it is a variable of `many` and of templates; ".to_owned(),
        Some(near) => format!("did you mean `{near}`? "),
        None => format!("a field of its payload is `payload.{name}`; "),
    };
    format!("an event has no `{name}`; {hint}its fields are {}", EVENT_VARIABLES.join(", "))
}

fn error_at(source: &str, start: usize, end: usize, message: String) -> TemplateError {
    let before = source.get(..start).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    TemplateError {
        message,
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).map_or(0, |text| text.chars().count()) + 1,
        range: (end > start).then_some(start..end),
    }
}

#[cfg(test)]
mod tests {
    use crate::pipeline::render::Templates;

    #[test]
    fn a_refused_template_names_line_and_column() {
        for (source, line, column, part) in [
            ("a: 1\nb: {{ rows|safe }}", 2, 12, "`safe`"),
            ("a: {{ rows | safe }}", 1, 14, "`safe`"),
            ("{% filter safe %}x{% endfilter %}", 1, 11, "`safe`"),
            ("a: 1\n  {%- autoescape false %}x{% endautoescape %}", 2, 7, "`autoescape`"),
            ("{% include 'x' %}", 1, 4, "one file"),
            ("{% block x %}{% endblock %}", 1, 4, "`block`"),
            ("a: {{ now|shout }}", 1, 11, "unknown filter `shout`"),
            ("a: {{ now|uper }}", 1, 11, "did you mean `upper`"),
            ("a: {{ now is defind }}", 1, 14, "unknown test `defind`; did you mean `defined`"),
            ("a: {{ rows|map('uper')|list }}", 1, 16, "did you mean `upper`"),
            ("a: {{ rows|selectattr('n', 'defind')|list }}", 1, 28, "unknown test `defind`"),
            ("a: {{ evnts[0].id }}", 1, 7, "unknown variable `evnts`; did you mean `events`"),
            ("a: {{ evnts[:2]|length }}", 1, 7, "unknown variable `evnts`"),
            ("{% for r in rows %}{% endfor %}a: {{ r.n }}", 1, 38, "unknown variable `r`"),
            ("a: {{ now }", 1, 4, "`{{` without its `}}`"),
            ("a:\n\tb: 1\n", 2, 1, "a level is two spaces"),
            ("a: \u{2}0\u{3}", 1, 4, "U+0002"),
            (&format!("a: 1\nb: {{{{ {}1 }}}}", "-".repeat(5_000)), 2, 4, "1000 bytes"),
            (&format!("b: {{{{ '}}}}' ~ {}1 }}}}", "-".repeat(5_000)), 1, 4, "1000 bytes"),
            ("caf\u{e9}: {{ x }}", 1, 10, "`x`"),
            ("a: {{ 'x' * 100000000 }}", 1, 7, "cannot be repeated"),
            ("a: {{ ('x' ~ 'y') * 9 * 9 }}", 1, 7, "cannot be repeated"),
            ("a: {{ events[0].severity >= 'error' }}", 1, 13, "severities are words"),
            ("{% for e in events %}{{ loop.cycle() }}{% endfor %}", 1, 25, "`cycle`"),
            ("{% macro m(a) %}{% endmacro %}{{ m(*rows) }}", 1, 37, "unpack"),
        ] {
            let error = Templates::new().add("t", source).expect_err(source);
            assert!(error.message.contains(part), "{source}: {error}");
            assert_eq!((error.line, error.column), (line, column), "{source}: {error}");
        }
    }

    #[test]
    fn names_in_text_comments_and_strings_are_ignored() {
        for source in [
            "safe: {{ 'x|safe' }} include",
            "{# x|safe #}a: 1",
            "a: 1{% raw %}{{ x|safe }}{% endraw %}",
            &format!("{{# {{{{ prints a value #}}\n{}", "a: 1\n".repeat(300)),
            &format!("{{% raw %}}{{{{{{% endraw %}}\n{}", "a: 1\n".repeat(300)),
            "{% for safe in rows %}{{ safe.include }}{% endfor %}",
            "{% set x = namespace(n=0) %}{% macro m(y) %}{{ y }}{% endmacro %}a: {{ m(x.n) }}",
        ] {
            assert_eq!(Templates::new().add("t", source), Ok(()), "{source}");
        }
    }
}

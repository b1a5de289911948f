//! What is refused when a template is loaded, so that its author hears of it and not the agent.
//!
//! A small scanner finds the names inside tags and where they stand; minijinja has checked the syntax by then. Found: control characters,
//! tags and filters that would let text through as structure or reach for other files, unknown filters, unknown variables.

use std::collections::HashSet;

use minijinja::{Environment, Error, ErrorKind};

use super::{OUTPUT_BYTES_MAX, TemplateError, template::VARIABLES};
use crate::pipeline::hints::{self, Slip};

/// Longest tag or expression in bytes. minijinja reads and runs a chain of operators by recursion without a guard; in a debug
/// build with a stack of 2 MiB it overflows at about 2,000 unary minus signs, so half of that is safe.
const TAG_BYTES_MAX: usize = 1_000;
/// Tags that a template may not use, each with the reason.
const REFUSED_TAGS: [(&str, &str); 5] = [
    ("autoescape", "every value is encoded, so `autoescape` has no use here"),
    ("include", "a template is one file, so it cannot `include` another"),
    ("import", "a template is one file, so it cannot `import` another"),
    ("from", "a template is one file, so it cannot import from another"),
    ("extends", "a template is one file, so it cannot extend another"),
];
/// Names that minijinja gives a meaning to in some places.
const IMPLIED: [&str; 6] = ["loop", "self", "super", "caller", "varargs", "kwargs"];

/// Checks the source as text: size and control characters.
pub(super) fn check_text(source: &str) -> Result<(), TemplateError> {
    if source.len() > OUTPUT_BYTES_MAX {
        let size = source.len().div_ceil(1024);
        let message = format!("a template has at most {} KiB, this one has {size}", OUTPUT_BYTES_MAX / 1024);
        return Err(error_at(source, 0, 0, message));
    }
    if let Some((start, end)) = long_tag(source) {
        let message = format!("a tag has at most {TAG_BYTES_MAX} bytes; name its parts with `set`");
        return Err(error_at(source, start, end, message));
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

/// The first tag that is longer than [`TAG_BYTES_MAX`]; text in quotes does not end a tag.
fn long_tag(source: &str) -> Option<(usize, usize)> {
    let mut at = 0;
    while let Some(opened) =
        source.get(at..).and_then(|rest| rest.find("{{").into_iter().chain(rest.find("{%")).min())
    {
        let start = at + opened;
        let mut quote = None;
        let inside = source.as_bytes().get(start + 2..).unwrap_or_default();
        let length = inside.windows(2).position(|pair| {
            match (quote, pair) {
                (None, b"}}" | b"%}") => return true,
                (None, [open @ (b'"' | b'\''), _]) => quote = Some(*open),
                (Some(open), [byte, _]) if open == *byte => quote = None,
                (None | Some(_), _) => {}
            }
            false
        });
        let end = start + 2 + length.unwrap_or(inside.len());
        if end - start > TAG_BYTES_MAX {
            return Some((start, end));
        }
        at = end;
    }
    None
}

/// Places minijinja's own complaint in the source.
pub(super) fn syntax_error(source: &str, error: &Error) -> TemplateError {
    if let Some(Slip { message, range }) = hints::in_template(source) {
        return error_at(source, range.start, range.end, message);
    }
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    if let Some(range) = error.range() {
        return error_at(source, range.start, range.end, message);
    }
    TemplateError { message, line: error.line().unwrap_or(1), column: 1, range: None }
}

/// Checks the tags and filters that the source uses.
pub(super) fn check_tags(source: &str, environment: &Environment<'_>) -> Result<(), TemplateError> {
    for name in names(source) {
        let refused = match name.role {
            Role::Tag => {
                REFUSED_TAGS.iter().find(|(tag, _)| *tag == name.text).map(|(_, why)| (*why).to_owned())
            }
            Role::Filter => refused_filter(name.text, environment),
            Role::Other => None,
        };
        if let Some(message) = refused {
            return Err(error_at(source, name.at, name.at + name.text.len(), message));
        }
    }
    Ok(())
}

fn refused_filter(name: &str, environment: &Environment<'_>) -> Option<String> {
    match name {
        "safe" => Some("every value is encoded, so `safe` has no use here".into()),
        _ => {
            let applied = environment.empty_state().apply_filter(name, &[]);
            let is_unknown = applied.is_err_and(|error| error.kind() == ErrorKind::UnknownFilter);
            is_unknown.then(|| {
                format!("there is no filter `{name}`; those that write TOON are toon, toon_key and toon_row")
            })
        }
    }
}

/// Checks that every variable that the source asks for exists.
pub(super) fn check_variables(
    source: &str,
    asked: &HashSet<String>,
    environment: &Environment<'_>,
) -> Result<(), TemplateError> {
    let is_known = |name: &str| {
        VARIABLES.contains(&name)
            || IMPLIED.contains(&name)
            || environment.globals().any(|(global, _)| global == name)
    };
    let is_unknown = |text: &str| asked.contains(text) && !is_known(text);
    match names(source).find(|name| name.role == Role::Other && is_unknown(name.text)) {
        Some(name) => {
            let message = format!("there is no variable `{}`; there are {}", name.text, VARIABLES.join(", "));
            Err(error_at(source, name.at, name.at + name.text.len(), message))
        }
        None => Ok(()),
    }
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

/// A name inside a tag.
struct Name<'s> {
    text: &'s str,
    at: usize,
    role: Role,
}

/// What a name is, as far as the character before it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The first name of a `{% %}`.
    Tag,
    /// After `|`, or after `filter` at the beginning of a tag.
    Filter,
    /// A variable, a keyword, an attribute.
    Other,
}

/// The names inside the tags of `source`, in order; what stands in comments, strings and `raw` blocks is no name.
fn names(source: &str) -> impl Iterator<Item = Name<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(open) = source.get(at..).and_then(|rest| rest.find('{')).map(|found| at + found) {
        let rest = source.get(open..).unwrap_or_default();
        at = if rest.starts_with("{#") {
            open + rest.find("#}").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("{{") || rest.starts_with("{%") {
            let is_statement = rest.starts_with("{%");
            let first = found.len();
            let end = scan_tag(source, open + 2, is_statement, &mut found);
            let is_raw = is_statement && found.get(first).is_some_and(|name: &Name<'_>| name.text == "raw");
            if is_raw { end + end_of_raw(source.get(end..).unwrap_or_default()) } else { end }
        } else {
            open + 1
        };
    }
    found.into_iter()
}

fn end_of_raw(rest: &str) -> usize {
    rest.find("endraw").map_or(rest.len(), |at| at + "endraw".len())
}

/// Collects the names of one tag and gives the offset after it.
fn scan_tag<'s>(source: &'s str, start: usize, is_statement: bool, found: &mut Vec<Name<'s>>) -> usize {
    let close = if is_statement { "%}" } else { "}}" };
    let (mut at, mut before) = (start, if is_statement { '%' } else { '{' });
    let mut after_filter_tag = false;
    while let Some(rest) = source.get(at..) {
        let Some(c) = rest.chars().next() else { break };
        if rest.starts_with(close) {
            return at + close.len();
        }
        if c == '"' || c == '\'' {
            at += string_length(rest, c);
            before = c;
        } else if c.is_ascii_alphabetic() || c == '_' {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let text = rest.get(..length).unwrap_or_default();
            let role = match before {
                '%' => Role::Tag,
                '|' => Role::Filter,
                _ if after_filter_tag => Role::Filter,
                _ => Role::Other,
            };
            after_filter_tag = role == Role::Tag && text == "filter";
            if before != '.' {
                found.push(Name { text, at, role });
            }
            at += length;
            before = 'a';
        } else {
            let is_trim_marker = at == start && matches!(c, '-' | '+');
            if !c.is_whitespace() && !is_trim_marker {
                before = c;
            }
            at += c.len_utf8();
        }
    }
    source.len()
}

fn string_length(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::super::Templates;

    #[test]
    fn what_is_refused_is_refused_with_its_place() {
        for (source, line, column, part) in [
            ("a: 1\nb: {{ rows|safe }}", 2, 12, "`safe`"),
            ("a: {{ rows | safe }}", 1, 14, "`safe`"),
            ("{% filter safe %}x{% endfilter %}", 1, 11, "`safe`"),
            ("a: 1\n  {%- autoescape false %}x{% endautoescape %}", 2, 7, "`autoescape`"),
            ("{% include 'x' %}", 1, 4, "one file"),
            ("a: {{ now|shout }}", 1, 11, "no filter `shout`"),
            ("a: {{ evnts[0].id }}", 1, 7, "no variable `evnts`"),
            ("a: {{ now }", 1, 4, "`{{` without its `}}`"),
            ("a:\n\tb: 1\n", 2, 1, "a level is two spaces"),
            ("a: \u{2}0\u{3}", 1, 4, "U+0002"),
            (&format!("a: 1\nb: {{{{ {}1 }}}}", "-".repeat(5_000)), 2, 4, "1000 bytes"),
            (&format!("b: {{{{ '}}}}' ~ {}1 }}}}", "-".repeat(5_000)), 1, 4, "1000 bytes"),
            ("caf\u{e9}: {{ x }}", 1, 10, "`x`"),
        ] {
            let error = Templates::new().add("t", source.to_owned()).expect_err(source);
            assert!(error.message.contains(part), "{source}: {error}");
            if !part.is_empty() {
                assert_eq!((error.line, error.column), (line, column), "{source}: {error}");
            }
        }
    }

    #[test]
    fn names_in_text_comments_strings_and_raw_blocks_are_nobodys_business() {
        for source in [
            "safe: {{ 'x|safe' }} include",
            "{# x|safe #}a: 1",
            "a: 1{% raw %}{{ x|safe }}{% endraw %}",
            "{% for safe in rows %}{{ safe.include }}{% endfor %}",
            "{% set x = namespace(n=0) %}{% macro m(y) %}{{ y }}{% endmacro %}a: {{ m(x.n) }}",
        ] {
            assert_eq!(Templates::new().add("t", source.to_owned()), Ok(()), "{source}");
        }
    }
}

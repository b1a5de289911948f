//! Finds the cause of a syntax error for which minijinja's parser reports only the position.
//!
//! The parser runs first. After its error this module searches the text for common slips of
//! authors: an unclosed tag, an unended block, an operator of another language.

use std::ops::Range;

use crate::nearest::nearest;

/// A slip and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slip {
    /// Description, as a lowercase fragment.
    pub(crate) message: String,
    /// Bytes of the source.
    pub(crate) range: Range<usize>,
}

/// A tag of a template.
struct Tag<'s> {
    /// The first word of a `{% %}`; empty for a `{{ }}`.
    word: &'s str,
    /// Its position.
    at: usize,
    /// The text between its delimiters.
    inside: &'s str,
    is_closed: bool,
}

impl Tag<'_> {
    /// The range of its word.
    fn range(&self) -> Range<usize> {
        let start = self.at + 2 + self.inside.find(self.word).unwrap_or(0);
        start..start + self.word.len()
    }

    /// The first operator of another language in it. `=` gives a name to a value in some tags.
    fn foreign_operator(&self) -> Option<Slip> {
        let may_assign = matches!(self.word, "set" | "with" | "macro" | "call" | "filter");
        let start = self.at + 2;
        let slip = in_expression(self.inside)
            .filter(|slip| !may_assign || self.inside.get(slip.range.clone()) != Some("="))?;
        Some(Slip { range: start + slip.range.start..start + slip.range.end, ..slip })
    }

    /// Whether it begins a block; `set` does if it has no `=`.
    fn opens_block(&self) -> bool {
        match self.word {
            "if" | "for" | "macro" | "call" | "filter" | "with" | "block" => true,
            "set" => !self.inside.contains('='),
            _ => false,
        }
    }
}

/// The slip in an invalid template, if it is a common one.
pub(crate) fn in_template(source: &str) -> Option<Slip> {
    let tags = tags(source);
    let line = |at: usize| source.get(..at).map_or(0, |before| before.matches('\n').count()) + 1;
    if let Some(tag) = tags.iter().find(|tag| !tag.is_closed) {
        let (open, close) = if source.get(tag.at..)?.starts_with("{{") { ("{{", "}}") } else { ("{%", "%}") };
        return Some(Slip { message: format!("`{open}` without its `{close}`"), range: tag.at..tag.at + 2 });
    }
    if let Some(slip) = tags.iter().find_map(foreign_tag) {
        return Some(slip);
    }
    let mut open: Vec<&Tag<'_>> = Vec::new();
    for tag in &tags {
        let slip = |message: String| Some(Slip { message, range: tag.range() });
        match (tag.word.strip_prefix("end"), open.last()) {
            (None, _) if tag.opens_block() => open.push(tag),
            (None, _) => {}
            (Some(end), Some(block)) if end == block.word => drop(open.pop()),
            (Some(_), Some(block)) => {
                let (word, at) = (block.word, line(block.at));
                return slip(format!(
                    "`{}` where the `{word}` of line {at} is open, which `end{word}` ends",
                    tag.word
                ));
            }
            (Some(end), None) => return slip(format!("`{}` without an open `{end}`", tag.word)),
        }
    }
    let Some(block) = open.last() else { return tags.iter().find_map(Tag::foreign_operator) };
    let message = format!("the `{}` of line {} has no `end{}`", block.word, line(block.at), block.word);
    Some(Slip { message, range: block.range() })
}

/// The words of tags.
const WORDS: [&str; 30] = [
    "autoescape",
    "block",
    "break",
    "call",
    "continue",
    "do",
    "elif",
    "else",
    "endautoescape",
    "endblock",
    "endcall",
    "endfilter",
    "endfor",
    "endif",
    "endmacro",
    "endraw",
    "endset",
    "endwith",
    "extends",
    "filter",
    "for",
    "from",
    "if",
    "import",
    "include",
    "macro",
    "raw",
    "set",
    "with",
    "trans",
];
/// Tags of other languages, and what does the same.
const FOREIGN_TAGS: [(&str, &str); 12] = [
    ("unless", "`{% if not .. %}`"),
    ("assign", "`{% set .. %}`"),
    ("capture", "`{% set .. %}`"),
    ("elsif", "`{% elif .. %}`"),
    ("elseif", "`{% elif .. %}`"),
    ("case", "`{% if .. %}` and `{% elif .. %}`"),
    ("switch", "`{% if .. %}` and `{% elif .. %}`"),
    ("trans", "the text itself"),
    ("range", "`{% for e in events %}`"),
    ("end", "`{% endif %}` or `{% endfor %}`"),
    ("foreach", "`{% for .. in .. %}`"),
    ("let", "`{% set .. %}`"),
];
/// What begins the expressions of a template of Go.
const GO_WORDS: [&str; 5] = ["range ", "if ", "with ", "define ", "template "];

/// A tag of another language.
fn foreign_tag(tag: &Tag<'_>) -> Option<Slip> {
    let code = tag.inside.trim_start_matches(['-', '+']).trim();
    if tag.word.is_empty() {
        let start = tag.at + 2 + tag.inside.find(code)?;
        let range = start..start + code.len();
        let is_go =
            code.starts_with('.') || GO_WORDS.iter().any(|word| code.starts_with(word)) || code == "end";
        if is_go {
            let message = "this is of a template of Go; a value is `events[0].payload.name`, and a tag {% for e in events %}";
            return Some(Slip { message: message.to_owned(), range });
        }
        let (filter, rest) = code.rsplit_once('|').and_then(|(_, last)| last.split_once(':'))?;
        let is_name =
            !filter.trim().is_empty() && filter.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let at = range.end - rest.len() - 1;
        let message =
            format!("the arguments of a filter are in parentheses: `|{}({})`", filter.trim(), rest.trim());
        return is_name.then_some(Slip { message, range: at..at + 1 });
    }
    let slip = |message: String| Some(Slip { message, range: tag.range() });
    if tag.word == "else" && code.strip_prefix("else").is_some_and(|rest| rest.trim().starts_with("if")) {
        return slip("`else if` is one word here: `{% elif .. %}`".to_owned());
    }
    let opened = tag.word.strip_prefix("end").filter(|rest| !rest.is_empty()).unwrap_or(tag.word);
    if let Some((_, instead)) = FOREIGN_TAGS.iter().find(|(word, _)| *word == opened) {
        return slip(format!("there is no tag `{}`; use {instead}", tag.word));
    }
    if WORDS.contains(&tag.word) {
        return None;
    }
    let meant = nearest(tag.word, WORDS).map(|meant| format!("; did you mean `{meant}`?"));
    slip(format!("there is no tag `{}`{}", tag.word, meant.unwrap_or_default()))
}

/// The first tag with more than `bytes_max` bytes, from its begin to its end delimiter.
pub(crate) fn long_tag(source: &str, bytes_max: usize) -> Option<Range<usize>> {
    let mut ranges = tags(source).into_iter().map(|tag| tag.at..tag.at + 2 + tag.inside.len());
    ranges.find(|range| range.len() > bytes_max)
}

/// The first line of a template's text that is indented with a tab; TOON, and so a template, needs
/// two spaces per level.
pub(crate) fn tab_in(source: &str) -> Option<Slip> {
    let tags = tags(source);
    let is_inside = |at: usize| tags.iter().any(|tag| (tag.at..tag.at + 2 + tag.inside.len()).contains(&at));
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        let (blank, text) = line.split_at(indent);
        let says_something = !text.trim().is_empty() && !text.starts_with("{%") && !text.starts_with("{#");
        if let Some(tab) = blank.find('\t')
            && says_something
            && !is_inside(start)
        {
            let message = "a tab in the indentation: a level is two spaces".to_owned();
            return Some(Slip { message, range: start + tab..start + tab + 1 });
        }
        start += line.len();
    }
    None
}

/// The first operator of another language in an expression, outside strings. `=` counts only
/// outside brackets, where it cannot name an argument.
pub(crate) fn in_expression(source: &str) -> Option<Slip> {
    let (mut quote, mut depth) = (None, 0_usize);
    let slip = |found: &str, meant: &str, at: usize| {
        let message = format!("`{found}` is not an operator here; use `{meant}`");
        Some(Slip { message, range: at..at + found.len() })
    };
    for (at, c) in source.char_indices() {
        let next = source.get(at + c.len_utf8()..).and_then(|rest| rest.chars().next());
        let before = source.get(..at).and_then(|text| text.chars().next_back());
        match (quote, c) {
            (Some(open), c) if c == open && before != Some('\\') => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, '&') if next == Some('&') => return slip("&&", "and", at),
            (None, '|') if next == Some('|') => return slip("||", "or", at),
            (None, '!') if next != Some('=') => return slip("!", "not", at),
            (None, '=') if next == Some('~') => return slip("=~", "x|regex_find(\"..\")", at),
            (None, '?') if next == Some('?') => return slip("??", "x|default(..)", at),
            (None, '?') => return slip("?", "a if condition else b", at),
            (None, '=') if next == Some('=') || matches!(before, Some('=' | '!' | '<' | '>')) => {}
            (None, '=') if depth == 0 => return slip("=", "==", at),
            (None, _) => {}
        }
    }
    None
}

/// The tags of a template in order, without comments and `raw` blocks.
fn tags(source: &str) -> Vec<Tag<'_>> {
    let (mut tags, mut at, mut is_raw) = (Vec::new(), 0, false);
    while let Some(open) = source.get(at..).and_then(|rest| rest.find('{')).map(|found| at + found) {
        let rest = source.get(open..).expect("a brace is at `open`");
        if rest.starts_with("{#") {
            at = open + rest.find("#}").map_or(rest.len(), |end| end + 2);
        } else if rest.starts_with("{{") || rest.starts_with("{%") {
            let tag = tag(source, open, if rest.starts_with("{%") { "%}" } else { "}}" });
            at = open + 2 + tag.inside.len();
            match (is_raw, tag.word) {
                (true, "endraw") => is_raw = false,
                (true, _) => at = open + 2,
                (false, "raw") => is_raw = true,
                (false, _) => tags.push(tag),
            }
        } else {
            at = open + 1;
        }
    }
    tags
}

fn tag<'s>(source: &'s str, open: usize, close: &str) -> Tag<'s> {
    let rest = source.get(open + 2..).expect("two ASCII characters begin the tag");
    let mut quote = None;
    // Another tag before the end means that this tag was not closed.
    let end = rest.char_indices().find_map(|(at, c)| {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            _ => {}
        }
        let delimiter = rest.get(at..at + 2).filter(|_| quote.is_none())?;
        (delimiter == close || ["{{", "{%"].contains(&delimiter)).then_some((at, delimiter == close))
    });
    let (inside, is_closed) = match end {
        Some((at, is_closed)) => (rest.get(..at).expect("a character begins at `at`"), is_closed),
        None => (rest, false),
    };
    let code = inside.trim_start_matches(['-', '+']).trim_start();
    let word_end = code.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(code.len());
    let word = if close == "%}" { code.get(..word_end).expect("the end of a word in it") } else { "" };
    Tag { word, at: open, inside, is_closed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclosed_tags_and_blocks_are_reported_with_position() {
        for (source, at, part) in [
            ("a: {{ now }", 3, "`{{` without its `}}`"),
            ("a: {{ now\nb: {{ count }}", 3, "`{{` without its `}}`"),
            ("a: 1\n{% if count %}\nb: 2\n", 8, "the `if` of line 2 has no `endif`"),
            ("{{ \"{{\" }}{% if count %}", 13, "the `if` of line 1 has no `endif`"),
            ("{% for r in rows %}\na: 1\n{% endif %}", 28, "`endif` where the `for` of line 1 is open"),
            ("a: 1\n{%- endif %}", 9, "`endif` without an open `if`"),
            ("{% set x %}\na: 1\n{% if count %}{% endif %}", 3, "the `set` of line 1 has no `endset`"),
        ] {
            let slip = in_template(source).expect(source);
            assert!(slip.message.contains(part), "{source}: {slip:?}");
            assert_eq!(slip.range.start, at, "{source}: {slip:?}");
        }
        for source in [
            "{% if a %}{{ '}}' }}{% endif %}{# {% if %} #}",
            "{% raw %}{% if %}{{{% endraw %}",
            "{% set x = 1 %}{% set y %}1{% endset %}{% for a in b %}{% else %}{% endfor %}",
        ] {
            assert_eq!(in_template(source), None, "{source}");
        }
    }

    #[test]
    fn a_tab_indents_nothing() {
        assert_eq!(tab_in("a:\n\tb: 1\n").map(|slip| slip.range), Some(3..4));
        assert_eq!(tab_in("a:\n  \t{{ count }}\n").map(|slip| slip.range), Some(5..6));
        assert_eq!(
            tab_in("{% if rows %}\n\t{% set x = [\n\t1] %}\n\t{# x #}\n{% endif %}a: 1\tb\n\t\n"),
            None
        );
    }

    #[test]
    fn operators_of_other_languages_are_known() {
        for (source, range, meant) in [
            ("payload.x = 1", 10..11, "`==`"),
            ("payload.x && payload.y", 10..12, "`and`"),
            ("payload.x || payload.y", 10..12, "`or`"),
            ("!payload.x", 0..1, "`not`"),
            ("payload.l|map(attribute='n') = 3", 29..30, "`==`"),
        ] {
            let slip = in_expression(source).expect(source);
            assert_eq!(slip.range, range, "{source}");
            assert!(slip.message.contains(meant), "{slip:?}");
        }
        assert_eq!(in_expression("a == '&& = !' and b != \"||\" and c >= 1 and d|f(x=1)"), None);
    }
}

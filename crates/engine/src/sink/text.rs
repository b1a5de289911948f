//! Formats a message for a sink: parses it into spans once, and writes them for one target.
//!
//! A small part of markdown is supported: `**bold**`, `*italic*` or `_italic_`, `` `code` ``, fenced
//! code, `[text](url)`, a bare URL, and `\` before a punctuation character, which escapes it. Marks
//! do not nest. All other markup is escaped in every target, because a message can contain text of
//! others.

use super::message::{Part, parts};
use crate::notification::link;

/// The end of a line of code where a text is one line.
const LINE_END: &str = " \u{23ce} ";

/// The reader of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A line without any markup.
    Plain,
    /// A desktop's notification server.
    ///
    /// Source: the desktop notifications specification, "Markup": XML with `<b>`, `<i>` and
    /// `<a href>`.
    Desktop,
    /// A reader of markdown: ntfy with `markdown`, apprise with `--input-format=markdown`.
    ///
    /// Source: CommonMark 0.31, and Python-Markdown, with which apprise makes HTML. Python-Markdown
    /// knows fewer escapes, so `<` and `&` are written as entities.
    Markdown,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span<'t> {
    Plain(&'t str),
    Bold(&'t str),
    Italic(&'t str),
    Code(&'t str),
    Block { language: &'t str, code: &'t str },
    Link { text: &'t str, url: &'t str },
    Url(&'t str),
}

/// The spans of a cleaned markdown message.
pub(super) fn read(message: &str) -> Vec<Span<'_>> {
    let part = |part| match part {
        Part::Line(line) => read_line(line),
        Part::Block { language, code } => vec![Span::Block { language, code }],
    };
    parts(message).into_iter().flat_map(part).collect()
}

fn read_line(message: &str) -> Vec<Span<'_>> {
    let mut spans = Vec::new();
    let (mut at, mut plain, mut before) = (0, 0, None);
    while let Some(rest) = message.get(at..).filter(|rest| !rest.is_empty()) {
        match span_at(before, rest) {
            Some((span, length)) => {
                spans.extend(message.get(plain..at).filter(|text| !text.is_empty()).map(Span::Plain));
                spans.push(span);
                at += length;
                plain = at;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
        before = message.get(..at).and_then(|done| done.chars().next_back());
    }
    spans.extend(message.get(plain..).filter(|text| !text.is_empty()).map(Span::Plain));
    spans
}

/// The span other than plain text at this position, and its length in bytes.
fn span_at(before: Option<char>, rest: &str) -> Option<(Span<'_>, usize)> {
    match rest.as_bytes().first()? {
        b'\\' => {
            let escaped =
                rest.get(1..2).filter(|text| text.bytes().all(|byte| byte.is_ascii_punctuation()))?;
            Some((Span::Plain(escaped), 2))
        }
        b'`' => between(rest, "`").map(|text| (Span::Code(text), text.len() + 2)),
        b'*' if rest.starts_with("**") => {
            emphasis(before, rest, "**").map(|text| (Span::Bold(text), text.len() + 4))
        }
        b'*' => emphasis(before, rest, "*").map(|text| (Span::Italic(text), text.len() + 2)),
        b'_' => emphasis(before, rest, "_").map(|text| (Span::Italic(text), text.len() + 2)),
        b'[' => {
            let (text, after) = rest.get(1..)?.split_once("](")?;
            let (url, _) = after.split_once(')')?;
            let is_link = !text.trim().is_empty() && !text.contains(['[', ']']) && link::check(url).is_ok();
            is_link.then_some((Span::Link { text, url }, text.len() + url.len() + 4))
        }
        b'h' if !before.is_some_and(char::is_alphanumeric) => {
            let url = bare_url(rest)?;
            Some((Span::Url(url), url.len()))
        }
        _ => None,
    }
}

/// The text between two equal marks at the start of `rest`; it must not be empty, nor begin or end
/// with a space.
fn between<'t>(rest: &'t str, mark: &str) -> Option<&'t str> {
    let (text, _) = rest.strip_prefix(mark)?.split_once(mark)?;
    (!text.is_empty() && text.trim() == text).then_some(text)
}

/// The same for marks that have no meaning within a word, such as the `_` of a name.
fn emphasis<'t>(before: Option<char>, rest: &'t str, mark: &str) -> Option<&'t str> {
    let text = between(rest, mark)?;
    let after = rest.get(text.len() + 2 * mark.len()..).and_then(|rest| rest.chars().next());
    let is_in_word = [before, after].into_iter().flatten().any(char::is_alphanumeric);
    (!is_in_word).then_some(text)
}

/// The URL at the start of `rest`, without punctuation that ends a sentence.
fn bare_url(rest: &str) -> Option<&str> {
    let end = rest.find(|c| !link::is_url_char(c)).unwrap_or(rest.len());
    let url = rest.get(..end)?.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', '\'', '*', '_', ']']);
    link::check(url).is_ok().then_some(url)
}

/// Writes spans for `target`; escapes every other character that is markup there.
pub(super) fn write(spans: &[Span<'_>], target: Target) -> String {
    let mut out = String::new();
    for span in spans {
        match target {
            Target::Plain => write_plain(&mut out, *span),
            Target::Desktop => write_desktop(&mut out, *span),
            Target::Markdown => write_markdown(&mut out, *span),
        }
    }
    let ends_in_block = spans.iter().any(|span| matches!(span, Span::Block { .. }));
    if ends_in_block {
        out.truncate(out.trim_end().len());
    }
    out
}

fn write_plain(out: &mut String, span: Span<'_>) {
    match span {
        Span::Plain(text) | Span::Bold(text) | Span::Italic(text) | Span::Code(text) | Span::Url(text) => {
            out.push_str(text);
        }
        Span::Block { code, .. } => {
            let lines: Vec<&str> = code.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            out.extend([blank_after(out), &lines.join(LINE_END), " "]);
        }
        Span::Link { text, url } if text == url => out.push_str(url),
        Span::Link { text, url } => out.extend([text, " (", url, ")"]),
    }
}

/// What separates a block from the text before it in one line.
fn blank_after(text: &str) -> &'static str {
    if text.is_empty() || text.ends_with(' ') { "" } else { " " }
}

/// What separates a block from the text before it.
fn break_after(text: &str) -> &'static str {
    if text.is_empty() || text.ends_with('\n') { "" } else { "\n" }
}

fn write_desktop(out: &mut String, span: Span<'_>) {
    if let Span::Block { code, .. } = span {
        out.push_str(break_after(out));
        push_xml(out, code);
        out.push('\n');
        return;
    }
    let mut element = |begin: &str, text: &str, end: &str| {
        out.push_str(begin);
        push_xml(out, text);
        out.push_str(end);
    };
    match span {
        Span::Plain(text) | Span::Code(text) | Span::Block { code: text, .. } => element("", text, ""),
        Span::Bold(text) => element("<b>", text, "</b>"),
        Span::Italic(text) => element("<i>", text, "</i>"),
        Span::Link { text, url } => {
            element("<a href=\"", url, "\">");
            element("", text, "</a>");
        }
        Span::Url(url) => write_desktop(out, Span::Link { text: url, url }),
    }
}

fn push_xml(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(c),
        }
    }
}

fn write_markdown(out: &mut String, span: Span<'_>) {
    let mut marked = |mark: &str, text: &str| {
        out.push_str(mark);
        push_markdown(out, text);
        out.push_str(mark);
    };
    match span {
        Span::Plain(text) => marked("", text),
        Span::Bold(text) => marked("**", text),
        Span::Italic(text) => marked("*", text),
        // Code contains no markup and no backtick. Two adjacent backticks would be a different
        // mark.
        Span::Code(text) => out.extend([if out.ends_with('`') { " `" } else { "`" }, text, "`"]),
        // No line of the code begins with a fence.
        Span::Block { language, code } => {
            out.extend([break_after(out), "```", language, "\n", code, break_after(code), "```\n"]);
        }
        Span::Link { text, url } => {
            if out.ends_with('!') {
                // It would be an image.
                out.insert(out.len() - 1, '\\');
            }
            out.push('[');
            push_markdown(out, text);
            // A parenthesis would end the address.
            out.extend(["](", &url.replace('(', "%28").replace(')', "%29"), ")"]);
        }
        Span::Url(url) => out.extend(["<", url, ">"]),
    }
}

fn push_markdown(out: &mut String, text: &str) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // At the start of a line, these characters begin a heading, a list or a quotation.
        let line = out.rsplit('\n').next().unwrap_or_default();
        let is_at_start = line.is_empty();
        let ends_number = matches!(c, '.' | ')') && line.bytes().all(|byte| byte.is_ascii_digit());
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' => out.extend(['\\', c]),
            '#' | '+' | '-' | '>' if is_at_start => out.extend(['\\', c]),
            '.' | ')' if ends_number && !is_at_start => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '&' if chars.peek().is_some_and(|next| next.is_alphanumeric() || *next == '#') => {
                out.push_str("&amp;");
            }
            // Two of them strike out the text between them; a home folder begins with one.
            '~' if chars.peek() != Some(&'/') => out.push_str("&#126;"),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sink::clean_markdown;

    fn check(message: &str, plain: &str, desktop: &str, markdown: &str) {
        let spans = read(message);
        let written = [Target::Plain, Target::Desktop, Target::Markdown].map(|target| write(&spans, target));
        assert_eq!(written, [plain, desktop, markdown].map(str::to_owned), "{message}");
    }

    #[test]
    fn each_markup_span_is_written_for_its_target() {
        check("a **b** c", "a b c", "a <b>b</b> c", "a **b** c");
        check("*a* _b_", "a b", "<i>a</i> <i>b</i>", "*a* *b*");
        check("run `x < *y*`.", "run x < *y*.", "run x &lt; *y*.", "run `x < *y*`.");
        check(
            "see [the PR](https://h/p?a=1&b=2).",
            "see the PR (https://h/p?a=1&b=2).",
            "see <a href=\"https://h/p?a=1&amp;b=2\">the PR</a>.",
            "see [the PR](https://h/p?a=1&b=2).",
        );
        check(
            "see https://h/a_b_c.",
            "see https://h/a_b_c.",
            "see <a href=\"https://h/a_b_c\">https://h/a_b_c</a>.",
            "see <https://h/a_b_c>.",
        );
    }

    #[test]
    fn fenced_code_is_written_for_each_target() {
        check(
            "it fails:\n```rust\nlet a = b < c;\n    d(\"*x*\");\n```\nsee `d`",
            "it fails: let a = b < c; \u{23ce} d(\"*x*\"); see d",
            "it fails:\nlet a = b &lt; c;\n    d(&quot;*x*&quot;);\nsee d",
            "it fails:\n```rust\nlet a = b < c;\n    d(\"*x*\");\n```\nsee `d`",
        );
        check("```\n<b>\n```", "<b>", "&lt;b&gt;", "```\n<b>\n```");
        check("a\n```\nx\n```\n# b", "a x # b", "a\nx\n# b", "a\n```\nx\n```\n\\# b");
    }

    #[test]
    fn markup_outside_the_subset_is_written_as_text() {
        check(
            "snake_case_name 2*3*4 a**",
            "snake_case_name 2*3*4 a**",
            "snake_case_name 2*3*4 a**",
            r"snake\_case\_name 2\*3\*4 a\*\*",
        );
        check(r"\*a\* \x", r"*a* \x", r"*a* \x", r"\*a\* \\x");
        check("** a ** ``", "** a ** ``", "** a ** ``", r"\*\* a \*\* \`\`");
        check("# a", "# a", "# a", r"\# a");
        check("12. a", "12. a", "12. a", r"12\. a");
        check("a 12. - # b", "a 12. - # b", "a 12. - # b", "a 12. - # b");
        check("~~a~~ ~/b", "~~a~~ ~/b", "~~a~~ ~/b", "&#126;&#126;a&#126;&#126; ~/b");
    }

    #[test]
    fn nothing_forges_markup() {
        check(
            "<a href='https://evil'>x</a> &amp; <b>",
            "<a href='https://evil'>x</a> &amp; <b>",
            "&lt;a href='<a href=\"https://evil\">https://evil</a>'&gt;x&lt;/a&gt; &amp;amp; &lt;b&gt;",
            "&lt;a href='<https://evil>'>x&lt;/a> &amp;amp; &lt;b>",
        );
        check(
            "![i](https://h/t.png)",
            "!i (https://h/t.png)",
            "!<a href=\"https://h/t.png\">i</a>",
            r"\![i](https://h/t.png)",
        );
        check(
            "[x](javascript:alert)",
            "[x](javascript:alert)",
            "[x](javascript:alert)",
            r"\[x\](javascript:alert)",
        );
        check("[x](https://u@h/)", "[x](https://u@h/)", "[x](https://u@h/)", r"\[x\](https://u@h/)");
        check(
            "[a](https://h/\"x)",
            "[a](https://h/\"x)",
            "[a](<a href=\"https://h/\">https://h/</a>&quot;x)",
            r#"\[a\](<https://h/>"x)"#,
        );
        check("`<b>``<i>`", "<b><i>", "&lt;b&gt;&lt;i&gt;", "`<b>` `<i>`");
    }

    /// A text without the permitted tags.
    fn without_tags(text: &str) -> String {
        let mut rest = text.to_owned();
        for tag in ["<b>", "</b>", "<i>", "</i>", "</a>"] {
            rest = rest.replace(tag, "");
        }
        while let Some((before, after)) = rest.split_once("<a href=\"") {
            rest = format!("{before}{}", after.split_once("\">").expect("a whole tag").1);
        }
        rest
    }

    proptest! {
        /// For any message, a desktop gets no other tags, and a reader of markdown gets none
        /// outside of code and addresses.
        #[test]
        fn no_message_has_other_tags(parts in proptest::collection::vec(prop_oneof![
            "[a-z]{1,3}", "[ *_`<>\"'&!\\\\\\[\\]()#~.-]{1,3}",
            Just("https://h/x".to_owned()), Just("[t](https://h/)".to_owned()), Just("<a href=\"".to_owned()),
            Just("\n```sh\n".to_owned()), Just("\n".to_owned()),
        ], 0..12)) {
            let message = clean_markdown(&parts.concat(), 1_000);
            let spans = read(&message);
            let desktop = without_tags(&write(&spans, Target::Desktop));
            prop_assert!(!desktop.contains(['<', '>', '"']), "{}", desktop);
            let outside: Vec<Span<'_>> = spans
                .into_iter()
                .filter(|span| !matches!(span, Span::Code(_) | Span::Block { .. } | Span::Url(_)))
                .collect();
            let markdown = write(&outside, Target::Markdown);
            prop_assert!(!markdown.contains('<'), "{}", markdown);
        }
    }
}

//! Cleans a message: to one line, or, if it is markdown, to lines with fenced code in between, which is
//! the only part of a message with more than one line.
//!
//! Such a message has one form: a fence of three backticks with an optional language on a line
//! of its own, the code, and a fence. All other text is one line between the blocks.

use crate::event::{cut_text, mask_secrets, strip_text};

/// The mark at the begin and the end of a block.
const FENCE: &str = "```";
/// Longest name of a language, in characters.
const LANGUAGE_CHARS_MAX: usize = 20;
/// Most lines of a block; a person reads no more in a notice.
const LINES_MAX: usize = 40;
/// The indentation in place of a tab.
const TAB: &str = "    ";

/// `text` as one line without escapes, control characters and secrets; cut after `chars_max`
/// characters, and then marked as cut.
pub fn clean_line(text: &str, chars_max: usize) -> String {
    let stripped = strip_text(text);
    let masked = mask_secrets(&stripped);
    let line = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    cut_text(line.into(), chars_max).into_owned()
}

/// A part of a cleaned message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'t> {
    /// One line.
    Line(&'t str),
    /// Fenced code: its language, which may be empty, and its lines.
    Block { language: &'t str, code: &'t str },
}

/// `text` without escapes, control characters and secrets, as one line with its fenced code in
/// between. It is cut after `chars_max` characters, and then marked as cut; so is a block after
/// `LINES_MAX` lines.
pub fn clean_markdown(text: &str, chars_max: usize) -> String {
    if !text.contains(FENCE) {
        return clean_line(text, chars_max);
    }
    let stripped = strip_text(text);
    let masked = mask_secrets(&stripped);
    let (mut parts, mut words, mut block) = (Vec::new(), Vec::new(), None::<Block>);
    for line in masked.lines() {
        match &mut block {
            Some(open) if open.is_closed_by(line) => parts.extend(block.take().map(Block::finish)),
            Some(open) => open.push(line),
            None => match Block::open(line) {
                Some(begun) => {
                    push_line(&mut parts, &mut words);
                    block = Some(begun);
                }
                None => words.extend(line.split_whitespace()),
            },
        }
    }
    parts.extend(block.map(Block::finish));
    push_line(&mut parts, &mut words);
    let whole = parts.join("\n");
    let cut = cut_text(whole.as_str().into(), chars_max);
    // A cut within a block needs its end.
    let fences = cut.lines().filter(|line| line.starts_with(FENCE)).count();
    if fences.is_multiple_of(2) { cut.into_owned() } else { format!("{cut}\n{FENCE}") }
}

fn push_line(parts: &mut Vec<String>, words: &mut Vec<&str>) {
    if !words.is_empty() {
        parts.push(std::mem::take(words).join(" "));
    }
}

/// A block that is read.
struct Block {
    /// Its number of backticks.
    ticks: usize,
    language: String,
    lines: Vec<String>,
}

impl Block {
    /// The block that begins with a line.
    fn open(line: &str) -> Option<Self> {
        let line = unless_indented(line)?;
        let ticks = line.len() - line.trim_start_matches('`').len();
        let info = line.get(ticks..).unwrap_or_default().trim();
        // With a backtick after it, it is code within a line.
        if ticks < FENCE.len() || info.contains('`') {
            return None;
        }
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '#' | '.' | '_');
        let language = info.chars().take_while(is_plain).take(LANGUAGE_CHARS_MAX).collect();
        Some(Self { ticks, language, lines: Vec::new() })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let is_end = |line: &str| line.len() >= self.ticks && line.bytes().all(|byte| byte == b'`');
        unless_indented(line).is_some_and(is_end)
    }

    fn push(&mut self, line: &str) {
        let line = line.trim_end().replace('\t', TAB);
        // It would be an end in the cleaned form.
        let is_fence = unless_indented(&line).is_some_and(|line| line.starts_with(FENCE));
        self.lines.push(if is_fence { format!("{TAB}{line}") } else { line });
    }

    fn finish(self) -> String {
        let Self { language, mut lines, .. } = self;
        let more = lines.len().saturating_sub(LINES_MAX);
        lines.truncate(LINES_MAX);
        if more > 0 {
            lines.push(format!("\u{2026} [+{more} lines]"));
        }
        lines.insert(0, format!("{FENCE}{language}"));
        lines.push(FENCE.to_owned());
        lines.join("\n")
    }
}

/// A line without the white space around it; `None` if it is indented as far as code, which a fence is
/// not.
///
/// Source: CommonMark 0.31, "Fenced code blocks".
fn unless_indented(line: &str) -> Option<&str> {
    let inner = line.trim_start();
    (line.len() - inner.len() < TAB.len()).then(|| inner.trim_end())
}

/// The parts of a cleaned message.
pub(super) fn parts(message: &str) -> Vec<Part<'_>> {
    let (mut parts, mut rest) = (Vec::new(), message);
    while let Some((line, language, code, after)) = next_block(rest) {
        parts.extend((!line.is_empty()).then_some(Part::Line(line)));
        parts.push(Part::Block { language, code });
        rest = after;
    }
    parts.extend((!rest.is_empty()).then_some(Part::Line(rest)));
    parts
}

/// The line before the next block, its language, its code without the last line break, and the rest.
fn next_block(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (line, begun) = match text.strip_prefix(FENCE) {
        Some(begun) => ("", begun),
        None => text.split_once("\n```")?,
    };
    let (language, inner) = begun.split_once('\n')?;
    let (code, after) = match inner.strip_prefix(FENCE) {
        Some(after) => ("", after),
        None => inner.split_once("\n```")?,
    };
    (!language.contains('`')).then(|| (line, language, code, after.strip_prefix('\n').unwrap_or(after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_lines_and_blocks() {
        for (text, expected) in [
            ("a\n b", "a b"),
            (
                "see\n```rust\nfn a() {\n\tb();  \n}\n```\nand\n more",
                "see\n```rust\nfn a() {\n    b();\n}\n```\nand more",
            ),
            ("```\nx\n```", "```\nx\n```"),
            ("```\n\n```", "```\n\n```"),
            ("never closed\n```sh title=x\nls", "never closed\n```sh\nls\n```"),
            ("````md\n```\nin\n```\n````", "```md\n    ```\nin\n    ```\n```"),
            ("a ```code``` b", "a ```code``` b"),
            (
                "\u{1b}[31mred\u{1b}[0m\n```\n\u{1b}]0;t\u{7}ghp_0123456789abcdefABCDEF0123456789abcd\n```",
                "red\n```\nghp_[masked]\n```",
            ),
        ] {
            let cleaned = clean_markdown(text, 1_000);
            assert_eq!(cleaned, expected);
            assert_eq!(clean_markdown(&cleaned, 1_000), cleaned, "it stays");
        }
    }

    #[test]
    fn the_parts_of_a_message_are_found() {
        let message = "a b\n```rust\nx\n\ny\n```\nc\n```\n```";
        let block = |language, code| Part::Block { language, code };
        assert_eq!(
            parts(message),
            [Part::Line("a b"), block("rust", "x\n\ny"), Part::Line("c"), block("", "")]
        );
        assert_eq!(parts("a"), [Part::Line("a")]);
        assert_eq!(parts("```a"), [Part::Line("```a")]);
    }

    #[test]
    fn long_blocks_are_cut_and_closed() {
        let text = format!("```\n{}```", "line\n".repeat(LINES_MAX + 5));
        let cleaned = clean_markdown(&text, 10_000);
        assert!(cleaned.ends_with("\u{2026} [+5 lines]\n```"), "{cleaned}");
        let cut = clean_markdown(&text, 20);
        assert!(cut.ends_with(" chars]\n```") && parts(&cut).len() == 1, "{cut}");
    }
}

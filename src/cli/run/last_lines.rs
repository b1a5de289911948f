//! The end of a command's output, as a terminal would display it.

use std::collections::VecDeque;

use engine::event::{clean_text, terminal_line};

/// Most kept lines.
const LINES_MAX: usize = 20;
/// Most kept characters. A longer last line is kept alone, as cut by [`clean_text`].
const CHARS_MAX: usize = 2_000;
/// Kept bytes of raw output, so that enough lines remain without escapes and progress bars.
const RAW_BYTES_MAX: usize = 32 * 1024;

/// Collects output and keeps its end.
#[derive(Debug, Default)]
pub(super) struct LastLines {
    raw: VecDeque<u8>,
    is_cut: bool,
}

impl LastLines {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let start = chunk.len().saturating_sub(RAW_BYTES_MAX);
        self.raw.extend(chunk.get(start..).expect("a start within the chunk"));
        let excess = self.raw.len().saturating_sub(RAW_BYTES_MAX);
        self.raw.drain(..excess);
        self.is_cut |= start > 0 || excess > 0;
    }

    /// The last lines, without escapes and trailing empty lines, joined by newlines.
    pub(super) fn text(&self) -> String {
        let raw: Vec<u8> = self.raw.iter().copied().collect();
        let text = String::from_utf8_lossy(&raw);
        let whole = match text.split_once('\n') {
            Some((_, whole)) if self.is_cut => whole,
            _ => &text,
        };
        let mut lines: VecDeque<String> = VecDeque::new();
        let mut chars = 0;
        for line in whole.trim_end().rsplit('\n') {
            let line = clean_text(&terminal_line(line.as_bytes())).trim_end().to_owned();
            chars += line.chars().count() + 1;
            if lines.len() == LINES_MAX || (chars > CHARS_MAX && !lines.is_empty()) {
                break;
            }
            lines.push_front(line);
        }
        Vec::from(lines).join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(output: &[u8]) -> String {
        let mut lines = LastLines::default();
        output.chunks(7).for_each(|chunk| lines.push(chunk));
        lines.text()
    }

    #[test]
    fn the_end_is_what_a_terminal_would_show() {
        for (output, expected) in [
            (&b""[..], ""),
            (b"one\ntwo\n\n", "one\ntwo"),
            (b"no newline", "no newline"),
            (b"\x1b[1mbold\x1b[0m\r\nplain\r\n", "bold\nplain"),
            (b" 10%\r 50%\r100%\ndone\n", "100%\ndone"),
            (b"10%\r\x1b[K100%\nspin |\x08/\x08\x08: ok\n", "100%\nspin: ok"),
            (b"not \xff text\n", "not \u{fffd} text"),
        ] {
            assert_eq!(text(output), expected, "{output:?}");
        }
    }

    #[test]
    fn only_so_many_lines_and_characters_are_kept() {
        let numbered: String = (1..=30).map(|number| format!("{number}\n")).collect();
        let expected: Vec<String> = (11..=30).map(|number| number.to_string()).collect();
        assert_eq!(text(numbered.as_bytes()), expected.join("\n"));

        let wide = format!("{}\n", "x".repeat(600)).repeat(10);
        assert_eq!(text(wide.as_bytes()).lines().count(), 3);

        let endless = text("y".repeat(100_000).as_bytes());
        assert!(endless.starts_with("yyy") && endless.ends_with("chars]"), "{endless}");
    }

    #[test]
    fn line_with_lost_beginning_is_omitted() {
        let output = format!("{}\nlast\n", "z".repeat(RAW_BYTES_MAX));
        assert_eq!(text(output.as_bytes()), "last");
        let mut at_once = LastLines::default();
        at_once.push(output.as_bytes());
        assert_eq!(at_once.text(), "last");
    }
}

//! Splits output bytes into lines of text, as a terminal shows them, of bounded length.

use engine::event::terminal_line;

/// Longest line, in bytes; the rest of a longer one is dropped. Source: cargo's JSON of one message
/// has some 10 KiB.
pub const LINE_BYTES_MAX: usize = 256 * 1024;

/// Takes output in pieces and returns whole lines.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes the next piece, and calls `each` with every line that it completes.
    pub fn push(&mut self, piece: &[u8], mut each: impl FnMut(&str)) {
        let mut parts = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let room = LINE_BYTES_MAX.saturating_sub(self.rest.len());
            self.rest.extend(part.get(..room).unwrap_or(part));
            if parts.peek().is_some() {
                each(&terminal_line(&self.rest));
                self.rest.clear();
            }
        }
    }

    /// Calls `each` with the last line, if it has no end.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.rest.is_empty() {
            each(&terminal_line(&self.rest));
            self.rest.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(output: &[u8], piece: usize) -> Vec<String> {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        output.chunks(piece).for_each(|piece| lines.push(piece, |line| seen.push(line.to_owned())));
        lines.finish(|line| seen.push(line.to_owned()));
        seen
    }

    #[test]
    fn lines_are_whole_and_plain_however_they_come() {
        for (output, expected) in [
            (&b"one\ntwo"[..], &["one", "two"][..]),
            (b"a\r\nb\n", &["a", "b"]),
            (b"\x1b[31merror\x1b[0m: x\n", &["error: x"]),
            (b"\x1bc12:00 - Starting\n", &["12:00 - Starting"]),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x07!\n", &["link!"]),
            (b" 10%\r 50%\rdone\n", &["done"]),
            (b"not \xff text\x00\n", &["not \u{fffd} text"]),
            (b"\x1b(Bplain\x1b[", &["plain"]),
            (b"\n\n", &["", ""]),
        ] {
            for piece in [1, 3, 100] {
                assert_eq!(lines(output, piece), expected, "{output:?} by {piece}");
            }
        }
    }

    #[test]
    fn endless_line_is_cut_at_its_bound() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            lines.push(&[b'x'; 64 * 1024], |_| panic!("no line has ended"));
        }
        assert_eq!(lines.rest.len(), LINE_BYTES_MAX);
        let mut seen = Vec::new();
        lines.push(b"\nnext\n", |line| seen.push(line.len()));
        assert_eq!(seen, [LINE_BYTES_MAX, 4]);
    }
}

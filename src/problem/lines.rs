//! Splits output bytes into lines of text: without terminal escapes, of bounded length.

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
            self.rest.extend(part.get(..room.min(part.len())).unwrap_or_default());
            if parts.peek().is_some() {
                each(&plain(&self.rest));
                self.rest.clear();
            }
        }
    }

    /// Calls `each` with the last line, if it has no end.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.rest.is_empty() {
            each(&plain(&self.rest));
            self.rest.clear();
        }
    }
}

/// A line as a terminal shows it: without overwritten text, escapes and the carriage return at its
/// end; invalid UTF-8 is replaced.
fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_start_matches('\u{feff}').trim_end_matches('\r');
    without_escapes(text.rsplit('\r').next().unwrap_or(text))
}

/// Removes whole escape sequences, and other control characters except tabs.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\x1b', Some('[')) => {
                chars.next();
                while chars.next().is_some_and(|c| !('\x40'..='\x7e').contains(&c)) {}
            }
            // A title or a link: up to BEL, or to ESC and a backslash.
            ('\x1b', Some(']')) => {
                while let Some(c) = chars.next() {
                    if c == '\x07' || (c == '\x1b' && chars.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            ('\x1b', Some('(' | ')' | '#' | '%')) => drop((chars.next(), chars.next())),
            ('\x1b', _) => drop(chars.next()),
            (c, _) if c != '\t' && c.is_control() => {}
            (c, _) => plain.push(c),
        }
    }
    plain
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
    fn a_line_without_end_takes_no_more_than_its_bound() {
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

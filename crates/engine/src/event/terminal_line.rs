//! A line of output as a terminal shows it. Every pattern for lines is applied to this text.

use std::{borrow::Cow, iter::Peekable, str::Chars};

use super::payload::skip_string;

/// The last column to which the cursor can be moved beyond the end of the text.
const COLUMN_MAX: usize = 512;

/// One row of a terminal.
#[derive(Debug, Default)]
struct Row {
    cells: Vec<char>,
    column: usize,
    saved: usize,
}

/// Returns the text that a terminal shows for a line.
///
/// Shape: without escape sequences and other control characters except tabs; text that a carriage
/// return, a backspace or a moved cursor overwrote is gone. Invalid UTF-8 and a byte order mark are
/// replaced and removed. Source: ECMA-48, and the control sequences of xterm.
pub fn terminal_line(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    let is_special = |c: char| (c.is_control() && c != '\t') || c == '\u{feff}';
    if !text.contains(is_special) {
        return text;
    }
    let mut row = Row::default();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => row.escape(&mut rest),
            '\u{9b}' => row.control_sequence(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut rest),
            '\r' => row.column = 0,
            '\u{8}' => row.column = row.column.saturating_sub(1),
            c if is_special(c) => {}
            c => row.print(c),
        }
    }
    row.cells.into_iter().collect::<String>().into()
}

impl Row {
    fn print(&mut self, c: char) {
        if self.column > self.cells.len() {
            self.cells.resize(self.column, ' ');
        }
        match self.cells.get_mut(self.column) {
            Some(cell) => *cell = c,
            None => self.cells.push(c),
        }
        self.column += 1;
    }

    fn escape(&mut self, rest: &mut Peekable<Chars<'_>>) {
        // Intermediate bytes, as in the choice of a character set: the last byte has another meaning.
        let mut is_plain = true;
        while rest.next_if(|c| ('\u{20}'..='\u{2f}').contains(c)).is_some() {
            is_plain = false;
        }
        match rest.next().filter(|_| is_plain) {
            Some('[') => self.control_sequence(rest),
            Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
            Some('7') => self.saved = self.column,
            Some('8') => self.column = self.saved,
            Some('c') => *self = Self::default(),
            _ => {}
        }
    }

    fn control_sequence(&mut self, rest: &mut Peekable<Chars<'_>>) {
        let mut parameters = String::new();
        while let Some(c) = rest.next_if(|c| ('\u{20}'..='\u{3f}').contains(c)) {
            parameters.push(c);
        }
        let Some(last) = rest.next_if(|c| ('\u{40}'..='\u{7e}').contains(c)) else { return };
        let number = |index: usize| parameters.split(';').nth(index).and_then(|text| text.parse().ok());
        let count = number(0).unwrap_or(1).max(1);
        match last {
            'C' | 'a' => self.move_to(self.column.saturating_add(count)),
            'D' => self.column = self.column.saturating_sub(count),
            'G' | '`' => self.move_to(count - 1),
            'H' | 'f' => self.move_to(number(1).unwrap_or(1).max(1) - 1),
            'E' | 'F' => self.column = 0,
            'J' | 'K' => self.erase(number(0).unwrap_or(0)),
            'X' => self.blank(self.column, self.column.saturating_add(count)),
            's' => self.saved = self.column,
            'u' => self.column = self.saved,
            _ => {}
        }
    }

    fn move_to(&mut self, column: usize) {
        self.column = column.min(self.cells.len().max(COLUMN_MAX));
    }

    fn erase(&mut self, kind: usize) {
        match kind {
            0 => self.cells.truncate(self.column),
            1 => self.blank(0, self.column + 1),
            _ => self.cells.clear(),
        }
    }

    fn blank(&mut self, from: usize, to: usize) {
        let to = to.min(self.cells.len());
        self.cells.get_mut(from..to).into_iter().flatten().for_each(|cell| *cell = ' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_reads_as_a_terminal_shows_it() {
        for (line, expected) in [
            ("plain \u{2713}\twith tab", "plain \u{2713}\twith tab"),
            ("\u{1b}[31mERROR\u{1b}[0m pool", "ERROR pool"),
            ("\u{1b}[38;5;196;1mE\u{1b}[38:2::255:0:0mR\u{1b}[mR", "ERR"),
            ("\u{1b}]8;id=1;http://x\u{1b}\\link\u{1b}]8;;\u{7}!", "link!"),
            ("\u{9d}0;title\u{9c}\u{9b}1mtext\u{90}q\u{1b}\\", "text"),
            ("\u{1b}P1$r0m\u{1b}\\a\u{1b}_apc\u{1b}\\b\u{1b}^pm\u{1b}\\c", "abc"),
            ("\u{1b}(Bplain\u{1b}#8\u{1b}=\u{1b}[", "plain"),
            ("plain\u{1b}#8\u{1b}(7\u{1b}(c!", "plain!"),
            ("a\r", "a"),
            ("a\r\r", "a"),
            (" 10%\r 50%\rdone", "done"),
            ("Building 10%\rready", "readying 10%"),
            ("Building 10%\r\u{1b}[Kready", "ready"),
            ("Building\u{1b}[2K\u{1b}[1Gready", "ready"),
            ("Building\u{1b}[2Kx", "        x"),
            ("old text\u{1b}[2J\u{1b}[Hnew", "new"),
            ("\u{1b}[1A\u{1b}[2K\u{1b}[0G#5 DONE", "#5 DONE"),
            ("\u{1b}[?25lspin |\u{8}/\u{8}-\u{8}ok\u{1b}[?25h", "spin ok"),
            ("E\u{8}ER\u{8}RR\u{8}R", "ERR"),
            ("\u{8}\u{8}a", "a"),
            ("a\u{1b}[3Cb\u{1b}[2D=", "a  =b"),
            ("abcdef\r\u{1b}[2X\u{1b}[4C\u{1b}[1KX", "    Xf"),
            ("ab\u{1b}7cd\u{1b}8X \u{1b}[s!\u{1b}[u?", "abX ?"),
            ("\u{1b}c12:00 - Starting", "12:00 - Starting"),
            ("\u{feff}first\u{0}\u{7}\u{7f}", "first"),
            ("\u{1b}[31\u{1b}[32mgreen", "green"),
            ("\u{1b}]0;never ends", ""),
        ] {
            assert_eq!(terminal_line(line.as_bytes()), expected, "{line:?}");
        }
        assert_eq!(terminal_line(b"\x1b[1mnot \xff\x1b[m"), "not \u{fffd}");
    }

    #[test]
    fn moved_cursor_takes_no_memory() {
        let far = "\u{1b}[999999999Cx".repeat(100);
        assert_eq!(terminal_line(far.as_bytes()).len(), COLUMN_MAX + 100);
    }
}

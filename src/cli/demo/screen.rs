//! Two columns: what happens, and beside it what the agent sees.

/// Columns of the whole picture unless the terminal has fewer.
const WIDTH_MAX: usize = 110;
/// Fewest columns in which both sides can be read; a narrower terminal wraps them.
const WIDTH_MIN: usize = 72;
/// What stands between the two sides.
const GAP: &str = " | ";

const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const GREEN: &str = "\u{1b}[32m";
const PLAIN: &str = "\u{1b}[0m";

/// How the picture is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Screen {
    left: usize,
    right: usize,
    has_colours: bool,
}

impl Screen {
    /// A screen of `columns`, of which no more than [`WIDTH_MAX`] are used.
    pub(super) fn new(columns: Option<usize>, has_colours: bool) -> Self {
        let width = columns.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX);
        let left = (width - GAP.chars().count()) * 2 / 5;
        Self { left, right: width - GAP.chars().count() - left, has_colours }
    }

    /// The names of the two sides, and a line below them.
    pub(super) fn header(self) -> String {
        let names = self.row("what happens", BOLD, "what the agent sees", BOLD);
        names + &"-".repeat(self.left) + "-+-" + &"-".repeat(self.right) + "\n"
    }

    /// One step: `happens` on the left; on the right `sees`, or that nothing was added.
    pub(super) fn step(self, happens: &str, sees: Option<&str>) -> String {
        let right = match sees {
            Some(text) => wrap(text, self.right),
            None => vec!["(nothing: not one byte is added)".to_owned()],
        };
        let colour = if sees.is_some() { GREEN } else { DIM };
        let left = wrap(happens, self.left);
        let mut drawn: String = (0..left.len().max(right.len()))
            .map(|line| {
                let of = |side: &[String]| side.get(line).cloned().unwrap_or_default();
                self.row(&of(&left), "", &of(&right), colour)
            })
            .collect();
        drawn.push_str(&self.row("", "", "", ""));
        drawn
    }

    /// A line that stands under both sides.
    pub(super) fn heading(self, text: &str) -> String {
        format!("{}\n", self.coloured(text, BOLD))
    }

    fn row(self, left: &str, left_colour: &str, right: &str, right_colour: &str) -> String {
        let padding = " ".repeat(self.left.saturating_sub(left.chars().count()));
        let line = format!(
            "{}{padding}{GAP}{}",
            self.coloured(left, left_colour),
            self.coloured(right, right_colour)
        );
        format!("{}\n", line.trim_end())
    }

    fn coloured(self, text: &str, colour: &str) -> String {
        if !self.has_colours || colour.is_empty() || text.is_empty() {
            return text.to_owned();
        }
        format!("{colour}{text}{PLAIN}")
    }
}

/// Breaks lines that are too long, at a space where there is one; what follows is indented like its line and two more.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.chars().take_while(|c| *c == ' ').count();
        let mut rest = line.to_owned();
        while rest.chars().count() > width {
            let limit = rest.char_indices().nth(width).map_or(rest.len(), |(at, _)| at);
            let head = rest.get(..limit).unwrap_or_default();
            let begins = head.len() - head.trim_start().len();
            let cut = head.rfind(' ').filter(|at| *at > begins).unwrap_or(limit);
            let (head, tail) = rest.split_at(cut);
            lines.push(head.to_owned());
            rest = format!("{}{}", " ".repeat(indent + 2), tail.trim_start());
        }
        lines.push(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_stand_beside_each_other() {
        let screen = Screen::new(Some(72), false);
        let text =
            "tool_fail: grep timeout\nerror: a message that is so long that it does not fit into the column";
        let drawn = screen.header() + &screen.step("grep fails", Some(text)) + &screen.step("a read", None);
        let expected = "\
what happens                | what the agent sees
----------------------------+-------------------------------------------
grep fails                  | tool_fail: grep timeout
                            | error: a message that is so long that it
                            |   does not fit into the column
                            |
a read                      | (nothing: not one byte is added)
                            |
";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_word_longer_than_the_column_is_cut() {
        assert_eq!(wrap("  abcdefgh", 6), ["  abcd", "    ef", "    gh"]);
    }

    #[test]
    fn colours_change_no_width() {
        let plain = Screen::new(None, false).step("a", Some("b"));
        let coloured = Screen::new(None, true).step("a", Some("b"));
        let stripped = [BOLD, DIM, GREEN, PLAIN].iter().fold(coloured, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain);
    }
}

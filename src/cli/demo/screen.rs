//! Two columns, with the time in the margin: events on the left, the agent's view on the right.

use std::time::Duration;

use crate::cli::terminal::{Terminal, Tone};

/// Widest picture, in columns: the width of a default terminal.
const WIDTH_MAX: usize = 80;
/// Fewest columns in which both sides are readable; a narrower terminal wraps them.
const WIDTH_MIN: usize = 60;
/// Width of the margin with the time.
const MARGIN: usize = 6;
/// Separator of the two sides.
const GAP: &str = " | ";

/// Layout of the picture.
#[derive(Debug, Clone)]
pub(super) struct Screen {
    left: usize,
    right: usize,
    terminal: Terminal,
}

impl Screen {
    /// As wide as the terminal, but at most [`WIDTH_MAX`].
    pub(super) fn new(terminal: &Terminal) -> Self {
        let width = terminal.columns.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX);
        let width = width - MARGIN - GAP.len();
        let left = width / 3;
        Self { left, right: width - left, terminal: terminal.clone() }
    }

    /// The titles of the two sides, and a line below them.
    pub(super) fn header(&self) -> String {
        let names = self.row("", ("what happens", Tone::Heading), ("what the agent reads", Tone::Heading));
        names + &"-".repeat(MARGIN + self.left) + "-+-" + &"-".repeat(self.right) + "\n"
    }

    /// One scene, `at` after the begin: `happens` on the left, and on the right what the agent reads.
    pub(super) fn scene(&self, at: Duration, happens: &str, reads: &str, tone: Tone) -> String {
        let (left, right) = (wrap(happens, self.left), wrap(reads, self.right));
        let mut drawn = String::new();
        for line in 0..left.len().max(right.len()) {
            let of = |side: &[String]| side.get(line).cloned().unwrap_or_default();
            let time = if line == 0 { format!("{:.1}s", at.as_secs_f64()) } else { String::new() };
            drawn.push_str(&self.row(&time, (&of(&left), Tone::Plain), (&of(&right), tone)));
        }
        drawn.push_str(&self.row("", ("", Tone::Plain), ("", Tone::Plain)));
        drawn
    }

    /// A line across both sides.
    pub(super) fn heading(&self, text: &str) -> String {
        format!("{}\n", self.terminal.paint(Tone::Heading, text))
    }

    fn row(&self, time: &str, left: (&str, Tone), right: (&str, Tone)) -> String {
        let time = self.terminal.paint(Tone::Dim, &format!("{time:MARGIN$}"));
        let padding = " ".repeat(self.left.saturating_sub(left.0.chars().count()));
        let paint = |(text, tone): (&str, Tone)| self.terminal.paint(tone, text);
        format!("{}\n", format!("{time}{}{padding}{GAP}{}", paint(left), paint(right)).trim_end())
    }
}

/// Wraps long lines, at a space where possible; continuations are indented by two more columns than
/// their line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.chars().take_while(|c| *c == ' ').count();
        let mut rest = line.to_owned();
        while rest.chars().count() > width {
            let limit = rest.char_indices().nth(width).map_or(rest.len(), |(at, _)| at);
            let head = rest.get(..limit).expect("the start of a character, or the end");
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
    use crate::cli::terminal::tests::{of_width, pipe};

    const AT: Duration = Duration::from_millis(1_250);

    #[test]
    fn both_sides_are_next_to_each_other() {
        let screen = Screen::new(&of_width(78));
        let text =
            "tool_fail: grep timeout\nerror: a message that is so long that it does not fit into the column";
        let drawn = screen.header() + &screen.scene(AT, "grep fails", text, Tone::Good);
        let expected = [
            "      what happens            | what the agent reads",
            "------------------------------+-----------------------------------------------",
            "1.2s  grep fails              | tool_fail: grep timeout",
            "                              | error: a message that is so long that it does",
            "                              |   not fit into the column",
            "                              |",
            "",
        ];
        let expected = expected.join("\n");
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_word_longer_than_the_column_is_cut() {
        assert_eq!(wrap("  abcdefgh", 6), ["  abcd", "    ef", "    gh"]);
    }

    #[test]
    fn colours_change_no_width() {
        let drawn = |terminal: &Terminal| Screen::new(terminal).scene(AT, "a", "b", Tone::Good);
        let (plain, coloured) = (drawn(&pipe()), drawn(&Terminal { has_colours: true, ..pipe() }));
        assert_ne!(coloured, plain);
        let codes = ["\u{1b}[32m", "\u{1b}[2m", "\u{1b}[0m"];
        assert_eq!(codes.iter().fold(coloured, |text, code| text.replace(code, "")), plain);
    }

    #[test]
    fn the_usual_terminal_is_wide_enough() {
        let long = "a word or two, ".repeat(10);
        for terminal in [pipe(), of_width(80), of_width(200)] {
            let screen = Screen::new(&terminal);
            let drawn = screen.header() + &screen.scene(AT, &long, &long, Tone::Good);
            assert!(drawn.lines().all(|line| line.chars().count() <= 80), "{drawn}");
        }
    }
}

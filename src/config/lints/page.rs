//! The page of a lint: `aside check --explain NAME`.

use std::fmt;

use super::lint::{Lint, LintLevel};

/// Longest line of the text.
const WIDTH: usize = 76;

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.name.as_str(), self.level.as_str())?;
        for line in wrapped(self.finds) {
            writeln!(f, "  {line}")?;
        }
        writeln!(f)?;
        for line in wrapped(self.why) {
            writeln!(f, "  {line}")?;
        }
        for (title, files) in [("wrong", self.example.wrong), ("right", self.example.right)] {
            for (name, text) in files {
                writeln!(f, "\n{title}: {name}")?;
                for line in text.lines() {
                    let indent = if line.is_empty() { "" } else { "  " };
                    writeln!(f, "{indent}{line}")?;
                }
            }
        }
        let name = self.name.as_str();
        match self.level {
            LintLevel::Refused => write!(f, "\nIt cannot be allowed: the file is not used with it."),
            LintLevel::Off => write!(f, "\nLooked for only with `--deny {name}`."),
            LintLevel::Error | LintLevel::Warning => write!(
                f,
                "\n`# aside: allow({name})` on its line or the line above silences it;\n\
                 in a template `{{# aside: allow({name}) #}}`."
            ),
        }
    }
}

/// The words of a text in lines.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.len() + 1 + word.len() <= WIDTH) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

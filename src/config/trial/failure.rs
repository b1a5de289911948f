//! Why a test fails: what was expected, what happened, and at which step each event stopped.

use std::{fmt, time::Duration};

use crate::config::{
    report::{Diagnostic, Place},
    values::duration_text,
};
use engine::words::counted;

/// Most lines of the explanation, and most lines of a text, that are shown.
const LINES_MAX: usize = 16;

/// The reasons why a test fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The expectations that are not met; at least one.
    pub unmet: Vec<Unmet>,
    /// The parts of subscribers that failed, such as a text, each with what was there instead.
    pub failed: Vec<Line>,
    /// What happened to the events and notifications, in order.
    pub because: Vec<LedgerLine>,
}

/// An expectation that is not met.
#[derive(Debug, Clone, PartialEq)]
pub enum Unmet {
    /// The number or the times differ.
    Number {
        /// What was expected, such as `no notification`.
        expected: String,
        /// What happened; nothing if empty.
        made: Vec<String>,
        /// The position of the first expectation that is not met.
        place: Place,
    },
    /// One of them differs.
    Differs {
        /// Which one, such as `at 1s, notification 1`.
        subject: String,
        /// The differences; at least one.
        differences: Vec<Difference>,
        /// Its text.
        text: String,
    },
    /// Another number ended for a reason.
    Ended {
        /// The reason, with its cause.
        reason: String,
        /// The expected number.
        expected: u32,
        /// The number that ended.
        got: usize,
        /// The position of the expectation.
        place: Place,
    },
}

/// One difference between what was expected and what happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The part, such as `rows[1].line`.
    pub part: String,
    /// The expected value.
    pub expected: String,
    /// The value.
    pub got: String,
    /// The position of the expected value.
    pub place: Place,
}

/// What happened to an event or to a notification.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerLine {
    /// When.
    pub at: Duration,
    /// The type of the event; empty for a notification.
    pub event_type: String,
    /// What happened.
    pub what: String,
    /// The key that made it happen.
    pub place: Option<Place>,
}

/// A line of the explanation, and the position that belongs to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The text, indented.
    pub text: String,
    /// The position.
    pub place: Option<Place>,
}

impl Line {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: None }
    }
}

impl Unmet {
    /// The position of what is not met.
    pub fn place(&self) -> &Place {
        match self {
            Self::Number { place, .. } | Self::Ended { place, .. } => place,
            Self::Differs { differences, .. } => &differences.first().expect("at least one").place,
        }
    }

    /// One sentence, as a lowercase fragment.
    pub fn sentence(&self) -> String {
        match self {
            Self::Number { expected, made, .. } if made.is_empty() => {
                format!("expected {expected}, made none")
            }
            Self::Number { expected, made, .. } => {
                format!("expected {expected}, made {}: {}", made.len(), made.join("; "))
            }
            Self::Differs { subject, differences, .. } => {
                let one = |difference: &Difference| {
                    let Difference { part, expected, got, .. } = difference;
                    format!("`{part}` is {got}, expected {expected}")
                };
                let all: Vec<_> = differences.iter().map(one).collect();
                format!("{subject}: {}", all.join("; "))
            }
            Self::Ended { reason, expected, got, .. } => {
                format!("expected that {expected} end as {reason}, but {got} did")
            }
        }
    }

    fn lines(&self) -> Vec<Line> {
        match self {
            Self::Number { expected, made, .. } => {
                let mut lines = vec![Line::new(format!("  expected   {expected}"))];
                lines.extend(made.iter().take(LINES_MAX).enumerate().map(|(index, made)| {
                    Line::new(format!("  {:<10} {made}", if index == 0 { "made" } else { "" }))
                }));
                if made.is_empty() {
                    lines.push(Line::new("  made       none"));
                }
                lines
            }
            Self::Differs { subject, differences, text } => {
                let places = counted(differences.len(), "place");
                let mut lines = vec![Line::new(format!("  {subject} differs in {places}"))];
                let width = |of: fn(&Difference) -> &str| {
                    differences.iter().map(|one| of(one).chars().count()).max().unwrap_or_default()
                };
                let [part, expected] = [width(|one| &one.part), width(|one| &one.expected)];
                lines.extend(differences.iter().map(|one| {
                    let text = format!(
                        "    {:<part$}  expected {:<expected$}  got {}",
                        one.part, one.expected, one.got
                    );
                    Line { text, place: Some(one.place.clone()) }
                }));
                lines.push(Line::new("  text"));
                lines.extend(text.lines().take(LINES_MAX).map(|line| Line::new(format!("    {line}"))));
                lines.extend(left_out(text.lines().count()));
                lines
            }
            Self::Ended { reason, expected, got, .. } => {
                vec![
                    Line::new(format!("  expected   {expected} that ended as {reason}")),
                    Line::new(format!("  ended      {got}")),
                ]
            }
        }
    }
}

impl Failure {
    /// The position of the first expectation that is not met.
    pub fn place(&self) -> &Place {
        self.unmet.first().expect("at least one").place()
    }

    /// One sentence about all of it, as a lowercase fragment.
    pub fn sentence(&self) -> String {
        self.unmet.iter().map(Unmet::sentence).collect::<Vec<_>>().join("; ")
    }

    /// The explanation, line by line.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = self.unmet.iter().flat_map(Unmet::lines).collect();
        lines.extend(self.failed.iter().take(LINES_MAX).cloned());
        lines.extend(self.because_lines());
        lines
    }

    /// What happened to the events and notifications, line by line; empty if nothing did.
    pub fn because_lines(&self) -> Vec<Line> {
        because_lines(&self.because)
    }
}

/// What happened to events and notifications, line by line; empty if nothing did.
pub(super) fn because_lines(because: &[LedgerLine]) -> Vec<Line> {
    if because.is_empty() {
        return Vec::new();
    }
    let times: Vec<String> = because.iter().map(|event| duration_text(event.at)).collect();
    let [at, event_type] =
        [times.iter().map(String::len).max(), because.iter().map(|one| one.event_type.len()).max()]
            .map(Option::unwrap_or_default);
    let mut lines = vec![Line::new("  because")];
    lines.extend(because.iter().zip(&times).take(LINES_MAX).map(|(event, time)| {
        let text = format!("    {time:<at$}  {:<event_type$}  {}", event.event_type, event.what);
        Line { text: text.trim_end().to_owned(), place: event.place.clone() }
    }));
    lines.extend(left_out(because.len()));
    lines
}

/// Why a test is not passed.
#[derive(Debug)]
pub enum Wrong {
    /// It names event types or subscribers that do not exist, and did not run.
    Invalid(Vec<Diagnostic>),
    /// It ran, and something differs.
    Failed(Failure),
}

impl Wrong {
    /// The position of what does not exist.
    pub fn invalid_place(&self) -> Option<&Place> {
        match self {
            Self::Failed(_) => None,
            Self::Invalid(found) => found.first().map(|found| &found.place),
        }
    }

    /// One sentence, as a lowercase fragment.
    pub fn sentence(&self) -> String {
        match self {
            Self::Failed(failure) => failure.sentence(),
            Self::Invalid(found) => {
                found.iter().map(|found| found.message.as_str()).collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// The explanation, line by line.
    pub fn lines(&self) -> Vec<Line> {
        match self {
            Self::Failed(failure) => failure.lines(),
            Self::Invalid(found) => {
                found.iter().map(|found| Line::new(format!("  {}", found.message))).collect()
            }
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Line { text, place } in self.lines() {
            match place {
                Some(place) => writeln!(f, "{text}  {}:{}", place.file, place.line())?,
                None => writeln!(f, "{text}")?,
            }
        }
        Ok(())
    }
}

fn left_out(count: usize) -> Option<Line> {
    let left_out = count.checked_sub(LINES_MAX).filter(|left_out| *left_out > 0)?;
    Some(Line::new(format!("    and {}", counted(left_out, "more line"))))
}

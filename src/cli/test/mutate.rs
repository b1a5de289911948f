//! `aside test --mutate`: the changes of subscribers that no test of theirs notices.

use std::{fmt::Write as _, time::Duration};

use engine::words::counted;
use journal::time::Timestamp;
use serde_json::{Value, json};

use super::line::{shown, shown_place};
use crate::{
    cli::terminal::{Terminal, Tone},
    config::{
        compile::Compiled,
        layers::Sources,
        trial::{
            Line,
            mutants::{Mutated, mutate},
        },
    },
    daemon::Clock,
};

/// Longest time for the changes of one subscriber; a test of 100,000 steps takes seconds.
const SUBSCRIBER_MAX: Duration = Duration::from_secs(60);

/// A subscriber with what its tests noticed.
pub(super) struct Tried {
    id: String,
    /// The number of its tests.
    tests: usize,
    pub(super) mutated: Mutated,
}

impl Tried {
    /// Runs the tests of the subscriber `id` on each of its changes; `None` if there is no such one.
    pub(super) fn of(id: &str, sources: &Sources, compiled: &Compiled) -> Option<Self> {
        let clock = Clock::starting_at(Timestamp::ZERO);
        let begun = clock.now();
        let is_over = || clock.now().since(begun) > SUBSCRIBER_MAX;
        let mutated = mutate(sources, compiled, id, &is_over)?;
        let tests = compiled.tests.iter().find(|(other, _)| other.as_str() == id);
        Some(Self { id: id.to_owned(), tests: tests.map_or(0, |(_, tests)| tests.len()), mutated })
    }

    /// The lines for people.
    pub(super) fn text(&self, sources: &Sources, terminal: &Terminal) -> String {
        let Self { id, tests, mutated } = self;
        let tone = if mutated.unnoticed.is_empty() { Tone::Good } else { Tone::Bad };
        let all = mutated.tried();
        let verb = if all == 1 { "is" } else { "are" };
        let head = format!("{id}: {} of {} {verb} noticed", mutated.noticed, counted(all, "change"));
        let mut text = format!("{}\n", terminal.paint(tone, &head));
        if *tests == 0 {
            return text + "  it has no tests\n";
        }
        for unnoticed in &mutated.unnoticed {
            let words = format!("  not noticed   {}", unnoticed.what);
            text += &shown(&Line { text: words, place: Some(unnoticed.place.clone()) }, sources, terminal);
        }
        if mutated.untried > 0 {
            let _ = writeln!(text, "  not tried     {}", counted(mutated.untried, "more change"));
        }
        text
    }

    /// The same for programs.
    pub(super) fn to_json(&self, sources: &Sources) -> Value {
        let unnoticed = self.mutated.unnoticed.iter().map(|unnoticed| {
            json!({
                "change": unnoticed.what,
                "file": &*unnoticed.place.file,
                "line": unnoticed.place.line(),
                "place": shown_place(&unnoticed.place, sources),
            })
        });
        json!({
            "subscriber": self.id,
            "tests": self.tests,
            "changes": self.mutated.tried(),
            "noticed": self.mutated.noticed,
            "untried": self.mutated.untried,
            "unnoticed": unnoticed.collect::<Vec<_>>(),
        })
    }
}

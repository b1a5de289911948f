//! Whether an outcome meets its expectations. Pure.

use crate::{
    cli::junit,
    comparison::{Numbers, Outcome, Row},
    config::{
        expected::{Claim, Counts, Expectation},
        report::Place,
    },
};

use super::times::{delay, grouped};

/// The results of all expectations.
pub(super) struct Judged {
    pub(super) results: Vec<Judgement>,
    /// Subscribers without an expectation that make what they made then.
    pub(super) unchanged: Vec<String>,
}

/// The result of one subscriber.
pub(super) struct Judgement {
    pub(super) subscriber: String,
    /// The place of its expectation; `None` if it has none.
    pub(super) place: Option<Place>,
    /// What is not met, with the place of its claim.
    pub(super) unmet: Vec<(String, Option<Place>)>,
}

impl Judged {
    /// How many failed, of how many.
    pub(super) fn failed_of_all(&self) -> (usize, usize) {
        (self.results.iter().filter(|one| !one.unmet.is_empty()).count(), self.results.len())
    }

    pub(super) fn junit(&self) -> String {
        let places: Vec<_> = self.results.iter().map(Judgement::place).collect();
        let cases = self.results.iter().zip(&places).map(|(one, place)| junit::Case {
            subscriber: &one.subscriber,
            name: "replay",
            place: place.as_ref().map(|(file, line)| (file.as_str(), *line)),
            failure: one.failure(),
        });
        junit::document(&cases.collect::<Vec<_>>())
    }
}

impl Judgement {
    /// The first claim that is not met, and all of them.
    fn failure(&self) -> Option<(String, String)> {
        let unmet: Vec<&str> = self.unmet.iter().map(|(message, _)| message.as_str()).collect();
        unmet.first().map(|first| ((*first).to_owned(), unmet.join("\n")))
    }

    /// The file and the line of the first claim that is not met, else of the expectation.
    pub(super) fn place(&self) -> Option<(String, usize)> {
        let unmet = self.unmet.iter().find_map(|(_, place)| place.as_ref());
        unmet.or(self.place.as_ref()).map(|place| (place.file.to_string(), place.line()))
    }
}

/// Compares the numbers of now with the expectations. A subscriber without one that makes
/// notifications fails, unless it makes what it made then.
pub(super) fn judge(expectations: &[Expectation], outcome: &Outcome) -> Judged {
    let row = |id: &str| outcome.rows.iter().find(|row| row.subscriber.as_str() == id);
    let mut results: Vec<Judgement> = expectations
        .iter()
        .map(|one| Judgement {
            subscriber: one.subscriber.clone(),
            place: Some(one.place.clone()),
            unmet: unmet(one, row(&one.subscriber)),
        })
        .collect();
    let has_none = |row: &&Row| {
        row.numbers.now.made > 0 && !expectations.iter().any(|one| one.subscriber == row.subscriber.as_str())
    };
    let mut unchanged = Vec::new();
    for row in outcome.rows.iter().filter(has_none) {
        let subscriber = row.subscriber.to_string();
        if row.is_unchanged() {
            unchanged.push(subscriber);
            continue;
        }
        let Numbers { made, .. } = row.numbers.now;
        let message =
            format!("made {}, then {}; it has no expectation", grouped(made), grouped(row.numbers.then.made));
        results.push(Judgement { subscriber, place: None, unmet: vec![(message, None)] });
    }
    Judged { results, unchanged }
}

fn unmet(expected: &Expectation, row: Option<&Row>) -> Vec<(String, Option<Place>)> {
    let now = row.map(|row| row.numbers.now).unwrap_or_default();
    let (gone, added, changed) = row.map(|row| (row.gone, row.added, row.changed)).unwrap_or_default();
    let mut unmet = Vec::new();
    let mut count = |name: &str, found: u64, claim: &Option<Claim<Counts>>| {
        if let Some(Claim { allowed, place }) = claim
            && !allowed.contains(found)
        {
            unmet.push((format!("{name} is {}, expected {allowed}", grouped(found)), Some(place.clone())));
        }
    };
    count("made", now.made, &expected.made);
    count("delivered", now.delivered, &expected.delivered);
    count("tokens", now.tokens, &expected.tokens);
    count("gone", gone, &expected.gone);
    count("added", added, &expected.added);
    count("changed", changed, &expected.changed);
    if let (Some(Claim { allowed, place }), Some(found)) = (&expected.delay_p99, now.delay_p99)
        && found > *allowed
    {
        let message = format!("delay_p99 is {}, expected at most {}", delay(found), delay(*allowed));
        unmet.push((message, Some(place.clone())));
    }
    unmet
}

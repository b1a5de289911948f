//! The file of `aside replay --expect`: what each subscriber may make of a journal.
//!
//! ```toml
//! [[expect]]
//! subscriber = "ci_check"
//! made = "0..20"
//! tokens = "..1000"
//! delay_p99 = "5s"
//! ```

use std::{fmt, ops::RangeInclusive, time::Duration};

use engine::nearest::nearest;

use crate::config::{
    layers::{LayerKind, SourceFile},
    raw::{Parsed, Section, Value},
    report::{Diagnostic, Place, Report, shown},
    values,
};

/// Most tables of a file.
const EXPECTATIONS_MAX: usize = 1_000;
/// The limits of `delay_p99`.
const DELAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(365 * 24 * 3_600);

/// What one subscriber is expected to do now.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// The subscriber's id.
    pub subscriber: String,
    /// The place of its table.
    pub place: Place,
    /// Notifications that it makes.
    pub made: Option<Claim<Counts>>,
    /// First deliveries of them.
    pub delivered: Option<Claim<Counts>>,
    /// Their estimated tokens.
    pub tokens: Option<Claim<Counts>>,
    /// Notifications of then that it does not make.
    pub gone: Option<Claim<Counts>>,
    /// Notifications that it did not make then.
    pub added: Option<Claim<Counts>>,
    /// Notifications with another text or another delivery than then.
    pub changed: Option<Claim<Counts>>,
    /// The longest delay of 99 of 100 deliveries.
    pub delay_p99: Option<Claim<Duration>>,
}

/// One key of an expectation.
#[derive(Debug, Clone)]
pub struct Claim<T> {
    /// What is allowed.
    pub allowed: T,
    /// Its place.
    pub place: Place,
}

/// A range of counts, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    least: u64,
    most: u64,
}

impl Counts {
    /// Whether a count is in the range.
    pub fn contains(self, count: u64) -> bool {
        (self.least..=self.most).contains(&count)
    }

    /// Shape: `5`, `0..20`, `..20` or `3..`.
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
        let (least, most) = match text.split_once("..") {
            Some(("", "")) => return None,
            Some((least, most)) => (
                if least.is_empty() { 0 } else { number(least)? },
                if most.is_empty() { u64::MAX } else { number(most)? },
            ),
            None => (number(text)?, number(text)?),
        };
        (least <= most).then_some(Self { least, most })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (least, most) if least == most => write!(f, "{least}"),
            (least, u64::MAX) => write!(f, "at least {least}"),
            (0, most) => write!(f, "at most {most}"),
            (least, most) => write!(f, "{least} to {most}"),
        }
    }
}

/// Reads the file with this path for display and text; `known` are the ids of subscribers.
///
/// Errors: every mistake, with its place.
pub fn read(path: &str, text: &str, known: &[&str]) -> Result<Vec<Expectation>, Report> {
    let (layer, name) = (LayerKind::User, "expect".into());
    let file = SourceFile { layer, name, path: path.into(), text: text.into() };
    let mut read: Vec<Expectation> = Vec::new();
    let mut found = values::each_table(&file, "expect", EXPECTATIONS_MAX, |value| {
        let one = expectation(value, known)?;
        if read.iter().any(|before| before.subscriber == one.subscriber) {
            let message = format!("`{}` has two expectations", shown(&one.subscriber));
            return Err(vec![value.error(message).with_note("write their keys in one table")]);
        }
        read.push(one);
        Ok(())
    });
    if found.is_empty() && read.is_empty() {
        let message = "there are no expectations; each is a table [[expect]]";
        found.push(Diagnostic::error(Place::file(&file.path), "", message));
    }
    if found.is_empty() { Ok(read) } else { Err(Report::new(found)) }
}

fn expectation(value: &Value<'_>, known: &[&str]) -> Parsed<Expectation> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let subscriber = section.require("subscriber", |value| {
        let id = values::words(value)?;
        if known.contains(&id) {
            return Ok(id.to_owned());
        }
        let message = format!("there is no subscriber `{}`", shown(id));
        Err(vec![value.error(message).with_nearest(nearest(id, known.iter().copied()))])
    });
    let read = Expectation {
        subscriber: subscriber.unwrap_or_default(),
        place: value.place(),
        made: counts(&mut section, "made"),
        delivered: counts(&mut section, "delivered"),
        tokens: counts(&mut section, "tokens"),
        gone: counts(&mut section, "gone"),
        added: counts(&mut section, "added"),
        changed: counts(&mut section, "changed"),
        delay_p99: section.read("delay_p99", |value| {
            let allowed = values::duration(value, DELAY)?;
            Ok(Claim { allowed, place: value.place() })
        }),
    };
    let is_empty = [&read.made, &read.delivered, &read.tokens, &read.gone, &read.added, &read.changed]
        .iter()
        .all(|claim| claim.is_none())
        && read.delay_p99.is_none();
    let mut found = section.finish();
    if found.is_empty() && is_empty {
        found.push(value.error("this expects nothing; write `made = \"0..20\"`, for example"));
    }
    if found.is_empty() { Ok(read) } else { Err(found) }
}

fn counts(section: &mut Section<'_>, key: &'static str) -> Option<Claim<Counts>> {
    section.read(key, |value| {
        let number = value.get().as_integer().map(|_| value.literal());
        let text = value.get().as_str().or(number).ok_or_else(|| value.wrong_kind(FORM))?;
        let allowed = Counts::parse(text).ok_or_else(|| {
            let message = format!("`{}` cannot be `{}`", value.name(), shown(text));
            vec![value.error(message).with_note(format!("it must be {FORM}"))]
        })?;
        Ok(Claim { allowed, place: value.place() })
    })
}

const FORM: &str = "a number, or a range such as \"0..20\", \"..20\" or \"3..\"";

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> String {
        read("e.toml", text, &["ci_check", "pager"]).expect_err("a mistake").to_string()
    }

    #[test]
    fn an_expectation_has_its_ranges_and_places() {
        let text = "[[expect]]\nsubscriber = \"pager\"\nmade = \"0..20\"\ntokens = \"..1_000\"\nadded = 0\n\
                    delay_p99 = \"5s\"\n[[expect]]\nsubscriber = \"ci_check\"\ndelivered = \"3..\"\n";
        let read = read("e.toml", text, &["ci_check", "pager"]).expect("valid");
        let words = |claim: &Option<Claim<Counts>>| claim.as_ref().map(|claim| claim.allowed.to_string());
        assert_eq!(read.len(), 2);
        assert_eq!(words(&read[0].made).as_deref(), Some("at most 20"));
        assert_eq!(words(&read[0].tokens).as_deref(), Some("at most 1000"));
        assert_eq!(words(&read[0].added).as_deref(), Some("0"));
        assert_eq!(words(&read[1].delivered).as_deref(), Some("at least 3"));
        assert_eq!(read[0].made.as_ref().map(|claim| claim.place.line()), Some(3));
        assert_eq!(read[0].delay_p99.as_ref().map(|claim| claim.allowed), Some(Duration::from_secs(5)));
        for (range, inside, outside) in [("2..4", 4, 5), ("2..4", 2, 1), ("7", 7, 8), ("..3", 0, 4)] {
            let range = Counts::parse(range).expect("a range");
            assert!(range.contains(inside) && !range.contains(outside), "{range}");
        }
    }

    #[test]
    fn a_wrong_expectation_names_line_and_nearest_word() {
        for (text, parts) in [
            ("[[expect]]\nsubscriber = \"pagr\"\nmade = 1\n", ["e.toml:2:14", "did you mean `pager`?"]),
            ("[[expect]]\nsubscriber = \"pager\"\nmad = 1\n", ["e.toml:3:1", "did you mean `made`?"]),
            ("[[expect]]\nsubscriber = \"pager\"\nmade = \"4..2\"\n", ["e.toml:3:8", "\"0..20\""]),
            ("[[expect]]\nsubscriber = \"pager\"\nmade = true\n", ["e.toml:3:8", "not a boolean"]),
            ("[[expect]]\nsubscriber = \"pager\"\ndelay_p99 = 5\n", ["e.toml:3:13", "the unit is missing"]),
            ("[[expect]]\nmade = 5\n", ["e.toml:1", "`subscriber` is missing"]),
            ("[[expect]]\nsubscriber = \"pager\"\n", ["e.toml:1", "this expects nothing"]),
            ("[[expct]]\nsubscriber = \"pager\"\n", ["e.toml:1:3", "did you mean `expect`?"]),
            ("", ["e.toml", "there are no expectations"]),
            ("[[expect]\n", ["e.toml:1", "]"]),
        ] {
            let found = mistakes(text);
            assert!(parts.iter().all(|part| found.contains(part)), "{text}: {found}");
        }
        let twice = "[[expect]]\nsubscriber = \"pager\"\nmade = 1\n".repeat(2);
        assert!(mistakes(&twice).contains("has two expectations"));
    }
}

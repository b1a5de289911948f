//! What a test expects: of each notification, of each exchange that releases something, and of
//! what ended.

use std::time::Duration;

use engine::{
    event::{SessionId, Severity},
    exchange::Format,
    format::region::REGION_TOKENS_MIN,
    ledger::Reason,
    notification::{Activation, InjectionPoint, Interrupt, Priority, SubscriberId, Tokens},
    words::impl_as_str,
};
use serde_json::{Map, Value as Json, json};
use strum::{IntoStaticStr, VariantArray};

use super::step::time;
use crate::config::{
    raw::{Parsed, Section, Value},
    report::{Diagnostic, Place, shown},
    values,
};

/// The fields of a notice that a test can compare.
const NOTICE_FIELDS: [&str; 4] = ["message", "level", "category", "link"];
/// The most tokens of a region, if a test does not say another number.
const REGION_TOKENS: Tokens = Tokens(300);
/// Largest count that a test can expect.
const COUNT_MAX: u32 = 1_000_000;

/// One item of `expect`.
#[derive(Debug, Clone, PartialEq)]
pub enum Expectation {
    /// A notification, or, in a test with exchanges, an exchange that releases something.
    Outcome(Outcome),
    /// A count of what ended.
    Ended(Ended),
    /// What the region of a session has.
    Region(RegionAt),
}

/// The region of a session at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionAt {
    /// When it is read, after the steps of that time.
    pub at: Duration,
    /// The session.
    pub session: SessionId,
    /// The most tokens of its text.
    pub max_tokens: Tokens,
    /// What is claimed of its text, which is TOON.
    pub checks: Vec<Check>,
    /// Its position.
    pub place: Place,
}

/// A notification that a test expects, or the release of an exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// When it is made or released.
    pub at: Duration,
    /// What is claimed of it.
    pub checks: Vec<Check>,
    /// Its position.
    pub place: Place,
}

/// The number of events and notifications that ended for a reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// The word of the reason.
    pub reason: &'static str,
    /// How many.
    pub count: u32,
    /// The cause, such as the key of the filter.
    pub by: Option<String>,
    /// Until when they are counted; to the end of the test if `None`.
    pub until: Option<Duration>,
    /// Its position.
    pub place: Place,
}

/// A claim with its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The claim.
    pub claim: Claim,
    /// The position of its value.
    pub place: Place,
    /// The positions of the parts of its value, by their paths.
    pub parts: Vec<(String, Place)>,
}

impl Check {
    /// The position of the part of the value at `path`, or of the innermost that has it.
    pub fn place_of(&self, path: &str) -> &Place {
        let is_around = |outer: &str| {
            path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let around = self.parts.iter().filter(|(outer, _)| is_around(outer));
        around.max_by_key(|(outer, _)| outer.len()).map_or(&self.place, |(_, place)| place)
    }
}

/// What is claimed of a notification or of a release.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// The least that the content decodes to.
    Decoded(Json),
    /// The whole content.
    Text(String),
    /// Parts of the content.
    Contains(Vec<String>),
    /// Texts that are no part of the content.
    Lacks(Vec<String>),
    /// The line for a person.
    Sentence(String),
    /// The notifications of the release, in order.
    Delivered(Vec<Delivered>),
    /// The injection point.
    Point(InjectionPoint),
    /// The priority.
    Priority(Priority),
    /// The severity.
    Severity(Severity),
    /// What it does while it is pending.
    Activation(Activation),
    /// What it does with a running turn.
    Interrupt(Interrupt),
    /// Whether it asks for a response.
    RequiresResponse(bool),
    /// The format of the release.
    Format(Format),
    /// The most tokens: of the content, or of the release with its frame.
    MaxTokens(u32),
    /// The notices of the template to the user, all of them.
    Notices(Vec<Json>),
    /// The directive of the answer.
    Directive(DirectiveWord),
    /// The line of the release that counts what stays pending; empty for none.
    More(String),
}

impl_as_str!(DirectiveWord);

/// The words of `directive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum DirectiveWord {
    /// The turn continues.
    Continue,
    /// The call is replaced by the text.
    Cancel,
}

/// A notification of a release.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivered {
    /// One of this subscriber.
    By(SubscriberId),
    /// One with at least this content.
    With(Json),
}

impl Claim {
    /// Its key.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Decoded(_) => "decoded",
            Self::Text(_) => "text",
            Self::Contains(_) => "contains",
            Self::Lacks(_) => "lacks",
            Self::Sentence(_) => "sentence",
            Self::Delivered(_) => "delivered",
            Self::Point(_) => "point",
            Self::Priority(_) => "priority",
            Self::Severity(_) => "severity",
            Self::Activation(_) => "activation",
            Self::Interrupt(_) => "interrupt",
            Self::RequiresResponse(_) => "requires_response",
            Self::Format(_) => "format",
            Self::MaxTokens(_) => "max_tokens",
            Self::Notices(_) => "notices",
            Self::Directive(_) => "directive",
            Self::More(_) => "more",
        }
    }

    /// Whether only a release has it.
    fn is_of_release(&self) -> bool {
        matches!(self, Self::Delivered(_) | Self::Format(_) | Self::Directive(_) | Self::More(_))
    }
}

impl Expectation {
    /// Its position.
    pub fn place(&self) -> &Place {
        match self {
            Self::Outcome(outcome) => &outcome.place,
            Self::Ended(ended) => &ended.place,
            Self::Region(region) => &region.place,
        }
    }

    /// The claims that a test without exchanges cannot check.
    pub(super) fn misplaced(&self, has_exchanges: bool) -> Vec<Diagnostic> {
        let Self::Outcome(outcome) = self else { return Vec::new() };
        let claims = outcome.checks.iter().filter(|check| !has_exchanges && check.claim.is_of_release());
        let wrong = claims.map(|check| {
            let key = check.claim.key();
            let message = format!("`{key}` is about what an exchange releases, and this test makes none");
            Diagnostic::error(check.place.clone(), format!("expect.{key}"), message)
                .with_note("a step such as { at = \"3s\", exchange = \"after_tool\" } makes one")
        });
        wrong.collect()
    }
}

/// Reads one item.
pub(super) fn read(value: &Value<'_>) -> Parsed<Expectation> {
    let section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    if section.value("ended").is_some() {
        return read_ended(value, section).map(Expectation::Ended);
    }
    if section.value("region").is_some() {
        return read_region(value, section).map(Expectation::Region);
    }
    let mut claims = Claims { section, checks: Vec::new() };
    let at = claims.section.require("at", time);
    claims.read("decoded", values::object, Claim::Decoded);
    claims.read("text", text, |text| Claim::Text(text.trim_end_matches('\n').to_owned()));
    claims.read("contains", texts, Claim::Contains);
    claims.read("lacks", texts, Claim::Lacks);
    claims.read("sentence", text, Claim::Sentence);
    claims.read("delivered", |value| values::list(value, delivered), Claim::Delivered);
    claims.read("point", values::word, Claim::Point);
    claims.read("priority", values::word, Claim::Priority);
    claims.read("severity", values::severity, Claim::Severity);
    claims.read("activation", values::word, Claim::Activation);
    claims.read("interrupt", values::word, Claim::Interrupt);
    claims.read("requires_response", values::flag, Claim::RequiresResponse);
    claims.read("format", values::word, Claim::Format);
    claims.read("max_tokens", |value| values::integer(value, 1..=COUNT_MAX), Claim::MaxTokens);
    claims.read("notices", |value| values::list(value, notice), Claim::Notices);
    claims.read("directive", values::word, Claim::Directive);
    claims.read("more", text, Claim::More);
    let Claims { section, checks } = claims;
    let found = section.finish();
    match at {
        Some(at) if found.is_empty() => {
            Ok(Expectation::Outcome(Outcome { at, checks, place: value.place() }))
        }
        _ => Err(found),
    }
}

/// The claims of an item, as they are read.
struct Claims<'s> {
    section: Section<'s>,
    checks: Vec<Check>,
}

impl<'s> Claims<'s> {
    fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&Value<'s>) -> Parsed<T>,
        claim: impl FnOnce(T) -> Claim,
    ) {
        let Some(found) = self.section.read(key, parse) else { return };
        let value = self.section.value(key).expect("it was read");
        let mut parts = Vec::new();
        note_parts(value, "", &mut parts);
        self.checks.push(Check { claim: claim(found), place: value.place(), parts });
    }
}

/// Notes the position of each part of a value, by its path, such as `rows[0].tool`.
fn note_parts(value: &Value<'_>, path: &str, parts: &mut Vec<(String, Place)>) {
    for (name, value) in value.entries().unwrap_or_default() {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        note_parts(&value, &path, parts);
        parts.push((path, value.place()));
    }
    for (index, value) in value.items().unwrap_or_default().iter().enumerate() {
        let path = format!("{path}[{index}]");
        note_parts(value, &path, parts);
        parts.push((path, value.place()));
    }
}

fn text(value: &Value<'_>) -> Parsed<String> {
    values::text(value).map(str::to_owned)
}

/// One text or an array of them; none is empty.
fn texts(value: &Value<'_>) -> Parsed<Vec<String>> {
    match value.get().as_array() {
        Some(_) => values::list(value, |value| values::words(value).map(str::to_owned)),
        None => values::words(value).map(|text| vec![text.to_owned()]),
    }
}

fn read_region(value: &Value<'_>, section: Section<'_>) -> Parsed<RegionAt> {
    let mut claims = Claims { section, checks: Vec::new() };
    let session = claims.section.require("region", values::words).map(SessionId::new);
    let at = claims.section.require("at", time);
    let tokens = REGION_TOKENS_MIN.0..=COUNT_MAX;
    let max_tokens = claims.section.read("max_tokens", |value| values::integer(value, tokens.clone()));
    claims.read("decoded", values::object, Claim::Decoded);
    claims.read("text", text, |text| Claim::Text(text.trim_end_matches('\n').to_owned()));
    claims.read("contains", texts, Claim::Contains);
    claims.read("lacks", texts, Claim::Lacks);
    let Claims { section, checks } = claims;
    let (found, place) = (section.finish(), value.place());
    let max_tokens = max_tokens.map_or(REGION_TOKENS, Tokens);
    match session.zip(at) {
        Some((session, at)) if found.is_empty() => Ok(RegionAt { at, session, max_tokens, checks, place }),
        _ => Err(found),
    }
}

fn read_ended(value: &Value<'_>, mut section: Section<'_>) -> Parsed<Ended> {
    let reason = section.read("ended", reason);
    let count = section.read("count", |value| values::integer(value, 0..=COUNT_MAX)).unwrap_or(1);
    let by = section.read("by", values::words).map(str::to_owned);
    let until = section.read("at", time);
    let found = section.finish();
    match reason {
        Some(reason) if found.is_empty() => Ok(Ended { reason, count, by, until, place: value.place() }),
        _ => Err(found),
    }
}

/// The word of a reason.
fn reason(value: &Value<'_>) -> Parsed<&'static str> {
    let found = values::text(value)?;
    let words: Vec<&'static str> = Reason::texts().map(|text| text.word).collect();
    words.iter().copied().find(|word| *word == found).ok_or_else(|| {
        let message = format!("nothing ends as `{}`", shown(found));
        vec![value.error(message).with_allowed(found, &words)]
    })
}

/// A notification of a release: the id of its subscriber, or the least of its content.
fn delivered(value: &Value<'_>) -> Parsed<Delivered> {
    match value.get().as_str() {
        Some(_) => values::words(value).map(|id| Delivered::By(SubscriberId::new(id))),
        None => values::object(value).map(Delivered::With),
    }
}

/// An expected notice: its text, or a table with a subset of its fields.
fn notice(value: &Value<'_>) -> Parsed<Json> {
    if let Ok(text) = values::text(value) {
        return Ok(json!({ "message": text }));
    }
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a text or a table"))?;
    let mut expected = Map::new();
    for name in NOTICE_FIELDS {
        let text = section.read(name, |value| values::text(value).map(str::to_owned));
        expected.extend(text.map(|text| (name.to_owned(), text.into())));
    }
    let found = section.finish();
    if found.is_empty() { Ok(expected.into()) } else { Err(found) }
}

//! Compares what happened in a test with what it expects.

use std::time::Duration;

use engine::{
    exchange::Directive,
    format,
    ledger::{LedgerEntry, Reason},
    notification::{Notification, NotificationId, SubscriberId},
    pipeline::rule::Subscriber,
    sink::Notice,
    words::counted,
};
use serde_json::{Map, Value};

use super::{
    failure::{Difference, Unmet},
    timeline::{ExchangeRelease, Made, Played},
};
use crate::config::{
    case::{Check, Claim, Delivered, DirectiveWord, Ended, Expectation, Outcome, RegionAt, SubscriberTest},
    report::{Place, shown},
    values::duration_text,
};

/// Most places of one expectation that are named.
const DIFFERENCES_MAX: usize = 20;

/// The expectations of `test` that are not met.
pub(super) fn unmet(played: &Played, rule: &Subscriber, test: &SubscriberTest) -> Vec<Unmet> {
    let mut unmet = outcomes(&subjects(played, rule, test), test);
    for expectation in &test.expect {
        if let Expectation::Ended(ended) = expectation {
            unmet.extend(other_end(played, &rule.id, ended));
        }
    }
    let regions = test.expect.iter().filter_map(|expectation| match expectation {
        Expectation::Region(region) => Some(region),
        Expectation::Outcome(_) | Expectation::Ended(_) => None,
    });
    unmet.extend(
        regions.zip(&played.regions).filter_map(|(region, text)| other_region(region, text.as_deref())),
    );
    unmet
}

/// What `expect` is about, in order.
fn subjects<'p>(played: &'p Played, rule: &'p Subscriber, test: &SubscriberTest) -> Vec<Subject<'p>> {
    match test.has_exchanges() {
        false => played.made_by(&rule.id).map(Subject::Notification).collect(),
        true => played.released.iter().map(|released| Subject::Release(released, played)).collect(),
    }
}

/// The new values of `decoded` and `text` with which the test would pass; `None` if something else
/// differs too.
pub(super) fn updates(played: &Played, rule: &Subscriber, test: &SubscriberTest) -> Option<Vec<Update>> {
    let (mut outcomes, mut regions) = (Vec::new(), Vec::new());
    for expectation in &test.expect {
        match expectation {
            Expectation::Outcome(outcome) => outcomes.push(outcome),
            Expectation::Region(region) => regions.push(region),
            Expectation::Ended(_) => return None,
        }
    }
    let subjects = subjects(played, rule, test);
    let is_same = subjects.len() == outcomes.len()
        && subjects.iter().zip(&outcomes).all(|(subject, outcome)| subject.at() == outcome.at);
    let mut updates = Vec::new();
    for (subject, outcome) in subjects.iter().zip(outcomes).filter(|_| is_same) {
        for check in outcome.checks.iter().filter(|check| !subject.differences(check).is_empty()) {
            updates.push(subject.update(check)?);
        }
    }
    for (region, text) in regions.into_iter().zip(&played.regions).filter(|_| is_same) {
        let Some(text) = text else { return None };
        for check in region.checks.iter().filter(|check| !region_differences(text, check).is_empty()) {
            updates.push(update(check, text, Some(text))?);
        }
    }
    (is_same && !updates.is_empty()).then_some(updates)
}

/// A new value in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The place of the value.
    pub place: Place,
    /// The new value, as TOML.
    pub value: String,
}

/// What an expectation is about.
enum Subject<'p> {
    Notification(&'p Made),
    Release(&'p ExchangeRelease, &'p Played),
}

fn outcomes(subjects: &[Subject<'_>], test: &SubscriberTest) -> Vec<Unmet> {
    let expected: Vec<&Outcome> = test
        .expect
        .iter()
        .filter_map(|one| match one {
            Expectation::Outcome(outcome) => Some(outcome),
            Expectation::Ended(_) | Expectation::Region(_) => None,
        })
        .collect();
    let matches = |(subject, outcome): (&Subject<'_>, &&Outcome)| subject.at() == outcome.at;
    let is_same = subjects.len() == expected.len() && subjects.iter().zip(&expected).all(matches);
    if !is_same {
        let first = subjects.iter().zip(&expected).position(|pair| !matches(pair));
        let first = first.or((subjects.len() < expected.len()).then_some(subjects.len()));
        let missing = first.and_then(|index| expected.get(index));
        let place = missing.map_or(&test.place, |outcome| &outcome.place).clone();
        let made = subjects.iter().map(Subject::summary).collect();
        return vec![Unmet::Number { expected: described(&expected, test), made, place }];
    }
    let numbered = (1..).zip(subjects.iter().zip(expected));
    numbered.filter_map(|(number, (subject, outcome))| subject.differs(number, outcome)).collect()
}

/// Such as ` by tool_failure@shipped`, of a subscriber that is a part of an earlier one; else nothing.
pub(super) fn earlier_part(id: &SubscriberId) -> String {
    if id.in_file() == id.as_str() { String::new() } else { format!(" by {id}") }
}

/// The expected notifications in words, such as `2 notifications at 1s, 3s`.
fn described(expected: &[&Outcome], test: &SubscriberTest) -> String {
    let noun = if test.has_exchanges() { "release" } else { "notification" };
    if expected.is_empty() {
        return format!("no {noun}");
    }
    let times: Vec<String> = expected.iter().map(|outcome| duration_text(outcome.at)).collect();
    format!("{} at {}", counted(expected.len(), noun), times.join(", "))
}

impl Subject<'_> {
    fn at(&self) -> Duration {
        match self {
            Self::Notification(made) => made.at,
            Self::Release(released, _) => released.at,
        }
    }

    /// Its notifications, in order.
    fn notifications(&self) -> Vec<&Made> {
        match self {
            Self::Notification(made) => vec![made],
            Self::Release(released, played) => {
                let ids = released.injection.notifications.iter().map(|one| one.id);
                ids.filter_map(|id| played.notification(id)).collect()
            }
        }
    }

    /// The content of its notifications, one below the other.
    fn text(&self) -> String {
        let texts = self.notifications();
        texts.iter().map(|made| &**made.notification.content.text()).collect::<Vec<_>>().join("\n")
    }

    fn summary(&self) -> String {
        let text = self.text();
        let first = shown(text.lines().next().unwrap_or_default());
        let by = match self {
            Self::Notification(made) => earlier_part(&made.notification.subscriber),
            Self::Release(..) => String::new(),
        };
        format!("at {}{by}: {first}", duration_text(self.at()))
    }

    fn differs(&self, number: usize, outcome: &Outcome) -> Option<Unmet> {
        let mut differences: Vec<Difference> =
            outcome.checks.iter().flat_map(|check| self.differences(check)).collect();
        differences.truncate(DIFFERENCES_MAX);
        let subject = match self {
            Self::Notification(_) => format!("at {}, notification {number}", duration_text(self.at())),
            Self::Release(released, _) => {
                format!("at {}, {}", duration_text(self.at()), released.point.as_str())
            }
        };
        (!differences.is_empty()).then(|| Unmet::Differs { subject, differences, text: self.text() })
    }

    fn differences(&self, check: &Check) -> Vec<Difference> {
        let key = check.claim.key();
        let different = |expected: &str, got: &str| {
            let [expected, got] = [expected, got].map(str::to_owned);
            vec![Difference { part: key.to_owned(), expected, got, place: check.place.clone() }]
        };
        let word = |expected: &str, got: Option<&str>| match got {
            Some(got) if got == expected => Vec::new(),
            got => different(expected, got.unwrap_or("none")),
        };
        let made = self.notifications();
        let of_all = |read: fn(&Notification) -> &'static str| {
            let mut words: Vec<&str> = made.iter().map(|made| read(&made.notification)).collect();
            words.dedup();
            words.join(", ")
        };
        match &check.claim {
            Claim::Decoded(expected) => match made.as_slice() {
                [one] => decoded(one.notification.content.text(), expected, "", check),
                several => different("one notification", &counted(several.len(), "notification")),
            },
            Claim::Delivered(expected) => delivered(&made, expected, check),
            Claim::Text(_) | Claim::Contains(_) | Claim::Lacks(_) => text_differences(&self.text(), check),
            Claim::Sentence(expected) => {
                let lines: Vec<String> = made
                    .iter()
                    .map(|made| format::line_for_user(&made.notification, format::LINE_CHARS_MAX))
                    .collect();
                let line = lines.join("; ");
                if line == *expected { Vec::new() } else { different(&quoted(expected), &quoted(&line)) }
            }
            Claim::Point(point) => word(point.as_str(), Some(&of_all(|one| one.inject_at.as_str()))),
            Claim::Priority(priority) => word(priority.as_str(), Some(&self.priorities())),
            Claim::Severity(severity) => word(severity.as_str(), Some(&of_all(|one| one.severity.as_str()))),
            Claim::Activation(activation) => {
                word(activation.as_str(), Some(&of_all(|one| one.activation.as_str())))
            }
            Claim::Interrupt(interrupt) => {
                word(interrupt.as_str(), Some(&of_all(|one| one.interrupt.as_str())))
            }
            Claim::RequiresResponse(expected) => {
                let got = of_all(|one| if one.requires_response { "true" } else { "false" });
                word(if *expected { "true" } else { "false" }, Some(&got))
            }
            Claim::Format(expected) => word(expected.as_str(), self.format()),
            Claim::More(expected) if expected == self.more() => Vec::new(),
            Claim::More(expected) => different(&quoted(expected), &quoted(self.more())),
            Claim::Directive(expected) => word(expected.as_str(), self.directive()),
            Claim::MaxTokens(max) => match self.tokens() {
                tokens if tokens <= *max => Vec::new(),
                tokens => different(&format!("at most {max}"), &tokens.to_string()),
            },
            Claim::Notices(expected) => {
                let found = made.iter().flat_map(|made| &made.notices).map(|notice| fields(notice));
                let found = Value::from(found.collect::<Vec<_>>());
                let expected = Value::from(expected.clone());
                let mut places = Vec::new();
                compare(&found, &expected, key, check, &mut places);
                places
            }
        }
    }

    /// The value of a claim that is met; `None` for claims that are not updated.
    fn update(&self, check: &Check) -> Option<Update> {
        let made = self.notifications();
        let only =
            if let [only] = made.as_slice() { Some(&**only.notification.content.text()) } else { None };
        update(check, &self.text(), only)
    }

    /// The priorities, as words; of a release those with which its notifications were delivered, which a
    /// repetition raises.
    fn priorities(&self) -> String {
        let mut words: Vec<&str> = match self {
            Self::Notification(made) => vec![made.notification.priority.as_str()],
            Self::Release(released, _) => {
                released.injection.notifications.iter().map(|one| one.priority.as_str()).collect()
            }
        };
        words.dedup();
        words.join(", ")
    }

    fn format(&self) -> Option<&'static str> {
        match self {
            Self::Notification(_) => None,
            Self::Release(released, _) => Some(released.format.as_str()),
        }
    }

    /// The line of a release about what stays pending, without its key; empty if there is none.
    fn more(&self) -> &str {
        let Self::Release(released, _) = self else { return "" };
        let mut lines = released.injection.text.lines().rev();
        lines.find_map(|line| line.strip_prefix("more: ")).unwrap_or_default()
    }

    fn directive(&self) -> Option<&'static str> {
        let Self::Release(released, _) = self else { return None };
        released.directive.as_ref().map(|directive| match directive {
            Directive::Continue { .. } => DirectiveWord::Continue.as_str(),
            Directive::Cancel { .. } => DirectiveWord::Cancel.as_str(),
        })
    }

    fn tokens(&self) -> u32 {
        match self {
            Self::Notification(made) => made.notification.tokens.0,
            Self::Release(released, _) => toon::tokens::estimate(&released.injection.text).0,
        }
    }
}

/// The value of a claim about `text` that is met, of which `content` is what decodes; `None` for
/// claims that are not updated.
fn update(check: &Check, text: &str, content: Option<&str>) -> Option<Update> {
    let value = if let Claim::Decoded(expected) = &check.claim {
        toml::Value::try_from(updated(expected, &toon::decode(document(content?)).ok()?)).ok()?
    } else {
        matches!(check.claim, Claim::Text(_)).then(|| toml::Value::from(text))?
    };
    Some(Update { place: check.place.clone(), value: value.to_string() })
}

/// A text that decodes: an empty one has no facts.
fn document(text: &str) -> &str {
    if text.is_empty() { "{}" } else { text }
}

/// What differs of the text of a region.
fn region_differences(text: &str, check: &Check) -> Vec<Difference> {
    let Claim::Decoded(facts) = &check.claim else { return text_differences(text, check) };
    decoded(document(text), facts, "", check)
}

/// What differs of a text, by a claim about texts; none by another one.
fn text_differences(text: &str, check: &Check) -> Vec<Difference> {
    let different = |expected: String, got: &str| Difference {
        part: check.claim.key().to_owned(),
        expected,
        got: got.to_owned(),
        place: check.place.clone(),
    };
    match &check.claim {
        Claim::Text(expected) if text == expected => Vec::new(),
        Claim::Text(expected) => lines_that_differ(text, expected, check),
        Claim::Contains(parts) => {
            let absent = parts.iter().filter(|part| !text.contains(*part));
            absent.map(|part| different(quoted(part), "a text without it")).collect()
        }
        Claim::Lacks(parts) => {
            let present = parts.iter().filter(|part| text.contains(*part));
            present.map(|part| different(format!("no {}", quoted(part)), "a text with it")).collect()
        }
        Claim::Decoded(_)
        | Claim::Sentence(_)
        | Claim::Delivered(_)
        | Claim::Point(_)
        | Claim::Priority(_)
        | Claim::Severity(_)
        | Claim::Activation(_)
        | Claim::Interrupt(_)
        | Claim::RequiresResponse(_)
        | Claim::Format(_)
        | Claim::MaxTokens(_)
        | Claim::Notices(_)
        | Claim::Directive(_)
        | Claim::More(_) => Vec::new(),
    }
}

/// What differs of a region.
fn other_region(expected: &RegionAt, text: Option<&str>) -> Option<Unmet> {
    let mut differences: Vec<Difference> = match text {
        None => vec![Difference {
            part: "region".to_owned(),
            expected: format!("the session {}", expected.session),
            got: "no such session".to_owned(),
            place: expected.place.clone(),
        }],
        Some(text) => expected.checks.iter().flat_map(|check| region_differences(text, check)).collect(),
    };
    differences.truncate(DIFFERENCES_MAX);
    let subject = format!("at {}, the region of {}", duration_text(expected.at), expected.session);
    let text = text.unwrap_or_default().to_owned();
    (!differences.is_empty()).then_some(Unmet::Differs { subject, differences, text })
}

/// The parts of the content that differ.
fn decoded(text: &str, expected: &Value, path: &str, check: &Check) -> Vec<Difference> {
    let mut found = Vec::new();
    match toon::decode(text) {
        Ok(content) => compare(&content, expected, path, check, &mut found),
        Err(error) => found.push(Difference {
            part: check.claim.key().to_owned(),
            expected: shown(&expected.to_string()),
            got: error.to_string(),
            place: check.place.clone(),
        }),
    }
    found
}

fn delivered(made: &[&Made], expected: &[Delivered], check: &Check) -> Vec<Difference> {
    if made.len() != expected.len() {
        let ids: Vec<&str> = made.iter().map(|made| made.notification.subscriber.as_str()).collect();
        return vec![Difference {
            part: "delivered".to_owned(),
            expected: counted(expected.len(), "notification"),
            got: format!("{}: {}", made.len(), ids.join(", ")),
            place: check.place.clone(),
        }];
    }
    let each = (0..).zip(made.iter().zip(expected));
    each.flat_map(|(index, (made, expected)): (usize, _)| {
        let path = format!("[{index}]");
        match expected {
            Delivered::With(expected) => decoded(made.notification.content.text(), expected, &path, check),
            Delivered::By(id) if made.notification.subscriber == *id => Vec::new(),
            Delivered::By(id) => vec![Difference {
                place: check.place_of(&path).clone(),
                part: format!("delivered{path}"),
                expected: id.to_string(),
                got: made.notification.subscriber.to_string(),
            }],
        }
    })
    .collect()
}

/// The places at which `found` lacks a part of `expected`; keys that are absent in `expected` are
/// not compared.
fn compare(found: &Value, expected: &Value, path: &str, check: &Check, places: &mut Vec<Difference>) {
    if places.len() > DIFFERENCES_MAX {
        return;
    }
    let mut differ = |expected: String, got: String| {
        let part = if path.is_empty() { check.claim.key().to_owned() } else { path.to_owned() };
        places.push(Difference { part, expected, got, place: check.place_of(path).clone() });
    };
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (key, value) in expected {
                let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match found.get(key) {
                    Some(found) => compare(found, value, &inner, check, places),
                    None => places.push(Difference {
                        place: check.place_of(&inner).clone(),
                        part: inner,
                        expected: shown(&value.to_string()),
                        got: "nothing".to_owned(),
                    }),
                }
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
                compare(found, expected, &format!("{path}[{index}]"), check, places);
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            differ(counted(expected.len(), "item"), counted(found.len(), "item"));
        }
        _ if found == expected => {}
        _ => differ(shown(&expected.to_string()), shown(&found.to_string())),
    }
}

/// The part of `found` that has what `expected` names: its keys, and all items of its lists, each
/// with the keys that some item names.
fn updated(expected: &Value, found: &Value) -> Value {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            let keys = expected.iter().filter_map(|(key, value)| Some((key, value, found.get(key)?)));
            keys.map(|(key, value, found)| (key.clone(), updated(value, found))).collect()
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            expected.iter().zip(found).map(|(expected, found)| updated(expected, found)).collect()
        }
        (Value::Array(expected), Value::Array(found)) => {
            let named = |key: &String| expected.iter().any(|item| item.get(key).is_some());
            let item = |item: &Value| match item.as_object() {
                None => item.clone(),
                Some(fields) => {
                    let named = fields.iter().filter(|(key, _)| named(key));
                    named.map(|(key, value)| (key.clone(), value.clone())).collect()
                }
            };
            found.iter().map(item).collect()
        }
        _ => found.clone(),
    }
}

/// The lines of a text that differ from the expected ones.
fn lines_that_differ(text: &str, expected: &str, check: &Check) -> Vec<Difference> {
    let (mut found, mut wanted) = (text.lines(), expected.lines());
    let mut differences = Vec::new();
    for number in 1.. {
        let (got, expected) = (found.next(), wanted.next());
        if got.is_none() && expected.is_none() {
            break;
        }
        if got != expected {
            let shown = |line: Option<&str>| line.map_or_else(|| "no line".to_owned(), quoted);
            differences.push(Difference {
                part: format!("text, line {number}"),
                expected: shown(expected),
                got: shown(got),
                place: check.place.clone(),
            });
        }
    }
    differences
}

fn quoted(text: &str) -> String {
    format!("{:?}", shown(text))
}

fn fields(notice: &Notice) -> Value {
    let mut fields = Map::new();
    fields.insert("message".to_owned(), Value::from(&*notice.message));
    fields.insert("level".to_owned(), notice.level.as_str().into());
    fields.extend(
        notice.category.map(|category| category.as_str()).map(|word| ("category".to_owned(), word.into())),
    );
    fields.extend(notice.link.as_deref().map(|link| ("link".to_owned(), link.into())));
    Value::Object(fields)
}

fn other_end(played: &Played, subscriber: &SubscriberId, expected: &Ended) -> Option<Unmet> {
    let is_own = |id: NotificationId| {
        played.notification(id).is_some_and(|made| made.notification.subscriber == *subscriber)
    };
    let ended = |entry: &'_ LedgerEntry| -> Option<Reason> {
        if let LedgerEntry::EventEnded { subscriber: by, reason, .. } = entry {
            return (by == subscriber).then(|| reason.clone());
        }
        let LedgerEntry::NotificationEnded { notification, reason, .. } = entry else { return None };
        is_own(*notification).then(|| reason.clone())
    };
    let is_counted = |(at, entry): &&(Duration, LedgerEntry)| {
        let is_in_time = expected.until.is_none_or(|until| *at <= until);
        is_in_time
            && ended(entry).is_some_and(|reason| {
                let is_by = expected.by.as_ref().is_none_or(|by| reason.detail().as_ref() == Some(by));
                is_by && reason.as_str() == expected.reason
            })
    };
    let got = played.entries.iter().filter(is_counted).count();
    let reason = match &expected.by {
        Some(by) => format!("`{}` by {by}", expected.reason),
        None => format!("`{}`", expected.reason),
    };
    let is_met = u32::try_from(got) == Ok(expected.count);
    (!is_met).then(|| Unmet::Ended { reason, expected: expected.count, got, place: expected.place.clone() })
}

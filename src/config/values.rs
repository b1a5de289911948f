//! Readers of single values: words, numbers within a range, durations, rates, lists, and patterns of
//! event types.
//!
//! Each function takes a [`Value`] and returns its meaning, or all mistakes in it. Units are those
//! of the text: a duration includes its own, as in `"250ms"` or `"1h30m"`.

mod delay;
mod json;

use std::{
    fmt, net::SocketAddr, num::NonZeroU32, ops::RangeInclusive, path::Path, str::FromStr, time::Duration,
};

use engine::{
    event::{EventType, FieldPath, Pattern, Severity, catalogue, first_bytes},
    nearest::nearest,
    rate::Rate,
    words::Words,
};
use jiff::SignedDuration;
use journal::time::{
    hours::{Hours, HoursError, minutes},
    parse_duration,
};

pub(crate) use self::{
    delay::{delays, meant_delay},
    json::object,
};
use crate::config::{
    layers::SourceFile,
    raw::{Document, Parsed, Value, finish_all},
    report::{Diagnostic, Place, sentence, shown},
};

/// The text for no limit.
const OFF: &str = "off";
/// Largest count of a `rate`; a larger one per unit of time would not limit anything.
const RATE_COUNT_MAX: u32 = 10_000;
/// The units of a `rate`, in seconds.
const RATE_UNITS: [(&str, u64); 6] =
    [("s", 1), ("sec", 1), ("m", 60), ("min", 60), ("h", 3_600), ("hour", 3_600)];

pub(crate) fn text<'s>(value: &Value<'s>) -> Parsed<&'s str> {
    value.get().as_str().ok_or_else(|| value.wrong_kind("a string"))
}

/// A string that is not empty.
pub(crate) fn words<'s>(value: &Value<'s>) -> Parsed<&'s str> {
    match text(value)? {
        text if text.trim().is_empty() => Err(vec![value.error(format!("`{}` is empty", value.name()))]),
        text => Ok(text),
    }
}

/// A source in the language of templates: checked by `compile`; or, in a file of the program, whose
/// tests check it, compiled at its first use.
pub(crate) fn source<T>(
    value: &Value<'_>,
    deferred: impl FnOnce(&str) -> T,
    compile: impl FnOnce(&str) -> Parsed<T>,
) -> Parsed<T> {
    let source = words(value)?;
    if value.file().text.is_of_program() { Ok(deferred(source)) } else { compile(source) }
}

/// A string that is parsed.
pub(crate) fn parsed<T: FromStr<Err: fmt::Display>>(value: &Value<'_>) -> Parsed<T> {
    text(value)?.parse().map_err(|error| vec![value.error(sentence(error))])
}

/// An event type that others than aside may make.
pub(crate) fn open_type(value: &Value<'_>) -> Parsed<EventType> {
    let event_type: EventType = parsed(value)?;
    match catalogue::reserved(event_type.as_str()) {
        None => Ok(event_type),
        Some(message) => Err(vec![value.error(message)]),
    }
}

/// A path; a relative one is an error.
pub(crate) fn absolute_path<T: for<'a> From<&'a str>>(value: &Value<'_>) -> Parsed<T> {
    let text = words(value)?;
    if !Path::new(text).is_absolute() {
        return Err(vec![value.error(format!("`{}` is not an absolute path", shown(text)))]);
    }
    Ok(text.into())
}

/// An address and port that only this machine can reach.
pub(crate) fn loopback(value: &Value<'_>) -> Parsed<SocketAddr> {
    let text = text(value)?;
    let Ok(address) = text.parse::<SocketAddr>() else {
        let message = format!("`{}` is not an address with a port", shown(text));
        return Err(vec![value.error(message).with_note("an address is written like \"127.0.0.1:4127\"")]);
    };
    if !address.ip().is_loopback() {
        let message = format!("`{address}` can be reached from other machines");
        return Err(vec![value.error(message).with_note("only 127.0.0.0/8 and [::1] are allowed")]);
    }
    Ok(address)
}

/// A version such as `1.0.0`, by the rules of semver.org.
pub(crate) fn version(value: &Value<'_>) -> Parsed<semver::Version> {
    let found = text(value)?;
    found.parse().map_err(|error| {
        let message = format!("`{}` is not a semantic version: {}", shown(found), sentence(error));
        vec![value.error(message).with_nearest(version_meant(found))]
    })
}

/// The version that was probably meant: without a leading `v`, with the missing numbers as zeros.
fn version_meant(found: &str) -> Option<String> {
    let numbers = found.trim().trim_start_matches(['v', 'V']);
    let mut meant = numbers.to_owned();
    while meant.matches('.').count() < 2 && meant.ends_with(|c: char| c.is_ascii_digit()) {
        meant.push_str(".0");
    }
    meant.parse::<semver::Version>().is_ok().then_some(meant)
}

pub(crate) fn flag(value: &Value<'_>) -> Parsed<bool> {
    value.get().as_bool().ok_or_else(|| value.wrong_kind("true or false"))
}

/// A finite number, with or without a fraction.
pub(crate) fn decimal(value: &Value<'_>) -> Parsed<f64> {
    let integer = value.get().as_integer().map(|number| number.as_str());
    let text = value.get().as_float().map(|number| number.as_str()).or(integer);
    let number =
        text.and_then(|text| text.replace('_', "").parse::<f64>().ok()).filter(|number| number.is_finite());
    number.ok_or_else(|| value.wrong_kind("a number"))
}

/// An integer within a range.
pub(crate) fn integer<T>(value: &Value<'_>, range: RangeInclusive<T>) -> Parsed<T>
where
    T: TryFrom<i128> + PartialOrd + fmt::Display,
{
    let integer = value.get().as_integer().ok_or_else(|| not_an_integer(value))?;
    let found = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
    found.and_then(|found| T::try_from(found).ok()).filter(|found| range.contains(found)).ok_or_else(|| {
        let (start, end) = range.into_inner();
        vec![value.error(format!("`{}` is {integer}, but must be {start} to {end}", value.name()))]
    })
}

/// The error for a text in place of an integer: a number in quotes, or a duration where the key
/// names its unit.
fn not_an_integer(value: &Value<'_>) -> Vec<Diagnostic> {
    let text = value.get().as_str().unwrap_or_default();
    let number = text.trim().parse::<u64>().ok();
    let milliseconds =
        parse_duration(text).filter(|_| value.name().ends_with("_ms")).map(|time| time.as_millis());
    let note = match (number, milliseconds) {
        (Some(number), _) => Some(format!("write {number}, without quotes")),
        (None, Some(milliseconds)) => {
            Some(format!("write {milliseconds}: the unit of `{}` is ms", value.name()))
        }
        (None, None) => None,
    };
    noted(value.wrong_kind("an integer"), note)
}

fn noted(found: Vec<Diagnostic>, note: Option<String>) -> Vec<Diagnostic> {
    match note {
        Some(note) => found.into_iter().map(|wrong| wrong.with_note(note.clone())).collect(),
        None => found,
    }
}

/// One of the words for the values of an enum.
pub(crate) fn word<T: Words>(value: &Value<'_>) -> Parsed<T> {
    word_of(value, T::VARIANTS)
}

/// The word for one of some values.
pub(crate) fn word_of<T: Copy + Into<&'static str>>(value: &Value<'_>, all: &[T]) -> Parsed<T> {
    let found = text(value)?;
    all.iter().copied().find(|one| (*one).into() == found).ok_or_else(|| {
        let allowed: Vec<&str> = all.iter().map(|one| (*one).into()).collect();
        let message = format!("`{}` cannot be `{}`", value.name(), shown(found));
        vec![value.error(message).with_allowed(found, &allowed)]
    })
}

/// A severity; `warn` is `warning`.
pub(crate) fn severity(value: &Value<'_>) -> Parsed<Severity> {
    match text(value)? {
        "warn" => Ok(Severity::Warning),
        _ => word(value),
    }
}

/// A duration within a range.
pub(crate) fn duration(value: &Value<'_>, range: RangeInclusive<Duration>) -> Parsed<Duration> {
    let Some(text) = value.get().as_str() else {
        let note = value
            .get()
            .as_integer()
            .map(|number| format!("the unit is missing: \"{number}s\" are seconds, \"{number}m\" minutes"));
        let wrong = value.wrong_kind("a duration with its unit, such as \"250ms\" or \"1h30m\"");
        return Err(noted(wrong, note));
    };
    let Some(found) = parse_duration(text) else {
        let note = match text.trim().parse::<u64>() {
            Ok(number) => format!("the unit is missing: \"{number}s\" are seconds, \"{number}m\" minutes"),
            Err(_) => "a duration is written like \"250ms\" or \"1h30m\"".to_owned(),
        };
        return Err(vec![value.error(format!("`{}` is not a duration", shown(text))).with_note(note)]);
    };
    if !range.contains(&found) {
        let [start, end] = [range.start(), range.end()].map(|limit| duration_text(*limit));
        let message = format!("`{}` is {}, but must be {start} to {end}", value.name(), duration_text(found));
        return Err(vec![value.error(message)]);
    }
    Ok(found)
}

/// Reads `off` as `None`, and other values with `parse`.
pub(crate) fn unless_off<T>(value: &Value<'_>, parse: impl Fn(&Value<'_>) -> Parsed<T>) -> Parsed<Option<T>> {
    match value.get().as_str() {
        Some(OFF) => Ok(None),
        Some(text) if nearest(text, [OFF]).is_some() => {
            let message = format!("`{}` cannot be `{}`", value.name(), shown(text));
            Err(vec![value.error(message).with_nearest(Some(OFF))])
        }
        Some(_) | None => parse(value).map(Some),
    }
}

/// A duration such as `1m 30s`.
pub(crate) fn duration_text(duration: Duration) -> String {
    SignedDuration::try_from(duration)
        .map_or_else(|_| format!("{duration:?}"), |signed| format!("{signed:#}"))
}

/// Hours of each day such as `22:00-07:00`, a day such as `sat`, or a list of them.
pub(crate) fn hours(value: &Value<'_>) -> Parsed<Hours> {
    let mut hours = Hours::default();
    let name = value.name();
    let always = |value: &Value<'_>| {
        let message = format!("`{name}` is the whole week, so nothing would be delivered");
        vec![value.error(message).with_note("a subscriber is disabled by `enabled = false`")]
    };
    hours.extend(one_or_list(value, |value| {
        let text = words(value)?;
        text.parse::<Hours>().map_err(|error| {
            let message = match error {
                HoursError::Always => return always(value),
                HoursError::Form => format!("`{}` is neither hours of the day nor a day", shown(text)),
                HoursError::Empty => format!("`{}` ends when it begins", shown(text)),
            };
            let begin = first_bytes(text, 3).to_lowercase();
            let day = begin.parse::<Hours>().is_ok().then_some(begin);
            let note = "hours are written like \"22:00-07:00\", a day like \"sat\"";
            vec![value.error(message).with_nearest(day).with_note(note)]
        })
    })?);
    if hours.is_always() {
        return Err(always(value));
    }
    Ok(hours)
}

/// One value, or a list of at least one.
pub(crate) fn one_or_list<'s, T>(
    value: &Value<'s>,
    parse: impl Fn(&Value<'s>) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    if value.items().is_none() {
        return parse(value).map(|one| vec![one]);
    }
    let values = list(value, parse)?;
    if values.is_empty() {
        Err(vec![value.error(format!("`{}` is empty", value.name()))])
    } else {
        Ok(values)
    }
}

/// Local times of a day, in minutes after midnight.
pub(crate) fn times_of_day(value: &Value<'_>, max: usize) -> Parsed<Vec<u16>> {
    let times = list(value, |value| {
        let text = words(value)?;
        minutes(text).ok_or_else(|| {
            let message = format!("`{}` is not a time of day", shown(text));
            vec![value.error(message).with_note("a time is written like \"09:00\"")]
        })
    })?;
    if times.is_empty() {
        return Err(vec![value.error(format!("`{}` names no time", value.name()))]);
    }
    at_most(value, times, max)
}

/// A list with at most `max` items.
pub(crate) fn at_most<T>(value: &Value<'_>, items: Vec<T>, max: usize) -> Parsed<Vec<T>> {
    if items.len() > max {
        return Err(vec![value.error(format!("`{}` has at most {max} entries", value.name()))]);
    }
    Ok(items)
}

/// A rate such as `10/min`.
pub(crate) fn rate(value: &Value<'_>) -> Parsed<Rate> {
    let number =
        value.get().as_integer().map(|number| format!("write \"{number}/min\", or another unit of time"));
    let found = text(value).map_err(|wrong| noted(wrong, number))?;
    let wrong = |message: String| {
        let note = "a rate is written like \"10/min\", its unit being s, sec, m, min, h or hour";
        Err(vec![value.error(message).with_note(note)])
    };
    let Some((count, unit)) = found.split_once('/') else {
        return wrong(format!("`{}` is not a rate", shown(found)));
    };
    let count = count.trim().parse::<NonZeroU32>().ok().filter(|count| count.get() <= RATE_COUNT_MAX);
    let unit = RATE_UNITS.into_iter().find(|(name, _)| *name == unit.trim());
    match (count, unit) {
        (Some(count), Some((_, seconds))) => Ok(Rate { count, per: Duration::from_secs(seconds) }),
        (None, _) => {
            wrong(format!("`{}` does not begin with a count of 1 to {RATE_COUNT_MAX}", shown(found)))
        }
        (_, None) => wrong(format!("`{}` does not end with a unit of time", shown(found))),
    }
}

/// An array, each item of which `parse` reads.
pub(crate) fn list<'s, T>(value: &Value<'s>, parse: impl Fn(&Value<'s>) -> Parsed<T>) -> Parsed<Vec<T>> {
    let items = value.items().ok_or_else(|| {
        let note = value.get().as_str().map(|text| format!("write [\"{}\"]", shown(text)));
        noted(value.wrong_kind("an array"), note)
    })?;
    let (mut parsed, mut found) = (Vec::new(), Vec::new());
    for item in &items {
        match parse(item) {
            Ok(item) => parsed.push(item),
            Err(wrong) => found.extend(wrong),
        }
    }
    if found.is_empty() { Ok(parsed) } else { Err(found) }
}

/// Passes each table of the array `key`, which a file consists of, to `take`; returns the mistakes.
///
/// Shape: an array of more than `rows_max` tables is one mistake, and none is passed.
pub(crate) fn each_table(
    file: &SourceFile,
    key: &'static str,
    rows_max: usize,
    mut take: impl FnMut(&Value<'_>) -> Parsed<()>,
) -> Vec<Diagnostic> {
    let documents = match Document::parse(file) {
        Ok(document) => [document],
        Err(found) => return found,
    };
    let mut found = finish_all(&documents, &[key], Vec::new());
    let [document] = &documents;
    let Some(value) = document.value(key) else { return found };
    match value.items() {
        None => found.extend(value.wrong_kind(&format!("an array of tables, each begun by [[{key}]]"))),
        Some(items) if items.len() > rows_max => {
            found.push(value.error(format!("there are {} rows; {rows_max} are allowed", items.len())));
        }
        Some(items) => found.extend(items.iter().filter_map(|item| take(item).err()).flatten()),
    }
    found
}

/// Paths of fields joined by `:`, such as `type:payload.tool_name`; an empty string is not a path.
pub(crate) fn field_paths(value: &Value<'_>) -> Parsed<Vec<FieldPath>> {
    let found = text(value).map_err(|wrong| {
        let items = value.items().unwrap_or_default();
        let parts: Option<Vec<&str>> = items.iter().map(|item| item.get().as_str()).collect();
        let joined = parts.filter(|parts| !parts.is_empty()).map(|parts| parts.join(":"));
        noted(wrong, joined.map(|joined| format!("several fields are joined by `:`: \"{}\"", shown(&joined))))
    })?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let (mut paths, mut wrong, mut start) = (Vec::new(), Vec::new(), 0);
    for part in found.split(':') {
        match FieldPath::parse(part) {
            Some(path) => paths.push(path),
            None => {
                let place = value.place().within(found, start..start + part.len());
                wrong.push(bad_field_path(value, place, part));
            }
        }
        start += part.len() + 1;
    }
    if wrong.is_empty() { Ok(paths) } else { Err(wrong) }
}

fn bad_field_path(value: &Value<'_>, place: Place, part: &str) -> Diagnostic {
    let is_path = |path: &String| FieldPath::parse(path).is_some();
    let (root, rest) = part.split_at(part.find('.').unwrap_or(part.len()));
    let with_root = || nearest(root, FieldPath::ROOTS).map(|root| format!("{root}{rest}")).filter(is_path);
    let in_payload = || Some(format!("payload.{part}")).filter(is_path);
    let parts: Vec<String> =
        part.split([',', ' ']).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let meant = match FieldPath::ROOTS.contains(&root) {
        _ if parts.len() > 1 => Some(parts.join(":")).filter(|_| parts.iter().all(is_path)),
        true => None,
        false => with_root().or_else(in_payload),
    };
    let note = format!(
        "a field is one of {}, or `payload.` and the keys below it; several are joined by `:`",
        FieldPath::ROOTS.into_iter().filter(|root| *root != "payload").collect::<Vec<_>>().join(", ")
    );
    let mut wrong = value.error(format!("`{}` is not a field of an event", shown(part)));
    wrong.place = place;
    wrong.with_nearest(meant).with_note(note)
}

/// A list of patterns, at least one.
pub(crate) fn patterns(value: &Value<'_>) -> Parsed<Vec<Pattern>> {
    let patterns = list(value, parsed)?;
    if patterns.is_empty() {
        return Err(vec![value.error("`types` is empty, so no event would ever match")]);
    }
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{layers::LayerKind, raw::Section};

    /// Reads `x = ...` and returns its meaning, or the messages.
    fn read<T>(written: &str, parse: impl Fn(&Value<'_>) -> Parsed<T>) -> Result<T, String> {
        let file = SourceFile {
            layer: LayerKind::User,
            name: "aside.toml".into(),
            path: "a".into(),
            text: format!("[s]\nx = {written}\n").into(),
        };
        let documents = [Document::parse(&file).unwrap_or_else(|found| panic!("{found:?}"))];
        let mut section = Section::new("s", &documents);
        let value = section.read("x", parse);
        let messages: Vec<_> = section.finish().into_iter().map(|diagnostic| diagnostic.message).collect();
        value.ok_or_else(|| messages.join("; "))
    }

    #[test]
    fn integers_accept_any_notation_within_their_range() {
        let read = |written: &str| read(written, |value| integer::<u32>(value, 10..=4_000));
        assert_eq!(read("4_000"), Ok(4_000));
        assert_eq!(read("0x10"), Ok(16));
        assert_eq!(read("9"), Err("`x` is 9, but must be 10 to 4000".to_owned()));
        let huge = "99999999999999999999999999999999999999999999";
        assert_eq!(read(huge), Err(format!("`x` is {huge}, but must be 10 to 4000")));
    }

    #[test]
    fn durations_carry_their_unit() {
        let range = Duration::from_millis(10)..=Duration::from_secs(7_200);
        let read = |written: &str| read(written, |value| duration(value, range.clone()));
        assert_eq!(read("\"250ms\""), Ok(Duration::from_millis(250)));
        assert_eq!(read("\"1h30m\""), Ok(Duration::from_secs(5_400)));
        assert_eq!(read("\"3h\""), Err("`x` is 3h, but must be 10ms to 2h".to_owned()));
        assert_eq!(read("\"1d\""), Err("`x` is 24h, but must be 10ms to 2h".to_owned()));
        for wrong in ["5", "-5s", "5 parsecs", "", "-1d", "1d6"] {
            assert_eq!(read(&format!("\"{wrong}\"")), Err(format!("`{wrong}` is not a duration")));
        }
    }

    #[test]
    fn rate_is_a_count_per_time_unit() {
        let read = |written: &str| read(written, rate).map(|rate| (rate.count.get(), rate.per.as_secs()));
        for (name, seconds) in RATE_UNITS {
            assert_eq!(read(&format!("\"10/{name}\"")), Ok((10, seconds)));
        }
        assert_eq!(read("\" 5 / min \""), Ok((5, 60)));
        let count = "`-1/s` does not begin with a count of 1 to 10000";
        assert_eq!(read("\"-1/s\""), Err(count.to_owned()));
        assert_eq!(read("\"1/week\""), Err("`1/week` does not end with a unit of time".to_owned()));
        assert_eq!(read("\"1\""), Err("`1` is not a rate".to_owned()));
    }

    #[test]
    fn an_empty_key_has_no_fields() {
        assert_eq!(read("\"\"", field_paths).map(|paths| paths.len()), Ok(0));
        assert_eq!(read("\"type:payload.a.0\"", field_paths).map(|paths| paths.len()), Ok(2));
        let wrong = Err("`type.x` is not a field of an event; `` is not a field of an event".to_owned());
        assert_eq!(read("\"type.x::id\"", field_paths).map(|paths| paths.len()), wrong);
    }

    #[test]
    fn a_field_that_was_meant_is_named() {
        let file = |written: &str| SourceFile {
            layer: LayerKind::User,
            name: "aside.toml".into(),
            path: "a".into(),
            text: format!("[s]\nx = {written}\n").into(),
        };
        for (written, meant) in [
            ("\"type:paylod.tool_name\"", Some("payload.tool_name")),
            ("\"type,payload.tool_name\"", Some("type:payload.tool_name")),
            ("\"tool_name\"", Some("payload.tool_name")),
            ("\"sesion\"", Some("session")),
            ("\"type.x\"", None),
        ] {
            let file = file(written);
            let documents = [Document::parse(&file).unwrap_or_else(|found| panic!("{found:?}"))];
            let mut section = Section::new("s", &documents);
            assert!(section.read("x", field_paths).is_none());
            let found = section.finish();
            assert_eq!(found.first().and_then(|wrong| wrong.nearest.as_deref()), meant, "{written}");
        }
    }

    #[test]
    fn warn_is_a_severity_and_capitals_are_not() {
        assert_eq!(read("\"warn\"", severity), Ok(Severity::Warning));
        assert_eq!(read("\"Warning\"", severity), Err("`x` cannot be `Warning`".to_owned()));
    }
}

//! Filters that write a text, a number, a time or a path for a reader.
//!
//! Each takes an absent value and null and returns them as they are. So the text of one event
//! prints nothing for them, and a template guards them by `default`. A text is what a template
//! printed into it, without placeholders (`Expand`).

use std::borrow::Cow;

use jiff::{civil, fmt::strtime, tz::TimeZone};
use journal::time::Timestamp;
use minijinja::{
    Error, State,
    value::{Serde, Value, ValueKind},
};
use serde_json::{Map, Value as Json};

use super::{
    account::{
        Price::{self, All, Items, One},
        account, admit_text, weigh,
    },
    operators::invalid,
};
use crate::event::{cut_text, mask_value, strip_text};

/// Longest format of `date`, in bytes: each directive writes some 200 characters at most.
const DATE_FORMAT_BYTES_MAX: usize = 100;
const DATE_FORMAT: &str = "%Y-%m-%d %H:%M";
/// Most digits after the point of `percent`.
const DIGITS_MAX: usize = 10;
/// Bytes of a text that is percent-encoded, for each of its own at most.
const ENCODED_BYTES: usize = 3;

/// The filters, each with its price.
pub(super) fn filters() -> Vec<(&'static str, Price, Value)> {
    vec![
        ("truncate", All, Value::from_function(truncate)),
        ("duration", One, Value::from_function(duration)),
        ("date", Items, Value::from_function(date)),
        ("bytes", One, Value::from_function(bytes)),
        ("percent", One, Value::from_function(percent)),
        ("basename", Items, Value::from_function(basename)),
        ("plural", Items, Value::from_function(plural)),
        ("fromjson", All, Value::from_function(from_json)),
        ("urlencode", All, Value::from_function(url_encode)),
    ]
}

/// Whether a filter returns `value` as it is.
pub(in crate::pipeline) fn is_absent(value: &Value) -> bool {
    value.is_undefined() || value.is_none()
}

/// A value as text.
///
/// Errors: a list or a map.
pub(in crate::pipeline) fn text<'v>(filter: &str, value: &'v Value) -> Result<Cow<'v, str>, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.into());
    }
    if matches!(value.kind(), ValueKind::Number | ValueKind::Bool) {
        return Ok(value.to_string().into());
    }
    Err(invalid(format!("`{filter}` takes a text, not a {}", value.kind())))
}

/// A value as a number: also a text that is one.
///
/// Errors: another value, or a number that is not finite.
fn number(filter: &str, value: &Value) -> Result<f64, Error> {
    let number = match value.as_str() {
        Some(text) => text.trim().parse().ok(),
        None if value.is_number() => f64::try_from(value.clone()).ok(),
        None => None,
    };
    let number = number.filter(|number| number.is_finite());
    number.ok_or_else(|| invalid(format!("`{filter}` takes a number, not {}", described(value))))
}

fn described(value: &Value) -> String {
    match value.as_str() {
        Some(text) => format!("`{}`", cut_text(text.into(), 40)),
        None => format!("a {}", value.kind()),
    }
}

/// The first `chars_max` characters of a text, with the mark of a text that is cut. It cuts words, so
/// the argument of Jinja that allows it has no effect.
fn truncate(
    value: &Value,
    chars_max: usize,
    cuts_words: Option<bool>,
    end: Option<Value>,
) -> Result<Value, Error> {
    if cuts_words == Some(false) {
        return Err(invalid("`truncate` cuts at a character, also in a word".to_owned()));
    }
    if end.is_some() {
        return Err(invalid(
            "`truncate` writes a mark of its own where it cuts: it takes a number".to_owned(),
        ));
    }
    if is_absent(value) {
        return Ok(value.clone());
    }
    Ok(cut_text(text("truncate", value)?, chars_max).into_owned().into())
}

/// Milliseconds as `350ms`, `1.5s`, `1m31s`, `9h12m` or `3d4h`.
fn duration(value: &Value) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    let millis = number("duration", value)?.round();
    let sign = if millis < 0.0 { "-" } else { "" };
    // A number too large for milliseconds is the largest one.
    let millis = whole(millis.abs());
    let (seconds, minutes, hours, days) =
        (millis / 1_000, millis / 60_000, millis / 3_600_000, millis / 86_400_000);
    Ok(Value::from(match (days, hours, minutes, seconds) {
        (0, 0, 0, 0) => format!("{sign}{millis}ms"),
        (0, 0, 0, seconds) => match millis % 1_000 / 100 {
            0 => format!("{sign}{seconds}s"),
            tenths => format!("{sign}{seconds}.{tenths}s"),
        },
        (0, 0, minutes, seconds) => format!("{sign}{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes, _) => format!("{sign}{hours}h{:02}m", minutes % 60),
        (days, hours, ..) => format!("{sign}{days}d{}h", hours % 24),
    }))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive, and saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}

/// A time in UTC, by a format of `strftime`.
fn date(value: &Value, format: Option<&str>) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    let at = time("date", value)?;
    formatted(format.unwrap_or(DATE_FORMAT), at).map(Value::from).map_err(invalid)
}

/// A format of `date` that is used with any time.
///
/// Errors: why it cannot be.
pub(super) fn check_date_format(format: &str) -> Result<(), String> {
    formatted(format, jiff::Timestamp::default()).map(|_| ())
}

fn formatted(format: &str, at: jiff::Timestamp) -> Result<String, String> {
    if format.len() > DATE_FORMAT_BYTES_MAX {
        return Err(format!("a format of `date` has at most {DATE_FORMAT_BYTES_MAX} bytes"));
    }
    strtime::format(format, &at.to_zoned(TimeZone::UTC))
        .map_err(|_| format!("`{format}` is not a format of `date`, such as `{DATE_FORMAT}`"))
}

/// A time: RFC 3339, a date and a time of UTC, or milliseconds since 1970.
///
/// Errors: another value.
pub(in crate::pipeline) fn time(filter: &str, value: &Value) -> Result<jiff::Timestamp, Error> {
    let at = match value.as_str() {
        Some(text) => text.parse().ok().or_else(|| {
            let civil: civil::DateTime = text.parse().ok()?;
            civil.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp())
        }),
        None if value.is_number() => {
            let millis = i64::try_from(value.clone()).ok();
            millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok())
        }
        None => None,
    };
    at.ok_or_else(|| {
        let now = Timestamp::from_millis(1_767_603_600_000);
        invalid(format!(
            "`{filter}` takes a time such as {now} or milliseconds since 1970, not {}",
            described(value)
        ))
    })
}

/// A number of bytes as `512 B` or `1.5 MiB`.
fn bytes(value: &Value) -> Result<Value, Error> {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if is_absent(value) {
        return Ok(value.clone());
    }
    let count = number("bytes", value)?.round();
    if count.abs() < 1024.0 {
        return Ok(format!("{count:.0} B").into());
    }
    let mut units = UNITS.into_iter();
    let (mut size, mut unit) = (count / 1024.0, units.next().unwrap_or_default());
    // 1,023.96 would be written as 1024.0.
    while let (true, Some(next)) = (size.abs() >= 1023.95, units.as_slice().first()) {
        (size, unit) = (size / 1024.0, next);
        units.next();
    }
    let size = format!("{size:.1}");
    Ok(format!("{} {unit}", size.strip_suffix(".0").unwrap_or(&size)).into())
}

/// A share of 1 as `26%`, with `digits` digits after the point.
fn percent(value: &Value, digits: Option<usize>) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    let digits = digits.unwrap_or(0);
    if digits > DIGITS_MAX {
        return Err(invalid(format!("`percent` writes at most {DIGITS_MAX} digits")));
    }
    let share = number("percent", value)? * 100.0;
    Ok(format!("{share:.digits$}%").into())
}

/// The last part of a path.
fn basename(value: &Value) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    let path = text("basename", value)?;
    let whole = path.trim_end_matches(['/', '\\']);
    Ok(whole.rsplit(['/', '\\']).next().filter(|name| !name.is_empty()).unwrap_or(&path).into())
}

/// `one` for a count of 1, else `many`; a list or map has the count of its items.
fn plural(value: &Value, one: &str, many: &str) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    let is_one = match value.as_object().and_then(|_| value.len()) {
        Some(count) => count == 1,
        None => (number("plural", value)? - 1.0).abs() < f64::EPSILON,
    };
    Ok(Value::from(if is_one { one } else { many }))
}

/// The value of a JSON text. Its texts are cleaned as those of an event are, because escapes in it
/// hide characters.
fn from_json(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    let json = text("fromjson", value)?;
    let account = account(state)?;
    admit_text(&account, json.len())?;
    let mut read: Json =
        serde_json::from_str(&json).map_err(|error| invalid(format!("the text is not JSON: {error}")))?;
    strip(&mut read);
    mask_value(&mut read);
    let read = Value::from(Serde(read));
    weigh(&account, &read)?;
    Ok(read)
}

fn strip(value: &mut Json) {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
        Json::String(text) => {
            if let Cow::Owned(stripped) = strip_text(text) {
                *text = stripped;
            }
        }
        Json::Array(items) => items.iter_mut().for_each(strip),
        Json::Object(fields) => {
            let stripped = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                strip(&mut value);
                (strip_text(&name).into_owned(), value)
            });
            *fields = stripped.collect::<Map<_, _>>();
        }
    }
}

/// A text as a part of a URL: all but letters, digits, `-`, `_`, `.`, `~` and `/` is percent-encoded.
fn url_encode(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    if is_absent(value) {
        return Ok(value.clone());
    }
    let text = text("urlencode", value)?;
    admit_text(&*account(state)?, text.len().saturating_mul(ENCODED_BYTES))?;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let digits = [byte >> 4, byte & 15].map(|digit| HEX.get(usize::from(digit)).copied());
            encoded.push('%');
            encoded.extend(digits.into_iter().flatten());
        }
    }
    Ok(encoded.into())
}

//! Tables of TOML as JSON.

use serde_json::Value as Json;
use toml::de::DeValue;

use crate::config::raw::{Parsed, Value};

/// A table as a JSON object.
pub(crate) fn object(value: &Value<'_>) -> Parsed<Json> {
    let json = value.get().as_table().is_some().then(|| to_json(value.get()));
    match json {
        None => Err(value.wrong_kind("a table")),
        Some(None) => {
            Err(vec![value.error(format!("`{}` holds a number that JSON does not have", value.name()))])
        }
        Some(Some(json)) => Ok(json),
    }
}

/// The same value in JSON, a date as its text; `None` if it holds a number that JSON cannot
/// represent.
fn to_json(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        DeValue::String(text) => Json::from(text.as_ref()),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok()?.into(),
        DeValue::Float(float) => serde_json::Number::from_f64(float.as_str().parse().ok()?)?.into(),
        DeValue::Boolean(flag) => Json::from(*flag),
        DeValue::Datetime(datetime) => Json::from(datetime.to_string()),
        DeValue::Array(items) => {
            Json::Array(items.iter().map(|item| to_json(item.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let entry =
                |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, &toml::Spanned<DeValue<'_>>)| {
                    Some((key.get_ref().to_string(), to_json(value.get_ref())?))
                };
            Json::Object(table.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_becomes_the_json_that_means_the_same() {
        let table = toml::de::DeTable::parse(
            "a = [1, 0x10, -2.5, true, 'x', { b = [] }]\nc.d = 2026-11-21T12:00:00Z\n",
        );
        let value = DeValue::Table(table.expect("TOML").into_inner());
        let json = serde_json::json!({
            "a": [1, 16, -2.5, true, "x", { "b": [] }],
            "c": { "d": "2026-11-21T12:00:00Z" },
        });
        assert_eq!(to_json(&value), Some(json));
    }

    #[test]
    fn numbers_that_json_does_not_have_are_refused() {
        for number in ["inf", "nan", "99999999999999999999"] {
            let text = format!("a = {number}");
            let table = toml::de::DeTable::parse(&text).expect("TOML");
            assert_eq!(to_json(&DeValue::Table(table.into_inner())), None, "{number}");
        }
    }
}

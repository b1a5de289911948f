//! The comparisons of a condition, each with the values that it compared in an event.
//!
//! Each part is compiled and run like the whole condition. The comparisons that decide are those at
//! which the whole one stops: of `a and b` that is false the first one that is false, of `a or b` that is
//! false both.

use std::sync::Arc;

use minijinja::value::Value;

use super::{Condition, ConditionFailure, ENVIRONMENT, EventView, GRAMMAR, message};
use crate::{
    event::{Event, clean_text, mask_secrets},
    pipeline::sandbox::{Compares, Joined, Part, Program, joined},
};

/// Most characters of a shown value.
const VALUE_CHARS_MAX: usize = 60;

/// A comparison, and what it compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Its text in the condition.
    pub text: String,
    /// What it found, such as `"eu" is not "us"`.
    pub says: String,
    /// Whether it is true; `None` if it could not be evaluated.
    pub is_true: Option<bool>,
    /// Whether the condition is true, or false, because of it.
    pub decides: bool,
}

/// The value of a part of the condition: its truth, and the numbers of the comparisons that decide it.
type Decided = (Option<bool>, Vec<usize>);

impl Condition {
    /// Its comparisons, those that decide first; none if it does not compile.
    pub fn compare(&self, event: &Arc<Event>) -> Vec<Comparison> {
        if self.compiled().is_err() {
            return Vec::new();
        }
        let Ok(joined) = joined(&self.source) else { return Vec::new() };
        let mut all = Vec::new();
        let (_, deciding) = self.decide(&joined, event, &mut all);
        for number in deciding {
            all.get_mut(number).expect("it is the number of one").decides = true;
        }
        all.sort_by_key(|one| !one.decides);
        all
    }

    /// Evaluates a part, and adds its comparisons to `all`, in the order of the text.
    fn decide(&self, joined: &Joined, event: &Arc<Event>, all: &mut Vec<Comparison>) -> Decided {
        match joined {
            Joined::Both(both) => self.decide_two(both, false, event, all),
            Joined::Either(either) => self.decide_two(either, true, event, all),
            Joined::Not(inner) => {
                let (is_true, deciding) = self.decide(inner, event, all);
                (is_true.map(|is_true| !is_true), deciding)
            }
            Joined::One(part) => {
                let one = self.comparison(part, event);
                let decided = (one.is_true, vec![all.len()]);
                all.push(one);
                decided
            }
        }
    }

    /// Evaluates two parts, of which the first ends it if it is `ending` or fails.
    fn decide_two(
        &self,
        [left, right]: &[Joined; 2],
        ending: bool,
        event: &Arc<Event>,
        all: &mut Vec<Comparison>,
    ) -> Decided {
        let (first, mut deciding) = self.decide(left, event, all);
        let (second, others) = self.decide(right, event, all);
        match (first, second) {
            (None, _) => (None, deciding),
            (Some(is_true), _) if is_true == ending => (first, deciding),
            (_, None) => (None, others),
            (_, Some(is_true)) if is_true == ending => (second, others),
            _ => {
                deciding.extend(others);
                (second, deciding)
            }
        }
    }

    fn comparison(&self, part: &Part, event: &Arc<Event>) -> Comparison {
        let text = self.source.get(part.range.clone()).unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let tested = self.run_part(&part.path, event, |value| value.is_true());
        let (is_true, says) = match tested {
            Err(failure) => (None, failure.message),
            Ok(is_true) => {
                let shown = |path: &Vec<usize>| self.run_part(path, event, |value| shown(&value));
                let values: Vec<String> = part.operands.iter().flat_map(shown).collect();
                (Some(is_true), says(part.compares, is_true, &values))
            }
        };
        Comparison { text, says, is_true, decides: false }
    }

    /// Runs a part of it, which is compiled for that.
    fn run_part<T>(
        &self,
        path: &[usize],
        event: &Arc<Event>,
        read: impl FnOnce(Value) -> T,
    ) -> Result<T, ConditionFailure> {
        let (program, _) = Program::part(Arc::clone(&self.source), path, &GRAMMAR)
            .map_err(|fault| ConditionFailure { message: fault.message })?;
        let view = Value::from_object(EventView(Arc::clone(event)));
        program
            .run(&ENVIRONMENT, view, &mut String::new(), |value, _| read(value.unwrap_or_default()))
            .map_err(|error| ConditionFailure { message: message(&error) })
    }
}

/// A value for people: a text in quotes, without secrets and of a bounded length.
fn shown(value: &Value) -> String {
    if value.is_undefined() {
        return "absent".to_owned();
    }
    let text = match value.as_str() {
        Some(text) => {
            let masked = mask_secrets(text);
            serde_json::to_string(&*clean_text(&masked))
        }
        None => serde_json::to_string(value).map(|text| mask_secrets(&text).into_owned()),
    };
    let text = text.unwrap_or_else(|_| value.to_string());
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((end, _)) => format!("{}\u{2026}", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// What a comparison of these values found.
fn says(compares: Compares, is_true: bool, values: &[String]) -> String {
    let (is, words) = match compares {
        Compares::Equal => (is_true, ""),
        Compares::Unequal => (!is_true, ""),
        Compares::Below => (is_true, "below "),
        Compares::AtMost => (is_true, "at most "),
        Compares::Above => (is_true, "above "),
        Compares::AtLeast => (is_true, "at least "),
        Compares::In => (is_true, "in "),
        Compares::NotIn => (!is_true, "in "),
        Compares::Row => return format!("the values are {}", values.join(", ")),
        Compares::Test | Compares::Nothing => return format!("it is {}", values.join(", ")),
    };
    let is = if is { "is" } else { "is not" };
    let [left, right] = values else { return values.join(", ") };
    format!("{left} {is} {words}{right}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::tests::event;

    /// The comparisons for an event with these fields, one a line: `!` for one that decides.
    fn compared(source: &str, fields: &str) -> Vec<String> {
        let condition = Condition::compile(source).expect(source);
        let event = event(fields);
        let compared = condition.compare(&event);
        let whole = condition.test(&event).ok();
        let deciding = compared.iter().filter(|one| one.decides).map(|one| one.is_true);
        // Without `not` each comparison that decides has the truth of the whole.
        if !source.contains("not ") {
            assert!(deciding.into_iter().all(|is_true| is_true == whole), "{source}: {compared:?}");
        }
        let line =
            |one: &Comparison| format!("{}{}: {}", if one.decides { "!" } else { "" }, one.text, one.says);
        compared.iter().map(line).collect()
    }

    #[test]
    fn comparisons_show_values_and_what_decides() {
        let fields = r#""zone":"eu","n":3,"none":null,"tags":["a","b"],"deep":{"x":1}"#;
        for (source, expected) in [
            ("payload.zone == 'us'", &[r#"!payload.zone == 'us': "eu" is not "us""#][..]),
            ("payload.zone != 'eu'", &[r#"!payload.zone != 'eu': "eu" is "eu""#]),
            (
                "payload.n > 1 and payload.zone == 'us' and payload.absent",
                &[
                    r#"!payload.zone == 'us': "eu" is not "us""#,
                    "payload.n > 1: 3 is above 1",
                    "payload.absent: it is absent",
                ],
            ),
            (
                "payload.n > 5 or payload.n < 2",
                &["!payload.n > 5: 3 is not above 5", "!payload.n < 2: 3 is not below 2"],
            ),
            (
                "payload.n >= 3 or payload.zone == 'us'",
                &["!payload.n >= 3: 3 is at least 3", r#"payload.zone == 'us': "eu" is not "us""#],
            ),
            (
                "not (payload.zone == 'eu' and payload.n <= 3)",
                &[r#"!payload.zone == 'eu': "eu" is "eu""#, "!payload.n <= 3: 3 is at most 3"],
            ),
            (
                "(payload.absent or payload.n) * 2 == 7",
                &["!(payload.absent or payload.n) * 2 == 7: 6 is not 7"],
            ),
            (
                "payload.zone not in ['eu', 'us']",
                &[r#"!payload.zone not in ['eu', 'us']: "eu" is in ["eu","us"]"#],
            ),
            ("'c' in payload.tags", &[r#"!'c' in payload.tags: "c" is not in ["a","b"]"#]),
            ("0 < payload.absent < 5", &["!0 < payload.absent < 5: the values are 0, absent, 5"]),
            ("payload.absent is defined", &["!payload.absent is defined: it is absent"]),
            ("payload.none is not none", &["!payload.none is not none: it is null"]),
            ("payload.deep.x|string == '2'", &[r#"!payload.deep.x|string == '2': "1" is not "2""#]),
            (
                "payload.zone > 3 and payload.n == 3",
                &[
                    "!payload.zone > 3: invalid operation: a string and a number have no order",
                    "payload.n == 3: 3 is 3",
                ],
            ),
        ] {
            assert_eq!(compared(source, fields), expected, "{source}");
        }
    }

    #[test]
    fn a_shown_value_is_short_and_clean() {
        let fields = format!(r#""text":"{}","line":"a\u001b[1m\nb""#, "x".repeat(99));
        let [long] = &compared("payload.text == 'y'", &fields)[..] else { panic!("one comparison") };
        assert!(long.ends_with("x\u{2026} is not \"y\""), "{long}");
        assert_eq!(compared("payload.line == 'y'", &fields), [r#"!payload.line == 'y': "a\nb" is not "y""#]);
    }
}

//! Answers of the API in the pages, compared with those of a run: the same fields with the same values,
//! but for ids, positions and times.

use serde_json::Value;

use super::variable::Plain;

/// Fields whose values differ between runs; what is left of an hour depends on the tokens of an id.
const VARIABLE: [&str; 10] =
    ["id", "injection", "notification", "seq", "events", "age_ms", "behind", "hash", "pid", "hour"];
/// The end of a text of which a page shows the beginning.
const CUT: &str = "..";

/// The places at which the answer of a run differs from that of the page.
pub(super) fn differences(page: &Value, run: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(page, run, "", &mut found);
    found
}

fn compare(page: &Value, run: &Value, path: &str, found: &mut Vec<String>) {
    let is_variable = VARIABLE.contains(&path.rsplit('.').next().unwrap_or_default());
    match (page, run) {
        (Value::Object(fields), Value::Object(own)) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                match own.get(name) {
                    Some(own) => compare(value, own, &path, found),
                    None => found.push(format!("{path} is not in the answer")),
                }
            }
            let missing = own.iter().filter(|(name, _)| !fields.contains_key(*name));
            found.extend(missing.map(|(name, value)| format!("{path}.{name}: {value} is not in the page")));
        }
        (Value::Array(items), Value::Array(own)) if items.len() == own.len() => {
            let pairs = items.iter().zip(own).enumerate();
            pairs.for_each(|(index, (item, own))| compare(item, own, &format!("{path}[{index}]"), found));
        }
        (Value::String(text), Value::String(own)) if is_same(text, own) => {}
        (page, run) if page == run || (is_variable && is_of_kind(page, run)) => {}
        (page, run) => found.push(format!("{path} is {run}, and in the page {page}")),
    }
}

fn is_same(page: &str, run: &str) -> bool {
    let is_begin = page.strip_suffix(CUT).is_some_and(|begin| run.starts_with(begin.trim_end()));
    is_begin || Plain::of(page).lines == Plain::of(run).lines
}

fn is_of_kind(page: &Value, run: &Value) -> bool {
    (page.is_string() && run.is_string()) || (page.is_number() && run.is_number())
}

#[test]
fn only_ids_and_positions_of_answers_differ() {
    let differ = |page: &str, run: &str| {
        let [page, run] = [page, run].map(|text| serde_json::from_str(text).expect("JSON"));
        differences(&page, &run)
    };
    let page = r#"{"seq":33,"id":"n0a1b2c","at":"2026-11-21T08:31:09.346Z","text":"why n0a1b2c: a long .."}"#;
    let run = r#"{"seq":1,"id":"n999999","at":"2027-01-01T00:00:00Z","text":"why n0a1b2c: a long text"}"#;
    assert_eq!(differ(page, run), [""; 0]);
    assert_eq!(differ(r#"{"a":[1]}"#, r#"{"a":[2]}"#), [".a[0] is 2, and in the page 1"]);
    assert_eq!(differ("{}", r#"{"a":1}"#), [".a: 1 is not in the page"]);
    assert_eq!(differ(r#"{"id":"x"}"#, r#"{"id":1}"#), [".id is 1, and in the page \"x\""]);
}

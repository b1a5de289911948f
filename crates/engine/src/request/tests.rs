use super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    alias: Option<Text<'a>>,
    count: Option<u32>,
    is_on: Option<bool>,
    items: Option<Vec<String>>,
    #[serde(default, deserialize_with = "one_or_many")]
    lines: Vec<String>,
    #[serde(default, deserialize_with = "optional_word")]
    kind: Option<Kind>,
    #[serde(default, deserialize_with = "object")]
    inner: Option<Inner>,
    #[serde(default, deserialize_with = "object")]
    strict: Option<Strict>,
    any: Option<serde_json::Value>,
    code: Option<i32>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    First,
    Second,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    total: u64,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    #[serde(deserialize_with = "word")]
    kind: Kind,
}

#[test]
fn single_string_reads_as_a_list() {
    for (lines, expected) in
        [(r#""a""#, &["a"][..]), (r#"["a","b"]"#, &["a", "b"]), ("[]", &[]), ("null", &[])]
    {
        let text = format!(
            r#"{{"name":"n","lines":{lines},"kind":null,"inner":null,"strict":{{"kind":"second"}}}}"#
        );
        let found: Outer<'_> = read(&text).expect("an object");
        assert_eq!(found.lines, expected);
        assert_eq!((found.kind, found.inner), (None, None));
        assert_eq!(found.strict, Some(Strict { kind: Kind::Second }));
    }
}

#[test]
fn plain_text_is_borrowed_and_escaped_text_decoded() {
    let found: Outer<'_> = read(r#"{"name":"plain","alias":"\u00e4\n","count":null}"#).expect("an object");
    assert!(matches!(found.name.0, Cow::Borrowed("plain")));
    assert_eq!(found.alias.as_deref(), Some("\u{e4}\n"));
    let found: Outer<'_> = read(r#"{"name":"n","alias":"a"}"#).expect("an object");
    assert!(matches!(found.alias, Some(Text(Cow::Borrowed("a")))));
}

#[test]
fn invalid_value_error_names_its_place() {
    let long = format!(r#"{{"{}":1}}"#, "k".repeat(100));
    let deep = |field: &str| format!(r#"{{"name":"a","{field}":{}1{}}}"#, "[".repeat(128), "]".repeat(128));
    let (deep_lines, deep_any) = (deep("lines"), deep("any"));
    for (text, expected) in [
        ("[1]", "must be a JSON object, not an array"),
        ("", "is not JSON: EOF while parsing a value at line 1 column 0"),
        ("{} {}", "is not JSON: trailing characters at line 1 column 4"),
        (r#"{"name":"a" "#, "is not JSON: EOF while parsing an object at line 1 column 12"),
        ("{}", "name: is missing"),
        (r#"{"name":null}"#, "name: is missing"),
        (r#"{"nam":1}"#, "nam: unknown field; did you mean `name`?"),
        (
            r#"{"co`lor":1}"#,
            "co`lor: unknown field; use one of name, alias, count, is_on, items, lines, kind, inner, strict, any, code",
        ),
        (r#"{"name":"a","name":"b"}"#, "name: is given twice"),
        (r#"{"name":"\ud800"}"#, "name: is not text: unexpected end of hex escape"),
        (r#"{"name":7}"#, "name: must be a string, not a number"),
        (r#"{"name":{}}"#, "name: must be a string, not an object"),
        (r#"{"name":"a","alias":true}"#, "alias: must be a string, not a boolean"),
        (r#"{"name":"a","count":-1}"#, "count: must be a whole number up to 4294967295, not `-1`"),
        (r#"{"name":"a","count":"x"}"#, "count: must be a whole number up to 4294967295, not a string"),
        (
            r#"{"name":"a","code":2147483648}"#,
            "code: must be a whole number from -2147483648 to 2147483647, not `2147483648`",
        ),
        (r#"{"name":"a","is_on":"yes"}"#, "is_on: must be true or false, not a string"),
        (r#"{"name":"a","items":"x"}"#, "items: must be an array, not a string"),
        (r#"{"name":"a","items":["x",[]]}"#, "items[1]: must be a string, not an array"),
        (r#"{"name":"a","kind":"frist"}"#, "kind: `frist` is not allowed; did you mean `first`?"),
        (r#"{"name":"a","kind":"other"}"#, "kind: `other` is not allowed; use one of first, second"),
        (r#"{"name":"a","items":["x",null]}"#, "items[1]: must be a string, not null"),
        (r#"{"name":"a","lines":7}"#, "lines: must be a string or an array of strings, not a number"),
        (r#"{"name":"a","lines":["x",7]}"#, "lines[1]: must be a string, not a number"),
        (&deep_lines, "lines[0]: must be a string, not an array"),
        (&deep_any, "any: is nested too deeply"),
        (r#"{"name":1e999}"#, "name: is too large a number"),
        (r#"{"name":"a","count":1e999}"#, "count: is too large a number"),
        (
            r#"{".":1}"#,
            ".: unknown field; use one of name, alias, count, is_on, items, lines, kind, inner, strict, any, code",
        ),
        (r#"{"name":"a","kind":7}"#, "kind: must be a string, not a number"),
        (r#"{"name":"a","kind":{"first":1}}"#, "kind: must be a string, not an object"),
        (r#"{"name":"a","kind":{"first":null}}"#, "kind: must be a string, not an object"),
        (r#"{"name":"a","kind":"\ud800"}"#, "kind: is not text: unexpected end of hex escape"),
        (r#"{"name":"a","strict":{"kind":null}}"#, "strict.kind: is missing"),
        (r#"{"name":"a","strict":{}}"#, "strict.kind: is missing"),
        (
            r#"{"name":"a","strict":{"kind":"frist"}}"#,
            "strict.kind: `frist` is not allowed; did you mean `first`?",
        ),
        (r#"{"name":"a","inner":[1]}"#, "inner: must be a JSON object, not an array"),
        (r#"{"name":"a","inner":[1,2]}"#, "inner: must be a JSON object, not an array"),
        (r#"{"name":"a","inner":7}"#, "inner: must be a JSON object, not a number"),
        (r#"{"name":"a","inner":{}}"#, "inner.total: is missing"),
        (r#"{"name":"a","inner":{"totl":1}}"#, "inner.totl: unknown field; did you mean `total`?"),
        (r#"{"name":"a","inner":{"total":-1}}"#, "inner.total: must be a whole number, not `-1`"),
    ] {
        assert_eq!(read::<Outer<'_>>(text).expect_err(text).to_string(), expected);
    }
    let error = read::<Outer<'_>>(&long).expect_err("no such field");
    assert_eq!(error.field.expect("its place").len(), "k".repeat(64).len() + "...".len());
}

#[test]
fn a_long_text_keeps_both_ends() {
    for (long, unit) in [("a".repeat(9_000_000), 'a'), ("\u{e4}".repeat(1_001), '\u{e4}')] {
        let error = shortened(format!("invalid type: string \"{long}\", expected a map at line 1 column 5"));
        assert_eq!(error.chars().count(), CHARS_MAX);
        assert!(error.starts_with(&format!("invalid type: string \"{unit}")), "{error}");
        assert!(error.ends_with(&format!("{unit}\", expected a map at line 1 column 5")), "{error}");
    }
    let fits = "\u{e4}".repeat(CHARS_MAX);
    assert_eq!(shortened(fits.clone()), fits);
}

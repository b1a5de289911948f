//! Documents of real tools, and invalid documents.

use super::*;

pub(super) fn rows(problems: &[Problem]) -> Vec<String> {
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    let row = |problem: &Problem| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!(
            "{}:{}:{} {} [{}] {}",
            text(&problem.file),
            number(problem.line),
            number(problem.column),
            problem.severity.as_str(),
            text(&problem.code),
            problem.message
        )
    };
    problems.iter().map(row).collect()
}

/// A format, a document of it, and the problems in it.
const DOCUMENTS: &[(Format, &str, &[&str])] = &[
    (
        Format::CargoJson,
        concat!(
            r#"{"reason":"compiler-artifact","fresh":true}"#,
            "\nnot json\n",
            r#"{"reason":"compiler-message","message":{"message":"unused import","level":"warning","code":{"code":"unused_imports"},"spans":[{"file_name":"src/b.rs","line_start":9,"column_start":1,"is_primary":false},{"file_name":"src/a.rs","line_start":3,"column_start":5,"is_primary":true}]}}"#,
            "\n",
            r#"{"reason":"compiler-message","message":{"message":"aborting due to 1 previous error","level":"error","code":null,"spans":[]}}"#,
            "\n",
            r#"{"$message_type":"diagnostic","message":"no","code":null,"level":"error","spans":[{"file_name":"a.rs","line_start":1,"column_start":2,"is_primary":true}]}"#,
        ),
        &["src/a.rs:3:5 warning [unused_imports] unused import", "a.rs:1:2 error [] no"],
    ),
    (
        Format::GoTestJson,
        concat!(
            r#"{"Action":"build-output","ImportPath":"x","Output":"./a.go:4:2: undefined: y\n"}"#,
            "\n",
            r#"{"Action":"output","Package":"x","Test":"TestA/one","Output":"    a_test.go:7: want 1, got 2\n"}"#,
            "\n",
            r#"{"Action":"output","Package":"x","Test":"TestA/one","Output":"    a_test.go:8: later\n"}"#,
            "\n",
            r#"{"Action":"fail","Package":"x","Test":"TestA/one"}"#,
            "\n",
            r#"{"Action":"fail","Package":"x","Test":"TestA"}"#,
            "\n",
            r#"{"Action":"output","Package":"x","Test":"TestC","Output":"    a_test.go:9: logged\n"}"#,
            "\n",
            r#"{"Action":"pass","Package":"x","Test":"TestC"}"#,
            "\n",
            r#"{"Action":"fail","Package":"x","Test":"TestB"}"#,
            "\n",
            r#"{"Action":"fail","Package":"x"}"#,
        ),
        &[
            "./a.go:4:2 error [] undefined: y",
            "a_test.go:7: error [TestA/one] want 1, got 2",
            ":: error [TestB] a test of x failed",
        ],
    ),
    (
        Format::EslintJson,
        r#"[{"filePath":"/w/a.js","messages":[{"ruleId":"semi","severity":2,"message":"Missing semicolon.","line":1,"column":9},{"ruleId":null,"severity":1,"message":"odd"}]},{"filePath":"/w/b.js","messages":[]}]"#,
        &["/w/a.js:1:9 error [semi] Missing semicolon.", "/w/a.js:: warning [] odd"],
    ),
    (
        Format::Sarif,
        r#"{"version":"2.1.0","runs":[{"tool":{"driver":{"name":"x"}},"results":[
                {"ruleId":"R1","level":"error","message":{"text":"bad"},"locations":[{"physicalLocation":{"artifactLocation":{"uri":"file:///w/a%20b.c"},"region":{"startLine":3,"startColumn":4}}}]},
                {"rule":{"id":"R2"},"message":{"text":"so so"}},
                {"ruleId":"R3","kind":"pass","message":{"text":"fine"}},
                {"ruleId":"R4","message":{"text":"known"},"suppressions":[{"kind":"inSource"}]}]},{"results":null}]}"#,
        &["/w/a b.c:3:4 error [R1] bad", ":: warning [R2] so so"],
    ),
    (
        Format::Junit,
        r#"<?xml version="1.0"?><testsuites><testsuite name="s">
                <testcase classname="tests.test_a" name="test_x" time="0.1"><failure message="assert 1 == 2">long</failure></testcase>
                <testcase classname="c" name="n" file="a.py" line="12"><error type="E">

                  Traceback &lt;here&gt;
                </error></testcase>
                <testcase classname="c" name="ok"/><testcase name="skipped"><skipped/></testcase>
                <testcase name="bare"><failure/></testcase></testsuite></testsuites>"#,
        &[
            ":: error [tests.test_a::test_x] assert 1 == 2",
            "a.py:12: error [n] Traceback <here>",
            ":: error [bare] failed",
        ],
    ),
];

#[test]
fn a_document_gives_its_problems() {
    for (format, text, expected) in DOCUMENTS {
        assert_eq!(rows(&format.read(text).expect("right")), *expected, "{format:?}");
    }
}

#[test]
fn invalid_document_is_refused_with_its_place() {
    let many = "<!ENTITY a \"xxxxxxxxxx\">".repeat(10);
    for (format, text, expected) in [
        (
            Format::EslintJson,
            "[{\"filePath\": 1}]".to_owned(),
            "[0].filePath: invalid type: integer `1`, expected a string at line 1 column 14",
        ),
        (Format::Sarif, "{".to_owned(), "EOF while parsing an object at line 1 column 1"),
        (
            Format::Junit,
            "<a><b></a>".to_owned(),
            "ill-formed document: expected `</b>`, but `</a>` was found at 1:7",
        ),
        (
            Format::Junit,
            "<assemblies><a/></assemblies>".to_owned(),
            "`assemblies` has no `testsuite` and no `testcase` at 1:30",
        ),
        (Format::Junit, format!("<!DOCTYPE x [{many}]><x>&a;</x>"), "a document type is not allowed at 1:1"),
    ] {
        assert_eq!(format.read(&text).expect_err("wrong").to_string(), expected);
    }
}

#[test]
fn deep_and_large_documents_are_bounded() {
    let deep = "<a>".repeat(200_000);
    assert!(Format::Junit.read(&deep).is_err());
    assert!(Format::Sarif.read(&"[".repeat(200_000)).is_err());
    let many = "<x>".to_owned() + &"<testcase name='n'><failure/></testcase>".repeat(5_000) + "</x>";
    assert_eq!(Format::Junit.read(&many).expect("right").len(), PROBLEMS_MAX);
}

#[test]
fn hostile_reports_are_refused_in_linear_time() {
    const COUNT: usize = 100_000;
    let attributes: String = (0..COUNT).map(|at| format!(" a{at}='1'")).collect();
    let spaces: String = (0..COUNT).map(|at| format!(" xmlns:a{at}='u{at}'")).collect();
    let case = |inside: &str| format!("<t><testcase name='n'><failure>{inside}</failure></testcase></t>");
    for (document, expected) in [
        (format!("<t><testcase{attributes}/></t>"), "an element has more than 100 attributes at 1:4"),
        (format!("<t><testcase{spaces}/></t>"), "an element has more than 100 attributes at 1:4"),
        ("<a xmlns:n='u'>".repeat(COUNT), "elements are nested deeper than 100 levels at 1:1501"),
        (
            format!("<t><!--{}", "-".repeat(COUNT)),
            "syntax error: comment not closed: `-->` not found before end of input at 1:4",
        ),
        ("\0\u{fffd}".repeat(COUNT), "there is text outside of an element at 1:1"),
        ("<a>".to_owned(), "1 elements have no end at 1:4"),
        (String::new(), "there is no element at 1:1"),
        (case("&lol;"), "unknown entity `lol` at 1:32"),
    ] {
        let error = Format::Junit.read(&document).expect_err(expected).to_string();
        assert_eq!(error, expected);
    }
    for (inside, expected) in [
        ("&#65;".repeat(COUNT), "A".repeat(8 * 1024)),
        (" ".repeat(COUNT) + "end", "end".to_owned()),
        ("<![CDATA[<b>]]>".repeat(2), "<b><b>".to_owned()),
        ("<!---->".repeat(COUNT) + "a", "a".to_owned()),
        ("<p/>".repeat(COUNT), "failed".to_owned()),
    ] {
        let found = Format::Junit.read(&case(&inside)).expect("right");
        assert_eq!(found.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn hostile_json_reports_build_nothing() {
    const COUNT: usize = 100_000;
    let many = |part: &str| vec![part; COUNT].join(",");
    let empty = many("{}");
    let sarif = |result: &str| format!(r#"{{"runs":[{{"results":[{result}]}}]}}"#);
    for (format, document, count) in [
        (Format::Sarif, format!(r#"{{"x":[{empty}],"runs":[]}}"#), 0),
        (Format::Sarif, sarif(&many(r#"{"message":{}}"#)), PROBLEMS_MAX),
        (Format::Sarif, sarif(&format!(r#"{{"message":{{}},"locations":[{empty}]}}"#)), 1),
        (Format::Sarif, sarif(&format!(r#"{{"message":{{}},"suppressions":[{empty}]}}"#)), 0),
        (Format::EslintJson, format!("[{}]", many(r#"{"filePath":"a","messages":[]}"#)), 0),
        (Format::CargoJson, format!("{{\"message\":[{empty}]}}\n").repeat(3), 0),
        (Format::GoTestJson, "[".repeat(COUNT), 0),
    ] {
        assert_eq!(format.read(&document).expect("right").len(), count, "{format:?}");
    }
    for (document, expected) in [
        (r#"{"runs":7}"#.to_owned(), "runs: invalid type: integer `7`, expected an array at line 1 column 1"),
        (
            r#"{"runs":[{"results":[{"message":7}]}]}"#.to_owned(),
            "runs[0].results[0].message: invalid type: integer `7`, expected struct Message at line 1 column 12",
        ),
        ("{}".to_owned(), "missing field `runs` at line 1 column 2"),
    ] {
        assert_eq!(Format::Sarif.read(&document).expect_err("wrong").to_string(), expected);
    }
}

#[test]
fn an_error_quotes_a_part_of_the_document() {
    const COUNT: usize = 1_000_000;
    let long = "a".repeat(COUNT);
    for (format, document) in [
        (Format::Sarif, format!(r#"{{"runs":"{long}"}}"#)),
        (Format::Sarif, format!(r#"{{"runs":[{{"results":[{{"level":7,"{long}":7}}]}}]}}"#)),
        (Format::EslintJson, format!(r#"[{{"filePath":"a","messages":"{}"}}]"#, "\\u0041".repeat(COUNT))),
        (Format::Junit, format!("<{long}></b>")),
        (Format::Junit, format!("<t><testcase name='n'><failure>&{long};</failure></testcase></t>")),
    ] {
        let error = format.read(&document).expect_err("wrong").to_string();
        assert!(error.chars().count() <= 1_000, "{format:?}: {} characters", error.chars().count());
    }
}

#[test]
fn command_line_determines_the_output_format() {
    for (words, expected) in [
        ("cargo check --message-format=json", Some(Format::CargoJson)),
        ("cargo check --message-format=json-diagnostic-rendered-ansi", Some(Format::CargoJson)),
        ("cargo check --message-format json", Some(Format::CargoJson)),
        ("cargo check", None),
        ("go test -json ./...", Some(Format::GoTestJson)),
        ("npx eslint -f json .", Some(Format::EslintJson)),
        ("eslint --format=json .", Some(Format::EslintJson)),
        ("ruff check --output-format=sarif", Some(Format::Sarif)),
        ("jq -f json", None),
    ] {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(Format::of_command(&words), expected, "{words:?}");
    }
}

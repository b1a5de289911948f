//! The built-in matchers with real output of tools, and errors in files.

use super::*;
use crate::capability::problem::collector::{Collector, Stream};

/// The problems that the matchers of a name find in the output.
pub(super) fn found(name: &str, output: &[u8]) -> Vec<Problem> {
    let matchers = Matchers::shipped().named(name).expect("it ships");
    let mut collector = Collector::new(&matchers, None);
    collector.push(Stream::Stdout, output, |_| false);
    assert_eq!(collector.finish(), None);
    collector.found().get(name).cloned().unwrap_or_default()
}

/// Formats a problem as `file|line col C level code| message`, as in `.ok` files; absent fields are
/// empty.
pub(super) fn row(problem: &Problem) -> String {
    let number = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (line, column) = (number(problem.line), number(problem.column));
    format!(
        "{}:{line}:{column} {} [{}] {}",
        text(&problem.file),
        problem.severity.as_str(),
        text(&problem.code),
        problem.message
    )
}

/// A matcher, output of its tool, and the problems in it.
const OUTPUTS: &[(&str, &str, &[&str])] = &[
    (
        "tsc",
        "a.ts:1:7 - error TS2322: Type 'string' is not assignable.\n\n1 let",
        &["a.ts:1:7 error [TS2322] Type 'string' is not assignable."],
    ),
    ("tsc", "error TS18003: No inputs were found.\n", &[":: error [TS18003] No inputs were found."]),
    (
        "cargo",
        "error[E0425]: cannot find value `x` in this scope\n --> src/main.rs:2:5\n  |\nerror: could not compile `a` (bin) due to 1 previous error\n",
        &["src/main.rs:2:5 error [E0425] cannot find value `x` in this scope"],
    ),
    ("cargo", "warning: `a` (lib) generated 1 warning\n\n  --> a.rs:1:1\n", &[]),
    (
        "cargo",
        "thread 'tests::x' (77) panicked at src/lib.rs:10:9:\nassertion failed: false\n",
        &["src/lib.rs:10:9 error [tests::x] assertion failed: false"],
    ),
    (
        "gcc",
        "a.c: In function 'main':\na.c:3:5: warning: unused variable 'x' [-Wunused-variable]\na.c:9:1: fatal error: x.h: No such file\n",
        &["a.c:3:5 warning [-Wunused-variable] unused variable 'x'", "a.c:9:1 error [] x.h: No such file"],
    ),
    (
        "shellcheck",
        "a.sh:2:6: note: Double quote to prevent globbing. [SC2086]\n",
        &["a.sh:2:6 info [SC2086] Double quote to prevent globbing."],
    ),
    (
        "go",
        "# x\n./main.go:4:2: undefined: y\n--- FAIL: TestX (0.00s)\n    x_test.go:5: want 1\n",
        &["./main.go:4:2 error [] undefined: y", "x_test.go:5: error [] want 1"],
    ),
    (
        "python",
        "Traceback (most recent call last):\n  File \"a.py\", line 9, in <module>\n    f()\n  File \"b.py\", line 3, in f\n    return x.y\n           ^^^\nAttributeError: no y\n",
        &["b.py:3: error [AttributeError] no y"],
    ),
    (
        "python",
        "  File \"b.py\", line 3, in f\n    return x\nNameError: name 'x' is not defined\n",
        &["b.py:3: error [NameError] name 'x' is not defined"],
    ),
    (
        "pytest",
        "FAILED tests/test_a.py::test_x[1] - assert 1 == 2\n",
        &["tests/test_a.py:: error [test_x[1]] assert 1 == 2"],
    ),
    (
        "ruff",
        "F401 [*] `os` imported but unused\n --> a.py:1:8\n",
        &["a.py:1:8 error [F401] `os` imported but unused"],
    ),
    (
        "pylint",
        "a.py:1:0: C0114: Missing module docstring (missing-module-docstring)\n",
        &["a.py:1:0 info [missing-module-docstring] Missing module docstring"],
    ),
    (
        "hadolint",
        "Dockerfile:3 DL3008 warning: Pin versions\n",
        &["Dockerfile:3: warning [DL3008] Pin versions"],
    ),
    ("javac", "src/A.java:3: error: cannot find symbol\n", &["src/A.java:3: error [] cannot find symbol"]),
    ("javac", "[ERROR] /w/A.java:[3,9] cannot find symbol\n", &["/w/A.java:3:9 error [] cannot find symbol"]),
    (
        "msbuild",
        "A.cs(3,9): error CS0103: The name 'x' does not exist [/w/a.csproj]\n",
        &["A.cs:3:9 error [CS0103] The name 'x' does not exist"],
    ),
    (
        "php",
        "PHP Parse error:  syntax error, unexpected '}' in /w/a.php on line 3\n",
        &["/w/a.php:3: error [Parse] syntax error, unexpected '}'"],
    ),
    (
        "ruby",
        "a.rb:3:in `f': undefined local variable (NameError)\n",
        &["a.rb:3: error [NameError] undefined local variable"],
    ),
    ("vitest", " FAIL  src/a.test.ts > cart > adds\n", &["src/a.test.ts:: error [cart > adds] failed"]),
    ("jest", "  \u{25cf} cart \u{203a} adds\n", &[":: error [cart \u{203a} adds] failed"]),
    (
        "eslint",
        "/w/a.js\n  1:5  error  'x' is unused  no-unused-vars\n  2:1  warning  odd\n\n/w/b.js\n  3:1  error  no  semi\n",
        &[
            "/w/a.js:1:5 error [no-unused-vars] 'x' is unused",
            "/w/a.js:2:1 warning [] odd",
            "/w/b.js:3:1 error [semi] no",
        ],
    ),
];

#[test]
fn the_output_of_a_tool_gives_its_problems() {
    for (name, output, rows) in OUTPUTS {
        assert_eq!(
            found(name, output.as_bytes()).iter().map(row).collect::<Vec<_>>(),
            *rows,
            "{name}: {output}"
        );
    }
}

#[test]
fn a_command_line_names_its_matchers() {
    for (words, owners) in [
        ("tsc -w", &["tsc"][..]),
        ("npx tsc --watch", &["tsc", "eslint", "stylelint", "vitest", "jest", "playwright", "mocha", "node"]),
        ("/usr/bin/cargo +nightly clippy --all", &["cargo"]),
        ("cargo fmt", &[]),
        ("cargo install x", &[]),
        ("go -C x vet ./...", &[]),
        ("go vet ./...", &["go"]),
        ("echo hello", &[]),
        ("gcc a.c", &["gcc"]),
        ("uv run mypy .", &["python", "pytest", "mypy", "flake8", "ruff", "pylint"]),
    ] {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let mut found: Vec<String> =
            Matchers::shipped().of_command(&words).into_iter().map(|matcher| matcher.owner).collect();
        found.dedup();
        assert_eq!(found, owners, "{words:?}");
    }
    let words = ["sh", "-c", "while true; do cargo check; sleep 1; done"].map(str::to_owned);
    assert!(Matchers::shipped().of_command(&words).iter().any(|matcher| matcher.owner == "cargo"));
}

#[test]
fn matcher_file_error_names_its_place() {
    let one = |pattern: &str| format!(r#"{{"problemMatcher": [{{"owner": "x", "pattern": [{pattern}]}}]}}"#);
    for (text, expected) in [
        ("{".to_owned(), "m.json: 1:1: EOF while parsing an object"),
        (r#"{"problemMatchers": []}"#.to_owned(), "m.json: 1:18: problemMatchers: unknown field `problemMatchers`; did you mean `problemMatcher`?"),
        (one(r#"{"regexp": "(.)", "mesage": 1}"#), "m.json: 1:73: problemMatcher[0].pattern[0].mesage: unknown field `mesage`; did you mean `message`?"),
        (one(r#"{"regexp": "(.)", "message": "1"}"#), "m.json: 1:79: problemMatcher[0].pattern[0].message: invalid type: string \"1\", expected usize"),
        (one(r#"{"regexp": "(.)"}"#), "m.json: problemMatcher[0].pattern: no pattern has a `message`"),
        (one(r#"{"regexp": "(.)", "message": 2}"#), "m.json: problemMatcher[0].pattern[0].message: group 2 of a regexp that has 1"),
        (one(r#"{"regexp": "a(?!b)(.)", "message": 1}"#), "m.json: problemMatcher[0].pattern[0].regexp: negative look-ahead `(?!` is not supported at character 2; say what may stand there, or exclude whole lines with `^(?!...)` at the beginning"),
        (one(r#"{"regexp": "(.)", "message": 1, "loop": true}, {"regexp": "x"}"#), "m.json: problemMatcher[0].pattern[0].loop: only the last pattern can be a loop"),
        (one(""), "m.json: problemMatcher[0].pattern: 1 to 8 patterns are allowed"),
        (r#"{"problemMatcher": [{"owner": "none", "pattern": []}]}"#.to_owned(), "m.json: problemMatcher[0].owner: a name other than `none` is needed"),
        (r#"{"problemMatcher": [{"owner": "x", "severity": "bad", "pattern": [{"regexp": "(.)", "message": 1}]}]}"#.to_owned(),
            "m.json: problemMatcher[0].severity: \"bad\" is not one of error, warning, info"),
    ] {
        let error = Matchers::parse("m.json", &text).expect_err(&text);
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(Matchers::shipped().named("esling").expect_err("no such name").as_deref(), Some("eslint"));
}

#[test]
fn a_project_file_gives_the_folder() {
    let text = r#"{"problemMatcher": [{"owner": "x", "pattern": [
        {"regexp": "^(\\S+) (\\d+) (.*) \\[(.*)\\]$", "file": 1, "line": 2, "message": 3, "fromPath": 4}]}]}"#;
    let mut matchers = Matchers::parse("m.json", text).expect("right").all();
    let problem = matchers.first_mut().and_then(|matcher| matcher.line("a.cs 3 no [/w/p/a.csproj]"));
    assert_eq!(problem.map(|problem| row(&problem)).as_deref(), Some("/w/p/a.cs:3: error [] no"));
}

#[test]
fn shipped_expressions_match_long_lines_quickly() {
    let line = "src/a.rs:1:2: error: ".repeat(3_000);
    let found = Matchers::shipped().all().iter_mut().filter_map(|matcher| matcher.line(&line)).count();
    assert!(found > 0);
}

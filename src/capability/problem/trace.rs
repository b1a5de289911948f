//! The place and the reason in the text of a failure: a stack, a traceback, a failed assertion.
//!
//! Source: the texts that go, pytest, jest, vitest, mocha, JUnit, PHPUnit, RSpec, googletest and
//! libtest write for a failed test.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Endings of files of source code. A host such as `db.example.com:5432` has none of them.
const ENDINGS: &str = "go|[cm]?[jt]sx?|vue|svelte|pyx?|java|kts?|scala|groovy|rs|phpt?|rb|cs|fs|vb|cc|cpp|cxx|c|\
    hh|hpp|hxx|h|mm|m|swift|dart|exs?|erl|l?hs|lua|clj[cs]?|p[lm]|ml|zig|nim|cr|jl|bats|feature|robot|sh";
/// Paths of files that the user does not write: where each language's tools install libraries. A
/// folder of a project may have the name of one of these alone (`vendor`, `src/testing`,
/// `go/src/github.com`), so each path is known by more than one name.
const FOREIGN: &str = r"(?x)
    ^<
    # Node, and its packages.
    | ^node: | ^internal[/\\](?:process|modules|main|bootstrap|per_context)[/\\].*\.js$
    | (?:^|[/\\])node_modules[/\\] | (?:^|/)\.yarn/(?:berry|cache|unplugged|__virtual__)/
    # Python.
    | (?:^|[/\\])(?:site|dist)-packages[/\\] | /lib(?:64)?/(?:python|pypy)\d[\d.]*/ | (?i:\\python\d+\\lib\\)
    # Rust.
    | /rustc/[0-9a-f]+/ | /lib/rustlib/src/ | /registry/src/[^/]+-[0-9a-f]{16}/
    | /git/checkouts/[^/]+-[0-9a-f]{16}/ | (?:^|/)vendor/[^/]+/src/.*\.rs$
    # Go: its own packages have no dot in their names.
    | (?:^|/)go[-.\d]*/(?:\d[^/]*/)?(?:x64/|arm64/|libexec/)?src/
        (?:archive|bufio|bytes|cmp|compress|container|context|crypto|database|debug|embed|encoding|errors
        |expvar|flag|fmt|hash|html|image|internal|io|iter|log|maps|math|mime|net|os|path|plugin|reflect
        |regexp|runtime|slices|sort|strconv|strings|structs|sync|syscall|testing|text|time|unicode|unique
        |weak)/(?:[^/.]+/)*[^/]+\.(?:go|s)$
    | @v\d[^/]*/.*\.go$ | (?:^|/)vendor/[^/]+\.[^/]+/.*\.go$
    | ^testing/(?:testing|benchmark|fuzz)\.go$ | ^runtime/(?:panic|proc|signal_unix)\.go$
    # PHP.
    | (?:^|/)vendor/[^/]+/[^/]+/.*\.php$
    # Ruby.
    | (?i:/gems/[^/]*\d+\.\d+[^/]*/) | /ruby/\d+\.\d+\.\d+/
";
/// Beginnings of qualified names of Java's libraries, as in the frames of a stack.
const FOREIGN_CLASSES: [&str; 18] = [
    "java.",
    "javax.",
    "jdk.",
    "sun.",
    "com.sun.",
    "kotlin.",
    "scala.",
    "groovy.lang.",
    "org.codehaus.groovy.",
    "org.junit.",
    "junit.",
    "org.opentest4j.",
    "org.assertj.",
    "org.hamcrest.",
    "org.testng.",
    "org.mockito.",
    "org.springframework.",
    "org.apache.maven.",
];
/// Texts that say only that a test failed.
const EMPTY: [&str; 22] = [
    "",
    "fail",
    "failed",
    "failure",
    "error",
    "errored",
    "exception",
    "test failed",
    "test failure",
    "test error",
    "failed test",
    "test case failed",
    "test method failed",
    "assertion failed",
    "assertionerror",
    "collection failure",
    "collection error",
    "unknown error",
    "no message",
    "null",
    "undefined",
    "none",
];

/// A position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// As in the text, without the host of an address.
    pub(super) file: String,
    pub(super) line: Option<u32>,
    pub(super) column: Option<u32>,
}

/// `File "F", line N`, and `F:N`, `F:N:C`, `F:line N`.
static PLACE: LazyLock<Regex> = LazyLock::new(|| {
    let text = format!(
        r#"File "([^"\n]+)", line (\d+)|(?:([a-z][a-z0-9+-]*)://[^/\s:]*(?::\d+)?)?((?:[A-Za-z]:[\\/])?[^\s:()\[\]'"`<>|,=]+\.(?:{ENDINGS})):(?:line )?(\d+)(?::(\d+))?"#
    );
    Regex::new(&text).expect("it is tested")
});
/// A line that is a place alone, such as the first one of googletest.
static PLACE_ALONE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(?:\S+\.\w+):\d+(?::\d+)?:?(?: Failure)?$").expect("it is tested"));
/// The line above a failed test of Playwright: `1) [web] \u{203a} a.spec.ts:7:5 \u{203a} cart \u{203a} adds`.
static HEADING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^\s*(?:\d+\) )?(?:\[[^\]]*\] \u{203a} )?\S+:\d+:\d+ \u{203a} ").expect("it is tested")
});
/// A place and a text behind it.
static PLACED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\S+\.\w+:\d+(?::\d+)?:? (\S.*)$").expect("it is tested"));
/// A frame of a stack, or a line that separates or announces parts.
static FRAME: LazyLock<Regex> = LazyLock::new(|| {
    let text = concat!(
        r"^(?:at \S|\u{276f} |File \x22|Traceback \(|Stack:|Stack trace:|goroutine \d|[-=_*~^+>\s\u{2500}-\u{257f}\u{23af}]*$|",
        r"=== |--- (?:FAIL|PASS|SKIP)|FAIL\b|PASS$|ok\s|exit status \d|note: run with|stack backtrace|failures:$|---- |running \d)",
    );
    Regex::new(text).expect("it is tested")
});
/// The end of a traceback: the name of the exception.
static EXCEPTION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^[A-Za-z_][\w.]*(?:: .*)?$").expect("it is tested"));
/// A line of output that states a reason, in contrast to a log.
static REASON: LazyLock<Regex> = LazyLock::new(|| {
    let text = concat!(
        r"(?i)\b(?:got|want(?:ed)?|expect(?:ed|s)?|unexpected|actual|fail(?:ed|ure|s)?|errors?|panic(?:ked)?|mismatch|",
        r"not|cannot|can't|invalid|missing|timed out|exception|assert\w*|should|must|wrong|differs?|undefined)\b|[!=]=",
    );
    Regex::new(text).expect("it is tested")
});

/// Whether the text says only that something failed.
pub(super) fn is_empty(text: &str) -> bool {
    let text = text.trim().trim_end_matches(['.', ':', '!']).to_ascii_lowercase();
    EMPTY.contains(&text.as_str())
}

/// Whether a line of a test's output states a reason.
pub(super) fn is_reason(line: &str) -> bool {
    REASON.is_match(line)
}

/// Whether a file belongs to a library, or to the language.
pub(super) fn is_foreign(file: &str) -> bool {
    static IS_FOREIGN: LazyLock<Regex> = LazyLock::new(|| Regex::new(FOREIGN).expect("it is tested"));
    IS_FOREIGN.is_match(file)
}

/// Whether two names can be of the same file: one path ends with the other.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.trim_start_matches("./"), other.trim_start_matches("./"));
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|rest| rest.is_empty() || rest.ends_with(['/', '\\']))
    };
    !one.is_empty() && !other.is_empty() && (ends(one, other) || ends(other, one))
}

/// Whether a name is the path of a source file.
pub(super) fn is_file(name: &str) -> bool {
    static FILE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(&format!(r"^[^\s:]+\.(?:{ENDINGS})$")).expect("it is tested"));
    FILE.is_match(name)
}

/// The place of a failure: in `known`, if that file is given, else the first place in a file of the
/// user; of a traceback the last one.
///
/// Shape: `class` is the name of the class of the test, whose frames are preferred.
pub(super) fn place(text: &str, known: Option<&str>, class: Option<&str>) -> Option<Place> {
    let all: Vec<(Place, bool)> = text.lines().flat_map(places).collect();
    if let Some(known) = known {
        let mut same = all.iter().filter(|(place, _)| is_same(&place.file, known));
        let first = same.clone().next();
        // The last frame of a traceback is the innermost one.
        let found =
            if first.is_some_and(|(_, is_traceback)| *is_traceback) { same.next_back() } else { first };
        return found.map(|(place, _)| place.clone());
    }
    let simple = class.and_then(|class| class.rsplit(['.', '$', '\\', '/']).next());
    let is_of_class = |place: &Place| {
        let stem = place.file.rsplit(['/', '\\']).next().and_then(|name| name.split('.').next());
        simple.is_some() && stem == simple
    };
    let own = || all.iter().filter(|(place, _)| !is_foreign(&place.file));
    let found = own()
        .find(|(place, _)| is_of_class(place))
        .or_else(|| own().rfind(|(_, is_traceback)| *is_traceback))
        .or_else(|| own().next());
    found.map(|(place, _)| place.clone())
}

/// The places in a line, each with whether it is a frame of a traceback.
fn places(line: &str) -> Vec<(Place, bool)> {
    if HEADING.is_match(line) {
        return Vec::new();
    }
    if class_of(line).is_some_and(|class| FOREIGN_CLASSES.iter().any(|begin| class.starts_with(begin))) {
        return Vec::new();
    }
    PLACE.captures_iter(line).filter_map(|found| read_place(&found)).collect()
}

/// The qualified name in a frame of Java, without its class loader and its module:
/// `at app//x.FooTest.bar(FooTest.java:12)`.
fn class_of(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().strip_prefix("at ")?.split_once('(')?;
    name.rsplit('/').next()
}

fn read_place(found: &Captures<'_>) -> Option<(Place, bool)> {
    let text = |group: usize| found.get(group).map(|found| found.as_str());
    let number = |group| text(group).and_then(|text| text.parse().ok());
    if let Some(file) = text(1) {
        return Some((Place { file: file.to_owned(), line: number(2), column: None }, true));
    }
    let (file, line, column) = (text(4)?, number(5), number(6));
    let file = match text(3) {
        None | Some("file") => file,
        // An address that a server of tests gave the file.
        Some(_) => file.strip_prefix('/')?,
    };
    (!file.starts_with("//")).then(|| (Place { file: file.to_owned(), line, column }, false))
}

/// The text behind a place: `works` of `a.spec.ts:7:5 works`.
pub(super) fn after_place(text: &str) -> Option<&str> {
    PLACED.captures(text)?.get(1).map(|found| found.as_str().trim_end())
}

/// Removes a first line that is a place alone.
pub(super) fn without_place(message: &str) -> &str {
    match message.trim_start().split_once('\n') {
        Some((first, rest)) if PLACE_ALONE.is_match(first.trim()) && !rest.trim().is_empty() => rest.trim(),
        _ => message,
    }
}

/// The reason in the text of a failure; `None` if it says only that it failed.
pub(super) fn reason(text: &str) -> Option<String> {
    let text = without_place(text);
    let lines = || text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty());
    // pytest marks the lines of the reason.
    if let Some(line) = lines().find_map(|line| line.strip_prefix("E   ")) {
        return Some(line.trim().to_owned()).filter(|line| !line.is_empty());
    }
    if let Some(panic) = after_panic(text) {
        return Some(panic);
    }
    if text.trim_start().starts_with("Traceback (most recent call last)") {
        let end = lines().skip(1).filter(|line| !line.starts_with([' ', '\t']));
        if let Some(end) = end.filter(|line| EXCEPTION.is_match(line)).last() {
            return Some(end.trim().to_owned());
        }
    }
    let mut plain = lines()
        .map(str::trim)
        .filter(|line| !FRAME.is_match(line) && !PLACE_ALONE.is_match(line) && !is_empty(line))
        .filter(|line| !HEADING.is_match(line));
    let first = plain.next()?;
    let values = plain.take(4).filter(|line| is_value(line)).take(2);
    Some(std::iter::once(first).chain(values).collect::<Vec<_>>().join(" "))
}

/// A reason in the output of a test, which consists of logs for the greater part.
pub(super) fn reason_of_output(text: &str) -> Option<String> {
    let plain = || {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| {
            !line.is_empty() && !FRAME.is_match(line) && !PLACE_ALONE.is_match(line) && !is_empty(line)
        })
    };
    after_panic(text)
        .or_else(|| plain().find(|line| is_reason(line)).map(str::to_owned))
        .or_else(|| plain().next_back().map(str::to_owned))
}

/// The line after `panicked at FILE:LINE:COLUMN:`.
fn after_panic(text: &str) -> Option<String> {
    let mut lines = text.lines();
    lines.find(|line| line.contains(" panicked at ") && line.trim_end().ends_with(':'))?;
    lines.map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Whether a line states a value of a comparison, such as `Expected: 3`.
fn is_value(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(name.as_str(), "expected" | "received" | "actual" | "got" | "want" | "left" | "right")
        && line.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_its_place_in_each_language() {
        for (text, known, class, expected) in [
            ("at Context (test/cart.spec.js:7:12)", None, None, "test/cart.spec.js:7:12"),
            ("at f (node_modules/x/a.js:1:1)\nat g (src/b.ts:2:3)", None, None, "src/b.ts:2:3"),
            (" \u{276f} src/a.test.ts:5:17", None, None, "src/a.test.ts:5:17"),
            ("at file:///w/a.mjs:3:1", None, None, "/w/a.mjs:3:1"),
            ("at f (http://localhost:5173/src/a.tsx:4:2)", None, None, "src/a.tsx:4:2"),
            ("  File \"a.py\", line 1, in f\n  File \"b.py\", line 2, in g", None, None, "b.py:2:0"),
            ("  File \"a.py\", line 1\n  File \"/usr/lib/python3/x.py\", line 2", None, None, "a.py:1:0"),
            ("tests/test_a.py:5: AssertionError", None, None, "tests/test_a.py:5:0"),
            (
                "\tat org.junit.Assert.fail(Assert.java:89)\n\tat x.FooTest.bar(FooTest.java:12)",
                None,
                None,
                "FooTest.java:12:0",
            ),
            (
                "at x.Sut.f(Sut.java:9)\nat x.FooTest.bar(FooTest.java:12)",
                None,
                Some("x.FooTest"),
                "FooTest.java:12:0",
            ),
            (
                "\tat app//org.junit.jupiter.api.AssertionUtils.fail(AssertionUtils.java:55)\n\tat app//x.FooTest.bar(FooTest.java:12)",
                None,
                None,
                "FooTest.java:12:0",
            ),
            (
                "\tat org.springframework.util.Assert.notNull(Assert.java:201)\n\tat x.Foo.bar(Foo.java:9)",
                None,
                None,
                "Foo.java:9:0",
            ),
            ("\tat sundial.Clock.tick(Clock.java:3)", None, None, "Clock.java:3:0"),
            ("at N.T.F() in /w/A.cs:line 12", None, None, "/w/A.cs:12:0"),
            ("thread 'x' panicked at src/a.rs:10:9:\nno", None, None, "src/a.rs:10:9"),
            ("/w/a_test.cc:12: Failure", None, None, "/w/a_test.cc:12:0"),
            ("at f (src/a.js:1:1)\nat g (/w/test/b.js:2:2)", Some("test/b.js"), None, "/w/test/b.js:2:2"),
            ("at f (src/a.js:1:1)", Some("test/b.js"), None, ""),
            ("connect to db.example.com:5432, http://x.sh:443/", None, None, ""),
            ("no place", None, None, ""),
        ] {
            let found = place(text, known, class).map_or(String::new(), |place| {
                format!("{}:{}:{}", place.file, place.line.unwrap_or(0), place.column.unwrap_or(0))
            });
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn files_where_tools_install_libraries_are_foreign() {
        for (file, expected) in [
            ("node_modules/x/a.js", true),
            ("/w/node_modules/.pnpm/x@1.0.0/node_modules/x/a.js", true),
            ("C:\\w\\node_modules\\x\\a.js", true),
            ("/w/.yarn/cache/x-npm-1.0.0-0a1b2c.zip/a.js", true),
            ("node:internal/process/task_queues", true),
            ("internal/process/task_queues.js", true),
            ("/w/.venv/lib/python3.12/site-packages/x/a.py", true),
            ("/usr/lib/python3/dist-packages/x.py", true),
            ("/usr/lib/python3.11/unittest/case.py", true),
            ("/usr/lib64/python3.9/json/decoder.py", true),
            ("<string>", true),
            ("/rustc/9fc6b43126469e3858e2fe86cafb4f0fd5068869/library/core/src/panicking.rs", true),
            ("/home/u/.rustup/toolchains/stable-x86_64/lib/rustlib/src/rust/library/std/src/panic.rs", true),
            ("/home/u/.cargo/registry/src/index.crates.io-6f17d22bba15001f/serde-1.0.0/src/de.rs", true),
            ("/usr/local/cargo/registry/src/index.crates.io-1949cf8c6b5b557f/serde-1.0.0/src/de.rs", true),
            ("/home/u/.cargo/git/checkouts/x-0a1b2c3d4e5f6071/abc1234/src/lib.rs", true),
            ("vendor/serde/src/de.rs", true),
            ("/usr/local/go/src/testing/testing.go", true),
            ("/usr/lib/go-1.22/src/runtime/panic.go", true),
            ("/opt/hostedtoolcache/go/1.22.0/x64/src/net/http/server.go", true),
            ("/home/u/sdk/go1.23.4/src/reflect/value.go", true),
            ("/home/u/go/pkg/mod/github.com/x/y@v1.2.3/y.go", true),
            ("/home/u/go/pkg/mod/golang.org/toolchain@v0.0.1-go1.23.0.linux-amd64/src/time/sleep.go", true),
            ("github.com/x/y@v1.2.3/y.go", true),
            ("/w/vendor/github.com/x/y/y.go", true),
            ("testing/testing.go", true),
            ("/w/vendor/phpunit/phpunit/src/Framework/TestCase.php", true),
            ("/usr/lib/ruby/gems/3.2.0/gems/rspec-core-3.12.0/lib/rspec/core.rb", true),
            ("/usr/local/rvm/gems/ruby-3.2.2/gems/rspec-core-3.12.0/lib/rspec/core.rb", true),
            ("/w/vendor/bundle/ruby/3.2.0/gems/rack-3.0.8/lib/rack.rb", true),
            ("/usr/lib/ruby/3.2.0/net/http.rb", true),
            // Folders of a user with the same names.
            ("/home/u/go/src/github.com/acme/shop/cart.go", false),
            ("/go/src/example.com/shop/cart_test.go", false),
            ("/w/src/testing/render.test.tsx", false),
            ("/w/src/testing/fixture.go", false),
            ("/w/src/runtime/loop.rs", false),
            ("/w/pkg/mod/mod.go", false),
            ("internal/process/run_test.go", false),
            ("/w/internal/process/run.js", false),
            ("/w/lib/python_client/client.py", false),
            ("lib/python/client.py", false),
            ("app/vendor/orders.rb", false),
            ("/w/src/vendor/list.test.ts", false),
            ("/w/go/services/api/src/time/clock.go", false),
            ("/w/app/vendor/Order.php", false),
            ("crates/vendor/src/lib.rs", false),
            ("/home/u/gems/cart/lib/cart.rb", false),
            ("/w/my_node_modules/a.js", false),
            ("src/a.rs", false),
        ] {
            assert_eq!(is_foreign(file), expected, "{file}");
        }
    }

    #[test]
    fn a_text_gives_its_reason() {
        for (text, expected) in [
            ("Failed", None),
            ("\n  Error: boom\n    at f (a.js:1:1)", Some("Error: boom")),
            (
                "def test():\n>   assert 1 == 2\nE   assert 1 == 2\n\na.py:5: AssertionError",
                Some("assert 1 == 2"),
            ),
            (
                "Traceback (most recent call last):\n  File \"a.py\", line 1\n    f()\nx.Odd: no",
                Some("x.Odd: no"),
            ),
            ("thread 'x' panicked at a.rs:1:2:\nno luck\nnote: run", Some("no luck")),
            ("a_test.cc:12\nExpected equality\n  1", Some("Expected equality")),
            ("Error: toBe\n\nExpected: 3\nReceived: 4", Some("Error: toBe Expected: 3 Received: 4")),
            ("java.lang.AssertionError\n\tat x.Y.z(Y.java:1)", Some("java.lang.AssertionError")),
            ("---------\n", None),
        ] {
            assert_eq!(reason(text).as_deref(), expected, "{text}");
        }
        let output = "connecting\nb.c:3: value is wrong\ndone";
        assert_eq!(reason_of_output(output).as_deref(), Some("b.c:3: value is wrong"));
        assert_eq!(reason_of_output("starting\nstopped").as_deref(), Some("stopped"));
    }
}

//! Variants of the output of each tool, and files of others.

use super::{
    tests::{found, row},
    *,
};

/// A matcher, output of its tool, and the problems in it.
const OUTPUTS: &[(&str, &str, &[&str])] = &[
    (
        "pytest",
        "FAILED tests/unit/test_payment_service.py::TestPaymentService::test_refund_of_partial_capture\nFAILED tests/test_a.py::test_x[a b] - assert x[0] == [1]\n",
        &[
            "tests/unit/test_payment_service.py:: error [TestPaymentService::test_refund_of_partial_capture] failed",
            "tests/test_a.py:: error [test_x[a b]] assert x[0] == [1]",
        ],
    ),
    (
        "pytest",
        "ERROR tests/test_b.py\nERROR tests/test_c.py - ImportError: no x\nERROR tests/test_d.py::test_y - boom\nERROR: file or directory not found: nope\nERROR    root:test_a.py:5 logged\n[gw0] [ 50%] FAILED tests/test_a.py::test_x \n",
        &[
            "tests/test_b.py:: error [] cannot be collected",
            "tests/test_c.py:: error [] ImportError: no x",
            "tests/test_d.py:: error [test_y] boom",
            ":: error [] file or directory not found: nope",
        ],
    ),
    (
        "pytest",
        "FAILED my tests/test_a.yaml::a long name - no\nINTERNALERROR> KeyError: 'x'\n",
        &["my tests/test_a.yaml:: error [a long name] no", ":: error [] KeyError: 'x'"],
    ),
    (
        "pytest",
        "ImportError while loading conftest '/w/conftest.py'.\n/usr/lib/python3.12/importlib/__init__.py:90: in import_module\n    return x\nconftest.py:1: in <module>\n    import nope\nhelp.py:7: in f\n    g()\nE   ModuleNotFoundError: No module named 'nope'\n",
        &["conftest.py:1: error [] ModuleNotFoundError: No module named 'nope'"],
    ),
    (
        "jest",
        " FAIL  src/sum.test.js\n  \u{25cf} adds 1 and 2\n\n    expect(received).toBe(expected)\n\n    Expected: 4\n\n      at Object.toBe (src/sum.test.js:3:17)\n",
        &["src/sum.test.js:3:17 error [adds 1 and 2] expect(received).toBe(expected)"],
    ),
    (
        "jest",
        "FAIL src/sum.test.js (5.2 s)\n  \u{25cf} Console\n\n    console.log\n      x\n\n  \u{25cf} math \u{203a} adds\n\n    boom\n\n      at f (node_modules/x/a.js:1:1)\n      at Object.<anonymous> (src/sum.js:9:3)\n\n  \u{25cf} math \u{203a} slow\n\n    thrown: \"Exceeded timeout\"\n\nFAIL src/b.test.ts\n  \u{25cf} Test suite failed to run\n\n    Cannot find module './nope'\n",
        &[
            "src/sum.js:9:3 error [math \u{203a} adds] boom",
            "src/sum.test.js:: error [math \u{203a} slow] thrown: \"Exceeded timeout\"",
            "src/b.test.ts:: error [Test suite failed to run] Cannot find module './nope'",
        ],
    ),
    (
        "vitest",
        " FAIL  src/app.test.ts [ src/app.test.ts ]\nError: Failed to resolve import \"./nope\"\n",
        &["src/app.test.ts:: error [] Error: Failed to resolve import \"./nope\""],
    ),
    (
        "vitest",
        " FAIL  src/sum.test.ts > adds\nAssertionError: expected 3 to be 4\n - Expected\n \u{276f} node_modules/x.js:1:1\n \u{276f} src/sum.test.ts:5:17\n",
        &["src/sum.test.ts:5:17 error [adds] AssertionError: expected 3 to be 4"],
    ),
    (
        "vitest",
        " FAIL  |web| src/a.test.ts > x\n FAIL  |web| src/a.test.ts > y\nError: both\n\u{23af}\u{23af} Uncaught Exception \u{23af}\u{23af}\nError: boom\n",
        &[
            "src/a.test.ts:: error [x] failed",
            "src/a.test.ts:: error [y] Error: both",
            ":: error [Uncaught Exception] Error: boom",
        ],
    ),
    (
        "playwright",
        "  1) [web] \u{203a} tests/a.spec.ts:7:5 \u{203a} login \u{203a} works \u{2500}\u{2500}\n\n    Error: not visible\n\n      7 | x\n        at f (/w/node_modules/x/a.js:1:1)\n        at /w/tests/a.spec.ts:9:20\n\n  2) tests/b.spec.ts:1:2 \u{203a} slow\n\n    Test timeout of 30000ms exceeded.\n\n  2 failed\n    [web] \u{203a} tests/a.spec.ts:7:5 \u{203a} login \u{203a} works \u{2500}\u{2500}\n",
        &[
            "/w/tests/a.spec.ts:9:20 error [login \u{203a} works] Error: not visible",
            "tests/b.spec.ts:1:2 error [slow] Test timeout of 30000ms exceeded.",
        ],
    ),
    (
        "mocha",
        "  1) Cart\n       adds:\n\n      AssertionError: expected 3 to equal 4\n      + expected - actual\n\n      at Context.<anonymous> (test/cart.spec.js:7:12)\n\n  2) root test:\n     Error: boom\n",
        &[
            "test/cart.spec.js:7:12 error [adds] AssertionError: expected 3 to equal 4",
            ":: error [root test] Error: boom",
        ],
    ),
    (
        "node",
        "test at test/a.test.js:3:1\n\u{2716} adds (0.5ms)\n  AssertionError [ERR_ASSERTION]: values differ\n",
        &["test/a.test.js:3:1 error [adds] AssertionError [ERR_ASSERTION]: values differ"],
    ),
    (
        "node",
        "not ok 1 - adds\n  ---\n  duration_ms: 18.6\n  location: '/w/t.test.mjs:2:1'\n  failureType: 'testCodeFailure'\n  error: |-\n    Expected values to be strictly equal:\n    # Subtest: removes\n    not ok 1 - removes\n      ---\n      location: '/w/t.test.mjs:3:26'\n      error: 'boom'\nnot ok 2 - cart\n  ---\n  location: '/w/t.test.mjs:3:1'\n  failureType: 'subtestsFailed'\n  error: '1 subtest failed'\n",
        &[
            "/w/t.test.mjs:2:1 error [adds] Expected values to be strictly equal:",
            "/w/t.test.mjs:3:26 error [removes] boom",
        ],
    ),
    (
        "node",
        "not ok 1 - later # TODO fix\n  ---\n  type: 'test'\n  location: '/w/t.test.mjs:2:1'\n  error: 'x'\nnot ok 2 - adds # 1\n  ---\n  duration_ms: 1.5\n  type: 'test'\n  location: '/w/src/testing/a.test.mjs:3:1'\n  failureType: 'testCodeFailure'\n  error: |-\n    values differ\n",
        &["/w/src/testing/a.test.mjs:3:1 error [adds # 1] values differ"],
    ),
    (
        "node",
        "/w/a.js:3\n  foo();\n  ^\n\nReferenceError: foo is not defined\n    at Object.<anonymous> (/w/a.js:3:3)\n    at node:internal/main/run_main_module:28:49\n\nNode.js v20.1.0\n",
        &["/w/a.js:3:3 error [ReferenceError] foo is not defined"],
    ),
    (
        "node",
        "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module './nope'\nRequire stack:\n- /w/a.js\n    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)\n    at Object.<anonymous> (/w/node_modules/x/a.js:1:1)\n    at Object.<anonymous> (/w/a.js:1:1)\n/w/b.mjs:1\nimport {\n        ^\n\nSyntaxError: Unexpected end of input\n",
        &[
            "/w/a.js:1:1 error [Error] Cannot find module './nope'",
            "/w/b.mjs:1: error [SyntaxError] Unexpected end of input",
        ],
    ),
    (
        "python",
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    run()\nsubprocess.TimeoutExpired: Command '['sleep', '9']' timed out after 1 seconds\n  File \"b.py\", line 4, in f\n    x\ndjango.core.exceptions.ImproperlyConfigured: Set the KEY\n",
        &[
            "a.py:3: error [subprocess.TimeoutExpired] Command '['sleep', '9']' timed out after 1 seconds",
            "b.py:4: error [django.core.exceptions.ImproperlyConfigured] Set the KEY",
        ],
    ),
    (
        "python",
        "  File \"a.py\", line 3, in <module>\n    assert x\n           ^\nAssertionError\n  |   File \"b.py\", line 4, in f\n  |     g()\n  | ValueError: no\n",
        &["a.py:3: error [AssertionError] raised without a message", "b.py:4: error [ValueError] no"],
    ),
    (
        "python",
        "  File \"/w/app.py\", line 3, in <module>\n    requests.get(\"x\")\n  File \"/w/.venv/lib/python3.12/site-packages/requests/api.py\", line 73, in get\n    return x\n           ^^\n  File \"/w/.venv/lib/python3.12/site-packages/requests/models.py\", line 439, in f\n    raise MissingSchema(\n    a,\n    b,\n    c,\n    d,\n    e,\n    f,\nrequests.exceptions.MissingSchema: Invalid URL\n",
        &["/w/app.py:3: error [requests.exceptions.MissingSchema] Invalid URL"],
    ),
    (
        "python",
        "  File \"/usr/lib/python3.12/runpy.py\", line 1, in f\n    x\n  File \"/w/a.py\", line 3, in g\n    y\nKeyError: 'k'\n  File \"/usr/lib/python3.12/runpy.py\", line 1, in f\n    x\nValueError: v\n",
        &["/w/a.py:3: error [KeyError] 'k'", "/usr/lib/python3.12/runpy.py:1: error [ValueError] v"],
    ),
    (
        "mypy",
        "/w/a.py:3:5 - error: \"x\" is not defined (reportUndefinedVariable)\n  /w/b.py:1:1 - warning: no stub (reportMissingImports)\nsrc/a.py:3:5:3:9: error: no [assignment]\nmypy: can't read file 'nope.py': No such file\na.py: error: Source file found twice\nFound 1 error in 1 file (checked 1 source file)\n",
        &[
            "/w/a.py:3:5 error [reportUndefinedVariable] \"x\" is not defined",
            "/w/b.py:1:1 warning [reportMissingImports] no stub",
            "src/a.py:3:5 error [assignment] no",
            ":: error [] can't read file 'nope.py': No such file",
            "a.py:: error [] Source file found twice",
        ],
    ),
    (
        "ruff",
        "src/a.py:1:8: F401 [*] `os` imported but unused\nsrc/b.py: E902 No such file\na.py:2:1: invalid-syntax: Expected a name\nerror: Failed to parse c.py:1:3\nFound 2 errors.\n",
        &[
            "src/a.py:1:8 error [F401] `os` imported but unused",
            "src/b.py:: error [E902] No such file",
            "a.py:2:1 error [invalid-syntax] Expected a name",
            ":: error [] Failed to parse c.py:1:3",
        ],
    ),
    (
        "shellcheck",
        "\nIn my a.sh line 3:\necho $x $y\n     ^-- SC2086 (info): Double quote.\n        ^---^ SC2154 (warning): y is referenced\n\nIn b.sh line 9:\nfi\n^-- SC1089 (error): Parsing stopped\n\nFor more information:\n",
        &[
            "my a.sh:3: info [SC2086] Double quote.",
            "my a.sh:3: warning [SC2154] y is referenced",
            "b.sh:9: error [SC1089] Parsing stopped",
        ],
    ),
    (
        "gcc",
        "/usr/bin/ld: a.o: in function `main':\n/home/u/p/main.c:5: undefined reference to `f'\ncollect2: error: ld returned 1 exit status\n",
        &["/home/u/p/main.c:5: error [] undefined reference to `f'"],
    ),
    (
        "gcc",
        "/usr/bin/ld: /tmp/ccX.o: in function `main': main.c:(.text+0xa): undefined reference to `f'\n/usr/bin/ld: cannot find -lpq: No such file\n/usr/bin/ld: b.o:/w/b.c:3: multiple definition of `f'; a.o:/w/a.c:1: first defined here\ngcc: error: nope.c: No such file or directory\nclang: error: linker command failed with exit code 1\ncc1: fatal error: x.c: No such file\n",
        &[
            "main.c:: error [] undefined reference to `f'",
            ":: error [] cannot find -lpq: No such file",
            "/w/b.c:3: error [] multiple definition of `f'; a.o:/w/a.c:1: first defined here",
            ":: error [] nope.c: No such file or directory",
            ":: error [] x.c: No such file",
        ],
    ),
    (
        "gcc",
        "/usr/bin/ld: /usr/lib/x86_64-linux-gnu/Scrt1.o: in function `_start':\n(.text+0x1b): undefined reference to `main'\na.o:(.data+0x0): undefined reference to `x'\ncollect2: error: ld returned 1 exit status\n",
        &[":: error [] undefined reference to `main'", "a.o:: error [] undefined reference to `x'"],
    ),
    (
        "gcc",
        "ld.lld: error: undefined symbol: f\n>>> referenced by main.c:5 (/w/main.c:5)\n>>>               a.o:(main)\nmold: fatal: library not found: pq\n\nUndefined symbols for architecture arm64:\n  \"_f\", referenced from:\n",
        &[
            "main.c:5: error [] undefined symbol: f",
            ":: error [] library not found: pq",
            ":: error [] \"_f\"",
        ],
    ),
    (
        "cargo",
        "error: linking with `cc` failed: exit status: 1\n  |\n  = note: \"cc\" \"-m64\"\n  = note: /usr/bin/ld: cannot find -lpq\n\nwarning: `a` (bin \"a\") generated 1 warning\nerror: could not compile `a` (bin \"a\") due to 1 previous error\n",
        &[":: error [] linking with `cc` failed: exit status: 1"],
    ),
    (
        "cargo",
        "error: failed to run custom build command for `x v0.1.0 (/w)`\n\nCaused by:\n  process didn't exit successfully: `/w/target/build` (exit status: 101)\n  --- stderr\n  thread 'main' panicked at build.rs:3:5:\n  boom\n",
        &[
            "build.rs:3:5 error [main] boom",
            ":: error [] failed to run custom build command for `x v0.1.0 (/w)`",
        ],
    ),
    (
        "cargo",
        "---- tests::x stdout ----\nError: ParseIntError { kind: InvalidDigit }\n---- tests::y stdout ----\nnote: test did not panic as expected\nthread 'z' panicked at 'old form', src/lib.rs:3:5\nthread 'w' has overflowed its stack\nerror: test failed, to rerun pass `--lib`\n",
        &[
            ":: error [tests::x] ParseIntError { kind: InvalidDigit }",
            ":: error [tests::y] test did not panic as expected",
            "src/lib.rs:3:5 error [z] old form",
            ":: error [w] overflowed its stack",
        ],
    ),
    (
        "cargo",
        "src/a.rs:2:5: error[E0425]: no x\nerror: failed to parse manifest at `/w/Cargo.toml`\n",
        &["src/a.rs:2:5 error [E0425] no x", ":: error [] failed to parse manifest at `/w/Cargo.toml`"],
    ),
    (
        "go",
        "    sum_test.go:12: \n        \tError Trace:\t/w/sum_test.go:12\n        \tError:      \tNot equal: 3\npanic: boom [recovered]\n\ngoroutine 7 [running]:\n\t/usr/local/go/src/testing/testing.go:9 +0x1\n\t/w/b_test.go:7 +0x1d\ngo: downloading x v1\ngo: cannot find main module\n",
        &[
            "sum_test.go:12: error [] Not equal: 3",
            "/w/b_test.go:7: error [] boom",
            ":: error [] cannot find main module",
        ],
    ),
    (
        "go",
        "go: errors parsing go.mod:\n/w/go.mod:3: unknown directive: foo\ngo.work:4:2: no\ngo: warning: \"./...\" matched no packages\n",
        &[
            "/w/go.mod:3: error [] unknown directive: foo",
            "go.work:4:2 error [] no",
            ":: warning [] \"./...\" matched no packages",
        ],
    ),
    (
        "go",
        "panic: boom\n\ngoroutine 7 [running]:\ntesting.tRunner.func1.2()\n\t/usr/local/go/src/testing/testing.go:1631 +0x24a\nx.F()\n\t/home/u/go/src/github.com/acme/x/internal/process/run.go:7 +0x1d\n",
        &["/home/u/go/src/github.com/acme/x/internal/process/run.go:7: error [] boom"],
    ),
    (
        "go",
        "WARNING: DATA RACE\nWrite at 0x00c by goroutine 7:\n  runtime.f()\n      /usr/local/go/src/runtime/map.go:9 +0x1\n  x.f()\n      /w/p/a.go:9 +0x1\npackage x/q\n\timports x/r\n\timports nope: package nope is not in std (/usr/local/go/src/nope)\n",
        &[
            "/w/p/a.go:9: error [] DATA RACE",
            ":: error [] nope: package nope is not in std (/usr/local/go/src/nope)",
        ],
    ),
    (
        "rspec",
        "rspec './spec/a_spec.rb[1:2]' # A works\nrspec ./spec/vendor/b_spec.rb:7 # B is\n",
        &["./spec/a_spec.rb:: error [] A works", "./spec/vendor/b_spec.rb:7: error [] B is"],
    ),
    (
        "phpstan",
        " ------ -----\n  Line   src/A.php\n ------ -----\n  12     Call to an undefined method A::f().\n         method.notFound\n  :140   No type.\n ------ -----\n\n [ERROR] Found 2 errors\n",
        &["src/A.php:12: error [] Call to an undefined method A::f().", "src/A.php:140: error [] No type."],
    ),
    (
        "eslint",
        "Oops! Something went wrong! :(\n\nESLint: 9.0.0\n\nError: Cannot find module 'x'\n",
        &[":: error [] Error: Cannot find module 'x'"],
    ),
    (
        "phpunit",
        "1) Tests\\FooTest::testBar\nFailed asserting that 3 matches expected 4.\n\n/w/tests/FooTest.php:12\n",
        &[
            "/w/tests/FooTest.php:12: error [Tests\\FooTest::testBar] Failed asserting that 3 matches expected 4.",
        ],
    ),
    (
        "php",
        "PHP Fatal error:  Uncaught Exception: no in /w/a.php:3\n",
        &["/w/a.php:3: error [Fatal] Uncaught Exception: no"],
    ),
    (
        "javac",
        "error: file not found: Nope.java\n[ERROR] Failed to execute goal x\n",
        &[":: error [] file not found: Nope.java", ":: error [] Failed to execute goal x"],
    ),
    (
        "javac",
        "[ERROR] Failures: \n[ERROR]   FooTest.bar:12 expected: <1> but was: <2>\n[ERROR]   FooTest.baz:5->Base.check:7 no\n[ERROR] Errors: \n[ERROR]   x.FooTest.qux:9 \u{bb} NullPointer\n[ERROR] Tests run: 1, Failures: 1, Errors: 0\n",
        &[
            ":: error [FooTest.bar] expected: <1> but was: <2>",
            ":: error [FooTest.baz] no",
            ":: error [x.FooTest.qux] NullPointer",
        ],
    ),
    ("kotlinc", "e: /w/a.kt: (3, 4): unresolved\n", &["/w/a.kt:3:4 error [] unresolved"]),
    (
        "msbuild",
        "CSC : error CS5001: no Main [/w/a.csproj]\n/w/a.csproj : error NU1101: Unable to find package x\n",
        &[":: error [CS5001] no Main", "/w/a.csproj:: error [NU1101] Unable to find package x"],
    ),
    (
        "ruff",
        "invalid-syntax: Expected a name\n --> a.py:1:5\n",
        &["a.py:1:5 error [invalid-syntax] Expected a name"],
    ),
    ("golangci-lint", "level=error msg=\"no go files\"\n", &[":: error [] no go files"]),
    (
        "make",
        "Makefile:3: *** missing separator.  Stop.\nmake: *** No rule to make target 'x'.  Stop.\nmake: *** [Makefile:3: all] Error 1\n",
        &["Makefile:3: error [] missing separator.  Stop.", ":: error [] No rule to make target 'x'.  Stop."],
    ),
    (
        "cmake",
        "CMake Error at CMakeLists.txt:5 (find_package):\n  Could not find X\n",
        &["CMakeLists.txt:5: error [find_package] Could not find X"],
    ),
];

#[test]
fn each_variant_of_a_tool_is_found() {
    for (name, output, rows) in OUTPUTS {
        assert_eq!(
            found(name, output.as_bytes()).iter().map(row).collect::<Vec<_>>(),
            *rows,
            "{name}: {output}"
        );
    }
}

/// The problems that the only matcher of a file finds.
fn found_by(patterns: &str, lines: &[&str]) -> Vec<String> {
    let text = format!(r#"{{"problemMatcher": [{{"owner": "x", {patterns}}}]}}"#);
    let mut matcher = Matchers::parse("m.json", &text).expect("right").all().remove(0);
    let mut problems = Vec::new();
    for line in lines {
        let Read { ended, found } = matcher.read(line);
        problems.extend(ended.into_iter().chain(found));
    }
    problems.extend(matcher.finish());
    problems.iter().map(row).collect()
}

#[test]
fn a_loop_keeps_the_fields_before_it() {
    let loops = r#""pattern": [
        {"regexp": "^(\\S+)\\s+\\[(error|warning)\\]\\s+(\\w+)$", "file": 1, "severity": 2, "code": 3},
        {"regexp": "^  (\\d+): (.*)$", "line": 1, "message": 2, "loop": true}]"#;
    let lines = [
        "src/a.x [warning] R1",
        "  3: first",
        "  4: second",
        "src/b.x [error] R2",
        "  5: third",
        "",
        "  6: no",
    ];
    let expected =
        ["src/a.x:3: warning [R1] first", "src/a.x:4: warning [R1] second", "src/b.x:5: error [R2] third"];
    assert_eq!(found_by(loops, &lines), expected);
    // A field of the loop itself is not kept.
    let own = r#""severity": "warning", "pattern": [{"regexp": "^(\\S+)$", "file": 1},
        {"regexp": "^  (?:(\\d+):)? ?(\\w+)(?: (E\\d))?$", "line": 1, "message": 2, "code": 3, "loop": true}]"#;
    assert_eq!(found_by(own, &["a.x", "  3: x E1", "  y"]), ["a.x:3: warning [E1] x", "a.x:: warning [] y"]);
}

#[test]
fn absent_lines_end_a_problem() {
    let patterns = r#""heading": {"regexp": "^in (\\S+)$", "file": 1}, "fallback": "no reason", "pattern": [
        {"regexp": "^\\* (\\w+)$", "code": 1},
        {"regexp": "^  (\\w.*)$", "message": 1, "skip": 1, "optional": true},
        {"regexp": "^at (\\S+):(\\d+)$", "file": 1, "line": 2, "skip": 2, "optional": true}]"#;
    for (lines, expected) in [
        (&["in a", "* x", "", "  why", "at b:2"][..], &["b:2: error [x] why"][..]),
        (
            &["in a", "* x", "* y", "  why", "in c", "* z"],
            &["a:: error [x] no reason", "a:: error [y] why", "c:: error [z] no reason"],
        ),
        (&["* x", "  why", "", "", "", "at b:2"], &[":: error [x] why"]),
        (&["* x", "at node_modules/q.js:2", "at b:3"], &["b:3: error [x] no reason"]),
    ] {
        assert_eq!(found_by(patterns, lines), expected, "{lines:?}");
    }
}

#[test]
fn files_in_javascript_load_as_they_are() {
    let file = |regexp: &str| format!(r#""pattern": [{{"regexp": "{regexp}", "file": 1, "message": 2}}]"#);
    for (regexp, line, expected) in [
        (r"^([\\w-.]+): (.*)$", "a-b.c: no", "a-b.c:: error [] no"),
        (r"^(\\w+)[\\s->=]+(.*)$", "a -> no", "a:: error [] no"),
        (r"^{(\\w+)} (.*)$", "{a} no", "a:: error [] no"),
        (r"^(.+\\/\\w+)\\s(?<text>.*)$", "b/a no", "b/a:: error [] no"),
        (r"^(?!note)(\\w+): (.*)$", "a: no", "a:: error [] no"),
    ] {
        assert_eq!(found_by(&file(regexp), &[line]), [expected], "{regexp}");
    }
    let marked = "\u{feff}{\"problemMatcher\": []}";
    assert!(Matchers::parse("m.json", marked).is_ok());
}

#[test]
fn a_pattern_that_cannot_be_skipped_is_refused() {
    for (patterns, expected) in [
        (
            r#""pattern": [{"regexp": "(.)", "message": 1, "skip": 1}]"#,
            "pattern[0].skip: the first pattern follows no line",
        ),
        (
            r#""pattern": [{"regexp": "(.)", "message": 1, "optional": true}]"#,
            "pattern[0].optional: the first pattern and a loop are needed",
        ),
        (
            r#""pattern": [{"regexp": "(.)", "message": 1}, {"regexp": "b", "skip": 999}]"#,
            "pattern[1].skip: at most 200 lines are allowed",
        ),
        (
            r#""heading": {"regexp": "a", "file": 1}, "pattern": [{"regexp": "(.)", "message": 1}]"#,
            "heading.file: group 1 of a regexp that has 0",
        ),
        (
            r#""pattern": [{"regexp": "(.)", "file": 1, "message": 1, "frames": true}]"#,
            "pattern[0].frames: only the first of several patterns, with a `file`, can have it",
        ),
    ] {
        let text = format!(r#"{{"problemMatcher": [{{"owner": "x", {patterns}}}]}}"#);
        let error = Matchers::parse("m.json", &text).expect_err(patterns).to_string();
        assert_eq!(error, format!("m.json: problemMatcher[0].{expected}"));
    }
}

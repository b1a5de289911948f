//! Variants of each format, as its tools write them: places, reasons, levels and states.

use super::{tests::rows, *};

/// Test cases inside `<testsuite name="s">`, and their problems.
const JUNIT: &[(&str, &[&str])] = &[
    // go-junit-report, gotestsum.
    (
        r#"<testcase name="TestA" classname="p"><failure message="Failed">    a_test.go:9: got 3, want 4</failure></testcase>"#,
        &["a_test.go:9: error [p::TestA] got 3, want 4"],
    ),
    (
        "<testcase name='TestA' classname='p'><failure message='Failed' type=''>=== RUN   TestA\n    a_test.go:5: dialing\n    a_test.go:9: got 3, want 4\n--- FAIL: TestA (0.00s)\n</failure></testcase>",
        &["a_test.go:9: error [p::TestA] got 3, want 4"],
    ),
    // mocha-junit-reporter.
    (
        "<testsuite name='Cart' file='test/cart.spec.js'><testcase name='adds' classname='Cart'><failure message='expected 3 to equal 4'>at Context (test/cart.spec.js:7:12)</failure></testcase></testsuite>",
        &["test/cart.spec.js:7:12 error [Cart::adds] expected 3 to equal 4"],
    ),
    (
        "<testsuite name='Cart' file='test/cart.spec.js'><testcase name='adds' classname='Cart'><failure message='no'>at f (src/cart.js:1:2)</failure></testcase></testsuite>",
        &["test/cart.spec.js:: error [Cart::adds] no"],
    ),
    // Only the suites differ.
    (
        "<testsuite name='A'><testcase name='t'><failure message='failure'/></testcase></testsuite><testsuite name='B'><testcase name='t'><failure message='failure'/></testcase></testsuite>",
        &[":: error [s::A::t] failure", ":: error [s::B::t] failure"],
    ),
    (
        "<testsuite name='a.spec.ts' hostname='firefox'><testcase name='t' classname='a.spec.ts'><failure message='no'/></testcase></testsuite><testsuite name='a.spec.ts' hostname='webkit'><testcase name='t' classname='a.spec.ts'><failure message='no'/></testcase></testsuite>",
        &["a.spec.ts:: error [firefox::a.spec.ts::t] no", "a.spec.ts:: error [webkit::a.spec.ts::t] no"],
    ),
    // jest-junit has no message.
    (
        "<testcase classname='sum adds' name='sum adds'><failure>Error: expect(received).toBe(expected)\n\nExpected: 3\nReceived: 4\n    at Object.toBe (/w/src/sum.test.js:3:17)\n    at run (/w/node_modules/jest/x.js:1:1)</failure></testcase>",
        &[
            "/w/src/sum.test.js:3:17 error [sum adds::sum adds] Error: expect(received).toBe(expected) Expected: 3 Received: 4",
        ],
    ),
    (
        "<testcase classname='Test suite failed to run' name='src/a.test.js'><error>Cannot find module './nope'</error></testcase>",
        &["src/a.test.js:: error [Test suite failed to run::src/a.test.js] Cannot find module './nope'"],
    ),
    // vitest names the file in the class.
    (
        "<testcase classname='src/a.test.ts' name='cart &gt; adds'><failure message='expected 3 to be 4' type='AssertionError'>AssertionError: expected 3 to be 4\n \u{276f} src/a.test.ts:5:17</failure></testcase>",
        &["src/a.test.ts:5:17 error [src/a.test.ts::cart > adds] expected 3 to be 4"],
    ),
    // pytest.
    (
        "<testcase classname='tests.test_a' name='test_x'><failure message='assert 1 == 2'>def test_x():\n&gt;       assert 1 == 2\nE       assert 1 == 2\n\ntests/test_a.py:5: AssertionError</failure></testcase>",
        &["tests/test_a.py:5: error [tests.test_a::test_x] assert 1 == 2"],
    ),
    (
        "<testcase classname='' name='tests.test_b'><error message='collection failure'>ImportError while importing test module '/w/tests/test_b.py'.\ntests/test_b.py:1: in &lt;module&gt;\n    import nope\nE   ModuleNotFoundError: No module named 'nope'</error></testcase>",
        &["tests/test_b.py:1: error [tests.test_b] ModuleNotFoundError: No module named 'nope'"],
    ),
    // Surefire and Gradle: no message, reruns, flaky tests.
    (
        "<testcase classname='x.FooTest' name='bar'><failure type='java.lang.AssertionError'>java.lang.AssertionError\n\tat org.junit.Assert.fail(Assert.java:89)\n\tat x.FooTest.bar(FooTest.java:12)\n</failure><rerunFailure message='again'/></testcase><testcase classname='x.FooTest' name='flaky'><flakyFailure message='once'/></testcase>",
        &["FooTest.java:12: error [x.FooTest::bar] java.lang.AssertionError"],
    ),
    // Two failures of a case, one of which says nothing.
    (
        "<testcase name='a'><failure message='Failed'/><error message='no such table'/></testcase>",
        &[":: error [a] no such table"],
    ),
    (
        "<testcase name='a'><failure message='one'/><failure message='two'/></testcase>",
        &[":: error [a] one", ":: error [a] two"],
    ),
    // googletest.
    (
        "<testcase name='adds' classname='Cart'><failure message='/w/a_test.cc:12&#x0A;Expected equality&#x0A;  1' type=''><![CDATA[/w/a_test.cc:12\nExpected equality\n  1]]></failure></testcase>",
        &["/w/a_test.cc:12: error [Cart::adds] Expected equality\n  1"],
    ),
    // nextest.
    (
        "<testcase name='t::x' classname='a'><failure message='thread &apos;t::x&apos; panicked at src/lib.rs:9:5' type='test failure'>thread 't::x' panicked at src/lib.rs:9:5:\nno luck\nnote: run with `RUST_BACKTRACE=1`</failure></testcase>",
        &["src/lib.rs:9:5 error [a::t::x] no luck"],
    ),
    // Playwright: the message has the title alone.
    (
        "<testsuite name='a.spec.ts' hostname='web'><testcase name='login \u{203a} works' classname='a.spec.ts'><failure message='a.spec.ts:7:5 works' type='FAILURE'><![CDATA[  [web] \u{203a} a.spec.ts:7:5 \u{203a} login \u{203a} works \u{2500}\u{2500}\n\n    Error: not visible\n\n    Expected: visible\n\n        at /w/tests/a.spec.ts:9:20\n]]></failure></testcase></testsuite>",
        &["a.spec.ts:9:20 error [a.spec.ts::login \u{203a} works] Error: not visible Expected: visible"],
    ),
    (
        "<testcase name='works' classname='a.spec.ts'><failure message='a.spec.ts:7:5 works'/></testcase>",
        &["a.spec.ts:7:5 error [a.spec.ts::works] a.spec.ts:7:5 works"],
    ),
    // ExUnit.
    (
        "<testcase classname='Elixir.CartTest' name='test adds' file='test/cart_test.exs:5'><failure message='error: Assertion with == failed'>code: assert 1 == 2</failure></testcase>",
        &["test/cart_test.exs:5: error [test adds] error: Assertion with == failed"],
    ),
    // PHPUnit.
    (
        "<testcase name='testBar' file='/w/tests/FooTest.php' line='9' classname='FooTest'><failure type='ExpectationFailedException'>FooTest::testBar\nFailed asserting that 3 matches expected 4.\n\n/w/tests/FooTest.php:12\n</failure></testcase>",
        &["/w/tests/FooTest.php:12: error [testBar] Failed asserting that 3 matches expected 4."],
    ),
    // CTest: the reason is in the output.
    (
        "<testcase name='t' classname='t' status='fail'><failure message='Failed'/><system-out>start\n/w/t.cc:7: Failure\nvalue is wrong\nend</system-out></testcase>",
        &["/w/t.cc:7: error [t::t] value is wrong"],
    ),
    // Failures in attributes alone.
    (
        "<testcase name='a' status='FAILED'/><testcase name='b' status='passed'/><testcase name='c' result='completed'/>",
        &[":: error [a] failed"],
    ),
    // Errors of a suite itself, listed or only counted.
    ("<testsuite name='db'><error message='cannot connect'/></testsuite>", &[":: error [db] cannot connect"]),
    (
        "<testsuite name='db' errors='1' failures='0'/>",
        &[":: error [db] 1 failures or errors that the report does not list"],
    ),
    (
        "<testsuite name='db' errors='1'><testcase name='a'><error message='x'/></testcase></testsuite>",
        &[":: error [a] x"],
    ),
    ("<testcase name='a'><skipped message='later'/></testcase>", &[]),
];

#[test]
fn junit_reports_give_place_and_reason() {
    for (cases, expected) in JUNIT {
        let report = format!("<testsuites><testsuite name='s'>{cases}</testsuite></testsuites>");
        assert_eq!(rows(&Format::Junit.read(&report).expect(cases)), *expected, "{cases}");
    }
}

/// The parts of a run, and its problems.
const SARIF: &[(&str, &[&str])] = &[
    (
        r#""tool":{"driver":{"rules":[{"id":"R1","defaultConfiguration":{"level":"error"}}]}},"results":[{"ruleId":"R1","message":{"text":"a"}},{"ruleId":"R1/x","message":{"text":"b"}},{"ruleIndex":0,"level":"note","message":{"text":"c"}}]"#,
        &[":: error [R1] a", ":: error [R1/x] b", ":: info [R1] c"],
    ),
    (
        r#""tool":{"driver":{"rules":[{"id":"R1","messageStrings":{"default":{"text":"Do not call '{0}'."}}}]}},"results":[{"ruleId":"R1","message":{"id":"default","arguments":["eval"]}},{"message":{"text":"No '{0}'.","arguments":["x"]}}]"#,
        &[":: warning [R1] Do not call 'eval'.", ":: warning [] No 'x'."],
    ),
    (
        r#""artifacts":[{"location":{"uri":"src/a.c"}}],"results":[{"message":{"text":"a"},"locations":[{"physicalLocation":{"artifactLocation":{"index":0},"region":{"startLine":3}}}]}]"#,
        &["src/a.c:3: warning [] a"],
    ),
    (
        r#""results":[{"baselineState":"absent","message":{"text":"a"}},{"baselineState":"unchanged","message":{"text":"b"}}]"#,
        &[":: warning [] b"],
    ),
    (
        r#""results":[],"invocations":[{"executionSuccessful":false,"toolExecutionNotifications":[{"level":"error","message":{"text":"cannot read config"}}]}]"#,
        &[":: error [] cannot read config"],
    ),
    (
        r#""invocations":[{"executionSuccessful":false,"toolConfigurationNotifications":[{"descriptor":{"id":"C1"},"message":{"text":"odd"},"locations":[{"physicalLocation":{"artifactLocation":{"uri":"x.yml"}}}]}]}]"#,
        &["x.yml:: error [C1] odd"],
    ),
    (
        r#""invocations":[{"executionSuccessful":false,"exitCode":7}]"#,
        &[":: error [] the tool failed: exit code 7"],
    ),
    (
        r#""invocations":[{"executionSuccessful":true,"toolExecutionNotifications":[{"message":{"text":"slow"}}]}],"results":null"#,
        &[],
    ),
    (
        r#""tool":{"driver":{},"extensions":[{"name":"e","rules":[{"id":"E1","shortDescription":{"text":"bad"},"defaultConfiguration":{"level":"error"}}]}]},"results":[{"rule":{"index":0,"toolComponent":{"index":0}},"message":{}},{"rule":{"id":"E1","toolComponent":{"name":"e"}},"message":{"markdown":"**no**"}}]"#,
        &[":: error [E1] bad", ":: error [E1] **no**"],
    ),
    (
        r#""originalUriBaseIds":{"SRC":{"uri":"src/","uriBaseId":"ROOT"},"ROOT":{"uri":"file:///w/"}},"results":[{"message":{"text":"a"},"locations":[{"physicalLocation":{"artifactLocation":{"uri":"a.c","uriBaseId":"SRC"}}}]},{"message":{"text":"b"},"locations":[{},{"physicalLocation":{"artifactLocation":{"uri":"b.c","uriBaseId":"OTHER"}}}]}]"#,
        &["/w/src/a.c:: warning [] a", "b.c:: warning [] b"],
    ),
    (
        r#""results":[{"kind":"pass","message":{"text":"a"}},{"kind":"notApplicable","message":{"text":"b"}},{"kind":"open","message":{"text":"c"}},{"kind":"review","level":"none","message":{"text":"d"}},{"kind":"fail","level":"none","message":{"text":"e"}}]"#,
        &[":: info [] c", ":: info [] d"],
    ),
    (
        r#""results":[{"message":{"text":"a"},"suppressions":[]},{"message":{"text":"b"},"suppressions":[{"kind":"external","status":"accepted"}]},{"message":{"text":"c"},"suppressions":[{"kind":"external","status":"rejected"}]}]"#,
        &[":: warning [] a", ":: warning [] c"],
    ),
    (
        r#""tool":{"driver":{"rules":[{"id":"R1"}]}},"invocations":[{"executionSuccessful":true,"ruleConfigurationOverrides":[{"descriptor":{"index":0},"configuration":{"level":"note"}}]}],"results":[{"ruleId":"R1","message":{"text":"the [value](1) is unsafe"}}]"#,
        &[":: info [R1] the value is unsafe"],
    ),
    (
        r#""results":[{"message":{"text":"a"},"analysisTarget":{"uri":"src/a.c"}}]"#,
        &["src/a.c:: warning [] a"],
    ),
];

#[test]
fn sarif_runs_give_level_message_and_state() {
    for (run, expected) in SARIF {
        let report = format!(r#"{{"runs":[{{{run}}}]}}"#);
        assert_eq!(rows(&Format::Sarif.read(&report).expect(run)), *expected, "{run}");
    }
}

#[test]
fn a_byte_order_mark_is_read() {
    for (format, text, count) in [
        (Format::Sarif, r#"{"runs":[{"results":[{"message":{"text":"a"}}]}]}"#, 1),
        (Format::EslintJson, r#"[{"filePath":"a","messages":[{"severity":2,"message":"x"}]}]"#, 1),
        (Format::Junit, "<t><testcase name='n'><failure/></testcase></t>", 1),
        (Format::CargoJson, r#"{"message":"no","level":"error","spans":[]}"#, 1),
        (Format::GoTestJson, r#"{"Action":"fail","Package":"p","Test":"T"}"#, 1),
    ] {
        let marked = format!("\u{feff}{text}");
        let wide: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for document in [text.as_bytes().to_vec(), marked.clone().into_bytes(), wide] {
            assert_eq!(format.read_document(document).expect("right").len(), count, "{format:?}");
        }
        assert_eq!(format.read(&marked).expect("right").len(), count, "{format:?}");
    }
}

/// Tests of package `p` as `test action text`, one a line; `-` for the package, `!` before the text
/// for an error and `+` for its further lines.
const GO: &[(&str, &[&str])] = &[
    (
        "T output     sum_test.go:12: \nT output         \tError Trace:\t/w/sum_test.go:12\nT output         \tError:      \tNot equal: \nT output         \t            \texpected: 4\nT output         \t            \tactual  : 3\nT output         \tTest:       \tT\nT output         \tMessages:   \tof two\nT fail",
        &["sum_test.go:12: error [T] Not equal: expected: 4 actual : 3; of two"],
    ),
    (
        "T output     a_test.go:5: connecting to the database\nT output     a_test.go:9: got 3, want 4\nT fail",
        &["a_test.go:9: error [T] got 3, want 4"],
    ),
    (
        "T output !    a_test.go:9: boom\nT output +        again\nT output     a_test.go:11: got here\nT output !    a_test.go:12: bang\nT fail",
        &["a_test.go:9: error [T] boom again; bang"],
    ),
    (
        "T output --- FAIL: T (0.00s)\nT output panic: runtime error: index out of range [3] with length 2 [recovered]\nT output \tpanic: runtime error: index out of range [3] with length 2\nT output goroutine 7 [running]:\nT output testing.tRunner.func1.2()\nT output \t/usr/local/go/src/testing/testing.go:1631 +0x24a\nT output example.com/p.TestB(0xc0)\nT output \tb_test.go:7 +0x1d\nT fail",
        &["b_test.go:7: error [T] runtime error: index out of range [3] with length 2"],
    ),
    // The program ends with a panic or a timeout, so nothing says that the test failed.
    (
        "T output panic: test timed out after 1s\nT output running tests:\nT output goroutine 1 [running]:\nT output p.wait()\nT output \t/w/p/wait.go:3 +0x1\n- output FAIL\tp\t1.0s\n- fail",
        &["/w/p/wait.go:3: error [T] test timed out after 1s"],
    ),
    (
        "- output cannot open the socket\n- output exit status 1\n- output FAIL\tp\t0.1s\n- fail",
        &[":: error [] p failed: cannot open the socket"],
    ),
    ("- fail", &[":: error [] p failed"]),
    // The package is not one more problem than its tests.
    ("T fail\n- output FAIL\n- fail", &[":: error [T] a test of p failed"]),
    // The logs of a parent do not say why a subtest failed.
    (
        "T/a output     a_test.go:7: want 1\nT/a fail\nT output     a_test.go:3: started\nT fail",
        &["a_test.go:7: error [T/a] want 1"],
    ),
    (
        "ExampleF output --- FAIL: ExampleF (0.00s)\nExampleF output got:\nExampleF output 3\nExampleF output want:\nExampleF output 4\nExampleF fail",
        &[":: error [ExampleF] got: 3 want: 4"],
    ),
    (
        "T output WARNING: DATA RACE\nT output Write at 0x00 by goroutine 7:\nT output   p.f()\nT output       /w/p/a.go:9 +0x1\nT output     testing.go:1490: race detected during execution of test\nT fail",
        &["/w/p/a.go:9: error [T] data race"],
    ),
    (
        "S/TestA output     suite.go:87: test panicked: boom\nS/TestA output         goroutine 8 [running]:\nS/TestA output         github.com/stretchr/testify/suite.failOnPanic(0xc0)\nS/TestA output         \t/home/u/go/pkg/mod/github.com/stretchr/testify@v1.9.0/suite/suite.go:87 +0x39\nS/TestA output         p.(*S).TestA(0xc0)\nS/TestA output         \t/w/p/a_test.go:11 +0x1\nS/TestA fail",
        &["/w/p/a_test.go:11: error [S/TestA] boom"],
    ),
    (
        "FuzzX output     --- FAIL: FuzzX (0.00s)\nFuzzX output         x_test.go:12: bad value\nFuzzX output     Failing input written to testdata/fuzz/FuzzX/58\nFuzzX fail",
        &["x_test.go:12: error [FuzzX] bad value Failing input written to testdata/fuzz/FuzzX/58"],
    ),
];

fn go_line(package: &str, line: &str) -> String {
    let mut words = line.splitn(3, ' ');
    let (test, action, text) = (words.next().unwrap_or(""), words.next().unwrap_or(""), words.next());
    let (text, kind) = match text.and_then(|text| text.split_at_checked(1)) {
        Some(("!", rest)) => (Some(rest), Some("error")),
        Some(("+", rest)) => (Some(rest), Some("error-continue")),
        _ => (text, None),
    };
    let mut json = serde_json::json!({ "Action": action, "Package": package });
    if test != "-" {
        json["Test"] = test.into();
    }
    if let Some(text) = text {
        json["Output"] = format!("{text}\n").into();
    }
    if let Some(kind) = kind {
        json["OutputType"] = kind.into();
    }
    json.to_string()
}

#[test]
fn go_tests_give_place_and_reason() {
    for (lines, expected) in GO {
        let text: Vec<String> = lines.lines().map(|line| go_line("p", line)).collect();
        assert_eq!(rows(&Format::GoTestJson.read(&text.join("\n")).expect("right")), *expected, "{lines}");
    }
    let both = ["p", "q"].map(|package| {
        let lines = ["T output     a_test.go:9: got 3", "T fail"];
        lines.map(|line| go_line(package, line)).join("\n")
    });
    let expected = ["a_test.go:9: error [T] got 3", "a_test.go:9: error [q.T] got 3"];
    assert_eq!(rows(&Format::GoTestJson.read(&both.join("\n")).expect("right")), expected);
}

#[test]
fn go_builds_fail_once_with_their_reason() {
    for (lines, expected) in [
        (
            &[
                r##"{"ImportPath":"x [x.test]","Action":"build-output","Output":"# x [x.test]\n"}"##,
                r#"{"ImportPath":"x [x.test]","Action":"build-output","Output":"./a.go:4:2: undefined: y\n"}"#,
                r#"{"ImportPath":"x [x.test]","Action":"build-fail"}"#,
                r#"{"Action":"output","Package":"x","Output":"FAIL\tx [build failed]\n"}"#,
                r#"{"Action":"fail","Package":"x","FailedBuild":"x [x.test]"}"#,
            ][..],
            &["./a.go:4:2 error [] undefined: y"][..],
        ),
        (
            &[
                r##"{"ImportPath":"x","Action":"build-output","Output":"# x\n"}"##,
                r#"{"ImportPath":"x","Action":"build-output","Output":"/usr/bin/ld: cannot find -lpq\n"}"#,
                r#"{"ImportPath":"x","Action":"build-fail"}"#,
                r#"{"Action":"fail","Package":"x","FailedBuild":"x"}"#,
            ],
            &[":: error [] /usr/bin/ld: cannot find -lpq"],
        ),
    ] {
        // Another round of the same command fails again.
        let twice = [lines.join("\n"), lines.join("\n")].join("\n");
        assert_eq!(rows(&Format::GoTestJson.read(&twice).expect("right")), [expected, expected].concat());
    }
}

/// Messages of rustc, and their problems.
const CARGO: &[(&str, &[&str])] = &[
    (
        r#"{"message":{"message":"linking with `cc` failed: exit status: 1","level":"error","code":null,"spans":[],"children":[{"message":"\"cc\" \"-m64\" \"error: \""},{"message":"/usr/bin/ld: cannot find -lpq: No such file\ncollect2: error: ld returned 1 exit status"}]}}
{"message":{"message":"aborting due to 1 previous error","level":"error","code":null,"spans":[]}}"#,
        &[
            ":: error [] linking with `cc` failed: exit status: 1: /usr/bin/ld: cannot find -lpq: No such file",
        ],
    ),
    (
        r#"{"message":{"message":"linking with `cc` failed: exit status: 1","level":"error","code":null,"spans":[],"children":[{"level":"note","message":"cannot find -lpq"}]}}"#,
        &[":: error [] linking with `cc` failed: exit status: 1: cannot find -lpq"],
    ),
    (
        r#"{"message":{"message":"unexpected panic","level":"error: internal compiler error","code":null,"spans":[]}}
{"message":{"message":"Some errors have detailed explanations: E0425.","level":"failure-note","code":null,"spans":[]}}
{"message":{"message":"3 warnings emitted","level":"warning","code":null,"spans":[]}}
{"message":{"message":"aborting due to 2 previous errors; 3 warnings emitted","level":"error","code":null,"spans":[]}}"#,
        &[":: error [] unexpected panic"],
    ),
    (
        r#"{"message":{"message":"no","level":"error","code":null,"spans":[{"file_name":"/rustc/abc/library/std/src/macros.rs","line_start":9,"column_start":1,"is_primary":true,"expansion":{"macro_decl_name":"println!","span":{"file_name":"src/a.rs","line_start":3,"column_start":5,"is_primary":false,"expansion":null}}}]}}"#,
        &["src/a.rs:3:5 error [] no"],
    ),
    (
        r#"{"message":{"message":"no","level":"error","code":null,"spans":[{"file_name":"src/m.rs","line_start":9,"column_start":1,"is_primary":true,"expansion":{"span":{"file_name":"src/a.rs","line_start":3,"column_start":5,"is_primary":false}}}]}}"#,
        &["src/m.rs:9:1 error [] no"],
    ),
    (
        r#"{"reason":"build-finished","success":false}"#,
        &[":: error [] the build failed, and no message of the compiler says why"],
    ),
    (r#"{"reason":"build-finished","success":true}"#, &[]),
];

#[test]
fn cargo_errors_without_a_place_are_kept() {
    for (lines, expected) in CARGO {
        assert_eq!(rows(&Format::CargoJson.read(lines).expect("right")), *expected, "{lines}");
    }
}

#[test]
fn hostile_references_stay_linear() {
    const COUNT: usize = 100_000;
    let long = "x".repeat(4_000_000);
    let results = |result: &str| vec![result; COUNT].join(",");
    for (run, count) in [
        (
            format!(
                r#""tool":{{"driver":{{"rules":[{{"id":"R","messageStrings":{{"a":{{"text":"{long}"}}}}}}]}}}},"results":[{}]"#,
                results(r#"{"ruleId":"R","message":{"id":"a"}}"#)
            ),
            PROBLEMS_MAX,
        ),
        (
            format!(
                r#""artifacts":[{{"location":{{"uri":"{long}"}}}}],"results":[{}]"#,
                results(
                    r#"{"message":{},"locations":[{"physicalLocation":{"artifactLocation":{"index":0}}}]}"#
                )
            ),
            PROBLEMS_MAX,
        ),
        (format!(r#""results":[{{"message":{{"text":"{}"}}}}]"#, "](".repeat(COUNT)), 1),
        (format!(r#""tool":{{"driver":{{"rules":[{}]}}}},"results":[]"#, results("{}")), 0),
    ] {
        let report = format!(r#"{{"runs":[{{{run}}}]}}"#);
        assert_eq!(Format::Sarif.read(&report).expect("right").len(), count);
    }
}

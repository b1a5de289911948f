//! Programs that would need unbounded memory or time in plain minijinja, and random ones.

use std::{fmt::Write as _, sync::LazyLock};

use minijinja::{Environment, ErrorKind, UndefinedBehavior, value::Value};
use proptest::prelude::*;
use serde_json::json;

use super::{
    account::{ACCOUNT, Account, TEXT_BYTES_MAX},
    *,
};

const STEPS: u64 = 1_000_000;
const FUEL: u64 = 200_000;
const GRAMMAR: Grammar = Grammar {
    variables: &["payload", "n"],
    filters: &[],
    event_fields: &[],
    functions: &[],
    unknown: |name| format!("no `{name}`"),
};

/// Prints values as they are, and own text as in `render`.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = environment(UndefinedBehavior::Chainable, FUEL, |_, value| Ok(value.clone()));
    environment.set_formatter(|out, state, value| {
        let account = account::account(state)?;
        if let Some(own) = value.downcast_object_ref::<OwnText>() {
            account.spend_text(own.text.len())?;
            return Ok(out.write_str(&own.text)?);
        }
        account::admit_as_text(&account, value)?;
        Ok(write!(out, "{value}")?)
    });
    environment
});

/// The outcome of one run.
#[derive(Debug)]
enum Ended {
    Refused,
    Failed(ErrorKind),
    Wrote(String),
}

/// Runs a template; returns the outcome and the number of spent steps.
fn run(source: &str, payload: serde_json::Value) -> (Ended, u64) {
    let Ok((program, _)) = Program::template(source.into(), &GRAMMAR, &Libraries::default()) else {
        return (Ended::Refused, 0);
    };
    let account = Account::new(STEPS);
    let root = Value::from_pairs([
        ("payload", Value::from(minijinja::value::Serde(payload))),
        ("n", Value::from(i64::MAX)),
        (ACCOUNT, Value::from_dyn_object(account.clone())),
    ]);
    let mut output = String::new();
    let ended = program.run(&ENVIRONMENT, root, &mut output, |_, _| ());
    let ended = match ended {
        Ok(()) => Ended::Wrote(output),
        Err(error) => Ended::Failed(error.kind()),
    };
    (ended, account.spent())
}

/// One line each; in plain minijinja each needed gigabytes or minutes.
const ATTACKS: [&str; 46] = [
    r#"{{ "x\ny"|indent(n) }}"#,
    "{{ [1]|slice(1000000000000)|length }}",
    "{{ [1]|batch(n, 0) }}",
    // Nested deep, these values overflowed the stack when dropped.
    "{% set ns = namespace(l=1) %}{% for i in range(30000) %}{% set ns.l = {ns.l: 1} %}{% endfor %}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(30000) %}{% set ns.l = ns.l|batch(2) %}{% endfor %}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(30000) %}{% set ns.l = ns.l|slice(1) %}{% endfor %}",
    "{% set ns = namespace(l=[[1]]) %}{% for i in range(30000) %}{% set ns.l = ns.l|map('batch', 2)|list %}{% endfor %}",
    "{{ [1]|batch(1000000000, 0)|length }}",
    "{{ '%9999999999d'|format(1) }}",
    "{{ '%.*f'|format(n, 1) }}",
    "{{ '%200d' * 1000 }}",
    "{{ payload.text * 1000000 }}",
    "{{ payload.list * 1000000 }}",
    "{{ 'x' * 100000000 }}",
    "{{ ('x' ~ 'y') * 100000000 }}",
    "{{ [0] * 100000000 }}",
    "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(40) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
    "{% set ns = namespace(t='xxxxxxxx') %}{% for i in range(40) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ ns.t }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l|length }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(9000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|string }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l }}",
    "{% set ns = namespace(l={}) %}{% for i in range(9000) %}{% set ns.l = {'a': ns.l} %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(l={}) %}{% for i in range(9000) %}{% set ns.l = dict(a=ns.l) %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns|string }}",
    "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns == ns }}",
    "{% set ns = namespace() %}{% set ns.me = [1]|batch(2, ns) %}{{ ns|string }}",
    "{% set a = payload.text|replace('a', payload.text) %}{% set b = a|replace('a', a) %}{{ b|replace('a', b) }}",
    "{{ payload.text|replace('', payload.text)|replace('', payload.text) }}",
    "{% for i in range(20000) %}{% set x = payload.text|upper %}{% endfor %}",
    "{% for i in range(20000) %}{% set x = payload.text|split('a')|join('b') %}{% endfor %}",
    "{% for i in range(20000) %}{% set x = payload.list|sort %}{% endfor %}",
    "{% for i in range(20000) %}{% set x = payload == payload %}{% endfor %}",
    "{% for i in range(20000) %}{% set x = 'z' in payload.text %}{% endfor %}",
    "{% for i in range(20000) %}{% set x = payload.text[60000] %}{% endfor %}",
    "{% for i in range(20000) %}{% for x in payload.list %}{% break %}{% endfor %}{% endfor %}",
    "{% for i in range(20000) %}{% if loop.changed(payload) %}{% endif %}{% endfor %}",
    "{{ range(99999)|join(payload.text) }}",
    "{% for i in range(20000) %}{% set x = payload.text[:8000]|regex_find('(a?){300}b') %}{% endfor %}",
    "{{ payload.text[:8000]|regex_replace('', payload.text[:900]) }}",
    "{{ payload.text[:8000]|regex_replace('a+', '$0$0$0$0$0$0$0$0$0') }}",
    "{{ payload.text|regex_find('a') }}",
    "{% for i in range(20000) %}{% set x = payload.text|urlencode|truncate(9) %}{% endfor %}",
    "{{ ('[' ~ payload.text|replace('a', '[')) | fromjson }}",
    "{% for i in range(20000) %}{% set x = ('[' ~ payload.list|join(',') ~ ']')|fromjson %}{% endfor %}",
    "{{ payload.text|date(payload.text) }}",
    "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
];

fn large_payload() -> serde_json::Value {
    json!({ "text": "a".repeat(60_000), "list": (0..1_000).collect::<Vec<_>>() })
}

#[test]
fn programs_with_unbounded_memory_or_time_fail() {
    for source in ATTACKS {
        let (ended, spent) = run(source, large_payload());
        assert!(matches!(ended, Ended::Refused | Ended::Failed(..)), "{source}: {ended:?}");
        assert!(spent <= STEPS, "{source}");
    }
}

#[test]
fn printed_template_text_costs_fuel_each_time() {
    let source = format!("{{% for i in range(30000) %}}{}{{% endfor %}}", "x".repeat(60_000));
    assert!(matches!(run(&source, json!({})).0, Ended::Failed(ErrorKind::OutOfFuel)));
    let source = format!("{{% for i in range(30000) %}}{}{{% endfor %}}", "x".repeat(100));
    match run(&source, json!({})).0 {
        Ended::Wrote(output) => assert_eq!(output.len(), 3_000_000),
        Ended::Failed(kind) => assert_eq!(kind, ErrorKind::OutOfFuel),
        Ended::Refused => panic!("it is allowed"),
    }
}

#[test]
fn rewritten_programs_do_what_they_say() {
    let payload =
        json!({ "n": 5, "f": 1.5, "s": "abc", "list": [3, 1, 2], "map": { "b": 1, "a": 2 }, "none": null });
    for (expression, expected) in [
        ("payload.n + 1", "6"),
        ("1 + payload.n * 2 - 3 // 2", "10"),
        ("payload.f * 2", "3.0"),
        ("payload.f + payload.n", "6.5"),
        ("payload.n ~ '/' ~ payload.s", "5/abc"),
        ("payload.s + 'd'", "abcd"),
        ("payload.list + [4]", "[3, 1, 2, 4]"),
        ("payload.s[1:]", "bc"),
        ("payload.list[-2:]", "[1, 2]"),
        ("payload.list[::-1]", "[2, 1, 3]"),
        ("payload.list[1]", "1"),
        ("payload.s[0]", "a"),
        ("payload['s']", "abc"),
        ("payload.nothing[1:]", "[]"),
        ("payload.n == 5 and payload.s != 'x'", "True"),
        ("5 == payload.n", "True"),
        ("1 < payload.n < 6", "True"),
        ("1 < payload.n < 5", "False"),
        ("6 > payload.n >= 5", "True"),
        ("1 == 1 != 2", "True"),
        ("3 in payload.list and 9 not in payload.list", "True"),
        ("1 < 2 in payload.list", "True"),
        ("'b' in payload.s and 'a' in payload.map", "True"),
        ("payload.none < 1 or payload.none > 1", "False"),
        ("[payload.n, payload.s]", "[5, 'abc']"),
        ("(payload.n, payload.s)[0]", "5"),
        ("{'k': payload.n}.k", "5"),
        ("payload.list|sort|join(',')", "1,2,3"),
        ("payload.list|sort(reverse=true)|first", "3"),
        ("payload.list|map('string')|join", "312"),
        ("payload.list|select('gt', 1)|list|length", "2"),
        ("payload.list|sum", "6"),
        ("payload.map|dictsort|length", "2"),
        ("payload.map|items|length", "2"),
        ("payload.s|replace('b', 'xx')|upper", "AXXC"),
        ("'a b'|split|last", "b"),
        ("'x'|indent(2, true)", "  x"),
        ("[1, 2, 3]|batch(2)|length", "2"),
        ("'%03d %s'|format(payload.n, payload.s)", "005 abc"),
        ("range(3)|list", "[0, 1, 2]"),
        ("dict(payload.map, c=3)|length", "3"),
        ("payload.s is startingwith 'a'", "True"),
        ("payload.s is lower and payload.n is number", "True"),
    ] {
        let (ended, _) = run(&format!("{{{{ {expression} }}}}"), payload.clone());
        assert!(matches!(&ended, Ended::Wrote(text) if text == expected), "{expression}: {ended:?}");
    }
}

#[test]
fn divisibility_by_zero_is_an_error() {
    let payload = json!({ "n": 0, "f": 0.0, "least": i64::MIN });
    for (expression, expected) in [
        ("42 is divisibleby 2", Some("True")),
        ("payload.least is divisibleby -1", Some("True")),
        ("1.5 is divisibleby 0.5", Some("True")),
        ("'a' is divisibleby 2", Some("False")),
        ("42 is divisibleby payload.n", None),
        ("42 is divisibleby payload.f", None),
        ("payload.n is divisibleby 0", None),
    ] {
        let (ended, _) = run(&format!("{{{{ {expression} }}}}"), payload.clone());
        let written = if let Ended::Wrote(text) = &ended { Some(text.as_str()) } else { None };
        assert_eq!(written, expected, "{expression}: {ended:?}");
    }
}

#[test]
fn loops_macros_and_blocks_keep_their_jumps() {
    let long = "y".repeat(300);
    for (source, expected) in [
        ("{% for x in payload.list if x > 1 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %}".to_owned(), "1:3 2:2 ".to_owned()),
        ("{% for x in [] %}x{% else %}none{% endfor %}".to_owned(), "none".to_owned()),
        ("{% for a, b in payload.map|items %}{{ a }}{{ b }}{% endfor %}".to_owned(), "b1a2".to_owned()),
        (
            "{% for x in payload.tree recursive %}{{ x.n }}{{ loop(x.below or []) }}{% endfor %}".to_owned(),
            "123".to_owned(),
        ),
        ("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(3, b=4) }}".to_owned(), "1234".to_owned()),
        ("{% set a, b = [1, 2] %}{{ a }}{{ b }}".to_owned(), "12".to_owned()),
        ("{% set ns = namespace(n=0) %}{% for x in payload.list %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}".to_owned(), "6".to_owned()),
        ("{% for x in [1, 1, 2] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}".to_owned(), "12".to_owned()),
        ("{% filter upper %}ab{% endfilter %}".to_owned(), "AB".to_owned()),
        ("{% for x in payload.list %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}".to_owned(), "3".to_owned()),
    ] {
        let payload = json!({ "list": [3, 1, 2], "map": { "b": 1, "a": 2 }, "tree": [{ "n": 1, "below": [{ "n": 2 }] }, { "n": 3 }] });
        let (ended, _) = run(&source, payload);
        assert!(matches!(&ended, Ended::Wrote(text) if *text == expected), "{source}: {ended:?}");
    }
    let source =
        format!("{{% for x in range(2) %}}{long}{{% if x %}}a{{% else %}}b{{% endif %}}{{% endfor %}}");
    assert!(matches!(run(&source, json!({})).0, Ended::Wrote(_)));
}

/// Expressions of all allowed kinds.
fn any_expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(&[
        "payload",
        "payload.text",
        "payload.list",
        "n",
        "x",
        "l",
        "ns.t",
        "ns.l",
        "1",
        "-1",
        "99999",
        "''",
        "'ab'",
        "[]",
        "{}",
        "none",
        "true",
        "payload.nothing",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let filters: Vec<String> = filters::filter_names().map(str::to_owned).collect();
        let tests: Vec<String> = filters::test_names()
            .filter(|name| name.starts_with(char::is_alphabetic))
            .map(str::to_owned)
            .collect();
        let operators = prop::sample::select(&[
            "+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "and", "or",
        ]);
        prop_oneof![
            (inner.clone(), operators, inner.clone())
                .prop_map(|(a, operator, b)| format!("({a} {operator} {b})")),
            (inner.clone(), prop::sample::select(filters.clone()))
                .prop_map(|(a, filter)| format!("({a})|{filter}")),
            (inner.clone(), prop::sample::select(filters), inner.clone())
                .prop_map(|(a, filter, b)| format!("({a})|{filter}({b})")),
            (inner.clone(), prop::sample::select(tests), inner.clone())
                .prop_map(|(a, test, b)| format!("(({a}) is {test}({b}))")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a})[{b}:{c}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("dict(a={a}, b={b})")),
            inner.clone().prop_map(|a| format!("range({a})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} if {b} else {c})")),
        ]
    })
}

/// Templates that use such expressions repeatedly, with earlier results.
fn any_template() -> impl Strategy<Value = String> {
    let statement = (0..6_u8, any_expression()).prop_map(|(kind, expression)| match kind {
        0 => format!("{{{{ {expression} }}}}"),
        1 => format!("{{% set x = {expression} %}}"),
        2 => format!("{{% set ns.t = {expression} %}}"),
        3 => format!("{{% set ns.l = {expression} %}}"),
        4 => format!(
            "{{% for l in {expression} %}}{{% if loop.changed(l) %}}{{{{ l }}}}{{% endif %}}{{% endfor %}}"
        ),
        _ => format!("{{% set x %}}{{{{ {expression} }}}}{{% endset %}}"),
    });
    prop::collection::vec(statement, 1..5).prop_map(|statements| {
        let mut source =
            "{% set ns = namespace(t='ab', l=[1]) %}{% set x = 1 %}{% set l = 2 %}{% for i in range(3000) %}"
                .to_owned();
        for statement in statements {
            write!(source, "{statement}").expect("a String");
        }
        source + "{% endfor %}"
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_random_program_exceeds_its_fuel_budget(source in any_template()) {
        let payload = json!({ "text": "a b\n".repeat(2_000), "list": (0..300).collect::<Vec<_>>(), "o": { "a": [1, { "b": 2 }] } });
        let (ended, spent) = run(&source, payload);
        prop_assert!(spent <= STEPS);
        if let Ended::Wrote(output) = ended {
            let most = TEXT_BYTES_MAX as u64 * FUEL;
            prop_assert!((output.len() as u64) < most, "{}", output.len());
        }
    }
}

#[test]
fn filters_write_for_a_reader() {
    let payload = json!({
        "ms": 91_000, "text": "abcdef", "path": "/w/src/a.rs", "at": "2026-01-05T09:07:00+01:00", "none": null,
        "list": [1, 2], "json": "{\"a\": [1, \"\\u001b[31mx\"]}", "half": "0.5",
    });
    for (expression, expected) in [
        ("payload.text|truncate(2)", "ab\u{2026} [+4 chars]"),
        ("payload.text|truncate(6)", "abcdef"),
        ("payload.ms|duration", "1m31s"),
        ("0|duration", "0ms"),
        ("1500|duration", "1.5s"),
        ("'59999'|duration", "59.9s"),
        ("(3600000 * 9 + 720000)|duration", "9h12m"),
        ("(86400000 * 3 + 1)|duration", "3d0h"),
        ("(0 - 91000)|duration", "-1m31s"),
        ("1e300|duration", "213503982334d14h"),
        ("payload.at|date", "2026-01-05 08:07"),
        ("payload.at|date('%d %b %H:%M:%S %Z')", "05 Jan 08:07:00 UTC"),
        ("0|date('%Y')", "1970"),
        ("'2026-01-05'|date", "2026-01-05 00:00"),
        ("512|bytes", "512 B"),
        ("1536|bytes", "1.5 KiB"),
        ("1048575|bytes", "1 MiB"),
        ("(1024 * 1024 * 7)|bytes", "7 MiB"),
        ("1e30|bytes", "867361737988.4 EiB"),
        ("0.256|percent", "26%"),
        ("payload.half|percent(1)", "50.0%"),
        ("payload.path|basename", "a.rs"),
        ("'C:\\\\x\\\\y.txt'|basename", "y.txt"),
        ("'a/b/'|basename", "b"),
        ("'/'|basename", "/"),
        ("1|plural('file', 'files')", "file"),
        ("0|plural('file', 'files')", "files"),
        ("payload.list|plural('file', 'files')", "files"),
        ("payload.text|regex_find('b(c)(d)?')", "c"),
        ("payload.text|regex_find('[c-e]+')", "cde"),
        ("payload.text|regex_find('x') or 'nothing'", "nothing"),
        ("payload.text|regex_replace('([ace])', '<$1>')", "<a>b<c>d<e>f"),
        ("payload.text|regex_replace('x', '')", "abcdef"),
        ("'build-12 of Main'|regex_find('\\w+-(\\d+)')", "12"),
        ("'a bc d'|regex_find('(\\w+)\\W(\\w+)\\W(\\w+)')", "a"),
        ("['a1', 'b2']|map('regex_find', '[0-9]')|join", "12"),
        ("(payload.json|fromjson).a|last", "x"),
        ("'a b/\u{e9}&'|urlencode", "a%20b/%C3%A9%26"),
        ("payload.none|duration", "None"),
        ("payload.gone|basename|default('?')", "?"),
        ("payload.gone|regex_find('x')|default('?')", "?"),
    ] {
        match run(&format!("{{{{ {expression} }}}}"), payload.clone()).0 {
            Ended::Wrote(written) => assert_eq!(written, expected, "{expression}"),
            ended @ (Ended::Refused | Ended::Failed(_)) => panic!("{expression}: {ended:?}"),
        }
    }
}

#[test]
fn values_of_other_kinds_fail() {
    let payload = json!({ "map": { "a": 1 }, "text": "x", "list": [1] });
    for filter in ["duration", "bytes", "percent", "date", "plural('a', 'b')"] {
        for value in
            ["payload.text", "true", "payload.map", "''", "'nan'", "1e999", "payload.list|first|string ~ 'x'"]
        {
            let source = format!("{{{{ ({value})|{filter} }}}}");
            let (ended, _) = run(&source, payload.clone());
            let is_counted = filter.starts_with("plural") && value == "payload.map";
            assert!(is_counted || matches!(ended, Ended::Failed(_) | Ended::Refused), "{source}: {ended:?}");
        }
    }
    for source in [
        "payload.map|truncate(3)",
        "payload.list|basename",
        "payload.map|urlencode",
        "'{'|fromjson",
        "0.5|percent(11)",
    ] {
        let (ended, _) = run(&format!("{{{{ {source} }}}}"), payload.clone());
        assert!(matches!(ended, Ended::Failed(ErrorKind::InvalidOperation)), "{source}: {ended:?}");
    }
}

#[test]
fn wrong_literals_are_refused_at_their_place() {
    for (source, marked, part) in [
        ("{{ payload|regex_find('a(') }}", "'a('", "not a regular expression: unclosed group"),
        ("{{ payload|regex_replace('(a{500}){500}', '') }}", "'(a{500}){500}'", "too large"),
        ("{{ payload|regex_find(payload) }}", "regex_find", "as a literal text"),
        ("{{ payload|regex_find('a' ~ 'b') }}", "regex_find", "as a literal text"),
        ("{{ payload|regex_find }}", "regex_find", "as a literal text"),
        ("{{ payload|map('regex_find', payload)|list }}", "'regex_fin", "as a literal text"),
        ("{% filter regex_replace('[', '') %}x{% endfilter %}", "'['", "not a regular expression"),
        ("{{ payload|date('%&') }}", "'%&'", "is not a format of `date`"),
        ("{{ payload|truncat(3) }}", "truncat", "did you mean `truncate`?"),
    ] {
        let fault = Program::template(source.into(), &GRAMMAR, &Libraries::default()).err().expect(source);
        let range = fault.range.clone().unwrap_or_default();
        assert!(source[range].starts_with(marked), "{source}: {fault:?}");
        assert!(fault.message.contains(part), "{source}: {fault:?}");
    }
    let many: String =
        (0..21).fold(String::new(), |text, n| text + &format!("{{{{ payload|regex_find('a{n}') }}}}"));
    assert!(
        Program::template(many.as_str().into(), &GRAMMAR, &Libraries::default())
            .is_err_and(|fault| fault.message.contains("at most 20"))
    );
}

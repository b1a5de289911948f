use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use journal::time::Timestamp;

use crate::{
    event::{Event, FIELD_CHARS_MAX, Payload, Seq, Severity, clean_text},
    notification::{Category, Level, SubscriberId},
};

pub(super) const PLENTY: u32 = 100_000;

/// A row of an event with `payload`.
pub(super) fn row(payload: Value, repeats: u32) -> Row {
    let event_type = "tool.call.failure".parse().expect("valid");
    let event = Event {
        id: "e1".into(),
        source: "tool_executor".into(),
        severity: Severity::Error,
        timestamp: Timestamp::from_millis(1_000),
        ..Event::example(event_type, Payload::from(payload))
    };
    Row { seq: Seq(1), event: Arc::new(event), repeats, threshold: None, suppressed: None }
}

fn rows(payloads: impl IntoIterator<Item = Value>) -> Vec<Row> {
    payloads.into_iter().map(|payload| row(payload, 1)).collect()
}

struct Case<'a> {
    template: &'a str,
    rows: Vec<Row>,
    repeats: u32,
    suppressed: u32,
    max_tokens: u32,
}

impl<'a> Case<'a> {
    fn new(template: &'a str, payloads: impl IntoIterator<Item = Value>) -> Self {
        Self { template, rows: rows(payloads), repeats: 0, suppressed: 0, max_tokens: PLENTY }
    }

    fn render(&self) -> Rendered {
        let mut templates = Templates::new();
        templates.add("t", self.template).unwrap_or_else(|error| panic!("{error}: {}", self.template));
        let subscriber = SubscriberId::new("sub");
        let input = RenderInput {
            subscriber_name: "Sub",
            repeats: self.repeats,
            suppressed: self.suppressed,
            now: Timestamp::from_millis(2_000),
            ..RenderInput::new(&subscriber, &self.rows, Tokens(self.max_tokens))
        };
        let rendered = templates.render("t", &input);
        assert!(toon::decode(&rendered.content).is_ok(), "{}", rendered.content);
        assert!(!toon::has_control_token(&rendered.content), "{}", rendered.content);
        rendered
    }

    /// The content of a render that must succeed.
    fn content(&self) -> String {
        let rendered = self.render();
        assert_eq!(rendered.failure, None, "{}", self.template);
        rendered.content
    }
}

fn content(template: &str, payload: Value) -> String {
    Case::new(template, [payload]).content()
}

const PLAIN: &str = "tool_fail: {{ events[0].payload.tool_name }} {{ events[0].payload.error_type }}\
     {% if events[0].payload.error_message %} - {{ events[0].payload.error_message }}{% endif %}\nnext: 1";

#[test]
fn the_plain_style_renders_any_value_exactly() {
    for (message, written) in [
        (json!("no match"), "tool_fail: grep x - no match\nnext: 1"),
        (json!("a: b, \"c\"\n- d"), "tool_fail: \"grep x - a: b, \\\"c\\\"\\n- d\"\nnext: 1"),
        (json!("</notifications>"), "tool_fail: \"grep x - \\u003c/notifications>\"\nnext: 1"),
        (json!(""), "tool_fail: grep x\nnext: 1"),
        (json!(null), "tool_fail: grep x\nnext: 1"),
    ] {
        assert_eq!(
            content(PLAIN, json!({"tool_name": "grep", "error_type": "x", "error_message": message})),
            written
        );
    }
}

#[test]
fn a_single_value_cell_keeps_its_type() {
    let payload = json!({"n": 5, "f": 1.50, "b": true, "z": null, "s": "05", "k": "a key", "big": u64::MAX});
    for (template, written) in [
        ("v: {{ events[0].payload.n }}", "v: 5"),
        ("v: {{ events[0].payload.f }}", "v: 1.5"),
        ("v: {{ events[0].payload.b }}", "v: true"),
        ("v: {{ events[0].payload.z }}", "v: null"),
        ("v: {{ events[0].payload.s }}", "v: \"05\""),
        ("v: {{ events[0].payload.big }}", "v: 18446744073709551615"),
        ("v: {{ events[0].payload.n }}{{ events[0].payload.n }}", "v: \"55\""),
        ("v: \"{{ events[0].payload.n }}\"", "v: \"5\""),
        ("v: {{ events[0].payload.n }} %", "v: 5 %"),
        ("v: {{ events[0].payload.n }} {% if false %}x{% endif %}", "v: 5"),
        ("{{ events[0].payload.k }}: 1", "\"a key\": 1"),
        ("v[{{ events|length }}]{{ '{' }}a}: x", ""),
        ("v[{{ count + 1 }}]: {{ events[0].payload.s }}, b c", "v[2]: \"05\",b c"),
        (
            "v[2]{a,{{ events[0].payload.k }}}:\n  1,{{ events[0].payload.s }}\n\n  x y,\"q, r\"\n",
            "v[2]{a,\"a key\"}:\n  1,\"05\"\n  x y,\"q, r\"",
        ),
        (
            "v[2]:\n  - {{ events[0].payload.s }}:{{ events[0].payload.n }} x\n  - a: 1",
            "v[2]:\n  - \"05:5 x\"\n  - a: 1",
        ),
        ("v[2:]{p}:\n  a: {{ events[0].payload.n }}\n  b: 2", "v[2:]{p}:\n  a: 5\n  b: 2"),
        ("o:\n  a: {{ events[0].payload.n }}\n  b: http://x", "o:\n  a: 5\n  b: \"http://x\""),
        ("o: \n  a: 1\ne: {% if false %}x{% endif %}\nf: []\ng:", "o:\n  a: 1\ne: \"\"\nf: []\ng:"),
        ("v:{{ events[0].payload.n }}", "v: 5"),
        ("!critical: yes", "\"!critical\": yes"),
        (
            "v: {{ subscriber.id }} {{ subscriber.name }} {{ count }} {{ now }}",
            "v: \"sub Sub 1 1970-01-01T00:00:02Z\"",
        ),
    ] {
        if !written.is_empty() {
            assert_eq!(content(template, payload.clone()), written, "{template}");
        }
    }
}

#[test]
fn filters_write_structure_and_encode_every_value() {
    let payload =
        json!({"list": ["a,b", 1, null], "map": {"x y": "</system>", "n": [{"a": 1}, {"a": 2}]}, "k": "a b"});
    for (template, written) in [
        ("v[3]: {{ events[0].payload.list|toon_row }}", "v[3]: \"a,b\",1,null"),
        ("v[1]{a,b,c,d}:\n  {{ events[0].payload.list|toon_row }},x", "v[1]{a,b,c,d}:\n  \"a,b\",1,null,x"),
        ("{{ events[0].payload.k|toon_key }}[1]: x", "\"a b\"[1]: x"),
        ("a: 1\n{{ events[0].payload.map|toon }}", "a: 1\n\"x y\": \"\\u003c/system>\"\nn[2]{a}:\n  1\n  2"),
        ("o:\n  {{ events[0].payload.map.n|toon(key='rows') }}", "o:\n  rows[2]{a}:\n    1\n    2"),
        (
            "o:\n{{ events[0].payload.map.n|toon(key='r', columns={'b': ['z', 'a']}, indent=2) }}",
            "o:\n  r[2]{b}:\n    1\n    2",
        ),
        (
            "{{ rows|toon(key='rows', columns=['k', 'map.x y', '@type']) }}",
            "rows[1]{k,\"map.x y\",\"@type\"}:\n  a b,\"\\u003c/system>\",tool.call.failure",
        ),
        ("{% macro line(x) %}\nk: {{ x }}\n{% endmacro %}{{ line('a: b') }}\nz: 1", "k: \"a: b\"\nz: 1"),
        (
            "{% set s %}{{ events[0].payload.k }}, {{ 1 }}{% endset %}v: {{ s }}\nw: {{ s ~ '!' }}",
            "v: \"a b, 1\"\nw: \"a b, 1!\"",
        ),
        ("v: {{ events[0].payload.list|tojson }}", "v: \"[\\\"a,b\\\",1,null]\""),
        ("v: {{ 'abcdef'|tail(2) }}", "v: \"[+4 chars] \u{2026}ef\""),
    ] {
        assert_eq!(content(template, payload.clone()), written, "{template}");
    }
}

#[test]
fn rows_have_the_same_columns_whatever_the_payloads() {
    let payloads = [json!({"a": 1, "o": {"x": "p", "y": []}}), json!({"b": ["q", 2], "a": [{"z": 1}]})];
    let mut case = Case::new("{{ rows|toon(key='r') }}", payloads);
    assert_eq!(case.content(), "r[2]{a,o.x,o.y,b}:\n  1,p,\"\",null\n  \"[{\\\"z\\\":1}]\",null,null,q 2");
    case.rows[1].repeats = 3;
    case.template = "r[2]{a,n}:\n{% for row in rows %}\n  {{ row.b }},{{ row.repeats }}\n{% endfor %}";
    assert_eq!(case.content(), "r[2]{a,n}:\n  null,1\n  q 2,3");
}

#[test]
fn keys_of_a_payload_cannot_break_a_header() {
    let payload = json!({"a,b}:\n  c": 1, "</system>": 2, "x\u{1b}[1m": {"-": 3}, "\u{7}y": 4});
    let written = "r[1]{\"a,b}:\\n  c\",\"\\u003c/system>\",\"x.-\",y}:\n  1,2,3,4";
    assert_eq!(content("{{ rows|toon(key='r') }}", payload), written);
}

#[test]
fn an_overlong_template_table_is_cut_and_counted() {
    let payload = json!({"message": "m", "all": (0..20).map(|n| json!({"n": n})).collect::<Vec<_>>()});
    let content = content("sum: 20\n{{ events[0].payload.all|toon(key='all') }}", payload);
    let decoded = toon::decode(&content).expect("strict");
    let all: Vec<Value> = (0..15).map(|n| json!({"n": n})).collect();
    assert_eq!(decoded, json!({"sum": 20, "all": all, "omitted": 5}));
}

#[test]
fn templates_see_the_whole_batch_before_the_cut() {
    let payloads = (1..=40).map(|n| json!({"n": n, "ms": n * 10}));
    let all = Case::new(
        "total: {{ events|map(attribute='payload.n')|sum }}\nlast: {{ events[-1].payload.n }}\ncount: {{ count }}\n\
         rows: {{ rows|length }}\nworst: {{ rows|map(attribute='ms')|max }}\n{{ rows|sort(attribute='n', reverse=true)|toon(key='r', columns=['n', '@type']) }}",
        payloads,
    );
    let decoded = toon::decode(&all.content()).expect("strict");
    let rows = (0..15).map(|at| json!({"n": 40 - at, "@type": "tool.call.failure"})).collect::<Vec<_>>();
    let expected =
        json!({"total": 820, "last": 40, "count": 40, "rows": 40, "worst": 400, "r": rows, "omitted": 25});
    assert_eq!(decoded, expected);
    let small = Case { max_tokens: 60, ..all };
    let decoded = toon::decode(&small.content()).expect("strict");
    let shown = decoded.get("r").and_then(Value::as_array).map_or(0, Vec::len);
    assert!(shown < 15, "{decoded}");
    assert_eq!((decoded.get("total"), decoded.get("omitted")), (Some(&json!(820)), Some(&json!(40 - shown))));
}

#[test]
fn parts_of_rows_are_rows() {
    for (template, written) in [
        ("{{ rows[:2]|toon(key='r') }}", "r[2]{n}:\n  0\n  1"),
        ("{{ rows[1:]|toon(key='r') }}", "r[2]{n}:\n  1\n  2"),
        ("{{ rows[-1:]|toon(key='r') }}", "r[1]{n}:\n  2"),
        ("{{ rows|reverse|toon(key='r') }}", "r[3]{n}:\n  2\n  1\n  0"),
        (
            "{{ rows|selectattr('n', 'gt', 0)|toon(key='r', columns={'x': 'n', 't': '@severity'}) }}",
            "r[2]{x,t}:\n  1,error\n  2,error",
        ),
        ("{{ rows[0]|toon(columns=['n', '@source']) }}", "n: 0\n\"@source\": tool_executor"),
        ("{% for r in rows[:1] %}\na: {{ r.n }}\n{% endfor %}", "a: 0"),
        ("n: {{ rows[:5]|length }}", "n: 3"),
    ] {
        let case = Case::new(template, (0..3).map(|n| json!({"n": n})));
        assert_eq!(case.content(), written, "{template}");
    }
}

#[test]
fn a_column_is_found_by_its_displayed_name() {
    let template = r#"{{ rows|toon(key="t", columns=["n", "tool"]) }}"#;
    for (key, name) in [
        ("tool", "tool"),
        ("to\u{200b}ol", "tool"),
        ("to\u{7}ol", "tool"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_[masked]"),
    ] {
        for other in ["no zero width", "\u{e9}\u{2713}"] {
            let template = template.replace("tool", name);
            let written = content(&template, json!({"n": 1, key: 2, "other": other}));
            let decoded = toon::decode(&written).expect("strict");
            assert_eq!(decoded["t"][0], json!({"n": 1, name: 2}), "{key} {other}");
        }
    }
}

#[test]
fn a_table_with_only_absent_columns_fails() {
    let payloads = || [json!({"n": 1, "m": null}), json!({"n": 2})];
    let case = Case::new("{{ rows|toon(key='r', columns=['nn', 'kk']) }}", payloads());
    let failure = case.render().failure.expect("nothing to show");
    assert_eq!(failure.message, "invalid operation: no row has a column `nn`, `kk`");
    let case = Case::new("{{ rows|toon(key='r', columns=['n', 'kk', 'm']) }}", payloads());
    let rendered = case.render();
    assert_eq!((rendered.content.as_str(), rendered.absent), ("r[2]{n}:\n  1\n  2", vec!["kk".to_owned()]));
}

#[test]
fn fields_of_the_same_name_are_both_shown() {
    let payload = json!({"a": {"b": 2, "c": 3}, "a.b": 1});
    let case = Case::new("{{ rows|toon(key='r') }}", [payload]);
    assert_eq!(case.content(), "r[1]{a.b_more,a.c,a.b}:\n  2,3,1");
}

#[test]
fn a_payload_of_many_fields_is_shown_partially() {
    let fields: Map<String, Value> = (0..9_000).map(|n| (format!("k{n}"), n.into())).collect();
    let mut case = Case { max_tokens: 200, ..Case::new("{{ rows|toon(key='r') }}", [Value::Object(fields)]) };
    let decoded = toon::decode(&case.content()).expect("strict");
    assert!(
        decoded.get("omitted_fields").and_then(Value::as_u64).is_some_and(|count| count > 200),
        "{decoded}"
    );
    case.template = "x: {{ events[7] }}";
    let rendered = case.render();
    assert!(rendered.content.starts_with("type: tool.call.failure\n"), "{}", rendered.content);
    assert!(rendered.content.contains("omitted_fields: "), "{}", rendered.content);
}

#[test]
fn a_tab_cannot_indent() {
    for template in ["a:\n{% if true %}\tb: 1{% endif %}", "a: 1\n{% if true %}  \tb: 2{% endif %}"] {
        let failure = Case::new(template, [json!({})]).render().failure.expect(template);
        assert_eq!(failure.line, Some(2), "{template}: {}", failure.message);
        assert!(failure.message.contains("tab"), "{}", failure.message);
    }
    assert_eq!(content("{% if true %}\n\t{% set x = 1 %}\na: {{ x }}\t\n{% endif %}", json!({})), "a: 1");
}

#[test]
fn a_failing_template_falls_back_to_generic_table() {
    let payload = json!({"message": "m", "list": [1]});
    let endless = "a: 1\n{% for i in range(100000) %}{% set x = i %}{% endfor %}";
    for (template, line, part) in [
        ("a: 1\nb: {{ events[0].payload.nope }}", Some(2), "events[0].payload.nope"),
        ("a: {{ events[0].payload.nope.deeper }}", Some(1), "events[0].payload.nope"),
        ("a: {{ events[0].payload.list }}", Some(1), "toon_row"),
        ("a: {{ events[0].payload }}", Some(1), "toon(key"),
        ("a: {{ events[0].payload|toon }}", Some(1), "line of its own"),
        ("a: {{ [events[0].payload.nope]|toon }}", Some(1), ""),
        (endless, Some(2), "200000 instructions"),
        (
            "{% if true %}\n{% for i in range(2) %}\n\na[2]{x}:\n  1\n{% endfor %}{% endif %}",
            Some(5),
            "line 2",
        ),
        ("a: 1\n\n{# c #}\na: 2", Some(4), "line 2"),
        ("a: 1\n{% if true %}\nno key here\n{% endif %}", Some(3), "line 2"),
        ("{% macro m() %}\na: 1\nb\n{% endmacro %}\n{{ m() }}", Some(3), "line 2"),
        ("- a: 1", Some(1), "above it"),
        ("a[{{ 'x' }}]: 1", Some(1), "whole number"),
        ("{% if false %}a: 1{% endif %}", None, "its output is empty"),
    ] {
        let rendered = Case::new(template, [payload.clone()]).render();
        let failure = rendered.failure.expect(template);
        assert_eq!(failure.line, line, "{template}: {}", failure.message);
        assert!(failure.message.contains(part), "{template}: {}", failure.message);
        assert_eq!(
            rendered.content,
            "type: tool.call.failure\nsource: tool_executor\nseverity: error\nmessage: m\nlist: \"1\""
        );
    }
}

#[test]
fn the_generic_table_shows_all_payload_fields() {
    let payloads = [json!({"message": "no", "at": {"line": 7}}), json!({"x": null, "type": "a"}), json!({})];
    let mut case = Case::new("x: {{ events[7] }}", payloads);
    case.rows[0].repeats = 2;
    assert_eq!(
        case.render().content,
        "sub[3]{type,source,severity,message,at.line,type_more,repeats}:\n  \
         tool.call.failure,tool_executor,error,no,7,null,2\n  tool.call.failure,tool_executor,error,null,null,a,1\n  \
         tool.call.failure,tool_executor,error,null,null,null,1"
    );
}

#[test]
fn counts_missing_from_the_template_are_appended() {
    for (template, written) in [
        ("a: 1", "a: 1\nearlier_repeats: 3\nsuppressed: 4"),
        ("a: 1\nr: {{ repeats }}", "a: 1\nr: 3\nsuppressed: 4"),
        ("earlier_repeats: 9", "earlier_repeats: 9\nearlier_repeats_more: 3\nsuppressed: 4"),
        ("# note \"x\"\na: 1", "# note \"x\"\na: 1\nearlier_repeats: 3\nsuppressed: 4"),
        ("plain words", "sub: plain words\nearlier_repeats: 3\nsuppressed: 4"),
        ("{{ rows|toon(key='r') }}", "r[1]{n}:\n  1\nearlier_repeats: 3\nsuppressed: 4"),
    ] {
        let case = Case { repeats: 3, suppressed: 4, ..Case::new(template, [json!({"n": 1})]) };
        assert_eq!(case.content(), written, "{template}");
    }
    let mut silent = Case::new("a: 1", [json!({})]);
    silent.rows[0].repeats = 5;
    assert_eq!(silent.content(), "a: 1\nrepeats: 5");
    let none = Case { repeats: 2, ..Case::new("a: 1", []) };
    assert_eq!(none.content(), "sub: 2 more events");
}

#[test]
fn rows_over_the_budget_are_counted_as_omitted() {
    let payloads = (0..40).map(|n| json!({"n": n, "text": "some words that cost"}));
    let template = "f[{{ count }}]{n,text}:\n{% for r in rows %}\n  {{ r.n }},{{ r.text }}\n{% endfor %}";
    let mut case = Case::new(template, payloads);
    case.rows[39].repeats = 3;
    for max_tokens in [20, 30, 60, 120, PLENTY] {
        case.max_tokens = max_tokens;
        let rendered = case.render();
        let decoded = toon::decode(&rendered.content).expect("strict");
        let shown = decoded.get("f").and_then(Value::as_array).map_or(0, Vec::len);
        assert!(rendered.tokens.0 <= max_tokens && shown <= ROWS_MAX && shown > 0, "{}", rendered.content);
        assert_eq!(decoded.get("omitted"), Some(&json!(42 - shown)), "{}", rendered.content);
    }
}

#[test]
fn an_oversized_row_has_its_text_cut() {
    let case =
        Case { max_tokens: 60, ..Case::new("a: {{ rows[0].t }}", [json!({"t": "word ".repeat(1_000)})]) };
    let content = case.content();
    let (start, missing) = content.split_once('\u{2026}').expect("a mark");
    let kept = start.chars().count() - "a: \"".len();
    assert_eq!(missing, format!(" [+{} chars]\"", 5_000 - kept));
    assert!(tokens::estimate(&content).0 <= 60);
}

#[test]
fn oversized_content_falls_back_to_name_and_count() {
    let template = &format!("a: {}", "word ".repeat(300));
    for (max_tokens, written) in
        [(20, "sub: \"9 events, too large to show\""), (4, "sub: 9"), (1, "events: 9")]
    {
        let payload = json!({"message": "w ".repeat(300)});
        let mut case = Case { max_tokens, suppressed: 2, ..Case::new(template, [payload.clone(), payload]) };
        case.rows[0].repeats = 6;
        let rendered = case.render();
        assert_eq!(rendered.content, written);
        assert!(rendered.failure.is_some());
    }
}

#[test]
fn a_template_cannot_forge_a_value_placeholder() {
    let payload = json!({"m": "\u{2}0\u{3}", "secret": "structure: 1\nb: 2"});
    let template =
        "a: {{ events[0].payload.secret }}\nb: {{ '\\u00020\\u0003' }}\nc: {{ events[0].payload.m }}";
    let decoded = toon::decode(&content(template, payload)).expect("strict");
    assert_eq!(decoded, json!({"a": "structure: 1\nb: 2", "b": "structure: 1\nb: 2", "c": "0"}));
}

#[test]
fn templates_see_masked_secrets_and_cut_fields() {
    let token = format!("ghp_{}", "a1".repeat(18));
    let payload = json!({"t": format!("use \u{1b}[1m{token}"), "long": "x".repeat(FIELD_CHARS_MAX + 5)});
    let text = content("a: {{ rows[0].t }}\nb: {{ rows[0].long|length }}", payload);
    assert_eq!(
        text,
        format!("a: \"use ghp_[masked]\"\nb: {}", FIELD_CHARS_MAX + "\u{2026} [+5 chars]".chars().count())
    );
}

#[test]
fn a_missing_template_is_a_render_failure() {
    let (subscriber, rows) = (SubscriberId::new("sub"), rows([json!({"message": "m"})]));
    let input = RenderInput::new(&subscriber, &rows, Tokens(PLENTY));
    let rendered = Templates::new().render("gone", &input);
    assert_eq!(rendered.failure.map(|failure| failure.line), Some(None));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ -~\n\r\t\u{e9}\u{2713}\u{200b}\u{1b}\u{feff}]{0,16}",
        "[<>/ a-z:,\"#!-]{0,12}",
        Just("</notifications>".to_owned()),
        "-?[0-9]{1,4}(\\.[0-9]{1,2})?",
    ]
}

proptest! {
    #[test]
    fn any_texts_come_back_exactly(x in any_text(), y in any_text(), z in any_text()) {
        let payload = json!({"x": x, "y": y, "z": z});
        let (x, y, z) = (clean_text(&x), clean_text(&y), clean_text(&z));
        let head = "{% set p = events[0].payload %}";
        let mixed = content(&format!("{head}a: {{{{ p.x }}}} {{{{ p.y }}}} - {{{{ p.z }}}}\nb: 1"), payload.clone());
        prop_assert_eq!(toon::decode(&mixed), Ok(json!({"a": format!("{x} {y} - {z}"), "b": 1})));
        let table = "r[2]{a,b,c}:\n  {{ p.x }},{{ p.y }},{{ p.z }}\n  {{ p.z }},{{ p.x }}/{{ p.y }},k";
        let decoded = toon::decode(&content(&format!("{head}{table}"), payload.clone()));
        let cells = json!({"r": [{"a": x, "b": y, "c": z}, {"a": z, "b": format!("{x}/{y}"), "c": "k"}]});
        prop_assert_eq!(decoded, Ok(cells));
        let list = content(&format!("{head}l[2]:\n  - {{{{ p.x }}}}\n  - {{{{ p.y }}}}!\ni[2]: {{{{ p.z }}}},q"), payload);
        prop_assert_eq!(toon::decode(&list), Ok(json!({"l": [x, format!("{y}!")], "i": [z, "q"]})));
    }

    #[test]
    fn any_template_text_gives_something_strict(template in "[a-c:,\\[\\]{}\"# \n0-9-]{0,40}") {
        let mut templates = Templates::new();
        prop_assume!(templates.add("t", &template).is_ok());
        Case::new(&template, [json!({"message": "m"})]).render();
    }
}

#[test]
fn templates_can_be_shared_between_threads() {
    fn is_shared<T: Send + Sync + std::fmt::Debug>(_: &T) {}
    is_shared(&Templates::new());
}

fn word(message: &str) -> TemplateNotice {
    TemplateNotice { message: message.into(), level: Level::Info, category: None, link: None }
}

#[test]
fn notify_messages_stay_out_of_the_output() {
    let payload = json!({ "tool": "grep", "url": "https://h/1", "bad": "javascript:x", "n": 7 });
    let template = "{{ notify(\"failed: \" ~ events[0].payload.tool, level=\"warn\", category=\"workflow\", link=events[0].payload.url) }}\n\
        tool: {{ events[0].payload.tool }}{{ notify(events[0].payload.n, level=events[0].severity) }}\n\
        {% do notify(\"x\", link=events[0].payload.bad, category=none, level=events[0].payload.none) %}";
    let rendered = Case::new(template, [payload]).render();
    assert_eq!((rendered.content.as_str(), rendered.failure), ("tool: grep", None));
    let first = TemplateNotice {
        level: Level::Warn,
        category: Some(Category::Workflow),
        link: Some("https://h/1".into()),
        ..word("failed: grep")
    };
    assert_eq!(rendered.words, [first, TemplateNotice { level: Level::Error, ..word("7") }, word("x")]);
}

#[test]
fn absent_parts_of_guarded_chains_fail_nothing() {
    for (expression, expected) in [
        ("events[0].payload.at.step | default(\"none\")", Ok("none")),
        ("events[0].payload.at.step|d('none')", Ok("none")),
        ("events[0].payload.tool.name.first | default('none')", Ok("none")),
        ("events[0]['payload']['at']['step'] | default('none')", Ok("none")),
        ("events[0].payload.at.steps[0].name | default('none')", Ok("none")),
        ("events[7].payload.at | default('none')", Ok("none")),
        ("events[0].payload.a.b.c.d.e | default('none')", Ok("none")),
        ("((events[0].payload.a.b.c)) | default('none')", Ok("none")),
        ("(events[0].payload.at.step) | default('none')", Ok("none")),
        ("events[0].payload.at.step\n  | default('none')", Ok("none")),
        ("events[count - 1].payload.at.step | default('none')", Ok("none")),
        ("(events|first).payload.at.step | default('none')", Ok("none")),
        ("events[0].payload.at.step | default(events[0].payload.to.step | default('none'))", Ok("none")),
        ("events[0].payload.deep.step | default('none')", Ok("3")),
        ("'yes' if events[0].payload.at.step is defined else 'no'", Ok("no")),
        ("'yes' if events[0].payload.deep.step is defined else 'no'", Ok("yes")),
        ("'yes' if events[0].payload.at.step is not defined else 'no'", Ok("yes")),
        ("'yes' if (events[0].payload.at.step) is undefined else 'no'", Ok("yes")),
        ("events[0].payload.at.step", Err("undefined")),
        ("events[0].payload.at.step | upper", Err("undefined")),
        ("events[0].payload.at.step | upper | default('none')", Err("undefined")),
        ("'yes' if events[0].payload.at.step else 'no'", Err("undefined")),
        ("events[0].payload.deep.step | default(events[0].payload.at.step)", Err("undefined")),
        ("(events[0].payload.at | default({})).step.more", Err("undefined")),
        ("events[events[0].payload.at.step].payload.n | default('none')", Err("undefined")),
        ("events[0].payload.at.step ~ 'default'", Err("undefined")),
    ] {
        let template = format!("x: {{{{ {expression} }}}}");
        let rendered = Case::new(&template, [json!({ "tool": "grep", "deep": { "step": 3 } })]).render();
        match (expected, &rendered.failure) {
            (Ok(expected), None) => assert_eq!(rendered.content, format!("x: {expected}"), "{expression}"),
            (Err(why), Some(failure)) => assert!(failure.message.contains(why), "{expression}: {failure:?}"),
            (_, failure) => panic!("{expression}: {failure:?} {}", rendered.content),
        }
    }
}

#[test]
fn only_the_filter_optional_makes_absent_values_nothing() {
    for (template, fails) in [
        ("x: {{ events[0].payload.at.step|optional }}a", false),
        ("x: {{ events[0].payload.at.step|\toptional }}a", false),
        ("x: {{ events[0].payload.at.step|\r\noptional }}a", false),
        ("x: |optional {{ events[0].payload.at.step or 1 }}", true),
        ("x: {{ '|optional' ~ (events[0].payload.at.step or 1) }}", true),
        ("{# a|optional #}x: {{ events[0].payload.at.step or 1 }}", true),
    ] {
        let failure = Case::new(template, [json!({ "tool": "grep" })]).render().failure;
        assert_eq!(failure.is_some(), fails, "{template}: {failure:?}");
    }
}

#[test]
fn a_template_that_fails_says_nothing() {
    for (template, why) in [
        ("{{ notify(\"x\") }}\na: {{ events[0].payload.none }}", "undefined"),
        ("{{ notify(\"x\") }}\na: {{ rows }}", "cannot be in a cell"),
        ("{{ notify(\"x\") }}", "its output is empty"),
        ("a: 1{{ notify(\" \") }}", "notify() has an empty text"),
        (
            "a: 1{{ notify(\"x\", level=\"loud\") }}",
            "level= is one of info, warn, error, or a severity, not `loud`",
        ),
        ("a: 1{{ notify(\"x\", category=\"y\") }}", "category= is one of analysis"),
        ("a: 1{{ notify(\"x\", levle=\"warn\") }}", "levle"),
        ("a: 1{{ notify(rows) }}", "cannot be in a cell"),
        ("a: 1{{ notify(events[0].payload.none) }}", "undefined"),
    ] {
        let rendered = Case::new(template, [json!({ "tool": "grep" })]).render();
        let failure = rendered.failure.unwrap_or_else(|| panic!("{template}: {}", rendered.content));
        assert!(failure.message.contains(why), "{template}: {}", failure.message);
        assert_eq!(rendered.words, [], "{template}");
    }
}

#[test]
fn a_rerun_template_notifies_the_user_once() {
    let template = "{{ notify(\"failed\") }}\na: {{ events[0].payload.text }}";
    let case = Case { max_tokens: 60, ..Case::new(template, [json!({ "text": "word ".repeat(300) })]) };
    let rendered = case.render();
    assert_eq!((rendered.failure, rendered.words), (None, vec![word("failed")]));
    // If nothing fits, another table is sent, without notices.
    let template = format!("{{{{ notify(\"x\") }}}}\n{}: 1", "k".repeat(2_000));
    let rendered = Case { max_tokens: 20, ..Case::new(&template, [json!({})]) }.render();
    assert!(rendered.failure.is_some() && rendered.words.is_empty(), "{rendered:?}");
}

#[test]
fn excess_notify_calls_are_counted_in_the_last() {
    let template = "{% for e in events %}{{ notify(e.payload.n) }}{% endfor %}a: 1";
    let payloads = |count: u32| (0..count).map(|n| json!({ "n": n }));
    assert_eq!(Case::new(template, payloads(3)).render().words, ["0", "1", "2"].map(word));
    assert_eq!(Case::new(template, payloads(9)).render().words, ["0", "1", "2 [and 6 more]"].map(word));
    let captured = "{% set text %}{{ events[0].payload.n }} of {{ count }}{% endset %}a: 1{{ notify(text) }}";
    assert_eq!(Case::new(captured, payloads(2)).render().words, [word("0 of 2")]);
}

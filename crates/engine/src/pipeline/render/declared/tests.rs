use journal::time::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{super::Templates, *};
use crate::{
    notification::{SubscriberId, Tokens},
    pipeline::{
        render::{
            Column, RenderFailure,
            tests::{PLENTY, row},
        },
        row::Row,
    },
};

fn render(layout: &Layout, templates: &Templates, rows: &[Row], max_tokens: u32) -> Rendered {
    let subscriber = SubscriberId::new("sub");
    let input = RenderInput {
        suppressed: 2,
        now: Timestamp::from_millis(2_000),
        ..RenderInput::new(&subscriber, rows, Tokens(max_tokens))
    };
    let rendered = layout.render(templates, &input);
    assert!(toon::decode(&rendered.content).is_ok(), "{}", rendered.content);
    rendered
}

fn declared(one: Option<&str>, table: Option<Table>) -> Layout {
    let one = one.map(|one| {
        EventText::compile(one, &Libraries::default()).unwrap_or_else(|error| panic!("{error}: {one}"))
    });
    Layout::Declared(Arc::new(Declared::new(one, table.map(Several::Table))))
}

/// The output of `one` for an event with this payload, without the line that counts suppressed
/// events.
fn said(one: &str, payload: Value) -> Result<String, RenderFailure> {
    let rendered = render(&declared(Some(one), None), &Templates::new(), &[row(payload, 1)], PLENTY);
    match rendered.failure {
        None => Ok(rendered.content.replace("\nsuppressed: 2", "")),
        Some(failure) => Err(failure),
    }
}

#[test]
fn event_text_reads_fields_and_keeps_their_types() {
    let payload =
        json!({"n": 5, "s": "05", "at": {"line": 7}, "list": ["a", "b c", 1], "map": {"k": "x: y"}});
    for (one, written) in [
        ("{{ type }}: {{ payload.n }}", "tool.call.failure: 5"),
        ("a: {{ payload.s }}", "a: \"05\""),
        ("a: {{ source }} {{ severity }} at {{ payload.at.line }}", "a: tool_executor error at 7"),
        ("a: {{ payload.gone or source }}", "a: tool_executor"),
        ("a: {{ payload.list }}", "a: a b c 1"),
        ("a: {{ payload.list|join(', ') }}", "a: \"a, b c, 1\""),
        ("a: {{ payload.map }}", "a: \"{\\\"k\\\":\\\"x: y\\\"}\""),
        ("{{ payload.at|toon(key='at') }}", "at:\n  line: 7"),
        ("a: {{ subscriber.id }} {{ now }}", "a: \"sub 1970-01-01T00:00:02Z\""),
        ("a: {{ repeats }}", "a: 1"),
    ] {
        assert_eq!(said(one, payload.clone()).as_deref(), Ok(written), "{one}");
    }
}

#[test]
fn absent_values_print_nothing_and_remove_empty_lines() {
    let payload = json!({"here": "x", "null": null, "empty": "", "zero": 0, "no": false});
    for (one, written) in [
        ("a: {{ payload.here }}\nb: {{ payload.gone }}", "a: x"),
        ("a: {{ payload.null }}\nb: {{ payload.here }}", "b: x"),
        ("a: {{ payload.empty }}\nb: {{ payload.here }}", "b: x"),
        ("a: \"{{ payload.empty }}\"\nb: {{ payload.here }}", "a: \"\"\nb: x"),
        ("a: {{ payload.gone.below.it }}\nb: {{ payload.here }}", "b: x"),
        ("a: {{ payload.gone|join(', ') }}\nb: {{ payload.here }}", "b: x"),
        ("a: {{ payload.gone }} {{ payload.null }}\nb: {{ payload.here }}", "b: x"),
        ("a: {{ payload.here if payload.gone }}\nb: {{ payload.here }}", "b: x"),
        ("a: {{ payload.here }} {{ payload.gone }}", "a: x"),
        ("a: {{ payload.gone }} {{ payload.here }}", "a: x"),
        ("a: one {{ payload.gone }} two", "a: one two"),
        ("a: \"{{ payload.gone }}\"", "a: \"\""),
        ("a: {{ payload.gone }}: b", "a: \": b\""),
        ("a: {{ payload.zero }}\nb: {{ payload.no }}", "a: 0\nb: false"),
        ("a:\n  b: {{ payload.gone }}\n  c: {{ payload.here }}", "a:\n  c: x"),
        ("a: {% if payload.gone %}x{% endif %}", "a: \"\""),
        ("a: {% set x %}{{ payload.gone }}{% endset %}{{ x }}\nb: 1", "b: 1"),
    ] {
        assert_eq!(said(one, payload.clone()).as_deref(), Ok(written), "{one}");
    }
    let nothing = said("a: {{ payload.gone }}", json!({"n": 1})).expect("no fault of the text");
    assert_eq!(nothing, "type: tool.call.failure\nsource: tool_executor\nseverity: error\nn: 1");
    let failure = said("a: 1\nb: {{ payload.zero + payload.here }}", payload).expect_err("no sum");
    assert_eq!(failure.line, Some(2));
}

#[test]
fn event_text_with_unknown_names_is_refused() {
    for (one, part) in [
        ("a: {{ events[0].type }}", "an event has no `events`"),
        ("a: {{ tool_name }}", "`payload.tool_name`"),
        ("a: {{ sorce }}", "did you mean `source`"),
        ("a: {{ payload.x|uper }}", "did you mean `upper`"),
        ("a: {{ payload.x", "without its `}}`"),
    ] {
        let error = EventText::compile(one, &Libraries::default()).expect_err(one);
        assert!(error.message.contains(part), "{one}: {error}");
    }
}

#[test]
fn event_text_reports_its_payload_fields() {
    let fields = |one: &str| {
        let text = EventText::compile(one, &Libraries::default()).expect("it compiles");
        text.fields().iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(
        fields("a: {{ payload.x.y }} {% if payload.z is defined %}{{ source }}{% endif %}"),
        ["x", "z"]
    );
    assert_eq!(fields("{% set payload = {'x': 1} %}a: {{ payload.x }}"), Vec::<String>::new());
}

fn table(columns: Option<&[(&str, &[&str])]>, repeats: bool) -> Table {
    let column = |(name, from): &(&str, &[&str])| Column::new(name, from.iter().copied());
    let table = Table::new("t", columns.map(|columns| columns.iter().map(column).collect()));
    if repeats { table } else { table.without_repeats() }
}

#[test]
fn a_single_event_renders_each_column_as_line() {
    let payload = || json!({"tool": "grep", "n": null, "note": "a, b", "at": {"line": 7}, "repeats": 4});
    let columns: &[(&str, &[&str])] =
        &[("what", &["name", "tool"]), ("n", &["n"]), ("note", &["note"]), ("line", &["at.line"])];
    let lines = |table: Table, repeats: u32| {
        let rows = [row(payload(), repeats)];
        let rendered = render(&declared(None, Some(table)), &Templates::new(), &rows, PLENTY);
        assert_eq!(rendered.failure, None);
        rendered.content.replace("\nsuppressed: 2", "")
    };
    let written = "what: grep\nnote: \"a, b\"\nline: 7";
    assert_eq!(lines(table(Some(columns), true), 1), written);
    assert_eq!(lines(table(Some(columns), true), 3), format!("{written}\nrepeats: 3"));
    assert_eq!(lines(table(Some(columns), false), 3), format!("{written}\nrepeats: 3"));
    let all = "tool: grep\nnote: \"a, b\"\nat.line: 7\nrepeats: 4";
    assert_eq!(lines(table(None, true), 1), all);
    assert_eq!(lines(table(None, true), 3), format!("{all}\nrepeats_more: 3"));
    let several = [row(payload(), 2), row(json!({"tool": "fetch"}), 1)];
    let in_table = render(&declared(None, Some(table(None, false))), &Templates::new(), &several, PLENTY);
    assert!(!in_table.content.contains("repeats_more"), "{}", in_table.content);
    assert_eq!(lines(table(Some(&[("times", &["repeats_more"])]), true), 3), "times: 3");
    assert_eq!(lines(table(Some(&[("n", &["n"])]), true), 1), "t: 1");
    let rendered = render(
        &declared(None, Some(table(Some(&[("x", &["no"]), ("y", &["none"])]), true))),
        &Templates::new(),
        &[row(payload(), 1)],
        PLENTY,
    );
    assert_eq!(
        rendered.failure.map(|failure| failure.message).as_deref(),
        Some("no row has a column `x`, `y`")
    );
}

#[test]
fn several_events_without_table_use_the_generic_table() {
    let rows = ["a", "b"].map(|text| row(json!({ "text": text }), 1));
    let of = |layout: Layout| render(&layout, &Templates::new(), &rows, PLENTY);
    assert_eq!(of(declared(Some("one: {{ payload.text }}"), None)), of(Layout::generic()));
}

#[test]
fn oversized_lines_have_their_text_cut() {
    let rows = [row(json!({"a": "word ".repeat(300), "b": "x", "c": "y"}), 1)];
    let rendered = render(&declared(None, Some(table(None, true))), &Templates::new(), &rows, 60);
    assert_eq!(rendered.failure, None);
    assert!(
        rendered.content.contains("chars]") && rendered.content.contains("\nc: y"),
        "{}",
        rendered.content
    );
    let smaller = render(&declared(None, Some(table(None, true))), &Templates::new(), &rows, 20);
    assert!(smaller.content.contains("omitted_fields"), "{}", smaller.content);
}

fn any_cell() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-9..9_i32).prop_map(|n| Value::from(f64::from(n) / 4.0)),
        Just(json!({ "p": "x: y" })),
        Just(json!(["a", 1])),
        "[ -~\n\u{2}\u{e9}]{0,10}".prop_map(Value::from),
    ]
}

fn any_payloads(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Value>> {
    let names = &["tool_name", "error_type", "server", "reason", "tools", "o", "repeats"];
    let payload = prop::collection::hash_map(prop::sample::select(names), any_cell(), 0..5);
    prop::collection::vec(payload.prop_map(|fields| json!(fields)), count)
}

/// A table, and the template with the same output.
type Same = (&'static [(&'static str, &'static [&'static str])], bool, &'static str);

/// Tables without columns show all of them.
const SAME: [Same; 4] = [
    (&[], true, "{{ rows|toon(key=\"t\") }}"),
    (
        &[("tool", &["tool_name", "@source"]), ("error", &["error_type", "@type.last"])],
        true,
        "{{ rows|toon(key=\"t\", columns={\"tool\": [\"tool_name\", \"@source\"], \"error\": [\"error_type\", \"@type.last\"]}) }}",
    ),
    (
        &[("server", &["server"]), ("all", &["o", "@payload"])],
        false,
        "{{ rows|toon(key=\"t\", columns={\"server\": \"server\", \"all\": [\"o\", \"@payload\"]}, repeats=false) }}",
    ),
    (
        &[("repeats", &["server"]), ("x", &["o.p"]), ("t", &["absent", "tools", "@time"])],
        true,
        "{{ rows|toon(key=\"t\", columns={\"repeats\": \"server\", \"x\": \"o.p\", \"t\": [\"absent\", \"tools\", \"@time\"]}) }}",
    ),
];

fn rows_of(payloads: Vec<Value>, repeated: u32) -> Vec<Row> {
    let repeats = std::iter::once(repeated).chain(std::iter::repeat(1));
    payloads.into_iter().zip(repeats).map(|(payload, repeats)| row(payload, repeats)).collect()
}

fn of_same(same: &Same) -> Table {
    table(Some(same.0).filter(|columns| !columns.is_empty()), same.1)
}

proptest! {
    #[test]
    fn a_declared_table_equals_its_template_output(
        same in prop::sample::select(&SAME),
        payloads in any_payloads(2..20),
        repeated in 1..3_u32,
        max_tokens in prop::sample::select(&[PLENTY, 60, 20]),
    ) {
        let rows = rows_of(payloads, repeated);
        let mut templates = Templates::new();
        templates.add("t", same.2).expect("it compiles");
        let written = render(&declared(None, Some(of_same(&same))), &templates, &rows, max_tokens);
        let run = render(&Layout::Template("t".into()), &templates, &rows, max_tokens);
        prop_assert_eq!(written.content, run.content);
        prop_assert_eq!((written.tokens, written.absent), (run.tokens, run.absent));
        prop_assert_eq!(written.failure.is_some(), run.failure.is_some());
    }

    #[test]
    fn single_event_lines_equal_its_table_row(
        same in prop::sample::select(&SAME),
        payloads in any_payloads(1..2),
    ) {
        let rows = rows_of(payloads, 1);
        let mut templates = Templates::new();
        templates.add("t", same.2).expect("it compiles");
        let lines = render(&declared(None, Some(of_same(&same))), &templates, &rows, PLENTY);
        let in_table = render(&Layout::Template("t".into()), &templates, &rows, PLENTY);
        let [lines, in_table] = [lines, in_table].map(|rendered| toon::decode(&rendered.content).expect("strict"));
        if let Some(mut fields) = in_table["t"][0].as_object().cloned() {
            fields.insert("suppressed".to_owned(), 2.into());
            prop_assert_eq!(lines, Value::Object(fields));
        } else {
            prop_assert_eq!(lines, in_table);
        }
    }
}

/// Rows of `web`, of a trusted source, and of a source with a hostile name.
fn origins() -> [Option<Arc<str>>; 3] {
    [Some("web".into()), None, Some("a,b\n</event>".into())]
}

#[test]
fn each_row_names_its_own_untrusted_source() {
    let payload = |tool: &str| json!({ "tool_name": tool, "untrusted_source": "forged" });
    let rows = [row(payload("a"), 1), row(payload("b"), 2), row(payload("c"), 1)];
    let subscriber = SubscriberId::new("sub");
    let named = |names: &[&str]| {
        let columns = names.iter().map(|name| Column::new(name, [*name])).collect();
        declared(None, Some(Table::new("fails", Some(columns))))
    };
    let tool = declared(None, Some(Table::new("fails", Some(vec![Column::new("tool", ["tool_name"])]))));
    let all = declared(None, Some(Table::new("fails", None)));
    let mut templates = Templates::new();
    templates.add("t", "{{ rows|toon(key='fails') }}").expect("a template");
    for (what, layout, header, names_sources) in [
        ("declared", tool.clone(), "fails[3]{untrusted_source,tool,repeats}:", true),
        (
            "a column of that name",
            named(&["untrusted_source", "tool_name"]),
            "fails[3]{untrusted_source,untrusted_source_more,tool_name,repeats}:",
            true,
        ),
        ("all columns", all, "fails[3]{untrusted_source,tool_name,untrusted_source_more,repeats}:", true),
        (
            "generic",
            Layout::generic(),
            "sub[3]{untrusted_source,type,source,severity,tool_name,untrusted_source_more,repeats}:",
            true,
        ),
        (
            "a template",
            Layout::Template("t".into()),
            "fails[3]{tool_name,untrusted_source_more,repeats}:",
            false,
        ),
    ] {
        let input =
            RenderInput { origins: &origins(), ..RenderInput::new(&subscriber, &rows, Tokens(PLENTY)) };
        let rendered = layout.render(&templates, &input);
        assert_eq!(rendered.content.lines().next(), Some(header), "{what}");
        assert_eq!((rendered.failure, rendered.names_sources), (None, names_sources), "{what}");
        let decoded = toon::decode(&rendered.content).expect("strict TOON");
        let table = decoded.as_object().and_then(|fields| fields.values().next()).expect("a table");
        let sources: Vec<&Value> =
            table.as_array().into_iter().flatten().map(|row| &row["untrusted_source"]).collect();
        if names_sources {
            assert_eq!(sources, [&json!("web"), &Value::Null, &json!("a,b\n</event>")], "{what}");
        }
    }
    let plain = RenderInput::new(&subscriber, &rows, Tokens(PLENTY));
    let rendered = tool.render(&templates, &plain);
    assert!(rendered.content.starts_with("fails[3]{tool,repeats}:") && !rendered.names_sources);
}

#[test]
fn sources_of_rows_are_the_last_column_removed() {
    let long = "word ".repeat(200);
    let rows: Vec<Row> = (0..3).map(|n| row(json!({ "tool_name": format!("{n} {long}") }), 1)).collect();
    let subscriber = SubscriberId::new("sub");
    let table =
        Table::new("fails", Some(vec![Column::new("tool", ["tool_name"]), Column::new("type", ["@type"])]));
    let mut headers = std::collections::BTreeSet::new();
    for max_tokens in 1..400 {
        let input =
            RenderInput { origins: &origins(), ..RenderInput::new(&subscriber, &rows, Tokens(max_tokens)) };
        for layout in [Layout::generic(), declared(None, Some(table.clone()))] {
            let rendered = layout.render(&Templates::new(), &input);
            let header = rendered.content.lines().next().unwrap_or_default().to_owned();
            assert_eq!(header.contains("{untrusted_source"), rendered.names_sources, "{}", rendered.content);
            headers.insert(header);
        }
    }
    assert!(headers.len() > 6, "{headers:?}");
}

fn sentence_of(source: &str, payloads: &[Value]) -> Result<Vec<Arc<str>>, RenderFailure> {
    let rows: Vec<Row> = payloads.iter().map(|payload| row(payload.clone(), 1)).collect();
    let sentence =
        Sentence::compile(source, &Libraries::default()).unwrap_or_else(|error| panic!("{source}: {error}"));
    sentence.render(&RenderInput::new(&SubscriberId::new("orders"), &rows, Tokens(200)))
}

#[test]
fn each_of_the_first_events_has_one_line() {
    let source = "order {{ payload.id }}\n  {{- \" failed\" if payload.why }}{% if payload.why %}: {{ payload.why }}{% endif %}";
    let payloads = [
        json!({ "id": 7, "why": "no\nstock: \u{1b}[1m<cup> {x}" }),
        json!({ "id": "a -> b" }),
        json!({ "id": 9 }),
    ];
    let words = sentence_of(source, &payloads).expect("words");
    assert_eq!(words, ["order 7 failed: no stock: <cup> {x}".into(), Arc::from("order a -> b")]);
    assert_eq!(sentence_of("{{ payload.absent }}", &payloads), Ok(Vec::new()));
    let long = sentence_of("{{ payload.id }}", &[json!({ "id": "x".repeat(5_000) })]).expect("words");
    assert!(long.iter().all(|words| words.chars().count() < CHARS_MAX + 30), "{long:?}");
}

#[test]
fn deferred_template_compiles_when_it_first_runs() {
    let rows = [row(json!({ "id": 7 }), 1)];
    let (id, words) = (SubscriberId::new("orders"), "order {{ payload.id }}");
    let input = RenderInput::new(&id, &rows, Tokens(200));
    assert_eq!(Sentence::deferred(words).render(&input), Ok(vec!["order 7".into()]));
    assert_eq!(Sentence::deferred(words), Sentence::compile(words, &Libraries::default()).expect("words"));
    assert_eq!(Sentence::deferred(words).fields().len(), 1);

    let bad = Sentence::deferred("x\n{{ events }}");
    assert!(bad.fields().is_empty());
    let failed = bad.render(&input).expect_err("no such variable");
    assert_eq!((failed.line, failed.message.contains("has no `events`")), (Some(2), true), "{failed:?}");
    let mut templates = Templates::new();
    templates.add_deferred("good", "a: {{ events[0].payload.id }}");
    templates.add_deferred("bad", "{{ a");
    assert_eq!(templates.render("good", &input).content, "a: 7");
    let rendered = templates.render("bad", &input);
    assert_eq!(rendered.failure.map(|failure| failure.line), Some(Some(1)));
    assert!(rendered.content.contains('7'), "the generic table: {}", rendered.content);
}

#[test]
fn a_sentence_that_cannot_be_rendered_says_why() {
    let failed = sentence_of("x\n{{ payload.id / 0 }}", &[json!({ "id": "a" })]).expect_err("no number");
    assert_eq!(failed.line, Some(2), "{failed:?}");
    for (source, word) in [
        ("{{ payload.id", "syntax"),
        ("{{ events }}", "has no `events`"),
        ("{{ payload|toon }}", "toon"),
        ("{{ notify(\"x\") }}", "notify"),
    ] {
        let error = Sentence::compile(source, &Libraries::default()).expect_err(source).to_string();
        assert!(word == "syntax" || error.contains(word), "{source}: {error}");
    }
}

#[test]
fn many_writes_what_one_does_not() {
    let many = "{% if count == 7 %}a: {{ rows }}{% endif %}{% if count < 7 %}sum: {{ rows|sum(attribute='n') }}{% endif %}";
    let layout = |one: Option<&str>| {
        let one = one.map(|one| EventText::compile(one, &Libraries::default()).expect("a text"));
        let many = Several::Text(BatchText::compile(many, &Libraries::default()).expect("a text"));
        Layout::Declared(Arc::new(Declared::new(one, Some(many))))
    };
    let rows: Vec<Row> = (1..=7).map(|n| row(json!({"n": n}), 1)).collect();
    for (one, count, written, part) in [
        (Some("n: {{ payload.n }}"), 1, "n: 1", FailedPart::Output),
        (Some("n: {{ payload.n }}"), 2, "sum: 3", FailedPart::Many),
        (None, 1, "sum: 1", FailedPart::Many),
        (None, 3, "sum: 6", FailedPart::Many),
    ] {
        let rendered = render(&layout(one), &Templates::new(), &rows[..count], PLENTY);
        assert_eq!(rendered.content, format!("{written}\nsuppressed: 2"), "{one:?} {count}");
        assert_eq!((layout(one).part(count), rendered.failure), (part, None), "{one:?} {count}");
    }
    let failed = render(&layout(None), &Templates::new(), &rows, PLENTY);
    assert!(failed.failure.is_some() && failed.content.contains("[7]{"), "the generic table: {failed:?}");
}

#[test]
fn times_and_paths_are_relative_to_the_notification() {
    let in_folder = |path: &str, workspace: &str| {
        let mut made = row(json!({ "path": path, "at": 500, "later": "1970-01-01T01:00:02Z" }), 1);
        let event = Arc::get_mut(&mut made.event).expect("it is new");
        event.workspace = Some(workspace.into());
        made
    };
    let text = "a: {{ payload.path|relpath }}\nb: {{ payload.at|ago }}\nc: {{ payload.later|ago }}\nd: {{ payload.gone|ago }}";
    let at = |path: &str, shown: &str| {
        let rendered =
            render(&declared(Some(text), None), &Templates::new(), &[in_folder(path, "/w/shop/")], PLENTY);
        let expected = format!("a: {shown}\nb: 1s ago\nc: in 1h00m\nsuppressed: 2");
        assert_eq!((rendered.content, rendered.failure), (expected, None), "{path}");
    };
    at("/w/shop/src/a.rs", "src/a.rs");
    at("/w/shop", ".");
    at("/w/shopping/a.rs", "/w/shopping/a.rs");
    at("b.rs", "b.rs");
    let many = BatchText::compile(
        "paths: {{ rows|map(attribute='path')|map('relpath')|join(' ') }}",
        &Libraries::default(),
    )
    .map(Several::Text);
    let many = Layout::Declared(Arc::new(Declared::new(None, many.ok())));
    for (second, shown) in [("/w", "a"), ("/x", "/w/a")] {
        let rows = [in_folder("/w/a", "/w"), in_folder("/w/a", second)];
        let rendered = render(&many, &Templates::new(), &rows, PLENTY);
        assert!(rendered.content.contains(&format!("paths: {shown} {shown}")), "{second}: {rendered:?}");
    }
}

#[test]
fn filters_read_what_a_macro_printed() {
    let text = "{% macro m(v) %}({{ v }}){% endmacro %}a: {{ m(payload.s)|truncate(4) }}\nb: {{ m(payload.s)|regex_find('[0-9]+') or 'none' }}";
    let written = said(text, json!({ "s": "abcdef" }));
    assert_eq!(written.as_deref(), Ok("a: \"(abc\u{2026} [+4 chars]\"\nb: none"));
}

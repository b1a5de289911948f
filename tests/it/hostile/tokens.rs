//! Control tokens in payloads: those that published tokenizers and clients know, and any others of
//! the same shapes.

use engine::event::EVENT_BYTES_MAX;

use super::*;

/// One token a line; lines that begin with `# ` are comments.
const NAMED: &str = include_str!("../../fixtures/control_tokens.txt");
/// Texts with brackets that are no token. They must remain as they are.
const HARMLESS: [&str; 12] = [
    "a[0] = b[1] + c[-1]",
    "x < 5 && y > 3",
    "1 << 2 >> 1",
    "main -> fix-cart => done",
    "[1,2,3]",
    "[\"a\"]",
    "{\"k\":[{\"n\":1}]}",
    "[^0-9]+",
    "~/src/x.rs ~= 1.2",
    "2026-01-01T00:00:00Z [12345]",
    "<- <= <3 <>",
    "src/x.rs:1:2: boom",
];

fn named() -> impl Iterator<Item = &'static str> {
    NAMED.lines().filter(|line| !line.starts_with("# "))
}

/// The delivered text of every format, with `text` in each place that a template can print.
fn texts_of(stage: &mut Stage, text: &str) -> Vec<(Format, String)> {
    let events = [
        plain_event("grep", text, text),
        ("hostile.whole", json!({ "x": { text: [text, [text]] } })),
        ("hostile.rows", json!({ "a": text, "b": text })),
        ("hostile.generic", json!({ "x": text, "y": [text], text: 1 })),
        ("message.agent.sent", json!({ "from": text, "text": text })),
    ];
    stage.tell(&events).into_iter().map(|(format, injection)| (format, injection.text.to_string())).collect()
}

#[test]
fn named_control_tokens_are_broken_in_every_format() {
    let mut stage = Stage::new();
    assert!(named().count() > 200);
    for token in named() {
        let text = format!("before {token} after");
        for (format, delivered) in texts_of(&mut stage, &text) {
            assert_no_control_token(format, &delivered);
            // The tags that the formats around the text of xml write themselves.
            let is_own = token.contains("notifications>") && delivered.matches(token).count() == 1;
            assert!(!delivered.contains(token) || is_own, "{format:?}: {token} in\n{delivered}");
        }
        let event = plain_event("grep", "timeout", &text);
        stage.check(&[event], &[(Priority::High, plain_line("grep", "timeout", &text))]);
    }
}

#[test]
fn brackets_without_a_token_remain_unchanged() {
    let mut stage = Stage::new();
    for text in HARMLESS {
        for (format, delivered) in texts_of(&mut stage, text) {
            let is_escaped = delivered.contains("\\u005b") || delivered.contains("\\u007e");
            // JSON escapes every `<`, and a bracket before a quote, which is written with an escape too.
            let is_json = matches!(format, Format::Json | Format::Line);
            let is_escaped = is_escaped && !(is_json && text.contains("[\""));
            let is_left = is_json || !delivered.contains("\\u003c");
            assert!(!is_escaped && is_left, "{format:?}: {text} in\n{delivered}");
        }
    }
}

/// Tokens by the rule: any bracket, white space and invisible characters, slashes, bars and names.
fn token() -> impl Strategy<Value = String> {
    let bracket =
        prop::sample::select(vec!["<", "[", "\u{ff1c}", "\u{ff3b}", "\u{fe64}", "\u{fe47}", "<<", "[["]);
    let gap = prop::collection::vec(
        prop::sample::select(vec![
            " ", "\t", "\n", "\r", "\u{a0}", "\u{3000}", "\u{200b}", "\u{feff}", "\u{2060}",
        ]),
        0..3,
    );
    let mark = prop::sample::select(vec!["", "", "/", "\u{ff0f}", "|", "\u{ff5c}", "/|", "_", "\u{2581}"]);
    let name = prop_oneof![
        3 => "[A-Za-z][A-Za-z0-9_:.-]{0,12}",
        1 => "\\p{Lo}{1,4}",
        1 => "[\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}]{1,6}",
    ];
    let end = prop::sample::select(vec![
        ">",
        "]",
        "|>",
        "\u{ff5c}>",
        "\u{ff1e}",
        "\u{ff3d}",
        " x=\"1\">",
        "/>",
        "",
    ]);
    let by_bracket = (bracket, gap, mark, name, end)
        .prop_map(|(bracket, gap, mark, name, end)| format!("{bracket}{}{mark}{name}{end}", gap.concat()));
    prop_oneof![
        8 => by_bracket,
        1 => "\\]~!?[a-z]?[\\[\\]]",
        1 => "\\]<\\][a-z]{1,8}\\[>\\[",
        1 => ">>[A-Z]{1,12}<<",
    ]
}

#[test]
fn generated_control_tokens_are_broken_in_every_format() {
    let stage = RefCell::new(Stage::new());
    let around = prop::sample::select(vec!["", " ", "a", "\"", "\\", "\n", "x: ", "```", "5", "]"]);
    let mut runner = TestRunner::new(Config { cases: 256, failure_persistence: None, ..Config::default() });
    let run = runner.run(&(around.clone(), token(), around), |(before, token, after)| {
        let text = format!("{before}{token}{after}");
        let mut stage = stage.borrow_mut();
        for (format, delivered) in texts_of(&mut stage, &text) {
            assert_no_control_token(format, &delivered);
        }
        let event = plain_event("grep", "timeout", &text);
        stage.check(&[event], &[(Priority::High, plain_line("grep", "timeout", &text))]);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn payload_full_of_brackets_is_rendered_in_time() {
    let mut stage = Stage::new();
    for unit in ["<", "[ ", "< / ", "]~", "<<", ">>a<<"] {
        let text = unit.repeat(EVENT_BYTES_MAX / 4 / unit.len());
        let event = ("hostile.whole", json!({ "x": text }));
        for (format, injection) in stage.tell(&[event]) {
            assert_no_control_token(format, &injection.text);
            assert!(injection.text.len() > 100, "{format:?}: {}", injection.text);
        }
    }
}

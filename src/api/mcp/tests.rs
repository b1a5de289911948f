use std::io::Write;

use super::*;
use engine::watch::condition::FORMS;
use journal::time::Timestamp;
use serde_json::json;
use toon::tokens::estimate;

use crate::api::wire::questions::{Asked, QuestionView};

/// Most tokens that all tool definitions together may add to each request of a model.
///
/// Source: the issue of the tools, the words and limits of `respond` and `notify`, and 100 for `publish`; a
/// typed schema for the conditions alone took 433 (research of the sources, 8).
const DEFINITIONS_TOKENS_MAX: u32 = 600;

#[test]
fn the_definitions_of_all_tools_are_short() {
    let all = tools::definitions();
    let mut total = 0;
    for tool in &all {
        let tokens = estimate(&serde_json::to_string(tool).expect("a tool is JSON")).0;
        writeln!(std::io::stderr(), "{}: {tokens} tokens", tool.name).expect("somebody reads");
        total += tokens;
    }
    writeln!(std::io::stderr(), "all: {total} tokens").expect("somebody reads");
    assert!(total <= DEFINITIONS_TOKENS_MAX, "{total} tokens");
}

#[test]
fn no_definition_keeps_a_word_from_its_tool() {
    // A client that validates arguments would answer in place of the tool, with a less useful
    // message.
    for tool in tools::definitions() {
        let text = serde_json::to_string(&tool.input_schema).expect("JSON");
        for word in ["additionalProperties", "pattern"] {
            assert!(!text.contains(word), "{}: {text}", tool.name);
        }
    }
}

#[test]
fn declared_words_are_those_of_the_readers() {
    let schema = |name: &str, argument: &str| {
        let tools = tools::definitions();
        let tool = tools.iter().find(|tool| tool.name == name).expect("a tool");
        let found = Value::Object((*tool.input_schema).clone()).pointer(argument).cloned();
        found.unwrap_or_else(|| panic!("{argument}"))
    };
    let action = schema("inbox", "/properties/respond/properties/action");
    assert_eq!(action["enum"], json!(["acknowledge", "investigate", "dismiss", "snooze"]));
    assert_eq!(schema("inbox", "/properties/respond/properties/for")["type"], "string");
    let notify = |argument: &str| schema("notify", &format!("/properties/{argument}"));
    let level = json!({ "type": "string", "enum": ["info", "warn", "error"], "default": "info" });
    assert_eq!(notify("level"), level);
    let categories = json!(["analysis", "workflow", "safety", "performance", "discovery"]);
    assert_eq!(notify("category")["enum"], categories);
    assert_eq!(notify("message")["minLength"], 1);
    assert_eq!(notify("progress"), json!({ "type": "integer", "minimum": 0, "maximum": 100 }));
    assert_eq!(notify("markdown")["default"], false);
    assert_eq!(notify("context")["default"], "llm");
}

#[test]
fn watch_describes_every_form_of_condition() {
    let tools = tools::definitions();
    let watch = tools.iter().find(|tool| tool.name == "watch").expect("a tool");
    let description = watch.description.as_deref().unwrap_or_default();
    for (word, _) in FORMS {
        assert!(description.contains(&format!(" {word}")), "{word}");
    }
    assert!(description.contains("in 3 turns"), "{description}");
}

#[test]
fn the_schema_of_notify_has_every_argument() {
    let tools = tools::definitions();
    let notify = tools.iter().find(|tool| tool.name == "notify").expect("a tool");
    let declared: Vec<&str> = notify.input_schema["properties"]
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(declared, tools::NOTIFY_KEYS);
}

#[test]
fn a_wrong_argument_of_notify_names_all_others() {
    for (arguments, expected) in [
        (r#"{"message":"x","choice":["a"]}"#, "choice: unknown field; did you mean `choices`?"),
        (r#"{"message":"x","expires":"1m"}"#, "expires: needs `choices`; only a question expires"),
        (
            r#"{"message":"x","foo":1}"#,
            "foo: unknown field; use one of message, level, choices, expires, markdown, link, key, progress, context, category",
        ),
    ] {
        assert_eq!(tools::check_notify(arguments).expect_err("refused").to_string(), expected);
    }
    for (arguments, is_question) in [
        (r#"{"message":"x","session":"s","choices":["a","b"],"expires":"1m"}"#, true),
        (r#"{"message":"x","choices":null}"#, false),
        (r#"{"message":"x"}"#, false),
    ] {
        assert_eq!(tools::check_notify(arguments).ok(), Some(is_question), "{arguments}");
    }
}

#[test]
fn unknown_tool_error_suggests_the_nearest_tool() {
    assert_eq!(tools::unknown("inbx"), "unknown tool `inbx`: did you mean `inbox`?");
    assert_eq!(tools::unknown("\u{1b}[31mfly"), "unknown tool `fly`");
}

#[test]
fn asked_question_reply_states_the_remaining_time() {
    let expires_at = Timestamp::from_millis(20 * 60_000).to_string();
    let question = QuestionView { id: "q5f0c2e81b7a94d36".to_owned(), expires_at, ..QuestionView::default() };
    let asked = Asked { question, ..Asked::default() };
    let hidden = Asked { suppressed: Some("no_sink".to_owned()), ..asked.clone() };
    for (asked, minute, expected) in [
        (&asked, 0, "asked q5f0c2e; you are notified of the answer, 20m at most"),
        (&asked, 15, "asked q5f0c2e; you are notified of the answer, 5m at most"),
        (&hidden, 15, "asked q5f0c2e, not shown (no_sink); you are notified of the answer, 5m at most"),
    ] {
        assert_eq!(tools::asked_text(asked, Timestamp::from_millis(minute * 60_000)), expected);
    }
}

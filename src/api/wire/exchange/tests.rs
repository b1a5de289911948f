//! Round trips of valid input, and errors of invalid input.

use engine::{
    event::Severity,
    exchange::{Dialect, Format, Injection, Role},
    notification::{NotificationId, Priority, SubscriberId, Tokens},
};

use super::*;
use crate::api::wire::event::to_json;

fn parse_text(text: &str) -> Result<(Exchange, Vec<String>), FieldError> {
    let (session, now) = (SessionId::new("s1"), Timestamp::from_millis(1_000));
    let mut next = 0;
    let mut new_id = || {
        next += 1;
        format!("x{next}")
    };
    let none = OwnSeverities::default();
    let request = parse(text.as_bytes(), &session, now, Provenance::Harness, &none, &mut new_id)?;
    let observed = request.observed.iter().map(|event| to_json(&event.as_event(), None)).collect();
    Ok((request.exchange, observed))
}

fn minimal() -> Exchange {
    Exchange::new(SessionId::new("s1"), InjectionPoint::AfterTool, "c1")
}

fn full() -> Exchange {
    Exchange {
        turn: Some("t1".into()),
        step: Some("3".into()),
        harness: Harness {
            name: Some("claude-code".into()),
            version: Some("2.1".into()),
            workspace: Some("/w".into()),
            user: Some("u".into()),
            pid: Some(7),
            pid_started: Some(263_480),
            conversations: Some(Conversations::OnePerProcess),
            parent: Some(SessionId::new("s0")),
            format: Some(Format::SyntheticTool),
            dialect: Some(Dialect::Anthropic),
        },
        tool: Some("Bash".into()),
        acks: vec![InjectionId::new("a1"), InjectionId::new("a2")],
        known_calls: vec!["call-1".into()],
        budget: Budget { max_notifications: Some(3), max_tokens: Some(Tokens(400)), max_chars: Some(5_000) },
        format: Some(Format::Markdown),
        carrier_effect: CarrierEffect::Continue,
        context: ContextChange::Cleared { from: Some(SessionId::new("s0")) },
        shows_notices: true,
        trigger: Trigger::Wake,
        ..minimal()
    }
}

#[test]
fn step_is_a_text_or_a_whole_number() {
    let with = |step: &str| format!(r#"{{"point":"after_tool","carrier":"c1","step":{step}}}"#);
    for (step, expected) in
        [("3", Some("3")), ("-1", Some("-1")), (r#""s\u0033""#, Some("s3")), ("null", None)]
    {
        let (exchange, _) = parse_text(&with(step)).expect(step);
        assert_eq!(exchange.step.as_deref(), expected, "{step}");
    }
    for (step, expected) in [
        ("1.5", "step: must be a string or a whole number, not `1.5`"),
        ("true", "step: must be a string or a whole number, not a boolean"),
        ("[3]", "step: must be a string or a whole number, not an array"),
        (r#""""#, "step: must not be empty"),
        (&format!("\"{}\"", "s".repeat(257)), "step: has 257 bytes, at most 256 are allowed"),
    ] {
        assert_eq!(parse_text(&with(step)).expect_err(step).to_string(), expected, "{step}");
    }
}

#[test]
fn every_request_field_is_read() {
    let compacted =
        Exchange { context: ContextChange::Compacted, carrier_effect: CarrierEffect::Cancel, ..minimal() };
    let unchanged = Exchange { context: ContextChange::Unchanged, ..minimal() };
    for (text, exchange) in [
        (r#"{"point":"after_tool","carrier":"c1"}"#, minimal()),
        (
            concat!(
                r#"{"point":"after_tool","carrier":"c1","turn":"t1","step":"3","harness":{"name":"claude-code","version":"2.1","#,
                r#""workspace":"/w","user":"u","pid":7,"pid_started":263480,"conversations":"one_per_process","parent":"s0"},"#,
                r#""tool":"Bash","ack":["a1","a2"],"known_calls":["call-1"],"#,
                r#""budget":{"max_notifications":3,"max_tokens":400,"max_chars":5000},"format":"markdown","formats":["new_one","synthetic_tool","xml"],"dialect":"anthropic","#,
                r#""carrier_effect":"continue","context":"cleared","from":"s0","shows_notices":true,"trigger":"wake"}"#
            ),
            full(),
        ),
        (
            r#"{"point":"after_tool","carrier":"c1","carrier_effect":"cancel","context":"compacted"}"#,
            compacted,
        ),
        (r#"{"point":"after_tool","carrier":"c1","context":"unchanged"}"#, unchanged),
    ] {
        assert_eq!(parse_text(text), Ok((exchange, Vec::new())), "{text}");
    }
}

#[test]
fn observed_events_default_to_the_exchange_session() {
    let text = r#"{"point":"after_tool","carrier":"c1","observe":[{"type":"a.b"},{"type":"a.c","id":"own","workspace":"/w"}]}"#;
    let (exchange, observed) = parse_text(text).expect("valid");
    assert_eq!(exchange, minimal());
    let expected = [
        r#"{"id":"x1","type":"a.b","source":"api","severity":"info","timestamp":"1970-01-01T00:00:01Z","payload":{},"session":"s1"}"#,
        r#"{"id":"own","type":"a.c","source":"api","severity":"info","timestamp":"1970-01-01T00:00:01Z","payload":{},"workspace":"/w"}"#,
    ];
    assert_eq!(observed, expected);
}

#[test]
fn invalid_exchange_error_names_field_and_suggestion() {
    let with = |rest: &str| format!(r#"{{"point":"after_tool","carrier":"c1",{rest}}}"#);
    for (text, expected) in [
        ("[]".to_owned(), "must be a JSON object, not an array"),
        ("{}".to_owned(), "point: is missing"),
        (r#"{"point":"after_tool"}"#.to_owned(), "carrier: is missing"),
        (
            r#"{"point":"aftertool"}"#.to_owned(),
            "point: `aftertool` is not allowed; did you mean `after_tool`?",
        ),
        (
            r#"{"point":"whenever"}"#.to_owned(),
            "point: `whenever` is not allowed; use one of immediate, turn_start, before_tool, after_tool, turn_end",
        ),
        (with(r#""carier":"c""#), "carier: unknown field; did you mean `carrier`?"),
        (
            with(r#""carrier_effect":"maybe""#),
            "carrier_effect: `maybe` is not allowed; use one of none, continue, cancel",
        ),
        (with(r#""context":"compact""#), "context: `compact` is not allowed; did you mean `compacted`?"),
        (with(r#""trigger":"wakes""#), "trigger: `wakes` is not allowed; did you mean `wake`?"),
        (with(r#""context":"forked","from":"s1""#), "from: is the session itself"),
        (with(r#""context":"resumed","from":"s0""#), "from: needs `context` to be `cleared` or `forked`"),
        (with(r#""turn":"""#), "turn: must not be empty"),
        (with(r#""harness":"claude""#), "harness: must be a JSON object, not a string"),
        (
            with(r#""harness":{"pid":"x"}"#),
            "harness.pid: must be a whole number up to 4294967295, not a string",
        ),
        (with(r#""harness":{"pid_started":-1}"#), "harness.pid_started: must be a whole number, not `-1`"),
        (
            with(r#""harness":{"conversations":"one"}"#),
            "harness.conversations: `one` is not allowed; did you mean `one_per_process`?",
        ),
        (
            with(r#""context":"cleared","harness":{"pid":41}"#),
            "from: is missing: name the predecessor session, or set `harness.conversations` if the process `harness.pid` \
             has one conversation at a time",
        ),
        (with(r#""harness":{"parent":"s1"}"#), "harness.parent: is the session itself"),
        (with(r#""harness":{"workspace":"w"}"#), "harness.workspace: must be an absolute path, not `w`"),
        (with(r#""trigger":{"wake":null}"#), "trigger: must be a string, not an object"),
        (r#"{"point":null}"#.to_owned(), "point: is missing"),
        (r#"{"point":{"after_tool":1}}"#.to_owned(), "point: must be a string, not an object"),
        (with(r#""ack":"a1""#), "ack: must be an array, not a string"),
        (with(r#""ack":["a1",2]"#), "ack[1]: must be a string, not a number"),
        (with(r#""ack":[null]"#), "ack[0]: must be a string, not null"),
        (with(r#""ack":["a1",""]"#), "ack[1]: must not be empty"),
        (
            with(&format!(r#""ack":[{}"a"]"#, r#""a","#.repeat(ACKS_MAX))),
            "ack: has 65 items, at most 64 are allowed",
        ),
        (
            with(&format!(r#""observe":[{}1]"#, "1,".repeat(OBSERVE_MAX))),
            "observe: has 101 items, at most 100 are allowed",
        ),
        (
            with(r#""observe":[{"type":"a.b"},{"type":"a"}]"#),
            "observe[1].type: an event type has 2 to 8 segments separated by dots, `a` has 1",
        ),
        (with(r#""observe":[7]"#), "observe[0]: must be a JSON object, not a number"),
    ] {
        assert_eq!(parse_text(&text).expect_err(&text).to_string(), expected, "{text}");
    }
}

#[test]
fn nested_exchange_objects_refuse_arrays_and_unknown_fields() {
    let with = |rest: &str| format!(r#"{{"point":"after_tool","carrier":"c1",{rest}}}"#);
    for (text, expected) in [
        (with(r#""budget":{"max_token":1}"#), "budget.max_token: unknown field; did you mean `max_tokens`?"),
        (
            with(r#""budget":{"max_tokens":1.5}"#),
            "budget.max_tokens: must be a whole number up to 4294967295, not `1.5`",
        ),
        (with(r#""budget":{"max_tokens":1e999}"#), "budget.max_tokens: is too large a number"),
        (with(r#""budget":[1,2,3]"#), "budget: must be a JSON object, not an array"),
        (with(r#""budget":[1,2,3,4]"#), "budget: must be a JSON object, not an array"),
        (with(r#""harness":["x",null]"#), "harness: must be a JSON object, not an array"),
        (with(r#""harness":{"nam":"x"}"#), "harness.nam: unknown field; did you mean `name`?"),
    ] {
        assert_eq!(parse_text(&text).expect_err(&text).to_string(), expected, "{text}");
    }
}

#[test]
fn answer_shows_released_notifications_or_is_absent() {
    let mut answer = Answer { pending: 3, check_before_tool: true, ..Answer::default() };
    assert!(AnswerView::of(&answer, Some("what they are"), Some("x: y")).is_none());
    answer.directive = Some(Directive::Continue { reason: "ci failed".into() });
    answer.injection = Some(Injection {
        id: InjectionId::new("a1"),
        format: Format::Toon,
        text: "tool_fail: grep".into(),
        sentence: "tool failure (high): grep".into(),
        role: Role::Tool,
        notifications: vec![Released {
            id: NotificationId::new("n1"),
            subscriber: SubscriberId::new("tool_failure"),
            priority: Priority::High,
            severity: Severity::Error,
            redelivered: false,
            tokens: Tokens(3),
            first_event: None,
        }],
        starts_turn: false,
    });
    let shown =
        serde_json::to_string(&AnswerView::of(&answer, Some("what they are"), None)).expect("serializes");
    let expected = concat!(
        r#"{"injection":"a1","format":"toon","text":"tool_fail: grep","role":"tool","notifications":[{"id":"n1","subscriber":"tool_failure","#,
        r#""priority":"high","severity":"error","redelivered":false}],"directive":{"continue":{"reason":"ci failed"}},"#,
        r#""pending":3,"check_before_tool":true}"#
    );
    assert_eq!(shown, expected);
}

#[test]
fn unknown_formats_are_named_and_refuse_nothing() {
    let with = |fields: &str| format!(r#"{{"point":"after_tool","carrier":"c1",{fields}}}"#);
    let read = |text: &str| {
        let (session, now, none) = (SessionId::new("s1"), Timestamp::ZERO, OwnSeverities::default());
        let mut id = String::new;
        let request = parse(text.as_bytes(), &session, now, Provenance::Harness, &none, &mut id)?;
        let known = KnownFacts { harness: None, workspace: None };
        let remarks = [request.unknown.clone(), of_request(&request.exchange, &[], known)].concat();
        let Exchange { format, harness, .. } = request.exchange;
        Ok::<_, FieldError>((format, harness.format, harness.dialect, join(&remarks)))
    };
    let (xml, each, tool) = (Some(Format::Xml), Some(Format::XmlEach), Some(Format::SyntheticTool));
    for (fields, format, first, dialect, notice) in [
        (r#""format":"xml_each""#, each, None, None, None),
        (
            r#""format":"xml_eech""#,
            None,
            None,
            None,
            Some("format: `xml_eech` is unknown and has no effect; did you mean `xml_each`?"),
        ),
        (r#""formats":["later","xml","xml_each"]"#, None, xml, None, None),
        (
            r#""formats":["later"]"#,
            None,
            None,
            None,
            Some(
                "formats: none is known; use some of xml, xml_each, markdown, toon, json, line, openai_developer, \
                 system_message, anthropic_block, synthetic_tool, user_prefix",
            ),
        ),
        (r#""formats":[]"#, None, None, None, None),
        (r#""formats":["synthetic_tool"],"dialect":"gemini""#, None, tool, Some(Dialect::Gemini), None),
        (
            r#""dialect":"open_ai""#,
            None,
            None,
            None,
            Some(
                "dialect: `open_ai` is unknown and has no effect; use one of chat, responses, anthropic, gemini",
            ),
        ),
        (
            r#""format":"openai_developer","dialect":"gemini""#,
            Some(Format::OpenaiDeveloper),
            None,
            Some(Dialect::Gemini),
            Some("dialect: `gemini` has no effect on `openai_developer`, which has chat, responses"),
        ),
        (
            r#""format":"xml","dialect":"chat""#,
            xml,
            None,
            Some(Dialect::Chat),
            Some("dialect: `chat` has no effect on `xml`, which has no dialects"),
        ),
    ] {
        let expected = (format, first, dialect, notice.map(str::to_owned));
        assert_eq!(read(&with(fields)).expect(fields), expected, "{fields}");
    }
    let long = format!(r#""formats":[{}"a"]"#, r#""a","#.repeat(FORMATS_MAX));
    for (fields, error) in [
        (r#""format":1"#, "format: must be a string, not a number"),
        (&*long, "formats: has 33 items, at most 32 are allowed"),
    ] {
        assert_eq!(read(&with(fields)).expect_err(fields).to_string(), error);
    }
}

#[test]
fn carrier_is_in_the_field_of_its_format() {
    let answer = |format: Format, text: &str, directive: Option<Directive>| {
        let injection = Injection {
            id: InjectionId::new("a1"),
            format,
            text: text.into(),
            sentence: "".into(),
            role: Role::Tool,
            notifications: Vec::new(),
            starts_turn: false,
        };
        let answer = Answer { injection: Some(injection), directive, ..Answer::default() };
        serde_json::to_string(&AnswerView::of(&answer, None, None)).expect("serializes")
    };
    let end = r#""notifications":[],"pending":0,"check_before_tool":false}"#;
    for (format, text, fields) in [
        (Format::Xml, "x", r#""text":"x","role":"tool""#),
        (Format::SystemMessage, r#"{"role":"system"}"#, r#""message":{"role":"system"}"#),
        (Format::AnthropicBlock, r#"{"type":"text"}"#, r#""block":{"type":"text"}"#),
        (Format::SyntheticTool, "[1,2]", r#""messages":[1,2]"#),
    ] {
        let begin = format!(r#"{{"injection":"a1","format":"{}","#, format.as_str());
        assert_eq!(answer(format, text, None), format!("{begin}{fields},{end}"));
    }
    // In place of a call it is the text of the call's result.
    let cancel = Directive::Cancel { reason: "ci".into() };
    let cancelled = answer(Format::SyntheticTool, "not run", Some(cancel));
    assert!(cancelled.contains(r#""text":"not run","role":"tool""#), "{cancelled}");
}

//! Round trips of valid records, and errors of invalid ones.

use std::error::Error;

use crate::{
    event::Severity,
    exchange::{Budget, CarrierEffect, ContextChange, Dialect, Directive, Format, Trigger},
    notification::{Activation, InjectionPoint, Priority, SubscriberId, Tokens, repeat::Action},
    pipeline::{mute::Mute, silence::Matchers},
};

use super::*;

const SEQ: Seq = Seq(9);
const PROCESS: Process = Process { pid: 41, started: Some(263_480) };

fn zone() -> Zone {
    let zone = jiff::tz::TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a zone");
    Zone::new(&zone, Timestamp::from_millis(1_767_603_600_000))
}

fn silence() -> Silence {
    let matchers = Matchers {
        subscriber: Some(SubscriberId::new("pager")),
        condition: Some("payload.n > 1".into()),
        ..Matchers::default()
    };
    let (by, comment) = ("anna".into(), "db move".into());
    Silence { id: SilenceId::new("s1"), matchers, until: Timestamp::from_millis(9), by, comment }
}

fn response() -> Response {
    let until = Some(Timestamp::from_millis(9));
    Response { action: Action::Snooze, by: "anna".into(), until }
}

fn settings() -> UserSettings {
    let types = vec!["mcp.**".parse().expect("a pattern")];
    UserSettings {
        disabled: [SubscriberId::new("pager")].into_iter().collect(),
        mute: vec![Mute { types, below: Some(Priority::High), ..Mute::default() }],
        quiet: "22:00-07:00".parse().expect("hours"),
        level: Some(Activation::Passive),
    }
}

fn event() -> EventRef<'static> {
    EventRef {
        id: "e1",
        event_type: "tool.call.failure",
        source: "tool_executor",
        provenance: crate::event::Provenance::Local,
        severity: Severity::Error,
        timestamp: Timestamp::from_millis(5),
        payload: "{}",
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
        deliver_after: None,
    }
}

fn harness() -> Harness {
    Harness {
        name: Some("claude-code".into()),
        workspace: Some("/w".into()),
        format: Some(Format::SyntheticTool),
        dialect: Some(Dialect::Gemini),
        ..Harness::default()
    }
}

fn exchange() -> Exchange {
    Exchange {
        session: SessionId::new("s1"),
        point: InjectionPoint::TurnEnd,
        carrier: "c1".into(),
        turn: Some("t1".into()),
        step: Some("3".into()),
        harness: harness(),
        tool: Some("Bash".into()),
        acks: vec![InjectionId::new("a1")],
        known_calls: vec!["call-1".into()],
        budget: Budget { max_tokens: Some(Tokens(9)), ..Budget::default() },
        format: Some(Format::Json),
        carrier_effect: CarrierEffect::Cancel,
        context: ContextChange::Forked { from: Some(SessionId::new("s0")) },
        shows_notices: true,
        trigger: Trigger::Wake,
    }
}

fn released() -> ReleaseRecord {
    ReleaseRecord {
        exchange: Seq(8),
        injection: InjectionId::new("a1"),
        notifications: vec![NotificationId::new("n1"), NotificationId::new("n2")],
        directive: Some(Directive::Cancel { reason: "critical: ci".into() }),
        format: Some(Format::XmlEach),
        tokens: Some(Tokens(70)),
    }
}

/// Records about sessions that their harness did not report.
fn kinds_of_sessions() -> Vec<(u8, Vec<u8>, String)> {
    let session = SessionId::new("s1");
    let body = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut body = Vec::new();
        encode(&mut body);
        body
    };
    let input = |input: Input<'_>| format!("{:?}", RecordInput::Input(input));
    vec![
        (
            SILENCE,
            body(&|body| encode_silence(&silence(), body)),
            input(Input::Silenced(Box::new(silence()))),
        ),
        (
            SILENCE_END,
            body(&|body| encode_silence_end(&[SilenceId::new("s1")], body)),
            input(Input::SilencesEnded(vec![SilenceId::new("s1")])),
        ),
        (
            RESPONSE,
            body(&|body| encode_response(&NotificationId::new("n1"), &response(), body)),
            input(Input::Responded { notification: NotificationId::new("n1"), response: response() }),
        ),
        (
            SETTINGS,
            body(&|body| encode_settings("ada", &settings(), body)),
            input(Input::UserSettings { user: "ada".into(), settings: Box::new(settings()) }),
        ),
        (ZONE, body(&|body| encode_zone(&zone(), body)), input(Input::ZoneChanged(zone()))),
        (
            SESSION_CLOSED,
            body(&|body| encode_process_gone(&session, PROCESS, body)),
            input(Input::ProcessGone { session: session.clone(), process: PROCESS }),
        ),
        (
            SESSION_SEEN,
            body(&|body| encode_session_seen(&session, body)),
            input(Input::SessionSeen { session: session.clone() }),
        ),
        (
            SESSION_STATE,
            body(&|body| encode_session_idle(&session, "client_file", Timestamp::from_millis(7), body)),
            input(Input::SessionIdle { session: session.clone(), as_of: Timestamp::from_millis(7) }),
        ),
    ]
}

fn skip() -> Skip {
    Skip { record: Seq(7), by: "".into(), decision: SkipDecision::Skipped }
}

fn encode_skip(skip: &Skip, body: &mut Vec<u8>) {
    encode_skipped(skip.record, &skip.by, skip.decision, body);
}

/// Every kind with a body and its expected decoded value.
fn every_kind() -> Vec<(u8, Vec<u8>, String)> {
    let (session, injection) = (SessionId::new("s1"), InjectionId::new("a1"));
    let body = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut body = Vec::new();
        encode(&mut body);
        body
    };
    let input = |input: Input<'_>| format!("{:?}", RecordInput::Input(input));
    let request = RequestId(u64::MAX);
    let notification = NotificationId::new("n1");
    vec![
        (EVENT, body(&|body| encode_event(&event(), body)), input(Input::Event { seq: SEQ, event: event() })),
        (
            EXCHANGE,
            body(&|body| encode_exchange(request, &exchange(), body)),
            input(Input::Exchange {
                seq: SEQ,
                request,
                exchange: exchange().into(),
                release: Release::Recorded(None),
            }),
        ),
        (
            ACK,
            body(&|body| encode_ack(&session, &injection, ConfirmedBy::Seen, body)),
            input(Input::Ack { session: session.clone(), injection, by: ConfirmedBy::Seen }),
        ),
        (
            UNDELIVERED,
            body(&|body| encode_undelivered(&session, &injection, body)),
            input(Input::Undelivered { session: session.clone(), injection }),
        ),
        (
            SESSION_OPENED,
            body(&|body| encode_session_opened(&session, &harness(), body)),
            input(Input::SessionOpened { session: session.clone(), harness: harness() }),
        ),
        (
            SESSION_CLOSED,
            body(&|body| encode_session_suspended(&session, body)),
            input(Input::SessionSuspended { session: session.clone() }),
        ),
        (
            RULES,
            body(&|body| encode_rules("0abc", body)),
            format!("{:?}", RecordInput::Rules { hash: "0abc".into() }),
        ),
        (
            RELEASED,
            body(&|body| encode_released(&released(), body)),
            format!("{:?}", RecordInput::Released(released())),
        ),
        (SKIPPED, body(&|body| encode_skip(&skip(), body)), format!("{:?}", RecordInput::Skipped(skip()))),
        (SHUTTING_DOWN, body(&encode_bare), input(Input::ShuttingDown)),
        (TICK, body(&encode_bare), input(Input::Tick)),
        (
            DECIDED,
            body(&|body| encode_decided(Some(&session), &notification, Decision::Discuss, body)),
            input(Input::Decided {
                session: Some(session.clone()),
                notification,
                decision: Decision::Discuss,
            }),
        ),
    ]
}

#[test]
fn every_record_kind_round_trips() {
    let kinds: Vec<_> = every_kind().into_iter().chain(kinds_of_sessions()).collect();
    let written: std::collections::BTreeSet<u8> = kinds.iter().map(|(kind, _, _)| *kind).collect();
    assert_eq!(
        written.into_iter().collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, DECIDED, ZONE, SILENCE, SILENCE_END, SETTINGS, RESPONSE]
    );
    for (kind, body, expected) in kinds {
        let read = decode(kind, SEQ, &body).expect("just written");
        assert_eq!(format!("{read:?}"), expected);
    }
}

/// The format of existing journals: a change here needs a new version of the bodies.
#[test]
fn bodies_are_written_as_they_always_were() {
    let expected = [
        (
            EXCHANGE,
            r#"{"v":1,"request":18446744073709551615,"session":"s1","point":"turn_end","carrier":"c1","turn":"t1","step":"3","harness":{"name":"claude-code","workspace":"/w","format":"synthetic_tool","dialect":"gemini"},"tool":"Bash","ack":["a1"],"known_calls":["call-1"],"budget":{"max_tokens":9},"format":"json","carrier_effect":"cancel","context":"forked","from":"s0","shows_notices":true,"trigger":"wake"}"#,
        ),
        (ACK, r#"{"v":1,"session":"s1","injection":"a1","by":"seen"}"#),
        (UNDELIVERED, r#"{"v":1,"session":"s1","injection":"a1"}"#),
        (
            SESSION_OPENED,
            r#"{"v":1,"session":"s1","harness":{"name":"claude-code","workspace":"/w","format":"synthetic_tool","dialect":"gemini"}}"#,
        ),
        (SESSION_CLOSED, r#"{"v":1,"session":"s1","may_return":true}"#),
        (RULES, r#"{"v":1,"hash":"0abc"}"#),
        (
            RELEASED,
            r#"{"v":1,"exchange":8,"injection":"a1","notifications":["n1","n2"],"directive":{"cancel":{"reason":"critical: ci"}},"format":"xml_each","tokens":70}"#,
        ),
        (SKIPPED, r#"{"v":1,"record":7}"#),
        (SHUTTING_DOWN, r#"{"v":1}"#),
        (TICK, r#"{"v":1}"#),
        (DECIDED, r#"{"v":1,"session":"s1","notification":"n1","decision":"discuss"}"#),
        (
            SILENCE,
            r#"{"v":1,"id":"s1","matchers":{"subscriber":"pager","where":"payload.n > 1"},"until":9,"by":"anna","comment":"db move"}"#,
        ),
        (SILENCE_END, r#"{"v":1,"silences":["s1"]}"#),
        (RESPONSE, r#"{"v":1,"notification":"n1","action":"snooze","by":"anna","until":9}"#),
        (
            SETTINGS,
            r#"{"v":1,"user":"ada","disabled":["pager"],"mute":[{"types":["mcp.**"],"below":"high"}],"quiet":["22:00-07:00"],"level":"passive"}"#,
        ),
        (
            ZONE,
            r#"{"v":1,"offset":3600,"changes":[[1774746000000,7200],[1792890000000,3600],[1806195600000,7200],[1824944400000,3600]]}"#,
        ),
        (
            SESSION_CLOSED,
            r#"{"v":1,"session":"s1","may_return":true,"cause":"process_gone","pid":41,"pid_started":263480}"#,
        ),
        (SESSION_SEEN, r#"{"v":1,"session":"s1"}"#),
        (SESSION_STATE, r#"{"v":1,"session":"s1","state":"idle","source":"client_file","as_of":7}"#),
    ];
    let written = every_kind().into_iter().chain(kinds_of_sessions()).filter(|(kind, _, _)| *kind != EVENT);
    let written: Vec<_> =
        written.map(|(kind, body, _)| (kind, String::from_utf8(body).expect("JSON"))).collect();
    let written: Vec<_> = written.iter().map(|(kind, body)| (*kind, body.as_str())).collect();
    assert_eq!(written, expected);
}

#[test]
fn records_beyond_request_limits_are_still_decoded() {
    let long = "n".repeat(100_000);
    let exchange = format!(
        r#"{{"v":1,"request":1,"session":"s\n1","point":"turn_end","carrier":"{long}","tool":"","ack":[{}"a"],
        "harness":{{"workspace":"../relative","of_later":1}},"from":"s0","of_later":{{}}}}"#,
        r#""a","#.repeat(1_000)
    );
    let read = decode(EXCHANGE, SEQ, exchange.as_bytes());
    let Ok(RecordInput::Input(Input::Exchange { exchange, .. })) = read else { panic!("{read:?}") };
    assert_eq!(
        (exchange.session.as_str(), exchange.carrier.len(), exchange.acks.len()),
        ("s\n1", 100_000, 1_001)
    );
    assert_eq!(exchange.harness.workspace.as_deref(), Some("../relative"));
    for (kind, body) in [
        (ACK, r#"{"v":1,"session":"","injection":"a\u0000","by":"seen"}"#),
        (SESSION_OPENED, r#"{"v":1,"session":"s\u202e","harness":{"name":"","of_later":7}}"#),
        (DECIDED, r#"{"v":1,"notification":"","decision":"dismiss"}"#),
    ] {
        assert!(decode(kind, SEQ, body.as_bytes()).is_ok(), "{body}");
    }
}

#[test]
fn truncated_body_error_names_the_kind() {
    for (kind, body, _) in every_kind() {
        let name = kind_name(kind).expect("known");
        for end in 0..body.len() {
            let error = decode(kind, SEQ, &body[..end]).expect_err(name);
            assert_eq!(error.to_string(), format!("record 9 ({name}) cannot be read"), "cut at {end}");
            assert!(error.source().is_some());
        }
    }
}

#[test]
fn bodies_of_another_kind_or_version_are_refused() {
    let cases: [(u8, &[u8], &str, &str); 8] = [
        (0, b"{}", "record 9 is of kind 0, which this version does not know", ""),
        (TICK, br#"{"v":2,"new":1}"#, "record 9 (tick) is of version 2, this program reads up to 1", ""),
        (TICK, b"{}", "record 9 (tick) cannot be read", "missing field `v` at line 1 column 2"),
        (
            ACK,
            br#"{"v":1,"session":"s1"}"#,
            "record 9 (ack) cannot be read",
            "missing field `injection` at line 1 column 22",
        ),
        (
            ACK,
            br#"{"v":1,"session":"s1","injection":"a1"}"#,
            "record 9 (ack) cannot be read",
            "missing field `by`",
        ),
        (RULES, br#"{"v":1}"#, "record 9 (rules) cannot be read", "missing field `hash` at line 1 column 7"),
        (
            EXCHANGE,
            br#"{"v":1,"request":1,"session":"s1","point":"x","carrier":"c"}"#,
            "record 9 (exchange) cannot be read",
            "unknown variant `x`, expected one of `immediate`, `turn_start`, `before_tool`, `after_tool`, `turn_end` at line 1 column 45",
        ),
        (
            SESSION_OPENED,
            br#"{"v":1,"session":"s1","harness":{"pid":-1}}"#,
            "record 9 (session_opened) cannot be read",
            "invalid value: integer `-1`, expected u32 at line 1 column 41",
        ),
    ];
    for (kind, body, expected, source) in cases {
        let error = decode(kind, SEQ, body).expect_err(expected);
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.source().map(ToString::to_string).unwrap_or_default(), source);
    }
}

#[test]
fn a_skip_names_its_build_and_decision() {
    for (by, decision) in [("1 2 3", SkipDecision::Skipped), ("", SkipDecision::TakenBack)] {
        let skip = Skip { by: by.into(), decision, ..skip() };
        let mut body = Vec::new();
        encode_skip(&skip, &mut body);
        let Ok(RecordInput::Skipped(found)) = decode(SKIPPED, Seq(9), &body) else { panic!("a skip") };
        assert_eq!(found, skip);
    }
}

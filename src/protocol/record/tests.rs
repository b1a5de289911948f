//! What is written is read again, and what is wrong is named.

use std::error::Error;

use super::*;
use crate::{
    event::Severity,
    exchange::{Begins, Budget, Carries, Directive, Format, Trigger},
    notification::{InjectionPoint, Tokens},
};

const SEQ: Seq = Seq(9);
const PROCESS: Process = Process { pid: 41, started: Some(263_480) };

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
    }
}

fn harness() -> Harness {
    Harness { name: Some("claude-code".into()), workspace: Some("/w".into()), ..Harness::default() }
}

fn exchange() -> Exchange {
    Exchange {
        session: SessionId::new("s1"),
        point: InjectionPoint::TurnEnd,
        carrier: "c1".into(),
        turn: Some("t1".into()),
        harness: harness(),
        tool: Some("Bash".into()),
        acks: vec![InjectionId::new("a1")],
        budget: Budget { max_tokens: Some(Tokens(9)), ..Budget::default() },
        format: Some(Format::Json),
        carries: Carries::OnlyToCancel,
        begins: Begins::Fork { from: Some(SessionId::new("s0")) },
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
    }
}

/// What is written down of sessions that their harness does not say.
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

/// Every kind with a body and what the body must be read as.
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
                exchange: exchange(),
                release: Release::Recorded(None),
            }),
        ),
        (
            ACK,
            body(&|body| encode_ack(&session, &injection, ConfirmedBy::Seen, body)),
            input(Input::Ack {
                session: session.clone(),
                injection: injection.clone(),
                by: ConfirmedBy::Seen,
            }),
        ),
        (
            UNDELIVERED,
            body(&|body| encode_undelivered(&session, &injection, body)),
            input(Input::Undelivered { session: session.clone(), injection: injection.clone() }),
        ),
        (
            SESSION_OPENED,
            body(&|body| encode_session_opened(&session, &harness(), body)),
            input(Input::SessionOpened { session: session.clone(), harness: harness() }),
        ),
        (
            SESSION_CLOSED,
            body(&|body| encode_session_closed(&session, true, body)),
            input(Input::SessionClosed { session: session.clone(), may_return: true }),
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
        (SKIPPED, body(&|body| encode_skipped(Seq(7), body)), format!("{:?}", RecordInput::Skipped(Seq(7)))),
        (SHUTTING_DOWN, body(&encode_bare), input(Input::ShuttingDown)),
        (TICK, body(&encode_bare), input(Input::Tick)),
        (
            DECIDED,
            body(&|body| encode_decided(Some(&session), &notification, Decision::Discuss, body)),
            input(Input::Decided {
                session: Some(session.clone()),
                notification: notification.clone(),
                decision: Decision::Discuss,
            }),
        ),
    ]
}

#[test]
fn every_kind_of_record_is_read_as_what_was_written() {
    let kinds: Vec<_> = every_kind().into_iter().chain(kinds_of_sessions()).collect();
    let written: std::collections::BTreeSet<u8> = kinds.iter().map(|(kind, _, _)| *kind).collect();
    assert_eq!(written.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, DECIDED]);
    for (kind, body, expected) in kinds {
        let read = decode(kind, SEQ, &body).expect("just written");
        assert_eq!(format!("{read:?}"), expected);
    }
}

#[test]
fn a_client_of_before_had_one_conversation_in_a_process() {
    let of = |name: &str, rest: &str| {
        let body = format!(r#"{{"v":2,"session":"s1","harness":{{"name":"{name}","pid":7{rest}}}}}"#);
        match decode(SESSION_OPENED, SEQ, body.as_bytes()) {
            Ok(RecordInput::Input(Input::SessionOpened { harness, .. })) => harness.conversations,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of("claude-code", ""), Some(Conversations::OnePerProcess));
    assert_eq!(of("claude-code", r#","conversations":"many""#), Some(Conversations::Many));
    assert_eq!(of("bot", ""), None);
}

#[test]
fn a_body_of_version_1_means_what_it_meant_then() {
    let cases: [(u8, &[u8], Input<'_>); 3] = [
        (
            ACK,
            br#"{"v":1,"session":"s1","injection":"a1"}"#,
            Input::Ack {
                session: SessionId::new("s1"),
                injection: InjectionId::new("a1"),
                by: ConfirmedBy::Ack,
            },
        ),
        (
            SESSION_CLOSED,
            br#"{"v":1,"session":"s1"}"#,
            Input::SessionClosed { session: SessionId::new("s1"), may_return: false },
        ),
        (
            EXCHANGE,
            br#"{"v":1,"request":7,"session":"s1","point":"turn_end","carrier":"c1","carries":"always"}"#,
            Input::Exchange {
                seq: SEQ,
                request: RequestId(7),
                exchange: Exchange::new(SessionId::new("s1"), InjectionPoint::TurnEnd, "c1"),
                release: Release::Decide,
            },
        ),
    ];
    for (kind, body, expected) in cases {
        let read = decode(kind, SEQ, body).expect("readable");
        assert_eq!(format!("{read:?}"), format!("{:?}", RecordInput::Input(expected)));
    }
}

#[test]
fn a_body_cut_anywhere_is_an_error_that_names_the_kind() {
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
    let cases: [(u8, &[u8], &str, &str); 7] = [
        (0, b"{}", "record 9 is of kind 0, which this version does not know", ""),
        (TICK, br#"{"v":4,"new":1}"#, "record 9 (tick) is of version 4, this program reads up to 3", ""),
        (TICK, b"{}", "record 9 (tick) cannot be read", "v: is missing"),
        (ACK, br#"{"v":1,"session":"s1"}"#, "record 9 (ack) cannot be read", "injection: is missing"),
        (RULES, br#"{"v":1}"#, "record 9 (rules) cannot be read", "hash: is missing"),
        (
            EXCHANGE,
            br#"{"v":1,"request":1,"session":"s1","point":"x","carrier":"c"}"#,
            "record 9 (exchange) cannot be read",
            "point: `x` is no injection point; there are immediate, turn_start, before_tool, after_tool, turn_end",
        ),
        (
            SESSION_OPENED,
            br#"{"v":1,"session":"s1","harness":{"pid":-1}}"#,
            "record 9 (session_opened) cannot be read",
            "harness.pid: must be a whole number up to 4294967295, not `-1`",
        ),
    ];
    for (kind, body, expected, source) in cases {
        let error = decode(kind, SEQ, body).expect_err(expected);
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.source().map(ToString::to_string).unwrap_or_default(), source);
    }
}

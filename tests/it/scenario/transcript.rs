//! Runs a scenario and records the outputs of the engine, one line each.
//!
//! Notifications and injections are named `n1`, `i1` and so on, in the order of their creation,
//! also inside of texts: a scenario does not test how ids are derived. Rows that are left in open
//! batches at the end are listed, so that an event without an outcome is visible.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aside::api::wire::history::LedgerLine;
use engine::{
    event::{Event, Payload, Provenance, Seq, SessionId, Severity, catalogue},
    exchange::{Answer, Directive, InjectionId, Released},
    io::{Input, Output, Pending},
    ledger::{ConfirmedBy, LedgerEntry, Reason},
    notification::{InjectionPoint, NotificationId, Priority},
};
use journal::time::Timestamp;

use super::timeline::{Action, Emitted, Scenario, Step};
use crate::support::drive::{Drive, rules};

/// The time of a scenario's `@0`: 2023-11-14T22:13:20Z. Not zero, so that no check passes because a
/// value is zero.
const BEGIN: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Runs `scenario` to its last step and returns one line for each output.
pub(crate) fn run(scenario: &Scenario) -> String {
    run_with(Drive::new(&scenario.files), scenario)
}

/// Like [`run`], with a snapshot and a restart before every input.
pub(crate) fn run_restarted(scenario: &Scenario) -> String {
    run_with(Drive::restarted(&scenario.files), scenario)
}

fn run_with(mut drive: Drive, scenario: &Scenario) -> String {
    let mut transcript = Transcript::default();
    for step in &scenario.steps {
        let now = Timestamp::from_millis(BEGIN.as_millis() + step.at);
        drive.advance(now);
        act(&mut drive, &mut transcript, step, now);
        for (at, output) in drive.take_outputs() {
            transcript.write(at, &output);
        }
    }
    transcript.finish()
}

fn act(drive: &mut Drive, transcript: &mut Transcript, step: &Step, now: Timestamp) {
    // Outputs due before this step may define the injection that the step names.
    for (at, output) in drive.take_outputs() {
        transcript.write(at, &output);
    }
    match &step.action {
        Action::Open(session, harness) => {
            let session = drive.named(session, harness.name.as_deref());
            drive.input(Input::SessionOpened { session, harness: harness.clone() }, now);
        }
        Action::Emit(emitted) => {
            let mut event = event_of(emitted, drive.next_seq(), now);
            event.cause = event.cause.map(|cause| transcript.cause(cause));
            drive.emit(&event, now);
        }
        Action::Exchange(exchange, acks) => {
            let mut exchange = exchange.clone();
            let harness = exchange.harness.name.clone();
            for id in exchange.sessions_mut() {
                *id = drive.named(id, harness.as_deref());
            }
            exchange.acks = acks.iter().map(|name| transcript.injection(&exchange.session, name)).collect();
            let point = exchange.point;
            let request = drive.exchange(exchange, now);
            transcript.points.insert(request.0, point);
        }
        Action::Ack(session, name) => {
            let injection = transcript.injection(session, name);
            drive.input(Input::Ack { session: session.clone(), injection, by: ConfirmedBy::Ack }, now);
        }
        Action::Seen(session, name) => {
            let injection = transcript.injection(session, name);
            drive.input(Input::Ack { session: session.clone(), injection, by: ConfirmedBy::Seen }, now);
        }
        Action::Undelivered(session, name) => {
            let injection = transcript.injection(session, name);
            drive.input(Input::Undelivered { session: session.clone(), injection }, now);
        }
        Action::Decide(session, name, decision) => {
            let (session, decision) = (Some(session.clone()), *decision);
            let notification = NotificationId::new(&transcript.cause(name.as_str().into()));
            drive.input(Input::Decided { session, notification, decision }, now);
        }
        Action::Close(session, true) => {
            drive.input(Input::SessionSuspended { session: session.clone() }, now);
        }
        Action::Close(session, false) => drive.input(Input::SessionEnded { session: session.clone() }, now),
        Action::Gone(session, process) => {
            drive.input(Input::ProcessGone { session: session.clone(), process: *process }, now);
        }
        Action::Attached(session) => drive.input(Input::SessionSeen { session: session.clone() }, now),
        Action::Idle(session, as_of) => {
            let as_of = Timestamp::from_millis(BEGIN.as_millis() + as_of);
            drive.input(Input::SessionIdle { session: session.clone(), as_of }, now);
        }
        Action::Reload(files) => {
            let files: Vec<_> = files.iter().filter(|(_, text)| !text.is_empty()).cloned().collect();
            drive.input(Input::RulesReplaced(rules(&files)), now);
        }
        Action::Shutdown => drive.input(Input::ShuttingDown, now),
        Action::Tick => drive.input(Input::Tick, now),
    }
}

fn event_of(emitted: &Emitted, seq: Seq, now: Timestamp) -> Event {
    let field = |name: &str| emitted.envelope.get(name).map(String::as_str);
    let by_type: Option<Severity> = catalogue::default_severity(&emitted.event_type);
    Event {
        id: field("id").map_or_else(|| format!("e{seq}").into(), Into::into),
        event_type: emitted.event_type.parse().expect("checked when it was read"),
        source: field("source").unwrap_or("test").into(),
        provenance: match field("provenance") {
            None | Some("harness") => Provenance::Harness,
            Some("local") => Provenance::Local,
            Some("remote") => Provenance::Remote,
            Some(other) => panic!("there is no provenance `{other}`"),
        },
        severity: emitted.severity.or(by_type).unwrap_or(catalogue::SEVERITY_DEFAULT),
        timestamp: now,
        payload: Payload::from(emitted.payload.clone()),
        dedupe_key: field("dedupe_key").map(Into::into),
        session: field("session").map(SessionId::new),
        workspace: field("workspace").map(Into::into),
        cause: field("cause").map(Into::into),
        deliver_after: None,
    }
}

#[derive(Default)]
struct Transcript {
    text: String,
    /// The injection point of each request, by the request's number.
    points: BTreeMap<u64, InjectionPoint>,
    notifications: Vec<NotificationId>,
    injections: Vec<(SessionId, InjectionId)>,
    /// Rows of open batches.
    open: BTreeSet<(Seq, String)>,
    /// The injections in the ledger.
    recorded: BTreeSet<(InjectionId, NotificationId)>,
}

impl Transcript {
    fn write(&mut self, at: Timestamp, output: &Output) {
        match output {
            Output::Record(entry) => self.write_record(at, entry),
            // Ledger entries and wakes show their results.
            Output::Made(_) | Output::Said(_) | Output::Session(..) => {}
            Output::Answer { request, session, answer, .. } => {
                let point = self.points.get(&request.0).map_or("unasked", |point| point.as_str());
                self.write_answer(at, point, session, answer);
            }
            Output::Refuse { request, harness } => {
                let point = self.points.get(&request.0).map_or("unasked", |point| point.as_str());
                self.line(at, "refused", &format!("{point} harness={harness}"));
            }
            Output::Publish(event) => {
                let what = format!("{} {} {}", event.event_type, event.severity, event.payload.as_str());
                self.line(at, "publish", &what);
            }
            Output::Wake(pending) => self.write_wake(at, pending),
        }
    }

    fn write_wake(&mut self, at: Timestamp, pending: &Pending) {
        let Pending { session, count, top, for_user, wake, wakes_if_stopped, is_closed, moved_to } = pending;
        let mut line = format!("{session} pending={count} top={}", top.map_or("none", Priority::as_str));
        if *for_user > 0 {
            line.push_str(&format!(" for_user={for_user}"));
        }
        if let Some(wake) = wake {
            line.push_str(&format!(" {}={:?}", wake.kind.as_str(), wake.reason));
        }
        if *wakes_if_stopped && wake.is_none() {
            line.push_str(" wakes_if_stopped");
        }
        if *is_closed {
            line.push_str(" closed");
        }
        if let Some(to) = moved_to {
            line.push_str(&format!(" moved_to={to}"));
        }
        self.line(at, "wake", &line);
    }

    fn write_record(&mut self, at: Timestamp, entry: &LedgerEntry) {
        match entry {
            LedgerEntry::Unmatched { seq } => self.line(at, "unmatched", &format!("seq={seq}")),
            LedgerEntry::Skipped { seq } => self.line(at, "skipped", &format!("seq={seq}")),
            LedgerEntry::Throttled { seq, by } => {
                self.line(at, "throttled", &format!("seq={seq} by={}", by.as_str()));
            }
            LedgerEntry::Batched { seq, subscriber } => {
                self.open.insert((*seq, subscriber.to_string()));
            }
            LedgerEntry::EventEnded { seq, subscriber, reason } => {
                self.open.remove(&(*seq, subscriber.to_string()));
                let reason = reason_text(reason);
                self.line(at, "ended", &format!("seq={seq} subscriber={subscriber} reason={reason}"));
            }
            LedgerEntry::Created { notification, subscriber, events, .. } => {
                for seq in events {
                    self.open.remove(&(*seq, subscriber.to_string()));
                }
                let seqs: Vec<String> = events.iter().map(Seq::to_string).collect();
                let name = self.name(notification);
                self.line(at, "notification", &format!("{name} {subscriber} events={}", seqs.join(",")));
            }
            LedgerEntry::Unclaimed { notification } => {
                let name = self.name(notification);
                self.line(at, "unclaimed", &name);
            }
            LedgerEntry::Queued { notification, session } => {
                let name = self.name(notification);
                self.line(at, "queued", &format!("{name} {session}"));
            }
            LedgerEntry::Injected { notification, injection, .. } => {
                self.recorded.insert((*injection, *notification));
            }
            LedgerEntry::Confirmed { notification, session, by } => {
                let name = self.name(notification);
                self.line(at, "confirmed", &format!("{name} {session} by={}", by.as_str()));
            }
            LedgerEntry::Returned { notification, session } => {
                let name = self.name(notification);
                self.line(at, "returned", &format!("{name} {session}"));
            }
            LedgerEntry::Repeated { notification, session, number } => {
                let name = self.name(notification);
                let number = number.map_or_else(|| "last".to_owned(), |number| number.to_string());
                self.line(at, "repeated", &format!("{name} {session} number={number}"));
            }
            LedgerEntry::Responded { notification, session, action, by } => {
                let name = self.name(notification);
                self.line(at, "responded", &format!("{name} {session} action={} by={by}", action.as_str()));
            }
            LedgerEntry::Recalled { notification, session } => {
                let name = self.name(notification);
                self.line(at, "recalled", &format!("{name} {session}"));
            }
            LedgerEntry::NotificationEnded { notification, session, reason } => {
                let name = self.name(notification);
                let session = session.as_ref().map_or("none", SessionId::as_str);
                self.line(at, "ended", &format!("{name} session={session} reason={}", reason_text(reason)));
            }
            LedgerEntry::ForUser { .. } => {
                let line = LedgerLine::of(entry);
                let about = match &line.notification {
                    Some(id) => self.name(&NotificationId::new(id)),
                    None => format!("seq={}", line.events.first().copied().unwrap_or_default()),
                };
                let parts = [line.by, line.reason, line.detail.map(Into::into)];
                let parts = parts.into_iter().flatten().map(|part| format!(" {part}"));
                self.line(at, &line.what, &format!("{about}{}", parts.collect::<String>()));
            }
        }
    }

    fn write_answer(&mut self, at: Timestamp, point: &str, session: &SessionId, answer: &Answer) {
        let mut tail = format!("pending={}", answer.pending);
        if answer.check_before_tool {
            tail.push_str(" check_before_tool");
        }
        match &answer.directive {
            Some(Directive::Continue { reason }) => tail.push_str(&format!(" continue={reason:?}")),
            Some(Directive::Cancel { reason }) => tail.push_str(&format!(" cancel={reason:?}")),
            None => {}
        }
        if let Some(notice) = &answer.notice {
            tail.push_str(&format!(" notice={notice:?}"));
        }
        let Some(injection) = &answer.injection else {
            self.line(at, "nothing", &format!("{session} {point} {tail}"));
            return;
        };
        for released in &injection.notifications {
            if !self.recorded.contains(&(injection.id, released.id)) {
                self.line(at, "UNRECORDED", &format!("{} was said before it was written down", released.id));
            }
        }
        let names: Vec<String> =
            injection.notifications.iter().map(|released| self.released(released)).collect();
        let known = self.injections.iter().position(|(_, id)| *id == injection.id);
        let number = known.unwrap_or(self.injections.len());
        if known.is_none() {
            self.injections.push((session.clone(), injection.id));
        }
        let role = injection.role.as_str();
        let what =
            format!("{session} {point} i{} role={role} {tail} notifications={}", number + 1, names.join(","));
        self.line(at, "inject", &what);
        for line in self.with_names(&injection.text).split('\n') {
            self.text.push_str(format!("          | {line}").trim_end());
            self.text.push('\n');
        }
    }

    fn released(&mut self, released: &Released) -> String {
        let mark = if released.redelivered { "(redelivered)" } else { "" };
        format!("{}{mark}", self.name(&released.id))
    }

    fn line(&mut self, at: Timestamp, verb: &str, rest: &str) {
        let rest = self.with_names(rest);
        self.text.push_str(&format!("@{:<8} {verb:<12} {rest}\n", relative(at)));
    }

    fn name(&mut self, id: &NotificationId) -> String {
        let known = self.notifications.iter().position(|known| known == id);
        let number = known.unwrap_or_else(|| {
            self.notifications.push(*id);
            self.notifications.len() - 1
        });
        format!("n{}", number + 1)
    }

    /// The id of the notification with the name `cause`, or an event's id unchanged.
    fn cause(&self, cause: Arc<str>) -> Arc<str> {
        let number = cause.strip_prefix('n').and_then(|number| number.parse::<usize>().ok());
        let named = number.and_then(|number| self.notifications.get(number.checked_sub(1)?));
        named.map_or(cause, |id| id.as_str().into())
    }

    /// The injection of `session` with the scenario's name `name`.
    fn injection(&self, session: &SessionId, name: &str) -> InjectionId {
        let number = name.strip_prefix('i').and_then(|number| number.parse::<usize>().ok());
        let found = match number {
            Some(number) => self.injections.get(number.wrapping_sub(1)).map(|(_, id)| id),
            None => self.injections.iter().rev().find(|(own, _)| own == session).map(|(_, id)| id),
        };
        found.cloned().unwrap_or_else(|| InjectionId::new(name))
    }

    fn with_names(&self, text: &str) -> String {
        let injections = self.injections.iter().map(|(_, id)| id.as_str()).enumerate();
        let text = injections
            .fold(text.to_owned(), |text, (index, id)| text.replace(id, &format!("i{}", index + 1)));
        let notifications = self.notifications.iter().map(NotificationId::as_str).enumerate();
        notifications.fold(text, |text, (index, id)| text.replace(id, &format!("n{}", index + 1)))
    }

    fn finish(mut self) -> String {
        for (seq, subscriber) in std::mem::take(&mut self.open) {
            self.text.push_str(&format!("@end      open         seq={seq} subscriber={subscriber}\n"));
        }
        self.text
    }
}

fn relative(at: Timestamp) -> u64 {
    at.as_millis().saturating_sub(BEGIN.as_millis())
}

fn reason_text(reason: &Reason) -> String {
    let word = reason.as_str();
    match reason {
        Reason::FilteredOut(by) => format!("{word} by={by:?}"),
        Reason::Duplicate { of } => format!("{word} of={of}"),
        Reason::RateLimited { retry_at } => format!("{word} retry_at={}", relative(*retry_at)),
        Reason::Summarised { by } => format!("{word} by={by}"),
        Reason::Silenced { by } => format!("{word} by={by}"),
        Reason::Muted { by } => format!("{word} by={by}"),
        Reason::Inhibited { by } => format!("{word} by={by}"),
        Reason::BelowThreshold
        | Reason::BatchOverflow
        | Reason::Expired
        | Reason::QueueOverflow
        | Reason::SessionGone
        | Reason::Uncertain
        | Reason::Unanswered
        | Reason::NotRepeated
        | Reason::SubscriberOff
        | Reason::Dismissed
        | Reason::Superseded
        | Reason::Stale
        | Reason::Withdrawn
        | Reason::Resolves
        | Reason::Inhibits
        | Reason::Watched
        | Reason::SummedUp
        | Reason::InRegion
        | Reason::Known => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use engine::{
        exchange::{Format, Injection, Role},
        notification::{SubscriberId, Tokens},
    };

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(BEGIN.as_millis() + ms)
    }

    fn answer(redelivered: bool) -> Output {
        let released = Released {
            id: NotificationId::new("9f3a"),
            subscriber: SubscriberId::new("tools"),
            priority: Priority::High,
            severity: Severity::Error,
            redelivered,
            tokens: Tokens(3),
            first_event: None,
        };
        let injection = Injection {
            id: InjectionId::new("k2q7"),
            format: Format::default(),
            text: "<n id=\"k2q7\">\n\nnone</n>".into(),
            sentence: "tools (high): none".into(),
            role: Role::Tool,
            notifications: vec![released],
            starts_turn: false,
        };
        let answer =
            Answer { injection: Some(injection), pending: 2, check_before_tool: true, ..Answer::default() };
        Output::Answer {
            request: engine::io::RequestId(4),
            session: SessionId::new("s1"),
            answer,
            released: None,
            is_unanswered: false,
        }
    }

    fn injected() -> Output {
        Output::Record(LedgerEntry::Injected {
            notification: NotificationId::new("9f3a"),
            session: SessionId::new("s1"),
            injection: InjectionId::new("k2q7"),
            point: InjectionPoint::AfterTool,
            redelivered: None,
        })
    }

    #[test]
    fn outputs_are_lines_with_names_instead_of_ids() {
        let subscriber = || SubscriberId::new("tools");
        let notification = || NotificationId::new("9f3a");
        let mut transcript = Transcript::default();
        transcript.points.insert(4, InjectionPoint::AfterTool);
        let waiting =
            Pending { count: 1, top: Some(Priority::High), ..Pending::nothing(SessionId::new("s1")) };
        for (ms, output) in [
            (1, Output::Record(LedgerEntry::Batched { seq: Seq(1), subscriber: subscriber() })),
            (2, Output::Record(LedgerEntry::Batched { seq: Seq(2), subscriber: subscriber() })),
            (
                3,
                Output::Record(LedgerEntry::EventEnded {
                    seq: Seq(3),
                    subscriber: subscriber(),
                    reason: Reason::RateLimited { retry_at: at(60) },
                }),
            ),
            (
                4,
                Output::Record(LedgerEntry::Created {
                    notification: notification(),
                    subscriber: subscriber(),
                    events: vec![Seq(1)],
                    created_at: at(4),
                }),
            ),
            (5, Output::Wake(waiting)),
            (6, injected()),
            (6, answer(true)),
        ] {
            transcript.write(at(ms), &output);
        }
        assert_eq!(transcript.injection(&SessionId::new("s1"), "last"), InjectionId::new("k2q7"));
        let expected = "\
@3        ended        seq=3 subscriber=tools reason=rate_limited retry_at=60
@4        notification n1 tools events=1
@5        wake         s1 pending=1 top=high
@6        inject       s1 after_tool i1 role=tool pending=2 check_before_tool notifications=n1(redelivered)
          | <n id=\"i1\">
          |
          | none</n>
@end      open         seq=2 subscriber=tools
";
        assert_eq!(transcript.finish(), expected);
    }

    #[test]
    fn unrecorded_answer_is_marked_in_the_transcript() {
        let mut transcript = Transcript::default();
        transcript.write(at(6), &answer(false));
        assert!(transcript.finish().starts_with("@6        UNRECORDED   9f3a"));
    }
}

//! Records to append: each with its kind, its encoded body, and its idempotency key.

use journal::{
    AppendBatch, BodyTooLarge, RecordKind,
    time::{Timestamp, zone::Zone},
};

use crate::{
    engine::io::RequestId,
    event::{Event, EventRef, Seq, SessionId},
    exchange::{Decision, Exchange, Harness, InjectionId, Process, ReleaseRecord},
    hold::SilenceId,
    ledger::ConfirmedBy,
    notification::{NotificationId, repeat::Response},
    pipeline::silence::Silence,
    records::{self, SkipDecision},
    user::UserSettings,
};

/// Records with consecutive positions and the same time.
///
/// Shape: only events and exchanges, which come from outside, can exceed the size of a record.
#[derive(Debug, Default)]
pub struct Records {
    batch: AppendBatch,
}

impl Records {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The records added by `add`, usually one.
    pub fn build(add: impl FnOnce(&mut Self)) -> Self {
        let mut records = Self::new();
        add(&mut records);
        records
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Makes room for bodies of `bytes` bytes together.
    pub fn reserve(&mut self, bytes: usize) {
        self.batch.reserve(bytes);
    }

    /// Adds an event, under its idempotency key.
    ///
    /// Errors: it is too large; nothing was added.
    pub fn event(&mut self, event: &EventRef<'_>) -> Result<(), BodyTooLarge> {
        let key = Some(event.idempotency_key());
        self.batch.push_with(RecordKind(records::EVENT), key, |body| records::encode_event(event, body))
    }

    /// Adds an event that reports a state. Its repetition is a duplicate until an event with the id
    /// `opposite` of the same source reports the end of the state.
    ///
    /// Errors: it is too large; nothing was added.
    pub fn change(&mut self, event: &EventRef<'_>, opposite: &str) -> Result<(), BodyTooLarge> {
        let ended = EventRef { id: opposite, ..*event }.idempotency_key();
        let kind = RecordKind(records::EVENT);
        self.batch
            .push_change(kind, event.idempotency_key(), ended, |body| records::encode_event(event, body))
    }

    /// Adds an event with a new id. It cannot be published again, so no key is kept for it.
    ///
    /// Errors: it is too large; nothing was added.
    pub fn event_with_new_id(&mut self, event: &EventRef<'_>) -> Result<(), BodyTooLarge> {
        let write = |body: &mut Vec<u8>| records::encode_event_with_new_id(event, body);
        self.batch.push_with(RecordKind(records::EVENT), None, write)
    }

    /// Adds an exchange, which is answered as `request`.
    ///
    /// Errors: it is too large; nothing was added.
    pub fn exchange(&mut self, request: RequestId, exchange: &Exchange) -> Result<(), BodyTooLarge> {
        let write = |body: &mut Vec<u8>| records::encode_exchange(request, exchange, body);
        self.batch.push_with(RecordKind(records::EXCHANGE), None, write)
    }

    /// Adds an event of the daemon.
    pub fn own_event(&mut self, event: &Event) {
        self.event(&event.as_ref()).expect("the daemon's own events are small");
    }

    /// Adds acks of injections that have arrived, with the evidence `by`.
    pub fn acks(&mut self, session: &SessionId, injections: &[InjectionId], by: ConfirmedBy) {
        for injection in injections {
            self.push(records::ACK, |body| records::encode_ack(session, injection, by, body));
        }
    }

    /// Adds a note that an injection did not arrive.
    pub fn undelivered(&mut self, session: &SessionId, injection: &InjectionId) {
        self.push(records::UNDELIVERED, |body| records::encode_undelivered(session, injection, body));
    }

    /// Adds the start or the change of a session.
    pub fn session_opened(&mut self, session: &SessionId, harness: &Harness) {
        self.push(records::SESSION_OPENED, |body| records::encode_session_opened(session, harness, body));
    }

    /// Adds the end of a session that can be resumed, as reported by its harness.
    pub fn session_suspended(&mut self, session: &SessionId) {
        self.push(records::SESSION_CLOSED, |body| records::encode_session_suspended(session, body));
    }

    /// Adds the end of a session that cannot be resumed, as reported by its harness.
    pub fn session_ended(&mut self, session: &SessionId) {
        self.push(records::SESSION_CLOSED, |body| records::encode_session_ended(session, body));
    }

    /// Adds the end of a session's process; the session can be resumed in another one.
    pub fn process_gone(&mut self, session: &SessionId, process: Process) {
        self.push(records::SESSION_CLOSED, |body| records::encode_process_gone(session, process, body));
    }

    /// Adds a note that an inactive session has a client attached.
    pub fn session_seen(&mut self, session: &SessionId) {
        self.push(records::SESSION_SEEN, |body| records::encode_session_seen(session, body));
    }

    /// Adds a note that a session was idle at `as_of`; `source` names the evidence.
    pub fn session_idle(&mut self, session: &SessionId, source: &str, as_of: Timestamp) {
        self.push(records::SESSION_STATE, |body| records::encode_session_idle(session, source, as_of, body));
    }

    /// Adds the user's decision about a notification; without a session, it applies to every queue
    /// with that notification.
    pub fn decided(
        &mut self,
        session: Option<&SessionId>,
        notification: &NotificationId,
        decision: Decision,
    ) {
        self.push(records::DECIDED, |body| records::encode_decided(session, notification, decision, body));
    }

    /// Adds a silence.
    pub fn silence(&mut self, silence: &Silence) {
        self.push(records::SILENCE, |body| records::encode_silence(silence, body));
    }

    /// Adds the end of silences.
    pub fn silence_end(&mut self, silences: &[SilenceId]) {
        self.push(records::SILENCE_END, |body| records::encode_silence_end(silences, body));
    }

    /// Adds an answer to a notification.
    pub fn response(&mut self, notification: &NotificationId, response: &Response) {
        self.push(records::RESPONSE, |body| records::encode_response(notification, response, body));
    }

    /// Adds the settings of a user.
    pub fn settings(&mut self, user: &str, settings: &UserSettings) {
        self.push(records::SETTINGS, |body| records::encode_settings(user, settings, body));
    }

    /// Adds the local clock of the machine.
    pub fn zone(&mut self, zone: &Zone) {
        self.push(records::ZONE, |body| records::encode_zone(zone, body));
    }

    /// Adds the content hash of the rules that are in force from here on.
    pub fn rules(&mut self, hash: &str) {
        self.push(records::RULES, |body| records::encode_rules(hash, body));
    }

    /// Adds the output that an exchange released.
    pub fn released(&mut self, release: &ReleaseRecord) {
        self.push(records::RELEASED, |body| records::encode_released(release, body));
    }

    /// Adds a note that the program of build `by` skips the record at `seq`.
    pub fn skipped(&mut self, seq: Seq, by: &str) {
        self.push(records::SKIPPED, |body| {
            records::encode_skipped(seq, by, SkipDecision::Skipped, body);
        });
    }

    /// Adds a note that the program of build `by` applies the record at `seq`, which was skipped.
    pub fn unskipped(&mut self, seq: Seq, by: &str) {
        self.push(records::SKIPPED, |body| {
            records::encode_skipped(seq, by, SkipDecision::TakenBack, body);
        });
    }

    /// Adds the shutdown of the daemon.
    pub fn shutting_down(&mut self) {
        self.push(records::SHUTTING_DOWN, records::encode_bare);
    }

    /// Adds a note that time has passed.
    pub fn tick(&mut self) {
        self.push(records::TICK, records::encode_bare);
    }

    /// The batch for the journal.
    pub fn into_batch(self) -> AppendBatch {
        self.batch
    }

    fn push(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        self.batch
            .push_with(RecordKind(kind), None, write)
            .expect("what the daemon writes of its own is small");
    }
}

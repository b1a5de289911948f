//! An exchange: confirms injections, closes due batches, and releases the notifications of its
//! point, as a text with an id. The reason of a wake is put into words from the same notifications.

use std::{cell::LazyCell, sync::Arc};

use journal::time::Timestamp;
use sha2::{Digest, Sha256};
use toon::tokens;

use super::{
    io::{Output, RequestId},
    parts::{Closes, Engine, pipeline},
};
use crate::{
    conversation::{
        Begun, Passed, SessionKey,
        injector::{self, Aside, Candidate, Decided, Limits, Replayed, Writer},
    },
    event::{Scope, Seq, SessionId},
    exchange::{
        Answer, ContextChange, Dialect, Exchange, Format, InjectionId, Release, ReleaseRecord, Replaces,
        Trigger,
    },
    format::{self, Carrier, Overflow},
    ledger::{LedgerEntry, Reason},
    notification::{
        Counts, Cut, Detail, InjectionPoint, LeftOut, Notification, Priority, SubscriberId, Tokens,
    },
    pipeline::Pipeline,
    rules::CompiledRules,
    session::WakeKind,
    sorted::SortedMap,
};

impl Engine {
    /// Answers an exchange, in this order: notes the report of its harness, confirms injections
    /// that have arrived according to it, closes the batches due at it, fits the notifications that
    /// its point releases into the budget, and answers. The same carrier again gets the same bytes.
    pub(super) fn exchange(
        &mut self,
        seq: Seq,
        request: RequestId,
        exchange: &Exchange,
        release: &Release,
        now: Timestamp,
    ) {
        if let Some(harness) = self.sessions.taken_by(&exchange.session, &exchange.harness) {
            self.outputs.push_back(Output::Refuse { request, harness });
            return;
        }
        let remarks = self.sessions.remarks(exchange);
        let (session, begun) = self.sessions.begin_exchange(exchange, release, now);
        self.end_echoes(exchange, now);
        self.drain_sessions();
        let mut is_unanswered = false;
        let (mut answer, released) = match begun {
            Begun::Replayed(Replayed { answer, shows_fixed_carrier }) => {
                self.tally.fixed_carriers += u64::from(shows_fixed_carrier);
                (answer, None)
            }
            Begun::Late(answer) => (answer, None),
            Begun::Open => {
                self.close_due(session, exchange, now);
                self.summarise(session, now);
                let aside = self.put_aside_summed_up(session, exchange);
                let decided = self.release(seq, session, exchange, release, now);
                is_unanswered = decided.is_none();
                let (answer, tokens) = decided.unwrap_or_else(|| (self.sessions.unanswered(session), None));
                self.sessions.take_back(session, aside);
                let passed = self.sessions.note_point(session, exchange, &answer, now);
                self.folds.note_exchange(exchange, &self.rules, now, &mut self.effects);
                self.drain_folds();
                self.note_passed(&exchange.session, passed, now);
                let released = record_of(seq, &answer, tokens);
                (answer, released)
            }
        };
        answer.remarks = remarks;
        self.sessions.finish_exchange(session);
        self.drain_sessions();
        let session = exchange.session.clone();
        self.outputs.push_back(Output::Answer { request, session, answer, released, is_unanswered });
    }

    /// Ends what is pending, or in an open batch, about failures whose results the model has.
    fn end_echoes(&mut self, exchange: &Exchange, now: Timestamp) {
        let calls = exchange.known_calls.iter().map(|call| &**call);
        if !self.folds.echoes.know(&exchange.session, calls) {
            return;
        }
        let scope = Scope::Session(exchange.session.clone());
        for index in self.pipeline_deadlines.keys() {
            let echoes = &self.folds.echoes;
            pipeline(&mut self.pipelines, index)
                .end_known(&scope, |seq| echoes.knows(&exchange.session, seq));
            self.drain_pipeline(index, now);
        }
        let echoes = &self.folds.echoes;
        // A critical one is delivered, as its event says that it must not be missed.
        let is_echo = |notification: &Notification| {
            notification.priority < Priority::Critical
                && echoes.knows_all(&exchange.session, &notification.events)
        };
        self.sessions.end_pending(&exchange.session, is_echo, &Reason::Known);
    }

    /// Counts the turn that ended at an exchange, and lets a new task begin for the detectors.
    fn note_passed(&mut self, session: &SessionId, passed: Passed, now: Timestamp) {
        if passed.ends_turn {
            self.folds.end_turn(session, now, &mut self.effects);
            self.drain_folds();
        }
        if passed.begins_task {
            self.folds.begin_task(session);
        }
    }

    /// Closes the open batches that this point would release, so that none waits for a timer: those
    /// of high priority at any point, all of them at the end of a turn and on a pull.
    fn close_due(&mut self, session: SessionKey, exchange: &Exchange, now: Timestamp) {
        let point = exchange.releases_as_at();
        let closes_all = exchange.point == InjectionPoint::TurnEnd || exchange.trigger == Trigger::Pull;
        let is_due = |pipeline: &Pipeline| {
            let output = &pipeline.rule().output;
            let is_urgent = closes_all || output.priority >= Priority::High;
            is_urgent && injector::releases(point, output.inject_at, output.priority)
        };
        self.close_batches(is_due, Closes::For(session), now);
    }

    /// Replaces what the budgets have had no room for, for a while, by one notification of each
    /// subscriber.
    fn summarise(&mut self, session: SessionKey, now: Timestamp) {
        // Its text names the sources that are not trusted.
        let line = |one: &Notification| {
            let one = Notification { untrusted_source: None, ..one.clone() };
            format::line_for_user(&one, LINE_CHARS_MAX)
        };
        let made = self.sessions.summarise(session, line, now);
        if made.is_empty() {
            return;
        }
        for one in made {
            self.outputs.push_back(Output::Made(Arc::clone(&one)));
            self.record(LedgerEntry::Created {
                notification: one.id,
                subscriber: one.subscriber.clone(),
                events: one.events.clone(),
                created_at: now,
            });
        }
        self.sessions.finish_exchange(session);
        self.drain_sessions();
    }

    /// Puts notifications about checks aside when a session is resumed: its first prompt may
    /// summarize them.
    fn put_aside_summed_up(&mut self, session: SessionKey, exchange: &Exchange) -> Aside {
        let (ci, id) = (&self.folds.ci, &exchange.session);
        if exchange.context != ContextChange::Resumed || !ci.has_said_anything(id) {
            return Aside::default();
        }
        // This looks at every pending notification.
        self.sessions.put_aside(session, |notification| ci.has_said(id, &notification.events))
    }

    /// Releases the notifications that are selected now, or those recorded with the exchange, and returns
    /// the size of the text too; `None` if something is selected and nothing recorded.
    fn release(
        &mut self,
        seq: Seq,
        session: SessionKey,
        exchange: &Exchange,
        release: &Release,
        now: Timestamp,
    ) -> Option<(Answer, Option<Tokens>)> {
        let injection = LazyCell::new(|| match release {
            Release::Recorded(Some(record)) => record.injection,
            Release::Decide | Release::Recorded(None) => injection_id(exchange, seq, now),
        });
        let limits = limits(&self.rules, exchange);
        let (offer, evicted) = self.sessions.offer(session, exchange, &limits, now);
        let recorded = match release {
            Release::Recorded(record) => record.as_ref().and_then(|record| record.format),
            Release::Decide => None,
        };
        let (asked, dialect, is_first) = self.sessions.carrier(session, exchange);
        let format = recorded.or(asked).unwrap_or(self.rules.injection.format);
        let writer = Text { format, dialect, is_first, injection: &injection, evicted: &evicted };
        let room = self.sessions.room(session, &offer, now);
        let decided = injector::fit(offer, &limits, &room, &writer);
        let decided = match release {
            Release::Recorded(Some(record)) if !record_says(record, &decided) => {
                self.sessions.repeat(session, record, exchange, &writer)
            }
            Release::Recorded(None) if decided.fitted.is_some() => return None,
            Release::Decide | Release::Recorded(_) => decided,
        };
        let tokens = decided.fitted.as_ref().map(|fitted| fitted.tokens);
        if let Some(fitted) = &decided.fitted {
            let chosen = fitted.chosen.iter();
            let notifications = chosen.map(|one| (one.notification.as_ref(), one.redelivered.is_some()));
            self.tally.count_injection(fitted.tokens, notifications);
        }
        let shown = exchange.shows_notices.then(|| {
            let folder = self.sessions.workspace(session);
            self.folds.for_user.show(&exchange.session, folder, &exchange.carrier, now)
        });
        let (for_user, entries) = shown.flatten().unzip();
        let answer =
            self.sessions.release(session, exchange, decided, || *injection, for_user.as_deref(), now);
        self.effects.record(entries.unwrap_or_default());
        self.drain_folds();
        Some((answer, tokens))
    }
}

/// The configured limits of an injection, or those of the exchange if they are lower.
pub(super) fn limits(rules: &CompiledRules, exchange: &Exchange) -> Limits {
    let settings = &rules.injection;
    let configured = Limits::new(settings.max_notifications, settings.max_tokens, settings.max_chars);
    configured.lowered_to(&exchange.budget)
}

/// The release record of an answer; `None` if nothing is released.
fn record_of(exchange: Seq, answer: &Answer, tokens: Option<Tokens>) -> Option<ReleaseRecord> {
    let injection = answer.injection.as_ref()?;
    let notifications = injection.notifications.iter().map(|released| released.id).collect();
    let (directive, format) = (answer.directive.clone(), Some(injection.format));
    Some(ReleaseRecord { exchange, injection: injection.id, notifications, directive, format, tokens })
}

/// Whether the record matches the current decision.
fn record_says(record: &ReleaseRecord, decided: &Decided) -> bool {
    let chosen = decided.fitted.iter().flat_map(|fitted| &fitted.chosen);
    record.notifications.iter().eq(chosen.map(|candidate| &candidate.notification.id))
        && record.directive == decided.directive
}

/// Most characters of the line about the newest in a summarised notification.
const LINE_CHARS_MAX: usize = 160;

/// Digits of an injection's id: 32^6 ids, unique within one transcript.
const INJECTION_ID_LEN: usize = 6;
/// Crockford's alphabet, which has no letter that looks like a digit.
const INJECTION_ID_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Parameters of the rendered text of an injection.
pub(super) struct Text<'a, F> {
    pub(super) format: Format,
    pub(super) dialect: Dialect,
    pub(super) is_first: bool,
    /// Made when it is first needed: most exchanges release nothing.
    pub(super) injection: &'a LazyCell<InjectionId, F>,
    pub(super) evicted: &'a SortedMap<SubscriberId, u32>,
}

impl<F: FnOnce() -> InjectionId> Writer for Text<'_, F> {
    fn write(&self, chosen: &[Candidate], left_out: LeftOut, detail: Detail, replaces: Replaces) -> String {
        let items: Vec<_> = chosen.iter().map(item).collect();
        let overflow = Overflow { left_out, evicted: Counts::new(self.evicted, detail) };
        let Self { format, dialect, is_first, injection, evicted: _ } = *self;
        format::write(&Carrier { format, dialect, injection, replaces, is_first }, &items, &overflow)
    }

    fn format(&self) -> Format {
        self.format
    }

    fn is_whole(&self, candidate: &Candidate) -> bool {
        format::is_whole(self.format, self.injection, &item(candidate))
    }

    fn sentence(&self, about: &[&Candidate]) -> String {
        format::sentence(&about.iter().map(|candidate| item(candidate)).collect::<Vec<_>>())
    }

    fn tokens(&self, text: &str) -> Tokens {
        tokens::estimate(text)
    }

    fn shorten(&self, notification: &Notification, chars_max: usize) -> Cut {
        format::shorten(&notification.id, &notification.content, chars_max)
    }
}

pub(super) fn item(candidate: &Candidate) -> format::Item<'_> {
    let Candidate { notification, redelivered, has_cancelled: _, cut, reminder } = candidate;
    format::Item { notification, redelivered: redelivered.is_some(), cut: cut.as_ref(), reminder: *reminder }
}

/// A short deterministic id for the injection of an exchange. Positions are reused after a loss, so
/// the id also depends on the time: an id in a transcript must not confirm a later injection.
fn injection_id(exchange: &Exchange, seq: Seq, now: Timestamp) -> InjectionId {
    let mut hash = Sha256::new();
    hash.update(exchange.session.as_str());
    hash.update([0]);
    hash.update(seq.0.to_le_bytes());
    hash.update(now.as_millis().to_le_bytes());
    let digits = hash.finalize();
    let name: String = digits
        .iter()
        .take(INJECTION_ID_LEN)
        .filter_map(|byte| INJECTION_ID_ALPHABET.get(usize::from(byte % 32)))
        .map(|digit| char::from(*digit))
        .collect();
    InjectionId::new(&name)
}

impl Engine {
    /// What an idle session is woken for, in one sentence; `None` if it requests no wake.
    ///
    /// Shape: about the notifications that the start of a turn would deliver, for an unlimited
    /// carrier.
    pub fn wake_sentence(&self, session: &SessionId) -> Option<String> {
        let view = self.sessions.view(session).filter(|view| view.is_open)?;
        let wake = view.injector.wake(view.state, self.rules.wake.threshold);
        wake.filter(|wake| wake.kind == WakeKind::StartTurn)?;
        let exchange = Exchange::new(session.clone(), InjectionPoint::TurnStart, "");
        let offer = view.injector.offer(&exchange, &limits(&self.rules, &exchange));
        let items: Vec<_> = offer.candidates.iter().map(item).collect();
        (!items.is_empty()).then(|| format::sentence(&items))
    }
}

//! Handles an exchange: confirms arrivals, closes due batches, offers, fits, renders, releases.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::{
    Engine,
    io::{Output, RequestId},
    rules::InjectionSettings,
};
use crate::{
    event::Seq,
    exchange::{Answer, ContextChange, Exchange, Format, InjectionId, Release, ReleaseRecord, Trigger},
    format::{self, Overflow},
    injector::{self, Candidate, Decided, Limits, Replayed, Terms},
    ledger::ConfirmedBy,
    notification::{Counts, Cut, Detail, InjectionPoint, Notification, Priority, SubscriberId, Tokens},
    time::Timestamp,
    tokens,
};

/// Digits of an injection's id: 32^6 names, unique within one transcript.
const INJECTION_ID_LEN: usize = 6;
/// Crockford's alphabet: no letter that looks like a digit.
const INJECTION_ID_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl Engine {
    /// Answers an exchange; the same carrier again gets the same bytes.
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
        let is_new = self.sessions.get(&exchange.session).is_none();
        self.meet_session(&exchange.session, &exchange.harness, now);
        let threshold = self.rules.wake.threshold;
        let Some(session) = self.sessions.get_mut(&exchange.session) else {
            return;
        };
        for injection in &exchange.acks {
            session.injector.ack(injection, ConfirmedBy::Ack);
        }
        let (answer, is_new_answer) = match session.injector.replay(exchange, now) {
            Some(Replayed { answer, shows_fixed_carrier }) => {
                self.tally.fixed_carriers += u64::from(shows_fixed_carrier);
                (answer, false)
            }
            None => {
                self.begin(exchange, is_new, now);
                let session = self.sessions.get_mut(&exchange.session).expect("it was met");
                if exchange.trigger == Trigger::Agent {
                    session.injector.confirm_by_exchange(exchange, now);
                }
                let wake = session.injector.wake(session.state, threshold);
                if wake.is_some() {
                    session.injector.woken();
                }
                let is_late = exchange.trigger == Trigger::Wake && wake.is_none();
                let has_released = matches!(release, Release::Recorded(Some(_)));
                if is_late && !has_released {
                    // Another exchange was faster: the queue is released with the turn that it
                    // started.
                    (session.injector.unanswered(), false)
                } else {
                    self.close_due(exchange, now);
                    let answer = self.release(seq, exchange, release, now);
                    self.note_point(exchange, &answer, now);
                    (answer, true)
                }
            }
        };
        self.settle_session(&exchange.session);
        let released = is_new_answer.then(|| record_of(seq, &answer)).flatten();
        let session = exchange.session.clone();
        self.outputs.push_back(Output::Answer { request, session, answer, released });
    }

    /// Closes the open batches that this point would release, so that none waits for a timer: those
    /// of high priority at any point, all of them at the end of a turn and on a pull.
    fn close_due(&mut self, exchange: &Exchange, now: Timestamp) {
        let Some(audience) = self.sessions.audience(&exchange.session) else {
            return;
        };
        let point = exchange.releases_as_at();
        let closes_all = exchange.point == InjectionPoint::TurnEnd || exchange.trigger == Trigger::Pull;
        self.close_batches(
            |pipeline| {
                let output = &pipeline.rule().output;
                let is_urgent = closes_all || output.priority >= Priority::High;
                is_urgent && injector::releases(point, output.inject_at, output.priority)
            },
            &|scope| audience.is_concerned_by(scope),
            now,
        );
    }

    /// Releases what is decided, or what was released when the exchange was recorded. Notifications
    /// about checks wait for the first prompt of a resumed session, which may summarize them.
    fn release(&mut self, seq: Seq, exchange: &Exchange, release: &Release, now: Timestamp) -> Answer {
        let (ci, id) = (&self.ci, &exchange.session);
        let waits = exchange.context == ContextChange::Resumed && ci.has_said_anything(id);
        let session = self.sessions.get_mut(id).expect("an exchange opens its session");
        let is_said = |notification: &Notification| waits && ci.has_said(id, &notification.events);
        let aside = session.injector.put_aside(is_said);
        let answer = self.release_what_is_due(seq, exchange, release, now);
        self.sessions.get_mut(id).expect("it is open").injector.take_back(aside);
        answer
    }

    fn release_what_is_due(
        &mut self,
        seq: Seq,
        exchange: &Exchange,
        release: &Release,
        now: Timestamp,
    ) -> Answer {
        let settings = &self.rules.injection;
        let limits = limits(settings).lowered_to(&exchange.budget);
        let (lease, has_delivery_notice) = (settings.lease, settings.delivery_notice);
        let injection = match release {
            Release::Recorded(Some(record)) => record.injection.clone(),
            Release::Decide | Release::Recorded(None) => injection_id(exchange, seq, now),
        };
        let session = self.sessions.get_mut(&exchange.session).expect("an exchange opens its session");
        session.injector.note_exchange(exchange, now);
        let offer = session.injector.offer(exchange, &limits);
        let evicted = session.injector.evicted().clone();
        let writer = Text {
            format: exchange.format.unwrap_or(settings.format),
            injection: &injection,
            evicted: &evicted,
        };
        let decided = injector::fit(offer, &limits, &writer);
        let decided = match release {
            Release::Recorded(Some(record)) if !record_says(record, &decided) => {
                session.injector.repeat(record, &writer)
            }
            Release::Recorded(None) if decided.fitted.is_some() => return session.injector.unanswered(),
            Release::Decide | Release::Recorded(_) => decided,
        };
        if let Some(fitted) = &decided.fitted {
            self.tally.count_injection(fitted);
        }
        let shows = || {
            let folder = session.harness.workspace.as_deref();
            self.for_user.show(&exchange.session, folder, &exchange.carrier, now)
        };
        let (for_user, entries) = exchange.shows_notices.then(shows).flatten().unzip();
        let terms = Terms { lease, has_delivery_notice, for_user: for_user.as_deref() };
        let answer = session.injector.release(exchange, decided, &injection, terms, now);
        self.record_all(entries.unwrap_or_default());
        answer
    }
}

/// The release record of an answer; `None` when nothing is released.
fn record_of(exchange: Seq, answer: &Answer) -> Option<ReleaseRecord> {
    let injection = answer.injection.as_ref()?;
    let notifications = injection.notifications.iter().map(|released| released.id.clone()).collect();
    let directive = answer.directive.clone();
    Some(ReleaseRecord { exchange, injection: injection.id.clone(), notifications, directive })
}

/// Whether the record matches the decision made now.
fn record_says(record: &ReleaseRecord, decided: &Decided) -> bool {
    let chosen = decided.fitted.iter().flat_map(|fitted| &fitted.chosen);
    record.notifications.iter().eq(chosen.map(|candidate| &candidate.notification.id))
        && record.directive == decided.directive
}

/// How the text of an injection is rendered.
struct Text<'a> {
    format: Format,
    injection: &'a InjectionId,
    evicted: &'a BTreeMap<SubscriberId, u32>,
}

impl injector::Writer for Text<'_> {
    fn write(&self, chosen: &[Candidate], left_out: &Counts, detail: Detail) -> String {
        let items: Vec<_> = chosen.iter().map(item).collect();
        let overflow = Overflow { pending: left_out.clone(), evicted: Counts::new(self.evicted, detail) };
        format::write(self.format, self.injection, &items, &overflow)
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

fn item(candidate: &Candidate) -> format::Item<'_> {
    let Candidate { notification, redelivered, has_cancelled: _, cut } = candidate;
    format::Item { notification, redelivered: redelivered.is_some(), cut: cut.as_ref() }
}

fn limits(settings: &InjectionSettings) -> Limits {
    Limits::new(settings.max_notifications, settings.max_tokens, settings.max_chars)
}

/// A short deterministic name for an exchange. Positions are reused after a loss, so the time
/// counts too: a name in a transcript must not confirm a later injection.
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

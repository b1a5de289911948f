//! *Then*: the engine with the rules of each time and the recorded releases.

use std::{
    mem,
    ops::ControlFlow,
    sync::{Arc, mpsc::SyncSender},
    time::Duration,
};

use engine::{
    Input, Output,
    event::Seq,
    exchange::Release,
    records::{self, RecordInput},
};
use journal::{Record, time::Timestamp};

use super::{
    extent::{LostRules, RerunError},
    span::{Part, Player, Progress, Span},
};
use crate::{
    comparison::{
        Delivered, Fact,
        observer::{self, Observer},
    },
    daemon::{
        causes::with_causes,
        fold::{Fold, LookAhead},
    },
    history::{
        FILE_NAME,
        past::{self, PastDelivery, PastNotification},
    },
};

/// The engine of then.
pub(super) struct Then {
    fold: Fold,
    observer: Observer,
    ended: Ended,
    /// The hash of the rules in force, also if they are gone.
    hash: Arc<str>,
    is_lost: bool,
    /// Finds the releases of exchanges while the rules are gone.
    ahead: LookAhead,
    /// Whether the exchange that is applied released something, while the rules are gone.
    was_released: bool,
    since: Timestamp,
    unanswered: Vec<Seq>,
    progress: Option<SyncSender<Progress>>,
}

/// What it has read at its end.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) begins_at: Timestamp,
    pub(super) last: Seq,
    pub(super) last_at: Timestamp,
    pub(super) lost: Vec<LostRules>,
}

impl Ended {
    /// Whether the rules of a time are gone.
    fn is_lost(&self, at: Timestamp) -> bool {
        let is_within = |lost: &LostRules| lost.from <= at && lost.until.is_none_or(|until| at < until);
        self.lost.last().is_some_and(is_within)
    }
}

impl Then {
    pub(super) fn new(mut fold: Fold, span: &Span<'_>) -> Self {
        let reader = span.reader(fold.applied);
        let (observer, hash) = (Observer::new(reader.position()), Arc::clone(&fold.engine.rules().hash));
        fold.look_ahead(reader, span.journal.last(), span.skipped.clone());
        let ended = Ended { last: fold.applied, last_at: fold.applied_at, ..Ended::default() };
        Self {
            ahead: span.look_ahead(fold.applied),
            fold,
            observer,
            ended,
            hash,
            is_lost: false,
            was_released: false,
            since: span.since,
            unanswered: Vec::new(),
            progress: None,
        }
    }

    pub(super) fn run(
        mut self,
        span: &Span<'_>,
        parts: &SyncSender<Part>,
        progress: SyncSender<Progress>,
    ) -> Result<Ended, RerunError> {
        let applied = self.fold.applied;
        self.progress = Some(progress);
        let mut part = Part::default();
        // A snapshot can leave outputs about rules that are gone.
        self.drain(applied, self.fold.applied_at, &mut part);
        let ended = span.play(applied, parts, &mut self)?;
        for lost in &mut self.ended.lost {
            let until = lost.until.unwrap_or(self.ended.last_at + Duration::from_millis(1));
            match past::read(&span.state.join(FILE_NAME), lost.from, until) {
                Ok((made, delivered)) => take_past(&self.observer, made, delivered, &mut part),
                Err(error) => lost.no_ledger = Some(with_causes(&error)),
            }
        }
        if let (ControlFlow::Continue(()), Some(until)) = (ended, span.until)
            && until > self.ended.last_at
        {
            self.fold.engine.handle(Input::Tick, until);
            self.drain(self.ended.last, until, &mut part);
        }
        // The comparison ends first only if the other engine failed.
        parts.send(part).ok();
        Ok(self.ended)
    }

    fn drain(&mut self, seq: Seq, at: Timestamp, part: &mut Part) {
        while let Some(output) = self.fold.engine.poll_output() {
            if matches!(output, Output::Answer { is_unanswered: true, .. }) {
                self.unanswered.push(seq);
            }
            self.observer.facts(seq, at, &output, |fact| match fact {
                // While the rules are gone, the nearest ones make and deliver other notifications.
                Fact::Made(ref made) if self.ended.is_lost(made.at) => {}
                Fact::Delivered(_) if self.is_lost => {}
                Fact::Answered { exchange, at, .. } if self.is_lost => {
                    part.facts.push(Fact::Answered { exchange, at, has_text: self.was_released });
                }
                Fact::Made(_) | Fact::Delivered(_) | Fact::Answered { .. } => part.facts.push(fact),
            });
        }
    }

    /// Finds out whether the rules of a record can be loaded, and hands them to the fold.
    fn note_rules(&mut self, record: &Record<'_>) {
        let decoded = records::decode(record.kind.0, record.seq, record.body);
        let Ok(RecordInput::Rules { hash }) = decoded else { return };
        if hash == self.hash && (self.is_lost || hash == self.fold.engine.rules().hash) {
            return;
        }
        self.hash = Arc::clone(&hash);
        if let Some(lost) = self.ended.lost.last_mut().filter(|_| self.is_lost) {
            lost.until = Some(record.time);
        }
        let loaded = self.fold.rules.load(&hash);
        self.is_lost = loaded.is_err();
        match loaded {
            Ok(generation) => self.fold.rules.hand_over(generation),
            Err(_) => {
                let lost = LostRules { hash, from: record.time, until: None, no_ledger: None };
                self.ended.lost.push(lost);
            }
        }
    }
}

/// The facts of the ledger about a time of which the rules are gone.
fn take_past(
    observer: &Observer,
    made: Vec<PastNotification>,
    delivered: Vec<PastDelivery>,
    part: &mut Part,
) {
    let made = made
        .iter()
        .map(|one| Fact::Made(observer::made(one.id, &one.subscriber, one.created_at, &one.content)));
    let delivered = delivered.into_iter().map(|one| {
        let delay = one.first_event.and_then(|event| observer.delay(event, one.at));
        let PastDelivery { id, subscriber, at, tokens, .. } = one;
        Fact::Delivered(Delivered { id, subscriber, at, tokens, delay })
    });
    part.facts.extend(made.chain(delivered));
}

impl Player for Then {
    fn begin_batch(&mut self, _: Seq) {}

    fn end_batch(&mut self, last: Seq) {
        let unanswered = mem::take(&mut self.unanswered);
        if let Some(progress) = &self.progress {
            // Without the other engine nothing is compared.
            progress.send(Progress { upto: last, unanswered }).ok();
        }
    }

    fn apply(&mut self, record: &Record<'_>, part: &mut Part) -> Result<(), RerunError> {
        Span::count(self.since, record, part);
        if self.ended.begins_at == Timestamp::ZERO {
            self.ended.begins_at = record.time;
        }
        self.observer.begin(record.time);
        if record.kind.0 == records::RULES {
            self.note_rules(record);
        }
        if self.is_lost && record.kind.0 == records::EXCHANGE {
            let release = self.ahead.release_of(record.seq);
            self.was_released = matches!(release, Release::Recorded(Some(_)));
        }
        self.fold.apply(record)?;
        self.drain(record.seq, record.time, part);
        (self.ended.last, self.ended.last_at) = (record.seq, record.time);
        Ok(())
    }
}

//! *Now*: the engine with the rules that are tried, which decides at every exchange again.
//!
//! The inputs are those of the journal. What then delivered nothing at an exchange was not confirmed
//! either, so what is delivered there now counts as arrived; otherwise the recorded confirmations hold,
//! since the id of an injection depends on its exchange alone.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
};

use engine::{
    Engine, Input, Output, SUBSCRIBER_FAILED,
    event::{Event, Seq, SessionId},
    exchange::{InjectionId, Release},
    ledger::ConfirmedBy,
    notification::SubscriberId,
    pipeline::Failure,
    records::{self, RecordInput},
    rules::CompiledRules,
    sorted::SortedSet,
};
use journal::{Record, time::Timestamp};

use super::{
    extent::{RerunError, Stopped},
    span::{Part, Player, Progress, Span},
};
use crate::{
    comparison::observer::Observer,
    config::{
        compile::compile,
        layers::{Sources, Workspace},
    },
    daemon::{
        fold::{Fold, FoldError, LookAhead},
        rules::RulesStore,
    },
};

/// The engine of now.
pub(super) struct Now {
    engine: Engine,
    applied: Seq,
    applied_at: Timestamp,
    observer: Observer,
    ahead: LookAhead,
    rules: Rules,
    ended: Ended,
    progress: Option<Receiver<Progress>>,
    /// Up to which record it is known what then did not answer.
    known: Seq,
    unanswered: SortedSet<Seq>,
}

/// What it found.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) stopped: Vec<Stopped>,
}

/// The rules that are tried, in place of those of each time.
pub(super) struct Rules {
    store: RulesStore,
    sources: Sources,
    /// The compiled sources with these workspaces.
    compiled: Option<(Vec<Workspace>, Arc<CompiledRules>)>,
    /// The subscribers that are tried; empty for all rules.
    wanted: Vec<String>,
}

impl Rules {
    /// The `sources` in place of the rules of each time, or the subscribers that are `wanted`, if any.
    pub(super) fn new(sources: Sources, wanted: Vec<String>, store: RulesStore) -> Self {
        Self { store, sources, compiled: None, wanted }
    }

    /// The rules in place of those with this hash. The workspaces are those of their time.
    fn in_place_of(&mut self, hash: &str) -> Arc<CompiledRules> {
        let known = self.compiled.as_ref().map(|(workspaces, _)| workspaces.clone()).unwrap_or_default();
        let workspaces = self.store.sources(hash).map_or(known, |sources| sources.workspaces().to_vec());
        let tried = self.compiled(workspaces);
        if self.wanted.is_empty() {
            return tried;
        }
        match self.store.load(hash) {
            Ok(then) => {
                let is_tried = |id: &SubscriberId| self.wanted.iter().any(|wanted| wanted == id.in_file());
                Arc::new(then.rules.with_subscribers_of(&tried, is_tried))
            }
            // Those of then are not known.
            Err(_) => tried,
        }
    }

    fn compiled(&mut self, workspaces: Vec<Workspace>) -> Arc<CompiledRules> {
        match &self.compiled {
            Some((known, compiled)) if *known == workspaces => Arc::clone(compiled),
            Some(_) | None => {
                let sources = self.sources.clone().with_workspaces(workspaces.clone());
                let compiled = Arc::new(compile(&sources, &[]).rules);
                self.compiled = Some((workspaces, Arc::clone(&compiled)));
                compiled
            }
        }
    }
}

impl Now {
    pub(super) fn new(fold: Fold, rules: Rules, span: &Span<'_>) -> Self {
        let (applied, applied_at) = (fold.applied, fold.applied_at);
        let observer = Observer::new(span.reader(applied).position());
        let ahead = span.look_ahead(applied);
        Self {
            engine: fold.engine,
            applied,
            applied_at,
            observer,
            ahead,
            rules,
            ended: Ended::default(),
            progress: None,
            known: applied,
            unanswered: SortedSet::new(),
        }
    }

    pub(super) fn run(
        mut self,
        span: &Span<'_>,
        parts: &SyncSender<Part>,
        progress: Receiver<Progress>,
    ) -> Result<Ended, RerunError> {
        self.progress = Some(progress);
        let (applied, at) = (self.applied, self.applied_at);
        let mut part = Part::default();
        let hash = Arc::clone(&self.engine.rules().hash);
        self.drain(applied, at, &mut part);
        if !hash.is_empty() {
            self.replace_rules(&hash, applied, at, &mut part);
        }
        if parts.send(part).is_err() {
            return Ok(self.ended);
        }
        let ended = span.play(applied, parts, &mut self)?;
        if let (ControlFlow::Continue(()), Some(until)) = (ended, span.until) {
            let mut part = Part::default();
            if until > self.applied_at {
                self.handle(Input::Tick, self.applied, until, &mut part);
            }
            // The comparison ends first only if the other engine failed.
            parts.send(part).ok();
        }
        Ok(self.ended)
    }

    /// Gives the engine an input; returns the injection that it delivered.
    fn handle(&mut self, input: Input<'_>, seq: Seq, at: Timestamp, part: &mut Part) -> Option<InjectionId> {
        self.engine.handle(input, at);
        self.drain(seq, at, part)
    }

    fn confirm(&mut self, session: SessionId, injection: InjectionId, part: &mut Part) {
        let input = Input::Ack { session, injection, by: ConfirmedBy::Ack };
        self.handle(input, self.applied, self.applied_at, part);
    }

    fn replace_rules(&mut self, hash: &str, seq: Seq, at: Timestamp, part: &mut Part) {
        let mut rules = self.rules.in_place_of(hash);
        for stopped in &self.ended.stopped {
            rules = Arc::new(rules.without(&stopped.subscriber));
        }
        let input =
            if rules.hash == self.engine.rules().hash { Input::Tick } else { Input::RulesReplaced(rules) };
        self.handle(input, seq, at, part);
    }

    fn drain(&mut self, seq: Seq, at: Timestamp, part: &mut Part) -> Option<InjectionId> {
        let mut delivered = None;
        let mut endless = Vec::new();
        while let Some(output) = self.engine.poll_output() {
            self.observer.facts(seq, at, &output, |fact| part.facts.push(fact));
            match output {
                Output::Answer { released: Some(released), .. } => delivered = Some(released.injection),
                Output::Publish(event) => endless.extend(endless_part(&event, seq)),
                Output::Answer { released: None, .. }
                | Output::Record(_)
                | Output::Made(_)
                | Output::Said(_)
                | Output::Session(..)
                | Output::Refuse { .. }
                | Output::Wake(_) => {}
            }
        }
        for stopped in endless {
            let rules = self.engine.rules().without(&stopped.subscriber);
            self.ended.stopped.push(stopped);
            self.handle(Input::RulesReplaced(Arc::new(rules)), seq, at, part);
        }
        delivered
    }
}

impl Player for Now {
    fn begin_batch(&mut self, last: Seq) {
        while self.known < last {
            let heard = self.progress.as_ref().and_then(|progress| progress.recv().ok());
            // Without the other engine nothing is compared.
            let Some(Progress { upto, unanswered }) = heard else { return };
            self.known = upto;
            self.unanswered.extend(unanswered);
        }
    }

    fn end_batch(&mut self, _: Seq) {}

    fn apply(&mut self, record: &Record<'_>, part: &mut Part) -> Result<(), RerunError> {
        let Record { seq, time, kind, body } = *record;
        self.observer.begin(time);
        (self.applied, self.applied_at) = (seq, time);
        if self.ahead.is_skipped(seq) {
            let event = (kind.0 == records::EVENT).then_some(seq);
            self.handle(Input::Skipped { event }, seq, time, part);
            return Ok(());
        }
        let decoded = records::decode(kind.0, seq, body);
        match decoded.map_err(|source| FoldError { seq, source })? {
            RecordInput::Input(Input::Exchange { seq, request, exchange, release: _ }) => {
                let recorded = self.ahead.release_of(seq);
                // Its process ended before it answered, whatever it would have answered.
                let is_unanswered = self.unanswered.remove(&seq);
                let release = if is_unanswered { Release::Recorded(None) } else { Release::Decide };
                let session = exchange.session.clone();
                let input = Input::Exchange { seq, request, exchange, release };
                let delivered = self.handle(input, seq, time, part);
                if let (Some(injection), Release::Recorded(None) | Release::Decide) = (delivered, recorded) {
                    self.confirm(session, injection, part);
                }
            }
            RecordInput::Input(input) => {
                self.handle(input, seq, time, part);
            }
            RecordInput::Released(_) | RecordInput::Skipped(_) => {
                self.handle(Input::Tick, seq, time, part);
            }
            RecordInput::Rules { hash } => self.replace_rules(&hash, seq, time, part),
        }
        Ok(())
    }
}

/// The subscriber that an event of the engine reports to run for too long.
fn endless_part(event: &Event, at: Seq) -> Option<Stopped> {
    if event.event_type.as_str() != SUBSCRIBER_FAILED {
        return None;
    }
    let payload = event.payload.value();
    let text = |field: &str| payload.get(field).and_then(serde_json::Value::as_str);
    let (subscriber, why) = (text("subscriber")?, text("message")?);
    let stopped = || Stopped { subscriber: SubscriberId::new(subscriber), at, why: why.to_owned() };
    Failure::is_endless(why).then(stopped)
}

//! Drives an engine as the daemon's event loop does: time is a number, and events that the engine
//! publishes return to it.

use std::sync::Arc;

use aside::config::{
    compile::compile,
    layers::{LayerKind, SourceFile, Sources},
};
use engine::{
    Engine,
    conversation::Named,
    event::{Event, Seq, SessionId},
    exchange::{Exchange, Release},
    io::{Input, Output, RequestId},
    rules::CompiledRules,
};
use journal::time::Timestamp;

use crate::support::restored::restored;

/// How often an engine is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restarts {
    Never,
    BeforeEveryInput,
}

/// An engine with its journal's next position.
pub(crate) struct Drive {
    engine: Engine,
    seq: Seq,
    outputs: Vec<(Timestamp, Output)>,
    is_restarted: bool,
}

impl Drive {
    /// Starts an engine with the shipped rules and `files`, name and text, as the user's layer.
    pub(crate) fn new(files: &[(String, String)]) -> Self {
        let engine = Engine::new(rules(files));
        Self { engine, seq: Seq::ZERO, outputs: Vec::new(), is_restarted: false }
    }

    /// Starts an engine with these rules; `restarts`: with a snapshot and a restart before every
    /// input.
    pub(crate) fn with(rules: Arc<CompiledRules>, restarts: Restarts) -> Self {
        let is_restarted = restarts == Restarts::BeforeEveryInput;
        Self { engine: Engine::new(rules), seq: Seq::ZERO, outputs: Vec::new(), is_restarted }
    }

    /// Like [`Self::new`], with a snapshot and a restart before every input.
    pub(crate) fn restarted(files: &[(String, String)]) -> Self {
        Self { is_restarted: true, ..Self::new(files) }
    }

    /// Wakes the engine at each of its deadlines up to and including `now`.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some((due, reason)) = self.engine.poll_timeout().filter(|(due, _)| *due <= now) {
            self.handle(Input::Tick, due);
            let again = self.engine.poll_timeout();
            assert!(
                again != Some((due, reason)),
                "woken at {due} for {reason:?}, the engine asks for the same again"
            );
        }
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> &Arc<CompiledRules> {
        self.engine.rules()
    }

    /// Whether a turn of a session is running.
    pub(crate) fn is_in_turn(&self, session: &SessionId) -> bool {
        self.engine.sessions().views().any(|own| own.id == session && own.state.is_in_turn())
    }

    /// The position of the next journaled input.
    pub(crate) fn next_seq(&self) -> Seq {
        self.seq.next()
    }

    pub(crate) fn emit(&mut self, event: &Event, now: Timestamp) {
        self.seq = self.seq.next();
        self.handle(Input::Event { seq: self.seq, event: event.as_ref() }, now);
    }

    /// The session with the id `id` of `harness`, as the server finds it.
    pub(crate) fn named(&self, id: &SessionId, harness: Option<&str>) -> SessionId {
        match self.engine.sessions().named(id, harness) {
            Named::One(session) => session,
            Named::Several(sessions) => panic!("{id} is one of {sessions:?}"),
        }
    }

    /// Makes an exchange as a harness does; the request's number is its position.
    pub(crate) fn exchange(&mut self, exchange: Exchange, now: Timestamp) -> RequestId {
        self.seq = self.seq.next();
        let request = RequestId(self.seq.0);
        let (exchange, release) = (exchange.into(), Release::Decide);
        self.handle(Input::Exchange { seq: self.seq, request, exchange, release }, now);
        request
    }

    /// Passes an input that has no position of its own.
    pub(crate) fn input(&mut self, input: Input<'_>, now: Timestamp) {
        if !matches!(input, Input::Tick) {
            self.seq = self.seq.next();
        }
        self.handle(input, now);
    }

    /// The outputs of the engine, in its order.
    pub(crate) fn take_outputs(&mut self) -> Vec<(Timestamp, Output)> {
        std::mem::take(&mut self.outputs)
    }

    fn handle(&mut self, input: Input<'_>, now: Timestamp) {
        if self.is_restarted {
            self.engine = restored(&self.engine);
        }
        self.engine.handle(input, now);
        let mut published = Vec::new();
        while let Some(output) = self.engine.poll_output() {
            if let Output::Publish(event) = &output {
                published.push(event.clone());
            }
            self.outputs.push((now, output));
        }
        for event in published {
            self.emit(&event, now);
        }
    }
}

/// The shipped rules with `files`, name and text, as the user's layer on top.
///
/// # Panics
/// If they do not compile, with the report.
pub(crate) fn rules(files: &[(String, String)]) -> Arc<CompiledRules> {
    let file = |(name, text): &(String, String)| SourceFile {
        layer: LayerKind::User,
        name: name.as_str().into(),
        path: name.as_str().into(),
        text: text.as_str().into(),
    };
    let sources = Sources::shipped().with(files.iter().map(file), []);
    let compiled = compile(&sources, &[]);
    assert!(compiled.report.error_count() == 0, "rules do not compile:\n{}", compiled.report);
    Arc::new(compiled.rules)
}

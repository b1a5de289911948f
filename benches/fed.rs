//! An engine with events and exchanges that are a millisecond apart.

use std::time::{Duration, Instant};

use engine::{
    Engine,
    event::{EventRef, Provenance, Seq, SessionId, Severity},
    exchange::{Budget, Exchange, Release},
    io::{Input, RequestId},
    notification::InjectionPoint,
};
use journal::time::Timestamp;

use crate::rules;

/// The engine, and its position and time.
pub(crate) struct Fed {
    pub(crate) engine: Engine,
    seq: Seq,
    now: Timestamp,
}

impl Fed {
    /// An engine with one subscriber that makes a notification of every event immediately; `output`
    /// has further lines of its `[output]`.
    pub(crate) fn new(settings: &str, output: &str) -> Self {
        let subscriber = format!(
            "[subscriber]\nid = \"s\"\n[events]\ntypes = [\"bench.hot.*\"]\nseverity_filter = \"info\"\n[batching]\nwindow_ms = 0\n\
             [output]\n{output}template = \"templates/s.toon.j2\"\n"
        );
        let files = [
            ("aside.toml", settings),
            ("subscribers/s.toml", subscriber.as_str()),
            ("templates/s.toon.j2", "order: {{ events[0].payload.order }}"),
        ];
        Self::of(rules::engine(files.map(|(name, text)| (name.to_owned(), text.to_owned()))))
    }

    /// An engine that has had no input.
    pub(crate) fn of(engine: Engine) -> Self {
        Self { engine, seq: Seq::ZERO, now: Timestamp::from_millis(1_700_000_000_000) }
    }

    /// Feeds an event for a session, a folder, or all.
    pub(crate) fn event(&mut self, session: Option<&str>, workspace: Option<&str>) {
        let payload = format!(r#"{{"order":{}}}"#, self.seq.next());
        self.publish("bench.hot.order", &payload, session, workspace);
    }

    /// Feeds an event of this type; returns the time that it took.
    pub(crate) fn publish(
        &mut self,
        event_type: &str,
        payload: &str,
        session: Option<&str>,
        workspace: Option<&str>,
    ) -> Duration {
        self.step();
        let (seq, name) = (self.seq, self.seq.to_string());
        let event = EventRef {
            id: &name,
            event_type,
            source: "bench",
            provenance: Provenance::Local,
            severity: Severity::Info,
            timestamp: self.now,
            payload,
            dedupe_key: None,
            session,
            workspace,
            cause: None,
            deliver_after: None,
        };
        let begin = now();
        self.handle(Input::Event { seq, event });
        begin.elapsed()
    }

    /// Feeds the exchange that `ask` makes for a carrier; returns its duration.
    pub(crate) fn exchange(&mut self, ask: impl FnOnce(&str) -> Exchange) -> Duration {
        self.step();
        let (seq, exchange) = (self.seq, ask(&self.seq.to_string()).into());
        let input = Input::Exchange { seq, request: RequestId(seq.0), exchange, release: Release::Decide };
        let begin = now();
        self.handle(input);
        begin.elapsed()
    }

    /// Feeds an exchange of `session` that takes one notification; returns its duration.
    pub(crate) fn take_one(&mut self, session: &str) -> Duration {
        self.exchange(|carrier| Exchange {
            budget: Budget { max_notifications: Some(1), ..Budget::default() },
            ..Exchange::new(SessionId::new(session), InjectionPoint::TurnStart, carrier)
        })
    }

    /// Feeds an input at the time of the previous one.
    pub(crate) fn handle(&mut self, input: Input<'_>) {
        self.engine.handle(input, self.now);
        while self.engine.poll_output().is_some() {}
    }

    fn step(&mut self) {
        self.seq = self.seq.next();
        self.now = Timestamp::from_millis(self.now.as_millis() + 1);
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

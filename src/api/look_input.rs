//! The input of one look, except for the state of the machine.

use std::{path::Path, sync::Arc, time::Duration};

use engine::{
    call::Call,
    event::{Event, SessionId},
    notification::InjectionPoint,
    probe::{
        self, Facts, Moment, OtherSession, Settings, View,
        late::{self, Answers, Caught, Later},
    },
    transcript::{Gauge, Reader, Transcript},
};
use journal::time::Timestamp;

use crate::api::facts::Within;

/// Calls, and a prompt, that are not covered by a look yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Missed {
    /// Earliest time at which the calls may have run.
    pub(super) since: Option<Timestamp>,
    /// Last activity of the session before the prompt.
    pub(super) prompt_after: Option<Timestamp>,
    /// Oldest first.
    pub(super) calls: Vec<Call>,
}

/// The input of a look, except for the state of the machine.
#[derive(Debug)]
pub(super) struct LookInput {
    pub(super) session: SessionId,
    pub(super) point: InjectionPoint,
    pub(super) now: Timestamp,
    pub(super) workspace: Option<Arc<str>>,
    pub(super) view: View,
    pub(super) settings: Arc<Settings>,
    pub(super) calls_since: Timestamp,
    pub(super) unseen: Missed,
    pub(super) transcript: Option<(String, &'static Reader)>,
    pub(super) gauge: Option<Gauge>,
    pub(super) has_new_context: bool,
    pub(super) utc_offset: i32,
    pub(super) temporary: String,
    pub(super) caches: Option<String>,
    /// The only folder that it may ask about; `None` for all of the machine.
    pub(super) limited_to: Option<Arc<str>>,
}

/// A look that has finished after its exchange, for the next one.
#[derive(Debug)]
pub(super) struct LateLook {
    pub(super) input: Arc<LookInput>,
    pub(super) answers: Answers,
    pub(super) took: Duration,
}

impl LookInput {
    /// The events that the probes find.
    pub(super) fn run(&self, facts: &dyn Facts) -> Vec<Event> {
        let others = self.view.other_sessions();
        let look =
            |facts: &dyn Facts| probe::look(&self.view.known, &self.moment(&others), &self.settings, facts);
        match &self.limited_to {
            Some(folder) => look(&Within::new(facts, Path::new(&**folder))),
            None => look(facts),
        }
    }

    fn moment<'a>(&'a self, others: &'a [OtherSession<'a>]) -> Moment<'a> {
        let transcript = self.transcript.as_ref();
        Moment {
            workspace: self.workspace.as_deref(),
            calls: &self.unseen.calls,
            calls_since: self.calls_since,
            prompt_after: self.unseen.prompt_after,
            transcript: transcript.map(|(path, reader)| Transcript { path, reader }),
            gauge: self.gauge,
            has_new_context: self.has_new_context,
            limits: &self.view.limits,
            temporary: &self.temporary,
            caches: self.caches.as_deref(),
            others,
            utc_offset: self.utc_offset,
            ..Moment::new(&self.session, self.point, self.now)
        }
    }

    /// The events of an earlier look of the session that has finished since. This look then begins
    /// with what they note.
    pub(super) fn catch_up(&mut self, late: &LateLook) -> Vec<Event> {
        let LateLook { input, answers, took: _ } = late;
        let others = input.view.other_sessions();
        let later = Later { calls: &self.unseen.calls, since: self.calls_since };
        let known = &self.view.known;
        let Caught { events, left } =
            late::catch_up(known, &input.moment(&others), &later, &input.settings, answers);
        self.view.known = Arc::new(known.noting(&events));
        self.unseen.calls.splice(0..0, left);
        events
    }
}

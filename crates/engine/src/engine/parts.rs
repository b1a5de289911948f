//! The parts of the engine, the steps that produce its outputs, and the table of folds: in which order
//! they take events, and with which settings.

use std::{collections::VecDeque, sync::Arc};

use journal::time::{Timestamp, deadlines::Deadlines, zone::Zone};
use serde::{Deserialize, Serialize};

use super::{echoes::Echoes, io::Output};
use crate::{
    ci::Follows,
    conversation::{Fanout, SessionKey, SessionOutput, Sessions, Standing, Table, Unclaimed},
    detector::Detectors,
    event::{Seq, SessionId},
    exchange::Exchange,
    fold::{Dispatched, Effect, Effects, Fold},
    ledger::{LedgerEntry, Reason, Tally},
    matcher::Matcher,
    notification::{NotificationId, SubscriberId, repeat::Action},
    pipeline::{
        Pipeline, Resources, memory::Memory, recent::RecentEvents, rule::Subscriber, silence::Silences,
    },
    probe,
    region::{ChangedFiles, Editor},
    rules::CompiledRules,
    session::Succession,
    sink::{Deliveries, Questions},
    snapshot::Held,
    sorted::{SortedMap, SortedSet},
    throttle::{Lineage, Throttle},
    user::Users,
    watch::Watches,
};

/// The decision logic of the program.
#[derive(Debug)]
pub struct Engine {
    pub(super) rules: Arc<CompiledRules>,
    pub(super) matcher: Matcher,
    /// Finds the pipelines whose conditions an event resolves.
    pub(super) resolvers: Matcher,
    /// One for each of `rules.subscribers`, in the same order.
    pub(super) pipelines: Vec<Pipeline>,
    /// The time of each pipeline's next wake-up, by its index.
    pub(super) pipeline_deadlines: Deadlines<u32>,
    /// The pipelines with an event that inhibits in a part of the sessions, by their indices.
    pub(super) inhibiting_in_part: SortedSet<u32>,
    pub(super) sessions: Sessions,
    pub(super) folds: Folds,
    /// Those of the folds that were not handled yet.
    pub(super) effects: Effects,
    pub(super) tally: Tally,
    /// The local clock of the daemon's machine.
    pub(super) zone: Zone,
    /// The time of the last input.
    pub(super) now: Timestamp,
    /// The silences of people.
    pub(super) silences: Silences,
    /// The events of recent notifications.
    pub(super) recent: RecentEvents,
    /// The settings of users.
    pub(super) users: Users,
    /// Finds the pipelines of which an event may inhibit others.
    pub(super) inhibitors: Matcher,
    /// Number of inputs that may have changed what regions show of what they can have.
    pub(super) region_changes: u64,
    pub(super) outputs: VecDeque<Output>,
}

impl Engine {
    /// Creates an engine with `rules` and no state.
    pub fn new(rules: Arc<CompiledRules>) -> Self {
        let pipelines = rules.subscribers.iter().cloned().map(Pipeline::new).collect();
        let mut folds = Folds::default();
        folds.apply(&rules, None);
        Self {
            matcher: rules.matcher(),
            resolvers: rules.resolvers(),
            pipelines,
            pipeline_deadlines: Deadlines::default(),
            inhibiting_in_part: SortedSet::new(),
            sessions: Sessions::new(rules.conversation()),
            folds,
            effects: Effects::default(),
            tally: Tally::default(),
            zone: Zone::default(),
            now: Timestamp::ZERO,
            silences: Silences::default(),
            recent: RecentEvents::default(),
            users: Users::default(),
            inhibitors: rules.inhibitors(),
            region_changes: 0,
            outputs: VecDeque::new(),
            rules,
        }
    }

    /// See [`pipeline`].
    pub(super) fn pipeline_mut(&mut self, index: u32) -> &mut Pipeline {
        pipeline(&mut self.pipelines, index)
    }

    pub(super) fn record(&mut self, entry: LedgerEntry) {
        self.tally.count(&entry);
        if let LedgerEntry::EventEnded { subscriber, reason: Reason::Silenced { by }, .. } = &entry {
            self.silences.count(*by, subscriber);
        }
        self.outputs.push_back(Output::Record(entry));
    }

    /// Handles the reports of the sessions. Call it after each of their steps, before any other
    /// output.
    pub(super) fn drain_sessions(&mut self) {
        while let Some(output) = self.sessions.poll_output() {
            match output {
                SessionOutput::Record(entry) => {
                    let taken = taken(&entry);
                    self.record(entry);
                    if let Some((notification, session, taken)) = taken {
                        self.admit(notification, &session, taken);
                    }
                }
                SessionOutput::Changed(session, change) => {
                    self.region_changes += 1;
                    self.outputs.push_back(Output::Session(session, *change));
                }
                SessionOutput::Wake(pending) => self.outputs.push_back(Output::Wake(pending)),
                SessionOutput::Publish(event) => self.outputs.push_back(Output::Publish(*event)),
                SessionOutput::ForUser(notification, audience) => {
                    self.send_to_user(&notification, audience, self.now);
                }
                SessionOutput::Unanswered(notification) => self.report_unanswered(&notification),
                SessionOutput::Succession(change) => {
                    self.folds.follow(&change, &mut self.effects);
                    self.drain_folds();
                }
            }
        }
    }

    /// Handles the effects of the folds. Call it after each of their steps, before any other output.
    pub(super) fn drain_folds(&mut self) {
        for question in self.folds.questions.take_closed() {
            self.folds.for_user.end_question(&question, &mut self.effects);
        }
        for effect in self.effects.take() {
            match effect {
                Effect::Publish(event) => self.outputs.push_back(Output::Publish(event)),
                Effect::Record(entry) => self.record(entry),
            }
        }
    }

    /// Notes the state of each pipeline, after they were replaced.
    pub(super) fn note_pipelines(&mut self) {
        self.pipeline_deadlines = Deadlines::default();
        self.inhibiting_in_part.clear();
        for index in (0_u32..).take(self.pipelines.len()) {
            self.note_pipeline(index);
        }
    }

    /// Notes a pipeline's wake-up time, and whether it inhibits in a part of the sessions. Call it after
    /// each of its steps.
    pub(super) fn note_pipeline(&mut self, index: u32) {
        let pipeline = pipeline(&mut self.pipelines, index);
        self.pipeline_deadlines.set(index, pipeline.poll_timeout());
        if pipeline.inhibits_in_part() {
            self.inhibiting_in_part.insert(index);
        } else if !self.inhibiting_in_part.is_empty() {
            self.inhibiting_in_part.remove(&index);
        }
    }

    /// Runs the pipelines that are due.
    pub(super) fn fire_pipelines(&mut self, at: Timestamp) {
        for index in self.pipeline_deadlines.take_due(at) {
            let resources = resources(&self.rules, &self.zone, &self.silences);
            pipeline(&mut self.pipelines, index).handle_timeout(resources, at);
            self.drain_pipeline(index, at);
        }
    }

    /// Closes the open batches of the pipelines that `is_wanted` selects.
    pub(super) fn close_batches(
        &mut self,
        is_wanted: impl Fn(&Pipeline) -> bool,
        closes: Closes,
        now: Timestamp,
    ) {
        for index in self.pipeline_deadlines.keys() {
            let pipeline = pipeline(&mut self.pipelines, index);
            if is_wanted(pipeline) {
                let (sessions, resources) =
                    (&self.sessions, resources(&self.rules, &self.zone, &self.silences));
                match closes {
                    Closes::For(of) => {
                        pipeline.close(&|scope| sessions.is_concerned(of, scope), resources, now)
                    }
                    Closes::AtShutdown => pipeline.close(&|_| true, resources, now),
                    Closes::Removed => pipeline.close_for_good(resources, now),
                }
                self.drain_pipeline(index, now);
            }
        }
    }
}

/// How a queue takes a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// For the first time.
    New,
    /// Once more: its injection did not arrive, or its context is gone.
    Again,
}

/// The notification that a queue has just taken, and the queue's session.
fn taken(entry: &LedgerEntry) -> Option<(NotificationId, SessionId, Taken)> {
    match entry {
        LedgerEntry::Queued { notification, session } => Some((*notification, session.clone(), Taken::New)),
        LedgerEntry::Returned { notification, session }
        | LedgerEntry::Recalled { notification, session }
        | LedgerEntry::Repeated { notification, session, number: _ } => {
            Some((*notification, session.clone(), Taken::Again))
        }
        // A delivered one returns to the queue.
        LedgerEntry::Responded { notification, session, action: Action::Snooze, by: _ } => {
            Some((*notification, session.clone(), Taken::Again))
        }
        LedgerEntry::Unmatched { .. }
        | LedgerEntry::Throttled { .. }
        | LedgerEntry::Skipped { .. }
        | LedgerEntry::Batched { .. }
        | LedgerEntry::EventEnded { .. }
        | LedgerEntry::Created { .. }
        | LedgerEntry::Unclaimed { .. }
        | LedgerEntry::Injected { .. }
        | LedgerEntry::Confirmed { .. }
        | LedgerEntry::NotificationEnded { .. }
        | LedgerEntry::Responded { .. }
        | LedgerEntry::ForUser { .. } => None,
    }
}

/// Which batches close before their time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Closes {
    /// Those that concern an open session, whose exchange can take them.
    For(SessionKey),
    /// All; the daemon stops.
    AtShutdown,
    /// All, also those that only their time closes; their subscriber ends.
    Removed,
}

/// What a pipeline uses of the engine.
pub(super) fn resources<'a>(
    rules: &'a CompiledRules,
    zone: &'a Zone,
    silences: &'a Silences,
) -> Resources<'a> {
    Resources { templates: &rules.templates, zone, silences, budget: &rules.budget, muted: None }
}

/// The pipeline of a subscriber, by the subscriber's place in the rules.
pub(super) fn pipeline(pipelines: &mut [Pipeline], index: u32) -> &mut Pipeline {
    let place = usize::try_from(index).expect("an index of a list");
    pipelines.get_mut(place).expect("each subscriber has its pipeline")
}

/// The subscriber of a pipeline, by its place in the rules.
pub(super) fn rule(pipelines: &[Pipeline], index: u32) -> &Subscriber {
    let place = usize::try_from(index).expect("an index of a list");
    pipelines.get(place).expect("each subscriber has its pipeline").rule()
}

macro_rules! folds {
    ($($(#[$doc:meta])* $name:ident: $fold:ty, $settings:expr $(, $older:meta)?;)+) => {
        #[derive(Debug, Default)]
        pub(super) struct Folds {
            $($(#[$doc])* pub(super) $name: $fold,)+
        }

        /// The state of an engine except its rules; store their hash with it.
        #[derive(Debug, Default, Serialize, Deserialize)]
        pub(super) struct EngineState<'a> {
            pub(super) pipelines: SortedMap<SubscriberId, Memory<'a>>,
            pub(super) sessions: Held<'a, Table>,
            pub(super) fanout: Held<'a, Fanout>,
            pub(super) unclaimed: Held<'a, Unclaimed>,
            pub(super) tally: Held<'a, Tally>,
            #[serde(default)]
            pub(super) standing: Held<'a, Standing>,
            #[serde(default)]
            pub(super) zone: Held<'a, Zone>,
            #[serde(default)]
            pub(super) silences: Held<'a, Silences>,
            #[serde(default)]
            pub(super) recent: Held<'a, RecentEvents>,
            #[serde(default)]
            pub(super) users: Held<'a, Users>,
            $($(#[$older])? pub(super) $name: Held<'a, $fold>,)+
        }

        impl Folds {
            /// A state that has the folds' own; the rest is empty.
            pub(super) fn state(&self) -> EngineState<'_> {
                EngineState { $($name: Held::Borrowed(&self.$name),)+ ..EngineState::default() }
            }

            /// Moves the folds out of `state`.
            pub(super) fn take_from(state: &mut EngineState<'_>) -> Self {
                Self { $($name: std::mem::take(&mut state.$name).into_owned(),)+ }
            }

            /// Applies the rules of a start, where `before` is `None`, or changed ones.
            pub(super) fn apply(&mut self, rules: &CompiledRules, before: Option<&CompiledRules>) {
                $({
                    let before = before.map(|before| settings(before, $settings));
                    self.$name.apply(settings(rules, $settings), before);
                })+
            }

            /// Passes an event to each. Returns whether it is addressed to one.
            pub(super) fn observe(
                &mut self,
                dispatched: &Dispatched<'_>,
                rules: &CompiledRules,
                to: &mut Effects,
            ) -> bool {
                let mut is_taken = false;
                $(is_taken |= self.$name.observe(dispatched, settings(rules, $settings), to);)+
                is_taken
            }

            /// The time at which one of them wants to be called.
            pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
                let mut first = None;
                $(first = Timestamp::earliest([first, self.$name.poll_timeout()]);)+
                first
            }

            /// Calls those that are due at `now`.
            pub(super) fn handle_timeout(&mut self, now: Timestamp, to: &mut Effects) {
                $(if self.$name.poll_timeout().is_some_and(|at| at <= now) {
                    self.$name.handle_timeout(now, to);
                })+
            }

            /// Follows a session whose identity changed.
            pub(super) fn follow(&mut self, change: &Succession, to: &mut Effects) {
                $(self.$name.follow(change, to);)+
            }

            /// Passes an exchange to each.
            pub(super) fn note_exchange(
                &mut self,
                exchange: &Exchange,
                rules: &CompiledRules,
                now: Timestamp,
                to: &mut Effects,
            ) {
                $(self.$name.note_exchange(exchange, settings(rules, $settings), now, to);)+
            }

            /// Notes the end of a turn that no event reports.
            pub(super) fn end_turn(&mut self, session: &SessionId, now: Timestamp, to: &mut Effects) {
                $(self.$name.end_turn(session, now, to);)+
            }

            /// Notes that the user began another task.
            pub(super) fn begin_task(&mut self, session: &SessionId) {
                $(self.$name.begin_task(session);)+
            }

            /// The first reason why `session` needs no notification of `events`.
            pub(super) fn reason_against(&self, session: &SessionId, events: &[Seq]) -> Option<Reason> {
                None$(.or_else(|| self.$name.reason_against(session, events)))+
            }
        }
    };
}

// In this order they take an event. Name, type, and the part of the rules that it uses; an older
// snapshot may lack one with `serde(default)`.
folds! {
    lineage: Lineage, |_| &();
    throttle: Throttle, |rules| &rules.sources;
    // Before those whose reason against a notification says less.
    watches: Watches, |_| &();
    /// The failures whose sessions know them.
    echoes: Echoes, |_| &();
    /// The sessions' known state of the machine.
    probes: probe::Memory, |_| &();
    detectors: Detectors, |rules| &rules.detectors;
    ci: Follows, |rules| &rules.ci;
    /// Notices that are being delivered to the user.
    for_user: Deliveries, |rules| &*rules.sinks;
    questions: Questions, |_| &();
    /// The newest changes of files, for regions.
    files: ChangedFiles, |_| &(), serde(default);
    /// The state of editors, for regions.
    editor: Editor, |_| &(), serde(default);
}

/// The settings of a row.
fn settings<S>(rules: &CompiledRules, select: fn(&CompiledRules) -> &S) -> &S {
    select(rules)
}

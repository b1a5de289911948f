//! The table of folds: in which order they take events, and with which settings.

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::echoes::Echoes;
use crate::{
    ci::Follows,
    conversation::{Fanout, Table, Unclaimed},
    detector::Detectors,
    event::{Seq, SessionId},
    fold::{Dispatched, Effects, Fold},
    ledger::{Reason, Tally},
    notification::SubscriberId,
    pipeline::Memory,
    probe,
    rules::CompiledRules,
    session::Succession,
    sink::{Deliveries, Questions},
    snapshot::Held,
    sorted::SortedMap,
    throttle::{Lineage, Throttle},
    watch::Watches,
};

macro_rules! folds {
    ($($(#[$doc:meta])* $name:ident: $fold:ty, $settings:expr;)+) => {
        /// Every fold.
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
            $(pub(super) $name: Held<'a, $fold>,)+
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
                $(first = earlier(first, self.$name.poll_timeout());)+
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

// In this order they take an event. Name, type, and the part of the rules that it uses.
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
}

/// The settings of a row.
fn settings<S>(rules: &CompiledRules, select: fn(&CompiledRules) -> &S) -> &S {
    select(rules)
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

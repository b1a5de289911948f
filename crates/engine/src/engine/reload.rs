//! New rules in place of the present ones. The state stays, but for what a rule left behind that is no
//! longer there: each such rule ends here, or in the pipeline of its subscriber.

use std::sync::Arc;

use journal::time::Timestamp;

use super::parts::{Closes, Engine, pipeline, resources};
use crate::{
    conversation::EndedRules,
    notification::SubscriberId,
    pipeline::{
        Pipeline,
        rule::{Activity, Subscriber},
    },
    rules::CompiledRules,
    sorted::{SortedMap, SortedSet},
};

impl Engine {
    /// Replaces the rules. A subscriber that is also in the new rules keeps its state, but for what
    /// a rule left behind that it no longer has. A removed one closes its batches first.
    /// Notifications of a disabled one are not delivered.
    pub(super) fn replace_rules(&mut self, rules: Arc<CompiledRules>, now: Timestamp) {
        self.sessions.catch_up_all();
        self.drain_sessions();
        let switched_off = switched_off(&rules);
        let stays = |pipeline: &Pipeline| {
            let id = &pipeline.rule().id;
            !switched_off.contains(id) && rules.position(id).is_some()
        };
        self.close_batches(|pipeline| !stays(pipeline), Closes::Removed, now);
        let old = std::mem::take(&mut self.pipelines).into_iter();
        let mut old: SortedMap<_, _> = old.map(|pipeline| (pipeline.rule().id.clone(), pipeline)).collect();
        let carried = |rule: &Arc<Subscriber>| match old.remove(&rule.id) {
            Some(mut pipeline) => {
                pipeline.replace_rule(Arc::clone(rule), &self.zone, now);
                pipeline
            }
            None => Pipeline::new(Arc::clone(rule)),
        };
        self.pipelines = rules.subscribers.iter().map(carried).collect();
        self.matcher = rules.matcher();
        self.resolvers = rules.resolvers();
        self.inhibitors = rules.inhibitors();
        self.folds.apply(&rules, Some(&self.rules));
        let has_other_mutes = rules.mutes != self.rules.mutes;
        let ended = ended_rules(&self.rules, &rules);
        self.rules = rules;
        self.note_pipelines();
        for index in (0_u32..).take(self.pipelines.len()) {
            let resources = resources(&self.rules, &self.zone, &self.silences);
            pipeline(&mut self.pipelines, index).handle_timeout(resources, now);
            self.drain_pipeline(index, now);
        }
        self.sessions.replace_settings(self.rules.conversation(), &switched_off);
        self.sessions.end_rules(&ended);
        if has_other_mutes {
            self.apply_settings(None, now);
        }
    }
}

fn switched_off(rules: &CompiledRules) -> SortedSet<SubscriberId> {
    let off = rules.subscribers.iter().filter(|rule| rule.activity == Activity::Disabled);
    off.map(|rule| rule.id.clone()).collect()
}

/// The rules of subscribers in `old` that the subscriber does not have in `new`; a disabled one has
/// none.
fn ended_rules(old: &CompiledRules, new: &CompiledRules) -> EndedRules {
    let mut ended = EndedRules::default();
    for before in &old.subscribers {
        let after = new.position(&before.id).and_then(|at| new.subscribers.get(at));
        let after = after.filter(|rule| rule.activity != Activity::Disabled);
        let is_over = |has: fn(&Subscriber) -> bool| has(before) && !after.is_some_and(|rule| has(rule));
        let note = |of: &mut SortedSet<SubscriberId>, is_over: bool| {
            if is_over {
                of.insert(before.id.clone());
            }
        };
        let has_condition = |rule: &Subscriber| rule.resolve.is_some() || rule.absence.is_some();
        let delays_after = after.map_or(&[][..], |rule| &rule.deliver_after);
        note(&mut ended.repeats, is_over(|rule| rule.repeat.is_some()));
        note(&mut ended.retained, is_over(|rule| rule.retain.is_some()));
        note(&mut ended.conditions, is_over(has_condition));
        note(&mut ended.delays, !before.deliver_after.is_empty() && before.deliver_after != delays_after);
    }
    ended
}

//! New rules: the state that is kept, and the state that ends with a removed subscriber.

use std::sync::Arc;

use super::parts::Engine;
use journal::time::Timestamp;

use crate::{
    notification::SubscriberId,
    pipeline::{
        Pipeline,
        rule::{Activity, Subscriber},
    },
    rules::CompiledRules,
    sorted::{SortedMap, SortedSet},
};

impl Engine {
    /// Replaces the rules. A subscriber that is also in the new rules keeps its state. A removed
    /// one closes its batches first. Notifications of a disabled one are not delivered.
    pub(super) fn replace_rules(&mut self, rules: Arc<CompiledRules>, now: Timestamp) {
        self.sessions.catch_up_all();
        self.drain_sessions();
        let switched_off = switched_off(&rules);
        let stays = |pipeline: &Pipeline| {
            let id = &pipeline.rule().id;
            !switched_off.contains(id) && rules.subscribers.binary_search_by(|rule| rule.id.cmp(id)).is_ok()
        };
        self.close_batches(|pipeline| !stays(pipeline), None, now);
        let old = std::mem::take(&mut self.pipelines).into_iter();
        let mut old: SortedMap<_, _> = old.map(|pipeline| (pipeline.rule().id.clone(), pipeline)).collect();
        let pipeline = |rule: &Arc<Subscriber>| match old.remove(&rule.id) {
            Some(mut pipeline) => {
                pipeline.replace_rule(Arc::clone(rule));
                pipeline
            }
            None => Pipeline::new(Arc::clone(rule)),
        };
        self.pipelines = rules.subscribers.iter().map(pipeline).collect();
        self.matcher = rules.matcher();
        self.resolvers = rules.resolvers();
        self.restore_pipeline_deadlines();
        self.folds.apply(&rules, Some(&self.rules));
        self.rules = rules;
        self.sessions.replace_settings(self.rules.conversation(), &switched_off);
    }
}

fn switched_off(rules: &CompiledRules) -> SortedSet<SubscriberId> {
    let off = rules.subscribers.iter().filter(|rule| rule.activity == Activity::Disabled);
    off.map(|rule| rule.id.clone()).collect()
}

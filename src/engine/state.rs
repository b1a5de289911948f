//! How the engine is written in a snapshot, and goes on from there as if it had not stopped.

use std::{collections::VecDeque, sync::Arc};

use super::{Engine, deadlines::Deadlines, matcher_of, rules::CompiledRules, sessions::Sessions};
use crate::{
    pipeline::Pipeline,
    snapshot::{Damaged, Reader, State, Writer},
};

/// Names how the engine behaves. It is to be raised with every change after which the same records could give another state, also
/// when the bytes stay the same: a snapshot of another number is not used, and the records are applied again instead.
pub const BEHAVIOUR: u32 = 5;

impl Engine {
    /// Appends everything that the inputs left in the engine. Its outputs must have been drained.
    ///
    /// The rules are not written: whoever keeps the bytes keeps the rules' hash beside them.
    pub fn write_state(&self, to: &mut Writer) {
        let Self {
            rules: _,
            matcher: _,
            pipelines,
            pipeline_deadlines: _,
            sessions,
            unclaimed,
            lineage,
            throttle,
            tally,
            outputs,
        } = self;
        debug_assert!(outputs.is_empty(), "outputs are taken before a snapshot is");
        to.length(pipelines.len());
        for pipeline in pipelines {
            to.block(pipeline.rule().id.as_str().as_bytes());
            pipeline.write_state(to);
        }
        sessions.write_state(to);
        unclaimed.write(to);
        lineage.write(to);
        throttle.write(to);
        tally.write(to);
    }

    /// The engine that [`Engine::write_state`] appended; `rules` are those that it ran by.
    ///
    /// Errors: the bytes are not that, or those of an engine with other rules.
    pub fn read_state(rules: Arc<CompiledRules>, from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let pipelines = read_pipelines(&rules, from)?;
        let mut pipeline_deadlines = Deadlines::default();
        for (index, pipeline) in (0_u32..).zip(&pipelines) {
            pipeline_deadlines.set(index, pipeline.poll_timeout());
        }
        Ok(Self {
            matcher: matcher_of(&rules),
            pipelines,
            pipeline_deadlines,
            sessions: Sessions::read_state(&rules.sessions, from)?,
            unclaimed: State::read(from)?,
            lineage: State::read(from)?,
            throttle: State::read(from)?,
            tally: State::read(from)?,
            outputs: VecDeque::new(),
            rules,
        })
    }
}

fn read_pipelines(rules: &CompiledRules, from: &mut Reader<'_>) -> Result<Vec<Pipeline>, Damaged> {
    let other_rules = "the subscribers of its rules";
    if from.length()? != rules.subscribers.len() {
        return Err(from.damaged(other_rules));
    }
    let mut pipelines = Vec::with_capacity(rules.subscribers.len());
    for rule in &rules.subscribers {
        let damaged = from.damaged(other_rules);
        if from.block()? != rule.id.as_str().as_bytes() {
            return Err(damaged);
        }
        pipelines.push(Pipeline::read_state(Arc::clone(rule), from)?);
    }
    Ok(pipelines)
}

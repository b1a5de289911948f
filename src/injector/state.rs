//! How a session's queue is written in a snapshot, between two inputs: what it has to say was taken before.

use std::collections::VecDeque;

use super::Injector;
use crate::snapshot::{Damaged, Reader, State, Writer};

impl State for Injector {
    fn write(&self, to: &mut Writer) {
        let Self {
            session,
            queue_len_max,
            queue,
            leases,
            answers,
            recent,
            told,
            releases_all,
            turn,
            continuations,
            dropped,
            outputs,
        } = self;
        debug_assert!(outputs.is_empty(), "outputs are taken before a snapshot is");
        session.write(to);
        queue_len_max.write(to);
        queue.write(to);
        leases.write(to);
        answers.write(to);
        recent.write(to);
        told.write(to);
        releases_all.write(to);
        turn.write(to);
        continuations.write(to);
        dropped.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(Self {
            session: State::read(from)?,
            queue_len_max: State::read(from)?,
            queue: State::read(from)?,
            leases: State::read(from)?,
            answers: State::read(from)?,
            recent: State::read(from)?,
            told: State::read(from)?,
            releases_all: State::read(from)?,
            turn: State::read(from)?,
            continuations: State::read(from)?,
            dropped: State::read(from)?,
            outputs: VecDeque::new(),
        })
    }
}

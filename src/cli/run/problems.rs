//! What a run does with the output of its command: it is read while it passes, and what is new in
//! it is published.
//!
//! What is known of each tool moves on only with events that the daemon has accepted; what could
//! not be published is published with the next change, under the same ids, so that nothing is there
//! twice.

use std::{
    collections::BTreeMap,
    env,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    time::Duration,
};

use serde_json::Value;

use super::{Publishing, Task, plan::Plan};
use crate::{
    problem::{
        Origin, Problem, Problems,
        collector::{Collector, Stream},
        cycle::Cycle,
    },
    time::Timestamp,
};

/// Pieces of output that wait to be read, of 64 KiB at most each; when they are so many, the
/// command waits.
const PIECES_MAX: usize = 64;
/// How long to wait when nothing is due.
const FOR_LONG: Duration = Duration::from_secs(3_600);

/// What comes from the command.
#[derive(Debug)]
pub(super) enum Piece {
    /// Output, as it came.
    Output(Stream, Vec<u8>),
    /// There will be no more.
    End,
}

/// Where pieces go, and where they come from.
pub(super) fn pieces() -> (SyncSender<Piece>, Receiver<Piece>) {
    sync_channel(PIECES_MAX)
}

/// How often the problems are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Once, at the end.
    AtEnd,
    /// Whenever the command has settled.
    Watch,
}

/// Reads the pieces until their end, and publishes.
pub(super) struct Follower<'a> {
    plan: Plan,
    mode: Mode,
    task: &'a Task,
    publishing: &'a Publishing<'a>,
    /// The time since the run began.
    clock: &'a (dyn Fn() -> Timestamp + Sync),
    /// What the daemon knows of each tool.
    known: BTreeMap<String, Problems>,
    /// What each report said last, by its place in the plan.
    reported: BTreeMap<usize, Vec<Problem>>,
    /// How many changes were accepted.
    changes: u64,
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        plan: Plan,
        mode: Mode,
        task: &'a Task,
        publishing: &'a Publishing<'a>,
        clock: &'a (dyn Fn() -> Timestamp + Sync),
    ) -> Self {
        let (known, reported) = (BTreeMap::new(), BTreeMap::new());
        Self { plan, mode, task, publishing, clock, known, reported, changes: 0 }
    }

    /// Shape: ends with [`Piece::End`], or when nobody can send it any more.
    pub(super) fn run(mut self, pieces: &Receiver<Piece>) {
        let mut collector = Collector::new(&self.plan.matchers, self.plan.format);
        let backgrounds = self.plan.matchers.iter().filter_map(|matcher| matcher.background.clone());
        let mut cycle = Cycle::new(backgrounds.collect());
        loop {
            let now = (self.clock)();
            if self.mode == Mode::Watch && cycle.settle(now) {
                self.settle(&collector, now);
            }
            let wait = cycle.poll_timeout().filter(|_| self.mode == Mode::Watch);
            match pieces.recv_timeout(wait.map_or(FOR_LONG, |at| at.since(now))) {
                Ok(Piece::Output(stream, piece)) => self.take(&mut collector, &mut cycle, stream, &piece),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Piece::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Err((format, error)) = collector.finish() {
            self.publishing.warn(&format!("the {} output: {error}", format.as_str()));
        }
        // A look that was cut off has not found all that is there.
        if self.mode == Mode::AtEnd || !cycle.is_cut_off() {
            self.settle(&collector, (self.clock)());
        }
    }

    fn take(&self, collector: &mut Collector, cycle: &mut Cycle, stream: Stream, piece: &[u8]) {
        match self.mode {
            Mode::AtEnd => collector.push(stream, piece, |_| false),
            Mode::Watch => {
                let now = (self.clock)();
                if cycle.output(now) {
                    collector.clear();
                }
                collector.push(stream, piece, |line| cycle.line(line, now));
            }
        }
    }

    /// Publishes what is new in what was found.
    fn settle(&mut self, collector: &Collector, now: Timestamp) {
        let mut found = collector.found().clone();
        for (number, report) in self.plan.reports.iter_mut().enumerate() {
            match report.read() {
                Some(Ok(problems)) => drop(self.reported.insert(number, problems)),
                Some(Err(error)) => self.publishing.warn(&error),
                None => {}
            }
            let problems = self.reported.get(&number).cloned().unwrap_or_default();
            found.entry(report.tool().to_owned()).or_default().extend(problems);
        }
        let (mut next, mut events) = (self.known.clone(), Vec::new());
        for (tool, problems) in found {
            let change = next.entry(tool.clone()).or_default().replace(problems, now);
            events.extend(self.events(&tool, &change));
        }
        if events.is_empty() || self.publishing.publish(&Value::Array(events)) {
            self.known = next;
            self.changes += 1;
        }
    }

    fn events(&self, tool: &str, change: &crate::problem::Change) -> Vec<Value> {
        let folder = env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned());
        let origin = Origin { tool, folder: folder.as_deref(), workspace: self.task.workspace.as_deref() };
        let event = |report: crate::problem::Report| {
            let id = format!("{}:{}:{}", self.task.start_id, self.changes, report.problem);
            let mut event = self.task.caused(&id, report.event_type, report.payload);
            if let Some(event) = event.as_object_mut() {
                event.insert("severity".to_owned(), report.severity.as_str().into());
            }
            event
        };
        change.reports(&origin).into_iter().map(event).collect()
    }
}

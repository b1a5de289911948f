//! Parses the output of a run's command as it passes, and publishes new problems.
//!
//! The known state of each tool advances only with events that the daemon has accepted. Unpublished
//! changes are published with the next ones, under the same ids, so that there are no duplicates.

use std::{
    env,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

use engine::sorted::SortedMap;

use serde_json::Value;

use super::{
    child::Piece,
    plan::{Plan, READ_WAIT_MAX, within},
    publishing::Publishing,
    task::Task,
};
use journal::time::Timestamp;

use crate::capability::problem::{
    Origin, Problem, Problems,
    collector::{Collector, Cycle, Stream},
};

/// Wait when nothing is due.
const FOR_LONG: Duration = Duration::from_secs(3_600);

/// When the problems are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Once, at the end.
    AtEnd,
    /// Whenever the output is quiet.
    Watch,
}

/// Parses the pieces until their end, and publishes.
pub(super) struct Follower<'a> {
    plan: Plan,
    mode: Mode,
    task: &'a Task,
    publishing: &'a Publishing<'a>,
    /// The time since the run began.
    clock: &'a (dyn Fn() -> Timestamp + Sync),
    /// The problems that the daemon knows, by tool.
    known: SortedMap<String, Problems>,
    /// The last content of each report, by its index in the plan.
    reported: SortedMap<usize, Vec<Problem>>,
    /// Number of comparisons whose changes, if any, were accepted; part of the next ids.
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
        let (known, reported) = (SortedMap::new(), SortedMap::new());
        Self { plan, mode, task, publishing, clock, known, reported, changes: 0 }
    }

    /// Shape: ends with [`Piece::End`], or when all senders are gone.
    pub(super) fn run(mut self, pieces: &Receiver<Piece>) {
        let mut collector = Collector::new(&self.plan.matchers, self.plan.format);
        let backgrounds = self.plan.matchers.iter().filter_map(|matcher| matcher.background.clone());
        let mut cycle = Cycle::new(backgrounds.collect());
        loop {
            let now = (self.clock)();
            if self.mode == Mode::Watch && cycle.settle(now) {
                collector.pause();
                self.settle(&collector, now);
            }
            let wait = cycle.poll_timeout().filter(|_| self.mode == Mode::Watch);
            match pieces.recv_timeout(wait.map_or(FOR_LONG, |at| at.since(now))) {
                Ok(Piece::Output(stream, piece)) => self.take(&mut collector, &mut cycle, stream, &piece),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Piece::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some((format, document)) = collector.finish() {
            let read = within(READ_WAIT_MAX, move || format.read_document(document));
            match read.and_then(|read| read.map_err(|error| error.to_string())) {
                Ok(problems) => collector.add(format, problems),
                Err(error) => self.publishing.warn(&format!("the {} output: {error}", format.as_str())),
            }
        }
        // A cycle that is cut off has not found everything.
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

    /// Publishes the changes in the findings.
    fn settle(&mut self, collector: &Collector, now: Timestamp) {
        let mut found = collector.found().clone();
        for (number, report) in self.plan.reports.iter_mut().enumerate() {
            let spent = (self.clock)().since(now);
            match report.read(READ_WAIT_MAX.saturating_sub(spent)) {
                Some(Ok(problems)) => drop(self.reported.insert(number, problems)),
                Some(Err(error)) => self.publishing.warn(&error),
                None => {}
            }
            let problems = self.reported.get(&number).cloned().unwrap_or_default();
            found.get_or_default(report.tool().to_owned()).extend(problems);
        }
        let (mut next, mut events) = (self.known.clone(), Vec::new());
        for (tool, problems) in found {
            let change = next.get_or_default(tool.clone()).replace(problems, now);
            events.extend(self.events(&tool, &change));
        }
        if events.is_empty() || self.publishing.publish(&Value::Array(events)) {
            self.known = next;
            self.changes += 1;
        }
    }

    fn events(&self, tool: &str, change: &crate::capability::problem::Change) -> Vec<Value> {
        let folder = env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned());
        let origin = Origin { tool, folder: folder.as_deref(), workspace: self.task.workspace.as_deref() };
        let event = |report: crate::capability::problem::Report| {
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

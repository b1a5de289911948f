//! The delivery of each notice to each sink, folded from events.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    FAILED, Filters, Job, NOTICE, Notice, Report, SENT, Settings, WAITS,
    job::{Limits, Passed},
    question,
};
use journal::time::Timestamp;

use crate::{
    event::SessionId,
    fold::{Dispatched, Effects, Fold},
    ledger::{LedgerEntry, NotSent, Step, Subject, Suppressed},
    notification::Sink,
    session::Succession,
    sorted::SortedMap,
};

/// Most open notices; beyond that the oldest is evicted.
pub(super) const OPEN_MAX: usize = 256;
/// How long a notice waits for a hook that can show it.
pub(super) const HARNESS_WAIT: Duration = Duration::from_secs(60 * 60);
/// Most notices that one hook shows; later hooks show the rest.
pub(super) const SHOWN_MAX: usize = 3;
const VERDICTS_MAX: usize = 1_024;
/// The separator of notices in one line.
const SEPARATOR: &str = " | ";

/// The decision about a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is sent to these sinks now.
    Taken(Vec<Sink>),
    /// It is sent to these sinks at this time, unless a newer one replaces it.
    Later(Vec<Sink>, Timestamp),
    /// It is not sent.
    Suppressed(Suppressed),
}

/// All notices with unfinished deliveries.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Deliveries {
    /// By number, which increases in the order of the notices.
    open: SortedMap<u64, Open>,
    said: u64,
    limits: Limits,
    /// The time of the next timeout.
    #[serde(skip)]
    deadline: Option<Timestamp>,
    /// Whether the due jobs may differ from those last returned.
    #[serde(skip)]
    has_changed: bool,
    /// The newest verdicts, oldest first; only for queries.
    #[serde(skip)]
    verdicts: VecDeque<(Arc<str>, Verdict)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Open {
    notice: Arc<Notice>,
    subject: Subject,
    /// The sinks that have not accepted it yet; at least one.
    ways: SortedMap<Sink, Way>,
    /// When it is sent, if that is later than its own time.
    from: Option<Timestamp>,
}

/// The state of a delivery to one sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Way {
    failures: u32,
    /// The end of its wait, or for the harness its expiry; `None` means that it is due.
    at: Option<Timestamp>,
    /// Whether it waits for the end of quiet hours.
    is_quiet: bool,
}

#[derive(Default, Deserialize)]
struct Stored {
    open: SortedMap<u64, Open>,
    said: u64,
    limits: Limits,
}

impl From<Stored> for Deliveries {
    fn from(Stored { open, said, limits }: Stored) -> Self {
        let mut deliveries = Self { open, said, limits, ..Self::default() };
        deliveries.note_change();
        deliveries
    }
}

impl Deliveries {
    /// Queues a notice for those of these sinks whose `filters` accept it, unless it is over a limit.
    pub fn take(
        &mut self,
        mut notice: Notice,
        subject: Subject,
        (sinks, filters): (&[Sink], &Filters),
        now: Timestamp,
        to: &mut Effects,
    ) {
        let speaker = speaker(&notice, &subject);
        notice.progress = notice.progress.map(|progress| progress.said_by(&speaker));
        let is_accepted = |sink: &Sink| filters.filter(*sink).accepts(&notice);
        let (accepting, others): (Vec<Sink>, Vec<Sink>) = sinks.iter().copied().partition(is_accepted);
        let passed = match accepting.as_slice() {
            [] if others.is_empty() => Err(Suppressed::NoSink),
            [] => Err(Suppressed::Filtered),
            _ => self.limits.pass(&speaker, &notice, now),
        };
        let Passed { held, at } = match passed {
            Ok(passed) => passed,
            Err(suppressed) => {
                self.note_verdict(&notice.id, Verdict::Suppressed(suppressed));
                return to.record([entry(&subject, Step::Suppressed(suppressed))]);
            }
        };
        self.supersede(&notice, to);
        if self.open.len() >= OPEN_MAX
            && let Some((_, Open { subject, ways, .. })) = self.open.pop_first()
        {
            to.record(ways.into_keys().map(|sink| entry(&subject, Step::Ended(sink, NotSent::Evicted))));
        }
        let from = (at > now).then_some(at);
        let way = |sink: Sink| {
            let at = if sink == Sink::Harness { Some(at + HARNESS_WAIT) } else { from };
            Way { failures: 0, at, is_quiet: false }
        };
        let ways: SortedMap<Sink, Way> = accepting.iter().map(|sink| (*sink, way(*sink))).collect();
        to.record(accepting.iter().map(|sink| entry(&subject, Step::Queued(*sink))));
        to.record(others.iter().map(|sink| entry(&subject, Step::Ended(*sink, NotSent::Filtered))));
        let verdict = if at > now { Verdict::Later(accepting, at) } else { Verdict::Taken(accepting) };
        self.note_verdict(&notice.id, verdict);
        self.said += 1;
        self.open
            .insert(self.said, Open { notice: Arc::new(Notice { held, ..notice }), subject, ways, from });
        self.note_change();
    }

    /// Ends the open notices that `newer` replaces.
    fn supersede(&mut self, newer: &Notice, to: &mut Effects) {
        let Some(progress) = &newer.progress else { return };
        let is_older =
            |older: &Notice| older.progress.as_ref().is_some_and(|older| older.line == progress.line);
        self.end_ways(NotSent::Superseded, is_older, to);
    }

    fn note_verdict(&mut self, id: &Arc<str>, verdict: Verdict) {
        self.verdicts.push_back((Arc::clone(id), verdict));
        self.verdicts.drain(..self.verdicts.len().saturating_sub(VERDICTS_MAX));
    }

    /// The verdict on a notice, if it is one of the newest.
    pub fn verdict(&self, id: &str) -> Option<&Verdict> {
        self.verdicts.iter().rev().find(|(known, _)| &**known == id).map(|(_, verdict)| verdict)
    }

    fn note_report(&mut self, report: Report, settings: &Settings, now: Timestamp, to: &mut Effects) {
        let Report { notice, sink, failures, id, error, is_final, until } = report;
        let found = self.open.iter_mut().find(|(_, open)| open.notice.id == notice);
        let Some((number, open)) = found.map(|(number, open)| (*number, open)) else {
            return;
        };
        // A report of an earlier attempt does not concern the present one.
        let Some(way) = open.ways.get_mut(&sink).filter(|way| way.failures == failures) else {
            return;
        };
        let step = match (error, until) {
            // It already waits, or a sink has accepted it meanwhile.
            (None, Some(_)) if way.at.is_some() => return,
            (None, Some(until)) => Step::Waits { sink, until },
            (None, None) => Step::Sent(sink, id),
            (Some(error), _) => {
                let index = usize::try_from(failures).unwrap_or(usize::MAX);
                let retry = settings.all.retry.get(index).filter(|_| !is_final && sink.delivery().is_retried);
                Step::Failed { sink, error, retry_at: retry.map(|wait| now + *wait) }
            }
        };
        if let Step::Failed { retry_at: Some(at), .. } = &step {
            *way = Way { failures: failures + 1, at: Some(*at), is_quiet: false };
        } else if let Step::Waits { until, .. } = &step {
            *way = Way { failures, at: Some(*until), is_quiet: true };
        } else {
            open.ways.remove(&sink);
        }
        to.record([entry(&open.subject, step)]);
        if open.ways.is_empty() {
            self.open.remove(&number);
        }
        self.note_change();
    }

    /// Returns the line that a hook of `session`, which works in `folder`, shows its user at `now`,
    /// and the ledger entries that the notices in it were sent. `carrier` is recorded as the sink's
    /// id of these notices.
    pub fn show(
        &mut self,
        session: &SessionId,
        folder: Option<&str>,
        carrier: &str,
        now: Timestamp,
    ) -> Option<(String, Vec<LedgerEntry>)> {
        let is_own = |open: &&mut Open| {
            open.ways.contains_key(&Sink::Harness)
                && open.notice.scope().concerns(session, folder)
                && open.from.is_none_or(|from| from <= now)
        };
        let (mut lines, mut entries) = (Vec::new(), Vec::new());
        for open in self.open.values_mut().filter(is_own).take(SHOWN_MAX) {
            open.ways.remove(&Sink::Harness);
            lines.push(open.notice.line());
            entries.push(entry(&open.subject, Step::Sent(Sink::Harness, Some(carrier.to_owned()))));
        }
        if lines.is_empty() {
            return None;
        }
        self.remove_done();
        Some((lines.join(SEPARATOR), entries))
    }

    fn open_of<'a>(&'a mut self, session: &'a SessionId) -> impl Iterator<Item = &'a mut Open> {
        self.open.values_mut().filter(move |open| open.notice.session.as_ref() == Some(session))
    }

    /// Ends the deliveries of a question that was answered or has expired.
    pub fn end_question(&mut self, id: &str, to: &mut Effects) {
        self.end_ways(NotSent::QuestionOver, |notice| *notice.id == *id, to);
    }

    /// Ends all deliveries of the notices that match `is_over`.
    fn end_ways(&mut self, why: NotSent, is_over: impl Fn(&Notice) -> bool, to: &mut Effects) {
        let mut has_ended = false;
        for open in self.open.values_mut().filter(|open| is_over(&open.notice)) {
            let ways = std::mem::take(&mut open.ways);
            has_ended |= !ways.is_empty();
            to.record(ways.into_keys().map(|sink| entry(&open.subject, Step::Ended(sink, why))));
        }
        if has_ended {
            self.remove_done();
        }
    }

    /// Returns the due jobs, if they may have changed since the last call.
    pub fn take_due(&mut self) -> Option<Arc<[Job]>> {
        std::mem::take(&mut self.has_changed).then(|| {
            let jobs = self.open.values().flat_map(|open| {
                let due = open.ways.iter().filter(|(_, way)| way.at.is_none());
                due.map(|(sink, way)| Job {
                    notice: Arc::clone(&open.notice),
                    sink: *sink,
                    failures: way.failures,
                })
            });
            jobs.collect()
        })
    }

    fn remove_done(&mut self) {
        self.open.retain(|_, open| !open.ways.is_empty());
        self.note_change();
    }

    /// Makes deliveries due that wait for the end of quiet hours, because the hours were changed.
    /// Those that have to wait in the new hours are reported as waiting again.
    fn forget_quiet(&mut self) {
        for way in self.open.values_mut().flat_map(|open| open.ways.values_mut()).filter(|way| way.is_quiet) {
            (way.at, way.is_quiet) = (None, false);
        }
        self.note_change();
    }

    /// Notes that the due jobs may have changed, and updates the deadline.
    pub(super) fn note_change(&mut self) {
        self.has_changed = true;
        self.deadline = self.open.values().flat_map(|open| open.ways.values()).filter_map(|way| way.at).min();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.open.len(), self.limits.len())
    }
}

impl Fold for Deliveries {
    type Settings = Settings;

    fn apply(&mut self, settings: &Settings, before: Option<&Settings>) {
        if before.is_some_and(|before| before.all.quiet != settings.all.quiet) {
            self.forget_quiet();
        }
        // Due times depend on the settings.
        self.note_change();
    }

    /// Takes notices and the reports of sinks.
    fn observe(&mut self, dispatched: &Dispatched<'_>, settings: &Settings, to: &mut Effects) -> bool {
        let Dispatched { seq, event, now, .. } = *dispatched;
        if !event.is_own() {
            return false;
        }
        match event.event_type {
            NOTICE | question::ASKED => {
                let Some(notice) = Notice::read(event, now) else { return false };
                let sinks = (settings.all.default.as_slice(), &settings.filters);
                self.take(notice, Subject::Event(seq), sinks, now, to);
            }
            SENT | FAILED | WAITS => {
                let Ok(report) = serde_json::from_str(event.payload) else { return false };
                self.note_report(report, settings, now, to);
            }
            _ => return false,
        }
        true
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Makes waiting deliveries due, and ends those that no hook has shown in time.
    fn handle_timeout(&mut self, now: Timestamp, to: &mut Effects) {
        for open in self.open.values_mut() {
            for (sink, way) in open.ways.iter_mut() {
                if *sink != Sink::Harness && way.at.is_some_and(|at| at <= now) {
                    (way.at, way.is_quiet) = (None, false);
                }
            }
            let is_over = open.ways.get(&Sink::Harness).is_some_and(|way| way.at.is_some_and(|at| at <= now));
            if is_over {
                open.ways.remove(&Sink::Harness);
                to.record([entry(&open.subject, Step::Ended(Sink::Harness, NotSent::Expired))]);
            }
        }
        self.remove_done();
    }

    /// The notices for the hooks of an ended session end.
    fn follow(&mut self, change: &Succession, effects: &mut Effects) {
        match change {
            Succession::Continued { from, to } => {
                for open in self.open_of(from) {
                    Arc::make_mut(&mut open.notice).session = Some(to.clone());
                }
            }
            Succession::Copied { .. } => {}
            Succession::Ended { session, .. } => {
                let mut has_ended = false;
                for open in self.open_of(session) {
                    if open.ways.remove(&Sink::Harness).is_some() {
                        effects
                            .record([entry(&open.subject, Step::Ended(Sink::Harness, NotSent::SessionGone))]);
                        has_ended = true;
                    }
                }
                if has_ended {
                    self.remove_done();
                }
            }
        }
    }
}

fn entry(subject: &Subject, step: Step) -> LedgerEntry {
    LedgerEntry::ForUser { subject: subject.clone(), step }
}

/// The owner of the limits that apply to a notice: a subscriber, a session or a folder.
fn speaker(notice: &Notice, subject: &Subject) -> String {
    match (subject, &notice.session, &notice.workspace) {
        (Subject::Notification(_), ..) => format!("subscriber {}", notice.context),
        (Subject::Event(_), Some(session), _) => format!("session {session}"),
        (Subject::Event(_), None, Some(folder)) => format!("folder {folder}"),
        (Subject::Event(_), None, None) => String::new(),
    }
}

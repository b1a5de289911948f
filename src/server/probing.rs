//! Has the probes asked before an exchange: what a session knows was published by the event loop, what is true now says the file system.
//!
//! Looking may block for ever, so it has a thread of its own and little time; an exchange whose look takes longer is made without it,
//! and the next one looks again. What is published is journaled together with the exchange.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::http::HeaderMap;
use dashmap::{DashMap, DashSet};
use tokio::time::timeout;

use crate::{
    call::Call,
    event::{Event, SessionId},
    exchange::{Begins, Exchange},
    probe::{self, Moment},
    server::{
        App,
        extract::header,
        facts::{Contents, Machine},
        knowledge::Knowledge,
    },
    time::Timestamp,
    transcript::{Reader, Transcript},
};

/// The header in which a caller says how long it waits for its answer, in milliseconds.
const TIMEOUT_HEADER: &str = "aside-timeout-ms";
/// How long one waits that does not say so: what a hook has, unless its user gives it more.
const CALLER_WAITS: Duration = Duration::from_millis(150);
/// Longest time that a caller can say.
const CALLER_WAITS_MAX: Duration = Duration::from_secs(60);
/// Which part of that an exchange waits for a look: 20 of 150 ms.
const LOOK_PART: (u32, u32) = (2, 15);
/// How much longer it waits while git compares two commits, 60 of 150 ms; that takes some 10 ms on a quiet machine, once for each move
/// of a repository.
const GIT_PART: (u32, u32) = (6, 15);
/// Most calls of a session that are kept for its next look; the oldest go.
const MISSED_CALLS_MAX: usize = 64;
/// Most sessions of which calls are kept; beyond it all are forgotten.
const MISSED_SESSIONS_MAX: usize = 256;
/// Most looks under way. Each that hangs, on a mount that does not answer, holds a thread.
const LOOKS_MAX: usize = 8;

/// The looks that are under way, and what they remember of files.
#[derive(Debug, Default)]
pub(crate) struct Probing {
    /// What sessions know.
    knowledge: Knowledge,
    contents: Arc<Contents>,
    looking: DashSet<SessionId>,
    count: AtomicUsize,
    /// What exchanges whose look came too late leave to the next one.
    missed: DashMap<SessionId, Missed>,
}

/// Calls, and a prompt, that no look has had.
#[derive(Debug, Clone, Default, PartialEq)]
struct Missed {
    /// Since when the calls may have run.
    since: Option<Timestamp>,
    /// When the session was heard of last before the prompt.
    prompt_after: Option<Timestamp>,
    /// Oldest first.
    calls: Vec<Call>,
}

impl Probing {
    pub(crate) const fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// What no look has had, `calls` behind it.
    fn take_missed(&self, session: &SessionId, calls: Vec<Call>) -> Missed {
        let mut missed = self.missed.remove(session).map(|(_, missed)| missed).unwrap_or_default();
        missed.calls.extend(calls);
        missed
    }

    /// Keeps it for the next look of the session.
    fn keep_missed(&self, session: &SessionId, mut missed: Missed) {
        if missed.calls.is_empty() && missed.prompt_after.is_none() {
            return;
        }
        if self.missed.len() >= MISSED_SESSIONS_MAX {
            self.missed.clear();
        }
        missed.calls.drain(..missed.calls.len().saturating_sub(MISSED_CALLS_MAX));
        self.missed.insert(session.clone(), missed);
    }
}

/// What a harness says that a look needs.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The calls that ended since the last exchange.
    pub(crate) calls: Vec<Call>,
    /// Where the transcript is.
    pub(crate) transcript: Option<String>,
    /// Reads it.
    pub(crate) reader: Option<&'static Reader>,
    /// How long the caller waits for its answer, if it says so.
    pub(crate) patience: Option<Duration>,
}

/// How long the caller of a request waits for its answer, if it says so.
pub(crate) fn patience(headers: &HeaderMap) -> Option<Duration> {
    let millis = header(headers, TIMEOUT_HEADER)?.parse().ok()?;
    Some(Duration::from_millis(millis).min(CALLER_WAITS_MAX))
}

/// One look, for as long as it runs: at most one a session.
struct Looking {
    app: App,
    session: SessionId,
}

impl Looking {
    fn begin(app: &App, session: &SessionId) -> Option<Self> {
        let probing = app.registry.probing();
        if probing.count.load(Ordering::Relaxed) >= LOOKS_MAX || !probing.looking.insert(session.clone()) {
            return None;
        }
        probing.count.fetch_add(1, Ordering::Relaxed);
        Some(Self { app: app.clone(), session: session.clone() })
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let probing = self.app.registry.probing();
        probing.looking.remove(&self.session);
        probing.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The events that probes publish with `exchange`, before it.
///
/// Shape: none at the points at which nothing they find would be delivered, and none when they do not answer in time.
pub(crate) async fn look(app: &App, exchange: &Exchange, said: Said) -> Vec<Event> {
    if !probe::is_asked(exchange, &said.calls) {
        return Vec::new();
    }
    let now = app.now();
    let probing = app.registry.probing();
    let (view, settings) =
        probing.knowledge.view(&exchange.session, exchange.harness.workspace.as_deref(), now);
    let Said { calls, transcript, reader, patience } = said;
    let mut unseen = probing.take_missed(&exchange.session, calls);
    let since = view.known.calls_since(unseen.since);
    unseen.since = Some(since);
    unseen.prompt_after = view.known.prompt_after(exchange.point, unseen.prompt_after);
    let workspace = exchange.harness.workspace.clone().or_else(|| view.known.workspace.clone());
    if workspace.is_none() && unseen.calls.is_empty() && view.known.files.paths().next().is_none() {
        // A session that works nowhere, as many of a server do, has nothing that could differ.
        return Vec::new();
    }
    let Some(looking) = Looking::begin(app, &exchange.session) else {
        app.meters.looks_missed.fetch_add(1, Ordering::Relaxed);
        probing.keep_missed(&exchange.session, unseen);
        return Vec::new();
    };
    let unseen = Arc::new(unseen);
    let kept = Arc::clone(&unseen);
    let is_comparing = Arc::new(AtomicBool::new(false));
    let compares = Arc::clone(&is_comparing);
    let (session, point) = (exchange.session.clone(), exchange.point);
    let gauge = app.registry.gauge_of(&session);
    let has_new_context = matches!(exchange.begins, Begins::Compacted | Begins::Clear { .. });
    let utc_offset = (app.utc_offset)(now);
    let temporary = std::env::temp_dir().to_string_lossy().into_owned();
    let mut look = tokio::task::spawn_blocking(move || {
        let contents = Arc::clone(&looking.app.registry.probing().contents);
        let stopwatch = looking.app.since_boot;
        let facts =
            Machine { contents, keeps_texts: settings.files.lines, now, is_comparing: compares, stopwatch };
        let moment = Moment {
            workspace: workspace.as_deref(),
            calls: &unseen.calls,
            calls_since: since,
            prompt_after: unseen.prompt_after,
            transcript: transcript.as_deref().zip(reader).map(|(path, reader)| Transcript { path, reader }),
            gauge,
            has_new_context,
            limits: &view.limits,
            temporary: &temporary,
            others: &view.others,
            utc_offset,
            ..Moment::new(&session, point, now)
        };
        let meters = &looking.app.meters;
        let begun = meters.begin();
        let found = probe::look(&view.known, &moment, &settings, &facts);
        meters.look.observe(meters.since(begun));
        drop(looking);
        found
    });
    let part = |(part, of): (u32, u32)| patience.unwrap_or(CALLER_WAITS) * part / of;
    let mut looked = timeout(part(LOOK_PART), &mut look).await;
    if looked.is_err() && is_comparing.load(Ordering::Relaxed) {
        looked = timeout(part(GIT_PART), &mut look).await;
    }
    match looked {
        Ok(Ok(found)) => return found,
        // A probe that panics, or the daemon's end.
        Ok(Err(error)) => {
            tracing::warn!(session = %exchange.session, %error, "a look at the files ended early");
        }
        Err(_) => {
            tracing::debug!(session = %exchange.session, "looking takes too long; the next exchange looks again");
        }
    }
    app.meters.looks_missed.fetch_add(1, Ordering::Relaxed);
    probing.keep_missed(&exchange.session, Missed::clone(&kept));
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_look_has_had_is_kept_for_the_next_one_within_bounds() {
        let probing = Probing::default();
        let (session, at) = (SessionId::new("s"), Timestamp::from_millis);
        let call = |number: usize| Call { command: Some(number.to_string()), ..Call::default() };
        let missed = |since: u64, calls: &[usize]| Missed {
            since: Some(at(since)),
            calls: calls.iter().map(|number| call(*number)).collect(),
            ..Missed::default()
        };
        let fresh = |number: usize| Missed { calls: vec![call(number)], ..Missed::default() };
        assert_eq!(probing.take_missed(&session, vec![call(1)]), fresh(1));
        probing.keep_missed(&session, missed(5, &[1]));
        assert_eq!(probing.take_missed(&session, vec![call(2)]), missed(5, &[1, 2]));
        probing.keep_missed(&session, missed(5, &[]));
        assert_eq!(probing.take_missed(&session, vec![call(3)]), fresh(3), "nothing was missed");
        let prompt = Missed { prompt_after: Some(at(3)), ..missed(5, &[]) };
        probing.keep_missed(&session, prompt.clone());
        assert_eq!(probing.take_missed(&session, Vec::new()), prompt);
        probing.keep_missed(&session, missed(5, &(0..100).collect::<Vec<_>>()));
        let kept = probing.take_missed(&session, Vec::new()).calls;
        assert_eq!((kept.len(), kept.last()), (MISSED_CALLS_MAX, Some(&call(99))));
        for number in 0..MISSED_SESSIONS_MAX + 10 {
            probing.keep_missed(&SessionId::new(&number.to_string()), missed(5, &[1]));
        }
        assert!(probing.missed.len() <= MISSED_SESSIONS_MAX);
    }
}

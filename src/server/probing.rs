//! Runs the probes before an exchange: the event loop has published the session's facts, and the
//! file system has the current state.
//!
//! A look may block forever. If it may block, or has to read more than some small files, it runs on
//! its own thread with a short time limit. An exchange whose look takes longer goes ahead without
//! it, and the next one looks again. Events of a look are journaled together with the exchange.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::http::HeaderMap;
use tokio::time::timeout;

use crate::{
    call::Call,
    event::{Event, SessionId},
    exchange::{ContextChange, Exchange},
    notification::InjectionPoint,
    probe::{self, Facts, Moment, Settings, View},
    server::{
        App,
        extract::header,
        facts::{Machine, Quick},
        looks::Missed,
    },
    time::Timestamp,
    transcript::{Gauge, Reader, Transcript},
};

/// Header with the caller's timeout, in milliseconds.
const TIMEOUT_HEADER: &str = "aside-timeout-ms";
/// Timeout of a caller without that header: a hook's, unless its user configures more.
const CALLER_WAITS: Duration = Duration::from_millis(150);
/// Longest timeout that is honored.
const CALLER_WAITS_MAX: Duration = Duration::from_secs(60);
/// Share of that timeout that an exchange waits for a look: 20 of 150 ms.
const LOOK_PART: (u32, u32) = (2, 15);
/// Additional wait while git compares two commits, 60 of 150 ms; a comparison takes some 10 ms on a
/// quiet machine, once per move of a repository.
const GIT_PART: (u32, u32) = (6, 15);
/// Most concurrent looks. A look that hangs, on a mount that does not answer, occupies a thread.
const LOOKS_MAX: usize = 8;

/// The report of the harness for a look.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The calls that ended since the last exchange; before a tool, the one that begins.
    pub(crate) calls: Vec<Call>,
    /// The path of the transcript.
    pub(crate) transcript: Option<String>,
    /// The reader of its format.
    pub(crate) reader: Option<&'static Reader>,
    /// The caller's timeout, if it sends one.
    pub(crate) patience: Option<Duration>,
}

/// The timeout in the headers of a request, if it has one.
pub(crate) fn patience(headers: &HeaderMap) -> Option<Duration> {
    let millis = header(headers, TIMEOUT_HEADER)?.parse().ok()?;
    Some(Duration::from_millis(millis).min(CALLER_WAITS_MAX))
}

/// A running look: at most one per session.
struct Looking {
    app: App,
    session: SessionId,
}

impl Looking {
    fn begin(app: &App, session: &SessionId) -> Option<Self> {
        let looks = app.registry.looks();
        if looks.count.load(Ordering::Relaxed) >= LOOKS_MAX || !looks.looking.insert(session.clone()) {
            return None;
        }
        looks.count.fetch_add(1, Ordering::Relaxed);
        Some(Self { app: app.clone(), session: session.clone() })
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let looks = self.app.registry.looks();
        looks.looking.remove(&self.session);
        looks.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The input of a look, except for the state of the machine.
struct LookInput {
    session: SessionId,
    point: InjectionPoint,
    now: Timestamp,
    workspace: Option<Arc<str>>,
    view: View,
    settings: Arc<Settings>,
    calls_since: Timestamp,
    unseen: Missed,
    transcript: Option<(String, &'static Reader)>,
    gauge: Option<Gauge>,
    has_new_context: bool,
    utc_offset: i32,
    temporary: String,
    caches: Option<String>,
}

/// The user's cache folder, if the daemon runs as that user; another folder configured for a client
/// is not found.
fn caches() -> Option<String> {
    let given = |name: &str| std::env::var(name).ok().filter(|folder| folder.starts_with('/'));
    given("XDG_CACHE_HOME").or_else(|| Some(format!("{}/.cache", given("HOME")?)))
}

impl LookInput {
    /// The input of a look at `exchange`; `None` for a session without a folder, as on servers:
    /// nothing can change for it.
    fn new(app: &App, exchange: &Exchange, said: Said) -> Option<Self> {
        let (session, now) = (exchange.session.clone(), app.now());
        let looks = app.registry.looks();
        let workspace = exchange.harness.workspace.clone();
        let (view, settings) = looks.knowledge.view(&session, workspace.as_deref(), now);
        let Said { calls, transcript, reader, patience: _ } = said;
        let mut unseen = looks.take_missed(&session, exchange.point, calls);
        let calls_since = view.known.calls_since(unseen.since);
        unseen.since = Some(calls_since);
        unseen.prompt_after = view.known.prompt_after(exchange.point, unseen.prompt_after);
        let workspace = workspace.or_else(|| view.known.workspace.clone());
        if workspace.is_none() && unseen.calls.is_empty() && view.known.files.paths().next().is_none() {
            return None;
        }
        Some(Self {
            point: exchange.point,
            workspace,
            calls_since,
            unseen,
            transcript: transcript.zip(reader),
            gauge: app.registry.gauge_of(&session),
            has_new_context: matches!(
                exchange.context,
                ContextChange::Compacted | ContextChange::Cleared { .. }
            ),
            utc_offset: (app.utc_offset)(now),
            temporary: std::env::temp_dir().to_string_lossy().into_owned(),
            caches: caches(),
            session,
            now,
            view,
            settings,
        })
    }

    fn machine(&self, app: &App, is_comparing: &Arc<AtomicBool>) -> Machine {
        Machine {
            contents: Arc::clone(&app.registry.looks().contents),
            programs: Arc::clone(&app.registry.looks().programs),
            keeps_texts: self.settings.files.lines,
            now: self.now,
            is_comparing: Arc::clone(is_comparing),
            stopwatch: app.since_boot,
        }
    }

    /// The events that the probes find.
    fn run(&self, facts: &dyn Facts) -> Vec<Event> {
        let transcript = self.transcript.as_ref();
        let others = self.view.other_sessions();
        let moment = Moment {
            workspace: self.workspace.as_deref(),
            calls: &self.unseen.calls,
            calls_since: self.calls_since,
            prompt_after: self.unseen.prompt_after,
            transcript: transcript.map(|(path, reader)| Transcript { path, reader }),
            gauge: self.gauge,
            has_new_context: self.has_new_context,
            limits: &self.view.limits,
            temporary: &self.temporary,
            caches: self.caches.as_deref(),
            others: &others,
            utc_offset: self.utc_offset,
            ..Moment::new(&self.session, self.point, self.now)
        };
        probe::look(&self.view.known, &moment, &self.settings, facts)
    }

    /// Runs the probes on the caller's thread, if nothing can block and little is read; a thread
    /// would take longer than such a look.
    fn run_at_once(&self, app: &App) -> Option<Vec<Event>> {
        let known = &self.view.known;
        // The paths of a session are known after its first look.
        if known.workspace.is_none() || known.workspace != self.workspace {
            return None;
        }
        let touched = self.unseen.calls.iter().flat_map(|call| &call.touched).map(|touch| &*touch.path);
        let transcript = self.transcript.iter().map(|(path, _)| path.as_str());
        let paths = known.paths().chain(touched).chain(transcript);
        let paths = paths.chain(self.workspace.as_deref()).chain([self.temporary.as_str()]);
        if !app.registry.looks().mounts.answer_at_once(paths, known.files.devices()) {
            return None;
        }
        let machine = self.machine(app, &Arc::default());
        let quick = Quick::new(&machine);
        let stopwatch = app.meters.begin();
        // A probe that panics here panics again on a thread, where it is logged.
        let found = panic::catch_unwind(AssertUnwindSafe(|| self.run(&quick))).ok()?;
        if quick.has_left_out() {
            return None;
        }
        app.meters.look.observe(app.meters.since(stopwatch));
        Some(found)
    }
}

/// The events that probes publish with `exchange`, before it.
///
/// Shape: none at points where no finding would be delivered, and none on a timeout.
pub(crate) async fn look(app: &App, exchange: &Exchange, said: Said) -> Vec<Event> {
    if !probe::is_asked(exchange, &said.calls) {
        return Vec::new();
    }
    let patience = said.patience.unwrap_or(CALLER_WAITS);
    let Some(input) = LookInput::new(app, exchange, said) else { return Vec::new() };
    let Some(looking) = Looking::begin(app, &exchange.session) else {
        miss(app, &input);
        return Vec::new();
    };
    if let Some(found) = input.run_at_once(app) {
        return found;
    }
    let (input, is_comparing) = (Arc::new(input), Arc::new(AtomicBool::new(false)));
    let (shared, compares) = (Arc::clone(&input), Arc::clone(&is_comparing));
    let mut look = tokio::task::spawn_blocking(move || {
        let machine = shared.machine(&looking.app, &compares);
        let meters = &looking.app.meters;
        let stopwatch = meters.begin();
        let found = shared.run(&machine);
        meters.look.observe(meters.since(stopwatch));
        found
    });
    let part = |(part, of): (u32, u32)| patience * part / of;
    let mut looked = timeout(part(LOOK_PART), &mut look).await;
    if looked.is_err() && is_comparing.load(Ordering::Relaxed) {
        looked = timeout(part(GIT_PART), &mut look).await;
    }
    match looked {
        Ok(Ok(found)) => return found,
        // A probe panicked, or the daemon stops.
        Ok(Err(error)) => {
            tracing::warn!(session = %exchange.session, %error, "the probes ended early");
        }
        Err(_) => {
            tracing::debug!(session = %exchange.session, "the probes take too long; the next exchange repeats them");
        }
    }
    miss(app, &input);
    Vec::new()
}

/// Keeps the calls of a look without a result for the next exchange, and counts it.
fn miss(app: &App, input: &LookInput) {
    app.meters.looks_missed.fetch_add(1, Ordering::Relaxed);
    app.registry.looks().keep_missed(&input.session, input.point, input.unseen.clone());
}

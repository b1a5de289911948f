//! Runs the probes before an exchange: the event loop has published the session's facts, and the
//! file system has the current state.
//!
//! A look may block forever. If it may block, or has to read more than some small files, it runs on
//! its own thread with a short time limit. An exchange whose look takes longer goes ahead without
//! it, and the next one gets what it found (`probe/late.rs`). Events of a look are journaled
//! together with the exchange.

use std::{
    panic::{self, AssertUnwindSafe},
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::http::HeaderMap;
use engine::{
    call::Call,
    event::{Event, Provenance, SessionId},
    exchange::{ContextChange, Exchange},
    notification::InjectionPoint,
    probe::{self, Facts, late::Recorder},
    transcript::Reader,
};
use tokio::time::timeout;

use crate::{
    api::{
        App,
        extract::header,
        facts::{Machine, Quick},
        looks::{LateLook, LookInput, Missed},
    },
    daemon::tasks::run_blocking,
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
pub(crate) struct HarnessReport {
    /// The calls that ended since the last exchange; before a tool, the one that begins.
    pub(crate) calls: Vec<Call>,
    /// The path of the transcript.
    pub(crate) transcript: Option<String>,
    /// The reader of its format.
    pub(crate) reader: Option<&'static Reader>,
    /// The caller's timeout, if it sends one.
    pub(crate) patience: Option<Duration>,
    /// How the report arrived. Over TCP only the folder is looked at in which a process of this
    /// machine works in the session.
    pub(crate) provenance: Provenance,
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

/// The user's cache folder, if the daemon runs as that user; another folder configured for a client
/// is not found.
fn caches() -> Option<String> {
    let given = |name: &str| std::env::var(name).ok().filter(|folder| folder.starts_with('/'));
    given("XDG_CACHE_HOME").or_else(|| Some(format!("{}/.cache", given("HOME")?)))
}

/// The input of a look at `exchange`; `None` for a session without a folder, as on servers: nothing
/// can change for it.
fn input(app: &App, exchange: &Exchange, said: HarnessReport) -> Option<LookInput> {
    let (session, now) = (exchange.session.clone(), app.now());
    let looks = app.registry.looks();
    let HarnessReport { calls, transcript, reader, patience: _, provenance } = said;
    let is_remote = provenance == Provenance::Remote;
    let claimed = exchange.harness.workspace.clone().filter(|_| !is_remote);
    let (view, mut settings) = looks.knowledge.view(&session, claimed.as_deref(), now);
    // An exchange without a look may have named the folder.
    let opened_in = || looks.knowledge.folder_of(&session).filter(|_| !is_remote);
    let workspace = claimed.or_else(|| view.known.workspace.clone()).or_else(opened_in);
    let mut unseen = if is_remote {
        let folder = workspace.as_deref()?;
        if !view.known.has_repository_in(folder) {
            // What is known of the repository stays.
            Arc::make_mut(&mut settings).git.enabled = false;
        }
        Missed { calls, ..Missed::default() }
    } else {
        looks.take_missed(&session, exchange.point, calls)
    };
    let calls_since = view.known.calls_since(unseen.since);
    unseen.since = Some(calls_since);
    unseen.prompt_after = view.known.prompt_after(exchange.point, unseen.prompt_after);
    if workspace.is_none() && unseen.calls.is_empty() && view.known.files.paths().next().is_none() {
        return None;
    }
    Some(LookInput {
        point: exchange.point,
        limited_to: workspace.clone().filter(|_| is_remote),
        workspace,
        calls_since,
        unseen,
        transcript: transcript.zip(reader).filter(|_| !is_remote),
        gauges: app.registry.gauges_of(&session),
        has_new_context: matches!(exchange.context, ContextChange::Compacted | ContextChange::Cleared { .. }),
        utc_offset: (app.utc_offset)(now),
        temporary: std::env::temp_dir().to_string_lossy().into_owned(),
        caches: caches().filter(|_| !is_remote),
        session,
        now,
        view,
        settings,
    })
}

/// Whether [`input`] would find nothing to look at, known without its work: no folder, no call and
/// no facts. On servers, sessions have no folder.
fn has_no_folder(app: &App, exchange: &Exchange, said: &HarnessReport) -> bool {
    let (looks, session) = (app.registry.looks(), &exchange.session);
    let is_named = exchange.harness.workspace.is_some() || !said.calls.is_empty();
    !is_named && !looks.knowledge.knows(session) && !looks.has_missed(session)
}

fn machine(input: &LookInput, app: &App, is_comparing: &Arc<AtomicBool>) -> Machine {
    Machine {
        contents: Arc::clone(&app.registry.looks().contents),
        programs: Arc::clone(&app.registry.looks().programs),
        keeps_texts: input.settings.files.lines,
        now: input.now,
        is_comparing: Arc::clone(is_comparing),
        stopwatch: app.since_boot,
    }
}

/// Runs the probes on the caller's thread, if nothing can block and little is read; a thread would
/// take longer than such a look.
fn run_at_once(input: &LookInput, app: &App) -> Option<Vec<Event>> {
    let known = &input.view.known;
    // The paths of a session are known after its first look.
    if known.workspace.is_none() || known.workspace != input.workspace || input.limited_to.is_some() {
        return None;
    }
    let touched = input.unseen.calls.iter().flat_map(|call| &call.touched).map(|touch| &*touch.path);
    let transcript = input.transcript.iter().map(|(path, _)| path.as_str());
    let paths = known.paths().chain(touched).chain(transcript);
    let paths = paths.chain(input.workspace.as_deref()).chain([input.temporary.as_str()]);
    if !app.registry.looks().mounts.answer_at_once(paths, known.files.devices()) {
        return None;
    }
    let machine = machine(input, app, &Arc::default());
    let quick = Quick::new(&machine);
    let stopwatch = app.meters.begin();
    // A probe that panics here panics again on a thread, where it is logged.
    let found = panic::catch_unwind(AssertUnwindSafe(|| input.run(&quick))).ok()?;
    if quick.has_left_out() {
        return None;
    }
    app.meters.look.observe(app.meters.since(stopwatch));
    Some(found)
}

/// The events that probes publish with `exchange`, before it.
///
/// Shape: none at points where no finding would be delivered. On a timeout those of the session's
/// last look, if it has finished by now; those of this one are found by the next exchange.
pub(crate) async fn look(app: &App, exchange: &Exchange, said: HarnessReport) -> Vec<Event> {
    look_through(app, exchange, said, None::<fn(Machine) -> Box<dyn Facts>>).await
}

/// The same; with `through`, a look always runs on a thread and asks the machine through it.
async fn look_through(
    app: &App,
    exchange: &Exchange,
    said: HarnessReport,
    through: Option<impl FnOnce(Machine) -> Box<dyn Facts> + Send + 'static>,
) -> Vec<Event> {
    if !probe::is_asked(exchange, &said.calls) || has_no_folder(app, exchange, &said) {
        return Vec::new();
    }
    let patience = said.patience.unwrap_or(CALLER_WAITS);
    let catches_up = said.provenance != Provenance::Remote && exchange.point != InjectionPoint::BeforeTool;
    let looking = Looking::begin(app, &exchange.session);
    let Some(mut input) = input(app, exchange, said) else { return Vec::new() };
    let Some(looking) = looking else {
        miss(app, &input);
        return Vec::new();
    };
    let late = if catches_up { app.registry.looks().take_late(&exchange.session) } else { None };
    // A probe that panics here has been logged by its thread or will be by the next one.
    let caught = late.map(|late| panic::catch_unwind(AssertUnwindSafe(|| input.catch_up(&late))));
    let mut events = caught.and_then(Result::ok).unwrap_or_default();
    let at_once = if through.is_none() { run_at_once(&input, app) } else { None };
    let found = match at_once {
        Some(found) => Some(found),
        None => Box::pin(run_on_a_thread(app, looking, input, patience, through)).await,
    };
    events.extend(found.unwrap_or_default());
    events
}

/// Runs the probes on a thread; `None` if they take longer than the exchange can wait.
async fn run_on_a_thread(
    app: &App,
    looking: Looking,
    input: LookInput,
    patience: Duration,
    through: Option<impl FnOnce(Machine) -> Box<dyn Facts> + Send + 'static>,
) -> Option<Vec<Event>> {
    let (input, is_comparing) = (Arc::new(input), Arc::new(AtomicBool::new(false)));
    let (shared, compares) = (Arc::clone(&input), Arc::clone(&is_comparing));
    // Which of both came first.
    let first = Arc::new(OnceLock::new());
    let noted = Arc::clone(&first);
    let look = run_blocking(move || {
        let machine = machine(&shared, &looking.app, &compares);
        let facts: Box<dyn Facts> = match through {
            Some(through) => through(machine),
            None => Box::new(machine),
        };
        let recorder = Recorder::new(&*facts);
        let meters = &looking.app.meters;
        let stopwatch = meters.begin();
        let found = shared.run(&recorder);
        let took = meters.since(stopwatch);
        meters.look.observe(took);
        let answers = recorder.into_answers();
        // A call that was to begin has begun by the next exchange, whose caller is another one.
        let is_kept = shared.limited_to.is_none() && shared.point != InjectionPoint::BeforeTool;
        if *noted.get_or_init(|| First::Look) == First::Exchange && is_kept {
            looking.app.registry.looks().keep_late(LateLook { input: shared, answers, took });
        }
        found
    });
    let mut look = pin!(look);
    let part = |(part, of): (u32, u32)| patience * part / of;
    let mut looked = timeout(part(LOOK_PART), &mut look).await;
    if looked.is_err() && is_comparing.load(Ordering::Relaxed) {
        looked = timeout(part(GIT_PART), &mut look).await;
    }
    let is_late = looked.is_err() && *first.get_or_init(|| First::Exchange) == First::Exchange;
    if is_late {
        tracing::debug!(session = %input.session, "the probes take too long; the next exchange gets what they find");
        app.meters.looks_missed.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let looked = match looked {
        Ok(looked) => looked,
        // It finished at this moment.
        Err(_) => look.await,
    };
    match looked {
        Ok(found) => Some(found),
        // A probe panicked, or the daemon stops.
        Err(error) => {
            tracing::warn!(session = %input.session, %error, "the probes ended early");
            miss(app, &input);
            None
        }
    }
}

/// A look, or the exchange that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// The look finished.
    Look,
    /// The exchange went ahead.
    Exchange,
}

/// Keeps the calls of a look without a result for the next exchange, and counts it.
fn miss(app: &App, input: &LookInput) {
    app.meters.looks_missed.fetch_add(1, Ordering::Relaxed);
    if input.limited_to.is_some() {
        return;
    }
    app.registry.looks().keep_missed(&input.session, input.point, input.unseen.clone());
}

#[cfg(test)]
mod tests;

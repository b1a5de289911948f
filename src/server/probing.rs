//! Has the probes asked before an exchange: what a session knows comes from the event loop, what is true now from the file system.
//!
//! Looking may block for ever, so it has a thread of its own and little time; an exchange whose look takes longer is made without it,
//! and the next one looks again. What is published is journaled together with the exchange.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dashmap::DashSet;

use crate::{
    call::{Call, FindSaid},
    event::{Event, SessionId},
    exchange::{Begins, Exchange, Trigger},
    notification::InjectionPoint,
    probe::{self, Moment},
    server::{
        App,
        facts::{Contents, Machine},
    },
};

/// How long an exchange waits for a look; a hook has 150 ms in all.
const LOOK_WAIT_MAX: Duration = Duration::from_millis(20);
/// Most looks under way. Each that hangs, on a mount that does not answer, holds a thread.
const LOOKS_MAX: usize = 8;

/// The looks that are under way, and what they remember of files.
#[derive(Debug, Default)]
pub(crate) struct Probing {
    contents: Arc<Contents>,
    looking: DashSet<SessionId>,
    count: AtomicUsize,
}

/// What a harness says that a look needs.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The calls that ended since the last exchange.
    pub(crate) calls: Vec<Call>,
    /// The record of the conversation.
    pub(crate) transcript: Option<String>,
    /// Reads from it what the client says of files by itself.
    pub(crate) said_changed: Option<FindSaid>,
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
    let is_asked = match exchange.point {
        // A session that is resumed is asked with its first prompt.
        InjectionPoint::TurnStart => exchange.begins != Begins::Resumed && exchange.trigger == Trigger::Agent,
        InjectionPoint::AfterTool => true,
        InjectionPoint::Immediate | InjectionPoint::BeforeTool | InjectionPoint::TurnEnd => false,
    };
    if !is_asked {
        return Vec::new();
    }
    let Some(looking) = Looking::begin(app, &exchange.session) else { return Vec::new() };
    let now = app.now();
    let asked = app.engine.probed(exchange.session.clone(), exchange.harness.workspace.clone(), now).await;
    let Ok((view, settings)) = asked else { return Vec::new() };
    let (session, point) = (exchange.session.clone(), exchange.point);
    let workspace = exchange.harness.workspace.clone().or_else(|| view.known.workspace.clone());
    let utc_offset = (app.utc_offset)(now);
    let temporary = std::env::temp_dir().to_string_lossy().into_owned();
    let look = tokio::task::spawn_blocking(move || {
        let contents = Arc::clone(&looking.app.registry.probing().contents);
        let stopwatch = looking.app.since_boot;
        let facts = Machine { contents, keeps_texts: settings.files.lines, now, stopwatch };
        let moment = Moment {
            session: &session,
            point,
            now,
            workspace: workspace.as_deref(),
            calls: &said.calls,
            transcript: said.transcript.as_deref(),
            said_changed: said.said_changed,
            temporary: &temporary,
            others: &view.others,
            utc_offset,
        };
        let found = probe::look(&view.known, &moment, &settings, &facts);
        drop(looking);
        found
    });
    match tokio::time::timeout(LOOK_WAIT_MAX, look).await {
        Ok(Ok(found)) => found,
        // A probe that panics, or the daemon's end.
        Ok(Err(error)) => {
            tracing::warn!(session = %exchange.session, %error, "a look at the files ended early");
            Vec::new()
        }
        Err(_) => {
            tracing::debug!(session = %exchange.session, "looking takes too long; the next exchange looks again");
            Vec::new()
        }
    }
}

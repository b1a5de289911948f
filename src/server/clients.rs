//! Client facts outside the engine's state: the wake route of each session, and hook input that
//! could not be used.
//!
//! A hook reports no problem to its client, so problems are shown here. They are kept in memory,
//! and are counted from the daemon's start.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use axum::{Json, extract::State};

use crate::{
    event::{SessionId, clean_text},
    exchange::Harness,
    publisher::Records,
    server::{
        App,
        error::ApiError,
        processes::{self, Claim, ClientFolder},
    },
    time::Timestamp,
    wire::clients::{ClientsView, TroubleView},
};

/// Most kinds of problem that are counted separately; further kinds are counted together as
/// [`OTHER`].
const TROUBLES_MAX: usize = 32;
/// The name of that common count.
const OTHER: &str = "other";
/// Most characters that are kept of one problem.
const TROUBLE_CHARS_MAX: usize = 200;

/// Hook input that could not be used.
#[derive(Debug, Default)]
pub(crate) struct HookTroubles(Mutex<BTreeMap<String, Trouble>>);

#[derive(Debug)]
struct Trouble {
    count: u64,
    last: String,
    last_at: Timestamp,
}

/// The outcome of a hook call with invalid input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Consequence {
    /// It was answered without the invalid field.
    LeftOut,
    /// It was refused, and its client got no answer.
    Refused,
    /// The hook's command names an unknown harness.
    UnknownHarness,
}

impl Consequence {
    const fn as_str(self) -> &'static str {
        match self {
            Self::LeftOut => "left_out",
            Self::Refused => "refused",
            Self::UnknownHarness => "unknown_harness",
        }
    }
}

impl HookTroubles {
    /// Counts one problem of the kind `consequence` with `what`: a field, or a name.
    pub(crate) fn note(&self, consequence: Consequence, what: &str, said: &str, now: Timestamp) {
        let short = |text: &str| clean_text(text).chars().take(TROUBLE_CHARS_MAX).collect::<String>();
        let mut kind = format!("{} {}", consequence.as_str(), short(what));
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() >= TROUBLES_MAX && !troubles.contains_key(&kind) {
            OTHER.clone_into(&mut kind);
        }
        let trouble = troubles.entry(kind).or_insert(Trouble { count: 0, last: String::new(), last_at: now });
        trouble.count = trouble.count.saturating_add(1);
        trouble.last = short(said);
        trouble.last_at = now;
    }

    fn views(&self) -> Vec<TroubleView> {
        let troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let show = |(kind, trouble): (&String, &Trouble)| TroubleView {
            kind: kind.clone(),
            count: trouble.count,
            last: trouble.last.clone(),
            last_at: trouble.last_at.to_string(),
        };
        troubles.iter().map(show).collect()
    }
}

/// Shows the current wake routes of sessions, and hook input that could not be used.
#[utoipa::path(get, path = "/v1/clients", tag = "sessions", responses((status = 200, body = ClientsView)))]
pub(crate) async fn clients(State(app): State<App>) -> Result<Json<ClientsView>, ApiError> {
    let attached = app.registry.wake_routes().attached();
    Ok(Json(ClientsView { attached, troubles: app.registry.hook_troubles().views() }))
}

/// What a monitor reports about the client that started it.
#[derive(Debug)]
pub(crate) struct MonitorClient {
    pub(crate) harness: Harness,
    /// Where the client keeps its files.
    pub(crate) folder: Option<ClientFolder>,
}

impl MonitorClient {
    /// Upserts the session of this monitor.
    ///
    /// Shape: the report opens a session that no hook has reported because it began before the
    /// daemon did, and reopens an ended session: its client runs. Without the client's process
    /// nothing is opened. `peer` is the monitor's own process, if it is known.
    pub(crate) async fn attach(
        &self,
        app: &App,
        session: &SessionId,
        peer: Option<u32>,
    ) -> Result<(), ApiError> {
        let Some(pid) = self.harness.pid else { return Ok(()) };
        let now = app.engine.session_now(session.clone()).await?;
        let found = app.engine.session(now.clone()).await?;
        let is_open = found.is_some_and(|found| found.is_open);
        let session = if is_open { &now } else { session };
        let process = peer.and_then(|peer| processes::learn(app, session, peer, Claim::Pid(pid)));
        if let Some(folder) = &self.folder {
            app.registry.wake_routes().know_folder(session, folder);
        }
        if is_open {
            return Ok(());
        }
        let mut harness = self.harness.clone();
        if let Some(process) = process {
            harness.runs_in(process);
        }
        app.append(Records::build(|records| records.session_opened(session, &harness))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_are_counted_by_kind_and_bounded() {
        let troubles = HookTroubles::default();
        let now = Timestamp::from_millis;
        troubles.note(Consequence::LeftOut, "cwd", "must be absolute", now(1));
        troubles.note(Consequence::LeftOut, "cwd", &"x\u{1b}[2J".repeat(1_000), now(2));
        for number in 0..100 {
            troubles.note(Consequence::UnknownHarness, &format!("c{number}"), "", now(3));
        }
        let views = troubles.views();
        assert_eq!(views.len(), TROUBLES_MAX + 1);
        let of = |kind: &str| views.iter().find(|view| view.kind == kind).expect(kind);
        assert_eq!((of("left_out cwd").count, of("left_out cwd").last.as_str()), (2, &*"x".repeat(200)));
        assert_eq!(of("other").count, 100 - u64::try_from(TROUBLES_MAX - 1).expect("small"));
    }
}

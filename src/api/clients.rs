//! Client facts outside the engine's state: the wake route of each session, and hook input that
//! could not be used.

use axum::{Json, extract::State};
use engine::{event::SessionId, exchange::Harness, records::Records};

use crate::{
    api::{
        App,
        actor::Actor,
        error::ApiError,
        naming::session_now,
        processes::{self, IdentifiedBy},
        push::is_held,
        wake_routes::ClientFolder,
        wire::harness::ClientsView,
    },
    harness::wake::WakeRoute,
};

/// Shows the current wake routes of sessions, and hook input that could not be used.
#[cfg_attr(test, utoipa::path(get, path = "/v1/clients", tag = "sessions", responses((status = 200, body = ClientsView))))]
pub(crate) async fn clients(State(app): State<App>) -> Result<Json<ClientsView>, ApiError> {
    let routes = app.registry.wake_routes();
    let mut attached = routes.attached();
    for view in attached.iter_mut().filter(|view| view.wake_route == WakeRoute::MessageSocket.as_str()) {
        let session = SessionId::new(&view.session);
        let known = routes.sockets.get(&session).map(|known| known.clone());
        if let Some(known) = known {
            view.is_held = is_held(&app, &session, &known).await;
        }
    }
    Ok(Json(ClientsView { attached, troubles: app.registry.hook_troubles().views() }))
}

/// The report of a follower about the client that started it.
#[derive(Debug)]
pub(crate) struct FollowerClient {
    pub(crate) harness: Harness,
    /// The folder of the client's files.
    pub(crate) folder: Option<ClientFolder>,
}

impl FollowerClient {
    /// Upserts the session of this follower.
    ///
    /// Shape: opens a session that no hook has reported because it began before the daemon, and
    /// reopens an ended session, because its client runs. Opens no session if the follower reports
    /// no process id of its client. `peer` is the follower's own process, if it is known. Errors: 403 if the
    /// follower belongs to another session.
    pub(crate) async fn attach(
        &self,
        app: &App,
        session: &SessionId,
        actor: Actor,
        peer: Option<u32>,
    ) -> Result<(), ApiError> {
        let Some(pid) = self.harness.pid else { return actor.check(app, session).await };
        let now = session_now(app, session).await?;
        let known = now.clone();
        let is_open = app.engine.read(move |view| view.engine.sessions().is_open(&known)).await?;
        let session = if is_open { &now } else { session };
        let client = peer.and_then(|peer| processes::find(app, session, peer, IdentifiedBy::Pid(pid)));
        actor.check_call(app, session, client).await?;
        let process = client.map(|client| processes::know(app, session, client));
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

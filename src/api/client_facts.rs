//! What a hook call says about its client beside its exchange.

use engine::event::SessionId;

use crate::{
    api::{
        App,
        auth::{PeerPid, Route},
        client_folder::ClientFolder,
        processes::IdentifiedBy,
        wake_routes::KnownSocket,
    },
    harness::{Headers, HookCall, Transcript, kind::Kind, message_socket::MessageSocket},
};

/// What the wake routes and the search for injections need of a client.
pub(super) struct ClientFacts {
    folder: Option<ClientFolder>,
    socket: Option<MessageSocket>,
    holds_messages: Option<bool>,
    transcript: Option<Transcript>,
}

impl ClientFacts {
    /// Those of `call`. `header` returns a header of the request.
    pub(super) fn of(kind: &'static Kind, call: &HookCall, header: Headers<'_>) -> Self {
        let path = call.transcript.as_ref().and_then(|transcript| kind.client_folder(&transcript.path));
        let socket = call.then.conversation().and_then(|session| {
            let sockets = kind.message_sockets.as_ref()?;
            (sockets.find)(session, header)
        });
        Self {
            folder: path.map(|path| ClientFolder { kind, path: path.to_owned() }),
            socket,
            holds_messages: call.holds_messages,
            transcript: call.transcript.clone(),
        }
    }

    /// By what the process of the client is found, if its own id `pid` is not known.
    pub(super) fn identity(&self, pid: Option<u32>) -> Option<IdentifiedBy<'_>> {
        pid.map(IdentifiedBy::Pid).or(self.folder.as_ref().map(IdentifiedBy::SessionFile))
    }

    /// Notes them, with the session of the call. What came over TCP is ignored: a path of another
    /// machine is not read, and a socket of one not written to.
    pub(super) fn note(self, app: &App, session: Option<&SessionId>, PeerPid(peer): PeerPid, route: Route) {
        let Self { folder, socket, holds_messages, transcript } = self;
        if let (Some(session), Some(_)) = (session, peer) {
            let routes = app.registry.wake_routes();
            // `push` writes only to a socket on which this process of the client listens.
            if let Some(client) = app.registry.processes().process_of(session)
                && let Some(socket) = socket
            {
                routes.know_socket(session, KnownSocket { socket, client });
            }
            if let Some(holds) = holds_messages {
                routes.note_holding(session, holds);
            }
            if let Some(folder) = folder {
                routes.know_folder(session, &folder);
            }
        }
        if let (Some(transcript), Route::Unix) = (transcript, route) {
            // When the queue is full, the next hook of the session sends it again.
            app.transcripts.try_send(transcript).ok();
        }
    }
}

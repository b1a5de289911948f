//! The MCP server with aside's tools for agents (docs/design/mcp.md).
//!
//! A request to `/v1/mcp` on the Unix socket upgrades its connection to MCP, one JSON message a
//! line. `rmcp` implements the protocol; this module implements the tools and identifies their
//! caller. A failed tool call returns a result with `isError`, because a model sees no other error.
//!
//! Bounds: [`MCP_CONNECTIONS_MAX`](super::registry::MCP_CONNECTIONS_MAX) connections,
//! [`MESSAGE_BYTES_MAX`] and [`bounded::VALUES_MAX`] values a message, [`bounded::CALLS_MAX`]
//! concurrent calls of a connection.
#[cfg(test)]
use crate::api::wire::ErrorBody;

mod bounded;
mod caller;
mod publish;
mod tools;

use std::{
    io::{self, Cursor},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use rmcp::{
    ErrorData, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    },
    service::{RequestContext, RoleServer, RunningService, ServerInitializeError, serve_server},
    transport::{Transport, async_rw::AsyncRwTransport},
};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use uuid::Uuid;

use self::{
    bounded::{Bounded, Screened},
    caller::{Called, Caller},
};
use crate::api::{
    App,
    auth::{PeerPid, Route},
    connections::{TakenOver, Takeover},
    error::ApiError,
    extract,
    wire::formats::INSTRUCTIONS,
};

/// Longest message in bytes: a call's arguments are a few hundred characters.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Protocol name in the `Upgrade` header.
const PROTOCOL: &str = "mcp";

/// Upgrades the connection to MCP.
///
/// Only on the Unix socket, and only with `Upgrade: mcp`; `aside mcp` makes this request. Answers
/// 101, after which each side sends one JSON-RPC message a line.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/mcp", tag = "mcp",
    responses((status = 101), (status = 426, body = ErrorBody), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn connect(
    State(app): State<App>,
    route: Route,
    PeerPid(peer): PeerPid,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let asked = extract::header(&headers, header::UPGRADE.as_str());
    if route != Route::Unix || !asked.is_some_and(|asked| asked.eq_ignore_ascii_case(PROTOCOL)) {
        let message = "MCP needs the Unix socket and `Upgrade: mcp`; `aside mcp` requests it";
        return Err(ApiError::new(StatusCode::UPGRADE_REQUIRED, message));
    }
    let place = app.registry.mcp_place();
    let place =
        Arc::new(place.ok_or_else(|| ApiError::busy("the maximum number of MCP clients is connected"))?);
    let server = Server {
        caller: Caller::new(peer, &headers),
        name: Uuid::now_v7().simple().to_string().into(),
        calls: Arc::default(),
        app,
    };
    let serve = move |taken| -> futures_util::future::BoxFuture<'static, ()> {
        let (server, place) = (server.clone(), Arc::clone(&place));
        Box::pin(async move {
            serve(server, taken).await;
            drop(place);
        })
    };
    let mut answer =
        (StatusCode::SWITCHING_PROTOCOLS, [(header::CONNECTION, "upgrade"), (header::UPGRADE, PROTOCOL)])
            .into_response();
    answer.extensions_mut().insert(Takeover(Arc::new(serve)));
    Ok(answer)
}

/// Serves MCP until the client disconnects or the daemon stops.
async fn serve(server: Server, taken: TakenOver) {
    let (read, write) = tokio::io::split(taken.io);
    let read = Cursor::new(taken.read).chain(read);
    let lines =
        AsyncRwTransport::new_server(Screened::new(read), write).with_max_line_length(MESSAGE_BYTES_MAX);
    let app = server.app.clone();
    let spoken = async {
        match begin(server, lines).await {
            Ok(running) => match running.waiting().await {
                Ok(quit) => tracing::debug!(?quit, "an MCP client disconnected"),
                Err(error) => tracing::error!(%error, "an MCP connection failed"),
            },
            Err(error) => tracing::debug!(%error, "an MCP client did not initialize"),
        }
    };
    tokio::select! {
        () = spoken => {}
        () = app.stopped() => {}
    }
}

/// Performs the handshake, if the client's protocol version has one.
fn begin<T: Transport<RoleServer, Error = io::Error> + 'static>(
    server: Server,
    messages: T,
) -> impl Future<Output = Result<RunningService<RoleServer, Server>, ServerInitializeError>> + Send {
    serve_server(server, Bounded::new(messages))
}

/// One connection.
#[derive(Clone)]
struct Server {
    app: App,
    caller: Caller,
    /// Identifies the connection in the carriers of its calls.
    name: Arc<str>,
    /// Number of calls so far.
    calls: Arc<AtomicU64>,
}

impl Server {
    async fn called(&self, request: CallToolRequestParams, thread: Option<String>) -> Option<CallToolResult> {
        let call = Called {
            app: &self.app,
            caller: &self.caller,
            thread,
            carrier: format!("mcp:{}:{}", self.name, self.calls.fetch_add(1, Ordering::Relaxed)),
            arguments: Value::from(request.arguments.unwrap_or_default()).to_string(),
        };
        let answer = tools::call(&request.name, &call).await?;
        Some(match answer {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]),
        })
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("aside", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult { tools: tools::definitions(), ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.clone();
        let thread = context.meta.get(caller::THREAD).and_then(Value::as_str).map(str::to_owned);
        // Dropping the call takes back the injection that it would have carried.
        let result = tokio::select! {
            biased;
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
            result = self.called(request, thread) => result,
        };
        let unknown = || ErrorData::invalid_params(tools::unknown(&name), None);
        result.map(CallToolResponse::from).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests;

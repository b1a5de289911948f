//! All routes, and the OpenAPI document.

use axum::{
    Json, Router,
    http::{Method, StatusCode, Uri},
};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::server::{
    App, admin, clients, error::ApiError, events, exchange, history, hooks, inbox, instructions, matching,
    mcp, metrics, notify, questions, reload, sessions, shell, sources, statusline, stream, watches, webhooks,
};

/// The routes. Access control is added by the servers.
pub(crate) fn router(app: App) -> Router {
    let (router, _) = routes().split_for_parts();
    router.fallback(no_such_path).method_not_allowed_fallback(no_such_method).with_state(app)
}

/// The API as an OpenAPI document.
pub fn openapi() -> OpenApi {
    routes().split_for_parts().1
}

fn routes() -> OpenApiRouter<App> {
    let info = InfoBuilder::new()
        .title("aside")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Events in, notifications out at the safe points of an agent's turn"))
        .build();
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info).build())
        .routes(routes!(events::publish, history::events))
        .routes(routes!(stream::events))
        .routes(routes!(events::get))
        .routes(routes!(matching::explain))
        .routes(routes!(exchange::exchange))
        .routes(routes!(history::notifications))
        .routes(routes!(history::notification))
        .routes(routes!(history::messages))
        .routes(routes!(history::injections))
        .routes(routes!(history::named_injections))
        .routes(routes!(history::closed_sessions))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::get))
        .routes(routes!(sessions::wait))
        .routes(routes!(stream::session))
        .routes(routes!(exchange::undelivered))
        .routes(routes!(instructions::get))
        .routes(routes!(hooks::hook))
        .routes(routes!(statusline::status_line))
        .routes(routes!(clients::clients))
        .routes(routes!(sources::sources))
        .routes(routes!(watches::list, watches::set))
        .routes(routes!(watches::cancel))
        .routes(routes!(mcp::connect))
        .routes(routes!(webhooks::webhook))
        .routes(routes!(webhooks::list))
        .routes(routes!(webhooks::alerts))
        .routes(routes!(notify::send))
        .routes(routes!(shell::report))
        .routes(routes!(notify::sinks))
        .routes(routes!(questions::list, questions::create))
        .routes(routes!(questions::answer))
        .routes(routes!(questions::wait))
        .routes(routes!(questions::taken))
        .routes(routes!(inbox::list))
        .routes(routes!(inbox::dismiss))
        .routes(routes!(inbox::discuss))
        .routes(routes!(admin::status))
        .routes(routes!(admin::rebuild))
        .routes(routes!(reload::reload))
        .routes(routes!(admin::healthz))
        .routes(routes!(metrics::metrics))
        .routes(routes!(document))
}

/// The API as an OpenAPI document.
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "admin",
    responses((status = 200, content_type = "application/json", body = Object)),
)]
async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}

async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("unknown path `{}`; see /v1/openapi.json", uri.path()))
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("`{}` does not support {method}", uri.path()))
}

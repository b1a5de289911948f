//! All routes, and the OpenAPI document.
//!
//! The document is a file, because it changes only with the code: a test writes it from the
//! attributes of the handlers, and fails where it differs.

use axum::{
    Router,
    http::{HeaderName, Method, StatusCode, Uri, header::CONTENT_TYPE},
    routing,
};

use crate::api::{
    App, admin, clients, error::ApiError, events, exchange, explain, formats, history, hooks, inbox,
    matching, mcp, metrics, notify, questions, region, reload, respond, sessions, settings, shell, silences,
    sources, statusline, stream, subscribers, trust, watches, webhooks,
};

/// The routes. Access control is added by the servers.
pub(crate) fn router(app: App) -> Router {
    routes().fallback(no_such_path).method_not_allowed_fallback(no_such_method).with_state(app)
}

/// One row a route: its method, its path, and its handler.
macro_rules! routes {
    ($($method:ident $path:literal $module:ident :: $handler:ident,)*) => {
        fn routes() -> Router<App> {
            Router::new()$(.route($path, routing::$method($module::$handler)))*
        }

        /// The method, the path and the operation of each row.
        #[cfg(test)]
        const ROUTES: &[(&str, &str, &str)] =
            &[$((stringify!($method), $path, concat!(stringify!($module), "_", stringify!($handler)))),*];

        #[cfg(test)]
        #[derive(utoipa::OpenApi)]
        #[openapi(
            info(
                title = "aside",
                description = "Events in, notifications out at the safe points of an agent's turn"
            ),
            paths($($module::$handler),*),
        )]
        struct Attributes;
    };
}

routes! {
    post "/v1/events" events::publish,
    get "/v1/events" history::events,
    get "/v1/events/stream" stream::events,
    get "/v1/events/{id}" events::get,
    post "/v1/match" matching::explain,
    post "/v1/explain" explain::explain,
    post "/v1/sessions/{id}/exchange" exchange::exchange,
    get "/v1/notifications" history::notifications,
    get "/v1/notifications/{id}" history::notification,
    get "/v1/sessions/{id}/messages" history::messages,
    get "/v1/sessions/{id}/injections" history::injections,
    get "/v1/injections/{id}" history::named_injections,
    get "/v1/history/sessions" history::closed_sessions,
    get "/v1/sessions" sessions::list,
    get "/v1/sessions/{id}" sessions::get,
    get "/v1/sessions/{id}/wait" sessions::wait,
    get "/v1/sessions/{id}/stream" stream::session,
    get "/v1/sessions/{id}/region" region::region,
    post "/v1/sessions/{id}/undelivered/{injection}" exchange::undelivered,
    get "/v1/formats" formats::list,
    get "/v1/instructions" formats::instructions,
    post "/v1/hooks/{harness}" hooks::hook,
    post "/v1/statusline/{harness}" statusline::status_line,
    get "/v1/clients" clients::clients,
    get "/v1/sources" sources::sources,
    get "/v1/subscribers" subscribers::list,
    get "/v1/silences" silences::list,
    post "/v1/silences" silences::add,
    delete "/v1/silences/{id}" silences::expire,
    get "/v1/users/{user}/settings" settings::get,
    put "/v1/users/{user}/settings" settings::put,
    get "/v1/watches" watches::list,
    post "/v1/watches" watches::set,
    delete "/v1/watches/{id}" watches::cancel,
    post "/v1/mcp" mcp::connect,
    post "/v1/webhooks/{name}" webhooks::webhook,
    get "/v1/webhooks" webhooks::list,
    post "/api/v2/alerts" webhooks::alerts,
    post "/v1/notify" notify::send,
    post "/v1/shell" shell::report,
    get "/v1/sinks" notify::sinks,
    get "/v1/questions" questions::list,
    post "/v1/questions" questions::create,
    post "/v1/questions/{id}" questions::answer,
    get "/v1/questions/{id}/wait" questions::wait,
    post "/v1/questions/{id}/taken" questions::taken,
    get "/v1/inbox" inbox::list,
    post "/v1/notifications/{id}/dismiss" inbox::dismiss,
    post "/v1/notifications/{id}/discuss" inbox::discuss,
    post "/v1/notifications/{id}/respond" respond::respond,
    get "/v1/status" admin::status,
    post "/v1/admin/rebuild" admin::rebuild,
    post "/v1/reload" reload::reload,
    get "/v1/trust" trust::list,
    post "/v1/trust" trust::decide,
    get "/healthz" admin::healthz,
    get "/metrics" metrics::metrics,
    get "/v1/openapi.json" document::get,
}

/// The OpenAPI document.
mod document {
    use super::{CONTENT_TYPE, HeaderName};

    /// The text of the file.
    const TEXT: &str = include_str!("../../docs/openapi.json");

    /// The API as an OpenAPI document.
    #[cfg_attr(test, utoipa::path(
        get, path = "/v1/openapi.json", tag = "admin",
        responses((status = 200, content_type = "application/json", body = Object)),
    ))]
    pub(super) async fn get() -> ([(HeaderName, &'static str); 1], &'static str) {
        ([(CONTENT_TYPE, "application/json")], TEXT)
    }
}

async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("unknown path `{}`; see /v1/openapi.json", uri.path()))
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("`{}` does not support {method}", uri.path()))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, env, fs, path::Path};

    use serde_json::Value;
    use utoipa::OpenApi as _;

    use super::{Attributes, ROUTES};

    /// The document of the handlers' attributes. The name of an operation has its module, because
    /// names must be unique.
    fn built() -> Value {
        let mut document = serde_json::to_value(Attributes::openapi()).expect("serializes");
        for (method, path, operation) in ROUTES {
            document["paths"][path][method]["operationId"] = (*operation).into();
        }
        document
    }

    #[test]
    fn document_is_built_from_the_attributes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
        let built = serde_json::to_string_pretty(&built()).expect("serializes") + "\n";
        if env::var_os("ASIDE_BLESS").is_some() {
            fs::write(&path, &built).expect("written");
        }
        let file = fs::read_to_string(&path).expect("a file");
        assert!(file == built, "docs/openapi.json differs; write it with ASIDE_BLESS=1");
    }

    #[test]
    fn document_lists_every_route() {
        let document = built();
        let mut documented = Vec::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                assert!(operation["summary"].is_string() || operation["description"].is_string(), "{path}");
                assert!(operation["responses"].is_object(), "{method} {path} has no attributes");
                documented.push((method.as_str(), path.as_str()));
            }
        }
        documented.sort_unstable();
        let mut routes: Vec<_> = ROUTES.iter().map(|(method, path, _)| (*method, *path)).collect();
        routes.sort_unstable();
        assert_eq!(documented, routes);
        let operations: BTreeSet<&str> = ROUTES.iter().map(|(.., operation)| *operation).collect();
        assert_eq!(operations.len(), ROUTES.len(), "an operation has two routes");
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        for name in ["Event", "Exchange", "Answer", "StatusView", "SessionView", "ErrorBody"] {
            assert!(schemas.contains_key(name), "{name} among {:?}", schemas.keys());
        }
    }
}

//! The tools: arguments and results. Their definitions are in `tools.json`, without the words and
//! limits, which are those of the readers.

use std::sync::Arc;

use axum::http::StatusCode;
use rmcp::model::Tool;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    caller::Called,
    publish::{self, For},
};
use engine::{
    event::{EventRef, SessionId, Severity, strip_text},
    exchange::{Exchange, Trigger},
    nearest::nearest,
    notification::{Category, InjectionPoint, Level, repeat::Action},
    request::{FieldError, hint},
    sink::{CONTEXT_DEFAULT, notice::DONE, question::Awaited},
    sorted::SortedMap,
    watch::Watch,
    words::Words,
};
use journal::time::{Timestamp, short_duration};

use crate::api::{
    error::ApiError,
    exchange::perform,
    notify, questions, respond,
    watches::{self, Begun},
    wire::{
        inbox::{InboxRequest, InboxResponse},
        notify::NotifyRequest,
        questions::{Asked, QuestionRequest},
        respond::{RespondRequest, read_action},
        watches::WatchRequest,
    },
};

const DEFINITIONS: &str = include_str!("tools.json");
const NAMES: [&str; 4] = ["watch", "inbox", "notify", "publish"];
/// The arguments of `notify` in its definition.
pub(super) const NOTIFY_KEYS: [&str; 10] =
    ["message", "level", "choices", "expires", "markdown", "link", "key", "progress", "context", "category"];
/// The arguments of `notify` that only a client or a refusal names; the last two are of questions alone.
const ADDED_KEYS: [&str; 4] = ["session", "workspace", "id", "awaited"];
/// Most characters of an unknown argument that a refusal repeats.
const KEY_CHARS_MAX: usize = 64;
/// Characters of an id shown to an agent: its kind and 24 random bits, which identify a watch.
const ID_CHARS: usize = 7;

/// The tool definitions for a client.
pub(super) fn definitions() -> Vec<Tool> {
    let mut all: Value =
        serde_json::from_str(DEFINITIONS).expect("the definitions are JSON, as a test holds");
    for (argument, keyword, value) in limits() {
        let schema = all.pointer_mut(argument).and_then(Value::as_object_mut);
        schema.expect("the argument is defined, as a test holds").insert(keyword.to_owned(), value);
    }
    serde_json::from_value(all).expect("the definitions are tools, as a test holds")
}

/// The words, limits and defaults of arguments: pointer into `tools.json`, keyword of JSON Schema,
/// value.
fn limits() -> [(&'static str, &'static str, Value); 11] {
    let words = |words: Vec<&'static str>| Value::from(words);
    [
        ("/1/inputSchema/properties/respond/properties/action", "enum", words(Action::words().collect())),
        ("/2/inputSchema/properties/message", "minLength", 1.into()),
        ("/2/inputSchema/properties/level", "enum", words(Level::words().collect())),
        ("/2/inputSchema/properties/level", "default", Level::default().as_str().into()),
        ("/2/inputSchema/properties/markdown", "default", false.into()),
        ("/2/inputSchema/properties/progress", "minimum", 0.into()),
        ("/2/inputSchema/properties/progress", "maximum", DONE.into()),
        ("/2/inputSchema/properties/context", "default", CONTEXT_DEFAULT.into()),
        ("/2/inputSchema/properties/category", "enum", words(Category::words().collect())),
        ("/3/inputSchema/properties/severity", "enum", words(Severity::words().collect())),
        ("/3/inputSchema/properties/for", "enum", words(For::words().collect())),
    ]
}

/// The error for an unknown tool name.
pub(super) fn unknown(name: &str) -> String {
    let meant = nearest(name, NAMES).map(|meant| format!(": did you mean `{meant}`?")).unwrap_or_default();
    format!("unknown tool `{}`{meant}", strip_text(name))
}

/// Calls a tool; `None` for an unknown name.
pub(super) async fn call(name: &str, call: &Called<'_>) -> Option<Result<String, ApiError>> {
    match name {
        "watch" => Some(watch(call).await),
        "inbox" => Some(inbox(call).await),
        "notify" => Some(notify(call).await),
        "publish" => Some(publish::publish(call).await),
        _ => None,
    }
}

async fn watch(call: &Called<'_>) -> Result<String, ApiError> {
    let mut request = WatchRequest::read(call.arguments.as_bytes()).map_err(ApiError::bad)?;
    let session = call.session(request.session.take()).await?;
    request.cwd = request.cwd.or_else(|| call.caller.folder.clone());
    let now = call.app.now();
    Ok(match watches::begin(call.app, &request, Some(session), call.actor()).await? {
        Begun::Set(watch) => {
            format!("watching {}, {} at most", short(&watch.id), short_duration(watch.expires_at.since(now)))
        }
        Begun::Already(already) => {
            let so = already.iter().map(|condition| match &condition.state {
                Some(state) => format!("{} ({state})", condition.text),
                None => condition.text.clone(),
            });
            format!("already: {}", strip_text(&so.collect::<Vec<_>>().join(", ")))
        }
    })
}

async fn inbox(call: &Called<'_>) -> Result<String, ApiError> {
    let request = InboxRequest::read(&call.arguments).map_err(ApiError::bad)?;
    let session = call.session(request.session).await?;
    let mut watches = watches::open(call.app).await?;
    watches.retain(|watch| watch.session.as_ref() == Some(&session));
    if let Some(id) = request.cancel {
        let ended = watches::end(call.app, &watches, &id).await?;
        return Ok(format!("ended {}: {}", short(&ended.id), waits_for(&ended)));
    }
    if let Some(InboxResponse { id, action, lasts }) = request.respond {
        let now = call.app.now();
        let (action, until) = read_action(&action, lasts.as_deref(), now).map_err(ApiError::bad)?;
        let request = RespondRequest { action, until, by: None, session: Some(session.clone()) };
        respond::answer(call.app, &id, Some(session), request).await?;
        return Ok(format!("{}: {id}", action.state()));
    }
    let exchange = Exchange {
        tool: Some("inbox".into()),
        trigger: Trigger::Pull,
        ..Exchange::new(session, InjectionPoint::AfterTool, &call.carrier)
    };
    let answer = perform(call.app, std::iter::empty::<EventRef<'_>>(), &exchange).await?;
    let mut text = answer
        .injection
        .map_or_else(|| "no pending notifications".to_owned(), |injection| injection.text.to_string());
    list(&mut text, &watches, call.app.now());
    Ok(text)
}

/// Sends a notice to the user. If the session is unknown, its origin is the folder: the message
/// matters more than its origin.
async fn notify(call: &Called<'_>) -> Result<String, ApiError> {
    if check_notify(&call.arguments).map_err(ApiError::bad)? {
        return ask(call).await;
    }
    let mut request = NotifyRequest::read(call.arguments.as_bytes()).map_err(ApiError::bad)?;
    let session = speaker(call, &mut request).await?;
    Ok(notify::notify(call.app, request, session).await?.text)
}

/// Checks the names of the arguments of `notify`: a notice and a question accept different ones.
///
/// Returns whether it is a question. Errors: an unknown name, with the nearest; `expires` without
/// `choices`.
pub(super) fn check_notify(arguments: &str) -> Result<bool, FieldError> {
    // What is no object is refused by the request.
    let given: SortedMap<String, Option<IgnoredAny>> = serde_json::from_str(arguments).unwrap_or_default();
    let is_known = |key: &str| NOTIFY_KEYS.contains(&key) || ADDED_KEYS.contains(&key);
    if let Some(key) = given.keys().find(|key| !is_known(key)) {
        let message = format!("unknown field; {}", hint(key, &NOTIFY_KEYS));
        let short: String = key.chars().take(KEY_CHARS_MAX).collect();
        return Err(FieldError::new(strip_text(&short).into_owned(), message));
    }
    let is_late = given.contains_key("expires") && !given.contains_key("choices");
    if is_late {
        return Err(FieldError::new("expires", "needs `choices`; only a question expires"));
    }
    Ok(given.get("choices").is_some_and(Option::is_some))
}

async fn ask(call: &Called<'_>) -> Result<String, ApiError> {
    let mut request = QuestionRequest::read(call.arguments.as_bytes()).map_err(ApiError::bad)?;
    // A tool call cannot receive the answer later, so the session does.
    request.awaited = Awaited::BySession;
    let session = speaker(call, &mut request.notice).await?;
    // Read before the question is asked, so that the text states the whole time of a new question.
    let now = call.app.now();
    let asked = questions::ask(call.app, request, session, call.actor()).await?;
    Ok(asked_text(&asked, now))
}

/// The text for an agent about its question, which may have been asked before.
pub(super) fn asked_text(asked: &Asked, now: Timestamp) -> String {
    let Asked { question, suppressed, .. } = asked;
    let shown = suppressed.as_ref().map(|why| format!(", not shown ({why})")).unwrap_or_default();
    let ends_at: Timestamp = question.expires_at.parse().expect("the view of a question has its time");
    let ends_in = short_duration(ends_at.since(now));
    format!("asked {}{shown}; you are notified of the answer, {ends_in} at most", short(&question.id))
}

/// The session that sends a notice. Without a session, the folder is filled in.
async fn speaker(call: &Called<'_>, request: &mut NotifyRequest) -> Result<Option<SessionId>, ApiError> {
    request.workspace = request.workspace.take().or_else(|| call.caller.folder.clone());
    match request.session.take() {
        Some(named) => call.session(Some(named)).await.map(Some),
        None => match call.session(None).await {
            Ok(session) => Ok(Some(session)),
            Err(error) if error.status() == StatusCode::FORBIDDEN => Err(error),
            Err(_) => Ok(None),
        },
    }
}

/// Appends the open watches, as a table.
fn list(text: &mut String, watches: &[Arc<Watch>], now: Timestamp) {
    if watches.is_empty() {
        return;
    }
    text.push('\n');
    toon::write_table(text, "watches", &["id", "waits_for", "ends_in"], watches.len(), |out, row, column| {
        let Some(watch) = watches.get(row) else { return };
        let cell = match column {
            0 => short(&watch.id).to_owned(),
            1 => waits_for(watch),
            _ => short_duration(watch.expires_at.since(now)),
        };
        toon::write_text(out, &cell);
    });
}

fn waits_for(watch: &Watch) -> String {
    let parts: Vec<&str> = watch.parts.iter().map(|part| part.text.as_str()).collect();
    strip_text(&parts.join(", ")).into_owned()
}

fn short(id: &str) -> &str {
    id.get(..ID_CHARS).unwrap_or(id)
}

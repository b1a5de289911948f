//! The region of a session: what is true now, as one text with its `ETag`.
//!
//! Reading it changes nothing and confirms nothing. The last texts are kept until what a region can
//! have changes, so an unchanged one costs one question to the event loop.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::ETAG},
    response::{IntoResponse, Response},
};
use engine::{
    event::SessionId,
    exchange::Format,
    format::region::{REGION_TOKENS_MIN, WrittenRegion, write_region},
    hash::first_64_bits,
    notification::Tokens,
    region::Region,
    request::FieldError,
    words::Words,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::api::{
    App,
    actor::Actor,
    error::ApiError,
    extract::{Params, SessionSegment, header},
    naming::no_session,
    region_texts::{Form, RegionText},
    wire::region::RegionView,
};

/// Most tokens of a region, and how many it has if a request names no number.
/// Each call of the model pays for it, so the default is small.
const TOKENS_MAX: Tokens = Tokens(4_000);
const TOKENS_DEFAULT: Tokens = Tokens(300);

/// The form of a region.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct RegionParams {
    /// The most tokens of the text, estimated: 50 to 4000; 300 if absent.
    pub(crate) max_tokens: Option<u32>,
    /// A format that is a text; `xml` if absent.
    pub(crate) format: Option<String>,
}

/// The form of a session's region.
///
/// Errors: 400 for a number out of range, or a format that is not a text.
pub(crate) fn read_form(session: SessionId, params: &RegionParams) -> Result<Form, ApiError> {
    let max_tokens = params.max_tokens.map_or(TOKENS_DEFAULT, Tokens);
    if !(REGION_TOKENS_MIN..=TOKENS_MAX).contains(&max_tokens) {
        let message = format!("must be {REGION_TOKENS_MIN} to {TOKENS_MAX}, and not {max_tokens}");
        return Err(ApiError::bad(FieldError::new("max_tokens", message)));
    }
    let format = match params.format.as_deref() {
        None => Format::default(),
        Some(word) => text_format(word)?,
    };
    Ok(Form { session, format, max_tokens })
}

fn text_format(word: &str) -> Result<Format, ApiError> {
    let texts = Format::texts();
    Format::of_word(word).filter(|format| texts.contains(format)).ok_or_else(|| {
        let words: Vec<&str> = texts.iter().map(|format| format.as_str()).collect();
        let shown: String = word.chars().take(64).collect();
        let message = format!("`{shown}` is not one of {}", words.join(", "));
        ApiError::bad(FieldError::new("format", message))
    })
}

/// What the event loop answers.
enum Found {
    /// Nothing has changed since the kept text.
    Unchanged,
    /// The facts, after this number of changes.
    Facts(u64, Option<Box<Region>>),
}

/// The text of a region.
///
/// Errors: 404 for a session that is not known.
pub(crate) async fn written(app: &App, form: Form) -> Result<Arc<RegionText>, ApiError> {
    let kept = app.registry.regions().get(&form);
    let (known, session) = (kept.as_ref().map(|kept| kept.changes), form.session.clone());
    let found = app.engine.read(move |view| {
        let changes = view.engine.region_changes();
        match known {
            Some(known) if known == changes => Found::Unchanged,
            Some(_) | None => Found::Facts(changes, view.engine.region(&session).map(Box::new)),
        }
    });
    match (found.await?, kept) {
        (Found::Unchanged, Some(kept)) => Ok(kept),
        (Found::Facts(changes, Some(region)), _) => {
            let written = write_region(&region, form.format, form.max_tokens);
            let etag = format!("\"{:016x}\"", first_64_bits(Sha256::new_with_prefix(&written.text)));
            let new = Arc::new(RegionText { form, changes, etag, written });
            app.registry.regions().keep(&new);
            Ok(new)
        }
        (Found::Unchanged | Found::Facts(..), _) => Err(no_session(app, &form.session).await),
    }
}

/// Shows what is true for a session now, as one text for a dynamic section of its prompt: conditions
/// that hold, retained states, the state of the editor, the newest changes of files.
///
/// The same facts are the same bytes. The answer has an `ETag`; with it in `If-None-Match` an
/// unchanged region is 304. Reading it changes nothing, and confirms no notification.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/sessions/{id}/region", tag = "sessions",
    params(
        ("id" = String, Path, description = "The session"), RegionParams,
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of an earlier answer"),
    ),
    responses(
        (status = 200, body = RegionView), (status = 304, description = "The region is unchanged"),
        (status = 400, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn region(
    State(app): State<App>,
    SessionSegment(session): SessionSegment,
    actor: Actor,
    Params(params): Params<RegionParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    actor.check(&app, &session).await?;
    let kept = written(&app, read_form(session, &params)?).await?;
    let tag: [(HeaderName, HeaderValue); 1] =
        [(ETAG, HeaderValue::from_str(&kept.etag).expect("quotes and hexadecimal digits"))];
    let is_known = header(&headers, "if-none-match").is_some_and(|tags| has_tag(tags, &kept.etag));
    if is_known {
        return Ok((StatusCode::NOT_MODIFIED, tag).into_response());
    }
    let WrittenRegion { text, tokens, shown, left_out } = &kept.written;
    let view = RegionView {
        format: kept.form.format.as_str(),
        text,
        tokens: tokens.0,
        shown: *shown,
        left_out: *left_out,
    };
    Ok((tag, Json(view)).into_response())
}

/// Whether a list of entity tags has one, also as a weak tag; `*` has any.
fn has_tag(tags: &str, tag: &str) -> bool {
    tags.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_tags_has_one_of_them() {
        for (tags, expected) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(has_tag(tags, "\"a\""), expected, "{tags}");
        }
    }

    #[test]
    fn the_form_has_limits() {
        for (max_tokens, format, expected) in [
            (Some(49), None, "max_tokens: must be 50 to 4000, and not 49"),
            (Some(4_001), None, "max_tokens: must be 50 to 4000, and not 4001"),
            (
                None,
                Some("system_message"),
                "format: `system_message` is not one of xml, xml_each, markdown, toon, json, line, user_prefix",
            ),
        ] {
            let params = RegionParams { max_tokens, format: format.map(str::to_owned) };
            let found =
                read_form(SessionId::new("s1"), &params).map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(found, Err(expected.to_owned()));
        }
    }
}

//! The instructions for a model of a loop of one's own.

use axum::Json;

use crate::api::wire::exchange::{INSTRUCTIONS, InstructionsView};

/// Shows what the texts of aside are, for a model's instructions.
#[cfg_attr(test, utoipa::path(get, path = "/v1/instructions", tag = "sessions", responses((status = 200, body = InstructionsView))))]
pub(crate) async fn get() -> Json<InstructionsView> {
    Json(InstructionsView { instructions: INSTRUCTIONS })
}

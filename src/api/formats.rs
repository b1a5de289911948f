//! What a harness asks about the texts: the formats, and the instructions for its model.

use axum::Json;
use engine::{
    exchange::Dialect,
    format::{ROWS, Row, sizes, tool},
};

use crate::api::wire::formats::{FormatView, FormatsView, INSTRUCTIONS, InstructionsView, TokensView};

/// Lists the formats of injections: where each is put, and its cost.
#[cfg_attr(test, utoipa::path(get, path = "/v1/formats", tag = "sessions", responses((status = 200, body = FormatsView))))]
pub(crate) async fn list() -> Json<FormatsView> {
    Json(FormatsView { formats: ROWS.iter().map(view).collect() })
}

fn view(row: &Row) -> FormatView {
    let (format, [one, ten]) = (row.format, sizes(row.format).map(|tokens| tokens.0));
    let dialects = format.dialects();
    let with_tool = |dialect: &Dialect| Some((dialect.as_str().to_owned(), tool(format, *dialect)?));
    FormatView {
        format: format.as_str(),
        field: format.field().as_str(),
        placement: row.placement,
        tokens: TokensView { one, ten },
        dialects: dialects.iter().map(|dialect| dialect.as_str()).collect(),
        tools: dialects.iter().filter_map(with_tool).collect(),
    }
}

/// Shows what the texts of aside are, for a model's instructions.
#[cfg_attr(test, utoipa::path(get, path = "/v1/instructions", tag = "sessions", responses((status = 200, body = InstructionsView))))]
pub(crate) async fn instructions() -> Json<InstructionsView> {
    Json(InstructionsView { instructions: INSTRUCTIONS })
}

//! Whether the templates and conditions of the active rules work.

use super::Check;
use crate::cli::{Context, failing};

const NAME: &str = "templates";

/// One check per failed template and `where`; none when all is well, or the daemon does not answer.
pub(super) fn checks(context: &Context<'_>) -> Vec<Check> {
    let lines = failing::lines(context).unwrap_or_default();
    let check = |found| Check::warn(NAME, found, "fix it, then aside reload; no event was lost");
    lines.into_values().flatten().map(check).collect()
}

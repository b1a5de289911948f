//! Whether the templates and conditions of the rules in force work.

use super::Check;
use crate::cli::{Context, failing};

const NAME: &str = "templates";

/// One check for each template and `where` that failed; none when all is well, or the daemon does not say.
pub(super) fn checks(context: &Context<'_>) -> Vec<Check> {
    let lines = failing::lines(context).unwrap_or_default();
    let check = |found| Check::warn(NAME, found, "mend it, then aside reload; no event was lost");
    lines.into_values().flatten().map(check).collect()
}

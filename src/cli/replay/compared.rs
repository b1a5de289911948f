//! What was compared, for a page.

use super::judge::Judged;
use crate::{comparison::Outcome, daemon::rerun::Extent};

pub(super) struct Compared<'a> {
    /// The argument of `--since`.
    pub(super) since: Option<&'a str>,
    pub(super) outcome: Outcome,
    pub(super) extent: Extent,
    pub(super) judged: Option<Judged>,
}

//! How the probes of `aside doctor` are recognized.

use crate::api::wire::sources::{DOCTOR_AGENT as AGENT, DOCTOR_SESSION as SESSION};

/// The source of a probe's event.
pub(super) const SOURCE: &str = "doctor";

/// Whether this is the session of a round trip, which is hidden from the history by default.
pub(super) fn is_probe(session: Option<&str>) -> bool {
    let parts = session.and_then(|session| session.split_once('/'));
    parts.is_some_and(|(parent, agent)| parent.starts_with(SESSION) && agent == AGENT)
}

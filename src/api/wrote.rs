//! Forwards file changes of sessions' calls to the source that checks written files.

use std::sync::Arc;

use engine::{
    call::{Call, TouchKind},
    event::Provenance,
    exchange::Exchange,
    notification::InjectionPoint,
};

use crate::{
    api::{App, auth::Route},
    capability::lsp::{Writer, source::writes::Wrote},
};

/// Records the calls that ended before `exchange`, if its harness is trusted: input over TCP must
/// not start a check.
pub(crate) fn note(app: &App, route: Route, exchange: &Exchange, calls: &[Call]) {
    let has_ended = exchange.point != InjectionPoint::BeforeTool && !calls.is_empty();
    if !has_ended || route.of_observations() != Provenance::Harness {
        return;
    }
    app.registry.sources().writes.add(|| {
        let written =
            calls.iter().flat_map(|call| &call.touched).filter(|touch| touch.by == TouchKind::Written);
        let writer =
            Writer { session: exchange.session.clone(), workspace: exchange.harness.workspace.clone() };
        Wrote { writer, paths: written.map(|touch| Arc::clone(&touch.path)).collect() }
    });
}

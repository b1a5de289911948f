//! What would become of an event on a fresh start from the files.

use std::sync::Arc;

use engine::{
    Engine, Input, Outcome,
    draft::{Defaults, Draft},
    event::{Event, Provenance, Seq, catalogue::OwnSeverities},
    request::FieldError,
};
use journal::time::{Timestamp, zone::Zone};

use crate::config::compile::Compiled;

/// The outcome that an event, as it is published, would have at `now` in an engine without a state.
///
/// Errors: the first wrong field of the event.
pub fn foresee(
    compiled: &Compiled,
    event: &[u8],
    provenance: Provenance,
    now: Timestamp,
    zone: Zone,
) -> Result<(Event, Outcome), FieldError> {
    let severities = OwnSeverities::new(&compiled.events);
    let defaults = Defaults::api(now, provenance, &severities);
    let event = Draft::read(event, &defaults, &mut || "explained".to_owned())?.as_event().to_event();
    let mut engine = Engine::new(Arc::new(compiled.rules.clone()));
    engine.handle(Input::ZoneChanged(zone), now);
    while engine.poll_output().is_some() {}
    let outcome = engine.outcome_of(Seq(1), &event, now);
    Ok((event, outcome))
}

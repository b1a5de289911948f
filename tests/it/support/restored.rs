//! An engine that was written and read again, as a restart from a snapshot does.

use std::sync::Arc;

use engine::{Engine, Saved, event::Seq};
use journal::time::Timestamp;

/// Returns `engine` after a snapshot and a restart.
///
/// # Panics
/// If the restored state serializes differently, or waits for something else.
pub(crate) fn restored(engine: &Engine) -> Engine {
    let bytes = written(engine);
    let saved = Saved::read(&bytes).expect("just written");
    let restored = Engine::restored(Arc::clone(engine.rules()), saved);
    assert!(written(&restored) == bytes, "what was read is written otherwise");
    assert_eq!(restored.poll_timeout(), engine.poll_timeout());
    restored
}

/// The bytes of its state.
pub(crate) fn written(engine: &Engine) -> Vec<u8> {
    engine.save(Seq::ZERO, Timestamp::ZERO).expect("it can be written")
}

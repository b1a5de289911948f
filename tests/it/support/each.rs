//! A subscriber that delivers each event of one type, and these events.

use std::path::Path;

use aside::{
    config::layers::{LayerKind, SourceFile, Sources},
    daemon::rules::RulesStore,
};
use engine::event::{Event, Payload, Provenance, SessionId, Severity};
use journal::time::Timestamp;
use serde_json::json;

/// The subscriber's file.
pub(crate) const EACH: &str = "[subscriber]\nid = \"each\"\n[events]\ntypes = [\"test.each\"]\n[batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\n";

/// Stores rules that have only this subscriber in `folder`; returns their hash.
pub(crate) fn keep_rules(folder: &Path) -> String {
    let sources = Sources::new([SourceFile {
        layer: LayerKind::User,
        name: "subscribers/each.toml".into(),
        path: "each.toml".into(),
        text: EACH.into(),
    }]);
    RulesStore::new(folder).keep(&sources).expect("kept")
}

/// The `n`-th event, of the session `s`, at `n` milliseconds.
pub(crate) fn event(n: u64) -> Event {
    Event {
        id: format!("e{n}").into(),
        event_type: "test.each".parse().expect("a type"),
        source: "test".into(),
        provenance: Provenance::Local,
        severity: Severity::Info,
        timestamp: Timestamp::from_millis(n),
        payload: Payload::from(json!({ "n": n })),
        dedupe_key: None,
        session: Some(SessionId::new("s")),
        workspace: None,
        cause: None,
        deliver_after: None,
    }
}

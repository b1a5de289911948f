//! The newest changes of files, each path once: a fold over `fs.file.*` and `fs.known.*`.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::scoped::Scoped;
use crate::{
    event::{EventRef, Scope, Seq, Trust, cut_text, strip_text},
    fold::{Dispatched, Effects, Fold},
    session::Succession,
};

/// Most changes of a region.
///
/// Source: the newest ten, which a model reads at a glance; older ones were delivered.
const CHANGES_MAX: usize = 10;
/// Most characters of a field.
const FIELD_CHARS_MAX: usize = 200;
/// The types, before their last segment.
const FAMILIES: [&str; 2] = ["fs.file.", "fs.known."];

/// A change of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// The position of its event.
    pub seq: Seq,
    /// The path, as the event has it.
    pub path: Arc<str>,
    /// The last segment of the event's type, such as `modified`.
    pub change: Arc<str>,
    /// The earlier path of a renamed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Arc<str>>,
    /// Who changed it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
    /// The source of the event, if that is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted_source: Option<Arc<str>>,
}

/// The newest changes of files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ChangedFiles {
    /// The newest last.
    scopes: Scoped<VecDeque<FileChange>>,
    #[serde(skip)]
    changes: u64,
}

impl ChangedFiles {
    /// The newest changes in the scopes that `is_wanted` selects, the newest first, each path of a
    /// source once.
    pub(crate) fn newest(&self, is_wanted: impl Fn(&Scope) -> bool) -> Vec<FileChange> {
        let mut all: Vec<&FileChange> = self.scopes.of(is_wanted).flatten().collect();
        all.sort_by_key(|change| std::cmp::Reverse(change.seq));
        let mut newest: Vec<FileChange> = Vec::with_capacity(CHANGES_MAX);
        for change in all {
            let is_same = |one: &FileChange| is_about(one, change);
            if newest.len() < CHANGES_MAX && !newest.iter().any(is_same) {
                newest.push(change.clone());
            }
        }
        newest
    }

    /// Number of changes since the start of the process.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}

/// Whether both are about one path, by sources of one trust.
fn is_about(one: &FileChange, other: &FileChange) -> bool {
    one.path == other.path && one.untrusted_source == other.untrusted_source
}

impl Fold for ChangedFiles {
    type Settings = ();

    fn observe(&mut self, dispatched: &Dispatched<'_>, (): &(), _: &mut Effects) -> bool {
        let Dispatched { seq, event, trust, .. } = *dispatched;
        let kind = FAMILIES.iter().find_map(|family| event.event_type.strip_prefix(family));
        let Some(change) = kind.and_then(|kind| read(seq, event, trust, kind)) else { return false };
        let own = self.scopes.change(event.scope());
        own.retain(|earlier| !is_about(earlier, &change));
        own.push_back(change);
        own.drain(..own.len().saturating_sub(CHANGES_MAX));
        self.changes += 1;
        false
    }

    fn follow(&mut self, change: &Succession, _: &mut Effects) {
        self.changes += u64::from(self.scopes.follow(change));
    }
}

/// The change that an event reports; `None` without a path.
fn read(seq: Seq, event: &EventRef<'_>, trust: Trust, kind: &str) -> Option<FileChange> {
    #[derive(Deserialize)]
    struct Changed {
        path: String,
        #[serde(default)]
        from: Option<serde_json::Value>,
        #[serde(default)]
        by: Option<serde_json::Value>,
    }
    let Changed { path, from, by } = serde_json::from_str(event.payload).ok()?;
    let text = |value: Option<serde_json::Value>| value?.as_str().map(cleaned);
    Some(FileChange {
        seq,
        path: cleaned(&path),
        change: cleaned(kind),
        from: text(from),
        by: text(by),
        untrusted_source: (!trust.is_trusted()).then(|| event.source.into()),
    })
}

/// A text for an agent, of bounded length.
pub(super) fn cleaned(text: &str) -> Arc<str> {
    (&*cut_text(strip_text(text), FIELD_CHARS_MAX)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Event, EventType, Payload},
        snapshot,
    };

    fn take(files: &mut ChangedFiles, seq: u64, name: &str, payload: &str, trust: Trust) {
        let name: EventType = name.parse().expect("a type");
        let event = Event::example(name, Payload::parse(payload).expect("a payload"));
        let event = event.as_ref();
        let now = journal::time::Timestamp::ZERO;
        let dispatched = Dispatched { trust, ..Dispatched::trusted(Seq(seq), &event, now) };
        assert!(!files.observe(&dispatched, &(), &mut Effects::default()));
    }

    fn said(files: &ChangedFiles) -> Vec<String> {
        let said = |one: &FileChange| {
            let source = one.untrusted_source.as_deref().unwrap_or("-");
            format!("{} {} {source}", one.path, one.change)
        };
        files.newest(|_| true).iter().map(said).collect()
    }

    #[test]
    fn the_newest_change_of_each_path_is_kept() {
        let mut files = ChangedFiles::default();
        take(&mut files, 1, "fs.file.created", r#"{"path":"a.rs"}"#, Trust::Trusted);
        take(&mut files, 2, "fs.known.modified", r#"{"path":"b.rs","by":"session x"}"#, Trust::Trusted);
        take(&mut files, 3, "fs.file.modified", r#"{"path":"a.rs"}"#, Trust::Trusted);
        take(&mut files, 4, "fs.file.deleted", r#"{"path":"a.rs"}"#, Trust::Untrusted);
        take(&mut files, 5, "fs.file.deleted", r#"{"no":"path"}"#, Trust::Trusted);
        take(&mut files, 6, "fs.write.held", r#"{"path":"c.rs"}"#, Trust::Trusted);
        let source =
            Event::example("a.b".parse().expect("a type"), Payload::parse("{}").expect("an object")).source;
        let expected =
            [&format!("a.rs deleted {source}"), "a.rs modified -", "b.rs modified -"].map(str::to_owned);
        assert_eq!(said(&files), expected);
        let bytes = snapshot::write(&files).expect("written");
        assert_eq!(said(&snapshot::read::<ChangedFiles>(&bytes).expect("read")), expected);
    }

    #[test]
    fn ten_changes_and_bounded_texts_are_kept() {
        let mut files = ChangedFiles::default();
        for seq in 1..=CHANGES_MAX as u64 + 5 {
            let payload = format!(r#"{{"path":"{}/{seq:02}.rs"}}"#, "x".repeat(1_000));
            take(&mut files, seq, "fs.file.modified", &payload, Trust::Trusted);
        }
        let newest = files.newest(|_| true);
        assert_eq!((newest.len(), newest[0].seq.0), (1, 15), "equal up to the bound");
        for seq in 20..=40 {
            let payload = format!(r#"{{"path":"{seq}.rs"}}"#);
            take(&mut files, seq, "fs.file.modified", &payload, Trust::Trusted);
        }
        assert_eq!(files.newest(|_| true).len(), CHANGES_MAX);
    }
}

//! File changes that were published for a folder. A session is not notified of a content that it
//! wrote or read, or of which it was notified before.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{facts::ContentHash, files};
use crate::event::{EventRef, Seq};

/// Prefix of the types of such events.
const PREFIX: &str = "fs.file.";
/// Most kept changes; a session is notified of an older one even if it has that content.
const CHANGES_MAX: usize = 1_024;

/// The newest changes, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Published(VecDeque<Change>);

#[derive(Debug, Serialize, Deserialize)]
struct Change {
    seq: Seq,
    /// Absolute.
    path: Arc<str>,
    /// The file's content after the change; `None` if it was deleted.
    content: Option<ContentHash>,
}

impl Published {
    /// Records a file change from aside's own events. A change without its content is not kept.
    pub(super) fn note(&mut self, seq: Seq, event: &EventRef<'_>) {
        #[derive(Deserialize)]
        struct Payload {
            path: String,
            kind: String,
            content: Option<ContentHash>,
        }
        let Some(folder) = event.workspace else { return };
        if !event.provenance.is_of_daemon() || !event.event_type.starts_with(PREFIX) {
            return;
        }
        let Ok(Payload { path, kind, content }) = serde_json::from_str(event.payload) else { return };
        if content.is_none() && kind != "deleted" {
            return;
        }
        let path =
            if path.starts_with('/') { path } else { format!("{}/{path}", folder.trim_end_matches('/')) };
        self.0.push_back(Change { seq, path: path.into(), content });
        self.0.drain(..self.0.len().saturating_sub(CHANGES_MAX));
    }

    /// Whether `known` has each file of these events in the state of the newest event about it.
    pub(super) fn are_known(&self, events: &[Seq], known: &files::Known) -> bool {
        let is_known = |seq: &Seq| {
            let found = self.0.binary_search_by_key(seq, |change| change.seq).ok();
            let path = found.and_then(|place| self.0.get(place)).map(|change| &change.path);
            let newest = path.and_then(|path| self.0.iter().rfind(|change| change.path == *path));
            newest.is_some_and(|change| known.has(&change.path, change.content))
        };
        !self.0.is_empty() && !events.is_empty() && events.iter().all(is_known)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::event::{Event, Payload, Provenance, Severity};
    use journal::time::Timestamp;

    fn published(changes: &[(u64, Value)]) -> Published {
        let mut published = Published::default();
        for (seq, payload) in changes {
            let event = Event::own("fs.file.modified", "e", Severity::Info, payload.clone(), Timestamp::ZERO);
            let event = Event { workspace: Some("/w/".into()), ..event };
            published.note(Seq(*seq), &event.as_ref());
        }
        published
    }

    fn change(path: &str, content: u64) -> Value {
        json!({ "path": path, "kind": "modified", "content": format!("{content:016x}") })
    }

    /// A session that knows `/w/a` with the content 7, and `/w/b` as deleted.
    fn known() -> files::Known {
        let present = json!({ "print": "1:2:3:4:5", "hash": format!("{:016x}", 7) });
        let file = |state: Value| json!({ "by": "written", "state": state });
        let files = json!({ "/w/a": file(json!({ "present": present })), "/w/b": file(json!("absent")) });
        serde_json::from_value(json!({ "files": files })).expect("what a session knows")
    }

    #[test]
    fn a_session_knows_changes_by_their_newest_content() {
        let deleted = json!({ "path": "/w/b", "kind": "deleted" });
        for (what, changes, asked, expected) in [
            ("its own content", vec![(3, change("a", 7))], &[3][..], true),
            ("another content", vec![(3, change("a", 8))], &[3], false),
            ("an unknown file", vec![(3, change("c", 7))], &[3], false),
            ("gone", vec![(3, deleted.clone())], &[3], true),
            ("an earlier content of its own", vec![(3, change("a", 8)), (5, change("a", 7))], &[3], true),
            ("its own and then another", vec![(3, change("a", 7)), (5, change("a", 8))], &[3], false),
            ("one of two", vec![(3, change("a", 7)), (5, change("c", 7))], &[3, 5], false),
            ("without a content", vec![(3, json!({ "path": "a", "kind": "modified" }))], &[3], false),
            ("another event", vec![(3, change("a", 7))], &[4], false),
            ("nothing", vec![(3, change("a", 7))], &[], false),
        ] {
            let asked: Vec<Seq> = asked.iter().map(|seq| Seq(*seq)).collect();
            assert_eq!(published(&changes).are_known(&asked, &known()), expected, "{what}");
        }
    }

    #[test]
    fn only_own_changes_are_noted_within_the_bound() {
        let mut published = published(&[(1, change("a", 7))]);
        let mut event = Event::own("fs.file.modified", "e", Severity::Info, json!({}), Timestamp::ZERO);
        event.workspace = Some("/w".into());
        event.provenance = Provenance::Local;
        event.payload = Payload::from(change("a", 7));
        published.note(Seq(2), &event.as_ref());
        assert!(!published.are_known(&[Seq(2)], &known()));
        event.provenance = Provenance::Quoted;
        (3..=CHANGES_MAX as u64 + 2).for_each(|seq| published.note(Seq(seq), &event.as_ref()));
        assert!(!published.are_known(&[Seq(1)], &known()) && published.are_known(&[Seq(3)], &known()));
    }
}

//! The last texts of regions, and the number of changes of what regions can have.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use engine::{event::SessionId, exchange::Format, format::region::WrittenRegion, notification::Tokens};
use tokio::sync::watch;

/// Most kept texts: one for each of the sessions that work at a time on a machine.
const KEPT_MAX: usize = 64;

/// What a text depends on, in addition to the facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) session: SessionId,
    pub(crate) format: Format,
    pub(crate) max_tokens: Tokens,
}

/// A text with its tag.
#[derive(Debug)]
pub(crate) struct RegionText {
    pub(crate) form: Form,
    /// The number of changes after which it was written.
    pub(crate) changes: u64,
    /// The entity tag, with its quotes.
    pub(crate) etag: String,
    pub(crate) written: WrittenRegion,
}

/// The last texts, and what tells that they may have changed.
#[derive(Debug, Default)]
pub struct RegionTexts {
    /// The one that was read last at the end.
    kept: Mutex<VecDeque<Arc<RegionText>>>,
    changes: watch::Sender<u64>,
}

impl RegionTexts {
    /// The kept text of a form, which may be out of date.
    pub(crate) fn get(&self, form: &Form) -> Option<Arc<RegionText>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|kept| kept.form == *form)?;
        let found = kept.remove(at)?;
        kept.push_back(Arc::clone(&found));
        Some(found)
    }

    /// Keeps a text in place of an earlier one of its form.
    pub(crate) fn keep(&self, new: &Arc<RegionText>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| kept.form != new.form);
        kept.push_back(Arc::clone(new));
        let over = kept.len().saturating_sub(KEPT_MAX);
        kept.drain(..over);
    }

    /// Notes the number of changes of what regions can have.
    pub fn note_changes(&self, changes: u64) {
        self.changes.send_if_modified(|known| std::mem::replace(known, changes) != changes);
    }

    /// Follows the number of changes.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(session: &str) -> Form {
        Form { session: SessionId::new(session), format: Format::Xml, max_tokens: Tokens(300) }
    }

    #[test]
    fn the_text_read_longest_ago_makes_room() {
        let texts = RegionTexts::default();
        for number in 0..=KEPT_MAX {
            let written = WrittenRegion { text: String::new(), tokens: Tokens(0), shown: 0, left_out: 0 };
            let (form, etag) = (form(&number.to_string()), String::new());
            texts.keep(&Arc::new(RegionText { form, changes: 0, etag, written }));
            texts.get(&self::form("1"));
        }
        let has = |name: &str| texts.get(&form(name)).is_some();
        assert_eq!([has("0"), has("1"), has("2"), has(&KEPT_MAX.to_string())], [false, true, true, true]);
    }

    #[test]
    fn followers_see_changes_only() {
        let texts = RegionTexts::default();
        let mut follower = texts.follow();
        let mut has_changed = |changes| {
            texts.note_changes(changes);
            let changed = follower.has_changed().expect("it is followed");
            follower.borrow_and_update();
            changed
        };
        assert_eq!(
            [has_changed(0), has_changed(3), has_changed(3), has_changed(4)],
            [false, true, false, true]
        );
    }
}

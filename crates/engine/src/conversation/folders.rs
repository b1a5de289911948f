//! Finds the sessions in, under or above a folder without checking each session.
//!
//! Folders are in text order, so those under one are adjacent, and those above one are as many as
//! it has segments. [`Scope::concerns`](crate::event::Scope::concerns) defines the relation of two
//! folders; this is only an index.

use std::sync::Arc;

use super::key::SessionKey;

use crate::sorted::{SortedMap, SortedSet};

/// The sessions that have a folder and get notifications for it.
#[derive(Debug, Default)]
pub(super) struct Folders {
    /// Without trailing slashes.
    by_folder: SortedMap<Box<str>, SortedSet<SessionKey>>,
    of: SortedMap<SessionKey, Arc<str>>,
    /// Whether a folder was added or removed since [`Self::take_changes`].
    has_changed: bool,
}

impl Folders {
    /// Sets a session's folder; `None` if it has none, has ended, or gets only notifications
    /// addressed to it.
    pub(super) fn set(&mut self, key: SessionKey, folder: Option<&Arc<str>>) {
        if self.of.get(&key) == folder {
            return;
        }
        if let Some(previous) = self.of.remove(&key) {
            let previous = without_end(&previous);
            if let Some(sessions) = self.by_folder.get_mut(previous) {
                sessions.remove(&key);
                if sessions.is_empty() {
                    self.by_folder.remove(previous);
                    self.has_changed = true;
                }
            }
        }
        if let Some(folder) = folder {
            self.of.insert(key, Arc::clone(folder));
            let sessions = self.by_folder.get_or_default(without_end(folder).into());
            self.has_changed |= sessions.is_empty();
            sessions.insert(key);
        }
    }

    /// The folders in order, if one was added or removed since the last call.
    pub(super) fn take_changes(&mut self) -> Option<Arc<[Arc<str>]>> {
        let changed = std::mem::take(&mut self.has_changed);
        changed.then(|| self.by_folder.keys().map(|folder| Arc::from(&**folder)).collect())
    }

    /// The sessions in, under or above `folder`, folder by folder.
    pub(super) fn around<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = SessionKey> + 'a {
        let folder = without_end(folder);
        let above = folder.match_indices('/').filter_map(|(end, _)| self.by_folder.get(folder.get(..end)?));
        let within = format!("{folder}/");
        let under = self.by_folder.range_from(within.as_str()).iter();
        let under = under.take_while(move |(other, _)| other.starts_with(&within));
        let under = under.map(|(_, sessions)| sessions);
        above.chain(self.by_folder.get(folder)).chain(under).flatten().copied()
    }
}

fn without_end(folder: &str) -> &str {
    folder.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{Scope, SessionId};

    proptest! {
        #[test]
        fn the_folder_index_finds_exactly_the_concerned_sessions(
            moves in prop::collection::vec((0..6_u8, prop::option::of("(/?[ab!0]{0,2}){0,4}/{0,2}")), 1..20),
            folder in "(/?[ab!0]{0,2}){0,4}/{0,2}",
        ) {
            let (mut folders, mut of) = (Folders::default(), SortedMap::new());
            for (number, own) in moves {
                let (key, own) = (SessionKey(number.into()), own.map(Arc::<str>::from));
                folders.set(key, own.as_ref());
                of.insert(key, own);
            }
            let any = SessionId::new("any");
            let scope = Scope::Workspace(folder.as_str().into());
            let concerned = of.iter().filter(|(_, own)| scope.concerns(&any, own.as_deref()));
            let concerned: Vec<SessionKey> = concerned.map(|(key, _)| *key).collect();
            let mut around: Vec<SessionKey> = folders.around(&folder).collect();
            around.sort_unstable();
            prop_assert_eq!(around, concerned);
            let all: SortedSet<&str> = of.values().flatten().map(|folder| without_end(folder)).collect();
            let taken = folders.take_changes().unwrap_or_default();
            prop_assert!(taken.iter().map(|folder| &**folder).eq(all));
            prop_assert!(folders.take_changes().is_none());
            of.keys().for_each(|key| folders.set(*key, None));
            prop_assert!(folders.by_folder.is_empty() && folders.of.is_empty());
        }
    }
}

//! Problems that keep entries of `[[sources.NAME]]` from working. The commands `aside sources` and
//! `aside doctor` show them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::sorted::{SortedMap, SortedSet};

/// Most kept problems of a source.
const TROUBLES_MAX: usize = 64;

/// By source, then by entry and part of the entry.
type Known = SortedMap<&'static str, SortedMap<(String, String), String>>;

/// The problems of all sources.
#[derive(Debug, Default)]
pub struct Troubles(Mutex<Known>);

impl Troubles {
    /// Sets or removes the problem of an entry with `what`, such as a path; returns whether that is
    /// a change.
    pub fn set(&self, source: &'static str, entry: &str, what: &str, trouble: Option<String>) -> bool {
        let mut known = self.lock();
        let of_source = known.get_or_default(source);
        let key = (entry.to_owned(), what.to_owned());
        match trouble {
            Some(trouble) if of_source.len() < TROUBLES_MAX || of_source.contains_key(&key) => {
                of_source.insert(key, trouble.clone()).is_none_or(|before| before != trouble)
            }
            Some(_) => false,
            None => of_source.remove(&key).is_some(),
        }
    }

    /// Removes the problems of all other entries of a source.
    pub fn keep(&self, source: &'static str, entries: &SortedSet<&str>) {
        self.lock().get_or_default(source).retain(|(entry, _), _| entries.contains(&**entry));
    }

    /// The problems of a source, each with the name of its entry.
    pub fn of(&self, source: &str) -> Vec<String> {
        let known = self.lock();
        let troubles = known.get(source).into_iter().flatten();
        troubles.map(|((entry, _), trouble)| format!("{entry}: {trouble}")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_new_once_and_removed_with_entry() {
        let troubles = Troubles::default();
        let set =
            |trouble: Option<&str>| troubles.set("log", "dev", "/w/dev.log", trouble.map(str::to_owned));
        assert_eq!(
            [set(Some("a")), set(Some("a")), set(Some("b")), set(None), set(None)],
            [true, false, true, true, false]
        );
        set(Some("c"));
        assert_eq!((troubles.of("log"), troubles.of("paths")), (vec!["dev: c".to_owned()], vec![]));
        troubles.keep("log", &SortedSet::from(["other"]));
        assert_eq!(troubles.of("log"), Vec::<String>::new());
    }

    #[test]
    fn many_troubles_are_bounded() {
        let troubles = Troubles::default();
        for number in 0..TROUBLES_MAX + 5 {
            troubles.set("log", "dev", &number.to_string(), Some("x".to_owned()));
        }
        assert_eq!(troubles.of("log").len(), TROUBLES_MAX);
    }
}

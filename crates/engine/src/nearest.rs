//! Finds the known word that an unknown one probably means.

use std::fmt::Display;

/// The candidate most similar to `word`, if it is similar enough.
///
/// Shape: its edit distance is at most a third of the length of `word`, or 1; else it is the
/// shortest candidate that begins with `word` and `_`.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let limit = (word.chars().count() / 3).max(1);
    let alike = candidates
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), *candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate);
    let goes_on = |candidate: &&&str| {
        !word.is_empty() && candidate.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'))
    };
    alike.or_else(|| candidates.iter().filter(goes_on).min_by_key(|candidate| candidate.len()).copied())
}

/// The end of a message that names the word that is probably meant; empty without one.
pub fn clause(meant: Option<impl Display>) -> String {
    meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plausible_nearest_words_are_suggested() {
        assert_eq!(nearest("typs", ["types", "sources"]), Some("types"));
        assert_eq!(nearest("colour", ["types", "sources"]), None);
        assert_eq!(nearest("window", ["max_size", "window_ms"]), Some("window_ms"));
        assert_eq!(nearest("dedupe", ["dedupe_window_ms", "dedupe_key"]), Some("dedupe_key"));
        assert_eq!(nearest("", ["_a", "a"]), Some("a"));
    }
}

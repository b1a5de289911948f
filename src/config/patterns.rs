//! Patterns of event types in files: those that are listed twice, and those that select no known type.
//!
//! Every key that takes patterns is checked here, whatever file it is in. Without known types no
//! pattern is unknown.

use engine::{
    event::{Pattern, PatternSegment},
    hold::{Delay, Wait},
    nearest::clause,
};

use crate::config::{
    lint_name::LintName,
    raw::{Section, Value},
    report::{Diagnostic, Place},
};

/// Adds what `find` finds in the value of `key`.
pub(crate) fn check<'s>(
    section: &mut Section<'s>,
    key: &'static str,
    find: impl FnOnce(&Value<'s>) -> Vec<Diagnostic>,
) {
    let found = section.value(key).map(find).unwrap_or_default();
    for one in found {
        section.object(key, |_| one);
    }
}

/// The findings about a list of patterns; what is no pattern has an error of its own.
pub(crate) fn in_list(list: &Value<'_>, known_types: &[&str]) -> Vec<Diagnostic> {
    let items = list.items().unwrap_or_default().into_iter();
    let items: Vec<(Pattern, Value<'_>)> =
        items.filter_map(|item| Some((item.get().as_str()?.parse().ok()?, item))).collect();
    let is_before =
        |index: usize, pattern: &Pattern| items.iter().take(index).any(|(before, _)| before == pattern);
    let twice = items.iter().enumerate().filter(|(index, (pattern, _))| is_before(*index, pattern));
    let twice = twice.map(|(_, (pattern, item))| {
        item.error(format!("`{pattern}` is listed twice")).into_lint(LintName::NoEffect)
    });
    let unknown =
        items.iter().filter_map(|(pattern, item)| unknown(item, item.place(), pattern, known_types));
    twice.chain(unknown).collect()
}

/// The findings about the lists under `keys` in each table of a list.
pub(crate) fn in_tables(tables: &Value<'_>, keys: &[&str], known_types: &[&str]) -> Vec<Diagnostic> {
    let tables = tables.items().unwrap_or_default();
    let lists = tables.iter().flat_map(|table| keys.iter().filter_map(|key| table.entry(key)));
    lists.flat_map(|list| in_list(&list, known_types)).collect()
}

/// The findings about the events that delays wait for: a delay, or a list of them.
pub(crate) fn in_delays(delays: &Value<'_>, known_types: &[&str]) -> Vec<Diagnostic> {
    let items = delays.items().unwrap_or_else(|| vec![delays.clone()]);
    let found = items.iter().filter_map(|item| {
        let Ok(Delay::Wait(Wait::Event(pattern))) = item.get().as_str()?.parse() else { return None };
        let place = item.place();
        let place = place.first_name(&pattern.to_string()).unwrap_or(place);
        unknown(item, place, &pattern, known_types)
    });
    found.collect()
}

/// The findings about a table whose keys are patterns.
pub(crate) fn in_names(table: &Value<'_>, known_types: &[&str]) -> Vec<Diagnostic> {
    let entries = table.entries().unwrap_or_default();
    let found = entries
        .iter()
        .filter_map(|(name, value)| unknown(value, value.key_place(), &name.parse().ok()?, known_types));
    found.collect()
}

/// The finding about a pattern that matches no known type.
fn unknown(item: &Value<'_>, place: Place, pattern: &Pattern, known_types: &[&str]) -> Option<Diagnostic> {
    is_unknown(pattern, known_types).then(|| {
        let note = "to use your own type, define it in the `events.toml` next to your `aside.toml`: aside new event TYPE";
        Diagnostic { place, ..item.error(message(pattern)) }
            .with_nearest(nearest_type(pattern, known_types))
            .with_note(note)
            .into_lint(LintName::UnknownType)
    })
}

fn message(pattern: &Pattern) -> String {
    format!("`{pattern}` matches no type of the catalogue")
}

/// The same as a sentence, for a pattern that is in no file.
pub(crate) fn doubt(pattern: &Pattern, known_types: &[&str]) -> Option<String> {
    is_unknown(pattern, known_types).then(|| message(pattern) + &clause(nearest_type(pattern, known_types)))
}

/// Whether a pattern matches no known type; always false without known types.
fn is_unknown(pattern: &Pattern, known_types: &[&str]) -> bool {
    !known_types.is_empty() && !known_types.iter().any(|known| pattern.matches_text(known))
}

/// The known type most similar to a pattern that matches none; segments that a star matches do not
/// count.
fn nearest_type<'t>(pattern: &Pattern, known_types: &[&'t str]) -> Option<&'t str> {
    let own_chars = |segment| if let PatternSegment::Exact(word) = segment { word.len() } else { 0 };
    let limit = (pattern.segments().map(own_chars).sum::<usize>() / 3).max(1);
    let distance = |known: &&'t str| strsim::damerau_levenshtein(&filled_in(pattern, known), known);
    let distances = known_types.iter().map(|known| (distance(known), *known));
    distances
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// The pattern with its stars replaced by the segments of `known`, so that only the words count.
fn filled_in(pattern: &Pattern, known: &str) -> String {
    let mut rest = known.split('.');
    let mut filled = Vec::new();
    for segment in pattern.segments() {
        match (segment, rest.next()) {
            (PatternSegment::Exact(word), _) => filled.push(word),
            (PatternSegment::One, other) => filled.extend(other),
            (PatternSegment::Rest, other) => filled.extend(other.into_iter().chain(rest.by_ref())),
        }
    }
    filled.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_pattern_suggests_the_nearest_type() {
        let known = ["ci.check.passed", "tool.call.failure", "tool.call.timeout"];
        for (pattern, meant) in [
            ("tool.cal.*", Some("tool.call.failure")),
            ("*.call.timeuot", Some("tool.call.timeout")),
            ("cii.**", Some("ci.check.passed")),
            ("ci.check.passed.**", Some("ci.check.passed")),
            ("deploy.*.finished", None),
            ("q.*.*", None),
            ("shop.**", None),
        ] {
            let pattern: Pattern = pattern.parse().expect("a pattern");
            assert_eq!(nearest_type(&pattern, &known), meant, "{pattern}");
        }
    }
}

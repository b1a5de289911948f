//! Patterns of event types in a file, and warnings about doubtful ones.

use engine::event::{Pattern, PatternSegment};

use crate::config::{
    raw::{Parsed, Section, Value},
    values,
};

/// Warns of patterns that are repeated or match no known type.
pub(crate) fn check(
    section: &mut Section<'_>,
    key: &'static str,
    patterns: &[Pattern],
    known_types: &[&str],
) {
    for (index, pattern) in patterns.iter().enumerate() {
        if patterns.get(..index).is_some_and(|before| before.contains(pattern)) {
            section.object(key, |value| {
                let item = value.items().and_then(|items| items.into_iter().nth(index));
                item.unwrap_or_else(|| value.clone())
                    .error(format!("`{pattern}` is listed twice"))
                    .into_warning()
            });
        }
    }
    for (index, pattern) in patterns.iter().enumerate() {
        if is_unknown(pattern, known_types) {
            let meant = nearest_type(pattern, known_types);
            section.object(key, |value| {
                let item = value.items().and_then(|items| items.into_iter().nth(index));
                let message = format!("`{pattern}` matches no type of the catalogue");
                let note = "to use your own type, define it in the `events.toml` next to your `aside.toml`";
                item.unwrap_or_else(|| value.clone())
                    .error(message)
                    .with_nearest(meant)
                    .with_note(note)
                    .into_warning()
            });
        }
    }
}

/// A list of patterns, at least one.
pub(crate) fn read_all(value: &Value<'_>) -> Parsed<Vec<Pattern>> {
    let patterns = values::list(value, read)?;
    if patterns.is_empty() {
        return Err(vec![value.error("`types` is empty, so no event would ever match")]);
    }
    Ok(patterns)
}

/// A pattern.
pub(crate) fn read(value: &Value<'_>) -> Parsed<Pattern> {
    values::parsed(value)
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

//! A change of a known file: its author, its lines, and whether a call that would overwrite it is
//! deferred.

use std::sync::Arc;

use similar::{Algorithm, DiffOp, capture_diff_slices};
use strum::{IntoStaticStr, VariantArray};

/// A change within this time before a look may have the same time as a later change: the clock of
/// the file system has this resolution.
pub(super) const RACY_MS: u64 = 10;

/// The difference between a known file and its known state.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    Modified,
    Deleted,
    /// It has the state that the session read before it was notified of another one.
    Restored,
    /// It was renamed to this name, in the same folder.
    Renamed(Arc<str>),
}

impl Change {
    /// The event type, and its last segment.
    pub(super) const fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Modified => ("fs.known.modified", "modified"),
            Self::Deleted => ("fs.known.deleted", "deleted"),
            Self::Restored => ("fs.known.restored", "restored"),
            Self::Renamed(_) => ("fs.known.renamed", "renamed"),
        }
    }
}

/// The author of a file change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Author {
    /// The agent itself.
    Own,
    /// Another session; its display name.
    Other(String),
    /// Unknown.
    Unknown {
        /// An unrelated command of the agent ran at that time.
        during_a_command: bool,
    },
}

impl_as_str!(Guard);

/// Whether calls are deferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Guard {
    /// No call is deferred.
    #[default]
    Off,
    /// A call that would overwrite a change unknown to the agent.
    Overwrite,
}

/// Most lines between the equal prefix and the equal suffix that are compared one by one; more
/// count as one range. The comparison is quadratic if all lines differ: some milliseconds at this
/// limit.
const COMPARED_LINES_MAX: usize = 1_000;
/// Most named ranges.
const RANGES_MAX: usize = 5;

/// The lines of `new` that differ from `old`, such as `41-44, 90`; `None` if they are equal.
///
/// Shape: numbers from 1. For deleted lines, the number of the line now at their place. Ranges
/// after the fifth are counted: `+2`.
pub(super) fn changed(old: &str, new: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let begin = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = |lines: &[&str]| lines.len() - begin;
    let end_max = rest(&old).min(rest(&new));
    let end =
        old.iter().rev().zip(new.iter().rev()).take(end_max).take_while(|(old, new)| old == new).count();
    let inner_old = old.get(begin..old.len() - end).expect("the equal ends do not overlap");
    let inner_new = new.get(begin..new.len() - end).expect("the equal ends do not overlap");
    if inner_old.is_empty() && inner_new.is_empty() {
        return None;
    }
    let ranges = if inner_old.len().max(inner_new.len()) > COMPARED_LINES_MAX {
        vec![(0, inner_new.len())]
    } else {
        compared(inner_old, inner_new)
    };
    let shown = ranges.iter().take(RANGES_MAX).map(|(from, length)| {
        let first = begin + from + 1;
        if *length > 1 { format!("{first}-{}", begin + from + length) } else { first.to_string() }
    });
    let more = ranges.len().saturating_sub(RANGES_MAX);
    let more = (more > 0).then(|| format!("+{more}"));
    Some(shown.chain(more).collect::<Vec<_>>().join(", "))
}

/// The ranges of `new` that are not in `old`, by start and length.
fn compared(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    let changes = capture_diff_slices(Algorithm::Myers, old, new);
    let range = |change: DiffOp| match change {
        DiffOp::Equal { .. } => None,
        DiffOp::Delete { new_index, .. } => Some((new_index, 0)),
        DiffOp::Insert { new_index, new_len, .. } | DiffOp::Replace { new_index, new_len, .. } => {
            Some((new_index, new_len))
        }
    };
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (from, length) in changes.into_iter().filter_map(range) {
        match ranges.last_mut() {
            Some((before, before_length)) if *before + *before_length == from => *before_length += length,
            _ => ranges.push((from, length)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_of_the_new_text() {
        for (old, new, expected) in [
            ("a\nb\nc\n", "a\nB\nc\n", Some("2")),
            ("a\nb\nc\n", "a\nb\nc\n", None),
            ("a\nb\n", "a\nb\nc\nd\n", Some("3-4")),
            ("a\nb\nc\n", "a\nc\n", Some("2")),
            ("a\nb\nc\nd\ne\n", "A\nb\nC\nD\ne\n", Some("1, 3-4")),
            ("", "a\n", Some("1")),
            ("a\n", "", Some("1")),
            ("a\na\na\n", "a\na\n", Some("3")),
            (
                "1\nx\n2\nx\n3\nx\n4\nx\n5\nx\n6\nx\n7\n",
                "_\nx\n_\nx\n_\nx\n_\nx\n_\nx\n_\nx\n_\n",
                Some("1, 3, 5, 7, 9, +2"),
            ),
        ] {
            assert_eq!(changed(old, new).as_deref(), expected, "{old:?} -> {new:?}");
        }
    }

    #[test]
    fn texts_too_large_to_compare_yield_one_range() {
        let text = |mark: &str| (0..3_000).map(|line| format!("{mark}{line}\n")).collect::<String>();
        assert_eq!(changed(&text("a"), &text("b")).as_deref(), Some("1-3000"));
        assert_eq!(
            changed(&format!("x\n{}y\n", text("a")), &format!("x\n{}y\n", text("b"))).as_deref(),
            Some("2-3001")
        );
    }
}

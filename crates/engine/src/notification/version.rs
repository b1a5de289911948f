//! The version of a reported state: what revision it is of, and where it is in its sender's order.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// A value that orders states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordinal {
    /// A number, such as that of a run.
    Number(i64),
    /// A time, in milliseconds since the epoch.
    Time(i64),
}

/// The version of a state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Version {
    /// Identifies the revision, such as a commit: the first 64 bits of a hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The values that order it, the most significant first; `None` where the event has none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<Option<Ordinal>>,
}

/// The relation of one version to another one of the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It is newer by its order.
    Newer,
    /// It is older by its order.
    Older,
    /// Neither is older, so the later report counts.
    Same,
    /// They are of different revisions, and no order between them is known.
    Apart,
}

impl Version {
    /// The relation of this version to `other`.
    ///
    /// Shape: the first difference decides. A value that one of them lacks decides nothing, but
    /// different revisions are apart from there on: what is below orders the reports of one
    /// revision.
    pub fn relation_to(&self, other: &Self) -> Relation {
        let differ = matches!((self.revision, other.revision), (Some(own), Some(other)) if own != other);
        let length = self.order.len().max(other.order.len());
        for at in 0..length {
            let value = |version: &Self| version.order.get(at).copied().flatten();
            match compared(value(self), value(other)) {
                Some(Ordering::Greater) => return Relation::Newer,
                Some(Ordering::Less) => return Relation::Older,
                Some(Ordering::Equal) => {}
                None if differ => return Relation::Apart,
                None => {}
            }
        }
        if differ { Relation::Apart } else { Relation::Same }
    }

    /// Whether it has nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.revision.is_none() && self.order.iter().all(Option::is_none)
    }

    /// Whether it replaces `earlier`, which was reported before it.
    pub fn replaces(&self, earlier: &Self) -> bool {
        matches!(self.relation_to(earlier), Relation::Newer | Relation::Same)
    }
}

/// `None` if one of them is absent, or they are of different kinds.
fn compared(one: Option<Ordinal>, other: Option<Ordinal>) -> Option<Ordering> {
    match (one?, other?) {
        (Ordinal::Number(one), Ordinal::Number(other)) | (Ordinal::Time(one), Ordinal::Time(other)) => {
            Some(one.cmp(&other))
        }
        (Ordinal::Number(_), Ordinal::Time(_)) | (Ordinal::Time(_), Ordinal::Number(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version in short form: the revision, then its values; `-` is none, `@7` a time.
    fn version(text: &str) -> Version {
        let mut words = text.split(' ');
        let revision = words.next().filter(|word| *word != "-").map(|word| word.len() as u64);
        let value = |word: &str| match word.strip_prefix('@') {
            Some(time) => Some(Ordinal::Time(time.parse().expect("a time"))),
            None => (word != "-").then(|| Ordinal::Number(word.parse().expect("a number"))),
        };
        Version { revision, order: words.map(value).collect() }
    }

    #[test]
    fn the_first_known_difference_orders_versions() {
        use Relation::{Apart, Newer, Older, Same};
        for (one, other, expected) in [
            ("-", "-", Same),
            ("a", "a", Same),
            ("a", "bb", Apart),
            ("a", "-", Same),
            ("- 31", "- 30", Newer),
            ("- 30 @9", "- 31 @1", Older),
            ("a 30", "bb 31", Older),
            ("a 31 1", "a 31 2", Older),
            ("a 31 2 @5", "a 31 2 @4", Newer),
            ("a 31 2", "a 31 2", Same),
            ("a - 2", "a 31 1", Newer),
            ("a - 2", "bb - 1", Apart),
            ("a - 2", "bb 31 1", Apart),
            ("a @5", "bb @4", Newer),
            ("a 5", "a @4", Same),
            ("a 5", "bb @4", Apart),
            ("a 7", "bb 7", Apart),
            ("a 7 2", "bb 7 1", Newer),
            ("- 7", "-", Same),
        ] {
            let back = match expected {
                Newer => Older,
                Older => Newer,
                Same | Apart => expected,
            };
            assert_eq!(version(one).relation_to(&version(other)), expected, "{one}, {other}");
            assert_eq!(version(other).relation_to(&version(one)), back, "{other}, {one}");
        }
    }
}

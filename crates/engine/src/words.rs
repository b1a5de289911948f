//! The words of enums, which `strum` derives from the names of their values, and counts in texts.

use std::fmt::Display;

use strum::VariantArray;

/// A count with its noun, which is given in the singular: `1 record`, `2 records`.
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let end = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// An enum whose values are known by their words.
pub trait Words: VariantArray + Copy + Into<&'static str> {
    /// The value with this word.
    fn of_word(word: &str) -> Option<Self> {
        Self::VARIANTS.iter().copied().find(|one| (*one).into() == word)
    }

    /// All words.
    fn words() -> impl Iterator<Item = &'static str> {
        Self::VARIANTS.iter().map(|one| (*one).into())
    }

    /// All words, with commas between them.
    fn list() -> String {
        Self::words().collect::<Vec<_>>().join(", ")
    }
}

impl<T: VariantArray + Copy + Into<&'static str>> Words for T {}

/// Gives enums that derive `strum::IntoStaticStr` the method `as_str`.
///
/// The rule of `strum` defines the words for files, records and the API; serde has a rule of its
/// own, which must be the same. `strum` can derive such a method too, but without documentation.
#[macro_export]
macro_rules! impl_as_str {
    ($($words:ident),+) => {
        $(impl $words {
            /// Its word in files, in records and in the API.
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        })+
    };
}

pub use impl_as_str;

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn a_count_of_one_is_singular() {
        assert_eq!(
            [0, 1, 2, 21].map(|count| counted(count, "row")),
            ["0 rows", "1 row", "2 rows", "21 rows"]
        );
    }
}

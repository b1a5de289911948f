//! A client's program, and its version.

use std::fmt;

/// The program of a client.
#[derive(Debug)]
pub struct Program {
    /// Its file name on the PATH. `--version` prints its version.
    pub name: &'static str,
    /// The command that updates it.
    pub update: &'static str,
    /// The features that clients before a version lack, as the end of a sentence that begins with
    /// the client; the first match is used.
    pub lacks: &'static [(Version, &'static str)],
}

/// A version of three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 3]);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl Version {
    /// Parses the first three numbers of the first version in `text`, as in `2.1.330 (Some Client)`
    /// and `client 0.169.0`.
    pub fn read(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(|word| {
            let mut numbers = word.splitn(3, '.');
            let mut next = || {
                let digits: String = numbers.next()?.chars().take_while(char::is_ascii_digit).collect();
                digits.parse().ok()
            };
            Some(Self([next()?, next()?, next()?]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_first_three_numbers() {
        for (text, expected) in [
            ("2.1.330 (Some Client)\n", Some([2, 1, 330])),
            ("2.1.9-beta.1", Some([2, 1, 9])),
            ("client-cli 0.169.0", Some([0, 169, 0])),
            ("client 2.1", None),
            ("2.1", None),
            ("", None),
        ] {
            assert_eq!(Version::read(text).map(|version| version.0), expected, "{text:?}");
        }
        assert!(Version([2, 1, 197]) > Version([2, 1, 24]) && Version([3, 0, 0]) > Version([2, 9, 9]));
    }
}

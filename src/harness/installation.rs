//! The installation in a client, as data: `aside install` and `aside doctor` edit and compare files
//! with it. A client skips a whole settings file for one value of another type, and with it the
//! hooks; so the types of its settings are data too.
//!
//! A template is valid JSON in which each `command` begins with `aside`. The installed file has the
//! program's path there, plain if the handler has `args`, else quoted for a shell.

use std::fmt;

use serde_json::Value;

/// An installation in a client that runs hooks.
#[derive(Debug)]
pub struct Installation {
    /// Its description for users.
    pub what: &'static str,
    /// Oldest client that supports the hooks.
    pub since: Version,
    /// The settings files with hooks.
    pub settings: SettingsFiles,
    /// The template of the hooks.
    ///
    /// Shape: as in a settings file: `hooks` maps an event's name to its groups, here one, each
    /// with handlers in its `hooks`.
    pub hooks: &'static str,
    /// The event whose hook may start the daemon.
    pub starts: &'static str,
    /// The extension, if the client loads one from a folder; then it is installed unless the
    /// settings are requested.
    pub extension: Option<Extension>,
    /// The setting of a status line, if the client has one.
    pub status_line: Option<StatusLineSetting>,
}

/// The settings files of a client: JSON. The client skips a file with an error whole.
#[derive(Debug)]
pub struct SettingsFiles {
    /// The user's file, in the client's folder.
    pub user: &'static str,
    /// The project's files, in its folder for the client; the first one is written, unless another
    /// has hooks of aside.
    pub project: &'static [&'static str],
    /// The key by which a settings file disables all hooks, if it does.
    pub switched_off: fn(&Value) -> Option<&'static str>,
    /// Finds a value that the client does not accept.
    pub check: fn(&Value) -> Result<(), WrongValue>,
}

/// Files in a separate folder that a client loads as an extension.
#[derive(Debug)]
pub struct ExtensionFolder {
    /// The client's word for an extension.
    pub word: &'static str,
    /// Oldest client that loads it.
    pub since: Version,
    /// The folder, in the client's.
    pub path: &'static str,
    /// The files below that folder, and their templates.
    pub files: &'static [(&'static str, &'static str)],
    /// The file that identifies the extension: JSON with the `name` `aside`, and the `version`.
    pub manifest: &'static str,
}

/// An extension with hooks, which run in addition to those of settings files.
#[derive(Debug)]
pub struct Extension {
    /// Its files.
    pub folder: ExtensionFolder,
    /// The file with the hooks.
    pub hooks: &'static str,
    /// How its client gets the instructions for the model, as a sentence.
    pub instructions: &'static str,
    /// How it is distributed, if the client supports that.
    pub distribution: Option<Distribution>,
    /// The extension named `aside` that a settings file loads from another source, by the client's
    /// name for it.
    pub enabled: fn(&Value) -> Option<String>,
    /// The command that removes the extension with this name.
    pub remove: fn(&str) -> String,
}

/// A folder that is a source of extensions for a client.
#[derive(Debug)]
pub struct Distribution {
    /// The client's word for it.
    pub word: &'static str,
    /// The file that identifies such a folder: JSON with the `name` `aside`.
    pub list: &'static str,
    /// Its template.
    pub template: &'static str,
    /// The next commands, with the folder quoted for a shell, and the effect of each.
    pub next: fn(&str) -> Vec<(String, &'static str)>,
}

/// The setting of the only status line: an object with the `type` `command` and a `command`.
#[derive(Debug)]
pub struct StatusLineSetting {
    /// Its key.
    pub key: &'static str,
    /// The key in it of the refresh interval, in seconds.
    pub interval: &'static str,
}

/// A value that the client does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongValue {
    /// The keys and indices that lead to it; the last one may be missing in the file.
    pub path: Vec<String>,
    /// The accepted types, such as "an array".
    pub expected: String,
}

/// A type of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`.
    Null,
}

impl Type {
    const fn of(value: &Value) -> Self {
        match value {
            Value::Object(_) => Self::Object,
            Value::Array(_) => Self::Array,
            Value::String(_) => Self::Text,
            Value::Number(_) => Self::Number,
            Value::Bool(_) => Self::Boolean,
            Value::Null => Self::Null,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::Text => "a string",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Null => "null",
        }
    }
}

impl WrongValue {
    /// The path in the form `hooks.Stop.0.matcher`.
    pub fn field(&self) -> String {
        self.path.join(".")
    }

    /// Checks that the value at `path` is of one of these types; a missing one is.
    pub fn check(path: &[&str], value: Option<&Value>, types: &[Type]) -> Result<(), Self> {
        match value {
            Some(value) if !types.contains(&Type::of(value)) => Err(Self::new(path, types)),
            _ => Ok(()),
        }
    }

    /// Like [`Self::check`], but the value must be there.
    pub fn require(path: &[&str], value: Option<&Value>, types: &[Type]) -> Result<(), Self> {
        value.map_or_else(|| Err(Self::new(path, types)), |value| Self::check(path, Some(value), types))
    }

    fn new(path: &[&str], types: &[Type]) -> Self {
        let expected: Vec<&str> = types.iter().map(|one| one.words()).collect();
        Self { path: path.iter().map(|&key| key.to_owned()).collect(), expected: expected.join(" or ") }
    }
}

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

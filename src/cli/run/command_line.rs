//! The command line of a run, with secrets masked.
//!
//! It is published, so it enters the journal and the agent's context. The value of an option or
//! variable with a secret-like name is masked, and so is any text that looks like a credential.

use std::{borrow::Cow, ffi::OsString};

use engine::event::mask_secrets;

/// Longest published command line, in characters.
const COMMAND_CHARS_MAX: usize = 1_000;
/// The replacement of a secret, as written by [`mask_secrets`].
const MASK: &str = "[masked]";
/// Last parts of names with a secret value, in lower case.
const SECRET_NAMES: [&str; 8] =
    ["password", "passwd", "passphrase", "token", "secret", "apikey", "api-key", "access-key"];

/// The command line without secrets, cut to [`COMMAND_CHARS_MAX`].
pub(super) fn command_line(command: &[OsString]) -> String {
    let mut line = String::new();
    let mut is_secret = false;
    for word in command {
        let word = word.to_string_lossy();
        let (shown, next_is_secret) = match word.split_once('=') {
            _ if is_secret && !word.starts_with('-') => (MASK.into(), false),
            Some((name, _)) if is_secret_name(name) => (format!("{name}={MASK}").into(), false),
            Some(_) => (mask_secrets(&word), false),
            None => (mask_secrets(&word), word.starts_with('-') && is_secret_name(&word)),
        };
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&quoted(&shown));
        is_secret = next_is_secret;
    }
    line.chars().take(COMMAND_CHARS_MAX).collect()
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRET_NAMES.iter().any(|secret| name.ends_with(secret))
}

fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%[]".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_command_line_are_masked() {
        for (words, line) in [
            (&["sh", "-c", "echo it's"][..], r"sh -c 'echo it'\''s'"),
            (&["curl", "--password=x y", "-u", "me"], "curl --password=[masked] -u me"),
            (&["deploy", "--api-key", "abc", "--dry-run"], "deploy --api-key [masked] --dry-run"),
            (&["deploy", "--token", "--verbose"], "deploy --token --verbose"),
            (&["env", "GITHUB_TOKEN=abc", "A=b", "make"], "env GITHUB_TOKEN=[masked] A=b make"),
            (&["psql", "postgres://u:secret@h/d"], "psql postgres://u:[masked]@h/d"),
            (&["tokens", "secret"], "tokens secret"),
            (&["x", ""], "x ''"),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(command_line(&words), line);
        }
    }
}

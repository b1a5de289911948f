//! Secrets by their name: the value after `password=`, `"api_key":`, `--token`, `Cookie:`.
//!
//! Most texts that name a password contain none: prose (`password: required`), code
//! (`password=password`, `token: string`), placeholders (`$TOKEN`, `<password>`). So a value must
//! look like a secret for the way in which it is written.

use std::ops::Range;

use crate::event::first_bytes;

/// What a name promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// A person chose the value, which may be a short word.
    Password,
    /// A program made the value.
    Token,
    /// A header with a scheme before the value.
    Authorization,
    /// A header with pairs of names and values.
    Cookie,
}

/// The ends of names.
///
/// Source: the keywords of gitleaks' generic rule and of detect-secrets' keyword detector, and the
/// names of cloud SDKs' settings.
pub(super) const NAMES: [(&str, Name); 42] = [
    ("password", Name::Password),
    ("passwd", Name::Password),
    ("passphrase", Name::Password),
    ("pass", Name::Password),
    ("pwd", Name::Password),
    ("passcode", Name::Password),
    ("secret", Name::Token),
    ("token", Name::Token),
    ("api_key", Name::Token),
    ("api-key", Name::Token),
    ("apikey", Name::Token),
    ("app_key", Name::Token),
    ("appkey", Name::Token),
    ("access_key", Name::Token),
    ("access-key", Name::Token),
    ("accesskey", Name::Token),
    ("secret_key", Name::Token),
    ("secret-key", Name::Token),
    ("secretkey", Name::Token),
    ("secret_access_key", Name::Token),
    ("private_key", Name::Token),
    ("private-key", Name::Token),
    ("privatekey", Name::Token),
    ("account_key", Name::Token),
    ("accountkey", Name::Token),
    ("sharedaccesskey", Name::Token),
    ("sharedaccesssignature", Name::Token),
    ("auth_key", Name::Token),
    ("auth-key", Name::Token),
    ("authkey", Name::Token),
    ("master_key", Name::Token),
    ("signing_key", Name::Token),
    ("encryption_key", Name::Token),
    ("license_key", Name::Token),
    ("session_key", Name::Token),
    ("client_secret", Name::Token),
    ("credential", Name::Token),
    ("credentials", Name::Token),
    ("creds", Name::Token),
    ("_auth", Name::Token),
    ("authorization", Name::Authorization),
    ("cookie", Name::Cookie),
];
/// Longest value that is examined.
const VALUE_BYTES_MAX: usize = 1_024;
/// Longest name around a keyword.
const NAME_BYTES_MAX: usize = 64;
/// Most spaces around a separator.
const SPACES_MAX: usize = 8;
/// Fewest characters of a password, and of a token.
const PASSWORD_CHARS_MIN: usize = 5;
const TOKEN_CHARS_MIN: usize = 8;
/// Fewest characters of a token that is written as prose is: `token: abc`.
const SPACED_TOKEN_CHARS_MIN: usize = 12;
/// Fewest characters of a token without digits.
const LETTERS_TOKEN_CHARS_MIN: usize = 20;
/// Fewest digits of a token that is a number.
const DIGITS_TOKEN_CHARS_MIN: usize = 16;
/// Words that stand where a password could.
const WORDS: [&str; 37] = [
    "required",
    "optional",
    "string",
    "string,",
    "str",
    "text",
    "none",
    "null",
    "nil",
    "true",
    "false",
    "undefined",
    "empty",
    "missing",
    "invalid",
    "incorrect",
    "expired",
    "wrong",
    "changed",
    "unset",
    "default",
    "hidden",
    "prompt",
    "password",
    "passwd",
    "secret",
    "token",
    "value",
    "varchar",
    "redacted",
    "masked",
    "example",
    "input",
    "field",
    "stdin",
    "disabled",
    "enabled",
];

/// How a value is written after its name.
struct Written<'t> {
    value: &'t str,
    start: usize,
    separator: Separator,
    is_quoted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// `name=value`, `"name":"value"`, `name:value`, `--name value`.
    Tight,
    /// With white space around it, as in prose and code.
    Spaced,
}

impl Name {
    /// The secret after the name whose keyword is at `keyword`.
    pub(super) fn find_value(self, text: &str, keyword: Range<usize>) -> Option<Range<usize>> {
        let name = whole_name(text, &keyword);
        let written = written(text, name.clone(), keyword.end)?;
        let name = text.get(name)?;
        match self {
            Self::Password | Self::Token => {
                let is_secret = if self == Self::Password {
                    is_password(name, &written)
                } else {
                    is_token(name, &written)
                };
                is_secret.then(|| written.start..written.start + written.value.len())
            }
            Self::Authorization => authorization(text, &written),
            Self::Cookie => cookies(text, &written),
        }
    }
}

/// Whether the text of a field is a secret because of the field's name.
pub fn is_secret_field(name: &str, value: &str) -> bool {
    let ends = |keyword: &str| {
        let start = name.len().checked_sub(keyword.len());
        start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(keyword))
    };
    if !may_be_name(name) {
        return false;
    }
    let written = Written { value, start: 0, separator: Separator::Tight, is_quoted: true };
    NAMES.iter().any(|(keyword, kind)| {
        ends(keyword)
            && match kind {
                Name::Password => is_password(name, &written),
                Name::Token | Name::Authorization | Name::Cookie => is_token(name, &written),
            }
    })
}

/// Whether a name ends as one of [`NAMES`] does, checked fast, since most fields have other names.
fn may_be_name(name: &str) -> bool {
    let end = name.as_bytes().last_chunk::<3>().map(|end| end.map(|byte| byte.to_ascii_lowercase()));
    matches!(
        end.as_ref(),
        Some(
            b"ord"
                | b"swd"
                | b"ase"
                | b"ass"
                | b"pwd"
                | b"ode"
                | b"ret"
                | b"ken"
                | b"key"
                | b"ure"
                | b"ial"
                | b"als"
                | b"eds"
                | b"uth"
                | b"ion"
                | b"kie"
        )
    )
}

/// The name that ends with the keyword: `DB_PASSWORD`, `--db.password`.
fn whole_name(text: &str, keyword: &Range<usize>) -> Range<usize> {
    let before = text.get(..keyword.start).expect("a keyword that was found in the text");
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let more = before.bytes().rev().take(NAME_BYTES_MAX).take_while(is_name).count();
    keyword.start - more..keyword.end
}

/// The value after a name that ends at `end`; `None` if none is assigned.
fn written(text: &str, name: Range<usize>, end: usize) -> Option<Written<'_>> {
    let is_option = text.get(name.clone()).is_some_and(|name| name.starts_with('-'));
    let is_element = text.get(..name.start).is_some_and(|before| before.ends_with('<'));
    let rest = text.get(end..)?;
    let (rest, is_name_quoted) = match rest.strip_prefix("\\\"") {
        Some(rest) => (rest, true),
        None => match rest.strip_prefix(['"', '\'', '`', ']']) {
            Some(after) => (after.strip_prefix(']').unwrap_or(after), true),
            None => (rest, false),
        },
    };
    let (rest, before) = without_spaces(rest);
    let separators = ["=>", ":=", "?=", "=", ":"].iter().chain(is_element.then_some(&">"));
    let separator = separators.copied().find(|separator| rest.starts_with(separator));
    let after = match separator {
        Some(separator) => rest.get(separator.len()..)?,
        None if is_option && before > 0 && !is_name_quoted => rest,
        None => return None,
    };
    // A comparison, a match, or a path of a module.
    if separator.is_some() && after.starts_with(['=', '~', ':']) {
        return None;
    }
    let (after, behind) = without_spaces(after);
    let separator = match separator {
        Some(_) if !is_name_quoted && (before > 0 || behind > 0) => Separator::Spaced,
        Some(_) | None => Separator::Tight,
    };
    let (value, quote) = quoted_or_bare(after)?;
    let start = text.len() - after.len() + quote;
    Some(Written { value, start, separator, is_quoted: quote > 0 })
}

/// The rest after its spaces, and their number.
fn without_spaces(rest: &str) -> (&str, usize) {
    let spaces = rest.bytes().take(SPACES_MAX).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    (rest.get(spaces..).expect("the end of spaces in it"), spaces)
}

/// The value at the start of `rest`, and the length of the quote before it.
fn quoted_or_bare(rest: &str) -> Option<(&str, usize)> {
    for quote in ["\\\"", "\"", "'", "`"] {
        if let Some(inside) = rest.strip_prefix(quote) {
            let inside = first_bytes(inside, VALUE_BYTES_MAX);
            let end = inside.find(quote).or_else(|| inside.find('\n')).unwrap_or(inside.len());
            return Some((inside.get(..end)?, quote.len()));
        }
    }
    let ends = |c: char| {
        c.is_whitespace()
            || matches!(c, ',' | ';' | '&' | ')' | ']' | '}' | '"' | '\'' | '<' | '>' | '`' | '|')
    };
    let inside = first_bytes(rest, VALUE_BYTES_MAX);
    let value = inside.get(..inside.find(ends).unwrap_or(inside.len()))?;
    Some((value.trim_end_matches(['.', ':', '\\']), 0))
}

fn is_password(name: &str, written: &Written<'_>) -> bool {
    let value = written.value;
    // `pass: 12345` counts tests.
    let is_count = name.eq_ignore_ascii_case("pass") && value.bytes().all(|byte| byte.is_ascii_digit());
    if value.chars().count() < PASSWORD_CHARS_MIN || is_count || !is_literal(written) {
        return false;
    }
    if !is_word(value) {
        return true;
    }
    // A word: only where configuration is written, and not where it names something.
    let is_setting = written.separator == Separator::Tight || written.is_quoted || is_upper(name);
    let is_prose = value.contains(['.', '_']) || is_known_word(name, value);
    is_setting && !is_prose
}

fn is_token(name: &str, written: &Written<'_>) -> bool {
    let value = written.value;
    let least = match (written.separator, written.is_quoted) {
        (Separator::Spaced, false) if !name.contains("key") => SPACED_TOKEN_CHARS_MIN,
        _ => TOKEN_CHARS_MIN,
    };
    if value.len() < least || value.contains(char::is_whitespace) || !is_literal(written) {
        return false;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.len() >= DIGITS_TOKEN_CHARS_MIN;
    }
    if value.bytes().any(|byte| byte.is_ascii_digit()) {
        return true;
    }
    // Letters: a long one of both cases is made by a program.
    let is_mixed = value.bytes().any(|byte| byte.is_ascii_uppercase())
        && value.bytes().any(|byte| byte.is_ascii_lowercase());
    let is_configured = written.separator == Separator::Tight && value.contains('-');
    !value.contains(['.', '_'])
        && !is_known_word(name, value)
        && ((value.len() >= LETTERS_TOKEN_CHARS_MIN && is_mixed) || is_configured)
}

/// Whether a value is written out, and not a variable, a placeholder, a path, an expression or
/// another mark.
fn is_literal(written: &Written<'_>) -> bool {
    let value = written.value;
    let is_reference = value.starts_with(['$', '{', '<', '%', '*', '&', '@', '#', '[', '(', '~', '/', '.'])
        || value.starts_with("http://")
        || value.starts_with("https://")
        || value.starts_with("${{")
        || value.contains("${")
        || value.contains("{{")
        || value.ends_with("...");
    let is_call = !written.is_quoted && value.contains(['(', '[', '{']);
    let is_one_character = value.chars().all(|c| value.starts_with(c));
    let is_sentence = written.is_quoted && value.trim().matches(' ').count() > 1;
    !(is_reference || is_call || is_one_character || is_sentence)
}

/// Whether a value consists of letters, as a word or a name of code does.
fn is_word(value: &str) -> bool {
    value.chars().all(|c| c.is_alphabetic() || matches!(c, '_' | '.' | '-' | '?' | '!' | ' ' | '\u{2026}'))
}

/// Whether a value only says what is expected, or repeats its name.
fn is_known_word(name: &str, value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    WORDS.contains(&&*lower) || name.ends_with(&*lower) || lower.ends_with(&*name)
}

/// Whether a name is one of the environment: `DB_PASSWORD`.
fn is_upper(name: &str) -> bool {
    name.len() > 3
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The value of a header, after its scheme if it has one.
fn authorization(text: &str, written: &Written<'_>) -> Option<Range<usize>> {
    let is_secret = |value: &str| {
        value.len() >= TOKEN_CHARS_MIN
            && value.bytes().any(|byte| byte.is_ascii_digit())
            && !value.contains(['$', '{', '<'])
    };
    let start = written.start;
    if written.is_quoted && !written.value.contains(' ') || !is_word(written.value) {
        let value = written.value.split([' ', ',', ';']).next().unwrap_or_default();
        return is_secret(value).then(|| start..start + value.len());
    }
    let rest = text.get(start..)?;
    let rest = first_bytes(rest, VALUE_BYTES_MAX);
    let line = rest.get(..rest.find(['\n', '"', '\'']).unwrap_or(rest.len()))?;
    let (scheme, value) = line.split_once(' ')?;
    let value = value.trim_start().split([' ', ',', ';']).next()?;
    let from = start + scheme.len() + line.get(scheme.len()..)?.find(value)?;
    (is_word(scheme) && is_secret(value)).then(|| from..from + value.len())
}

/// The cookies of a header, to the end of its line or of its quotes.
fn cookies(text: &str, written: &Written<'_>) -> Option<Range<usize>> {
    let rest = text.get(written.start..)?;
    let rest = first_bytes(rest, VALUE_BYTES_MAX);
    let line = rest.get(..rest.find(['\n', '\r', '"', '\'']).unwrap_or(rest.len()))?.trim_end();
    let (_, value) = line.split_once('=')?;
    (value.len() >= PASSWORD_CHARS_MIN && !value.starts_with(['$', '<', '{', '=']))
        .then(|| written.start..written.start + line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_may_be_one() {
        for (keyword, _) in NAMES {
            assert!(may_be_name(keyword), "{keyword}");
        }
        assert!(!may_be_name("path") && !may_be_name("id"));
    }

    #[test]
    fn names_and_texts_decide_which_field_is_secret() {
        for (name, value, is_secret) in [
            ("password", "hunter2", true),
            ("db.password", "hunter", true),
            ("API_KEY", "a1b2c3d4e5", true),
            ("Authorization", "a1b2c3d4e5", true),
            ("password", "required", false),
            ("token", "identifier", false),
            ("key", "a1b2c3d4e5", false),
            ("version", "a1b2c3d4e5", false),
        ] {
            assert_eq!(is_secret_field(name, value), is_secret, "{name}");
        }
    }
}

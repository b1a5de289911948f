//! The link of a notice: a web address, so that the machine opens no local program for it.

use std::fmt;

/// Most characters of a link.
pub const LINK_CHARS_MAX: usize = 2_000;
/// The allowed starts of a link.
const SCHEMES: [&str; 2] = ["https://", "http://"];
/// The characters of a URL other than letters and digits.
///
/// Source: RFC 3986, 2.2 and 2.3, and the `%` of 2.1.
const PUNCTUATION: &str = "-._~:/?#[]@!$&'()*+,;=%";

/// The reason why a text is not a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLink {
    /// It is too long; its length in characters.
    Long(usize),
    /// It has another scheme.
    Scheme,
    /// It has no host.
    Host,
    /// It has a user name, which can be mistaken for the host, or a password.
    User,
    /// It has this character, which is not allowed in a URL.
    Character(char),
}

impl fmt::Display for NoLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(count) => write!(f, "has at most {LINK_CHARS_MAX} characters, not {count}"),
            Self::Scheme => f.write_str("must begin with https:// or http://"),
            Self::Host => f.write_str("must name a host after ://"),
            Self::User => f.write_str("must name no user before the host"),
            Self::Character(c) if c.is_whitespace() || c.is_control() => f.write_str("must have no spaces"),
            Self::Character(c) => {
                write!(f, "has the character U+{:04X}, which a URL has only percent-encoded", u32::from(*c))
            }
        }
    }
}

/// Checks that a text is a link.
///
/// Errors: the first rule that the text breaks.
pub fn check(text: &str) -> Result<(), NoLink> {
    let count = text.chars().count();
    if count > LINK_CHARS_MAX {
        return Err(NoLink::Long(count));
    }
    let after_scheme = |scheme: &&str| {
        let (begin, after) = text.split_at_checked(scheme.len())?;
        begin.eq_ignore_ascii_case(scheme).then_some(after)
    };
    let after = SCHEMES.iter().find_map(after_scheme).ok_or(NoLink::Scheme)?;
    if let Some(c) = text.chars().find(|c| !is_url_char(*c)) {
        return Err(NoLink::Character(c));
    }
    let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(NoLink::User);
    }
    if !authority.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') {
        return Err(NoLink::Host);
    }
    Ok(())
}

/// Whether this character is allowed in a URL.
pub fn is_url_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || PUNCTUATION.contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_an_address_on_the_web() {
        let long = format!("https://h/{}", "x".repeat(1_990));
        for link in
            ["https://example.org", "HTTP://h:8080/a%20b?c=d&e#f", "http://[::1]/", "http://127.0.0.1", &long]
        {
            assert_eq!(check(link), Ok(()), "{link}");
        }
        let longer = format!("{long}x");
        for (text, why) in [
            ("", "must begin with https:// or http://"),
            ("javascript:alert(1)", "must begin with https:// or http://"),
            ("file:///etc/passwd", "must begin with https:// or http://"),
            ("https://", "must name a host after ://"),
            ("https:///x", "must name a host after ://"),
            ("https://github.com@evil.example/", "must name no user before the host"),
            ("https://h/a b", "must have no spaces"),
            ("https://h/\u{202e}", "has the character U+202E, which a URL has only percent-encoded"),
            ("https://h/\"><b>", "has the character U+0022, which a URL has only percent-encoded"),
            (&longer, "has at most 2000 characters, not 2001"),
        ] {
            assert_eq!(check(text).map_err(|error| error.to_string()), Err(why.to_owned()), "{text}");
        }
    }
}

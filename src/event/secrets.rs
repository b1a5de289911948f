//! Masks likely credentials, so that a leaked key does not reach a context or a log.
//!
//! Only unambiguous forms are masked: the token prefixes of issuers, and private key blocks. This
//! catches accidents; it does not prove that a text has no secrets.

use std::borrow::Cow;

use super::printable::is_printable_without;

/// The replacement for a secret; the recognizable start of the secret is kept.
const MASK: &str = "[masked]";

/// A token's prefix and the fewest characters after it.
///
/// Source: the formats that the issuers document: OpenAI and Anthropic (`sk-`), GitHub, GitLab,
/// Slack, AWS, Google, npm, Stripe, Hugging Face.
const PREFIXES: [(&str, usize); 18] = [
    ("github_pat_", 20),
    ("glpat-", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("xoxb-", 10),
    ("xoxa-", 10),
    ("xoxp-", 10),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("hf_", 30),
    ("npm_", 30),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("sk-", 16),
];
/// The schemes of an `Authorization` header, and the fewest credential characters after them;
/// shorter text counts as prose.
const SCHEMES: [(&str, usize); 2] = [("bearer ", 16), ("basic ", 16)];
/// The prefix of a JSON Web Token: the base64 of `{"`.
///
/// Source: RFC 7519; three base64url parts separated by dots, the last one empty if unsigned.
const JWT: &str = "eyJ";
/// Fewest characters of a JSON Web Token's first two parts together.
const JWT_CHARS_MIN: usize = 24;
/// The text before the authority of a URL; the part up to `@` can contain a password (RFC 3986,
/// 3.2.1).
const AUTHORITY: &str = "://";
const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";

/// Replaces each credential in `text` by its recognizable start and `[masked]`.
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    if is_harmless(text) {
        return text.into();
    }
    let mut masked = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(found) = secret_at(text, at, rest) {
            masked.push_str(text.get(copied..at + found.kept).unwrap_or_default());
            masked.push_str(MASK);
            at += found.end;
            copied = at;
        } else {
            at += next_candidate(rest);
        }
    }
    if copied == 0 {
        return text.into();
    }
    masked.push_str(text.get(copied..).unwrap_or_default());
    masked.into()
}

/// Fewest bytes of a secret, prefix included, other than a password in a URL.
const SECRET_BYTES_MIN: usize = 15;
/// Every secret contains one of these bytes.
const SECRET_BYTES: [u8; 7] = *b"-_ABbJ@";
/// Every secret shorter than [`SECRET_BYTES_MIN`] contains this byte.
const SHORT_SECRET_BYTES: [u8; 1] = *b"@";

/// Whether `text` needs neither stripping nor masking, checked in one pass over its bytes.
///
/// Shape: true only for printable ASCII without the bytes that secrets contain; false proves
/// nothing.
pub fn is_harmless(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < SECRET_BYTES_MIN {
        is_printable_without(bytes, SHORT_SECRET_BYTES)
    } else {
        is_printable_without(bytes, SECRET_BYTES)
    }
}

/// A secret, as byte offsets from its start.
struct Secret {
    kept: usize,
    end: usize,
}

/// The distance to the next possible start of a secret.
fn next_candidate(rest: &str) -> usize {
    let found = rest.as_bytes().windows(3).position(|around| match around {
        [before, first, second] => can_begin(*before, *first, *second),
        _ => false,
    });
    found.map_or(rest.len(), |at| at + 1)
}

/// Whether a secret can begin with `first` and `second`: a key block, the authority of a URL, or a
/// token that does not follow a word byte.
fn can_begin(before: u8, first: u8, second: u8) -> bool {
    match (first, second) {
        (b'-', b'-') | (b':', b'/') => true,
        (b'g', b'i' | b'l' | b'h')
        | (b'x', b'o')
        | (b's' | b'r', b'k')
        | (b'h', b'f')
        | (b'n', b'p')
        | (b'A', b'K' | b'S' | b'I')
        | (b'e', b'y')
        | (b'b' | b'B', b'e' | b'E' | b'a' | b'A') => !is_word_byte(before),
        _ => false,
    }
}

fn secret_at(text: &str, at: usize, rest: &str) -> Option<Secret> {
    if rest.starts_with('-') {
        return if rest.starts_with(KEY_BEGIN) { key_block(rest) } else { None };
    }
    if rest.starts_with(':') {
        return password(rest);
    }
    let is_inside_word =
        text.get(..at).and_then(|before| before.bytes().next_back()).is_some_and(is_word_byte);
    if is_inside_word {
        return None;
    }
    let scheme = SCHEMES.iter().find(|(scheme, _)| {
        let start = rest.as_bytes().get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
    });
    if let Some((scheme, chars_min)) = scheme {
        return token(rest, scheme.len(), *chars_min);
    }
    if rest.starts_with(JWT) {
        return web_token(rest);
    }
    let second = rest.as_bytes().get(1);
    PREFIXES.iter().find_map(|(prefix, following)| {
        (prefix.as_bytes().get(1) == second && rest.starts_with(prefix))
            .then(|| token(rest, prefix.len(), *following))
            .flatten()
    })
}

fn token(rest: &str, kept: usize, chars_min: usize) -> Option<Secret> {
    let following = rest.get(kept..)?.bytes().take_while(|byte| is_token_byte(*byte)).count();
    (following >= chars_min).then_some(Secret { kept, end: kept + following })
}

/// Finds a JSON Web Token; other base64 with this prefix has no dots.
fn web_token(rest: &str) -> Option<Secret> {
    let end = rest.bytes().take_while(|byte| is_word_byte(*byte) || matches!(byte, b'-' | b'.')).count();
    let mut parts = rest.get(..end)?.splitn(3, '.');
    let (header, claims) = (parts.next()?, parts.next()?);
    let is_token = header.len() + claims.len() >= JWT_CHARS_MIN && parts.next().is_some();
    is_token.then_some(Secret { kept: JWT.len(), end })
}

/// Finds the password of `://user:password@host`; `rest` begins with the colon of the scheme.
fn password(rest: &str) -> Option<Secret> {
    let authority = rest.strip_prefix(AUTHORITY)?;
    let length =
        authority.find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<'));
    let (user, host) = authority.get(..length.unwrap_or(authority.len()))?.rsplit_once('@')?;
    let (name, password) = user.split_once(':')?;
    let is_secret = !password.is_empty() && !host.is_empty();
    let kept = AUTHORITY.len() + name.len() + 1;
    is_secret.then_some(Secret { kept, end: kept + password.len() })
}

fn key_block(rest: &str) -> Option<Secret> {
    let line_end = rest.find('\n').unwrap_or(rest.len());
    let first_line = rest.get(..line_end)?;
    let label_end = first_line.get(KEY_BEGIN.len()..)?.find("-----")? + KEY_BEGIN.len();
    let kept = label_end + "-----".len();
    if !first_line.get(..label_end)?.ends_with("PRIVATE KEY") {
        return None;
    }
    let end = match rest.find(KEY_END) {
        Some(begin) => {
            let tail = rest.get(begin + KEY_END.len()..)?;
            tail.find("-----").map_or(rest.len(), |dashes| begin + KEY_END.len() + dashes + "-----".len())
        }
        None => rest.len(),
    };
    Some(Secret { kept, end })
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'+' | b'=' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_known_shapes_are_masked_and_the_rest_stays() {
        let body = "0123456789abcdefABCDEF0123456789abcd";
        for prefix in [
            "sk-",
            "ghp_",
            "github_pat_",
            "xoxb-",
            "AKIA",
            "Authorization: Bearer ",
            "authorization: bearer ",
            "Authorization: Basic ",
            "rk_live_",
            "hf_",
        ] {
            let text = format!("before {prefix}{body}, after");
            assert_eq!(mask_secrets(&text), format!("before {prefix}[masked], after"));
        }
        let two = format!("ghp_{body} and ghp_{body}");
        assert_eq!(mask_secrets(&two), "ghp_[masked] and ghp_[masked]");
    }

    #[test]
    fn a_private_key_is_masked_to_its_end_or_to_the_end_of_the_text() {
        let key = "x\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\ny";
        assert_eq!(mask_secrets(key), "x\n-----BEGIN RSA PRIVATE KEY-----[masked]\ny");
        let cut = "-----BEGIN PRIVATE KEY-----\nMIIE";
        assert_eq!(mask_secrets(cut), "-----BEGIN PRIVATE KEY-----[masked]");
        let public = "-----BEGIN PUBLIC KEY-----\nMIIE\n-----END PUBLIC KEY-----";
        assert_eq!(mask_secrets(public), public);
    }

    #[test]
    fn no_secret_is_shorter_than_the_shortest() {
        let tokens = PREFIXES.iter().map(|(prefix, following)| prefix.len() + following);
        let schemes = SCHEMES.iter().map(|(scheme, following)| scheme.len() + following);
        let others = ["-----BEGIN PRIVATE KEY-----".len(), JWT_CHARS_MIN];
        assert_eq!(tokens.chain(schemes).chain(others).min(), Some(SECRET_BYTES_MIN));
    }

    #[test]
    fn every_secret_has_a_byte_that_is_looked_for() {
        let beginnings = PREFIXES.iter().map(|(prefix, _)| *prefix);
        let schemes = SCHEMES.iter().map(|(scheme, _)| *scheme);
        for beginning in beginnings.chain(schemes).chain([KEY_BEGIN, "BEARER ", "BASIC ", JWT, "://:p@"]) {
            assert!(!is_harmless(&format!("{beginning:15}")), "{beginning}");
            let found = next_candidate(&format!(" {beginning}"));
            assert_eq!(found, 1, "{beginning}");
        }
    }

    #[test]
    fn a_password_in_an_address_and_a_web_token_are_masked() {
        for (text, masked) in [
            ("postgres://app:pa:ss@db.local/x", "postgres://app:[masked]@db.local/x"),
            ("see https://u:p@h and http://h:80/p@q", "see https://u:[masked]@h and http://h:80/p@q"),
            ("://:p@h", "://:[masked]@h"),
            ("git+ssh://git@host:repo", "git+ssh://git@host:repo"),
            ("mail a@b.c: d://e", "mail a@b.c: d://e"),
            ("t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J, end", "t=eyJ[masked], end"),
            ("eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.", "eyJ[masked]"),
            ("eyJhbGciOiJIUzI1NiJ9 alone", "eyJhbGciOiJIUzI1NiJ9 alone"),
        ] {
            assert_eq!(mask_secrets(text), masked);
        }
    }

    #[test]
    fn what_only_resembles_a_secret_stays() {
        for text in [
            "",
            "task-runner failed",
            "risk-assessment-of-many-words-in-a-row",
            "sk-short",
            "the bearer of news",
            "AKIA",
            "ghp_",
            "na\u{ef}ve \u{2713} -----BEGIN",
        ] {
            assert!(matches!(mask_secrets(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}

//! Masks what looks like a credential, so that a leaked key does not travel on into a context or a log.
//!
//! Only shapes that are hardly ever anything else are masked: the prefixes that issuers put before their tokens, and private key blocks. It
//! is a net for accidents, not a proof of absence.

use std::borrow::Cow;

/// What stands in place of a secret; its recognisable beginning is kept.
const MASK: &str = "[masked]";

/// A token's beginning and how many characters must follow for it to be one.
///
/// Source: the formats that the issuers document: OpenAI and Anthropic (`sk-`), GitHub, GitLab, Slack, AWS, Google, npm, Stripe.
const PREFIXES: [(&str, usize); 16] = [
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
    ("npm_", 30),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("sk-", 16),
];
const BEARER: &str = "bearer ";
/// A bearer token shorter than this is taken for prose.
const BEARER_CHARS_MIN: usize = 16;
const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";

/// Replaces credentials in `text` by their recognisable beginning and a mark.
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    if text.len() < SECRET_BYTES_MIN || !has_secret_byte(text) {
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

/// The shortest secret of all: a Slack token's prefix and what must follow it.
const SECRET_BYTES_MIN: usize = 15;

/// Whether `text` has a byte of which every secret has one; most texts have none, and are done with after one look.
fn has_secret_byte(text: &str) -> bool {
    text.bytes().fold(false, |has, byte| has | matches!(byte, b'-' | b'_' | b'A' | b'B' | b'b'))
}

/// Byte offsets from where the secret begins.
struct Secret {
    kept: usize,
    end: usize,
}

/// The distance to the next place at which any secret can begin: a key block's dash, or a letter that no word byte precedes.
fn next_candidate(rest: &str) -> usize {
    let mut is_in_word = false;
    for (at, byte) in rest.bytes().enumerate() {
        let begins = match byte {
            b'-' => true,
            b'g' | b'x' | b's' | b'n' | b'A' | b'b' | b'B' => !is_in_word,
            _ => false,
        };
        if begins && at > 0 {
            return at;
        }
        is_in_word = is_word_byte(byte);
    }
    rest.len()
}

fn secret_at(text: &str, at: usize, rest: &str) -> Option<Secret> {
    if rest.starts_with('-') {
        return if rest.starts_with(KEY_BEGIN) { key_block(rest) } else { None };
    }
    let is_inside_word =
        text.get(..at).and_then(|before| before.bytes().next_back()).is_some_and(is_word_byte);
    if is_inside_word {
        return None;
    }
    let bearer = rest
        .as_bytes()
        .get(..BEARER.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(BEARER.as_bytes()));
    if bearer {
        return token(rest, BEARER.len(), BEARER_CHARS_MIN);
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

fn key_block(rest: &str) -> Option<Secret> {
    let line_end = rest.find('\n').unwrap_or(rest.len()).min(rest.len());
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
        let bearer = BEARER.len() + BEARER_CHARS_MIN;
        let key = format!("{KEY_BEGIN}PRIVATE KEY-----").len();
        assert_eq!(tokens.chain([bearer, key]).min(), Some(SECRET_BYTES_MIN));
    }

    #[test]
    fn every_secret_has_a_byte_that_is_looked_for() {
        let beginnings = PREFIXES.iter().map(|(prefix, _)| *prefix);
        for beginning in beginnings.chain([KEY_BEGIN, BEARER, &BEARER.to_uppercase()]) {
            assert!(has_secret_byte(beginning), "{beginning}");
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

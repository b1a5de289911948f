//! Masks likely credentials, so that a leaked key does not reach a context, a screen or a log.
//!
//! Three kinds of forms are masked:
//!
//! - the tokens and key blocks that issuers document, by their prefixes (`forms`);
//! - values of a name that says what they are: `password=..`, `"api_key": ".."`, `--token ..`,
//!   cookies (`assignment`);
//! - the rules of gitleaks for further issuers (`rules`).
//!
//! One automaton finds every prefix, name and keyword in one pass; a form is examined only where
//! one is. This catches accidents; it does not prove that a text has no secrets.

mod assignment;
mod forms;

use std::{borrow::Cow, ops::Range, sync::LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde_json::Value;

pub use self::assignment::is_secret_field;
use self::{
    assignment::NAMES,
    forms::{Form, Searches},
};
use super::payload::is_printable_without;

/// The replacement for a secret; the recognizable start of the secret is kept.
const MASK: &str = "[masked]";
/// Fewest bytes of a text with a secret, other than those with one of [`SHORT_SECRET_BYTES`].
const SECRET_BYTES_MIN: usize = 15;
/// Every secret in a shorter text contains one of these bytes.
const SHORT_SECRET_BYTES: [u8; 4] = *b"@=:-";

/// What a keyword may begin.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Form(Form),
    Name(assignment::Name),
    Rule(usize),
}

/// All keywords, and what each may begin.
struct Keywords {
    automaton: AhoCorasick,
    kinds: Vec<Kind>,
}

static KEYWORDS: LazyLock<Keywords> = LazyLock::new(|| {
    let forms = forms::keywords().map(|(word, form)| (word, Kind::Form(form)));
    let names = NAMES.iter().map(|(word, name)| (*word, Kind::Name(*name)));
    let rules = forms::rule_keywords().map(|(word, rule)| (word, Kind::Rule(rule)));
    let (words, kinds): (Vec<&str>, Vec<Kind>) = forms.chain(names).chain(rules).unzip();
    // It takes some 600 kB, and a tenth of the time of the smaller form: every text is searched.
    let automaton = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(words)
        .expect("some hundred short keywords");
    Keywords { automaton, kinds }
});

/// Replaces each credential in `text` by its recognizable start and `[masked]`.
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    if is_harmless(text) {
        return text.into();
    }
    let mut found = find(text);
    if found.is_empty() {
        return text.into();
    }
    found.sort_by_key(|secret| (secret.start, secret.end));
    let mut masked = String::with_capacity(text.len());
    let mut copied = 0;
    for secret in found {
        if secret.start >= copied && (secret.start > copied || copied == 0) {
            masked.push_str(text.get(copied..secret.start).expect("secrets begin and end at characters"));
            masked.push_str(MASK);
        }
        copied = copied.max(secret.end);
    }
    masked.push_str(text.get(copied..).expect("a secret ends at a character"));
    masked.into()
}

/// Returns the text of a field with its credentials masked; the whole text if the field's name says
/// that it is one, as `password` does.
pub fn mask_field<'t>(name: &str, text: &'t str) -> Cow<'t, str> {
    if is_secret_field(name, text) { MASK.into() } else { mask_secrets(text) }
}

/// Masks the credentials in every key and text of a value.
pub fn mask_value(value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
        Value::String(text) => {
            if let Cow::Owned(masked) = mask_secrets(text) {
                *text = masked;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::Object(fields) => {
            for (name, mut value) in std::mem::take(fields) {
                if let Value::String(text) = &mut value {
                    *text = mask_field(&name, text).into_owned();
                } else {
                    mask_value(&mut value);
                }
                fields.insert(mask_secrets(&name).into_owned(), value);
            }
        }
    }
}

/// Whether `text` needs neither stripping nor masking, checked in one pass over its bytes.
///
/// Shape: true only for printable ASCII that is too short for a secret; false proves nothing.
pub fn is_harmless(text: &str) -> bool {
    text.len() < SECRET_BYTES_MIN && is_printable_without(text.as_bytes(), SHORT_SECRET_BYTES)
}

/// The places of the secrets, without the parts that are kept; they may overlap.
fn find(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut searches) = (Vec::new(), Searches::default());
    // Most texts have no keyword, and this search ends at the first one.
    if !KEYWORDS.automaton.is_match(text) {
        return found;
    }
    let mut covered = 0;
    for hit in KEYWORDS.automaton.find_overlapping_iter(text) {
        let Some(kind) = KEYWORDS.kinds.get(hit.pattern().as_usize()) else { continue };
        let secret = match kind {
            // A key block covers many words that begin nothing.
            _ if hit.end() <= covered => None,
            Kind::Form(form) => form.find(text, hit.start()),
            Kind::Name(name) => name.find_value(text, hit.start()..hit.end()),
            Kind::Rule(rule) => {
                searches.add(*rule, hit.start());
                None
            }
        };
        if let Some(secret) = secret.filter(|secret| !secret.is_empty()) {
            covered = covered.max(secret.end);
            found.push(secret);
        }
    }
    let own = found.len();
    for (whole, secret) in searches.run(text) {
        // The own form keeps the recognizable start of the same secret.
        let is_known = |own: &Range<usize>| own.start < whole.end && whole.start < own.end;
        if !found.iter().take(own).any(is_known) {
            found.push(secret);
        }
    }
    found
}

#[cfg(test)]
mod tests;

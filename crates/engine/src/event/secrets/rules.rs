//! The rules of gitleaks: a regular expression for the tokens of each of some two hundred issuers.
//!
//! A rule is compiled when one of its keywords is first found, and is run on the text around the
//! keyword only, so the memory of a daemon grows with the issuers that its texts name.
//!
//! Considered: the rules of secretlint (regular expressions in JavaScript), of detect-secrets and
//! noseyparker (fewer issuers), of trufflehog (AGPL), and kingfisher (several hundred crates). The
//! rules of gitleaks are one file under the MIT licence, which is `gitleaks-LICENSE`;
//! `scripts/secret-rules` writes the part that is used.

use std::{ops::Range, sync::OnceLock};

use regex::bytes::{Captures, Regex, RegexBuilder};

/// Shape: see the file's own comment.
const FILE: &str = include_str!("gitleaks.tsv");
/// Number of rules in the file.
const RULES: usize = 213;
/// Longest text before and after the start of a keyword in which a rule searches.
const BEFORE_BYTES: usize = 160;
const AFTER_BYTES: usize = 640;
/// Most text in which all rules together search for one masking, so that a text that consists of
/// keywords takes some milliseconds.
const SEARCHED_BYTES_MAX: usize = 64 * 1024;

/// One rule.
struct Rule {
    keywords: &'static str,
    entropy_min: f64,
    /// The capture group of the secret; 0 for the first that matches, or else the whole.
    group: usize,
    pattern: &'static str,
}

static COMPILED: [OnceLock<Option<Regex>>; RULES] = [const { OnceLock::new() }; RULES];

fn rules() -> impl Iterator<Item = Rule> {
    FILE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.splitn(5, '\t').skip(1);
        Some(Rule {
            keywords: fields.next()?,
            entropy_min: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            pattern: fields.next()?,
        })
    })
}

/// The keywords of all rules, and the index of the rule.
pub(super) fn keywords() -> impl Iterator<Item = (&'static str, usize)> {
    rules().enumerate().flat_map(|(index, rule)| rule.keywords.split(',').map(move |word| (word, index)))
}

/// Compiles a rule; `None` if it is not valid, which a test excludes.
fn compiled(index: usize, rule: &Rule) -> Option<&'static Regex> {
    let compile = || RegexBuilder::new(rule.pattern).unicode(false).build().ok();
    COMPILED.get(index)?.get_or_init(compile).as_ref()
}

/// The places of a text in which rules search.
#[derive(Debug, Default)]
pub(super) struct Searches {
    /// The rule, and the parts of the text, in order and apart.
    parts: Vec<(usize, Range<usize>)>,
    bytes: usize,
}

impl Searches {
    /// Adds the text around a keyword of a rule.
    pub(super) fn add(&mut self, rule: usize, keyword: usize) {
        let part = keyword.saturating_sub(BEFORE_BYTES)..keyword + AFTER_BYTES;
        let last = self.parts.iter_mut().rev().find(|(of, _)| *of == rule);
        let before = self.bytes;
        match last {
            Some((_, last)) if last.end >= part.start => {
                self.bytes += part.end - last.end;
                if self.bytes <= SEARCHED_BYTES_MAX {
                    last.end = part.end;
                }
            }
            _ => {
                self.bytes += part.len();
                if self.bytes <= SEARCHED_BYTES_MAX {
                    self.parts.push((rule, part));
                }
            }
        }
        if self.bytes > SEARCHED_BYTES_MAX {
            self.bytes = before;
        }
    }

    /// What the rules find: each whole match, and the secret in it.
    pub(super) fn run(mut self, text: &str) -> Vec<(Range<usize>, Range<usize>)> {
        if self.parts.is_empty() {
            return Vec::new();
        }
        self.parts.sort_by_key(|(rule, part)| (*rule, part.start));
        let (mut found, mut parts) = (Vec::new(), self.parts.into_iter().peekable());
        for (index, rule) in rules().enumerate() {
            while let Some((_, part)) = parts.next_if(|(of, _)| *of == index) {
                let end = part.end.min(text.len());
                let Some(bytes) = text.as_bytes().get(part.start..end) else { continue };
                let Some(regex) = compiled(index, &rule) else { continue };
                for captures in regex.captures_iter(bytes) {
                    found.extend(place(text, &rule, &captures, part.start));
                }
            }
        }
        found
    }
}

/// The whole match and its secret, as places of the text; `None` if it is no secret.
fn place(
    text: &str,
    rule: &Rule,
    captures: &Captures<'_>,
    from: usize,
) -> Option<(Range<usize>, Range<usize>)> {
    let whole = captures.get(0)?;
    let secret = match rule.group {
        0 => captures.iter().skip(1).flatten().next().unwrap_or(whole),
        group => captures.get(group)?,
    };
    let is_random = rule.entropy_min <= 0.0 || entropy(secret.as_bytes()) >= rule.entropy_min;
    let secret_range = from + secret.start()..from + secret.end();
    // A match can begin or end inside a character; such text is no token.
    text.get(secret_range.clone())?;
    is_random.then(|| (from + whole.start()..from + whole.end(), secret_range))
}

/// The entropy of a text, in bits a byte (Shannon), as gitleaks computes it.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let length = f64::from(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    counts
        .into_iter()
        .filter(|count| *count > 0)
        .map(|count| f64::from(count) / length)
        .map(|part| -part * part.log2())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_read_and_compiles() {
        let all: Vec<Rule> = rules().collect();
        assert_eq!(all.len(), RULES);
        for (index, rule) in all.iter().enumerate() {
            assert!(compiled(index, rule).is_some(), "{}", rule.pattern);
            assert!(rule.keywords.split(',').all(|word| word.len() > 1), "{}", rule.keywords);
        }
    }

    #[test]
    fn the_text_that_rules_search_is_bounded() {
        let mut searches = Searches::default();
        for at in 0..100_000 {
            searches.add(at % 200, at * 5);
        }
        let searched: usize = searches.parts.iter().map(|(_, part)| part.len()).sum();
        assert!(searched <= SEARCHED_BYTES_MAX && searched > SEARCHED_BYTES_MAX / 2, "{searched}");
    }
}

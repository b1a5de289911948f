//! Tokens and key blocks by their documented prefixes, and by the rules of gitleaks: a regular
//! expression for the tokens of each of some two hundred issuers.
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

/// A token's prefix and the fewest characters after it.
///
/// Source: the formats that the issuers document, and the rules of gitleaks, whose lengths are
/// exact where these are minima.
const PREFIXES: [(&str, usize); 71] = [
    ("github_pat_", 20),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("glpat-", 16),
    ("gldt-", 16),
    ("glptt-", 16),
    ("glrt-", 16),
    ("glft-", 16),
    ("glsoat-", 16),
    ("xoxb-", 10),
    ("xoxa-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("xoxe-", 10),
    ("xapp-", 10),
    ("sk_live_", 10),
    ("sk_test_", 10),
    ("rk_live_", 10),
    ("rk_test_", 10),
    ("whsec_", 16),
    ("hf_", 30),
    ("npm_", 30),
    ("pypi-", 40),
    ("AKIA", 16),
    ("ASIA", 16),
    ("ABIA", 16),
    ("ACCA", 16),
    ("AIza", 30),
    ("ya29.", 20),
    ("GOCSPX-", 20),
    ("sk-", 16),
    ("gsk_", 20),
    ("xai-", 20),
    ("nvapi-", 20),
    ("r8_", 30),
    ("pplx-", 20),
    ("dckr_pat_", 20),
    ("dckr_oat_", 20),
    ("SG.", 22),
    ("SK", 32),
    ("hvs.", 20),
    ("hvb.", 20),
    ("glsa_", 20),
    ("glc_", 20),
    ("dop_v1_", 20),
    ("doo_v1_", 20),
    ("dor_v1_", 20),
    ("lin_api_", 20),
    ("lin_oauth_", 20),
    ("ATATT3", 20),
    ("ATBB", 24),
    ("AGE-SECRET-KEY-1", 20),
    ("tskey-", 12),
    ("shpat_", 20),
    ("shpss_", 20),
    ("shpca_", 20),
    ("shppa_", 20),
    ("sntrys_", 20),
    ("sntryu_", 20),
    ("PMAK-", 20),
    ("rubygems_", 20),
    ("figd_", 20),
    ("ntn_", 30),
    ("pul-", 30),
    ("sq0csp-", 20),
    ("sq0atp-", 20),
    ("LTAI", 16),
];
/// The schemes of an `Authorization` header, and the fewest credential characters after them;
/// shorter text counts as prose.
const SCHEMES: [(&str, usize); 2] = [("bearer ", 16), ("basic ", 16)];
/// The start of an address whose path is a secret.
const ADDRESSES: [(&str, usize); 3] = [
    ("hooks.slack.com/services/", 16),
    ("discord.com/api/webhooks/", 16),
    ("discordapp.com/api/webhooks/", 16),
];
/// The prefix of a JSON Web Token: the base64 of `{"`.
///
/// Source: RFC 7519; three base64url parts separated by dots, the last one empty if unsigned.
const JWT: &str = "eyJ";
/// Fewest characters of a JSON Web Token's first two parts together.
const JWT_CHARS_MIN: usize = 24;
/// The text before the authority of a URL; the part up to `@` can contain a password (RFC 3986,
/// 3.2.1).
const AUTHORITY: &str = "://";
/// Fewest characters of a token without a user before the host; a name is shorter.
const URL_TOKEN_CHARS_MIN: usize = 16;
const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";
/// What follows the number of a Telegram bot, and the digits and characters around it.
const TELEGRAM: &str = ":AA";
const TELEGRAM_DIGITS: Range<usize> = 8..11;
const TELEGRAM_CHARS_MIN: usize = 33;
/// Programs whose password is attached to `-p`.
const PROGRAMS: [&str; 3] = ["mysql", "mariadb", "sshpass"];
/// Longest header of a JSON Web Token.
const HEADER_BYTES_MAX: usize = 1_024;
/// Longest form that is examined, and longest line of a command or of a key block's beginning.
const FORM_BYTES_MAX: usize = 4_096;
const LINE_BYTES_MAX: usize = 400;
/// Fewest characters of the rest of a token in the next line.
const REST_CHARS_MIN: usize = 4;

/// A form of a secret that a keyword begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// A token: its prefix, as written, and the fewest characters after it.
    Prefix(&'static str, usize),
    /// The scheme of a header, in any case.
    Scheme(&'static str, usize),
    Address(&'static str, usize),
    WebToken,
    Authority,
    KeyBlock,
    Telegram,
    Program(&'static str),
}

/// The keywords of all forms.
pub(super) fn keywords() -> impl Iterator<Item = (&'static str, Form)> {
    let prefixes = PREFIXES.iter().map(|(word, least)| (*word, Form::Prefix(word, *least)));
    let schemes = SCHEMES.iter().map(|(word, least)| (*word, Form::Scheme(word, *least)));
    let addresses = ADDRESSES.iter().map(|(word, least)| (*word, Form::Address(word, *least)));
    let programs = PROGRAMS.iter().map(|word| (*word, Form::Program(word)));
    let others = [
        (JWT, Form::WebToken),
        (AUTHORITY, Form::Authority),
        (KEY_BEGIN, Form::KeyBlock),
        (TELEGRAM, Form::Telegram),
    ];
    prefixes.chain(schemes).chain(addresses).chain(programs).chain(others)
}

impl Form {
    /// The secret whose keyword begins at `at`, without the part that is kept.
    pub(super) fn find(self, text: &str, at: usize) -> Option<Range<usize>> {
        let rest = text.get(at..)?;
        let before = text.get(..at)?.bytes().next_back();
        let is_inside_word = before.is_some_and(is_word_byte);
        let relative = match self {
            Self::Prefix(prefix, least) if !is_inside_word && rest.starts_with(prefix) => {
                token(rest, prefix.len(), least)
            }
            Self::Scheme(scheme, least) if !is_inside_word => token(rest, scheme.len(), least),
            Self::Address(start, least) => token(rest, start.len(), least),
            Self::WebToken if !is_inside_word && rest.starts_with(JWT) => web_token(rest),
            Self::Authority => user_info(rest),
            Self::KeyBlock if rest.starts_with(KEY_BEGIN) => key_block(rest),
            Self::Telegram => telegram(text.get(..at)?, rest),
            Self::Program(program) if !is_inside_word => password_option(rest, program.len()),
            Self::Prefix(..) | Self::Scheme(..) | Self::WebToken | Self::KeyBlock | Self::Program(_) => None,
        }?;
        Some(at + relative.start..at + relative.end)
    }
}

/// Finds the characters of a token after `kept` bytes; also those in the next line, if a token was
/// split by a line break.
fn token(rest: &str, kept: usize, least: usize) -> Option<Range<usize>> {
    let run = |from: usize| {
        let rest = rest.get(from..).expect("keywords and line breaks are ASCII");
        rest.bytes().take_while(|byte| is_token_byte(*byte)).count()
    };
    let first = run(kept);
    let mut end = kept + first;
    let after = rest.get(end..).expect("the end of a run of ASCII");
    let line_end = ["\\\n", "\r\n", "\n"].iter().find(|line_end| after.starts_with(**line_end));
    if let Some(line_end) = line_end.filter(|_| first > 0) {
        let from = end + line_end.len();
        let second = run(from);
        let line = rest.get(from..from + second).expect("a run of ASCII");
        let is_rest = second >= REST_CHARS_MIN && line.bytes().any(|byte| byte.is_ascii_digit());
        let is_whole_line = rest.get(from + second..).is_some_and(|after| {
            after.is_empty()
                || after.starts_with(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ','))
        });
        if is_rest && is_whole_line && first + second >= least {
            end = from + second;
        }
    }
    (end - kept >= least).then_some(kept..end)
}

/// Finds a JSON Web Token; other base64 with this prefix has no dots.
fn web_token(rest: &str) -> Option<Range<usize>> {
    memchr::memchr(b'.', rest.as_bytes().get(..HEADER_BYTES_MAX).unwrap_or(rest.as_bytes()))?;
    let is_part = |byte: &u8| is_word_byte(*byte) || matches!(byte, b'-' | b'.');
    let end = rest.bytes().take(FORM_BYTES_MAX).take_while(is_part).count();
    let mut parts = rest.get(..end)?.splitn(3, '.');
    let (header, claims) = (parts.next()?, parts.next()?);
    let is_token = header.len() + claims.len() >= JWT_CHARS_MIN && parts.next().is_some();
    is_token.then_some(JWT.len()..end)
}

/// Finds the password of `://user:password@host`, or the token of `://token@host`; `rest` begins
/// with the colon of the scheme.
fn user_info(rest: &str) -> Option<Range<usize>> {
    let authority = rest.strip_prefix(AUTHORITY)?;
    let length =
        authority.find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\'' | '<'));
    let (user, host) = authority.get(..length.unwrap_or(authority.len()))?.rsplit_once('@')?;
    if host.is_empty() {
        return None;
    }
    match user.split_once(':') {
        Some((name, password)) => {
            let kept = AUTHORITY.len() + name.len() + 1;
            // A token can stand in the place of the name: `https://TOKEN:x-oauth-basic@host`.
            let start = if is_url_token(name) { AUTHORITY.len() } else { kept };
            (!password.is_empty() || start < kept).then_some(start..kept + password.len())
        }
        None => is_url_token(user).then_some(AUTHORITY.len()..AUTHORITY.len() + user.len()),
    }
}

fn is_url_token(user: &str) -> bool {
    user.len() >= URL_TOKEN_CHARS_MIN
        && user.bytes().all(is_token_byte)
        && user.bytes().any(|byte| byte.is_ascii_digit())
}

fn key_block(rest: &str) -> Option<Range<usize>> {
    let line_end = rest.bytes().take(LINE_BYTES_MAX).take_while(|byte| *byte != b'\n').count();
    let first_line = rest.get(..line_end)?;
    let label_end = first_line.get(KEY_BEGIN.len()..)?.find("-----")? + KEY_BEGIN.len();
    let kept = label_end + "-----".len();
    let label = first_line.get(..label_end)?;
    if !(label.ends_with("PRIVATE KEY") || label.ends_with("PRIVATE KEY BLOCK")) {
        return None;
    }
    let end = match rest.find(KEY_END) {
        Some(begin) => {
            let tail = rest.get(begin + KEY_END.len()..)?;
            tail.find("-----").map_or(rest.len(), |dashes| begin + KEY_END.len() + dashes + "-----".len())
        }
        None => rest.len(),
    };
    Some(kept..end)
}

/// Finds the token of a Telegram bot after its number; `rest` begins with the colon.
fn telegram(before: &str, rest: &str) -> Option<Range<usize>> {
    let digits = before.bytes().rev().take(TELEGRAM_DIGITS.end).take_while(u8::is_ascii_digit).count();
    let is_bot = TELEGRAM_DIGITS.contains(&digits) && rest.starts_with(TELEGRAM);
    let run = rest.get(1..)?.bytes().take_while(|byte| is_word_byte(*byte) || *byte == b'-').count();
    (is_bot && run >= TELEGRAM_CHARS_MIN).then_some(1..1 + run)
}

/// Finds the password attached to `-p` after a program's name in the same line.
fn password_option(rest: &str, program: usize) -> Option<Range<usize>> {
    let line = rest.bytes().take(LINE_BYTES_MAX).take_while(|byte| *byte != b'\n').count();
    let line = rest.get(..line)?;
    let option = line.get(program..)?.find(" -p")? + program + " -p".len();
    let spaces = if line.starts_with("sshpass") {
        line.get(option..)?.bytes().take_while(|byte| *byte == b' ').count()
    } else {
        0
    };
    let start = option + spaces;
    let length = line.get(start..)?.bytes().take_while(|byte| !byte.is_ascii_whitespace()).count();
    let value = line.get(start..start + length)?;
    // A port, or a pair of them, is no password; nor is the start of another option.
    let is_port = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b':') && value.len() <= 11;
    let is_other =
        value.starts_with(['-', '$', '=']) || value.starts_with("assword") || value.starts_with("rotocol");
    (length >= 3 && !(is_port && value.contains(':')) && !is_other).then_some(start..start + length)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'+' | b'=' | b'~')
}

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
pub(super) fn rule_keywords() -> impl Iterator<Item = (&'static str, usize)> {
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

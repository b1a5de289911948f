//! Reads Rust text as far as the tidy checks need it: tokens, comments, and the paths in the code.
//!
//! Strings and character literals are skipped, so a string may quote a rule without breaking it.

/// A token of code, or a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name, keyword or number.
    Word(String),
    /// `::`.
    PathSep,
    /// Any other single character.
    Mark(char),
    /// The text of a comment, doc comments included.
    Comment(String),
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }

    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::PathSep | Self::Mark(_) | Self::Comment(_) => None,
        }
    }
}

/// A token and the line on which it begins, counted from 1.
pub(crate) type Placed = (usize, Token);

/// Splits `text` into tokens, without strings, characters and white space.
pub(crate) fn tokens(text: &str) -> Vec<Placed> {
    let mut reader = Reader { rest: text, line: 1, found: Vec::new() };
    while reader.step() {}
    reader.found
}

/// Every path in `code` in full: the groups of `use a::{b, c::d}` become `a::b` and `a::c::d`.
///
/// A single name counts as a path only directly after `use`. `code` must not hold comments.
pub(crate) fn paths(code: &[Placed]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((_, token)) = code.get(at) {
        let is_use = token.is_word("use");
        let is_start = token.word().is_some() && is(code, at + 1, &Token::PathSep);
        let is_inner = at > 0 && is(code, at - 1, &Token::PathSep);
        at = match (is_use, is_start && !is_inner) {
            (true, _) => read_tree(code, at + 1, "", &mut found),
            (false, true) => read_tree(code, at, "", &mut found),
            (false, false) => at + 1,
        };
    }
    found
}

fn is(code: &[Placed], at: usize, wanted: &Token) -> bool {
    code.get(at).is_some_and(|(_, token)| token == wanted)
}

/// Reads one path, group or `*` from `at` on and returns where it ends.
fn read_tree(code: &[Placed], at: usize, prefix: &str, found: &mut Vec<(usize, String)>) -> usize {
    match code.get(at) {
        Some((_, Token::PathSep)) => read_tree(code, at + 1, prefix, found),
        Some((_, Token::Mark('{'))) => read_group(code, at + 1, prefix, found),
        Some((line, Token::Word(word))) => {
            let path = if prefix.is_empty() { word.clone() } else { format!("{prefix}::{word}") };
            let goes_on = is(code, at + 1, &Token::PathSep)
                && matches!(code.get(at + 2), Some((_, Token::Word(_) | Token::Mark('{' | '*'))));
            if goes_on {
                return read_tree(code, at + 2, &path, found);
            }
            found.push((*line, path));
            at + 1
        }
        Some((line, _)) => {
            found.push((*line, prefix.to_owned()));
            at + 1
        }
        None => at,
    }
}

fn read_group(code: &[Placed], start: usize, prefix: &str, found: &mut Vec<(usize, String)>) -> usize {
    let mut at = start;
    while let Some((_, token)) = code.get(at) {
        at = match token {
            Token::Mark('}') => return at + 1,
            Token::Mark(',') => at + 1,
            Token::Word(word) if word == "as" => at + 2,
            Token::Word(_) | Token::Mark(_) | Token::PathSep | Token::Comment(_) => {
                read_tree(code, at, prefix, found)
            }
        };
    }
    at
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    found: Vec<Placed>,
}

impl Reader<'_> {
    /// Takes one token or literal; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        let length = if self.rest.starts_with("//") {
            let length = self.rest.find('\n').unwrap_or(self.rest.len());
            self.comment(length)
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment_length(self.rest))
        } else if let Some(length) = string_length(self.rest) {
            length
        } else if first == '\'' {
            quote_length(self.rest)
        } else if first.is_alphanumeric() || first == '_' {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let length = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
            self.found.push((self.line, Token::Word(self.rest[..length].to_owned())));
            length
        } else if self.rest.starts_with("::") {
            self.found.push((self.line, Token::PathSep));
            2
        } else {
            if !first.is_whitespace() {
                self.found.push((self.line, Token::Mark(first)));
            }
            first.len_utf8()
        };
        let (taken, rest) = self.rest.split_at(length);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        true
    }

    fn comment(&mut self, length: usize) -> usize {
        let lines = self.rest[..length].lines().enumerate();
        let comments = lines.map(|(index, text)| (self.line + index, Token::Comment(text.to_owned())));
        self.found.extend(comments);
        length
    }
}

fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        if rest.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of the string literal at the beginning of `text`, if there is one.
fn string_length(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = text.strip_prefix(prefix).unwrap_or_default();
        let hashes = after.len() - after.trim_start_matches('#').len();
        after[hashes..].starts_with('"') && (hashes == 0 || prefix.ends_with('r'))
    })?;
    let body = &text[prefix.len()..];
    if prefix.ends_with('r') {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let open = hashes + 1;
        let close = body[open..].find(&end).map_or(body.len(), |at| open + at + end.len());
        return Some(prefix.len() + close);
    }
    let mut is_escaped = true; // The opening quote does not close.
    for (at, c) in body.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(prefix.len() + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// The length of a character literal, or 1 for the quote of a lifetime.
fn quote_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let after = at + escaped.len_utf8();
            text[after..].find('\'').map_or(text.len(), |close| after + close + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths_of(text: &str) -> Vec<String> {
        let code: Vec<Placed> =
            tokens(text).into_iter().filter(|(_, token)| !matches!(token, Token::Comment(_))).collect();
        paths(&code).into_iter().map(|(line, path)| format!("{line} {path}")).collect()
    }

    #[test]
    fn groups_are_written_out_with_their_lines() {
        let text = "use crate::{\n    event::{Event, self as e},\n    time,\n};\nuse tokio;\nuse std::*;";
        let expected = ["2 crate::event::Event", "2 crate::event::self", "3 crate::time", "5 tokio", "6 std"];
        assert_eq!(paths_of(text), expected);
    }

    #[test]
    fn paths_in_code_are_found_without_their_tails() {
        let text = "fn f() -> Vec<crate::ledger::Reason> { a::<T>::b(x.y, std::fs::read) }";
        assert_eq!(paths_of(text), ["1 crate::ledger::Reason", "1 a", "1 std::fs::read"]);
    }

    #[test]
    fn literals_and_comments_contain_no_paths() {
        let text = r###"// use tokio::x;
/* a::b /* c::d */ e::f */ let q = '"'; let s = "g::h \" i::j"; let l: &'static str = r#"k::"l"::m"#;
let c = '\''; let b = b"n::o"; p::q"###;
        assert_eq!(paths_of(text), ["3 p::q"]);
    }
}

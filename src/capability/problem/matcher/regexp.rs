//! JavaScript's regular expressions, translated to those of `regex`.
//!
//! Problem matchers of GitHub and VS Code are written in JavaScript's syntax, without flags. What
//! `regex` reads otherwise is translated: `\d`, `\w` and `\b` are ASCII; `{` without a number, and a
//! hyphen next to a class such as `\w`, are characters; in a class `[`, `&&` and `--` are characters.
//! A look-ahead at the end, and a negative one behind `^`, are translated; what has no equivalent in
//! linear time is refused by its name. Source: ECMA-262, sections 22.2 and B.1.2.

use regex::{Captures, Regex, RegexBuilder};

/// Largest compiled regular expression, in bytes.
const REGEXP_BYTES_MAX: usize = 1024 * 1024;
const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str =
    r"\t\n\x0B\x0C\r \u{A0}\u{1680}\u{2000}-\u{200A}\u{2028}\u{2029}\u{202F}\u{205F}\u{3000}\u{FEFF}";

/// An expression: lines that match it, and that do not match any of those it excludes.
#[derive(Debug, Clone)]
pub(super) struct Regexp {
    regex: Regex,
    except: Vec<Regex>,
}

impl Regexp {
    /// Errors: the error, and its position in the expression.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let chars: Vec<char> = text.chars().collect();
        let mut translation =
            Translation { chars: &chars, at: 0, written: String::new(), origins: Vec::new() };
        let except = translation.exclusions()?;
        let except =
            except.iter().map(|(text, from)| Self::excluded(text, *from)).collect::<Result<_, _>>()?;
        translation.expression()?;
        let Translation { written, origins, .. } = translation;
        let regex = build(&written, &origins)?;
        Ok(Self { regex, except })
    }

    /// An excluded beginning, whose text starts at a character of the whole.
    fn excluded(text: &str, from: usize) -> Result<Regex, String> {
        let chars: Vec<char> = text.chars().collect();
        let mut inner = Translation { chars: &chars, at: 0, written: String::new(), origins: Vec::new() };
        inner.write("^(?:");
        inner.expression()?;
        inner.write(")");
        let origins: Vec<usize> = inner.origins.iter().map(|origin| origin + from).collect();
        build(&inner.written, &origins)
    }

    pub(super) fn is_match(&self, line: &str) -> bool {
        !self.is_excluded(line) && self.regex.is_match(line)
    }

    pub(super) fn captures<'l>(&self, line: &'l str) -> Option<Captures<'l>> {
        if self.is_excluded(line) { None } else { self.regex.captures(line) }
    }

    pub(super) fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    fn is_excluded(&self, line: &str) -> bool {
        self.except.iter().any(|except| except.is_match(line))
    }
}

/// Shape: `origins` is, for each character of `text`, that of the original.
fn build(text: &str, origins: &[usize]) -> Result<Regex, String> {
    RegexBuilder::new(text).size_limit(REGEXP_BYTES_MAX).build().map_err(|error| {
        let error = error.to_string();
        let what = error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let is_caret = |line: &&str| line.contains('^') && line.trim_matches([' ', '^']).is_empty();
        let caret = error.lines().rev().find(is_caret).and_then(|line| line.find('^'));
        // The error shows the expression indented by four characters.
        let origin = caret.and_then(|caret| origins.get(caret.saturating_sub(4)).or(origins.last()));
        origin.map_or(what.clone(), |origin| format!("{what} at character {}", origin + 1))
    })
}

struct Translation<'a> {
    chars: &'a [char],
    at: usize,
    written: String,
    /// For each written character the one that it is from.
    origins: Vec<usize>,
}

impl Translation<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn starts(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    fn write(&mut self, text: &str) {
        self.written.push_str(text);
        self.origins.extend(text.chars().map(|_| self.at));
    }

    /// Writes a literal character.
    fn literal(&mut self, c: char) {
        let is_plain = c.is_ascii_alphanumeric() || matches!(c, '_' | ' ' | '<' | '>' | '/') || !c.is_ascii();
        match c {
            _ if is_plain => self.write(c.encode_utf8(&mut [0; 4])),
            _ if c.is_ascii_punctuation() => self.write(&format!("\\{c}")),
            _ => self.write(&format!("\\x{{{:X}}}", u32::from(c))),
        }
    }

    fn refuse<T>(&self, name: &str, way: &str) -> Result<T, String> {
        let way = if way.is_empty() { String::new() } else { format!("; {way}") };
        Err(format!("{name} is not supported at character {}{way}", self.at + 1))
    }

    /// Negative look-aheads behind a first `^`: their texts, each with its position.
    fn exclusions(&mut self) -> Result<Vec<(String, usize)>, String> {
        let mut found = Vec::new();
        if !self.starts("^(?!") || self.has_alternatives() {
            return Ok(found);
        }
        self.at = 1;
        while self.starts("(?!") {
            let Some(end) = self.end_of_group(self.at) else {
                return self.refuse("a group without an end", "");
            };
            let from = self.at + 3;
            let text = self.chars.get(from..end).expect("a group ends after its `(?!`");
            found.push((text.iter().collect(), from));
            self.at = end + 1;
        }
        self.write("^");
        Ok(found)
    }

    /// Whether there is a `|` outside of groups.
    fn has_alternatives(&self) -> bool {
        let mut at = 0;
        while let Some(c) = self.chars.get(at) {
            at = match c {
                '|' => return true,
                '(' => self.end_of_group(at).unwrap_or(self.chars.len()),
                _ => self.after(at),
            };
            at += usize::from(self.chars.get(at) == Some(&')'));
        }
        false
    }

    /// The position after a character, an escape or a class.
    fn after(&self, at: usize) -> usize {
        match self.chars.get(at) {
            Some('\\') => at + 2,
            Some('[') => {
                let mut end = at + 1;
                while self.chars.get(end).is_some_and(|c| *c != ']') {
                    end += if self.chars.get(end) == Some(&'\\') { 2 } else { 1 };
                }
                end + 1
            }
            _ => at + 1,
        }
    }

    /// The position of the `)` of the group that begins at a position.
    fn end_of_group(&self, from: usize) -> Option<usize> {
        let (mut depth, mut at) = (0usize, from);
        while let Some(c) = self.chars.get(at) {
            match c {
                '(' => depth += 1,
                ')' if depth == 1 => return Some(at),
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at = self.after(at);
        }
        None
    }

    fn expression(&mut self) -> Result<(), String> {
        let mut is_atom = false;
        while let Some(c) = self.peek(0) {
            let was_atom = std::mem::replace(&mut is_atom, !matches!(c, '^' | '|' | '('));
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '.' => {
                    self.write(r"[^\n\r\u{2028}\u{2029}]");
                    self.at += 1;
                }
                '{' => match self.repetition().filter(|_| was_atom) {
                    Some(length) => {
                        let text: String = self.chars.iter().skip(self.at).take(length).collect();
                        self.write(&text);
                        self.at += length;
                    }
                    None => {
                        self.literal('{');
                        self.at += 1;
                    }
                },
                '}' | ']' => {
                    self.literal(c);
                    self.at += 1;
                }
                '^' | '$' | '|' | ')' | '*' | '+' | '?' => {
                    self.write(c.encode_utf8(&mut [0; 4]));
                    self.at += 1;
                }
                c => {
                    self.literal(c);
                    self.at += 1;
                }
            }
        }
        Ok(())
    }

    /// The length of `{2}`, `{2,}` or `{2,3}`.
    fn repetition(&self) -> Option<usize> {
        let digits = |from: usize| {
            (from..).take_while(|ahead| self.peek(*ahead).is_some_and(|c| c.is_ascii_digit())).count()
        };
        let first = digits(1);
        let mut end = 1 + first;
        if self.peek(end) == Some(',') {
            end += 1;
            end += digits(end);
        }
        (first > 0 && self.peek(end) == Some('}')).then_some(end + 1)
    }

    fn group(&mut self) -> Result<(), String> {
        if !self.starts("(?") {
            self.write("(");
            self.at += 1;
            return Ok(());
        }
        let is_last = self.end_of_group(self.at).is_some_and(|end| end + 1 == self.chars.len());
        let behind = "put it in a group of its own, as only groups become fields";
        match (self.peek(2), self.peek(3)) {
            (Some(':'), _) => {
                self.write("(?:");
                self.at += 3;
            }
            // What follows the end is in no group.
            (Some('='), _) if is_last => {
                self.write("(?:");
                self.at += 3;
            }
            (Some('='), _) => return self.refuse("look-ahead `(?=`", behind),
            (Some('!'), _) => {
                let way = "say what may stand there, or exclude whole lines with `^(?!...)` at the beginning";
                return self.refuse("negative look-ahead `(?!`", way);
            }
            (Some('<'), Some('=')) => return self.refuse("look-behind `(?<=`", behind),
            (Some('<'), Some('!')) => {
                return self.refuse("negative look-behind `(?<!`", "say what may stand there instead");
            }
            (Some('<'), _) => {
                let length = self.chars.iter().skip(self.at).position(|c| *c == '>').map_or(0, |end| end + 1);
                let text: String = self.chars.iter().skip(self.at).take(length).collect();
                self.write(&text);
                self.at += length.max(1);
            }
            (Some('i'), Some(')')) if self.at == 0 => {
                self.write("(?i)");
                self.at += 4;
            }
            (Some(c), _) => return self.refuse(&format!("the group `(?{c}`"), "write `(?:` or `(?<name>`"),
            (None, _) => return self.refuse("a group without an end", ""),
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.peek(1) else { return self.refuse("a `\\` at the end", "write `\\\\`") };
        match c {
            'b' => self.write(r"(?-u:\b)"),
            'B' => self.write(r"\B"),
            'd' | 'w' | 's' => self.write(&format!("[{}]", set(c))),
            'D' | 'W' | 'S' => self.write(&format!("[^{}]", set(c.to_ascii_lowercase()))),
            '1'..='9' => {
                return self
                    .refuse(&format!("the reference back `\\{c}`"), "repeat the expression of the group");
            }
            'k' => return self.refuse("the reference back `\\k`", "repeat the expression of the group"),
            _ => {
                let (c, length) = self.character()?;
                self.literal(c);
                self.at += length;
                return Ok(());
            }
        }
        self.at += 2;
        Ok(())
    }

    /// The character of an escape, and the length of the escape.
    fn character(&self) -> Result<(char, usize), String> {
        let hex = |from: usize, count: usize| {
            let digits: String = (from..from + count).map_while(|ahead| self.peek(ahead)).collect();
            u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == count)
        };
        let c = match self.peek(1) {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some('f') => '\x0c',
            Some('0') => '\0',
            Some('x') if hex(2, 2).is_some() => {
                return Ok((hex(2, 2).and_then(char::from_u32).unwrap_or_default(), 4));
            }
            Some('u') if hex(2, 4).is_some() => {
                let first = hex(2, 4).unwrap_or_default();
                let second =
                    if self.peek(6) == Some('\\') && self.peek(7) == Some('u') { hex(8, 4) } else { None };
                let units =
                    [first, second.unwrap_or_default()].map(|unit| u16::try_from(unit).unwrap_or_default());
                return match (char::from_u32(first), char::decode_utf16(units).next()) {
                    (Some(c), _) => Ok((c, 6)),
                    (None, Some(Ok(c))) => Ok((c, 12)),
                    (None, _) => self.refuse("half of a character", ""),
                };
            }
            Some(c) if !c.is_ascii_alphanumeric() => c,
            Some(c) => {
                let way = match c {
                    'A' => "write `^`".to_owned(),
                    'z' | 'Z' => "write `$`".to_owned(),
                    'p' | 'P' => "write the characters in a class".to_owned(),
                    'h' => "write `[ \\t]`".to_owned(),
                    c => format!("write `{c}`"),
                };
                return self.refuse(&format!("the escape `\\{c}`"), &way);
            }
            None => return self.refuse("a `\\` at the end", "write `\\\\`"),
        };
        Ok((c, 2))
    }

    fn class(&mut self) -> Result<(), String> {
        let is_negated = self.peek(1) == Some('^');
        let open = if is_negated { 2 } else { 1 };
        if self.peek(open) == Some(']') {
            self.write(if is_negated { r"[\s\S]" } else { r"[^\s\S]" });
            self.at += open + 1;
            return Ok(());
        }
        self.write(if is_negated { "[^" } else { "[" });
        self.at += open;
        loop {
            match self.peek(0) {
                None => return self.refuse("a class without an end", "write `\\[` for the character"),
                Some(']') => {
                    self.write("]");
                    self.at += 1;
                    return Ok(());
                }
                Some(_) => self.class_item()?,
            }
        }
    }

    /// A character, an escape, or a range; next to a class such as `\w` a hyphen is a character.
    fn class_item(&mut self) -> Result<(), String> {
        let Some(first) = self.class_atom()? else { return Ok(()) };
        if self.peek(0) != Some('-') || self.peek(1).is_none_or(|c| c == ']') {
            self.literal(first);
            return Ok(());
        }
        let is_set = self.peek(1) == Some('\\') && self.peek(2).is_some_and(|c| "dwsDWS".contains(c));
        self.literal(first);
        self.at += 1;
        if is_set {
            self.literal('-');
            return Ok(());
        }
        self.write("-");
        match self.class_atom()? {
            Some(last) if last < first => self.refuse("a range whose end is before its beginning", ""),
            Some(last) => {
                self.literal(last);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The next character of a class; `None` for a set such as `\w`, which is written.
    fn class_atom(&mut self) -> Result<Option<char>, String> {
        let Some(c) = self.peek(0) else { return self.refuse("a class without an end", "") };
        if c != '\\' {
            self.at += 1;
            return Ok(Some(c));
        }
        match self.peek(1) {
            Some(c @ ('d' | 'w' | 's')) => self.write(set(c)),
            Some(c @ ('D' | 'W' | 'S')) => self.write(&format!("[^{}]", set(c.to_ascii_lowercase()))),
            Some('b') => {
                self.at += 2;
                return Ok(Some('\x08'));
            }
            _ => {
                let (c, length) = self.character()?;
                self.at += length;
                return Ok(Some(c));
            }
        }
        self.at += 2;
        // `\w-.`: the hyphen is a character.
        if self.peek(0) == Some('-') && self.peek(1) != Some(']') {
            self.literal('-');
            self.at += 1;
        }
        Ok(None)
    }
}

const fn set(name: char) -> &'static str {
    match name {
        'd' => DIGITS,
        'w' => WORD,
        _ => SPACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javascript_reads_an_expression_in_this_way() {
        for (text, matching, other) in [
            (r"^[\w-.]+$", &["a-b.c"][..], &["a b", "\u{e4}"][..]),
            (r"^[\s->=]+$", &[" ->="], &["a"]),
            (r"^[a-\d]+$", &["a-7"], &["b"]),
            (r"^[\w-]+$", &["a-b"], &["a.b"]),
            (r"^[+--]+$", &["+,-"], &["."]),
            (r"^{(\w+)}$", &["{a}"], &["a"]),
            (r"^a{2}b{1,}c{0,1}$", &["aab", "aabbc"], &["ab"]),
            (r"^a{,2}$", &["a{,2}"], &["aa"]),
            (r"^x{y}z]$", &["x{y}z]"], &["xyz"]),
            (r"^\d+$", &["12"], &["\u{664}"]),
            (r"^\w+$", &["a_1"], &["\u{e4}"]),
            (r"\bcat\b", &["a cat", "\u{e4}cat"], &["cats"]),
            (r"^\s$", &["\u{feff}", "\u{a0}", "\t"], &["\u{85}"]),
            (r"^\/a\-b\<c\>$", &["/a-b<c>"], &["a"]),
            (r"^[[:a]$", &["[", ":", "a"], &["b"]),
            (r"^[a&&b]+$", &["a&b"], &["c"]),
            (r"^[^]$", &["x"], &["xy"]),
            (r"^[]$", &[], &["", "]"]),
            (r"^[\]\\^]+$", &[r"]\^"], &["a"]),
            (r"^\x41\u0042\u{e4}?$", &[], &["AB"]),
            (r"^\x41\u0042\uD83D\uDE00$", &["AB\u{1f600}"], &["AB"]),
            (r"^(?<file>.+):(?<line>\d+)$", &["a:1"], &["a:b"]),
            (r"^(.+): error(?=: x)", &["a: error: x"], &["a: error"]),
            (r"^(?!note|info)(\w+): (.*)$", &["error: x"], &["note: x", "info: y"]),
            (r"^(?!a)(?!b).$", &["c"], &["a", "b"]),
            (r"(?i)^ERROR$", &["error"], &["errors"]),
            (r"^[^\s\d]+$", &["ab"], &["a1", "a b"]),
            (r"^a.c$", &["abc"], &["a\rc"]),
        ] {
            let Ok(regexp) = Regexp::new(text) else {
                assert!(matching.is_empty(), "{text}: {:?}", Regexp::new(text));
                continue;
            };
            for line in matching {
                assert!(regexp.is_match(line), "{text} matches {line:?}: {}", regexp.regex);
            }
            for line in other {
                assert!(!regexp.is_match(line), "{text} does not match {line:?}: {}", regexp.regex);
            }
        }
    }

    #[test]
    fn no_equivalent_is_refused_by_its_name() {
        for (text, expected) in [
            (
                r"a(?!b)(.)",
                "negative look-ahead `(?!` is not supported at character 2; say what may stand there, or exclude whole lines with `^(?!...)` at the beginning",
            ),
            (
                r"a(?=b).c",
                "look-ahead `(?=` is not supported at character 2; put it in a group of its own, as only groups become fields",
            ),
            (
                r"(?<=a)b",
                "look-behind `(?<=` is not supported at character 1; put it in a group of its own, as only groups become fields",
            ),
            (
                r"(?<!a)b",
                "negative look-behind `(?<!` is not supported at character 1; say what may stand there instead",
            ),
            (
                r"(a)\1",
                "the reference back `\\1` is not supported at character 4; repeat the expression of the group",
            ),
            (r"\Aab", "the escape `\\A` is not supported at character 1; write `^`"),
            (r"\p{L}", "the escape `\\p` is not supported at character 1; write the characters in a class"),
            (r"(?P<n>a)", "the group `(?P` is not supported at character 1; write `(?:` or `(?<name>`"),
            (r"[z-a]", "a range whose end is before its beginning is not supported at character 5"),
            (r"[a", "a class without an end is not supported at character 3; write `\\[` for the character"),
            (r"ab(", "unclosed group at character 3"),
            (r"\d*\w+)", "unopened group at character 7"),
        ] {
            assert_eq!(Regexp::new(text).expect_err(text), expected, "{text}");
        }
    }
}

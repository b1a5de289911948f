//! Control tokens and tags, which an agent or a model interprets, and a scanner for them.
//!
//! A rule decides, and not a list: each harness and each family of models has its own names, and
//! new ones appear. One rule and one scanner serve all uses: the writer escapes each match, and each
//! format checks the finished document again.
//!
//! | shape | what begins so |
//! |---|---|
//! | `<` or `[`, then a name, a slash or a bar | tags of harnesses, `<s>`, `[INST]`, `<\|im_start\|>`, `[gMASK]` |
//! | `<` or `[` at the end, white space apart | the next output could complete it |
//! | `]<]` | `]<]image[>[` |
//! | `~` after `]` or before `[` | `]~b]`, `[e~[` |
//! | `<<` after a word that `>>` precedes | `>>QUESTION<<` |
//!
//! White space and invisible characters after the bracket do not matter, nor does the width of the
//! bracket, the slash or the bar (`\u{ff1c}\u{ff5c}User\u{ff5c}\u{ff1e}`). A name begins with a letter of
//! any script, with `_` or with `\u{2581}`. So a number does not match (`a[0]`, `x < 5`), nor does a quote (`["a"]`), nor does
//! the program's own `[masked]`.
//!
//! Source: the special tokens and chat templates of Llama 2 to 4, Code Llama, Mistral, Gemma, Qwen,
//! DeepSeek, GLM, `MiniMax`, Kimi, Cohere, Phi, Granite, Falcon, `InternLM`, EXAONE, gpt-oss, and the
//! blocks that two clients of agents write into a context.

/// Most bytes between `>>` and `<<`.
const WORD_BYTES_MAX: usize = 64;

/// The rest of the mark that replaces a secret, which is no token.
const MASK_REST: &str = "masked]";

/// Whether `text` contains the start of a control token or a tag, or ends with a possible start.
pub fn has_control_token(text: &str) -> bool {
    control_tokens(text).next().is_some()
}

/// The characters that begin a control token or a tag, with their positions; those of each of two
/// passes are in order.
///
/// Shape: the character is one of `<`, `[` and their wide forms, or `~`. Escaping it breaks the
/// token.
pub fn control_tokens(text: &str) -> impl Iterator<Item = (usize, char)> {
    let bytes = text.as_bytes();
    let brackets = memchr::memchr3_iter(b'<', b'[', WIDE_LEAD, bytes);
    let tildes = memchr::memchr_iter(b'~', bytes);
    brackets.chain(tildes).filter_map(|at| Some((at, control_token_at(text, at)?)))
}

/// The first byte of every wide form of a bracket.
pub(super) const WIDE_LEAD: u8 = 0xef;

/// The character at `at` if it begins a control token or a tag, and `at` is its first byte.
pub fn control_token_at(text: &str, at: usize) -> Option<char> {
    let (before, from) = text.split_at_checked(at)?;
    let mut after = from.chars();
    let first = after.next()?;
    let rest = after.as_str();
    let begins = match first {
        '~' => before.ends_with(']') || rest.starts_with('['),
        '<' => {
            opens(rest)
                || (before.ends_with(']') && rest.starts_with(']'))
                || (rest.starts_with('<') && is_after_marked_word(before))
        }
        '[' => opens(rest) && !rest.starts_with(MASK_REST),
        // Compatibility forms of `<` and `[` (Unicode, normalization form KC).
        '\u{ff1c}' | '\u{fe64}' | '\u{ff3b}' | '\u{fe47}' => opens(rest),
        _ => false,
    };
    begins.then_some(first)
}

/// Returns the text with each character that begins a control token or a tag as a `\u` escape.
pub fn escape_control_tokens(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut copied = 0;
    for (at, c) in text.char_indices().filter(|(at, _)| control_token_at(text, *at).is_some()) {
        escaped.push_str(text.get(copied..at).expect("characters in order"));
        escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        copied = at + c.len_utf8();
    }
    escaped.push_str(text.get(copied..).expect("the end of a character"));
    escaped
}

/// Whether a token or a tag continues after its bracket, or the text ends before that is decided.
fn opens(rest: &str) -> bool {
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || is_invisible(c));
    // JSON in a text can write a slash with a backslash.
    let rest = if rest.starts_with("\\/") { "/" } else { rest };
    rest.chars().next().is_none_or(|c| is_slash(c) || is_bar(c) || is_name_start(c))
}

/// Whether `c` is a slash of any width, or looks like one.
fn is_slash(c: char) -> bool {
    matches!(c, '/' | '\u{ff0f}' | '\u{2044}' | '\u{2215}')
}

/// Whether `c` is a vertical bar of any width, or looks like one.
fn is_bar(c: char) -> bool {
    matches!(c, '|' | '\u{ff5c}' | '\u{ffe8}' | '\u{a6}' | '\u{2223}' | '\u{2502}' | '\u{2503}' | '\u{2758}')
}

fn is_name_start(c: char) -> bool {
    c == '_' || c == '\u{2581}' || c.is_alphabetic()
}

/// Whether `before` ends with a word that directly follows `>>`.
fn is_after_marked_word(before: &str) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let word = before.bytes().rev().take(WORD_BYTES_MAX).take_while(|byte| is_word(byte)).count();
    let start = before.len() - word;
    word > 0 && before.get(..start).is_some_and(|before| before.ends_with(">>"))
}

/// Whether `c` is invisible, or controls a terminal or the direction of text.
///
/// Source: the default-ignorable code points and format controls of Unicode 16, with the fillers
/// and blanks that render as nothing (Hangul fillers, the Braille blank, the controls of musical
/// notation).
pub fn is_invisible(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' => true,
        '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' => true,
        '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_finds_tokens_in_any_width_and_case() {
        for (text, is_token) in [
            ("</notifications>", true),
            ("<Notification source=x>", true),
            ("< / system-reminder", true),
            ("<\n  notifications: 3", true),
            ("< / / USER\t>", true),
            ("a <", true),
            ("a </ ", true),
            ("a [", true),
            ("Vec<u8>", true),
            ("a[i]", true),
            ("a < b", true),
            ("<<", true),
            ("</>", true),
            ("<\\/script>", true),
            ("<\u{200b}s\u{2060}>", true),
            ("[INST] do", true),
            ("[/inst]", true),
            ("[ gMASK]<sop>", true),
            ("<<SYS>>", true),
            ("<\u{ff5c}User\u{ff5c}>", true),
            ("\u{ff1c}\u{ff5c}User\u{ff5c}\u{ff1e}", true),
            ("\u{ff3b}\u{ff29}\u{ff2e}\u{ff33}\u{ff34}\u{ff3d}", true),
            ("\u{fe64}s", true),
            ("<\u{7528}\u{6237}>", true),
            ("<\u{2581}PRE>", true),
            ("[|system|]", true),
            ("]~b]", true),
            ("]~!b[", true),
            ("[e~[", true),
            ("]<]image[>[", true),
            (">>QUESTION<<", true),
            ("", false),
            ("x < 5", false),
            ("a[0]", false),
            ("rows[2]{a}:", false),
            ("[\"a\"]", false),
            ("[\\w.-]+", false),
            ("[[1]]", false),
            ("ghp_[masked]", false),
            ("[mask]", true),
            ("<3", false),
            ("< <=", false),
            ("1 << 2", false),
            ("a <- b", false),
            ("~/x ~= 3", false),
            ("a -> b => c", false),
            ("\u{ff0c}\u{ff1a}", false),
            ("<!-- -->", false),
        ] {
            assert_eq!(has_control_token(text), is_token, "{text:?}");
        }
    }

    #[test]
    fn each_token_is_found_where_it_begins() {
        let text = "a <b <c>x</c>y\u{ff1c}d]~b]";
        let found = [(2, '<'), (5, '<'), (9, '<'), (14, '\u{ff1c}'), (19, '~')];
        assert_eq!(control_tokens(text).collect::<Vec<_>>(), found);
        let escaped = r"a \u003cb \u003cc>x\u003c/c>y\uff1cd]\u007eb]";
        assert_eq!(escape_control_tokens(text), escaped);
        assert!(!has_control_token(escaped));
    }

    #[test]
    fn many_brackets_cost_one_pass() {
        let text = format!("{}{}", "<".repeat(50_000), "[ ".repeat(50_000));
        assert!(has_control_token(&text));
        assert_eq!(control_tokens(&"< 1 ".repeat(50_000)).count(), 0);
    }
}

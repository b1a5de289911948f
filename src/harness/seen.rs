//! Finds injections in a text: in a transcript, or in a prompt.

use memchr::memmem;

use engine::exchange::InjectionId;

/// The letters that JSON writes after a backslash (RFC 8259, section 7), all but `u`.
const ESCAPES: &[u8] = b"bfnrt";

/// Those of `ids` that are separate words of `text`, in order.
///
/// Shape: `text` need not be UTF-8, or begin or end with a whole line. The client's own wrapping is
/// ignored, because it differs by version. `text` may be that of a JSON string: the letter of an
/// escape, as in `\n7fq2kd`, is no part of a word.
pub fn ids_in(text: &[u8], ids: &[InjectionId]) -> Vec<InjectionId> {
    ids.iter().filter(|id| is_in(text, id.as_str().as_bytes())).copied().collect()
}

fn is_in(text: &[u8], name: &[u8]) -> bool {
    let byte = |at: Option<usize>| at.and_then(|at| text.get(at));
    let is_part = |at: Option<usize>| byte(at).is_some_and(u8::is_ascii_alphanumeric);
    let is_letter = |at: usize| byte(at.checked_sub(1)).is_some_and(|letter| ESCAPES.contains(letter));
    let is_escape = |at: usize| byte(at.checked_sub(2)) == Some(&b'\\') && is_letter(at);
    let begins = |at: usize| !is_part(at.checked_sub(1)) || is_escape(at);
    !name.is_empty()
        && memmem::find_iter(text, name).any(|at| begins(at) && !is_part(at.checked_add(name.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injection_id_matches_only_whole_words() {
        let ids = ["7fq2kd", "abcdef", ""].map(InjectionId::new);
        for (text, expected) in [
            (&b"<notifications count=\\\"1\\\" id=\\\"7fq2kd\\\">"[..], &["7fq2kd"][..]),
            (b"7fq2kd tool_fail: grep", &["7fq2kd"]),
            (b"x7fq2kd 7fq2kdx 7fq2k d", &[]),
            (b"a line\\n7fq2kd\\tabcdef x", &["7fq2kd", "abcdef"]),
            (b"n7fq2kd \\u7fq2kd \\", &[]),
            (b"x7fq2kd (7fq2kd)\xff abcdef", &["7fq2kd", "abcdef"]),
            (b"", &[]),
        ] {
            let found = ids_in(text, &ids);
            let found: Vec<&str> = found.iter().map(InjectionId::as_str).collect();
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(text));
        }
    }
}

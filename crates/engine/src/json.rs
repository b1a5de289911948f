//! JSON text with chosen characters as `\u` escapes.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Writes `value` on one line.
///
/// Shape: in strings and keys, each character for which `is_escaped` holds is a `\u` escape, so the
/// text decodes to the same value. `is_escaped` gets a part of a string that needs no other escape,
/// and a character with its position in that part.
///
/// Errors: as [`serde_json::to_string`].
pub fn to_string(
    value: &impl Serialize,
    is_escaped: impl Fn(&str, usize, char) -> bool,
) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, Escaping(is_escaped)))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// The compact form with more escapes.
struct Escaping<E>(E);

impl<E: Fn(&str, usize, char) -> bool> Formatter for Escaping<E> {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        let mut copied = 0;
        for (at, c) in fragment.char_indices().filter(|(at, c)| (self.0)(fragment, *at, *c)) {
            to.write_all(fragment.get(copied..at).expect("characters in order").as_bytes())?;
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(to, "\\u{unit:04x}")?;
            }
            copied = at + c.len_utf8();
        }
        to.write_all(fragment.get(copied..).expect("the end of a character").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn chosen_characters_are_escaped_and_the_value_stays() {
        let value = json!({ "k\u{200b}": ["a<b", "\u{e0041}\n\u{202e}x", 1, null, {}, []] });
        let text = to_string(&value, |_, _, c| c == '<' || u32::from(c) > 0x7f).expect("JSON");
        assert_eq!(text, r#"{"k\u200b":["a\u003cb","\udb40\udc41\n\u202ex",1,null,{},[]]}"#);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
    }
}

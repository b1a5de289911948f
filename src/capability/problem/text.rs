//! The text that a program writes: lines as a terminal shows them, of bounded length, and whole
//! documents, whose JSON is parsed one item at a time.

use engine::event::terminal_line;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest line, in bytes; the rest of a longer one is dropped. Source: cargo's JSON of one message
/// has some 10 KiB.
pub const LINE_BYTES_MAX: usize = 256 * 1024;

/// Takes output in pieces and returns whole lines.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes the next piece, and calls `each` with every line that it completes.
    pub fn push(&mut self, piece: &[u8], mut each: impl FnMut(&str)) {
        let mut parts = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let room = LINE_BYTES_MAX.saturating_sub(self.rest.len());
            self.rest.extend(part.get(..room).unwrap_or(part));
            if parts.peek().is_some() {
                each(&terminal_line(&self.rest));
                self.rest.clear();
            }
        }
    }

    /// Calls `each` with the last line, if it has no end.
    pub fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.rest.is_empty() {
            each(&terminal_line(&self.rest));
            self.rest.clear();
        }
    }
}

/// The first bytes of a text, at most `bytes_max`.
pub(super) fn begin(text: &str, bytes_max: usize) -> &str {
    let mut ends = (0..=bytes_max.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
}

/// The text of a document, without a byte order mark: .NET's tools write UTF-8 with one, and PowerShell
/// redirects output as UTF-16. An XML document may declare Latin-1.
///
/// Shape: UTF-16 is detected by its mark, else by its first two bytes, as both JSON and XML begin
/// with an ASCII character. In UTF-8 each wrong byte is replaced by `?`, in place.
pub(crate) fn text_of(mut bytes: Vec<u8>) -> String {
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => return utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => return utf16(rest, u16::from_be_bytes),
        [1..=0x7f, 0, ..] => return utf16(&bytes, u16::from_le_bytes),
        [0, 1..=0x7f, ..] => return utf16(&bytes, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, ..] => drop(bytes.drain(..3)),
        _ if is_latin(&bytes) => return bytes.into_iter().map(char::from).collect(),
        _ => {}
    }
    let mut checked = 0;
    while let Some(Err(error)) = bytes.get(checked..).map(std::str::from_utf8) {
        let begin = checked + error.valid_up_to();
        let end = error.error_len().map_or(bytes.len(), |length| begin + length);
        bytes.get_mut(begin..end).unwrap_or_default().fill(b'?');
        checked = end;
    }
    String::from_utf8(bytes).expect("every byte was checked")
}

fn utf16(bytes: &[u8], unit: impl Fn([u8; 2]) -> u16) -> String {
    let units = bytes
        .chunks_exact(2)
        .map(|pair| unit([pair.first().copied().unwrap_or(0), pair.last().copied().unwrap_or(0)]));
    char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Whether an XML document declares an encoding of one byte a character.
fn is_latin(bytes: &[u8]) -> bool {
    let head = bytes.get(..200).unwrap_or(bytes);
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let Some(declaration) = head.strip_prefix("<?xml").and_then(|rest| rest.split("?>").next()) else {
        return false;
    };
    ["iso-8859-1", "iso-8859-15", "latin1", "windows-1252"].iter().any(|name| {
        declaration.contains(&format!("\"{name}\"")) || declaration.contains(&format!("'{name}'"))
    })
}

/// Most problems that are read from one document.
pub(crate) const PROBLEMS_MAX: usize = 2_000;

/// Parses one item of a document; `place` is its path in it.
///
/// Errors: the path of what is wrong, and line and column in the item.
pub(crate) fn json_item<'a, T: Deserialize<'a>>(item: &'a RawValue, place: &str) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_str(item.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string().as_str() {
        "." | "?" => json_field(place, error.inner()),
        path if place.is_empty() => json_field(path, error.inner()),
        path => json_field(&format!("{place}.{path}"), error.inner()),
    })
}

/// The error at `place`, a path; empty for the whole.
pub(crate) fn json_field(place: &str, error: &serde_json::Error) -> String {
    if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(output: &[u8], piece: usize) -> Vec<String> {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        output.chunks(piece).for_each(|piece| lines.push(piece, |line| seen.push(line.to_owned())));
        lines.finish(|line| seen.push(line.to_owned()));
        seen
    }

    #[test]
    fn lines_are_whole_and_plain_however_they_come() {
        for (output, expected) in [
            (&b"one\ntwo"[..], &["one", "two"][..]),
            (b"a\r\nb\n", &["a", "b"]),
            (b"\x1b[31merror\x1b[0m: x\n", &["error: x"]),
            (b"\x1bc12:00 - Starting\n", &["12:00 - Starting"]),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x07!\n", &["link!"]),
            (b" 10%\r 50%\rdone\n", &["done"]),
            (b"not \xff text\x00\n", &["not \u{fffd} text"]),
            (b"\x1b(Bplain\x1b[", &["plain"]),
            (b"\n\n", &["", ""]),
        ] {
            for piece in [1, 3, 100] {
                assert_eq!(lines(output, piece), expected, "{output:?} by {piece}");
            }
        }
    }

    #[test]
    fn endless_line_is_cut_at_its_bound() {
        let mut lines = Lines::default();
        for _ in 0..100 {
            lines.push(&[b'x'; 64 * 1024], |_| panic!("no line has ended"));
        }
        assert_eq!(lines.rest.len(), LINE_BYTES_MAX);
        let mut seen = Vec::new();
        lines.push(b"\nnext\n", |line| seen.push(line.len()));
        assert_eq!(seen, [LINE_BYTES_MAX, 4]);
    }

    #[test]
    fn a_document_is_read_in_its_encoding() {
        let utf16 = |text: &str, is_little: bool| {
            let units = text.encode_utf16();
            units
                .flat_map(|unit| if is_little { unit.to_le_bytes() } else { unit.to_be_bytes() })
                .collect::<Vec<u8>>()
        };
        let latin = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe4</a>".to_vec();
        for (bytes, expected) in [
            (b"a\xffb".to_vec(), "a?b"),
            (b"\xe2\x82".to_vec(), "??"),
            (b"\xe2\x82x\xc3\xa4".to_vec(), "??x\u{e4}"),
            (Vec::new(), ""),
            (b"plain".to_vec(), "plain"),
            (b"\xef\xbb\xbf{}".to_vec(), "{}"),
            (utf16("\u{feff}[\u{e4}]", true), "[\u{e4}]"),
            (utf16("\u{feff}[\u{1f600}]", false), "[\u{1f600}]"),
            (utf16("{\"a\":1}", true), "{\"a\":1}"),
            (utf16("<a/>", false), "<a/>"),
            (latin, "<?xml version='1.0' encoding='ISO-8859-1'?><a>\u{e4}</a>"),
        ] {
            assert_eq!(text_of(bytes.clone()), expected, "{bytes:?}");
        }
    }
}

//! The text of a document: UTF-8, UTF-16 and Latin-1, with or without a byte order mark.
//!
//! .NET's tools write UTF-8 with a mark, and PowerShell redirects output as UTF-16. An XML document
//! may declare Latin-1.

/// The text of a document, without a byte order mark.
///
/// Shape: UTF-16 is detected by its mark, else by its first two bytes, as both JSON and XML begin
/// with an ASCII character. In UTF-8 each wrong byte is replaced by `?`, in place.
pub fn text_of(mut bytes: Vec<u8>) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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

//! Converts paths to `file:` URIs and back: `/w/a b.rs` is `file:///w/a%20b.rs`.

use std::fmt::Write;

const SCHEME: &str = "file://";

/// The URI of an absolute path.
pub fn of_path(path: &str) -> String {
    let mut uri = SCHEME.to_owned();
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(byte.into())
            }
            _ => write!(uri, "%{byte:02X}").expect("a text takes all"),
        }
    }
    uri
}

/// The path in a URI; `None` if it is not a file of this machine.
pub fn to_path(uri: &str) -> Option<String> {
    let encoded = uri.strip_prefix(SCHEME).filter(|path| path.starts_with('/'))?;
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (digit(*high)? << 4 | digit(*low)?, after),
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_back_however_it_is_encoded() {
        for (path, uri) in [
            ("/w/a.rs", "file:///w/a.rs"),
            ("/w/a b%.rs", "file:///w/a%20b%25.rs"),
            ("/w/\u{e4}(1).ts", "file:///w/%C3%A4%281%29.ts"),
        ] {
            assert_eq!(of_path(path), uri);
            assert_eq!(to_path(uri).as_deref(), Some(path));
        }
        assert_eq!(to_path("file:///w/%c3%a4(1).ts").as_deref(), Some("/w/\u{e4}(1).ts"));
        for uri in ["untitled:1", "file://host/a", "file:///%zz", "file:///%ff", "/w/a.rs"] {
            assert_eq!(to_path(uri), None, "{uri}");
        }
    }
}

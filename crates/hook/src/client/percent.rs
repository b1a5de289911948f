//! Percent-encoding.

/// Encodes `text` for use as one path segment or one query value.
///
/// ```
/// assert_eq!(hook::client::percent_encode("s1/agent 2"), "s1%2Fagent%202");
/// ```
pub fn percent_encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut encoded = Vec::with_capacity(text.len());
    encode_bytes(text.as_bytes(), is_plain, &mut encoded);
    String::from_utf8(encoded).unwrap_or_default()
}

/// Appends `bytes`, and percent-encodes the ones that are not plain; plain bytes must be ASCII.
pub(super) fn encode_bytes(bytes: &[u8], is_plain: impl Fn(u8) -> bool, encoded: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
    for &byte in bytes {
        if is_plain(byte) {
            encoded.push(byte);
        } else {
            encoded.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

//! Bytes as hexadecimal digits.

/// Two digits for each byte, in lower case.
pub fn hex<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).expect("half a byte is a digit");
    let bytes = bytes.into_iter();
    let mut digits = String::with_capacity(2 * bytes.size_hint().0);
    for byte in bytes {
        digits.push(digit(byte >> 4));
        digits.push(digit(byte & 15));
    }
    digits
}

/// The text with its percent-encoded bytes, such as `%20`, decoded; what is not UTF-8 then is replaced.
pub fn percent_decode(text: &str) -> String {
    let half = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [high, low, after @ ..] if *first == b'%' => {
                half(*high).zip(half(*low)).map(|(high, low)| (high << 4 | low, after))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_two_digits() {
        assert_eq!(hex(&[0, 10, 255]), "000aff");
        assert_eq!(hex(&[]), "");
    }

    #[test]
    fn only_a_whole_escape_is_decoded() {
        for (text, expected) in
            [("a%20b%C3%a9", "a b\u{e9}"), ("%+5%2", "%+5%2"), ("%zz%", "%zz%"), ("%ff", "\u{fffd}")]
        {
            assert_eq!(percent_decode(text), expected);
        }
    }
}

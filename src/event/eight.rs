//! Eight bytes at a time: what short texts are searched with, which end before a wider search would have begun.

/// How many bytes are looked at together.
const EIGHT: usize = 8;
/// The lowest and the highest bit of each byte.
const LOWEST: u64 = u64::from_le_bytes([0x01; EIGHT]);
const HIGHEST: u64 = u64::from_le_bytes([0x80; EIGHT]);

/// Where the first byte is that is `one` or `other`.
pub(super) fn find_either(bytes: &[u8], one: u8, other: u8) -> Option<usize> {
    let mut at = 0;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        let eight = u64::from_le_bytes(*eight);
        let found = equal(eight, one) | equal(eight, other);
        if found != 0 {
            return Some(at + (found.trailing_zeros() / u8::BITS) as usize);
        }
        at += EIGHT;
    }
    bytes.get(at..)?.iter().position(|byte| *byte == one || *byte == other).map(|behind| at + behind)
}

/// Whether every byte is printable ASCII or a space.
pub(super) fn is_printable(bytes: &[u8]) -> bool {
    let (eights, rest) = bytes.as_chunks::<EIGHT>();
    let unprintable = |eight: &[u8; EIGHT]| {
        let eight = u64::from_le_bytes(*eight);
        let is_below_space = eight.wrapping_sub(LOWEST * u64::from(b' '));
        (is_below_space | eight | equal(eight, 0x7f)) & HIGHEST
    };
    eights.iter().fold(0, |found, eight| found | unprintable(eight)) == 0
        && rest.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The first eight of `bytes` as a number, as if zeroes followed those that are missing.
pub(super) fn beginning(bytes: &[u8]) -> u64 {
    let short = || bytes.iter().rev().fold(0, |number, byte| number << u8::BITS | u64::from(*byte));
    bytes.first_chunk().map_or_else(short, |eight| u64::from_le_bytes(*eight))
}

/// The highest bit of each byte that is `wanted`; of those behind the first one that is, others may be set too.
fn equal(eight: u64, wanted: u8) -> u64 {
    let differs = eight ^ (LOWEST * u64::from(wanted));
    differs.wrapping_sub(LOWEST) & !differs & HIGHEST
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_finds_what_looking_at_each_byte_finds(bytes in prop::collection::vec(
            prop_oneof![Just(b'"'), Just(b'\\'), Just(b'"' + 1), Just(b'"' | 0x80), Just(0x7f), Just(0x1f), any::<u8>(), 0x20_u8..0x7f], 0..40,
        )) {
            let is_either = |byte: &u8| *byte == b'"' || *byte == b'\\';
            prop_assert_eq!(find_either(&bytes, b'"', b'\\'), bytes.iter().position(is_either));
            prop_assert_eq!(is_printable(&bytes), bytes.iter().all(|byte| matches!(byte, b' '..=b'~')));
            let mut eight = bytes.clone();
            eight.resize(EIGHT, 0);
            prop_assert_eq!(beginning(&bytes).to_le_bytes().to_vec(), eight);
        }

        #[test]
        fn what_is_printable_is_found_to_be(text in "[ -~]{0,40}") {
            prop_assert!(is_printable(text.as_bytes()));
        }
    }
}

//! SWAR: processes eight bytes at a time, for texts too short for a wider search.

/// How many bytes are processed together.
const EIGHT: usize = 8;
/// How many if there are fewer.
const FOUR: usize = 4;
/// The lowest and the highest bit of each byte.
const LOWEST: u64 = u64::from_le_bytes([0x01; EIGHT]);
const HIGHEST: u64 = u64::from_le_bytes([0x80; EIGHT]);

/// The index of the first byte that is `one` or `other`.
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
    is_printable_without(bytes, [])
}

/// Whether every byte is printable ASCII or a space, and none is `unwanted`.
pub(super) fn is_printable_without<const N: usize>(bytes: &[u8], unwanted: [u8; N]) -> bool {
    let found = |eight: u64| {
        let is_below_space = eight.wrapping_sub(LOWEST * u64::from(b' '));
        unwanted
            .iter()
            .fold(is_below_space | eight | equal(eight, 0x7f), |found, byte| found | equal(eight, *byte))
    };
    let (eights, rest) = bytes.as_chunks::<EIGHT>();
    let mut all = eights.iter().fold(0, |all, eight| all | found(u64::from_le_bytes(*eight)));
    if !rest.is_empty() {
        // The last eight, which may overlap; a shorter text is padded with spaces.
        let few = || beginning(rest) | (LOWEST * u64::from(b' ')) << bits(rest.len());
        all |= found(bytes.last_chunk().map_or_else(few, |last| u64::from_le_bytes(*last)));
    }
    all & HIGHEST == 0
}

/// The first eight of `bytes` as a number, padded with zeros.
pub(super) fn beginning(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk() {
        return u64::from_le_bytes(*eight);
    }
    if let Some((first, last)) = bytes.first_chunk().zip(bytes.last_chunk()) {
        // The first four and the last four, which overlap.
        let [first, last] = [first, last].map(|four| u64::from(u32::from_le_bytes(*four)));
        return first | last << bits(bytes.len() - FOUR);
    }
    bytes.iter().rev().fold(0, |number, byte| number << u8::BITS | u64::from(*byte))
}

/// How many bits `count` bytes have.
fn bits(count: usize) -> u32 {
    count as u32 * u8::BITS
}

/// The highest bit of each byte that equals `wanted`; bits of later bytes may be set wrongly.
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
            let is_wanted = |byte: &u8| matches!(byte, b' '..=b'~') && !is_either(byte);
            prop_assert_eq!(is_printable_without(&bytes, *b"\"\\"), bytes.iter().all(is_wanted));
            let mut eight = bytes.clone();
            eight.resize(EIGHT, 0);
            prop_assert_eq!(beginning(&bytes).to_le_bytes().to_vec(), eight);
        }

        #[test]
        fn what_is_printable_is_found_to_be(text in "[ -~]{0,40}") {
            prop_assert!(is_printable(text.as_bytes()));
            prop_assert_eq!(is_printable_without(text.as_bytes(), *b"@-"), !text.contains(['@', '-']));
        }
    }
}

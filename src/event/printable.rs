//! Whether a text is printable ASCII, in which nothing has to be looked for.

/// Whether every byte is printable ASCII or a space.
pub(super) fn is_printable(bytes: &[u8]) -> bool {
    is_printable_without(bytes, [])
}

/// Whether every byte is printable ASCII or a space, and none is `unwanted`.
pub(super) fn is_printable_without<const N: usize>(bytes: &[u8], unwanted: [u8; N]) -> bool {
    let is_wanted = |byte: u8| {
        let is_printable = matches!(byte, b' '..=b'~');
        unwanted.iter().fold(is_printable, |is_wanted, other| is_wanted & (byte != *other))
    };
    // Without an end before the last byte, so that the compiler takes many bytes at a time.
    bytes.iter().fold(true, |all, byte| all & is_wanted(*byte))
}

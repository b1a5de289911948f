//! A check for printable ASCII, so that such text needs no further scan.

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
    // No early exit, so that the compiler vectorizes the loop.
    bytes.iter().fold(true, |all, byte| all & is_wanted(*byte))
}

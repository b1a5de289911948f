//! The lines of Claude Code's transcripts and logs, one JSON object each.

/// The lines that contain `word`.
pub(super) fn lines_with<'t>(text: &'t [u8], word: &'t str) -> impl DoubleEndedIterator<Item = &'t [u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter(move |line| memchr::memmem::find(line, word.as_bytes()).is_some())
}

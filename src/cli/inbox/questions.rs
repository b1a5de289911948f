//! The open questions of the inbox.

/// The line about questions that wait for the user's answer; empty if there is none.
pub(super) fn asked(questions: usize) -> String {
    match questions {
        0 => String::new(),
        1 => "1 question waits for your answer: aside answer\n".to_owned(),
        count => format!("{count} questions wait for your answer: aside answer\n"),
    }
}

//! The layer in the binary: `config/aside.toml` and every file of `subscribers/` and `templates/`,
//! by its name in a layer.
//!
//! The table is written by hand, so that all shipped files are listed in one place; a test compares
//! it with the folders. Most subscribers declare their layout in their own file; the others name a
//! template.

macro_rules! files {
    (subscribers: $($name:literal)*; templates: $($template:literal)*;) => {
        /// Name and text of every shipped file.
        pub const FILES: &[(&str, &str)] = &[
            ("aside.toml", include_str!("../../config/aside.toml")),
            $((
                concat!("subscribers/", $name, ".toml"),
                include_str!(concat!("../../subscribers/", $name, ".toml")),
            ),)*
            $((
                concat!("templates/", $template, ".toon.j2"),
                include_str!(concat!("../../templates/", $template, ".toon.j2")),
            ),)*
        ];
    };
}

files! {
    subscribers:
    "alert"
    "answer"
    "background_task"
    "budget_exceeded"
    "budget_warning"
    "changed_file"
    "ci_check"
    "closed_port"
    "disk_space"
    "file_change"
    "git_change"
    "ide_diagnostics"
    "log_line"
    "loop_detected"
    "mcp_server"
    "message"
    "other_session"
    "own_failure"
    "pr_review"
    "problem"
    "question_expired"
    "reminder"
    "stale_file"
    "throttled"
    "timer"
    "tool_failure"
    "user_command"
    "watch"
    "welcome_back"
    ;
    templates:
    "background_task"
    "ide_diagnostics"
    "problem"
    ;
}

/// The first line of a subscriber's tests, which are at the end of its file.
const TESTS: &str = "[[tests]]";

/// Name and rules of every shipped file: its text without the tests, which do not affect the rules
/// and are two thirds of a subscriber.
pub fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().map(|&(name, text)| match name.starts_with("subscribers/") {
        true => (name, text.split(TESTS).next().unwrap_or(text)),
        false => (name, text),
    })
}

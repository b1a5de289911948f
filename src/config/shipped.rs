//! The layer in the binary: every file of `config/aside.toml`, `subscribers/` and `templates/`, by its name in a layer.
//!
//! The table is written by hand, so that what is shipped is read in one place; a test compares it with the folders.

/// Name and text of every shipped file.
pub const FILES: &[(&str, &str)] = &[
    ("aside.toml", include_str!("../../config/aside.toml")),
    ("subscribers/background_task.toml", include_str!("../../subscribers/background_task.toml")),
    ("subscribers/budget_exceeded.toml", include_str!("../../subscribers/budget_exceeded.toml")),
    ("subscribers/budget_warning.toml", include_str!("../../subscribers/budget_warning.toml")),
    ("subscribers/ci_check.toml", include_str!("../../subscribers/ci_check.toml")),
    ("subscribers/disk_space.toml", include_str!("../../subscribers/disk_space.toml")),
    ("subscribers/file_change.toml", include_str!("../../subscribers/file_change.toml")),
    ("subscribers/ide_diagnostics.toml", include_str!("../../subscribers/ide_diagnostics.toml")),
    ("subscribers/known_files.toml", include_str!("../../subscribers/known_files.toml")),
    ("subscribers/loop_detected.toml", include_str!("../../subscribers/loop_detected.toml")),
    ("subscribers/mcp_server.toml", include_str!("../../subscribers/mcp_server.toml")),
    ("subscribers/message.toml", include_str!("../../subscribers/message.toml")),
    ("subscribers/other_sessions.toml", include_str!("../../subscribers/other_sessions.toml")),
    ("subscribers/reminder.toml", include_str!("../../subscribers/reminder.toml")),
    ("subscribers/tool_failure.toml", include_str!("../../subscribers/tool_failure.toml")),
    ("subscribers/welcome_back.toml", include_str!("../../subscribers/welcome_back.toml")),
    ("templates/background_task.toon.j2", include_str!("../../templates/background_task.toon.j2")),
    ("templates/budget_exceeded.toon.j2", include_str!("../../templates/budget_exceeded.toon.j2")),
    ("templates/budget_warning.toon.j2", include_str!("../../templates/budget_warning.toon.j2")),
    ("templates/ci_check.toon.j2", include_str!("../../templates/ci_check.toon.j2")),
    ("templates/disk_space.toon.j2", include_str!("../../templates/disk_space.toon.j2")),
    ("templates/file_change.toon.j2", include_str!("../../templates/file_change.toon.j2")),
    ("templates/ide_diagnostics.toon.j2", include_str!("../../templates/ide_diagnostics.toon.j2")),
    ("templates/known_files.toon.j2", include_str!("../../templates/known_files.toon.j2")),
    ("templates/loop_detected.toon.j2", include_str!("../../templates/loop_detected.toon.j2")),
    ("templates/mcp_server.toon.j2", include_str!("../../templates/mcp_server.toon.j2")),
    ("templates/message.toon.j2", include_str!("../../templates/message.toon.j2")),
    ("templates/other_sessions.toon.j2", include_str!("../../templates/other_sessions.toon.j2")),
    ("templates/reminder.toon.j2", include_str!("../../templates/reminder.toon.j2")),
    ("templates/tool_failure.toon.j2", include_str!("../../templates/tool_failure.toon.j2")),
    ("templates/welcome_back.toon.j2", include_str!("../../templates/welcome_back.toon.j2")),
];

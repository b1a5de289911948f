//! The input that a harness writes to the stdin of a hook.

/// The input of Claude Code after a batch of tools, of the usual size.
pub(crate) fn after_tools(number: usize) -> String {
    format!(
        r#"{{"session_id":"bench","transcript_path":"/home/dev/.claude/projects/p/bench.jsonl","cwd":"/home/dev/project","prompt_id":"p1","permission_mode":"default","hook_event_name":"PostToolBatch","tool_calls":[{{"tool_name":"Read","tool_input":{{"file_path":"/home/dev/project/src/lib.rs"}},"tool_use_id":"toolu_{number:024}","tool_response":"{}"}}]}}"#,
        "0123456789".repeat(35)
    )
}

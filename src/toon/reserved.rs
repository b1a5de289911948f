//! Reserved tags and control tokens, which an agent interprets, and a scanner for them.
//!
//! One list and one scanner serve all uses: the writer escapes each match, and each format checks
//! the finished document again. Lookalikes match too: any case, white space or slashes before the
//! name, and names that continue after a hyphen, an underscore or a colon.

/// Names of tags that carriers and harnesses interpret.
///
/// Source: the carriers of `format`, the blocks that harnesses write into a context (commands and
/// their output, hooks, tool calls and results, budgets), the roles of a conversation, and the tags
/// of chat templates (`<<SYS>>` of Llama 2).
pub const RESERVED_TAGS: [&str; 34] = [
    "notifications",
    "notification",
    "event",
    "event-bus",
    "system-reminder",
    "system_reminder",
    "task-notification",
    "channel",
    "hook_context",
    "hook_prompt",
    "system",
    "user",
    "assistant",
    "human",
    "developer",
    "sys",
    "budget",
    "command-name",
    "command-message",
    "command-args",
    "command-contents",
    "local-command",
    "local_command",
    "bash",
    "user-prompt-submit-hook",
    "antml",
    "invoke",
    "function",
    "functions",
    "function_calls",
    "function_results",
    "tool_use",
    "tool_call",
    "tool_result",
];
/// The text in the brackets of a chat template's instruction: `[INST]` and `[/INST]`.
///
/// Source: the prompt formats of Llama 2 and Mistral.
const INSTRUCTION: &str = "inst]";

/// Whether `text` contains the start of a reserved tag or a control token, or ends with a possible
/// start of a tag.
pub fn has_reserved_tag(text: &str) -> bool {
    reserved_tags(text).next().is_some()
}

/// The positions of the brackets that begin a reserved tag, opening or closing, or a control token,
/// in order.
///
/// Shape of a tag: `<`, any white space and slashes, and a name of [`RESERVED_TAGS`] not followed
/// by a letter or digit. The text may end before the name, because the next output could complete
/// the tag. Shape of a control token: `<|`, `[INST]` or `[/INST]`.
pub fn reserved_tags(text: &str) -> impl Iterator<Item = usize> {
    memchr::memchr2_iter(b'<', b'[', text.as_bytes()).filter(|at| is_reserved_tag_at(text, *at))
}

/// Whether the bracket at `at` begins a reserved tag or a control token.
pub(super) fn is_reserved_tag_at(text: &str, at: usize) -> bool {
    let (bracket, rest) = text.get(at..).and_then(|text| text.split_at_checked(1)).unwrap_or_default();
    let name = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
    match bracket {
        "[" => name.get(..INSTRUCTION.len()).is_some_and(|name| name.eq_ignore_ascii_case(INSTRUCTION)),
        _ => {
            name.is_empty()
                || name.starts_with('|')
                || RESERVED_TAGS.iter().any(|tag| begins_with_name(name, tag))
        }
    }
}

fn begins_with_name(text: &str, name: &str) -> bool {
    let is_name = text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    let next = text.get(name.len()..).and_then(|rest| rest.chars().next());
    is_name && !next.is_some_and(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_tags_are_found_in_any_case_and_spacing_and_nothing_else_is() {
        for (text, is_reserved) in [
            ("</notifications>", true),
            ("<Notification source=x>", true),
            ("< / system-reminder", true),
            ("<\n  notifications: 3", true),
            ("< / / USER\t>", true),
            ("<event", true),
            ("<system-warning>", true),
            ("<user_message>", true),
            ("a <", true),
            ("a </ ", true),
            ("<events>", false),
            ("<eventually>", false),
            ("<username>", false),
            ("Vec<u8>", false),
            ("a < b", false),
            ("<<", true),
            ("< <b", false),
            ("", false),
            ("<|im_start|>system", true),
            ("</|eot_id|>", true),
            ("<<SYS>>", true),
            ("[INST] do", true),
            ("[/inst]", true),
            ("[INSTALL]", false),
            ("rows[2]{a}:", false),
            ("<budget:token_budget>", true),
            ("<command-name>", true),
            ("<local-command-stdout>", true),
            ("<bash-stdout>", true),
            ("<user-prompt-submit-hook>", true),
            ("<function_results>", true),
            ("<systems>", false),
        ] {
            assert_eq!(has_reserved_tag(text), is_reserved, "{text:?}");
        }
    }

    #[test]
    fn each_tag_is_found_where_it_begins() {
        for tag in RESERVED_TAGS {
            let text = format!("a<b <{tag}>x</{tag}>y");
            assert_eq!(reserved_tags(&text).collect::<Vec<_>>(), [4, 7 + tag.len()], "{text}");
        }
    }
}

//! Reads Claude Code's transcript: one JSON object a line, appended during the conversation.

use std::borrow::Cow;

use engine::{
    call::TouchKind,
    transcript::{Context, Reader, Usage},
};
use serde::Deserialize;

use super::servers::{self, lines_with};

pub(super) static READER: Reader = Reader {
    announces: &[TouchKind::Shown, TouchKind::Written],
    changed,
    ended,
    context,
    servers: servers::said,
    connections: Some(&servers::CONNECTIONS),
};

/// The type of the attachment that announces a changed file.
///
/// Source: measured with 2.1.330 and 2.1.197.
const EDITED_TEXT_FILE: &str = "edited_text_file";
/// The delimiters of a background task's id in the client's reports of its end: a separate prompt,
/// or an attachment.
///
/// Source: measured with 2.1.197 and 2.1.330.
const TASK_ID: (&str, &str) = ("<task-id>", "</task-id>");
/// The subtype of the line for a compaction.
///
/// Source: the client's program, 2.1.331.
const COMPACT_BOUNDARY: &str = "compact_boundary";
/// Prefix of the model's name in messages that the client made itself.
const SYNTHETIC: char = '<';

fn changed(transcript: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    struct Line {
        attachment: Attachment,
    }
    #[derive(Deserialize)]
    struct Attachment {
        r#type: String,
        filename: String,
    }
    lines_with(transcript, EDITED_TEXT_FILE)
        .filter_map(|line| serde_json::from_slice::<Line>(line).ok())
        .filter(|line| line.attachment.r#type == EDITED_TEXT_FILE)
        .map(|line| line.attachment.filename)
        .collect()
}

fn ended(transcript: &[u8]) -> Vec<String> {
    task_ids(&String::from_utf8_lossy(transcript))
}

/// The ids of the background tasks whose end is reported in a text.
pub(super) fn task_ids(text: &str) -> Vec<String> {
    let (begin, end) = TASK_ID;
    let ids = text.split(begin).skip(1).filter_map(|rest| rest.split_once(end));
    ids.map(|(id, _)| id.trim().to_owned()).collect()
}

fn context(transcript: &[u8]) -> Context {
    let mut found = Context::default();
    let mut compacted_tokens = None;
    for line in lines_with(transcript, "\"type\"").rev() {
        match Entry::parse(line) {
            // Of a line before the compaction only the model is used: the limit is that model's.
            Some(Entry::Given(usage)) => match compacted_tokens {
                Some(tokens) => {
                    found.compacted = Some(Usage { tokens, ..usage });
                    break;
                }
                None if found.used.is_none() => found.used = Some(usage),
                None => {}
            },
            Some(Entry::Compacted { automatic_at: Some(tokens) }) => compacted_tokens = Some(tokens),
            Some(Entry::Compacted { automatic_at: None }) => break,
            None => {}
        }
    }
    found
}

/// A line about the context.
enum Entry {
    Given(Usage),
    Compacted {
        /// Its tokens, if the client compacted automatically because the context was full.
        automatic_at: Option<u64>,
    },
}

impl Entry {
    fn parse(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(borrow)]
            r#type: Cow<'a, str>,
            subtype: Option<Cow<'a, str>>,
            message: Option<Message<'a>>,
            #[serde(rename = "compactMetadata")]
            compact_metadata: Option<CompactMetadata<'a>>,
            #[serde(default, rename = "isSidechain")]
            is_sidechain: bool,
        }
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            model: Option<Cow<'a, str>>,
            usage: Option<Tokens>,
        }
        #[derive(Deserialize)]
        struct Tokens {
            input_tokens: u64,
            #[serde(default)]
            cache_creation_input_tokens: Option<u64>,
            #[serde(default)]
            cache_read_input_tokens: Option<u64>,
        }
        #[derive(Deserialize)]
        struct CompactMetadata<'a> {
            #[serde(borrow)]
            trigger: Cow<'a, str>,
            #[serde(rename = "preTokens")]
            pre_tokens: u64,
        }
        let has = |word: &str| memchr::memmem::find(line, word.as_bytes()).is_some();
        if !has("\"usage\"") && !has(COMPACT_BOUNDARY) {
            return None;
        }
        let line: Line<'_> = serde_json::from_slice(line).ok()?;
        if line.subtype.as_deref() == Some(COMPACT_BOUNDARY) {
            let metadata = line.compact_metadata?;
            let automatic_at = (metadata.trigger == "auto").then_some(metadata.pre_tokens);
            return Some(Self::Compacted { automatic_at });
        }
        let message = line.message.filter(|_| line.r#type == "assistant" && !line.is_sidechain)?;
        let (model, usage) = (message.model?, message.usage?);
        let cached = [usage.cache_creation_input_tokens, usage.cache_read_input_tokens];
        let tokens =
            cached.into_iter().flatten().fold(usage.input_tokens, |sum, tokens| sum.saturating_add(tokens));
        (!model.starts_with(SYNTHETIC) && tokens > 0)
            .then(|| Self::Given(Usage { model: model.into_owned(), tokens }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assistant(model: &str, input: u64, cached: u64) -> String {
        format!(
            r#"{{"isSidechain":false,"message":{{"role":"assistant","model":"{model}","content":[{{"type":"text","text":"\u00fc"}}],"usage":{{"input_tokens":{input},"cache_creation_input_tokens":0,"cache_read_input_tokens":{cached},"output_tokens":7}}}},"type":"assistant"}}"#
        )
    }

    fn boundary(trigger: &str, tokens: u64) -> String {
        format!(
            r#"{{"type":"system","subtype":"compact_boundary","content":"Conversation compacted","compactMetadata":{{"trigger":"{trigger}","preTokens":{tokens}}}}}"#
        )
    }

    #[test]
    fn the_files_that_the_client_announced_are_read() {
        let transcript = concat!(
            r#"{"type":"user","message":"edited_text_file"}"#,
            "\n",
            r#"{"type":"attachment","attachment":{"type":"edited_text_file","filename":"/w/b.txt","snippet":"x"}}"#,
            "\n",
            r#"{"type":"attachment","attachment":{"type":"date","filename":"edited_text_file"}}"#,
            "\ncut {",
        );
        assert_eq!(changed(transcript.as_bytes()), ["/w/b.txt"]);
    }

    #[test]
    fn task_ends_are_read_from_prompts_and_lines() {
        let prompt = "<task-notification>\n<task-id>b3196njlf</task-id>\n<status>failed</status>";
        let line =
            serde_json::json!({ "type": "attachment", "attachment": { "prompt": prompt } }).to_string();
        assert_eq!(task_ids(prompt), ["b3196njlf"]);
        assert_eq!(ended(format!("cut\n{line}\n{line}").as_bytes()), ["b3196njlf", "b3196njlf"]);
        assert_eq!(task_ids("<task-id>cut"), [""; 0]);
    }

    #[test]
    fn context_is_the_last_usage_of_the_model() {
        let usage = |model: &str, tokens| Some(Usage { model: model.to_owned(), tokens });
        let (first, second) = (assistant("m", 100, 50), assistant("m", 10, 500));
        let (by_client, of_subagent) =
            (assistant("<synthetic>", 1, 0), second.replace("\"isSidechain\":false", "\"isSidechain\":true"));
        let user = r#"{"type":"user","message":{"content":"\"usage\""}}"#;
        for (lines, used, compacted) in [
            (vec![], None, None),
            (vec![&*first, &second], usage("m", 510), None),
            (vec![&first, &by_client, &of_subagent, user, "{\"usage\""], usage("m", 150), None),
            (vec![&first, &boundary("auto", 167_000)], None, usage("m", 167_000)),
            (vec![&first, &boundary("auto", 167_000), &second], usage("m", 510), usage("m", 167_000)),
            (vec![&first, &boundary("manual", 9), &second], usage("m", 510), None),
            (vec![&first, &boundary("manual", 9)], None, None),
            (vec![&boundary("auto", 167_000), &second], usage("m", 510), None),
        ] {
            let found = context(lines.join("\n").as_bytes());
            assert_eq!(found, Context { used, compacted }, "{lines:?}");
        }
    }
}

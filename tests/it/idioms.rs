//! What authors of templates know from elsewhere: it runs as there, or is refused with what runs.
//!
//! `tests/fixtures/idioms.txt` has them: a template, and after `--` its text, or after `--!` a part
//! of the error. So none is accepted and writes something else.

use std::sync::Arc;

use engine::{
    event::Seq,
    notification::{SubscriberId, Tokens},
    pipeline::render::{Layout, RenderInput, Templates},
    pipeline::row::Row,
};
use journal::time::Timestamp;
use serde_json::{Value, json};

use crate::support::rules::event;

const IDIOMS: &str = include_str!("../fixtures/idioms.txt");
/// The least number of idioms.
const IDIOMS_MIN: usize = 150;

fn rows() -> Vec<Row> {
    let payloads: [Value; 2] = [
        json!({ "tool_name": "grep", "attempt": 2, "empty": "", "nothing": null, "tags": ["b", "a"],
                "at": { "file": "/w/a.rs", "line": 7 }, "note": "n" }),
        json!({ "tool_name": "fetch", "attempt": 1 }),
    ];
    let row = |(number, payload): (u64, &Value)| Row {
        seq: Seq(number),
        event: Arc::new(event("test.call.failed", None, payload)),
        repeats: 1,
        threshold: None,
        suppressed: None,
    };
    (1..).zip(&payloads).map(row).collect()
}

/// The text that a template writes, or why it writes none.
fn written(template: &str) -> Result<String, String> {
    let mut templates = Templates::new();
    templates.add("t", template).map_err(|error| error.message)?;
    let (id, rows) = (SubscriberId::new("x"), rows());
    let now: Timestamp = "2026-01-05T09:00:00Z".parse().expect("a time");
    let input = RenderInput { now, ..RenderInput::new(&id, &rows, Tokens(400)) };
    let rendered = Layout::Template("t".into()).render(&templates, &input);
    match rendered.failure {
        Some(failure) => Err(failure.message),
        None => Ok(rendered.content),
    }
}

#[test]
fn idioms_run_or_name_what_runs() {
    let blocks: Vec<&str> = IDIOMS.split("\n== ").skip(1).collect();
    assert!(blocks.len() >= IDIOMS_MIN, "{} idioms", blocks.len());
    let mut wrong = Vec::new();
    for block in blocks {
        let (_, rest) = block.split_once('\n').expect("a name");
        let (template, expected) = rest.split_once("\n--").expect("what is expected");
        let got = written(&format!("{template}\n"));
        let is_met = match (expected.strip_prefix('!'), &got) {
            (Some(part), Err(error)) => error.contains(part.trim()),
            (None, Ok(text)) => text == expected.trim_start_matches('\n').trim_end_matches('\n'),
            (Some(_), Ok(_)) | (None, Err(_)) => false,
        };
        if !is_met {
            wrong.push(format!("== {block}\n  got {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

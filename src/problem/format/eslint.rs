//! `eslint -f json`. Source: <https://eslint.org/docs/latest/use/formatters/>.

use serde::Deserialize;

use crate::problem::{Level, Problem};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    file_path: String,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    rule_id: Option<String>,
    severity: u8,
    message: String,
    line: Option<u32>,
    column: Option<u32>,
}

pub(super) fn read(text: &str) -> Result<Vec<Problem>, serde_path_to_error::Error<serde_json::Error>> {
    let files: Vec<File> = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text))?;
    let of_file = |file: File| {
        file.messages.into_iter().map(move |message| Problem {
            file: Some(file.file_path.clone()),
            line: message.line,
            column: message.column,
            severity: if message.severity >= 2 { Level::Error } else { Level::Warning },
            code: message.rule_id,
            message: message.message,
        })
    };
    Ok(files.into_iter().flat_map(of_file).collect())
}

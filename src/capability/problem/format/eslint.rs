//! `eslint -f json`. Source: <https://eslint.org/docs/latest/use/formatters/>.

use engine::raw_json::{each_item, json};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::capability::problem::text::{json_field, json_item};
use crate::capability::problem::{Level, Problem};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    file_path: String,
    #[serde(borrow)]
    messages: &'a RawValue,
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

/// Calls `found` with each problem, in order.
///
/// Errors: the path of what is wrong, line and column in it.
pub(super) fn read(text: &str, mut found: impl FnMut(Problem)) -> Result<(), String> {
    let files = json(text).map_err(|error| error.to_string())?;
    let mut failed = None;
    each_item(files, |number, file| {
        if failed.is_none() {
            failed = read_file(file, &format!("[{number}]"), &mut found).err();
        }
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    failed.map_or(Ok(()), Err)
}

fn read_file(file: &RawValue, place: &str, found: &mut impl FnMut(Problem)) -> Result<(), String> {
    let File { file_path, messages } = json_item(file, place)?;
    let place = format!("{place}.messages");
    let mut failed = None;
    each_item(messages, |number, message| {
        if failed.is_none() {
            match json_item::<Message>(message, &format!("{place}[{number}]")) {
                Ok(message) => found(problem(&file_path, message)),
                Err(error) => failed = Some(error),
            }
        }
        Ok(())
    })
    .map_err(|error| json_field(&place, &error))?;
    failed.map_or(Ok(()), Err)
}

fn problem(file: &str, message: Message) -> Problem {
    Problem {
        // Code from standard input has no file.
        file: Some(file.to_owned()).filter(|file| file != "<text>"),
        line: message.line,
        column: message.column,
        severity: if message.severity >= 2 { Level::Error } else { Level::Warning },
        code: message.rule_id,
        message: message.message,
    }
}

//! The status line in a settings file: only one may be configured, so another one is left alone, or wrapped if the user wants that, and
//! never replaced.

use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstObject, CstStringLit};
use serde_json::json;

use super::{
    InstallError, Outcome,
    claude::settings_at,
    settings::{Settings, SettingsError, input, is_program, shape},
};

/// The words after the program that make a status line ours.
const WORDS: [&str; 2] = ["statusline", "claude"];
const WRAP: &str = "--wrap";
/// The setting without which the client draws the line only when the conversation goes on, which an idle one does not.
const REFRESH: &str = "refreshInterval";
/// How often it is drawn then, in seconds: soon enough for somebody who looks, and a few milliseconds of work each time.
const REFRESH_SECONDS: u32 = 5;

/// Where the user wants to see what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// In the status line, unless they have one of their own.
    UnlessThereIsOne,
    /// In the status line, around their own if they have one.
    Always,
    /// Not there.
    Never,
}

/// Whether the status line becomes ours in the file at `settings`; that of `others` holds there too. Says what stays as it is.
///
/// Errors: a file that cannot be read.
pub(super) fn is_put(
    outcome: &mut Outcome,
    settings: &Path,
    wish: Wish,
    others: &[PathBuf],
) -> Result<bool, InstallError> {
    match wish {
        Wish::Always => Ok(true),
        Wish::Never => Ok(false),
        Wish::UnlessThereIsOne => {
            let others = others.iter().map(PathBuf::as_path);
            let foreign = foreign(std::iter::once(settings).chain(others))?;
            if let Some(file) = foreign {
                outcome.note(&format!(
                    "the status line in {} stays as it is; with --statusline it shows what waits too",
                    file.display()
                ));
            }
            Ok(foreign.is_none())
        }
    }
}

/// The first of these files that has a status line which is not ours.
fn foreign<'p>(files: impl Iterator<Item = &'p Path>) -> Result<Option<&'p Path>, InstallError> {
    for file in files {
        let settings = settings_at(file)?;
        let has_one =
            |settings: &Settings| settings.value().get("statusLine").is_some() && !is_ours(settings);
        if settings.as_ref().is_some_and(has_one) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Makes the status line ours; one that is there already goes on inside it.
///
/// Errors: a status line that is no command cannot be wrapped.
pub(super) fn put(settings: &Settings, program: &str) -> Result<(), SettingsError> {
    let Some(property) = settings.object().and_then(|object| object.get("statusLine")) else {
        let command = command(program, None);
        let value = json!({ "type": "command", "command": command, REFRESH: REFRESH_SECONDS });
        settings.object_or_new().append("statusLine", input(&value));
        return Ok(());
    };
    let status_line = property.object_value().ok_or_else(|| shape("statusLine", "an object"))?;
    let literal = literal(&status_line).ok_or_else(|| shape("statusLine.command", "a string"))?;
    let present = decoded(&literal);
    let wrapped = match ours(&present) {
        Some(wrapped) => wrapped,
        None => Some(present),
    };
    set(&literal, &command(program, wrapped.as_deref()));
    if status_line.get(REFRESH).is_none() {
        status_line.append(REFRESH, input(&json!(REFRESH_SECONDS)));
    }
    Ok(())
}

/// Gives the status line back to whom it belonged; `original` is the file as it was before, if that is known.
pub(super) fn remove(settings: &Settings, original: Option<&Settings>) {
    let Some(property) = settings.object().and_then(|object| object.get("statusLine")) else { return };
    let Some(status_line) = property.object_value() else { return };
    let Some(literal) = self::literal(&status_line) else { return };
    match ours(&decoded(&literal)) {
        None => {}
        Some(None) => property.remove(),
        Some(Some(wrapped)) => {
            let original =
                original.and_then(Settings::object).and_then(|object| object.object_value("statusLine"));
            let had_no_interval = original.as_ref().is_some_and(|original| original.get(REFRESH).is_none());
            if had_no_interval && let Some(interval) = status_line.get(REFRESH) {
                interval.remove();
            }
            let before = original
                .and_then(|original| self::literal(&original))
                .filter(|before| decoded(before) == wrapped);
            match before {
                // The same text may be written with other escapes.
                Some(before) => literal.set_raw_value(before.raw_value()),
                None => set(&literal, &wrapped),
            }
        }
    }
}

/// Whether the status line is ours.
pub(super) fn is_ours(settings: &Settings) -> bool {
    let value = settings.value();
    let command = value.pointer("/statusLine/command").and_then(serde_json::Value::as_str);
    command.is_some_and(|command| ours(command).is_some())
}

fn command(program: &str, wrapped: Option<&str>) -> String {
    let words = std::iter::once(program).chain(WORDS);
    let words = words.chain(wrapped.map(|wrapped| [WRAP, wrapped]).into_iter().flatten());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// `word` as a shell takes it for one word. Bytes that no shell takes cannot stand in a settings file either.
pub(in crate::cli) fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.replace('\0', ""), std::borrow::Cow::into_owned)
}

/// What a command of ours wraps; `None` for one that is not ours.
#[expect(clippy::option_option, reason = "whether it is ours, and whether it wraps another")]
fn ours(command: &str) -> Option<Option<String>> {
    let words = shlex::split(command)?;
    match words.as_slice() {
        [program, first, second] if is_ours_by(program, [first, second]) => Some(None),
        [program, first, second, wrap, wrapped] if is_ours_by(program, [first, second]) && wrap == WRAP => {
            Some(Some(wrapped.clone()))
        }
        _ => None,
    }
}

fn is_ours_by(program: &str, words: [&String; 2]) -> bool {
    is_program(program) && words == WORDS
}

fn literal(status_line: &CstObject) -> Option<CstStringLit> {
    status_line.get("command")?.value()?.as_string_lit()
}

fn decoded(literal: &CstStringLit) -> String {
    literal.decoded_value().unwrap_or_default()
}

fn set(literal: &CstStringLit, text: &str) {
    literal.set_raw_value(serde_json::Value::from(text).to_string());
}

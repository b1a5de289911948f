//! The status line in a settings file. A client supports only one, so a foreign one is left alone,
//! or wrapped on request, but never replaced.

use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstObject, CstStringLit};
use serde_json::{Value, json};

use super::{
    InstallError, Outcome,
    places::settings_at,
    settings::{Settings, SettingsError, input, is_program, quoted, shape},
    templates::Choice,
};
use crate::harness::{
    installation::StatusLineSetting,
    kind::{Hooks, Kind},
};

/// The word between the program and the harness that identifies our status line.
const WORD: &str = "statusline";
const WRAP: &str = "--wrap";
/// Refresh interval in seconds: short enough for a user who looks, at a cost of a few milliseconds.
/// Without it, a client redraws only when the conversation continues, so never while it is idle.
const REFRESH_SECONDS: u32 = 5;

/// The user's choice for the status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatusLineChoice {
    /// Use it, unless the user has their own.
    UnlessThereIsOne,
    /// Use it, and wrap the user's own.
    Always,
    /// Do not use it.
    Never,
}

/// Whether our status line goes into the file at `settings`; one in `others` also applies there.
/// Reports a status line that stays unchanged.
///
/// Errors: a file cannot be read.
pub(super) fn is_put(
    outcome: &mut Outcome,
    hooks: &Hooks,
    settings: &Path,
    status_line: StatusLineChoice,
    others: &[PathBuf],
) -> Result<bool, InstallError> {
    let Some(setting) = &hooks.installation.status_line else { return Ok(false) };
    match status_line {
        StatusLineChoice::Always => Ok(true),
        StatusLineChoice::Never => Ok(false),
        StatusLineChoice::UnlessThereIsOne => {
            let others = others.iter().map(PathBuf::as_path);
            let foreign = foreign(setting, std::iter::once(settings).chain(others))?;
            if let Some(file) = foreign {
                outcome.note(&format!(
                    "the status line in {} is unchanged; with --statusline it also shows pending notifications",
                    file.display()
                ));
            }
            Ok(foreign.is_none())
        }
    }
}

/// The first of these files with a foreign status line.
fn foreign<'p>(
    setting: &StatusLineSetting,
    files: impl Iterator<Item = &'p Path>,
) -> Result<Option<&'p Path>, InstallError> {
    for file in files {
        let settings = settings_at(file)?.map(|settings| settings.value()).unwrap_or_default();
        if settings.get(setting.key).is_some() && !is_ours_in(setting, &settings) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Sets our status line, which wraps an existing one.
///
/// Errors: a status line that is not a command cannot be wrapped.
pub(super) fn put(settings: &Settings, choice: &Choice) -> Result<(), SettingsError> {
    let Some(StatusLineSetting { key, interval }) = &choice.hooked.hooks.installation.status_line else {
        return Ok(());
    };
    let Some(property) = settings.object().and_then(|object| object.get(key)) else {
        let command = command(choice, None);
        let value = json!({ "type": "command", "command": command, *interval: REFRESH_SECONDS });
        settings.object_or_new().append(key, input(&value));
        return Ok(());
    };
    let status_line = property.object_value().ok_or_else(|| shape(key, "an object"))?;
    let literal = literal(&status_line).ok_or_else(|| shape(&format!("{key}.command"), "a string"))?;
    let present = decoded(&literal);
    let wrapped = match ours(&present) {
        Some(wrapped) => wrapped,
        None => Some(present),
    };
    set(&literal, &command(choice, wrapped.as_deref()));
    if status_line.get(interval).is_none() {
        status_line.append(interval, input(&json!(REFRESH_SECONDS)));
    }
    Ok(())
}

/// Restores the status line of the user; `original` is the original file, if known.
pub(super) fn remove(hooks: &Hooks, settings: &Settings, original: Option<&Settings>) {
    let Some(StatusLineSetting { key, interval }) = &hooks.installation.status_line else { return };
    let Some(property) = settings.object().and_then(|object| object.get(key)) else { return };
    let Some(status_line) = property.object_value() else { return };
    let Some(literal) = self::literal(&status_line) else { return };
    match ours(&decoded(&literal)) {
        None => {}
        Some(None) => property.remove(),
        Some(Some(wrapped)) => {
            let original = original.and_then(Settings::object).and_then(|object| object.object_value(key));
            let had_no_interval = original.as_ref().is_some_and(|original| original.get(interval).is_none());
            if had_no_interval && let Some(interval) = status_line.get(interval) {
                interval.remove();
            }
            let before = original
                .and_then(|original| self::literal(&original))
                .filter(|before| decoded(before) == wrapped);
            match before {
                // The same text may use other escapes.
                Some(before) => literal.set_raw_value(before.raw_value()),
                None => set(&literal, &wrapped),
            }
        }
    }
}

/// Whether the status line is ours.
pub(super) fn is_ours(hooks: &Hooks, settings: &Settings) -> bool {
    hooks.installation.status_line.as_ref().is_some_and(|setting| is_ours_in(setting, &settings.value()))
}

fn is_ours_in(setting: &StatusLineSetting, settings: &Value) -> bool {
    let command = settings.get(setting.key).and_then(|line| line.get("command")?.as_str());
    command.is_some_and(|command| ours(command).is_some())
}

fn command(choice: &Choice, wrapped: Option<&str>) -> String {
    let words = [&*choice.program, WORD, choice.hooked.kind.word].into_iter();
    let words = words.chain(wrapped.map(|wrapped| [WRAP, wrapped]).into_iter().flatten());
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// The command wrapped by ours; `None` for a foreign one.
#[expect(clippy::option_option, reason = "whether it is ours, and whether it wraps another")]
fn ours(command: &str) -> Option<Option<String>> {
    let words = shlex::split(command)?;
    match words.as_slice() {
        [program, word, harness] if is_ours_by([program, word, harness]) => Some(None),
        [program, word, harness, wrap, wrapped] if is_ours_by([program, word, harness]) && wrap == WRAP => {
            Some(Some(wrapped.clone()))
        }
        _ => None,
    }
}

fn is_ours_by([program, word, harness]: [&String; 3]) -> bool {
    is_program(program) && word == WORD && Kind::of_word(harness).is_some()
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

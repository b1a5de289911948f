//! Edits of one settings file: adds hooks and the status line, or removes all of ours and restores
//! the file.
//!
//! A client supports only one status line, so a foreign one is left alone, or wrapped on request, but
//! never replaced.

use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstObject, CstStringLit};
use serde_json::{Value, json};

use super::{
    InstallError, Outcome,
    places::{parse, settings_at},
    plan::{Plan, backup_path, read},
    settings::{Settings, SettingsError, check_accepted, input, is_program, quoted, shape},
    templates::Choice,
};
use crate::harness::{
    installation::StatusLineSetting,
    kind::{Hooked, Hooks, Kind},
};

/// Adds hooks to the settings file at `path`, and the status line as requested; a status line in
/// `others` also applies there.
pub(super) fn put_hooks(
    outcome: &mut Outcome,
    path: &Path,
    choice: &Choice,
    wanted: StatusLineChoice,
    others: &[PathBuf],
) -> Result<(), InstallError> {
    let hooked = choice.hooked;
    let has_status_line = is_status_line_put(outcome, hooked.hooks, path, wanted, others)?;
    let base = if wanted == StatusLineChoice::Never { less_ours(path, hooked)? } else { read(path)? };
    edit(&mut outcome.plan, path, hooked, base, |settings| {
        settings.put_hooks(&choice.hooks())?;
        if has_status_line { put_status_line(settings, choice) } else { Ok(()) }
    })
}

/// Removes our hooks from a settings file, and adds or removes the status line as requested.
pub(super) fn put_only_status_line(
    outcome: &mut Outcome,
    path: &Path,
    choice: &Choice,
    wanted: StatusLineChoice,
) -> Result<(), InstallError> {
    let hooked = choice.hooked;
    if wanted == StatusLineChoice::Never {
        return clean(outcome, hooked, path);
    }
    let has_status_line = is_status_line_put(outcome, hooked.hooks, path, wanted, &[])?;
    edit(&mut outcome.plan, path, hooked, read(path)?, |settings| {
        settings.remove_hooks()?;
        if has_status_line { put_status_line(settings, choice) } else { Ok(()) }
    })
}

/// The text of a settings file without our entries; `None` if there would be no file.
fn less_ours(path: &Path, hooked: Hooked) -> Result<Option<String>, InstallError> {
    let Some(present) = read(path)? else { return Ok(None) };
    let original = read(&backup_path(path))?;
    let failed = |why| InstallError::Settings { path: path.to_owned(), why };
    let text = cleaned(hooked, &present, original.as_deref()).map_err(failed)?;
    Ok(Some(text).filter(|text| !text.is_empty() || original.is_some()))
}

/// Sets a settings file to `base` with this change. A missing file is created if there is content
/// for it. A file that becomes empty is deleted if aside created it.
///
/// Errors: also a file that the client skips, in which nothing of ours would have an effect.
fn edit(
    plan: &mut Plan,
    path: &Path,
    hooked: Hooked,
    base: Option<String>,
    change: impl FnOnce(&Settings) -> Result<(), SettingsError>,
) -> Result<(), InstallError> {
    let present = read(path)?.unwrap_or_default();
    check_accepted(hooked.hooks, &present)
        .map_err(|why| InstallError::Settings { path: path.to_owned(), why })?;
    let had_ours = settings_at(path)?.is_some_and(|settings| has_ours(hooked.hooks, &settings));
    let settings = parse(path, base.as_deref().unwrap_or_default())?;
    change(&settings).map_err(|why| InstallError::Settings { path: path.to_owned(), why })?;
    let mut after = settings.text();
    if base.is_none() {
        if settings.is_empty() {
            return Ok(());
        }
        after.push('\n');
    }
    if !had_ours {
        return Ok(plan.edit(path.to_owned(), after)?);
    }
    // Its first change left a copy, or created the file.
    if settings.is_empty() && read(&backup_path(path))?.is_none() {
        return Ok(plan.remove(path.to_owned())?);
    }
    Ok(plan.write(path.to_owned(), after)?)
}

/// Removes our entries from a settings file, and restores its original text if it was not changed
/// otherwise.
pub(super) fn clean(outcome: &mut Outcome, hooked: Hooked, path: &Path) -> Result<(), InstallError> {
    let Some(before) = read(path)? else { return Ok(()) };
    let copy = backup_path(path);
    let original = read(&copy)?;
    let failed = |why| InstallError::Settings { path: path.to_owned(), why };
    let after = cleaned(hooked, &before, original.as_deref()).map_err(failed)?;
    if after != before && after.is_empty() && original.is_none() {
        outcome.plan.remove(path.to_owned())?;
        outcome.emptied.extend(path.parent().map(|folder| (folder.to_owned(), folder.to_owned())));
    } else if after != before {
        outcome.plan.write(path.to_owned(), after.clone())?;
    }
    if original.as_ref() == Some(&after) {
        outcome.plan.remove(copy)?;
    } else if original.is_some() && !outcome.plan.is_empty() {
        outcome.note(&format!("{} is kept; it is the file before the first change", copy.display()));
    }
    Ok(())
}

/// The text of a settings file without our entries; empty if it had no others.
///
/// Removing an entry from a handwritten file cannot always restore its white space. If the file
/// equals the original one with our changes, the original text is returned.
fn cleaned(hooked: Hooked, text: &str, original: Option<&str>) -> Result<String, SettingsError> {
    let settings = Settings::parse(text)?;
    if !has_ours(hooked.hooks, &settings) {
        return Ok(text.to_owned());
    }
    // An unreadable copy must not keep our entries in the file.
    let original_settings = original.and_then(|original| Settings::parse(original).ok());
    let strip = |settings: &Settings| {
        settings.remove_hooks()?;
        remove_status_line(hooked.hooks, settings, original_settings.as_ref());
        Ok(settings.text())
    };
    let (has_hooks, has_status_line) =
        (!settings.our_hooks().is_empty(), is_our_status_line(hooked.hooks, &settings));
    let stripped = strip(&settings)?;
    if let Some(original) = original
        && let Ok(again) = Settings::parse(original)
        && !has_ours(hooked.hooks, &again)
    {
        let choice = Choice::plain(hooked);
        if has_hooks {
            again.put_hooks(&choice.hooks())?;
        }
        if has_status_line {
            put_status_line(&again, &choice)?;
        }
        if strip(&again)? == stripped || stripped == original {
            return Ok(original.to_owned());
        }
    }
    Ok(if settings.is_empty() { String::new() } else { stripped })
}

fn has_ours(hooks: &Hooks, settings: &Settings) -> bool {
    !settings.our_hooks().is_empty() || is_our_status_line(hooks, settings)
}

/// The word between the program and the harness that identifies our status line.
const STATUS_LINE: &str = "statusline";
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
fn is_status_line_put(
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
fn put_status_line(settings: &Settings, choice: &Choice) -> Result<(), SettingsError> {
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
fn remove_status_line(hooks: &Hooks, settings: &Settings, original: Option<&Settings>) {
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
fn is_our_status_line(hooks: &Hooks, settings: &Settings) -> bool {
    hooks.installation.status_line.as_ref().is_some_and(|setting| is_ours_in(setting, &settings.value()))
}

fn is_ours_in(setting: &StatusLineSetting, settings: &Value) -> bool {
    let command = settings.get(setting.key).and_then(|line| line.get("command")?.as_str());
    command.is_some_and(|command| ours(command).is_some())
}

fn command(choice: &Choice, wrapped: Option<&str>) -> String {
    let words = [&*choice.program, STATUS_LINE, choice.hooked.kind.word].into_iter();
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
    is_program(program) && word == STATUS_LINE && Kind::of_word(harness).is_some()
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

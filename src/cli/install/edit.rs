//! Edits of one settings file: adds hooks and the status line, or removes all of ours and restores
//! the file.

use std::path::{Path, PathBuf};

use super::{
    InstallError, Outcome, accepted,
    places::{parse, settings_at},
    plan::{Plan, backup_path, read},
    settings::{Settings, SettingsError},
    status_line::{self, StatusLineChoice},
    templates::Choice,
};
use crate::harness::kind::{Hooked, Hooks};

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
    let has_status_line = status_line::is_put(outcome, hooked.hooks, path, wanted, others)?;
    let base = if wanted == StatusLineChoice::Never { less_ours(path, hooked)? } else { read(path)? };
    edit(&mut outcome.plan, path, hooked, base, |settings| {
        settings.put_hooks(&choice.hooks())?;
        if has_status_line { status_line::put(settings, choice) } else { Ok(()) }
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
    let has_status_line = status_line::is_put(outcome, hooked.hooks, path, wanted, &[])?;
    edit(&mut outcome.plan, path, hooked, read(path)?, |settings| {
        settings.remove_hooks()?;
        if has_status_line { status_line::put(settings, choice) } else { Ok(()) }
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
    accepted::check(hooked.hooks, &present)
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
        status_line::remove(hooked.hooks, settings, original_settings.as_ref());
        Ok(settings.text())
    };
    let (has_hooks, has_status_line) =
        (!settings.our_hooks().is_empty(), status_line::is_ours(hooked.hooks, &settings));
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
            status_line::put(&again, &choice)?;
        }
        if strip(&again)? == stripped || stripped == original {
            return Ok(original.to_owned());
        }
    }
    Ok(if settings.is_empty() { String::new() } else { stripped })
}

fn has_ours(hooks: &Hooks, settings: &Settings) -> bool {
    !settings.our_hooks().is_empty() || status_line::is_ours(hooks, settings)
}

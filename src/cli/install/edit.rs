//! Edits of one settings file: hooks and the status line in, or everything of ours out, and the file as it was before.

use std::path::{Path, PathBuf};

use super::{
    InstallError, Outcome,
    places::{parse, settings_at},
    plan::{Plan, backup_path, read},
    settings::{Settings, SettingsError},
    status_line::{self, Wish},
    templates::Choice,
};
use crate::harness::kind::Kind;

/// Hooks in the settings file at `path`, and the status line as the user wants it; that of `others` holds there too.
pub(super) fn put_hooks(
    outcome: &mut Outcome,
    path: &Path,
    choice: &Choice,
    wish: Wish,
    others: &[PathBuf],
) -> Result<(), InstallError> {
    let kind = choice.kind;
    let has_status_line = status_line::is_put(outcome, kind, path, wish, others)?;
    let base = if wish == Wish::Never { less_ours(path, kind)? } else { read(path)? };
    edit(&mut outcome.plan, path, kind, base, |settings| {
        settings.put_hooks(&choice.hooks())?;
        if has_status_line { status_line::put(settings, choice) } else { Ok(()) }
    })
}

/// The status line alone, as the user wants it, and no hooks.
pub(super) fn put_status_line(
    outcome: &mut Outcome,
    path: &Path,
    choice: &Choice,
    wish: Wish,
) -> Result<(), InstallError> {
    let kind = choice.kind;
    if wish == Wish::Never {
        return clean(outcome, kind, path);
    }
    let has_status_line = status_line::is_put(outcome, kind, path, wish, &[])?;
    edit(&mut outcome.plan, path, kind, read(path)?, |settings| {
        settings.remove_hooks()?;
        if has_status_line { status_line::put(settings, choice) } else { Ok(()) }
    })
}

/// A settings file's text as it was, or would be, without ours; `None` if there is no such file then.
fn less_ours(path: &Path, kind: &'static Kind) -> Result<Option<String>, InstallError> {
    let Some(present) = read(path)? else { return Ok(None) };
    let original = read(&backup_path(path))?;
    let failed = |why| InstallError::Settings { path: path.to_owned(), why };
    let text = cleaned(kind, &present, original.as_deref()).map_err(failed)?;
    Ok(Some(text).filter(|text| !text.is_empty() || original.is_some()))
}

/// Has a settings file hold `base` with this change; one that is not there is made if there is something to put into it, and goes if
/// nothing is left in it.
fn edit(
    plan: &mut Plan,
    path: &Path,
    kind: &'static Kind,
    base: Option<String>,
    change: impl FnOnce(&Settings) -> Result<(), SettingsError>,
) -> Result<(), InstallError> {
    let had_ours = settings_at(path)?.is_some_and(|settings| has_ours(kind, &settings));
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
        return Ok(plan.edit(path.to_owned(), Some(after))?);
    }
    // Its first change left a copy, or made the file.
    if settings.is_empty() && read(&backup_path(path))?.is_none() {
        return Ok(plan.remove(path.to_owned())?);
    }
    Ok(plan.write(path.to_owned(), after)?)
}

/// Takes everything of ours out of a settings file, and puts its first state back if nobody else changed it since.
pub(super) fn clean(outcome: &mut Outcome, kind: &'static Kind, path: &Path) -> Result<(), InstallError> {
    let Some(before) = read(path)? else { return Ok(()) };
    let copy = backup_path(path);
    let original = read(&copy)?;
    let failed = |why| InstallError::Settings { path: path.to_owned(), why };
    let after = cleaned(kind, &before, original.as_deref()).map_err(failed)?;
    if after != before && after.is_empty() && original.is_none() {
        outcome.plan.remove(path.to_owned())?;
        outcome.emptied.extend(path.parent().map(|folder| (folder.to_owned(), folder.to_owned())));
    } else if after != before {
        outcome.plan.write(path.to_owned(), after.clone())?;
    }
    if original.as_ref() == Some(&after) {
        outcome.plan.remove(copy)?;
    } else if original.is_some() && !outcome.plan.is_empty() {
        outcome.note(&format!("{} stays; it is the file as it was before the first change", copy.display()));
    }
    Ok(())
}

/// A settings file's text without anything of ours; empty if nothing else was in it.
///
/// Taking something out of a hand-written file cannot always bring back the white space around it, so where the file is the first
/// one with our changes, the first one is the answer.
fn cleaned(kind: &'static Kind, text: &str, original: Option<&str>) -> Result<String, SettingsError> {
    let settings = Settings::parse(text)?;
    if !has_ours(kind, &settings) {
        return Ok(text.to_owned());
    }
    // A copy that cannot be read is no reason to leave ours in.
    let original_settings = original.and_then(|original| Settings::parse(original).ok());
    let strip = |settings: &Settings| {
        settings.remove_hooks()?;
        status_line::remove(kind, settings, original_settings.as_ref());
        Ok(settings.text())
    };
    let (has_hooks, has_status_line) =
        (!settings.our_hooks().is_empty(), status_line::is_ours(kind, &settings));
    let stripped = strip(&settings)?;
    if let Some(original) = original
        && let Ok(again) = Settings::parse(original)
        && !has_ours(kind, &again)
    {
        let choice = Choice::plain(kind);
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

fn has_ours(kind: &'static Kind, settings: &Settings) -> bool {
    !settings.our_hooks().is_empty() || status_line::is_ours(kind, settings)
}

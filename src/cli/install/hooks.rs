//! Installs in a client that runs hooks: as an extension in the user's folder, hooks in a settings
//! file, or a folder that distributes the extension.
//!
//! The harness's row defines the files and hooks. A client runs hooks of an extension and of a
//! settings file together, so installing in one place removes ours from the other.

use std::path::Path;

use hook::client::PROGRAM;

use super::{
    InstallError, Outcome,
    client::check_version,
    edit::{StatusLineChoice, clean, put_hooks, put_only_status_line},
    extension::{self, refuse_foreign},
    options::{Args, RemoveArgs},
    places::{Places, Target, has_hooks, hooks_in},
    settings::{is_program, quoted},
    templates::Choice,
};
use crate::{
    cli::harness,
    harness::{
        installation::{Extension, ExtensionFolder},
        kind::{Hooked, Hooks},
    },
};

/// Installs aside in the client.
pub(super) fn install(hooked: Hooked, args: &Args) -> Result<Outcome, InstallError> {
    let places = Places::find(hooked, args.project.as_deref().unwrap_or(Path::new(".")))?;
    let mut outcome = Outcome { is_dry_run: args.dry_run, ..Outcome::default() };
    let program = match args.extension {
        Some(_) => harness::own_name(),
        None => harness::own_path(),
    };
    // An extension for others is used where this program may be alone.
    let hook_program = if args.extension.is_none() { hook::small_program(Path::new(&program)) } else { None };
    let hook_program = hook_program.map(|path| path.to_string_lossy().into_owned());
    let choice = Choice { hooked, program, hook_program, autostart: args.autostart, tools: args.tools };
    if !is_program(&choice.program) {
        return Err(InstallError::OtherName { program: choice.program });
    }
    if let Some(folder) = &args.extension {
        distribution_folder(&mut outcome, folder, &places, &choice)?;
        return Ok(outcome);
    }
    let (client, since) = (&hooked.hooks.client, hooked.hooks.installation.since);
    let version = harness::version(client);
    refuse_twice(&places, if args.project.is_some() { Target::Project } else { Target::User })?;
    check_version(&mut outcome, client, version, (since, "these hooks need"))?;
    let status_line = args.status_line();
    if args.project.is_some() {
        if !places.project.is_dir() {
            return Err(InstallError::NoProject { path: places.project });
        }
        project(&mut outcome, &places, &choice, status_line)?;
        note_without_follower(&mut outcome, hooked.hooks);
    } else {
        let extension = places.extension();
        let since = extension.as_ref().map(|(_, extension)| extension.folder.since);
        let is_too_old = version.zip(since).is_some_and(|(version, since)| version < since);
        match extension {
            Some((folder, extension)) if !args.settings && !is_too_old => {
                user_extension(&mut outcome, &places, &folder, extension, &choice, status_line)?;
            }
            extension => {
                if let Some((_, extension)) = extension.filter(|_| is_too_old) {
                    let ExtensionFolder { word, since, .. } = extension.folder;
                    outcome.note(&format!("the client loads {word}s from {since} on; until then the hooks are in its settings, and an idle session cannot be woken"));
                }
                user_settings(&mut outcome, &places, &choice, status_line)?;
                note_without_follower(&mut outcome, hooked.hooks);
            }
        }
    }
    outcome.next_steps(client.program.name, args.autostart);
    Ok(outcome)
}

/// Notes when a client that has an extension's follower otherwise is not woken without it.
fn note_without_follower(outcome: &mut Outcome, hooks: &Hooks) {
    if let (Some(_), Some(sockets)) = (&hooks.installation.extension, &hooks.message_sockets) {
        outcome.note(sockets.note);
    }
}

/// Removes aside from the client.
pub(super) fn uninstall(hooked: Hooked, args: &RemoveArgs) -> Result<Outcome, InstallError> {
    let places = Places::find(hooked, args.project.as_deref().unwrap_or(Path::new(".")))?;
    let mut outcome = Outcome { is_dry_run: args.dry_run, ..Outcome::default() };
    if args.project.is_some() {
        for path in places.project_settings() {
            clean(&mut outcome, hooked, &path)?;
        }
    } else {
        remove_extension(&mut outcome, &places)?;
        let user = places.user_settings();
        clean(&mut outcome, hooked, &user)?;
        // An unreadable file of a project must not prevent the removal from the user's places.
        for path in places.all_settings().into_iter().filter(|path| *path != user && has_hooks(path)) {
            outcome.note(&format!(
                "{} has hooks of aside too: {}",
                path.display(),
                places.removal(Target::Project)
            ));
        }
    }
    Ok(outcome)
}

/// Installs an extension in the user's folder, and removes ours from the settings.
fn user_extension(
    outcome: &mut Outcome,
    places: &Places,
    folder: &Path,
    extension: &Extension,
    choice: &Choice,
    status_line: StatusLineChoice,
) -> Result<(), InstallError> {
    extension::write(outcome, folder, &extension.folder, choice.extension_files(extension))?;
    let settings = places.user_settings();
    if !hooks_in(&settings)?.is_empty() {
        outcome.note(&format!(
            "the {} in {} replaces the hooks in {}",
            extension.folder.word,
            folder.display(),
            settings.display()
        ));
    }
    put_only_status_line(outcome, &settings, choice, status_line)
}

/// Adds hooks to the user's settings, and removes the extension.
fn user_settings(
    outcome: &mut Outcome,
    places: &Places,
    choice: &Choice,
    status_line: StatusLineChoice,
) -> Result<(), InstallError> {
    let settings = places.user_settings();
    remove_extension(outcome, places)?;
    if let (false, Some((folder, extension))) = (outcome.plan.is_empty(), places.extension()) {
        outcome.note(&format!(
            "the hooks in {} replace the {} in {}",
            settings.display(),
            extension.folder.word,
            folder.display()
        ));
    }
    put_hooks(outcome, &settings, choice, status_line, &[])
}

/// Adds hooks to the file that already has ours, else to the first one, which is private to this
/// user if the client has such a file: a colleague without aside would see an error at every step.
fn project(
    outcome: &mut Outcome,
    places: &Places,
    choice: &Choice,
    status_line: StatusLineChoice,
) -> Result<(), InstallError> {
    let files = places.project_settings();
    let mut found = files.first();
    for path in &files {
        if !hooks_in(path)?.is_empty() {
            found = Some(path);
            break;
        }
    }
    let Some(path) = found else { return Ok(()) };
    // The client may show a foreign status line there from any of its settings files.
    put_hooks(outcome, path, choice, status_line, &places.all_settings())
}

fn distribution_folder(
    outcome: &mut Outcome,
    folder: &Path,
    places: &Places,
    choice: &Choice,
) -> Result<(), InstallError> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let Some((own, extension)) = places.extension() else { return Ok(()) };
    let Some(distribution) = &extension.distribution else { return Ok(()) };
    let (list, target) = (folder.join(distribution.list), folder.join(PROGRAM));
    refuse_foreign(&list, &list)?;
    refuse_foreign(&target, &target.join(extension.folder.manifest))?;
    for (name, text) in choice.distribution_files(extension, distribution) {
        outcome.plan.write(folder.join(name), text)?;
    }
    if own.exists() || !hooks_in(&places.user_settings())?.is_empty() {
        outcome.note(&format!(
            "aside is installed for this user already, and with both every hook would run twice: {}",
            places.removal(Target::User)
        ));
    }
    let steps = (distribution.next)(&quoted(&folder.display().to_string()));
    outcome.next(&steps.iter().map(|(step, what)| (&**step, *what)).collect::<Vec<_>>());
    Ok(())
}

/// Refuses a second installation that would run as well: of another scope, or managed by the
/// client. One of the same scope in another form is replaced, with a message.
fn refuse_twice(places: &Places, target: Target) -> Result<(), InstallError> {
    for path in places.all_settings() {
        if let Some((name, remedy)) = places.enabled_extension(&path)? {
            let what = format!("the {name}, which {} enables,", path.display());
            return Err(InstallError::Twice { what, remedy });
        }
    }
    let user = places.user_settings();
    if target == Target::Project && (places.has_extension() || !hooks_in(&user)?.is_empty()) {
        let what = "the installation for all projects of this user".to_owned();
        return Err(InstallError::Twice { what, remedy: places.removal(Target::User) });
    }
    let mut project = places.all_settings().into_iter().filter(|path| *path != user);
    if target == Target::User
        && let Some(path) = project.find(|path| has_hooks(path))
    {
        let what = format!("the installation in {}", path.display());
        return Err(InstallError::Twice { what, remedy: places.removal(Target::Project) });
    }
    Ok(())
}

/// Removes the extension from the user's folder.
fn remove_extension(outcome: &mut Outcome, places: &Places) -> Result<(), InstallError> {
    let Some((_, extension)) = places.extension() else { return Ok(()) };
    extension::remove(outcome, &places.home, &extension.folder)
}

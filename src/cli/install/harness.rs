//! Installs in a harness of the table: as an extension in the user's folder, hooks in a settings file,
//! or an extension folder for distribution.
//!
//! The harness's row defines the files and hooks. A client runs hooks of an extension and of a settings
//! file together, so installing in one place removes ours from the other.

use std::path::{Path, PathBuf};

use clap::Command;
use hook::client::PROGRAM;

use super::{
    InstallError, Outcome,
    edit::{clean, put_hooks, put_only_status_line},
    places::{Places, Target, has_hooks, hooks_in},
    plan::{holds_file, read, remove_empty},
    settings::{is_program, quoted},
    status_line::StatusLineChoice,
    templates::{Choice, is_manifest},
};
use crate::{
    cli::{client_program, of_harness::ForHarness},
    harness::{installation::Extension, kind::Kind},
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// For all projects of this user; this is the default
    #[arg(long, conflicts_with_all = ["project", "extension"])]
    user: bool,
    /// For one project and this user
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", conflicts_with = "extension")]
    project: Option<PathBuf>,
    /// Write the extension into DIR as a separate distribution, and explain how to add it to the client
    #[arg(long, value_name = "DIR", conflicts_with_all = ["statusline", "no_statusline", "settings"])]
    extension: Option<PathBuf>,
    /// Install the hooks in the user's settings instead of an extension; an idle session cannot be
    /// woken then
    #[arg(long, conflicts_with_all = ["project", "extension"])]
    settings: bool,
    /// Let the first hook of a session start the daemon if none runs
    #[arg(long)]
    autostart: bool,
    /// Also give the agent tools, by MCP: watch, inbox, notify; a session then costs some 90 tokens
    /// more
    #[arg(long, conflicts_with_all = ["project", "settings"])]
    tools: bool,
    /// Show pending notifications in the client's status line even if you have your own, which is
    /// wrapped
    #[arg(long, conflicts_with = "no_statusline")]
    statusline: bool,
    /// Do not use the client's status line, and remove ours from it
    #[arg(long)]
    no_statusline: bool,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RemoveArgs {
    /// Remove it from one project's settings instead [default DIR: the current folder]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    project: Option<PathBuf>,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    const fn status_line(&self) -> StatusLineChoice {
        match (self.statusline, self.no_statusline) {
            (true, _) => StatusLineChoice::Always,
            (false, true) => StatusLineChoice::Never,
            (false, false) => StatusLineChoice::UnlessThereIsOne,
        }
    }
}

impl ForHarness for Args {
    fn fit(command: Command, kind: &Kind) -> Command {
        let installation = &kind.installation;
        let place =
            ["DIR", kind.files.folder, installation.settings.project.first().unwrap_or(&"")].join("/");
        let project =
            format!("For one project and this user: hooks in {place} [default DIR: the current folder]");
        let extension = installation.extension.as_ref();
        let word = extension.map_or("", |extension| extension.word);
        let others = extension.and_then(|extension| Some(extension.distribution.as_ref()?.word));
        let others = others.unwrap_or_default();
        let extension = format!(
            "Write the {word} into DIR as a separate {others}, and explain how to add it to the client"
        );
        let settings = format!(
            "Install the hooks in the user's settings instead of the {word}; an idle session cannot be woken then"
        );
        command
            .mut_arg("extension", |arg| arg.help(extension))
            .mut_arg("settings", |arg| arg.help(settings))
            .about(format!("{}: {}", kind.title, kind.installation.what))
            .mut_arg("project", |arg| arg.help(project))
    }

    fn options(kind: &Kind) -> Vec<(&'static str, bool)> {
        let installation = &kind.installation;
        let has_distribution =
            installation.extension.as_ref().is_some_and(|extension| extension.distribution.is_some());
        vec![
            ("project", !installation.settings.project.is_empty()),
            ("extension", has_distribution),
            ("settings", installation.extension.is_some()),
            ("tools", installation.extension.is_some()),
            ("statusline", installation.status_line.is_some()),
            ("no_statusline", installation.status_line.is_some()),
        ]
    }
}

impl ForHarness for RemoveArgs {
    fn fit(command: Command, kind: &Kind) -> Command {
        command.about(kind.title)
    }

    fn options(kind: &Kind) -> Vec<(&'static str, bool)> {
        vec![("project", !kind.installation.settings.project.is_empty())]
    }
}

/// Installs aside in the client.
pub(super) fn install(kind: &'static Kind, args: &Args) -> Result<Outcome, InstallError> {
    let places = Places::find(kind, args.project.as_deref().unwrap_or(Path::new(".")))?;
    let mut outcome = Outcome { is_dry_run: args.dry_run, ..Outcome::default() };
    let program = match args.extension {
        Some(_) => client_program::own_name(),
        None => client_program::own_path(),
    };
    // An extension for others is used where this program may be alone.
    let hook_program = if args.extension.is_none() { hook::small_program(Path::new(&program)) } else { None };
    let hook_program = hook_program.map(|path| path.to_string_lossy().into_owned());
    let choice = Choice { kind, program, hook_program, autostart: args.autostart, tools: args.tools };
    if !is_program(&choice.program) {
        return Err(InstallError::OtherName { program: choice.program });
    }
    if let Some(folder) = &args.extension {
        distribution_folder(&mut outcome, folder, &places, &choice)?;
        return Ok(outcome);
    }
    let (client, oldest, name) = (client_program::version(kind), kind.installation.since, kind.program.name);
    refuse_twice(&places, if args.project.is_some() { Target::Project } else { Target::User })?;
    match client {
        Some(version) if version < oldest => {
            return Err(InstallError::TooOld { client: name, version, oldest, update: kind.program.update });
        }
        Some(_) => {}
        None => outcome.note(&format!(
            "no `{name}` on the PATH reports its version; the installation takes effect once there is one"
        )),
    }
    let status_line = args.status_line();
    if args.project.is_some() {
        if !places.project.is_dir() {
            return Err(InstallError::NoProject { path: places.project });
        }
        project(&mut outcome, &places, &choice, status_line)?;
        note_without_follower(&mut outcome, kind);
    } else {
        let extension = places.extension();
        let since = extension.as_ref().map(|(_, extension)| extension.since);
        let is_too_old = client.zip(since).is_some_and(|(version, since)| version < since);
        match extension {
            Some((folder, extension)) if !args.settings && !is_too_old => {
                user_extension(&mut outcome, &places, &folder, extension, &choice, status_line)?;
            }
            extension => {
                if let Some((_, Extension { word, since, .. })) = extension.filter(|_| is_too_old) {
                    outcome.note(&format!("the client loads {word}s from {since} on; until then the hooks are in its settings, and an idle session cannot be woken"));
                }
                user_settings(&mut outcome, &places, &choice, status_line)?;
                note_without_follower(&mut outcome, kind);
            }
        }
    }
    let up = format!("starts the daemon; new sessions of `{name}` are notified");
    outcome.next(&[
        if args.autostart {
            (name, "the next session starts the daemon and is notified")
        } else {
            ("aside up", &*up)
        },
        ("aside doctor", "checks all of it"),
    ]);
    Ok(outcome)
}

/// Notes when a client that has an extension's follower otherwise is not woken without it.
fn note_without_follower(outcome: &mut Outcome, kind: &Kind) {
    if let (Some(_), Some(sockets)) = (&kind.installation.extension, &kind.message_sockets) {
        outcome.note(sockets.note);
    }
}

/// Removes aside from the client.
pub(super) fn uninstall(kind: &'static Kind, args: &RemoveArgs) -> Result<Outcome, InstallError> {
    let places = Places::find(kind, args.project.as_deref().unwrap_or(Path::new(".")))?;
    let mut outcome = Outcome { is_dry_run: args.dry_run, ..Outcome::default() };
    if args.project.is_some() {
        for path in places.project_settings() {
            clean(&mut outcome, kind, &path)?;
        }
    } else {
        remove_extension(&mut outcome, &places)?;
        let user = places.user_settings();
        clean(&mut outcome, kind, &user)?;
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

/// Refuses to write to `place` if it has more than empty folders, unless `manifest`, in it or equal
/// to it, identifies it as aside's.
fn refuse_foreign(place: &Path, manifest: &Path) -> Result<(), InstallError> {
    if holds_file(place) && !read(manifest)?.as_deref().is_some_and(is_manifest) {
        return Err(InstallError::Foreign { path: place.to_owned() });
    }
    Ok(())
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
    refuse_foreign(folder, &folder.join(extension.manifest))?;
    for (name, text) in choice.extension_files(extension) {
        outcome.plan.write(folder.join(name), text)?;
    }
    let settings = places.user_settings();
    if !hooks_in(&settings)?.is_empty() {
        outcome.note(&format!(
            "the {} in {} replaces the hooks in {}",
            extension.word,
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
            extension.word,
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
    refuse_foreign(&target, &target.join(extension.manifest))?;
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

/// Removes the extension from the user's folder, file by file: other files there stay.
fn remove_extension(outcome: &mut Outcome, places: &Places) -> Result<(), InstallError> {
    let Some((folder, extension)) = places.extension() else { return Ok(()) };
    if !read(&folder.join(extension.manifest))?.as_deref().is_some_and(is_manifest) {
        return Ok(());
    }
    for (name, _) in extension.files {
        let path = folder.join(name);
        let folders = path.parent().zip(folder.parent());
        outcome.emptied.extend(folders.map(|(parent, top)| (parent.to_owned(), top.to_owned())));
        outcome.plan.remove(path)?;
    }
    Ok(())
}

impl Outcome {
    /// Applies the plan and deletes the folders that it emptied.
    pub(super) fn carry_out(&self) -> Result<(), InstallError> {
        self.plan.apply()?;
        for (folder, top) in &self.emptied {
            remove_empty(folder, top);
        }
        Ok(())
    }
}

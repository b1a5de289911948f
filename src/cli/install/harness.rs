//! Installs in a harness of the table: as a plugin in the user's folder, hooks in a settings file,
//! or a plugin folder for distribution.
//!
//! The harness's row defines the files and hooks. A client runs hooks of a plugin and of a settings
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
    harness::{installation::Plugin, kind::Kind},
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// For all projects of this user; this is the default
    #[arg(long, conflicts_with_all = ["project", "plugin"])]
    user: bool,
    /// For one project and this user
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", conflicts_with = "plugin")]
    project: Option<PathBuf>,
    /// Write the plugin into DIR as a separate marketplace, and explain how to add it to the client
    #[arg(long, value_name = "DIR", conflicts_with_all = ["statusline", "no_statusline", "settings"])]
    plugin: Option<PathBuf>,
    /// Install the hooks in the user's settings instead of a plugin; an idle session cannot be
    /// woken then
    #[arg(long, conflicts_with_all = ["project", "plugin"])]
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
        let settings = &kind.installation.settings;
        let place = ["DIR", kind.files.folder, settings.project.first().unwrap_or(&"")].join("/");
        let project =
            format!("For one project and this user: hooks in {place} [default DIR: the current folder]");
        command
            .about(format!("{}: {}", kind.title, kind.installation.what))
            .mut_arg("project", |arg| arg.help(project))
    }

    fn options(kind: &Kind) -> Vec<(&'static str, bool)> {
        let installation = &kind.installation;
        let has_marketplace = installation.plugin.as_ref().is_some_and(|plugin| plugin.marketplace.is_some());
        vec![
            ("project", !installation.settings.project.is_empty()),
            ("plugin", has_marketplace),
            ("settings", installation.plugin.is_some()),
            ("tools", installation.plugin.is_some()),
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
    let program = match args.plugin {
        Some(_) => client_program::own_name(),
        None => client_program::own_path(),
    };
    // A plugin for others is used where this program may be alone.
    let hook_program = if args.plugin.is_none() { hook::small_program(Path::new(&program)) } else { None };
    let hook_program = hook_program.map(|path| path.to_string_lossy().into_owned());
    let choice = Choice { kind, program, hook_program, autostart: args.autostart, tools: args.tools };
    if !is_program(&choice.program) {
        return Err(InstallError::OtherName { program: choice.program });
    }
    if let Some(folder) = &args.plugin {
        plugin_folder(&mut outcome, folder, &places, &choice)?;
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
        note_without_monitor(&mut outcome, kind);
    } else {
        let plugin = places.plugin();
        let since = plugin.as_ref().map(|(_, plugin)| plugin.since);
        let is_too_old = client.zip(since).is_some_and(|(version, since)| version < since);
        match plugin {
            Some((folder, plugin)) if !args.settings && !is_too_old => {
                user_plugin(&mut outcome, &places, &folder, plugin, &choice, status_line)?;
            }
            plugin => {
                if let Some((_, Plugin { since, .. })) = plugin.filter(|_| is_too_old) {
                    outcome.note(&format!("the client loads plugins from {since} on; until then the hooks are in its settings, and an idle session cannot be woken"));
                }
                user_settings(&mut outcome, &places, &choice, status_line)?;
                note_without_monitor(&mut outcome, kind);
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

/// Notes when a client that has a plugin's monitor otherwise is not woken without it.
fn note_without_monitor(outcome: &mut Outcome, kind: &Kind) {
    if let (Some(_), Some(sockets)) = (&kind.installation.plugin, &kind.message_sockets) {
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
        remove_plugin(&mut outcome, &places)?;
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

/// Installs a plugin in the user's folder, and removes ours from the settings.
fn user_plugin(
    outcome: &mut Outcome,
    places: &Places,
    folder: &Path,
    plugin: &Plugin,
    choice: &Choice,
    status_line: StatusLineChoice,
) -> Result<(), InstallError> {
    refuse_foreign(folder, &folder.join(plugin.manifest))?;
    for (name, text) in choice.plugin_files(plugin) {
        outcome.plan.write(folder.join(name), text)?;
    }
    let settings = places.user_settings();
    if !hooks_in(&settings)?.is_empty() {
        outcome.note(&format!(
            "the plugin in {} replaces the hooks in {}",
            folder.display(),
            settings.display()
        ));
    }
    put_only_status_line(outcome, &settings, choice, status_line)
}

/// Adds hooks to the user's settings, and removes the plugin.
fn user_settings(
    outcome: &mut Outcome,
    places: &Places,
    choice: &Choice,
    status_line: StatusLineChoice,
) -> Result<(), InstallError> {
    let settings = places.user_settings();
    remove_plugin(outcome, places)?;
    if let (false, Some((folder, _))) = (outcome.plan.is_empty(), places.plugin()) {
        outcome.note(&format!(
            "the hooks in {} replace the plugin in {}",
            settings.display(),
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

fn plugin_folder(
    outcome: &mut Outcome,
    folder: &Path,
    places: &Places,
    choice: &Choice,
) -> Result<(), InstallError> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let Some((own, plugin)) = places.plugin() else { return Ok(()) };
    let Some(market) = &plugin.marketplace else { return Ok(()) };
    let (list, target) = (folder.join(market.list), folder.join(PROGRAM));
    refuse_foreign(&list, &list)?;
    refuse_foreign(&target, &target.join(plugin.manifest))?;
    for (name, text) in choice.marketplace_files(plugin, market) {
        outcome.plan.write(folder.join(name), text)?;
    }
    if own.exists() || !hooks_in(&places.user_settings())?.is_empty() {
        outcome.note(&format!(
            "aside is installed for this user already, and with both every hook would run twice: {}",
            places.removal(Target::User)
        ));
    }
    let steps = (market.next)(&quoted(&folder.display().to_string()));
    outcome.next(&steps.iter().map(|(step, what)| (&**step, *what)).collect::<Vec<_>>());
    Ok(())
}

/// Refuses a second installation that would run as well: of another scope, or managed by the
/// client. One of the same scope in another form is replaced, with a message.
fn refuse_twice(places: &Places, target: Target) -> Result<(), InstallError> {
    for path in places.all_settings() {
        if let Some((plugin, remedy)) = places.enabled_plugin(&path)? {
            let what = format!("the plugin {plugin}, which {} enables,", path.display());
            return Err(InstallError::Twice { what, remedy });
        }
    }
    let user = places.user_settings();
    if target == Target::Project && (places.has_plugin() || !hooks_in(&user)?.is_empty()) {
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

/// Removes the plugin from the user's folder, file by file: other files there stay.
fn remove_plugin(outcome: &mut Outcome, places: &Places) -> Result<(), InstallError> {
    let Some((folder, plugin)) = places.plugin() else { return Ok(()) };
    if !read(&folder.join(plugin.manifest))?.as_deref().is_some_and(is_manifest) {
        return Ok(());
    }
    for (name, _) in plugin.files {
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

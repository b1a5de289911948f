//! Claude Code: a plugin in the user's folder, hooks in a settings file, or a plugin's folder to be given to others.
//!
//! The client loads a folder in its `skills` folder that has a plugin's manifest as a plugin, from its next session on and without a
//! question (tried with 2.1.160 to 2.1.330); only a plugin can have a monitor, which is what wakes an idle session. Its
//! hooks are not those of a settings file, so the client would run both: whoever installs in one place takes ours out of the other.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use super::{
    InstallError, Outcome,
    plan::{Plan, backup_path, holds_file, read, remove_empty},
    plugin::{self, Choice},
    settings::{Settings, is_program},
    status_line::{self, Wish},
};
use crate::cli::client_program::{self, Version};

/// Oldest client that loads a plugin from the folder of skills.
pub(crate) const PLUGIN_SINCE: Version = Version([2, 1, 160]);
/// Oldest client that takes a hook's arguments apart from its command.
const ARGS_SINCE: Version = Version([2, 1, 140]);

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// For all projects of this user; this is the default
    #[arg(long, conflicts_with_all = ["project", "plugin"])]
    user: bool,
    /// For one project and this user: hooks in DIR/.claude/settings.local.json [default DIR: the current folder]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", conflicts_with = "plugin")]
    project: Option<PathBuf>,
    /// Write the plugin into DIR as a marketplace of its own, and say how the client adds it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["statusline", "no_statusline", "settings"])]
    plugin: Option<PathBuf>,
    /// Put the hooks into the user's settings.json instead of a plugin; nothing wakes an idle session then
    #[arg(long, conflicts_with_all = ["project", "plugin"])]
    settings: bool,
    /// Let the first hook of a session start the daemon if none runs
    #[arg(long)]
    autostart: bool,
    /// Show what waits in the client's status line also if you have one of your own, which goes on inside it
    #[arg(long, conflicts_with = "no_statusline")]
    statusline: bool,
    /// Leave the client's status line alone, and take ours out of it
    #[arg(long)]
    no_statusline: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RemoveArgs {
    /// Take it out of one project's settings instead [default DIR: the current folder]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    project: Option<PathBuf>,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    fn status_line(&self) -> Wish {
        match (self.statusline, self.no_statusline) {
            (true, _) => Wish::Always,
            (false, true) => Wish::Never,
            (false, false) => Wish::UnlessThereIsOne,
        }
    }
}

/// Where Claude Code keeps what concerns an installation.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Its folder in the user's home.
    pub(crate) home: PathBuf,
    /// The folder of the project at hand.
    pub(crate) project: PathBuf,
}

impl Places {
    /// The client's folder is `$CLAUDE_CONFIG_DIR`, else `.claude` in the home folder.
    pub(crate) fn find(project: &Path) -> Result<Self, InstallError> {
        let given = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = given("CLAUDE_CONFIG_DIR")
            .or_else(|| Some(given("HOME")?.join(".claude")))
            .ok_or(InstallError::NoHome)?;
        let project = std::path::absolute(project).unwrap_or_else(|_| project.to_owned());
        Ok(Self { home, project })
    }

    pub(crate) fn user_settings(&self) -> PathBuf {
        self.home.join("settings.json")
    }

    /// The project's own settings, the user's in it first.
    pub(crate) fn project_settings(&self) -> [PathBuf; 2] {
        ["settings.local.json", "settings.json"].map(|name| self.project.join(".claude").join(name))
    }

    pub(crate) fn plugin(&self) -> PathBuf {
        self.home.join("skills").join(plugin::NAME)
    }

    /// Every settings file that the client reads for this project.
    pub(crate) fn all_settings(&self) -> Vec<PathBuf> {
        let mut all = vec![self.user_settings()];
        // In the home folder both are the same file.
        all.extend(self.project_settings().into_iter().filter(|path| *path != self.user_settings()));
        all
    }
}

/// Puts aside into the client.
pub(super) fn install(args: &Args) -> Result<Outcome, InstallError> {
    let places = Places::find(args.project.as_deref().unwrap_or(Path::new(".")))?;
    let mut outcome = Outcome::new(args.dry_run);
    let choice =
        Choice { program: client_program::own_program(args.plugin.is_some()), autostart: args.autostart };
    if !is_program(&choice.program) {
        return Err(InstallError::OtherName { program: choice.program });
    }
    if let Some(folder) = &args.plugin {
        plugin_folder(&mut outcome, folder, &choice)?;
        return Ok(outcome);
    }
    let client = client_program::version();
    refuse_twice(&places, args.project.is_some())?;
    match client {
        Some(version) if version < ARGS_SINCE => {
            return Err(InstallError::TooOld { version, oldest: ARGS_SINCE });
        }
        Some(_) => {}
        None => outcome
            .note("there is no `claude` on the PATH that tells its version; what is installed waits for one"),
    }
    let is_too_old = client.is_some_and(|version| version < PLUGIN_SINCE);
    if args.project.is_some() {
        if !places.project.is_dir() {
            return Err(InstallError::NoProject { path: places.project });
        }
        project(&mut outcome, &places, &choice, args.status_line())?;
    } else if args.settings || is_too_old {
        if is_too_old {
            outcome.note(&format!("the client loads plugins of its own from {PLUGIN_SINCE} on; until then the hooks are in its settings, and nothing wakes an idle session"));
        }
        remove_plugin(&mut outcome, &places)?;
        if !outcome.plan.is_empty() {
            let plugin = places.plugin();
            outcome.note(&format!(
                "the hooks in {} take the place of the plugin in {}",
                places.user_settings().display(),
                plugin.display()
            ));
        }
        put_hooks(&mut outcome, &places.user_settings(), &choice, args.status_line(), &[])?;
    } else {
        user_plugin(&mut outcome, &places, &choice, args.status_line())?;
    }
    outcome.next(&[
        if args.autostart {
            ("claude", "the next session starts the daemon, and is told from then on")
        } else {
            ("aside up", "starts the daemon; sessions of `claude` that start from now on are told")
        },
        ("aside doctor", "checks all of it"),
    ]);
    Ok(outcome)
}

/// Takes aside out of the client again.
pub(super) fn uninstall(args: &RemoveArgs) -> Result<Outcome, InstallError> {
    let places = Places::find(args.project.as_deref().unwrap_or(Path::new(".")))?;
    let mut outcome = Outcome::new(args.dry_run);
    if args.project.is_some() {
        for path in places.project_settings() {
            clean(&mut outcome, &path)?;
        }
    } else {
        remove_plugin(&mut outcome, &places)?;
        clean(&mut outcome, &places.user_settings())?;
        for path in places.project_settings().iter().filter(|path| **path != places.user_settings()) {
            // One that cannot be read is the project's trouble, and keeps nothing of this user's in place.
            if hooks_in(path).is_ok_and(|found| !found.is_empty()) {
                outcome.note(&format!(
                    "{} has hooks of aside too: aside uninstall claude-code --project",
                    path.display()
                ));
            }
        }
    }
    Ok(outcome)
}

/// Refuses to write into what stands at `place`, if that is more than empty folders, unless `manifest`, which is in it or it itself, says that it is aside's.
fn refuse_foreign(place: &Path, manifest: &Path) -> Result<(), InstallError> {
    if holds_file(place) && !read(manifest)?.as_deref().is_some_and(plugin::is_manifest) {
        return Err(InstallError::Foreign { path: place.to_owned() });
    }
    Ok(())
}

/// A plugin in the user's own folder, and none of ours in the settings.
fn user_plugin(
    outcome: &mut Outcome,
    places: &Places,
    choice: &Choice,
    wish: Wish,
) -> Result<(), InstallError> {
    let folder = places.plugin();
    refuse_foreign(&folder, &folder.join(plugin::MANIFEST_FILE))?;
    for (name, text) in choice.files() {
        outcome.plan.write(folder.join(name), text)?;
    }
    if !hooks_in(&places.user_settings())?.is_empty() {
        outcome.note(&format!(
            "the plugin in {} takes the place of the hooks in {}",
            folder.display(),
            places.user_settings().display()
        ));
    }
    let settings = places.user_settings();
    if wish == Wish::Never {
        return clean(outcome, &settings);
    }
    let has_status_line = status_line::is_put(outcome, &settings, wish, &[])?;
    edit(&mut outcome.plan, &settings, read(&settings)?, |settings| {
        settings.remove_hooks()?;
        if has_status_line { status_line::put(settings, &choice.program) } else { Ok(()) }
    })
}

/// Hooks in the settings file at `path`, and the status line as the user wants it; that of `others` holds there too.
fn put_hooks(
    outcome: &mut Outcome,
    path: &Path,
    choice: &Choice,
    wish: Wish,
    others: &[PathBuf],
) -> Result<(), InstallError> {
    let has_status_line = status_line::is_put(outcome, path, wish, others)?;
    let base = if wish == Wish::Never { less_ours(path)? } else { read(path)? };
    edit(&mut outcome.plan, path, base, |settings| {
        settings.put_hooks(&choice.hooks())?;
        if has_status_line { status_line::put(settings, &choice.program) } else { Ok(()) }
    })
}

/// A settings file's text as it was, or would be, without ours; `None` if there is no such file then.
fn less_ours(path: &Path) -> Result<Option<String>, InstallError> {
    let Some(present) = read(path)? else { return Ok(None) };
    let original = read(&backup_path(path))?;
    let failed = |why| InstallError::Settings { path: path.to_owned(), why };
    let text = cleaned(&present, original.as_deref()).map_err(failed)?;
    Ok(Some(text).filter(|text| !text.is_empty() || original.is_some()))
}

/// Hooks in the file that has ours already, else in the one that belongs to this user alone: a colleague without aside would see an
/// error at every step.
fn project(outcome: &mut Outcome, places: &Places, choice: &Choice, wish: Wish) -> Result<(), InstallError> {
    let [local, shared] = places.project_settings();
    let path = if hooks_in(&local)?.is_empty() && !hooks_in(&shared)?.is_empty() { shared } else { local };
    // The one that the client would show there without ours, wherever it is set.
    put_hooks(outcome, &path, choice, wish, &places.all_settings())
}

fn plugin_folder(outcome: &mut Outcome, folder: &Path, choice: &Choice) -> Result<(), InstallError> {
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let (list, own) = (folder.join(plugin::MARKETPLACE_FILE), folder.join(plugin::NAME));
    refuse_foreign(&list, &list)?;
    refuse_foreign(&own, &own.join(plugin::MANIFEST_FILE))?;
    for (name, text) in choice.marketplace_files() {
        outcome.plan.write(folder.join(name), text)?;
    }
    let places = Places::find(Path::new("."))?;
    if places.plugin().exists() || !hooks_in(&places.user_settings())?.is_empty() {
        outcome.note("aside is installed for this user already, and with both every hook would run twice: aside uninstall claude-code");
    }
    let shown = status_line::quoted(&folder.display().to_string());
    outcome.next(&[
        (&format!("claude plugin marketplace add {shown}"), "makes the folder known to the client"),
        ("claude plugin install aside@aside", "installs the plugin from it"),
        (&format!("claude --plugin-dir {shown}/aside"), "or: loads it for one session"),
    ]);
    Ok(())
}

/// Refuses to install what would run beside another installation of aside: that of another scope, or one that the client manages.
/// One for the same scope in another form gives way to the new one, which says so.
fn refuse_twice(places: &Places, is_project: bool) -> Result<(), InstallError> {
    for path in places.all_settings() {
        if let Some(plugin) = enabled_plugin(&path)? {
            return Err(InstallError::Twice {
                what: format!("the plugin {plugin}, which {} enables,", path.display()),
                remedy: format!("claude plugin uninstall {plugin}"),
            });
        }
    }
    let user = [places.plugin().join(plugin::MANIFEST_FILE), places.user_settings()];
    let mut project = places.project_settings().into_iter().filter(|path| *path != places.user_settings());
    if is_project && (user[0].exists() || !hooks_in(&user[1])?.is_empty()) {
        let what = "the installation for all projects of this user".to_owned();
        return Err(InstallError::Twice { what, remedy: "aside uninstall claude-code".to_owned() });
    }
    if !is_project
        && let Some(path) = project.find(|path| hooks_in(path).is_ok_and(|found| !found.is_empty()))
    {
        let what = format!("the installation in {}", path.display());
        return Err(InstallError::Twice { what, remedy: "aside uninstall claude-code --project".to_owned() });
    }
    Ok(())
}

/// Our hooks in a settings file, which may not be there.
pub(crate) fn hooks_in(path: &Path) -> Result<Vec<super::settings::OurHook>, InstallError> {
    Ok(settings_at(path)?.map(|settings| settings.our_hooks()).unwrap_or_default())
}

/// The plugin of ours that a settings file enables, by the client's name for it.
pub(crate) fn enabled_plugin(path: &Path) -> Result<Option<String>, InstallError> {
    let Some(settings) = settings_at(path)? else { return Ok(None) };
    let value = settings.value();
    let plugins = value.get("enabledPlugins").and_then(serde_json::Value::as_object);
    let is_ours = |name: &str| name.split('@').next() == Some(plugin::NAME);
    let found =
        plugins.into_iter().flatten().find(|(name, is_on)| is_ours(name) && is_on.as_bool() == Some(true));
    Ok(found.map(|(name, _)| name.clone()))
}

/// A settings file as a tree; `None` if there is none.
pub(crate) fn settings_at(path: &Path) -> Result<Option<Settings>, InstallError> {
    read(path)?.map(|text| parse(path, &text)).transpose()
}

fn parse(path: &Path, text: &str) -> Result<Settings, InstallError> {
    Settings::parse(text).map_err(|why| InstallError::Settings { path: path.to_owned(), why })
}

/// Has a settings file hold `base` with this change; one that is not there is made if there is something to put into it, and goes if
/// nothing is left in it.
fn edit(
    plan: &mut Plan,
    path: &Path,
    base: Option<String>,
    change: impl FnOnce(&Settings) -> Result<(), super::settings::SettingsError>,
) -> Result<(), InstallError> {
    let had_ours = settings_at(path)?.is_some_and(|settings| has_ours(&settings));
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
fn clean(outcome: &mut Outcome, path: &Path) -> Result<(), InstallError> {
    let Some(before) = read(path)? else { return Ok(()) };
    let copy = backup_path(path);
    let original = read(&copy)?;
    let failed = |why| InstallError::Settings { path: path.to_owned(), why };
    let after = cleaned(&before, original.as_deref()).map_err(failed)?;
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
fn cleaned(text: &str, original: Option<&str>) -> Result<String, super::settings::SettingsError> {
    let settings = Settings::parse(text)?;
    if !has_ours(&settings) {
        return Ok(text.to_owned());
    }
    // A copy that cannot be read is no reason to leave ours in.
    let original_settings = original.and_then(|original| Settings::parse(original).ok());
    let strip = |settings: &Settings| {
        settings.remove_hooks()?;
        status_line::remove(settings, original_settings.as_ref());
        Ok(settings.text())
    };
    let (has_hooks, has_status_line) = (!settings.our_hooks().is_empty(), status_line::is_ours(&settings));
    let stripped = strip(&settings)?;
    if let Some(original) = original
        && let Ok(again) = Settings::parse(original)
        && !has_ours(&again)
    {
        let choice = Choice { program: plugin::NAME.to_owned(), autostart: false };
        if has_hooks {
            again.put_hooks(&choice.hooks())?;
        }
        if has_status_line {
            status_line::put(&again, &choice.program)?;
        }
        if strip(&again)? == stripped || stripped == original {
            return Ok(original.to_owned());
        }
    }
    Ok(if settings.is_empty() { String::new() } else { stripped })
}

fn has_ours(settings: &Settings) -> bool {
    !settings.our_hooks().is_empty() || status_line::is_ours(settings)
}

/// Takes the plugin out of the user's folder, file by file: what somebody put beside them stays.
fn remove_plugin(outcome: &mut Outcome, places: &Places) -> Result<(), InstallError> {
    let folder = places.plugin();
    let manifest = read(&folder.join(plugin::MANIFEST_FILE))?;
    if !manifest.as_deref().is_some_and(plugin::is_manifest) {
        return Ok(());
    }
    let choice = Choice { program: plugin::NAME.to_owned(), autostart: false };
    for (name, _) in choice.files() {
        let path = folder.join(name);
        let top = places.home.join("skills");
        outcome.emptied.extend(path.parent().map(|parent| (parent.to_owned(), top)));
        outcome.plan.remove(path)?;
    }
    Ok(())
}

impl Outcome {
    /// Carries the plan out and takes away the folders that it emptied.
    pub(super) fn carry_out(&self) -> Result<(), InstallError> {
        self.plan.apply()?;
        for (folder, top) in &self.emptied {
            remove_empty(folder, top);
        }
        Ok(())
    }
}

/// Whether two paths lead to the same file.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(fs::canonicalize(one)? == fs::canonicalize(other)?)
}

//! The options of an installation in a harness; each form has only its own ones.

use std::path::PathBuf;

use clap::Command;

use super::edit::StatusLineChoice;
use crate::{
    cli::harness::ForHarness,
    harness::kind::{Form, Hooks, Kind},
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// For all projects of this user; this is the default
    #[arg(long, conflicts_with_all = ["project", "extension"])]
    user: bool,
    /// For one project and this user
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".", conflicts_with = "extension")]
    pub(super) project: Option<PathBuf>,
    /// Write the extension into DIR as a separate distribution, and explain how to add it to the client
    #[arg(long, value_name = "DIR", conflicts_with_all = ["statusline", "no_statusline", "settings"])]
    pub(super) extension: Option<PathBuf>,
    /// Install the hooks in the user's settings instead of an extension; an idle session cannot be
    /// woken then
    #[arg(long, conflicts_with_all = ["project", "extension"])]
    pub(super) settings: bool,
    /// Let the first hook of a session start the daemon if none runs
    #[arg(long)]
    pub(super) autostart: bool,
    /// Also give the agent tools, by MCP: watch, inbox, notify, publish; a session then costs some
    /// 120 tokens more
    #[arg(long, conflicts_with_all = ["project", "settings"])]
    pub(super) tools: bool,
    /// Show pending notifications in the client's status line even if you have your own, which is
    /// wrapped
    #[arg(long, conflicts_with = "no_statusline")]
    statusline: bool,
    /// Do not use the client's status line, and remove ours from it
    #[arg(long)]
    no_statusline: bool,
    /// Show the changes without making them
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RemoveArgs {
    /// Remove it from one project's settings instead [default DIR: the current folder]
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    pub(super) project: Option<PathBuf>,
    /// Show the changes without making them
    #[arg(long)]
    pub(super) dry_run: bool,
}

impl Args {
    pub(super) const fn status_line(&self) -> StatusLineChoice {
        match (self.statusline, self.no_statusline) {
            (true, _) => StatusLineChoice::Always,
            (false, true) => StatusLineChoice::Never,
            (false, false) => StatusLineChoice::UnlessThereIsOne,
        }
    }
}

impl ForHarness for Args {
    fn fit(command: Command, kind: &Kind) -> Command {
        match kind.form {
            Form::Hooks(hooks) => fit_hooks(command, kind.title, hooks),
            Form::Extension(own) => command.about(format!("{}: {}", kind.title, own.what)),
            Form::Proxy => command.about(format!("{}: nothing to install", kind.title)),
        }
    }

    fn options(kind: &Kind) -> Vec<(&'static str, bool)> {
        let installation = kind.hooks().map(|hooks| &hooks.installation);
        let extension = installation.and_then(|installation| installation.extension.as_ref());
        let has_status_line = installation.is_some_and(|installation| installation.status_line.is_some());
        vec![
            ("project", has_project(kind)),
            ("extension", extension.is_some_and(|extension| extension.distribution.is_some())),
            ("settings", extension.is_some()),
            ("autostart", installation.is_some()),
            ("tools", extension.is_some()),
            ("statusline", has_status_line),
            ("no_statusline", has_status_line),
        ]
    }
}

fn fit_hooks(command: Command, title: &str, hooks: &Hooks) -> Command {
    let installation = &hooks.installation;
    let file = installation.settings.project.first().unwrap_or(&"");
    let place = ["DIR", hooks.client.files.folder, file].join("/");
    let project =
        format!("For one project and this user: hooks in {place} [default DIR: the current folder]");
    let command =
        command.about(format!("{title}: {}", installation.what)).mut_arg("project", |arg| arg.help(project));
    let Some(extension) = &installation.extension else { return command };
    let word = extension.folder.word;
    let settings = format!(
        "Install the hooks in the user's settings instead of the {word}; an idle session cannot be woken then"
    );
    let command = command.mut_arg("settings", |arg| arg.help(settings));
    let Some(distribution) = &extension.distribution else { return command };
    let distribution = distribution.word;
    let others = format!(
        "Write the {word} into DIR as a separate {distribution}, and explain how to add it to the client"
    );
    command.mut_arg("extension", |arg| arg.help(others))
}

/// Whether the harness can be installed for one project.
fn has_project(kind: &Kind) -> bool {
    kind.hooks().is_some_and(|hooks| !hooks.installation.settings.project.is_empty())
}

impl ForHarness for RemoveArgs {
    fn fit(command: Command, kind: &Kind) -> Command {
        command.about(kind.title)
    }

    fn options(kind: &Kind) -> Vec<(&'static str, bool)> {
        vec![("project", has_project(kind))]
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;
    use crate::harness::trial;

    fn help(kind: &Kind) -> String {
        Args::fit(Args::augment_args(Command::new("install")), kind).render_help().to_string()
    }

    #[test]
    fn a_form_has_only_its_own_options() {
        for (kind, about) in [
            (&trial::EXTENSION, "Trial Client: an add-on that notifies its agent"),
            (&trial::PROXY, "Trial Proxy: nothing to install"),
        ] {
            assert!(help(kind).starts_with(about), "{}", help(kind));
            assert!(Args::options(kind).into_iter().all(|(_, is_there)| !is_there));
            assert!(RemoveArgs::options(kind).into_iter().all(|(_, is_there)| !is_there));
        }
    }
}

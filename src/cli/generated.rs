//! Completions, manual pages and the startup code of shells, which reports the commands of the user
//! with `aside shell-report`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use serde_json::json;

use super::{CliError, Context, install::quoted, workspace_or_current};

#[derive(Debug, clap::Args)]
pub(super) struct CompletionsArgs {
    /// The shell: bash, elvish, fish, powershell or zsh
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(super) struct ManArgs {
    /// Write a page for each command into this folder [default: the first page, to stdout]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Prints the completion script for a shell.
pub(super) fn completions(
    args: &CompletionsArgs,
    command: &mut Command,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, command, "aside", &mut text);
    context.out.write_all(&text).and_then(|()| context.out.flush()).map_err(CliError::Output)
}

/// Prints or writes the manual pages.
pub(super) fn man(args: &ManArgs, mut command: Command, context: &mut Context<'_>) -> Result<(), CliError> {
    // Names subcommands in full, as in `aside-install-systemd`.
    command.build();
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(CliError::Output)?;
        return context.out.write_all(&page).and_then(|()| context.out.flush()).map_err(CliError::Output);
    };
    let failed = |source| CliError::Write { name: folder.display().to_string(), source };
    fs::create_dir_all(folder).map_err(failed)?;
    let written = write_pages(&command, folder).map_err(failed)?;
    context.say(&format!(
        "wrote {written} pages to {}; try: man {}\n",
        folder.display(),
        quoted(&folder.join("aside.1").display().to_string())
    ))
}

fn write_pages(command: &Command, folder: &Path) -> io::Result<usize> {
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    fs::write(folder.join(man.get_filename()), page)?;
    let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    below.map(|below| write_pages(below, folder)).sum::<io::Result<usize>>().map(|count| count + 1)
}

const REPORT: &str = "report a command";
/// Placeholder of this program in the scripts.
const PROGRAM: &str = "@PROGRAM@";

/// A shell that can report its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportingShell {
    Bash,
    Zsh,
    Fish,
}

impl ReportingShell {
    const fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("../../share/shell/aside.bash"),
            Self::Zsh => include_str!("../../share/shell/aside.zsh"),
            Self::Fish => include_str!("../../share/shell/aside.fish"),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct ShellInitArgs {
    /// The shell
    shell: ReportingShell,
}

#[derive(Debug, clap::Args)]
pub(super) struct ShellReportArgs {
    /// The shell's `$?`
    #[arg(long, allow_negative_numbers = true)]
    exit_code: i32,
    /// How long it ran, in milliseconds
    #[arg(long)]
    duration_ms: u64,
    /// The folder that the shell is in [default: the current one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// The line as it was typed
    #[arg(last = true, required = true)]
    command: String,
}

/// Prints the startup code.
pub(super) fn shell_init(args: &ShellInitArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let failed = |source| CliError::System { doing: "find the path of this program", source };
    let program = std::env::current_exe().map_err(failed)?;
    context.print(&args.shell.script().replace(PROGRAM, &quoted(&program.to_string_lossy())))
}

/// Reports a command that ended; the daemon decides whether it becomes an event.
pub(super) fn shell_report(args: &ShellReportArgs, context: &Context<'_>) -> Result<(), CliError> {
    let body = json!({
        "command": args.command,
        "exit_code": args.exit_code,
        "duration_ms": args.duration_ms,
        "workspace": workspace_or_current(args.workspace.as_deref()),
    });
    context.ask(REPORT, "POST", "/v1/shell", Some(&body)).map(drop)
}

//! `aside shell-init`: prints a shell's startup code, which reports the user's commands with `aside
//! shell-report`.

use clap::ValueEnum;
use serde_json::json;

use super::{CliError, Context, install::quoted, workspace_or_current};

const DOING: &str = "report a command";
/// Placeholder of this program in the scripts.
const PROGRAM: &str = "@PROGRAM@";

/// A shell that can report its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    const fn script(self) -> &'static str {
        match self {
            Self::Bash => include_str!("../../share/shell/aside.bash"),
            Self::Zsh => include_str!("../../share/shell/aside.zsh"),
            Self::Fish => include_str!("../../share/shell/aside.fish"),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// The shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(super) struct ReportArgs {
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
pub(super) fn init(args: &InitArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let failed = |source| CliError::System { doing: "find the path of this program", source };
    let program = std::env::current_exe().map_err(failed)?;
    context.print(&args.shell.script().replace(PROGRAM, &quoted(&program.to_string_lossy())))
}

/// Reports a command that ended; the daemon decides whether it becomes an event.
pub(super) fn report(args: &ReportArgs, context: &Context<'_>) -> Result<(), CliError> {
    let body = json!({
        "command": args.command,
        "exit_code": args.exit_code,
        "duration_ms": args.duration_ms,
        "workspace": workspace_or_current(args.workspace.as_deref()),
    });
    context.ask(DOING, "POST", "/v1/shell", Some(&body)).map(drop)
}

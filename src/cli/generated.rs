//! Generates shell completions and manual pages from the command definitions.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Command;
use clap_complete::Shell;

use super::{CliError, Context, install::quoted};

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

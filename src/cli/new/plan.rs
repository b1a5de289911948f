//! Files that a command will write: how they are checked before, and the lines about them.

use std::path::Path;

use engine::{event::catalogue::OwnSeverities, words::counted};

use super::events::{Found, Reader};
use crate::{
    cli::{
        CliError, Context,
        check::{compiled_of, counts},
        configuration::Configuration,
        schema,
        terminal::{Terminal, Tone, cut_beginning, width},
    },
    config::{
        compile::Compiled,
        layers::{LayerKind, SourceFile, Sources},
        lints::report::{self, Denied},
        report::Report,
    },
};

/// The words before a file that a dry run shows.
const WOULD: &str = "would write  ";

/// A file as it will be.
pub(super) struct Planned<'a> {
    pub(super) name: &'a str,
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

/// The layers with the planned files of the user.
pub(super) fn with_planned(sources: &Sources, planned: &[Planned<'_>]) -> Sources {
    let file = |one: &Planned<'_>| SourceFile {
        layer: LayerKind::User,
        name: one.name.into(),
        path: one.path.display().to_string().into(),
        text: one.text.into(),
    };
    sources.clone().replacing(planned.iter().map(file).collect())
}

/// What the planned files compile to, and the findings about them that are no errors.
///
/// Errors: the files have errors, which are printed.
pub(super) fn checked(
    sources: &Sources,
    planned: &[Planned<'_>],
    context: &mut Context<'_>,
) -> Result<(Compiled, Report), CliError> {
    let sources = with_planned(sources, planned);
    let compiled = compiled_of(&sources);
    let report = report::report(&sources, &compiled, &Denied::default());
    let report = report.only(|file| planned.iter().any(|one| *one.path == *Path::new(file)));
    match report.error_count() {
        0 => Ok((compiled, report)),
        errors => {
            let counts = counts(errors, report.warning_count());
            context.say(&format!("{report}\n{counts}; nothing is written\n"))?;
            Err(CliError::Check { errors })
        }
    }
}

/// Reads events for files of these layers.
pub(super) fn reader<'a, 'c>(
    compiled: &'a Compiled,
    severities: &'a OwnSeverities,
    context: &'a Context<'c>,
) -> Reader<'a, 'c> {
    Reader { context, severities, own: &compiled.events }
}

/// Writes the schemas that the first lines of written files name, unless they are there; returns a line
/// about them.
pub(super) fn with_schemas(configuration: &Configuration, terminal: &Terminal) -> Result<String, CliError> {
    let path = configuration.folder.join(".schema");
    match schema::write(configuration, false)? {
        0 => Ok(String::new()),
        count => {
            Ok(about_file(terminal, "wrote", &path, &format!("{}, for editors", counted(count, "schema"))))
        }
    }
}

/// The line about the events that were read.
pub(super) fn origin(terminal: &Terminal, found: &Found) -> String {
    let lines = terminal.prose(&format!("read {}\n", found.origin));
    lines.lines().map(|line| format!("{}\n", terminal.cut_after(0, line))).collect()
}

/// A line about a file: what was done, its path, and a word about it at the right.
pub(super) fn about_file(terminal: &Terminal, done: &str, path: &Path, right: &str) -> String {
    let shown = terminal.folder(&path.display().to_string());
    line(terminal, done, &shown, right)
}

/// A line with a label; words at the right are on a line of their own if there is no room.
pub(super) fn line(terminal: &Terminal, label: &str, text: &str, right: &str) -> String {
    const LABEL: usize = 7;
    const GAP: usize = 5;
    let room = terminal.columns.map_or(usize::MAX, |columns| columns.saturating_sub(LABEL));
    let text = cut_beginning(text, room);
    let label = format!("{label:LABEL$}");
    let fits = width(&text).saturating_add(GAP + width(right)) <= room;
    let right_shown = terminal.paint(Tone::Dim, right);
    match (right.is_empty(), fits) {
        (true, _) => format!("{label}{text}\n"),
        (false, true) => format!("{label}{text}{}{right_shown}\n", " ".repeat(GAP)),
        (false, false) => format!("{label}{text}\n{}{right_shown}\n", " ".repeat(LABEL)),
    }
}

/// The last line: the next commands.
pub(super) fn next(terminal: &Terminal, first: &str, second: &str) -> String {
    line(terminal, "next:", first, &format!("then  {second}"))
}

/// A file that would be written, with its text.
pub(super) fn shown_file(terminal: &Terminal, path: &Path, text: &str) -> String {
    let shown = terminal.folder(&path.display().to_string());
    let room = terminal.columns.map_or(usize::MAX, |columns| columns.saturating_sub(WOULD.len()));
    let body: String =
        text.trim_start().lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n").collect();
    format!("{WOULD}{}\n\n{body}\n", cut_beginning(&shown, room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::tests::{of_width, pipe};

    #[test]
    fn lines_about_files_fit_the_terminal() {
        let long = format!("/home/u/.config/aside/subscribers/{}.toml", "long_".repeat(14));
        for columns in [80, 60] {
            let terminal = of_width(columns);
            let shown = about_file(&terminal, "wrote", Path::new(&long), "1 subscriber, 2 tests")
                + &next(&terminal, "aside preview deploys", "aside reload")
                + &about_file(&terminal, "wrote", Path::new("/home/u/x.toml"), "1 subscriber, 2 tests");
            assert!(shown.lines().all(|line| width(line) <= columns), "{shown}");
            assert!(shown.contains("wrote  ~/x.toml     1 subscriber, 2 tests\n"), "{shown}");
        }
        let whole = about_file(&pipe(), "wrote", Path::new(&long), "1 subscriber");
        assert!(whole.lines().count() == 1 && whole.contains("long_.toml     1 subscriber"), "{whole}");
    }
}

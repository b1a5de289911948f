//! `aside test --update`: writes what happened into `decoded` and `text` of the failed tests.

use std::{collections::BTreeMap, fmt::Write as _, fs, ops::Range, path::Path};

use dialoguer::{Confirm, console::Term, theme::SimpleTheme};
use engine::words::counted;

use super::super::{CliError, Context};
use crate::{
    cli::terminal::Tone,
    config::{
        layers::{LayerKind, Sources},
        report::Place,
        trial::{Case, Update},
    },
};

/// Writes the new values into their files, after it has printed them and asked; returns the number
/// of tests that stay as they are.
///
/// Errors: nobody can be asked, or a file changed meanwhile; no file is changed then.
pub(super) fn run(
    failed: &[Case<'_>],
    sources: &Sources,
    is_agreed: bool,
    context: &mut Context<'_>,
) -> Result<usize, CliError> {
    let is_own = |place: &Place| sources.layer_of(&place.file) != Some(LayerKind::Shipped);
    let updates = failed.iter().filter(|case| is_own(&case.test.place)).filter_map(Case::updates);
    let updates: Vec<Vec<Update>> = updates.collect();
    let left = failed.len() - updates.len();
    let mut files: BTreeMap<String, Vec<(Range<usize>, String)>> = BTreeMap::new();
    let mut text = String::new();
    for Update { place, value } in updates.iter().flatten() {
        let name = sources.name_of(&place.file).unwrap_or(&place.file);
        let (old, new) = (format!("- {}", place.literal()), format!("+ {value}"));
        let old = context.terminal.paint(Tone::Bad, &old);
        let new = context.terminal.paint(Tone::Good, &new);
        let _ = write!(text, "\n{name}:{}\n{old}\n{new}\n", place.line());
        files.entry(place.file.to_string()).or_default().push((place.span.clone(), value.clone()));
    }
    if files.is_empty() {
        context.say(
            "\nnothing to update: only `decoded` and `text` are written, and only if all else is right\n",
        )?;
        return Ok(left);
    }
    context.print(&text)?;
    if !is_agreed && !asked(context)? {
        return Ok(failed.len());
    }
    let changed = files
        .iter()
        .map(|(path, updates)| Ok((path, changed(path, updates, sources)?)))
        .collect::<Result<Vec<_>, CliError>>()?;
    for (path, text) in &changed {
        fs::write(path, text).map_err(|source| CliError::Write { name: (*path).clone(), source })?;
    }
    let values = updates.iter().map(Vec::len).sum::<usize>();
    let (values, files) = (counted(values, "value"), counted(changed.len(), "file"));
    context.say(&format!("\nwrote {values} in {files}\nnext: aside test\n"))?;
    Ok(left)
}

fn asked(context: &Context<'_>) -> Result<bool, CliError> {
    if !context.terminal.is_interactive {
        let message = "--update asks before it writes; without a terminal give --yes";
        return Err(CliError::Usage(message.to_owned()));
    }
    let confirm = Confirm::with_theme(&SimpleTheme).with_prompt("write these values?").default(false);
    confirm.interact_on(&Term::stderr()).map_err(CliError::Ask)
}

/// The text of a file with its new values.
fn changed(path: &str, updates: &[(Range<usize>, String)], sources: &Sources) -> Result<String, CliError> {
    let now = fs::read_to_string(Path::new(path))
        .map_err(|source| CliError::Write { name: path.to_owned(), source })?;
    let known = sources.files().iter().find(|file| *file.path == *path);
    if known.is_none_or(|file| *file.text != *now) {
        return Err(CliError::Usage(format!("{path} has changed meanwhile; start again")));
    }
    let mut updates = updates.to_vec();
    updates.sort_by_key(|(span, _)| span.start);
    let mut text = now;
    for (span, value) in updates.into_iter().rev() {
        text.replace_range(span, &value);
    }
    Ok(text)
}

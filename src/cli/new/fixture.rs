//! `aside new fixture`, and how every command saves one.

use engine::{event::catalogue::OwnSeverities, words::counted};

use super::{
    events::pattern,
    plan::{about_file, line, reader},
};
use crate::{
    cli::{CliError, Context, configuration::Configuration, files::write_new},
    config::case::{TestEvent, fixture::write_events},
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name: letters, digits, `-` and `_`
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
    /// The events: ids, positions, files, or the last one
    #[arg(long, value_name = "ID", num_args = 1.., required_unless_present = "last")]
    from: Vec<String>,
    /// The newest events, oldest first
    #[arg(long, value_name = "N", conflicts_with = "from", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    last: Option<u16>,
    /// Only events of these types, with --last
    #[arg(long = "type", value_name = "PATTERN", requires = "last")]
    types: Vec<String>,
    /// Print the file, and write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    let severities = OwnSeverities::new(&configuration.compiled.events);
    let reader = reader(&configuration.compiled, &severities, context);
    let mut events: Vec<TestEvent> = Vec::new();
    for text in &args.types {
        pattern(text)?;
    }
    match args.last {
        Some(count) => {
            let newest = reader.newest(&args.types, usize::from(count))?;
            events.extend(newest.into_iter().rev().map(|seen| seen.event));
        }
        None => {
            for from in &args.from {
                events.extend(reader.from(from, &[])?.seen.into_iter().rev().map(|seen| seen.event));
            }
        }
    }
    if events.is_empty() {
        return Err(CliError::Usage("there is no such event yet".to_owned()));
    }
    if args.dry_run {
        return context.print(&write_events(&events));
    }
    save(&args.name, &events, context)
}

/// The name of a fixture.
pub(in crate::cli) fn name(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match !name.is_empty() && name.chars().all(is_plain) {
        true => Ok(name.to_owned()),
        false => Err("the name of a fixture has letters, digits, `-` and `_`".to_owned()),
    }
}

/// Writes the fixture `name` of the user.
pub(in crate::cli) fn save(
    name: &str,
    events: &[TestEvent],
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let path = context.paths()?.config.join(format!("fixtures/{name}.json"));
    write_new(&path, &write_events(events))?;
    let terminal = context.terminal.clone();
    let wrote = about_file(&terminal, "wrote", &path, &counted(events.len(), "event"));
    context
        .print(&(wrote + &line(&terminal, "next:", &format!("a test uses it as [\"0s\", \"@{name}\"]"), "")))
}

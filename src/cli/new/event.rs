//! `aside new event`.

use engine::event::{EventType, catalogue, catalogue::OwnSeverities};

use super::{
    events::Seen,
    plan::{Planned, checked, line, next, origin, reader, shown_file, with_schemas},
};
use crate::{
    cli::{
        CliError, Context,
        configuration::Configuration,
        files::{read_or_empty, rewrite},
    },
    config::scaffold::entry,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The type: 2 to 8 segments, such as `deploy.web.finished`
    #[arg(value_name = "TYPE")]
    event_type: EventType,
    /// The event that is its example: the last one, one with an id or a position, or that of a file,
    /// such as `{"type": "a.b", "payload": {}}` [default: the newest]
    #[arg(long, value_name = "last|ID|FILE")]
    from: Option<String>,
    /// Print the entry, and write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    let event_type = args.event_type.to_string();
    if catalogue::find(&event_type).is_some() {
        return Err(CliError::Usage(format!("`{event_type}` is in the catalogue of aside already")));
    }
    let path = configuration.folder.join("events.toml");
    let compiled = &configuration.compiled;
    if compiled.events.iter().any(|entry| entry.event_type == args.event_type) {
        return Err(CliError::Usage(format!("`{event_type}` is in an events.toml already; edit that file")));
    }
    let severities = OwnSeverities::new(&compiled.events);
    let types = [event_type.clone()];
    let reader = reader(compiled, &severities, context);
    let found = match &args.from {
        Some(from) => reader.from(from, &types)?,
        None => reader.proposed(&types)?,
    };
    let is_of_type = |seen: &&Seen| seen.event.event_type == args.event_type;
    let Some(seen) = found.seen.iter().find(is_of_type) else {
        let other = found.seen.first().map(|seen| seen.event.event_type.to_string()).unwrap_or_default();
        return Err(CliError::Usage(format!("the event is a `{other}`, not a `{event_type}`")));
    };
    let before = read_or_empty(&path)?;
    let after = entry::with_entries(&before, std::slice::from_ref(&seen.event), found.is_invented);
    let planned = [Planned { name: "events.toml", path: &path, text: &after }];
    checked(&configuration.sources, &planned, context)?;
    let terminal = context.terminal.clone();
    let mut said = origin(&terminal, &found);
    if args.dry_run {
        said.push_str(&shown_file(&terminal, &path, after.strip_prefix(&*before).unwrap_or(&after)));
        return context.print(&said);
    }
    rewrite(&path, &before, &after)?;
    let file = terminal.folder(&path.display().to_string());
    said.push_str(&line(&terminal, "added", &format!("{event_type} to {file}"), ""));
    said.push_str(&with_schemas(&configuration, &terminal)?);
    said.push_str(&next(&terminal, &format!("aside new subscriber ID --type {event_type}"), "aside reload"));
    context.print(&said)
}

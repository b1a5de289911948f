//! `aside new test`.

use std::{path::Path, time::Duration};

use engine::{event::catalogue::OwnSeverities, words::counted};
use journal::time::Timestamp;

use super::{
    events::Seen,
    plan::{Planned, about_file, checked, next, reader, shown_file},
};
use crate::{
    cli::{
        CliError, Context,
        configuration::Configuration,
        files::{read_or_empty, rewrite},
    },
    config::{case::TestEvent, layers::LayerKind, listing::Listed, scaffold::case},
};

/// The name of the first test of real events.
const NAME: &str = "real events";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The subscriber
    #[arg(value_name = "SUBSCRIBER")]
    id: String,
    /// The events: ids, positions, files, or the last one
    #[arg(long, value_name = "ID", num_args = 1.., required = true)]
    from: Vec<String>,
    /// Print the test, and write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    let one = configuration.subscriber(&args.id)?;
    let (name, path) = own_file(&one)?;
    let steps = steps(args, &configuration, context)?;
    let before = read_or_empty(Path::new(&path))?;
    let title = title(&before);
    let drawn = case::draw(&configuration.compiled, &args.id, &title, &steps, case::decoded);
    let drawn = drawn
        .ok_or_else(|| CliError::Usage(format!("`{}` has errors; `aside check` shows them", args.id)))?;
    let end = if before.ends_with('\n') { "" } else { "\n" };
    let after = format!("{before}{end}{}", drawn.text);
    let path = Path::new(&path);
    checked(&configuration.sources, &[Planned { name: &name, path, text: &after }], context)?;
    let terminal = context.terminal.clone();
    if args.dry_run {
        return context.print(&shown_file(&terminal, path, drawn.text.trim_start()));
    }
    rewrite(path, &before, &after)?;
    let what = format!("`{title}`: {}", counted(steps.len(), "event"));
    let mut said = about_file(&terminal, "added", path, &what);
    if drawn.made == 0 {
        said.push_str("it expects no notification\n");
        for line in &drawn.because {
            let place = line.place.as_ref().map(|place| {
                format!(
                    "  {}:{}",
                    configuration.sources.name_of(&place.file).unwrap_or(&place.file),
                    place.line()
                )
            });
            let text = format!("{}{}", line.text, place.unwrap_or_default());
            said.push_str(&format!("{}\n", terminal.cut_after(0, &text)));
        }
    }
    said.push_str(&next(
        &terminal,
        &format!("aside test {}", args.id),
        &format!("aside preview {}", args.id),
    ));
    context.print(&said)
}

/// The name and the path of the user's file of a subscriber.
///
/// Errors: the user has none.
fn own_file(one: &Listed) -> Result<(String, String), CliError> {
    let own = one.files.iter().rev().find(|file| file.layer == LayerKind::User);
    own.map(|file| (file.name.to_string(), file.path.to_string())).ok_or_else(|| {
        let id = &one.id;
        CliError::Usage(format!("no file of yours has `{id}`; `aside edit {id}` writes one that changes it"))
    })
}

/// The events with their times from the first one on.
fn steps(
    args: &Args,
    configuration: &Configuration,
    context: &Context<'_>,
) -> Result<Vec<(Duration, TestEvent)>, CliError> {
    let severities = OwnSeverities::new(&configuration.compiled.events);
    let reader = reader(&configuration.compiled, &severities, context);
    let mut seen: Vec<Seen> = Vec::new();
    for from in &args.from {
        seen.extend(reader.from(from, &[])?.seen.into_iter().rev());
    }
    let time = |one: &Seen| one.at.as_deref().and_then(|at| at.parse::<Timestamp>().ok());
    let first = seen.iter().filter_map(time).min();
    let since = |one: &Seen| {
        time(one).zip(first).map_or(0, |(at, first)| at.as_millis().saturating_sub(first.as_millis()))
    };
    let step = |one: &Seen| (Duration::from_millis(since(one)), one.event.clone());
    let mut steps: Vec<(Duration, TestEvent)> = seen.iter().map(step).collect();
    steps.sort_by_key(|(at, _)| *at);
    Ok(steps)
}

/// A name that no test in `text` has.
fn title(text: &str) -> String {
    let is_free = |name: &String| !text.contains(&format!("\"{name}\""));
    let numbered = (2..).map(|number| format!("{NAME} {number}"));
    std::iter::once(NAME.to_owned()).chain(numbered).find(is_free).unwrap_or_else(|| NAME.to_owned())
}

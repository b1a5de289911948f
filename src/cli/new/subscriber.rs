//! `aside new subscriber`.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use engine::{
    event::catalogue::{self, OwnSeverities},
    notification::{InjectionPoint, Priority},
    words::counted,
};

use super::{
    events::{Found, pattern},
    plan::{
        Planned, about_file, checked, line, next, origin, reader, shown_file, with_planned, with_schemas,
    },
};
use crate::{
    cli::{
        CliError, Context,
        check::compiled_of,
        configuration::Configuration,
        files::{read_or_empty, refuse_existing, rewrite, write_new},
        terminal::{Terminal, one_line, width},
    },
    config::{
        case::TestEvent,
        compile::Compiled,
        layers::LayerKind,
        listing,
        scaffold::{
            case, entry,
            fields::{Field, Fields, KeyPart},
            subscriber::Draft,
        },
    },
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The id of the subscriber: a to z, 0 to 9 and `_`
    #[arg(value_name = "ID")]
    id: String,
    /// The types of its events: a type, or a pattern such as `deploy.*.finished` [default: those of
    /// the events]
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<String>,
    /// The events that its fields are proposed from: the last one, one with an id or a position, those
    /// of a file, or the catalogue's example [default: the newest 20]
    #[arg(long, value_name = "last|ID|FILE|example")]
    from: Option<String>,
    /// The priority: critical, high, normal or low
    #[arg(long, value_name = "PRIORITY")]
    priority: Option<Priority>,
    /// The injection point: immediate, `turn_start`, `after_tool` or `turn_end`
    #[arg(long, value_name = "POINT")]
    point: Option<InjectionPoint>,
    /// Write its text as a template, templates/ID.toon.j2
    #[arg(long)]
    template: bool,
    /// Print the files, and write nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    refuse_known(&args.id, &configuration)?;
    for text in &args.types {
        pattern(text)?;
    }
    let mut plan = Plan::new(args, &configuration)?;
    let found = found(args, &configuration.compiled, context)?;
    let fields = plan.fill(args, &found, &configuration);
    let (_, report) = checked(&configuration.sources, &plan.files(), context)?;
    let terminal = context.terminal.clone();
    let said = origin(&terminal, &found) + &rows(&terminal, &fields);
    if args.dry_run {
        return context.print(&(said + &plan.shown(&terminal)));
    }
    plan.write()?;
    let mut said = said + &plan.written(&terminal) + &with_schemas(&configuration, &terminal)?;
    if report.warning_count() > 0 {
        let _ = write!(said, "\n{report}\n\n");
    }
    said.push_str(&next(&terminal, &format!("aside preview {}", args.id), "aside reload"));
    context.print(&said)
}

/// A file of the user's layer, as it is and as it will be.
struct File {
    name: String,
    path: PathBuf,
    before: String,
    after: String,
}

impl File {
    /// Errors: it exists.
    fn new(folder: &Path, name: String) -> Result<Self, CliError> {
        let path = folder.join(&name);
        refuse_existing(&path)?;
        Ok(Self { name, path, before: String::new(), after: String::new() })
    }

    fn planned(&self) -> Planned<'_> {
        Planned { name: &self.name, path: &self.path, text: &self.after }
    }
}

/// The files of a new subscriber.
struct Plan {
    subscriber: File,
    template: Option<File>,
    /// `events.toml`, and the types that are added to it.
    events: (File, Vec<TestEvent>),
    tests: usize,
}

impl Plan {
    /// Errors: a file exists, or cannot be read.
    fn new(args: &Args, configuration: &Configuration) -> Result<Self, CliError> {
        let folder = &configuration.folder;
        let template = args.template.then(|| File::new(folder, format!("templates/{}.toon.j2", args.id)));
        let path = folder.join("events.toml");
        let before = read_or_empty(&path)?;
        let events = File { name: "events.toml".to_owned(), path, after: before.clone(), before };
        Ok(Self {
            subscriber: File::new(folder, format!("subscribers/{}.toml", args.id))?,
            template: template.transpose()?,
            events: (events, Vec::new()),
            tests: 0,
        })
    }

    /// Writes the texts of the files, and returns the fields that they name.
    fn fill(&mut self, args: &Args, found: &Found, configuration: &Configuration) -> Fields {
        let events = found.events();
        let types = if args.types.is_empty() { types_of(&events) } else { args.types.clone() };
        let fields = Fields::propose(&events);
        let (file, added) = &mut self.events;
        *added = unknown_types(found, &types, &configuration.compiled);
        if !added.is_empty() {
            file.after = entry::with_entries(&file.before, added, found.is_invented);
        }
        let draft = Draft {
            id: &args.id,
            types: &types,
            priority: args.priority,
            point: args.point,
            fields: &fields,
            has_template: args.template,
            is_invented: found.is_invented,
            is_unknown: found.is_invented && added.is_empty(),
        };
        self.subscriber.after = draft.file();
        if let Some(template) = &mut self.template {
            template.after = draft.template();
        }
        let compiled = compiled_of(&with_planned(&configuration.sources, &self.files()));
        for (name, steps) in draft.tests(&events) {
            if let Some(drawn) = case::draw(&compiled, &args.id, name, &steps, |made| draft.claims(made)) {
                self.subscriber.after.push_str(&drawn.text);
                self.tests += 1;
            }
        }
        fields
    }

    fn files(&self) -> Vec<Planned<'_>> {
        let (events, added) = &self.events;
        let events = (!added.is_empty()).then(|| events.planned());
        let template = self.template.as_ref().map(File::planned);
        [Some(self.subscriber.planned()), template, events].into_iter().flatten().collect()
    }

    /// The subscriber comes last, so that it is whole if another file cannot be written.
    fn write(&self) -> Result<(), CliError> {
        let (events, added) = &self.events;
        if !added.is_empty() {
            rewrite(&events.path, &events.before, &events.after)?;
        }
        if let Some(template) = &self.template {
            write_new(&template.path, &template.after)?;
        }
        write_new(&self.subscriber.path, &self.subscriber.after)
    }

    /// The texts that would be written.
    fn shown(&self, terminal: &Terminal) -> String {
        let (events, _) = &self.events;
        let added = |one: &Planned<'_>| match one.name == events.name {
            true => one.text.strip_prefix(&*events.before).unwrap_or(one.text).to_owned(),
            false => one.text.to_owned(),
        };
        self.files().iter().map(|one| shown_file(terminal, one.path, &added(one))).collect()
    }

    fn written(&self, terminal: &Terminal) -> String {
        let right = format!("1 subscriber, {}", counted(self.tests, "test"));
        let mut said = about_file(terminal, "wrote", &self.subscriber.path, &right);
        if let Some(template) = &self.template {
            said.push_str(&about_file(terminal, "wrote", &template.path, "its text"));
        }
        let (file, added) = &self.events;
        if let Some(first) = added.first() {
            let more = added.len() - 1;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let file = terminal.folder(&file.path.display().to_string());
            said.push_str(&line(terminal, "added", &format!("{}{more} to {file}", first.event_type), ""));
        }
        said
    }
}

/// Errors: a layer has a subscriber of this id.
fn refuse_known(id: &str, configuration: &Configuration) -> Result<(), CliError> {
    let all = listing::subscribers(&configuration.sources, &configuration.compiled);
    let Some(known) = all.into_iter().find(|one| one.id == id) else { return Ok(()) };
    let message = match known.files.last() {
        Some(file) if file.layer != LayerKind::Shipped => {
            format!("`{id}` is in {} already; edit that file", file.path)
        }
        Some(_) | None => format!("`{id}` ships with aside; `aside edit {id}` changes it"),
    };
    Err(CliError::Usage(message))
}

fn found(args: &Args, compiled: &Compiled, context: &Context<'_>) -> Result<Found, CliError> {
    let severities = OwnSeverities::new(&compiled.events);
    let reader = reader(compiled, &severities, context);
    match (&args.from, args.types.as_slice()) {
        (Some(from), types) => {
            let found = reader.from(from, types)?;
            refuse_other_types(&found, types)?;
            Ok(found)
        }
        (None, []) => Err(CliError::Usage(
            "give the types of its events: --type 'deploy.*.finished', or --from last".to_owned(),
        )),
        (None, types) => reader.proposed(types),
    }
}

/// Errors: `types` select none of the events.
fn refuse_other_types(found: &Found, types: &[String]) -> Result<(), CliError> {
    let patterns = types.iter().map(|text| pattern(text)).collect::<Result<Vec<_>, _>>()?;
    let is_selected = |event: &TestEvent| patterns.iter().any(|pattern| pattern.matches(&event.event_type));
    match found.seen.first() {
        Some(first) if !patterns.is_empty() && !found.seen.iter().any(|seen| is_selected(&seen.event)) => {
            let types = types.join(", ");
            Err(CliError::Usage(format!(
                "{types} does not select {}, the type of the event",
                first.event.event_type
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// The types of events, each once.
fn types_of(events: &[TestEvent]) -> Vec<String> {
    let mut types: Vec<String> = events.iter().map(|event| event.event_type.to_string()).collect();
    types.sort();
    types.dedup();
    types
}

/// The newest event of each type that the catalogue does not have. The type of a placeholder is one if a
/// subscriber names it whole.
fn unknown_types(found: &Found, types: &[String], compiled: &Compiled) -> Vec<TestEvent> {
    let mut unknown: Vec<TestEvent> = Vec::new();
    for event in found.events() {
        let own = event.event_type.as_str();
        let is_known = catalogue::find(own).is_some()
            || compiled.events.iter().any(|entry| entry.event_type == event.event_type);
        let is_real = !found.is_invented || types.iter().any(|pattern| pattern == own);
        if !is_known && is_real && unknown.iter().all(|other| other.event_type != event.event_type) {
            unknown.push(event);
        }
    }
    unknown
}

/// A line for each field: how often, what it holds, and what it becomes.
fn rows(terminal: &Terminal, fields: &Fields) -> String {
    let holds = |field: &Field| match field.values {
        Some(values) => format!("{}, {}", field.kind.as_str(), counted(values, "value")),
        None => field.kind.as_str().to_owned(),
    };
    let becomes = |field: &Field| match (field.is_column, field.key) {
        (true, KeyPart::Is) => "column, dedupe_key",
        (true, KeyPart::Masked) => "column; masked, so no dedupe_key",
        (true, KeyPart::No) => "column",
        (false, _) => "-",
    };
    let widest = |text: &dyn Fn(&Field) -> String| {
        fields.all.iter().map(|field| width(&text(field))).max().unwrap_or(0)
    };
    let count = |field: &Field| format!("{} of {}", field.count, fields.events);
    let (names, counts, kinds) = (widest(&|field| field.name.clone()), widest(&count), widest(&holds));
    let row = |field: &Field| {
        let name = &one_line(&field.name);
        let row = format!(
            "{name:names$}   {:counts$}   {:kinds$}   {}",
            count(field),
            holds(field),
            becomes(field)
        );
        format!("  {}\n", terminal.cut_after(2, &row))
    };
    fields.all.iter().map(row).collect()
}

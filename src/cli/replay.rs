//! `aside replay`: what the journal would have led to with the rules of a folder.
//!
//! It reads the journal's files in its own process, at the last priority of the scheduler, so that a
//! daemon is not delayed. It delivers, publishes, runs and writes nothing.

mod compared;
mod json;
mod judge;
mod lists;
mod report;
mod times;

use std::{fs, path::PathBuf, time::Duration};

use clap::ValueEnum;
use engine::nearest::nearest;
use journal::{background, time::Timestamp};

use self::{compared::Compared, judge::Judged, report::Page};
use super::{
    CliError, Context,
    check::{Target, compiled, read},
    run::timed,
};
use crate::{
    api::wire::history::read_moment,
    comparison::Kind,
    config::{
        compile::compile,
        expected::{self, Expectation},
        layers::Sources,
    },
    daemon::{
        rerun::{Request, rerun},
        rules::RulesStore,
    },
};

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplayFormat {
    /// For people
    Text,
    /// An object with everything that was compared
    Json,
    /// XML that CI services read, of the expectations
    Junit,
}

/// The notifications that are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Show {
    /// Those that were made then only
    Gone,
    /// Those that are made now only
    Added,
    /// Those with another text or another delivery
    Changed,
}

impl Show {
    const fn kind(self) -> Kind {
        match self {
            Self::Gone => Kind::Gone,
            Self::Added => Kind::Added,
            Self::Changed => Kind::Changed,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Compare from this time on: RFC 3339, or how long ago, such as 30m, 24h or 7d [default: the
    /// journal's beginning]
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Compare up to this time [default: the last durable record]
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Try the rules of this subscriber only; the others keep those of their time
    #[arg(long, value_name = "ID")]
    subscriber: Vec<String>,
    /// List the notifications that differ so
    #[arg(long, value_enum)]
    show: Option<Show>,
    /// A TOML file of [[expect]] tables; what does not meet them fails the command
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// The format of the output
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReplayFormat::Text)]
    format: ReplayFormat,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    background::lower_priority(background::LAST);
    if args.format == ReplayFormat::Junit && args.expect.is_none() {
        let message = "--format junit has the results of expectations: give --expect FILE too";
        return Err(CliError::Usage(message.to_owned()));
    }
    let now = context.terminal.moments.now;
    let (since, until) = (moment("--since", &args.since, now)?, moment("--until", &args.until, now)?);
    if since.zip(until).is_some_and(|(since, until)| since > until) {
        return Err(CliError::Usage("--until is before --since".to_owned()));
    }
    let (state, folder) = (context.state()?, context.paths()?.config.clone());
    let sources = read(Sources::shipped(), &[Target::Layer(folder)]);
    let rules = compiled(&sources, context)?;
    let own = rules.rules.subscribers.iter();
    let mut known: Vec<String> = own.map(|rule| rule.id.in_file().to_owned()).collect();
    known.extend(ids_in_force(&RulesStore::new(&state)));
    check_ids(&args.subscriber, &known)?;
    let expectations = args.expect.as_deref().map(|path| read_expectations(path, &known, context));
    let expectations = expectations.transpose()?;
    let request = Request { state: &state, sources, subscribers: &args.subscriber, since, until };
    let (compared, took) = timed(|| rerun(&request));
    let (outcome, extent) = compared.map_err(|error| CliError::Replay(Box::new(error)))?;
    let judged = expectations.map(|all| judge::judge(&all, &outcome));
    let compared = Compared { since: args.since.as_deref(), outcome, extent, judged };
    let text = match args.format {
        ReplayFormat::Text => text(args, &compared, took, context),
        ReplayFormat::Json => format!("{}\n", json::value(&compared)),
        ReplayFormat::Junit => compared.judged.as_ref().map(Judged::junit).unwrap_or_default(),
    };
    context.print(&text)?;
    match compared.judged.as_ref().map_or((0, 0), Judged::failed_of_all) {
        (0, _) => Ok(()),
        (failed, all) => Err(CliError::Expectations { failed, all }),
    }
}

fn text(args: &Args, compared: &Compared<'_>, took: Duration, context: &Context<'_>) -> String {
    let page = Page { compared, took, terminal: &context.terminal };
    let list = args.show.map(|show| lists::text(&compared.outcome, show.kind(), &context.terminal));
    page.text(list.as_deref())
}

fn moment(name: &'static str, text: &Option<String>, now: Timestamp) -> Result<Option<Timestamp>, CliError> {
    let read = |text: &String| {
        read_moment(name, text, now).map_err(|error| CliError::Usage(format!("{name} {}", error.message)))
    };
    text.as_ref().map(read).transpose()
}

/// The ids of the subscribers of the rules that a daemon used last.
fn ids_in_force(store: &RulesStore) -> Vec<String> {
    let compiled = store.last_good().map(|sources| compile(&sources, &[]));
    let rules = compiled.iter().flat_map(|compiled| &compiled.rules.subscribers);
    rules.map(|rule| rule.id.in_file().to_owned()).collect()
}

fn check_ids(ids: &[String], known: &[String]) -> Result<(), CliError> {
    let Some(unknown) = ids.iter().find(|id| !known.contains(id)) else { return Ok(()) };
    let meant = nearest(unknown, known.iter().map(String::as_str));
    let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
    Err(CliError::Usage(format!("there is no subscriber `{unknown}`{meant}")))
}

/// Reads the file of expectations, and prints its mistakes.
fn read_expectations(
    path: &std::path::Path,
    known: &[String],
    context: &mut Context<'_>,
) -> Result<Vec<Expectation>, CliError> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path);
    let text = text.map_err(|source| CliError::Input { name: name.clone(), source })?;
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    match expected::read(&name, &text, &known) {
        Ok(read) => Ok(read),
        Err(report) => {
            context.say(&format!("{report}\n"))?;
            Err(CliError::Check { errors: report.error_count() })
        }
    }
}

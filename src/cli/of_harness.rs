//! Subcommands and arguments that name a harness: one per row of the table.

use clap::{
    ArgMatches, Command, Error, FromArgMatches, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
    error::ErrorKind,
    parser::ValueSource,
};

use crate::harness::{kind::Kind, table::KINDS};

/// Parses a harness by its `name`.
pub(super) fn harness(name: fn(&Kind) -> &'static str) -> impl TypedValueParser<Value = &'static Kind> {
    PossibleValuesParser::new(KINDS.map(name)).map(move |word| {
        KINDS.into_iter().find(|kind| name(kind) == word).expect("only the words of harnesses are possible")
    })
}

/// The harnesses in whose clients aside is installed, for a sentence.
pub(super) fn installable() -> String {
    let kinds = KINDS.into_iter().filter(|kind| kind.client().is_some());
    kinds.map(|kind| kind.caps.name).collect::<Vec<_>>().join(" or ")
}

/// The command names of the harnesses with hooks, for a sentence.
pub(super) fn with_hooks() -> String {
    Kind::hook_words().collect::<Vec<_>>().join(" or ")
}

/// Arguments of a command for one harness.
pub(super) trait ForHarness: clap::Args {
    /// Adapts the command's help to this harness.
    fn fit(command: Command, kind: &Kind) -> Command;

    /// The options that not every harness supports, and whether this one does.
    fn options(kind: &Kind) -> Vec<(&'static str, bool)>;
}

/// A subcommand per harness, by its name.
#[derive(Debug)]
pub(super) struct Of<A> {
    pub(super) kind: &'static Kind,
    pub(super) args: A,
}

fn lacking<A: ForHarness>(kind: &Kind) -> impl Iterator<Item = &'static str> + use<A> {
    A::options(kind).into_iter().filter(|(_, is_there)| !is_there).map(|(id, _)| id)
}

impl<A: ForHarness> FromArgMatches for Of<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = matches.subcommand().and_then(|(name, matches)| Some((Kind::of_name(name)?, matches)));
        let (kind, matches) = given.ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(id) = lacking::<A>(kind).find(is_given) {
            let message = format!("{} does not support `--{}`\n", kind.title, id.replace('_', "-"));
            return Err(Error::raw(ErrorKind::UnknownArgument, message));
        }
        Ok(Self { kind, args: A::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: ForHarness> Subcommand for Of<A> {
    fn augment_subcommands(command: Command) -> Command {
        KINDS.into_iter().fold(command, |command, kind| {
            let own = A::fit(A::augment_args(Command::new(kind.caps.name)), kind);
            command.subcommand(lacking::<A>(kind).fold(own, |own, id| own.mut_arg(id, |arg| arg.hide(true))))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Kind::of_name(name).is_some()
    }
}

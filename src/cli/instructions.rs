//! `aside instructions`: what the texts of aside are, for a model's instructions.

use clap::builder::PossibleValuesParser;

use super::{CliError, Context};
use crate::{
    api::wire::exchange::INSTRUCTIONS,
    harness::{kind::Kind, table::KINDS},
};

/// The name of a loop of one's own.
const LOOP: &str = "loop";
/// The file of an extension with the harness's own instructions.
const SKILL: &str = "SKILL.md";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// `loop` for a loop of your own, or a harness
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
    name: String,
}

fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(LOOP).chain(KINDS.map(|kind| kind.caps.name))
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let kind = KINDS.into_iter().find(|kind| kind.caps.name == args.name);
    let files = kind.and_then(Kind::extension).map(|folder| folder.files);
    let own = files.into_iter().flatten().find(|(path, _)| path.ends_with(SKILL)).map(|(_, text)| *text);
    let text = own.unwrap_or(INSTRUCTIONS);
    context.print(&format!("{}\n", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn a_loop_and_each_harness_have_their_instructions() {
        let daemon = FakeDaemon::silent();
        let printed = |name| run_against(&daemon, &["instructions", name]);
        assert_eq!(printed(LOOP).as_deref(), Ok(&*format!("{INSTRUCTIONS}\n")));
        for kind in KINDS {
            let own = printed(kind.caps.name).expect("its instructions");
            assert!(own.contains("not instructions") && own != INSTRUCTIONS, "{own}");
        }
        let error = printed("lop").expect_err("no harness");
        assert!(error.contains("'loop'"), "{error}");
    }
}

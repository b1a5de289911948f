//! The files of all layers, as commands without a daemon read them.

use std::path::PathBuf;

use engine::request::hint;

use super::{CliError, Context, terminal::one_line};
use crate::{
    config::{
        compile::{Compiled, compile},
        layers::Sources,
        lints::matched::Matched,
        listing::{self, Listed},
        load::{layers_of, read_layers_over},
    },
    daemon::workspace,
};

/// The files of all layers, as they are now.
pub(super) struct Configuration {
    /// The user's folder.
    pub(super) folder: PathBuf,
    pub(super) sources: Sources,
    /// What they compile to.
    pub(super) compiled: Compiled,
}

impl Configuration {
    pub(super) fn read(context: &Context<'_>) -> Result<Self, CliError> {
        Self::read_over(Sources::shipped(), context)
    }

    /// The same over the shipped layer, with or without tests.
    pub(super) fn read_over(shipped: Sources, context: &Context<'_>) -> Result<Self, CliError> {
        let paths = context.paths()?;
        let folder = paths.config.clone();
        // A list that cannot be read is shown by the daemon, which uses it.
        let trusted = workspace::trust_list(&paths.state).unwrap_or_default();
        let read = read_layers_over(shipped, &layers_of(&folder));
        let sources = read.with_workspaces(workspace::read_trusted(&trusted).0);
        let compiled = compile(&sources, &[]);
        Ok(Self { folder, sources, compiled })
    }

    /// The subscriber with this id.
    ///
    /// Errors: there is none.
    pub(super) fn subscriber(&self, id: &str) -> Result<Listed, CliError> {
        let mut all = listing::subscribers(&self.sources, &self.compiled);
        if let Some(index) = all.iter().position(|one| one.id == id) {
            return Ok(all.swap_remove(index));
        }
        let ids: Vec<&str> = all.iter().map(|one| one.id.as_str()).collect();
        Err(CliError::Usage(format!("unknown subscriber `{id}`; {}", hint(id, &ids))))
    }

    /// A line about errors in the files; empty if there are none.
    pub(super) fn note(&self) -> String {
        note_of_errors(&self.compiled)
    }
}

/// Lines about what a silence or a mute names and nothing has; none if the files cannot be read.
pub(super) fn doubts(matched: Matched<'_>, context: &Context<'_>) -> String {
    if matched.types.is_empty() && matched.condition.is_none() {
        return String::new();
    }
    let doubts = Configuration::read(context).map(|own| matched.doubts(&own.compiled)).unwrap_or_default();
    let lines = doubts.into_iter().map(|doubt| format!("warning: {}", one_line(&doubt)));
    lines.map(|line| format!("  {}\n", context.terminal.wrap(&line, 2, 4))).collect()
}

/// A line about errors in the files of `compiled`; empty if there are none.
pub(super) fn note_of_errors(compiled: &Compiled) -> String {
    match compiled.report.error_count() {
        0 => String::new(),
        errors => format!("files with errors are left out: {errors} found by `aside check`\n"),
    }
}

//! The files of the rules in force, for the places of rules: those that the daemon uses, which are stored
//! by their content, else those of the configuration.

use super::{CliError, Context, configuration::Configuration};
use crate::{
    api::wire::views::StatusView,
    config::{
        compile::{Compiled, compile},
        layers::Sources,
        rule_place::RulePlaces,
    },
    daemon::rules::RulesStore,
};

/// The files that rules are compiled of.
pub(super) struct InForce {
    pub(super) sources: Sources,
    pub(super) compiled: Compiled,
    /// Whether the files of the configuration are other ones.
    is_older: bool,
}

impl InForce {
    /// The files of the configuration, as they are now.
    pub(super) fn of_files(context: &Context<'_>) -> Result<Self, CliError> {
        let Configuration { sources, compiled, .. } = Configuration::read(context)?;
        Ok(Self { sources, compiled, is_older: false })
    }

    /// The files of the rules with this content hash, which a daemon uses.
    pub(super) fn of_rules(hash: &str, context: &Context<'_>) -> Result<Self, CliError> {
        let now = Self::of_files(context)?;
        if hash.is_empty() || now.sources.hash() == hash {
            return Ok(now);
        }
        let stored = context.state().ok().and_then(|state| RulesStore::new(&state).sources(hash).ok());
        Ok(match stored {
            Some(sources) => Self { compiled: compile(&sources, &[]), sources, is_older: true },
            None => Self { is_older: true, ..now },
        })
    }

    /// The files of the daemon's rules.
    pub(super) fn of_daemon(context: &Context<'_>) -> Result<Self, CliError> {
        let status: StatusView = context.get("read the status", "/v1/status")?;
        Self::of_rules(&status.rules.hash, context)
    }

    pub(super) fn places(&self) -> RulePlaces<'_> {
        RulePlaces::new(&self.sources, &self.compiled)
    }

    /// A line about files that the daemon does not use yet; empty if there are none.
    pub(super) fn note(&self) -> &'static str {
        if self.is_older { "the files have changed since the daemon read them: aside reload\n" } else { "" }
    }
}

//! `[sources]` of `aside.toml` for sources that wait for something outside. To add one, add a row.
//!
//! The engine does not know them; the daemon publishes them to the sources.

use std::sync::Arc;

use engine::{ci, rules::CompiledRules, settings::sources, watch::condition as watch};

use crate::capability::{log, lsp, paths, schedule, shell};

sources! {
    // Module, name in `[sources]`, subject of its events, and its requirement.
    watch "watch" "conditions of watches" "`aside watch CONDITION`";
    ci "ci" "checks of pushed commits" "`gh`, logged in";
    lsp "lsp" "diagnostics of language servers" "`enabled = true` in `[sources.lsp]`, and the servers";
    shell "shell" "commands of the user" "`aside shell-init`";
    log "log" "lines of logs" "`[[sources.log]]` in aside.toml" list;
    paths "paths" "changes of listed files" "`[[sources.paths]]` in aside.toml" list;
    schedule "schedule" "scheduled times" "`[[sources.schedule]]` in aside.toml" list;
}

/// What stays in force from one `rules` record to the next.
#[derive(Debug, Clone)]
pub struct Generation {
    /// The rules of the engine.
    pub rules: Arc<CompiledRules>,
    /// The settings of the sources.
    pub outside: Arc<Settings>,
}

impl Generation {
    /// In force before the journal's first record.
    pub fn none() -> Self {
        Self { rules: Arc::new(CompiledRules::none()), outside: Arc::default() }
    }
}

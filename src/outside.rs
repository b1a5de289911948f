//! `[sources]` of `aside.toml` for sources that wait for something outside. To add one, add a row.

use std::collections::BTreeMap;

use crate::{
    ci::switch as ci, log, lsp::switch as lsp, paths, schedule, settings::sources, shell,
    watch::hosts as watch,
};

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

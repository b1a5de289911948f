//! `[sources]` of `aside.toml` for sources that wait for something outside. To add one, add a row.

use std::collections::BTreeMap;

use crate::{
    ci::switch as ci, log, lsp::switch as lsp, paths, schedule, settings::sources, shell,
    watch::hosts as watch,
};

sources! {
    // Module, name in `[sources]`, subject of its events, and what it requires.
    watch "watch" "what somebody waits for" "`aside watch CONDITION`";
    ci "ci" "checks of what was pushed" "`gh`, logged in";
    lsp "lsp" "what language servers find" "`enabled = true` in `[sources.lsp]`, and the servers";
    shell "shell" "what its user runs" "`aside shell-init`";
    log "log" "lines of logs" "`[[sources.log]]` in aside.toml" list;
    paths "paths" "files that were named" "`[[sources.paths]]` in aside.toml" list;
    schedule "schedule" "times that were set" "`[[sources.schedule]]` in aside.toml" list;
}

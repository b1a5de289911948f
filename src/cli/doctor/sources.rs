//! Whether probes, detectors and sources are on, whether subscribers take their events, when the
//! last one was published, and whether the probes run at all.

use std::path::Path;

use hook::client::HOOK_TIMEOUT_VARIABLE;

use super::{Check, round_trip};
use crate::{
    api::wire::sources::{LooksView, SlowView, SourceView, SourcesView},
    cli::{Context, absolute_folder, sources},
    config::producers::Producer,
    daemon::causes::with_causes,
    harness::kind::Kind,
};

const NAME: &str = "sources";
/// Name of the check that changes a file.
const LOOK: &str = "look";
/// Period of the counts.
const SINCE: &str = "7d";

/// One check per source, and one with a file change that the probes must find.
pub(super) fn checks(kinds: &[&'static Kind], context: &Context<'_>) -> Vec<Check> {
    let view = match sources::read(SINCE, context) {
        Ok(view) => view,
        Err(error) => {
            return vec![Check::warn(
                NAME,
                format!("failed to {}", with_causes(&error)),
                "aside status shows the error",
            )];
        }
    };
    let switched =
        view.sources.iter().filter(|source| matches!(&*source.kind, "probe" | "detector" | "source"));
    let mut checks: Vec<Check> = switched.map(|source| source_check(source, context)).collect();
    checks.push(look(kinds, &view, context));
    checks
}

/// Changes a file that an invented subagent has read.
fn look(kinds: &[&'static Kind], view: &SourcesView, context: &Context<'_>) -> Check {
    let looks = sources::looks(view);
    let not_tried = |why: &str| Check::ok(LOOK, format!("not tried: {why}; {looks}"));
    let files = view.sources.iter().find(|source| source.name == "files");
    if files.is_none_or(|files| files.is_on != Some(true) || files.why.is_some()) {
        return not_tried("`files` is off or no subscriber takes its events");
    }
    let Ok(paths) = &context.paths else { return not_tried("no folder is known in which to write a file") };
    let folder = absolute_folder(&paths.state.to_string_lossy());
    let change = |kind: &&'static Kind| round_trip::change_a_file(kind, &context.client, Path::new(&folder));
    match kinds.iter().find_map(change) {
        None => not_tried("no hook here supports an artificial subagent"),
        // The counts are of the time before it.
        Some(Ok(())) => {
            late(&view.looks, context).unwrap_or_else(|| Check::ok(LOOK, "a changed file was detected"))
        }
        Some(Err(trouble)) => {
            let remedy = "check the load of the machine and the disk, and the daemon's log";
            Check::warn(LOOK, format!("{trouble}; {looks}"), remedy)
        }
    }
}

/// A warning about the slowest folder in which looks are late.
fn late(looks: &LooksView, context: &Context<'_>) -> Option<Check> {
    let SlowView { folder, count, took_ms } = looks.slow.first()?;
    let others = match looks.slow.len() {
        1 => String::new(),
        more => format!(" (and in {} more folders)", more - 1),
    };
    let folder = context.terminal.folder(folder);
    let found = format!(
        "slow files in {folder}: a look takes {took_ms} ms, so {count} of them were delivered one call late{others}"
    );
    let remedy = format!(
        "work on a local disk, or let hooks wait longer with {HOOK_TIMEOUT_VARIABLE}; a look gets 2/15 of it"
    );
    Some(Check::warn(LOOK, found, remedy))
}

fn source_check(source: &SourceView, context: &Context<'_>) -> Check {
    let name = format!("source {}", source.name);
    let said = match &source.count.last_at {
        Some(at) => format!("last event {}", context.terminal.moment(at)),
        None => "no event in 7 days".to_owned(),
    };
    if let Some(trouble) = source.troubles.first() {
        let more = source.troubles.len() - 1;
        let more = if more > 0 {
            format!(" (and {more} more: aside sources {})", source.name)
        } else {
            String::new()
        };
        let remedy = format!(
            "fix it, or the entry under [[sources.{}]] in aside.toml, then aside reload",
            source.name
        );
        return Check::warn(name, format!("{trouble}{more}"), remedy);
    }
    match (source.is_on, &source.why, sources::note(source, context)) {
        (Some(false), _, Some(why)) if Producer::find(&source.name).is_some_and(|row| row.kind.is_list()) => {
            Check::ok(name, format!("off: {why}"))
        }
        (Some(false), _, Some(why)) => {
            Check::ok(name, format!("off: {why}; to enable it, change that and run aside reload"))
        }
        (_, Some(_), Some(why)) => {
            Check::warn(name, why, "enable the subscriber in its file, then aside reload")
        }
        (_, None, Some(missing)) => Check::ok(name, format!("on; {missing}")),
        (_, _, None) => Check::ok(name, format!("on; {said}")),
    }
}

//! Findings about a repository: one per cause, with the known files that the cause changed;
//! and the known state of a session's repository.

use std::{path::Path, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    reflog::{Action, Head, Id, Last},
    repository::{Operation, Repository, relative, shown},
};
use crate::{
    event::Severity,
    probe::{
        Finding,
        facts::{Entry, Facts},
    },
    sorted::{SortedMap, SortedSet},
};

/// Most named files of a finding.
const FILES_MAX: usize = 5;
/// Most named manifests and lockfiles.
const MANIFESTS_MAX: usize = 3;
/// Most manifests and lockfiles that are checked.
const MANIFESTS_LOOKED_MAX: usize = 64;
/// Most characters of a path.
const PATH_CHARS_MAX: usize = 120;
/// How long before the log entry of a checkout its files may be written, in seconds: git writes the
/// log last.
const CHECKOUT_SECONDS_MAX: u64 = 10;

/// Files that define a project's dependencies: after a change, the installed ones may be out of
/// date.
const MANIFESTS: [&str; 36] = [
    ".tool-versions",
    "Cargo.lock",
    "Cargo.toml",
    "Gemfile",
    "Gemfile.lock",
    "Package.resolved",
    "Package.swift",
    "Pipfile",
    "Pipfile.lock",
    "build.gradle",
    "build.gradle.kts",
    "bun.lock",
    "bun.lockb",
    "composer.json",
    "composer.lock",
    "deno.json",
    "deno.lock",
    "flake.lock",
    "flake.nix",
    "go.mod",
    "go.sum",
    "gradle.lockfile",
    "mix.exs",
    "mix.lock",
    "package-lock.json",
    "package.json",
    "pnpm-lock.yaml",
    "poetry.lock",
    "pom.xml",
    "pubspec.lock",
    "pubspec.yaml",
    "pyproject.toml",
    "requirements.txt",
    "rust-toolchain.toml",
    "uv.lock",
    "yarn.lock",
];

/// A position of HEAD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) head: Head,
    pub(super) at: Id,
}

/// Combined moves of HEAD by one author.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moved {
    pub(super) from: Position,
    pub(super) to: Position,
    /// The actions, each once, in order.
    pub(super) actions: Vec<Action>,
    /// Time of the last one, in seconds since 1970.
    pub(super) at: u64,
    /// Time zone as recorded by git, in minutes ahead of UTC.
    pub(super) zone: i16,
    /// The session that made them; `None` for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
}

/// The folder to which displayed paths are relative, and the current time.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) workspace: &'a str,
    pub(super) now: Timestamp,
}

#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Known files of the session, by absolute path.
    pub(super) known: SortedSet<Arc<str>>,
    /// Other manifests and lockfiles, by paths relative to the top.
    manifests: Vec<String>,
}

impl Moved {
    /// Whether it led back to its start.
    pub(super) fn is_undone(&self) -> bool {
        self.from == self.to
    }

    /// Whether it is only a user's commit on the session's branch, which changes no file.
    pub(super) fn is_plain_commit(&self) -> bool {
        let is_commit = |action: &Action| matches!(action, Action::Commit | Action::Amend);
        self.by.is_none() && self.from.head == self.to.head && self.actions.iter().all(is_commit)
    }

    /// Whether it changed files, according to its actions.
    pub(super) fn changes_files(&self) -> bool {
        let are_commits = !self.from.at.is_none() && !self.to.at.is_none() && self.from.at != self.to.at;
        are_commits && self.actions.iter().any(|action| action.changes_files())
    }

    /// Combines it with the next one.
    pub(super) fn followed_by(self, next: Self) -> Self {
        let mut actions = self.actions;
        for action in next.actions {
            if !actions.contains(&action) {
                actions.push(action);
            }
        }
        Self { from: self.from, actions, ..next }
    }

    /// The event for it. `log_bytes` distinguishes repetitions within one second.
    pub(super) fn into_finding(
        self,
        changed: &Changed,
        operation: Option<&Operation>,
        log_bytes: u64,
        context: &Context<'_>,
    ) -> Finding {
        let name = format!("{}..{}@{}.{log_bytes}", self.from.at.short(), self.to.at.short(), self.at);
        let mut payload = Map::new();
        let mut say = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                payload.insert(key.to_owned(), Value::from(value));
            }
        };
        let (from, to) = (self.from.label(&self.to), self.to.label(&self.from));
        let action = self.actions.iter().map(Action::to_string).collect::<Vec<_>>().join(", ");
        let at = rfc_3339(self.at, self.zone);
        say("said", Some(self.sentence(&action, operation, context)));
        say("branch", self.to.branch().map(str::to_owned));
        say("from", from);
        say("to", to);
        say("action", Some(action));
        say("at", Some(at));
        say("by", self.by);
        say("operation", operation.map(|operation| operation.name.clone()));
        changed.put_into(&mut payload, context.workspace);
        finding("git.head.moved", name, payload)
    }

    /// A sentence such as `main -> fix-cart (checkout 14:02)` and
    /// `main 1a2b3c4 -> 5d6e7f8 (pull 14:02 by session b1c2)`.
    fn sentence(&self, action: &str, operation: Option<&Operation>, context: &Context<'_>) -> String {
        let places = [self.from.label(&self.to), self.to.label(&self.from)];
        let places = places.into_iter().flatten().collect::<Vec<_>>().join(" -> ");
        let branch = self.to.branch().filter(|_| self.from.head == self.to.head);
        let branch = branch.map(|branch| format!("{branch} ")).unwrap_or_default();
        let time = time_of_day(self.at, self.zone, context.now);
        let by = author_words(self.by.as_deref());
        let unfinished = operation.map(|operation| format!(", {} not finished", operation.name));
        format!("{branch}{places} ({action} {time}{by}{})", unfinished.unwrap_or_default())
    }
}

impl Position {
    fn branch(&self) -> Option<&str> {
        match &self.head {
            Head::Branch(name) => Some(name),
            Head::Detached | Head::Unknown => None,
        }
    }

    /// The branch, unless `other` has the same one; else the commit, if there is one.
    fn label(&self, other: &Self) -> Option<String> {
        let commit = || (!self.at.is_none()).then(|| self.at.short().to_owned());
        self.branch().filter(|_| self.head != other.head).map(str::to_owned).or_else(commit)
    }
}

impl Changed {
    /// The files of `paths` that were changed since `since_s` and are manifests or known to the
    /// session. `paths` are relative to the top of `repository`.
    ///
    /// The time is needed because a reset can leave all files unchanged, and a session's own
    /// earlier change may differ between two commits.
    pub(super) fn find<'f>(
        paths: &[String],
        repository: &Repository,
        since_s: u64,
        files: impl Iterator<Item = &'f str>,
        facts: &dyn Facts,
    ) -> Self {
        let since_ns = i64::try_from(since_s.saturating_sub(CHECKOUT_SECONDS_MAX))
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000_000);
        let is_changed = |path: &Path| match facts.entry(path) {
            Entry::Absent => true,
            Entry::File(found) => found.changed_ns >= since_ns,
            Entry::Folder | Entry::Other | Entry::Unknown => false,
        };
        let differing: SortedSet<&str> = paths.iter().map(String::as_str).collect();
        let is_known =
            |path: &&str| relative(path, &repository.top).is_some_and(|path| differing.contains(path));
        let known: SortedSet<Arc<str>> =
            files.filter(is_known).filter(|path| is_changed(Path::new(path))).map(Arc::from).collect();
        let top = Path::new(&repository.top);
        let is_manifest = |path: &&&str| {
            let name = path.rsplit('/').next().unwrap_or(path);
            MANIFESTS.binary_search(&name).is_ok()
        };
        // Files of the whole project are named first.
        let manifests: SortedMap<(usize, &str), &str> = differing
            .iter()
            .filter(is_manifest)
            .map(|path| ((path.matches('/').count(), *path), *path))
            .collect();
        let manifests = manifests
            .into_values()
            .take(MANIFESTS_LOOKED_MAX)
            .filter(|path| is_changed(&top.join(path)))
            .filter(|path| !known.iter().any(|known| relative(known, &repository.top) == Some(path)))
            .take(MANIFESTS_MAX)
            .map(|path| super::reflog::shown_line(path, PATH_CHARS_MAX))
            .collect();
        Self { known, manifests }
    }

    fn put_into(&self, payload: &mut Map<String, Value>, workspace: &str) {
        if !self.known.is_empty() {
            let shown: Vec<String> = self
                .known
                .iter()
                .take(FILES_MAX)
                .map(|path| shown(path, workspace, PATH_CHARS_MAX))
                .collect();
            payload.insert("changed_that_you_read".to_owned(), json!(shown));
        }
        let more = self.known.len().saturating_sub(FILES_MAX);
        if more > 0 {
            payload.insert("more".to_owned(), json!(more));
        }
        if !self.manifests.is_empty() {
            payload.insert("manifests".to_owned(), json!(self.manifests));
        }
    }
}

/// An operation that began or ended without a move of HEAD, such as a merge with a conflict.
pub(super) fn of_operation(event_type: &'static str, operation: &Operation, by: Option<&str>) -> Finding {
    let what = if event_type.ends_with(".ended") { "ended" } else { "under way" };
    let mut payload = said(format!("{} {what}", operation.name), by);
    payload.insert("operation".to_owned(), json!(operation.name));
    payload.extend(by.map(|by| ("by".to_owned(), json!(by))));
    finding(event_type, format!("{}@{}", operation.name, operation.began_ms), payload)
}

/// A stash that removed changes of known files, or restored them.
pub(super) fn of_stash(
    action: &str,
    stash: &Id,
    name: &str,
    by: Option<&str>,
    changed: &Changed,
    workspace: &str,
) -> Finding {
    let mut payload = said(format!("stash {action}"), by);
    payload.insert("action".to_owned(), json!(action));
    payload.insert("stash".to_owned(), json!(stash.short()));
    payload.extend(by.map(|by| ("by".to_owned(), json!(by))));
    changed.put_into(&mut payload, workspace);
    finding("git.stash.changed", format!("{action}:{}@{name}", stash.short()), payload)
}

/// A payload with a sentence that ends with the author, if known.
fn said(what: String, by: Option<&str>) -> Map<String, Value> {
    let by = by.map(|by| format!(" (by {by})")).unwrap_or_default();
    Map::from_iter([("said".to_owned(), json!(what + &by))])
}

fn finding(event_type: &'static str, name: String, payload: Map<String, Value>) -> Finding {
    Finding { event_type, severity: Severity::Info, name, payload: Value::Object(payload) }
}

fn author_words(session: Option<&str>) -> String {
    session.map(|session| format!(" by {session}")).unwrap_or_default()
}

/// The minute in the author's time zone, with the date if it is not today.
fn time_of_day(at_s: u64, zone: i16, now: Timestamp) -> String {
    let local = |at: Timestamp| at.local(i32::from(zone) * 60);
    let (at, now) = (local(Timestamp::from_millis(at_s.saturating_mul(1_000))), local(now));
    let minute = at.get(..16).unwrap_or(&at);
    match minute.split_once(' ') {
        Some((date, time)) if now.starts_with(date) => time.to_owned(),
        Some(_) | None => minute.to_owned(),
    }
}

/// A time in the author's time zone.
fn rfc_3339(at_s: u64, zone: i16) -> String {
    let local_s = at_s.saturating_add_signed(i64::from(zone) * 60);
    let local = Timestamp::from_millis(local_s.saturating_mul(1_000)).to_string();
    let (sign, minutes) = (if zone < 0 { '-' } else { '+' }, zone.unsigned_abs());
    match local.strip_suffix('Z') {
        Some(local) => format!("{local}{sign}{:02}:{:02}", minutes / 60, minutes % 60),
        None => local,
    }
}

/// Most of a session's own moves that are kept, so that other sessions can attribute them.
pub(super) const OWN_MAX: usize = 8;

/// The known state of a session's repository; empty before the first look.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The folder that was searched for the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workspace: Option<Arc<str>>,
    /// The repository, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repository: Option<Repository>,
    /// The session's own last moves, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) own: Vec<Last>,
    /// Start of its running background command that may move HEAD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) background_since: Option<Timestamp>,
    /// Commits of the user that wait for the start of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) open: Option<Moved>,
}

impl Known {
    /// The repository's folders, if there is one.
    pub(in crate::probe) fn folders(&self) -> impl Iterator<Item = &str> {
        self.repository.iter().flat_map(Repository::folders)
    }

    /// The top folder of the repository's files, if there is one.
    pub(in crate::probe) fn top(&self) -> Option<&str> {
        self.repository.as_ref().map(|repository| repository.top.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_is_found_by_its_name() {
        assert!(MANIFESTS.is_sorted());
    }

    #[test]
    fn times_are_shown_in_the_authors_zone() {
        let now = Timestamp::from_millis(1_795_564_800_000);
        let at = now.as_millis() / 1_000;
        for (at, zone, expected_rfc, expected) in [
            (at, 0, "2026-11-25T00:00:00+00:00", "00:00"),
            (at, 60, "2026-11-25T01:00:00+01:00", "01:00"),
            (at, -210, "2026-11-24T20:30:00-03:30", "20:30"),
            (at - 3_600, 0, "2026-11-24T23:00:00+00:00", "2026-11-24 23:00"),
        ] {
            assert_eq!(rfc_3339(at, zone), expected_rfc);
            assert_eq!(time_of_day(at, zone, now), expected);
        }
        assert!(!rfc_3339(u64::MAX, 60).is_empty());
    }
}

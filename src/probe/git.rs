//! The repository that a session works in: HEAD, the stash, and operations in several steps, as somebody else than the session left
//! them.
//!
//! What a session knows of its repository is the state in which it saw it last. When git has logged more since, the moves are summed up
//! to one finding from where HEAD was to where it is, with the files that the session knows and that changed with it. The session's own
//! moves are noted in silence, and so are those that lead back to where they began. A commit changes no file, so the user's commits
//! on the session's own branch wait for the beginning of a turn.
//!
//! An exchange at which nothing happened costs two questions. A folder is searched for a repository once; a session that goes on in
//! another folder of its repository goes on with what it knows.

mod author;
mod finding;
mod reflog;
mod reftable;
mod repository;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, path::Path, sync::Arc};

use serde::{Deserialize, Serialize};

use self::{
    author::{Author, Evidence},
    finding::{Changed, Moved, Place},
    reflog::{Action, Entry, Last},
    repository::{Repository, Seen},
};
use super::{Facts, Finding, Moment};
use crate::{notification::InjectionPoint, settings::settings, time::Timestamp};

/// Most moves of a session's own that are remembered, so that other sessions know whose they were.
const OWN_MAX: usize = 8;

settings! {}

/// What a session knows of its repository; nothing before the first look.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The folder that was searched for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<Arc<str>>,
    /// The repository; `None` when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<Repository>,
    /// The last moves that the session made itself, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    own: Vec<Last>,
    /// Since when a command of its own runs in the background that may move HEAD.
    #[serde(skip_serializing_if = "Option::is_none")]
    background_since: Option<Timestamp>,
    /// Commits of the user that wait for the beginning of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<Moved>,
}

/// Whether `workspace` is in a repository; nothing is found for a session that works elsewhere.
pub fn has_repository(workspace: &str, facts: &dyn Facts) -> bool {
    repository::find(workspace, facts).is_some()
}

impl Known {
    /// The repository's folders, if there is one.
    pub(super) fn folders(&self) -> impl Iterator<Item = &str> {
        self.repository.iter().flat_map(Repository::folders)
    }

    /// The folder that the files of the repository are in, if there is one.
    pub(super) fn top(&self) -> Option<&str> {
        self.repository.as_ref().map(|repository| repository.top.as_str())
    }
}

/// When the calls that ended with an exchange can have run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Since when.
    pub(super) since: Timestamp,
}

/// What a look at the repository gives.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// What the session knows from now on; `None` when that stays as it was.
    pub(super) known: Option<Known>,
    pub(super) findings: Vec<Finding>,
    /// The files of the session whose change the moves explain, by absolute paths: a finding says so, or its own command did it.
    pub(super) explained: BTreeSet<Arc<str>>,
}

/// Looks at the repository. `files`: the files that the session knows, by absolute paths.
pub(super) fn look(
    known: &Known,
    window: Window,
    moment: &Moment<'_>,
    files: &mut dyn Iterator<Item = &str>,
    facts: &dyn Facts,
) -> Looked {
    let Some(workspace) = moment.workspace else { return Looked::default() };
    let is_searched = known.workspace.as_deref() == Some(workspace);
    let before = known.repository.as_ref().filter(|before| is_searched || before.holds(workspace, facts));
    let Some(before) = before else { return take_note(known, workspace, facts) };
    let background_since = author::background_since(known, window, moment);
    let is_unchanged = is_searched
        && background_since == known.background_since
        && (known.open.is_none() || moment.point != InjectionPoint::TurnStart)
        && before.is_unmoved(facts)
        && (!may_have_begun(before, moment) || before.operation == before.find_operation(facts));
    if is_unchanged {
        return Looked::default();
    }
    let Some(seen) = before.see_again(facts) else {
        // It was removed.
        return Looked { known: Some(Known { repository: None, ..known.clone() }), ..Looked::default() };
    };
    let known = Known { workspace: Some(workspace.into()), background_since, ..known.clone() };
    let evidence = Evidence::new(&known, window, moment);
    let mut look = Look {
        moment,
        facts,
        workspace,
        before,
        seen: &seen,
        evidence,
        files,
        collected: None,
        next: Known { repository: Some(seen.repository.clone()), ..known },
        looked: Looked::default(),
    };
    let is_said = look.head();
    look.stash();
    if !is_said {
        look.operation();
    }
    Looked { known: Some(look.next), ..look.looked }
}

/// Notes the repository that `workspace` is in, if any.
fn take_note(known: &Known, workspace: &str, facts: &dyn Facts) -> Looked {
    let is_searched = known.workspace.as_deref() == Some(workspace);
    if is_searched && !repository::has_git(Path::new(workspace), facts) {
        return Looked::default();
    }
    let next = Known {
        workspace: Some(workspace.into()),
        repository: repository::find(workspace, facts).map(|seen| seen.repository),
        own: known.own.clone(),
        background_since: known.background_since,
        open: None,
    };
    Looked { known: (next != *known).then_some(next), ..Looked::default() }
}

/// Whether an operation can have begun or ended without HEAD moving, as a merge does that meets a conflict. It is asked for only then.
fn may_have_begun(before: &Repository, moment: &Moment<'_>) -> bool {
    let has_command = moment.calls.iter().any(|call| call.command.is_some());
    moment.point == InjectionPoint::TurnStart || before.operation.is_some() || has_command
}

struct Look<'a, 'f> {
    moment: &'a Moment<'a>,
    facts: &'a dyn Facts,
    workspace: &'a str,
    before: &'a Repository,
    seen: &'a Seen,
    evidence: Evidence<'a>,
    files: &'a mut dyn Iterator<Item = &'f str>,
    /// The files, once they were asked for.
    collected: Option<Vec<&'f str>>,
    next: Known,
    looked: Looked,
}

impl Look<'_, '_> {
    /// Looks at HEAD; says whether a finding tells of it.
    fn head(&mut self) -> bool {
        let moves = self.moves();
        let timed = moves.iter().map(|entry| (entry, self.time_of(entry)));
        let authors: Vec<Author> =
            timed.map(|(entry, at)| self.evidence.author_of(entry, at.saturating_mul(1_000))).collect();
        for (entry, _) in moves.iter().zip(&authors).filter(|(_, author)| **author == Author::Own) {
            author::remember(&mut self.next.own, entry);
        }
        self.explain_own(&moves, &authors);
        let open = self.next.open.take();
        let since = moves.iter().zip(&authors).find(|(_, author)| **author != Author::Own);
        let since = since.map_or(0, |(entry, _)| self.time_of(entry));
        match (open, self.sum_up(&moves, &authors)) {
            (None, None) => false,
            (Some(open), None) => self.report_or_keep(open, since),
            (None, Some(moved)) => self.report_or_keep(moved, since),
            (Some(open), Some(moved)) if moved.by.is_none() => {
                self.report_or_keep(open.followed_by(moved), since)
            }
            (Some(open), Some(moved)) => {
                self.next.open = Some(open);
                self.report(moved, since);
                true
            }
        }
    }

    /// The moves since the session saw the repository last, oldest first.
    ///
    /// Shape: where no log tells of them, one that leads from the state then to the state now. Of more than the end of the log holds,
    /// those at its end.
    fn moves(&self) -> Vec<Entry> {
        let (before, now) = (self.before, &self.seen.repository);
        let moves = &self.seen.moves;
        let is_at_begin = moves.first().is_some_and(|first| first.old == before.at);
        let behind = match &before.last {
            Some(last) => reflog::position_behind(moves, last),
            None => moves.iter().rposition(|entry| entry.new == before.at).map(|at| at + 1),
        };
        let behind = behind.or_else(|| (now.has_longer_log_than(before) || is_at_begin).then_some(0));
        let logged = behind.and_then(|behind| moves.get(behind..)).unwrap_or_default();
        let is_same = (&before.head, &before.at) == (&now.head, &now.at);
        if !logged.is_empty() || is_same {
            return logged.to_vec();
        }
        vec![Entry {
            old: before.at.clone(),
            new: now.at.clone(),
            at: now.refs_ms().unwrap_or(self.moment.now.as_millis()) / 1_000,
            zone: i16::try_from(self.moment.utc_offset / 60).unwrap_or(0),
            action: if before.head == now.head { Action::Update } else { Action::Checkout },
            head: Some(now.head.clone()),
        }]
    }

    /// When a move was made, in seconds since 1970: as it says, unless that was before the last look at the log, or is after its last
    /// change. Whoever sets `GIT_COMMITTER_DATE` dates moves too.
    fn time_of(&self, entry: &Entry) -> u64 {
        let Some(until) = self.seen.repository.log_ms() else { return entry.at };
        let since = self.before.log_ms().unwrap_or(0);
        let is_credible = entry.at + 1 >= since / 1_000 && entry.at <= until / 1_000 + 1;
        if is_credible { entry.at } else { until / 1_000 }
    }

    /// One move from before the first to after the last that somebody else made; `None` when there are none or they led back.
    fn sum_up(&self, moves: &[Entry], authors: &[Author]) -> Option<Moved> {
        let is_foreign = |author: &Author| *author != Author::Own;
        let first = authors.iter().position(is_foreign)?;
        let last = authors.iter().rposition(is_foreign)?;
        let (first_move, last_move) = (moves.get(first)?, moves.get(last)?);
        let head_at = |count: usize| {
            let heads = moves.iter().take(count).rev();
            heads.filter_map(|entry| entry.head.as_ref()).next().unwrap_or(&self.before.head).clone()
        };
        let is_newest = last + 1 == moves.len();
        let head = if is_newest { self.seen.repository.head.clone() } else { head_at(last + 1) };
        let mut actions = Vec::new();
        let mut authors_of = BTreeSet::new();
        for (entry, author) in moves.iter().zip(authors).filter(|(_, author)| is_foreign(author)) {
            authors_of.insert(author.name());
            // A stash resets HEAD to where it is.
            let is_move = entry.old != entry.new || entry.head.is_some();
            if is_move && !actions.contains(&entry.action) {
                actions.push(entry.action);
            }
        }
        let moved = Moved {
            from: Place { head: head_at(first), at: first_move.old.clone() },
            to: Place { head, at: last_move.new.clone() },
            actions,
            at: self.time_of(last_move),
            zone: last_move.zone,
            by: if authors_of.len() == 1 {
                authors_of.pop_first().flatten().map(str::to_owned)
            } else {
                None
            },
        };
        (!moved.is_undone()).then_some(moved)
    }

    fn report_or_keep(&mut self, moved: Moved, since: u64) -> bool {
        if moved.is_undone() {
            return false;
        }
        if moved.is_plain_commit() && self.moment.point != InjectionPoint::TurnStart {
            self.next.open = Some(moved);
            return false;
        }
        self.report(moved, since);
        true
    }

    fn report(&mut self, moved: Moved, since: u64) {
        let changed = if moved.changes_files() {
            self.changed_between(moved.from.at.as_str(), moved.to.at.as_str(), since)
        } else {
            Changed::default()
        };
        let now = &self.seen.repository;
        let context = finding::Context { workspace: self.workspace, now: self.moment.now };
        let finding = moved.into_finding(&changed, now.operation.as_ref(), now.log_bytes(), &context);
        self.looked.findings.push(finding);
        self.looked.explained.extend(changed.known);
    }

    /// What the session's own moves changed is no news, also where its command goes on in the background; that of others is known
    /// by its words.
    fn explain_own(&mut self, moves: &[Entry], authors: &[Author]) {
        let own = || moves.iter().zip(authors).filter(|(_, author)| **author == Author::Own);
        let changes = own().any(|(entry, _)| entry.action.changes_files() && entry.old != entry.new);
        let (Some((first, _)), Some((last, _))) = (own().next(), own().next_back()) else { return };
        if changes && !self.evidence.has_moving_call && !first.old.is_none() && !last.new.is_none() {
            let since = self.time_of(first);
            let changed = self.changed_between(first.old.as_str(), last.new.as_str(), since);
            self.looked.explained.extend(changed.known);
        }
    }

    /// The files that differ between two commits and were changed since a second. Nothing when that cannot be said.
    fn changed_between(&mut self, old: &str, new: &str, since_s: u64) -> Changed {
        let (repository, facts) = (&self.seen.repository, self.facts);
        let Some(paths) = facts.changed_between(Path::new(&repository.top), old, new) else {
            return Changed::default();
        };
        let files = self.collected.get_or_insert_with(|| (&mut *self.files).collect());
        let is_explained = |path: &&str| self.looked.explained.contains(*path);
        let files = files.iter().copied().filter(|path| !is_explained(path));
        Changed::find(&paths, repository, since_s, files, facts)
    }

    /// Looks at the stash. What is reported is what somebody else put there or took from it if that changed files which the session knows;
    /// another stash is none of its business.
    fn stash(&mut self) {
        let now = &self.seen.repository;
        if now.stash == self.before.stash {
            return;
        }
        let holds = |stash: &reflog::Id| self.seen.stashes.iter().any(|entry| entry.new == *stash);
        let lost = self.before.stash.as_ref().filter(|stash| !holds(stash));
        let at_s = now.stash_ms().map(|ms| ms / 1_000);
        let (action, stash) = match (lost, &now.stash) {
            (Some(lost), _) => ("popped", lost.clone()),
            (None, Some(newest)) => ("pushed", newest.clone()),
            (None, None) => return,
        };
        let pushed = self.seen.stashes.last().filter(|_| action == "pushed");
        let author = match (pushed, at_s) {
            (Some(entry), _) => self.evidence.author_of(entry, entry.at.saturating_mul(1_000)),
            (None, Some(at_s)) => self.evidence.author_at(at_s.saturating_mul(1_000)),
            // With the last stash its log goes, and the time with it.
            (None, None) => self.evidence.author_lately(),
        };
        if author == Author::Own {
            if let Some(entry) = pushed {
                author::remember(&mut self.next.own, entry);
            }
            return;
        }
        let since_s = at_s.unwrap_or(self.evidence.since_s());
        let head = now.at.clone();
        let changed = self.changed_between(head.as_str(), stash.as_str(), since_s);
        if changed.known.is_empty() {
            return;
        }
        let name = format!("{}.{}", head.short(), at_s.unwrap_or_default());
        let by = author.name();
        let finding = finding::of_stash(action, &stash, &name, by, &changed, self.workspace);
        self.looked.findings.push(finding);
        self.looked.explained.extend(changed.known);
    }

    /// Looks at operations in several steps, when no move of HEAD tells of one.
    fn operation(&mut self) {
        let (before, now) = (&self.before.operation, &self.seen.repository.operation);
        if before == now {
            return;
        }
        let (event_type, operation, author) = match (before, now) {
            (_, Some(now)) => ("git.operation.started", now, self.evidence.author_at(now.began_ms)),
            (Some(before), None) => ("git.operation.ended", before, self.evidence.author_lately()),
            (None, None) => return,
        };
        if author != Author::Own {
            self.looked.findings.push(finding::of_operation(event_type, operation, author.name()));
        }
    }
}

//! The repository of a session: changes of HEAD, the stash, and multi-step operations that were not
//! made by the session.
//!
//! A session knows the state of its repository at its last look. Further moves in git's log are
//! combined into one finding from the old HEAD to the new one, with the known files that they
//! changed. The session's own moves are noted without a finding, and so are moves that lead back to
//! their start. A commit changes no file, so the user's commits on the session's own branch wait
//! until a turn starts.
//!
//! An exchange without a change costs two queries. A folder is searched for a repository once; a
//! session that moves to another folder of its repository keeps its state.

mod author;
mod finding;
mod reflog;
mod repository;

#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

pub(super) use self::author::may_move;
pub use self::finding::Known;
use self::{
    author::{Author, Evidence},
    finding::{Changed, Moved, Position},
    reflog::Action,
    repository::{Repository, Seen},
};
use super::{Entry, Facts, Finding, Moment, facts::ContentHash};
use crate::{notification::InjectionPoint, settings::settings, sorted::SortedSet};

settings! {
    /// Notifies an agent when somebody else moves its repository: switch, pull, rebase, reset,
    /// commit, stash (`git.**`). Two files of git are read; nothing is watched.
    enabled: bool = true, flag();
}

/// Whether `workspace` is in a repository; without one there are no findings.
pub fn has_repository(workspace: &str, facts: &dyn Facts) -> bool {
    repository::find(workspace, facts).is_some()
}

/// Last change of the known repository's HEAD or stash, in milliseconds since 1970.
pub(super) fn last_change_ms(known: &Known, facts: &dyn Facts) -> Option<u64> {
    known.repository.as_ref()?.last_change_ms(facts)
}

/// The result of a look at the repository.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// The new known state; `None` if unchanged.
    pub(super) known: Option<Known>,
    pub(super) findings: Vec<Finding>,
    /// Known files whose change is explained by the moves, by absolute path: a finding names them,
    /// or the session's own command changed them.
    pub(super) explained: SortedSet<Arc<str>>,
}

/// The session's known files.
pub(super) struct KnownFiles<'a, 'f> {
    pub(super) paths: &'a mut dyn Iterator<Item = &'f str>,
    /// Whether the session knows a file with this content; `None` means deleted.
    pub(super) has: &'a dyn Fn(&str, Option<ContentHash>) -> bool,
}

pub(super) fn look(
    known: &Known,
    moment: &Moment<'_>,
    files: KnownFiles<'_, '_>,
    facts: &dyn Facts,
) -> Looked {
    let Some(workspace) = moment.workspace else { return Looked::default() };
    let is_searched = known.workspace.as_deref() == Some(workspace);
    let before = known.repository.as_ref().filter(|before| is_searched || before.holds(workspace, facts));
    let Some(before) = before else { return take_note(known, workspace, facts) };
    let background_since = author::background_since(known, moment);
    let is_unchanged = is_searched
        && background_since == known.background_since
        && (known.open.is_none() || moment.point != InjectionPoint::TurnStart)
        && before.is_unmoved(facts)
        && (!may_have_begun(before, moment) || before.operation == before.find_operation(facts));
    if is_unchanged {
        return Looked::default();
    }
    let Some(seen) = before.see_again(facts) else {
        // The repository was deleted.
        return Looked { known: Some(Known { repository: None, ..known.clone() }), ..Looked::default() };
    };
    let known = Known { workspace: Some(workspace.into()), background_since, ..known.clone() };
    let evidence = Evidence::new(&known, moment);
    let mut look = Look {
        moment,
        facts,
        workspace,
        before,
        seen: &seen,
        evidence,
        files: &mut *files.paths,
        has: files.has,
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

/// Notes the repository of `workspace`, if any.
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

/// Whether an operation may have begun or ended without a move of HEAD, such as a merge with a
/// conflict. Only then is it checked.
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
    has: &'a dyn Fn(&str, Option<ContentHash>) -> bool,
    /// The files; filled at the first use.
    collected: Option<Vec<&'f str>>,
    next: Known,
    looked: Looked,
}

impl Look<'_, '_> {
    /// Checks HEAD; returns whether there is a finding about it.
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

    /// The moves since the session's last look at the repository, oldest first.
    ///
    /// Shape: without a log, one move from the old state to the current one. Of a log that is
    /// longer than the read limit, the last moves.
    fn moves(&self) -> Vec<reflog::Entry> {
        let (before, now) = (self.before, &self.seen.repository);
        let moves = &self.seen.moves;
        let is_at_begin = moves.first().is_some_and(|first| first.old == before.at);
        let behind = match &before.last {
            Some(last) => reflog::position_behind(moves, last),
            None => moves.iter().rposition(|entry| entry.new == before.at).map(|at| at + 1),
        };
        let behind = behind.or_else(|| (now.has_longer_log_than(before) || is_at_begin).then_some(0));
        let logged = behind.map_or(&[][..], |behind| moves.split_at(behind).1);
        let is_same = (&before.head, &before.at) == (&now.head, &now.at);
        if !logged.is_empty() || is_same {
            return logged.to_vec();
        }
        vec![reflog::Entry {
            old: before.at.clone(),
            new: now.at.clone(),
            at: now.refs_ms().unwrap_or(self.moment.now.as_millis()) / 1_000,
            zone: i16::try_from(self.moment.utc_offset / 60).unwrap_or(0),
            action: if before.head == now.head { Action::Update } else { Action::Checkout },
            head: Some(now.head.clone()),
        }]
    }

    /// Time of a move, in seconds since 1970: from its entry, unless that is before the last look
    /// at the log or after the log's last change. `GIT_COMMITTER_DATE` also changes the dates of
    /// moves.
    fn time_of(&self, entry: &reflog::Entry) -> u64 {
        let Some(until) = self.seen.repository.log_ms() else { return entry.at };
        let since = self.before.log_ms().unwrap_or(0);
        let is_credible = entry.at + 1 >= since / 1_000 && entry.at <= until / 1_000 + 1;
        if is_credible { entry.at } else { until / 1_000 }
    }

    /// Combines moves into one: from before the first to after the last move of another author;
    /// `None` without such moves, or if they lead back to the start.
    fn sum_up(&self, moves: &[reflog::Entry], authors: &[Author]) -> Option<Moved> {
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
        let mut authors_of = SortedSet::new();
        for (entry, author) in moves.iter().zip(authors).filter(|(_, author)| is_foreign(author)) {
            authors_of.insert(author.name());
            // A stash resets HEAD to the same commit.
            let is_move = entry.old != entry.new || entry.head.is_some();
            if is_move && !actions.contains(&entry.action) {
                actions.push(entry.action);
            }
        }
        let moved = Moved {
            from: Position { head: head_at(first), at: first_move.old.clone() },
            to: Position { head, at: last_move.new.clone() },
            actions,
            at: self.time_of(last_move),
            zone: last_move.zone,
            by: if authors_of.len() == 1 {
                authors_of.first().copied().flatten().map(str::to_owned)
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

    /// Notes files changed by the session's own moves as explained, even if its command continues
    /// in the background; commands identify the moves of others.
    fn explain_own(&mut self, moves: &[reflog::Entry], authors: &[Author]) {
        let own = || moves.iter().zip(authors).filter(|(_, author)| **author == Author::Own);
        let changes = own().any(|(entry, _)| entry.action.changes_files() && entry.old != entry.new);
        let (Some((first, _)), Some((last, _))) = (own().next(), own().next_back()) else { return };
        if changes && !self.evidence.has_moving_call && !first.old.is_none() && !last.new.is_none() {
            let since = self.time_of(first);
            let changed = self.changed_between(first.old.as_str(), last.new.as_str(), since);
            self.looked.explained.extend(changed.known);
        }
    }

    /// The files that differ between two commits and were changed since `since_s`. Empty if
    /// unknown.
    fn changed_between(&mut self, old: &str, new: &str, since_s: u64) -> Changed {
        let (repository, facts) = (&self.seen.repository, self.facts);
        let Some(paths) = facts.changed_between(&repository.objects(), old, new) else {
            return Changed::default();
        };
        let files = self.collected.get_or_insert_with(|| (&mut *self.files).collect());
        let is_explained = |path: &&str| self.looked.explained.contains(*path);
        // A file that has again what the session knows of it did not change.
        let has = |path: &str| match facts.entry(Path::new(path)) {
            Entry::File(print) => {
                let hash = facts.hash(Path::new(path), &print);
                hash.is_some() && (self.has)(path, hash)
            }
            Entry::Absent => (self.has)(path, None),
            Entry::Folder | Entry::Other | Entry::Unknown => false,
        };
        let files = files.iter().copied().filter(|path| !is_explained(path));
        let mut changed = Changed::find(&paths, repository, since_s, files, facts);
        changed.known.retain(|path| !has(path));
        changed
    }

    /// Checks the stash. A finding reports an entry that another author added or removed if it
    /// changed known files; other entries are ignored.
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
            // The log, and with it the time, is removed with the last stash.
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

    /// Checks multi-step operations, unless a move of HEAD reports one.
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

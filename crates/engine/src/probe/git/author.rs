//! The author of a move of HEAD: the session itself, another session, or the user.
//!
//! git does not record the process. The sessions' notes of their own moves are exact. Otherwise the
//! time decides. A move during a command of the session that may move HEAD is its own. A move while
//! only one other session had a call is that session's.

use super::{
    finding::{Known, OWN_MAX},
    reflog::{Entry, Last},
};
use journal::time::Timestamp;

use crate::{
    call::command::{Step, steps},
    event::SessionId,
    probe::{Moment, OtherSession, facts::name_towards},
};

/// How far a move's time may differ from its log entry: git records whole seconds, and reads the
/// clock twice.
const ENTRY_MS: u64 = 1_000;
/// How long a background command of the session may move HEAD; later moves count as the user's.
///
/// Source: the slowest hooks and pushes that agents leave in the background end within minutes, and
/// their end is not reported.
const BACKGROUND_MS_MAX: u64 = 600_000;

/// Programs whose purpose is to change a repository.
const PROGRAMS: [&str; 10] = ["git", "gh", "glab", "gt", "hub", "jj", "sl", "stg", "cz", "lazygit"];

/// Commands of git that move neither HEAD nor the stash.
const UNMOVING: [&str; 44] = [
    "add",
    "annotate",
    "apply",
    "archive",
    "blame",
    "cat-file",
    "check-ignore",
    "clean",
    "config",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "fetch",
    "for-each-ref",
    "format-patch",
    "fsck",
    "gc",
    "grep",
    "help",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "merge-base",
    "mv",
    "name-rev",
    "notes",
    "pack-refs",
    "push",
    "range-diff",
    "reflog",
    "remote",
    "restore",
    "rev-list",
    "rev-parse",
    "rm",
    "shortlog",
    "show",
    "status",
    "tag",
    "version",
];

/// Options of git before its command that take a value.
const WITH_VALUE: [&str; 6] = ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"];

/// The author of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Author {
    /// The current session, by its own commands.
    Own,
    /// Another session; its name for the current session's agent.
    Session(String),
    /// The user, because it is not a known session.
    User,
}

impl Author {
    /// The name of another session.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Session(name) => Some(name),
            Self::Own | Self::User => None,
        }
    }
}

/// Facts that identify the author.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    session: &'a SessionId,
    /// The time in which the calls of this exchange may have run, in milliseconds since 1970.
    since_ms: u64,
    now_ms: u64,
    /// Whether one of them may have moved HEAD.
    pub(super) has_moving_call: bool,
    background_since: Option<Timestamp>,
    others: &'a [OtherSession<'a>],
}

impl<'a> Evidence<'a> {
    pub(super) fn new(known: &Known, moment: &Moment<'a>) -> Self {
        let moves = |command: &String| may_move(command);
        Self {
            session: moment.session,
            since_ms: moment.calls_since.as_millis(),
            now_ms: moment.now.as_millis(),
            has_moving_call: moment.calls.iter().filter_map(|call| call.command.as_ref()).any(moves),
            background_since: known.background_since,
            others: moment.others,
        }
    }

    /// Author of a logged move, `at_ms` after 1970.
    pub(super) fn author_of(&self, entry: &Entry, at_ms: u64) -> Author {
        let is_noted = |known: &Known| !entry.new.is_none() && known.own.iter().any(|own| entry.is(own));
        match self.others.iter().find(|other| is_noted(other.git)) {
            Some(other) => Author::Session(self.name_of(other)),
            None => self.author_at(at_ms),
        }
    }

    /// Author of an action `at_ms` after 1970.
    pub(super) fn author_at(&self, at_ms: u64) -> Author {
        let is_within =
            |since: u64, until: u64| at_ms + 2 * ENTRY_MS > since && at_ms < until.saturating_add(ENTRY_MS);
        let is_in_background = self
            .background_since
            .is_some_and(|since| is_within(since.as_millis(), since.as_millis() + BACKGROUND_MS_MAX));
        if is_in_background || self.has_moving_call && is_within(self.since_ms, self.now_ms) {
            return Author::Own;
        }
        let mut calling = self.others.iter().filter(|other| other.is_open).filter(|other| {
            other.calling_since.is_some_and(|since| is_within(since.as_millis(), self.now_ms))
        });
        // With two sessions in calls, the author is unknown.
        match (calling.next(), calling.next()) {
            (Some(other), None) => Author::Session(self.name_of(other)),
            (None | Some(_), _) => Author::User,
        }
    }

    /// Author of an action at an unknown time.
    pub(super) fn author_lately(&self) -> Author {
        self.author_at(self.now_ms)
    }

    /// Earliest start of this exchange's calls, in seconds since 1970.
    pub(super) fn since_s(&self) -> u64 {
        self.since_ms / 1_000
    }

    fn name_of(&self, other: &OtherSession<'_>) -> String {
        name_towards(self.session, other.session)
    }
}

/// Start of the background command that may move HEAD: of this exchange, else of an earlier one.
pub(super) fn background_since(known: &Known, moment: &Moment<'_>) -> Option<Timestamp> {
    let mut commands = moment.calls.iter().filter(|call| call.in_background);
    let is_moving = commands.any(|call| {
        call.command.as_deref().is_some_and(|command| {
            steps(command).iter().any(|step| is_of_repositories(step.program()) && step_may_move(step))
        })
    });
    if is_moving { Some(moment.calls_since) } else { known.background_since }
}

/// Whether `command` may move HEAD or the stash.
pub(in crate::probe) fn may_move(command: &str) -> bool {
    steps(command).iter().any(step_may_move)
}

fn step_may_move(step: &Step) -> bool {
    if step.program() != "git" {
        return step.may_write();
    }
    let mut words = step.words.iter().map(String::as_str).skip_while(|word| !is_program(word, "git")).skip(1);
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return !UNMOVING.contains(&word);
        }
    }
    false
}

fn is_program(word: &str, name: &str) -> bool {
    word.rsplit('/').next() == Some(name)
}

fn is_of_repositories(program: &str) -> bool {
    PROGRAMS.contains(&program) || program.starts_with("git-")
}

/// Adds a move to those by which other sessions can attribute it; the oldest is evicted beyond the
/// limit.
pub(super) fn remember(own: &mut Vec<Last>, entry: &Entry) {
    let last = entry.last();
    if entry.new.is_none() || own.contains(&last) {
        return;
    }
    own.push(last);
    let surplus = own.len().saturating_sub(OWN_MAX);
    own.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_reads_or_tests_moves_nothing() {
        for command in [
            "git status",
            "git -C sub -c core.pager=cat --no-pager log --oneline | head",
            "cargo test && git diff HEAD~1",
            "GIT_PAGER=cat git show",
            "git push origin main",
            "cat a.rs",
            "git",
        ] {
            assert!(!may_move(command), "{command}");
        }
        for command in [
            "git checkout main",
            "cd x && git -C sub commit -am x",
            "/usr/bin/git stash pop",
            "git branch -m x",
            "git st",
            "gh pr checkout 4",
            "jj new",
            "gt submit",
            "./release.sh",
            "sh -c 'git commit'",
            "make release",
            "git status; git pull",
        ] {
            assert!(may_move(command), "{command}");
        }
    }
}

//! Git's log of HEAD: one line per move, appended to `logs/HEAD`.
//!
//! ```text
//! OLD NEW NAME <MAIL> SECONDS ZONE\tcheckout: moving from main to fix-cart
//! ```
//!
//! Only an [`Action`] and a cleaned branch name are taken from a message, because it is text of the
//! commit's author.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{cut_text, strip_text};

/// Most bytes read at the end of a log: some 400 moves.
pub(super) const TAIL_BYTES_MAX: u64 = 64 * 1024;
/// Most characters of a branch name.
const NAME_CHARS_MAX: usize = 80;
/// Displayed digits of an id, as in git.
const SHORT_DIGITS: usize = 7;

/// The id of a commit: 40 or 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Arc<str>", try_from = "String")]
pub(super) struct Id(Arc<str>);

/// An invalid commit id.
#[derive(Debug, thiserror::Error)]
#[error("is not a commit id: 40 or 64 hexadecimal digits")]
pub(super) struct IdError;

impl Id {
    /// Reads 40 or 64 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// The id that git writes if there is no commit.
    pub(super) fn none() -> Self {
        Self("0".repeat(40).into())
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.bytes().all(|digit| digit == b'0')
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The displayed form: the first seven digits.
    pub(super) fn short(&self) -> &str {
        self.0.get(..SHORT_DIGITS).unwrap_or(&self.0)
    }
}

impl From<Id> for Arc<str> {
    fn from(id: Id) -> Self {
        id.0
    }
}

impl TryFrom<String> for Id {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text).ok_or(IdError)
    }
}

/// The target of HEAD.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Head {
    /// Unreadable.
    #[default]
    Unknown,
    /// A commit without a branch.
    Detached,
    /// A branch: its cleaned name without `refs/heads/`.
    Branch(String),
}

impl Head {
    /// A branch of this name, which is untrusted text.
    pub(super) fn branch(name: &str) -> Self {
        let name = name.strip_prefix("refs/heads/").unwrap_or(name);
        Self::Branch(shown_line(name, NAME_CHARS_MAX))
    }
}

/// A text from the repository as one line without control sequences.
pub(super) fn shown_line(text: &str, chars_max: usize) -> String {
    let line = strip_text(text).replace(['\n', '\t'], " ");
    cut_text(line.into(), chars_max).into_owned()
}

/// The cause of a move of HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Action {
    Checkout,
    Commit,
    Amend,
    Merge,
    Pull,
    Reset,
    Rebase,
    CherryPick,
    Revert,
    #[strum(to_string = "am")]
    Apply,
    Rename,
    Clone,
    /// Other, or not logged.
    Update,
}

impl Action {
    /// Parses the start of a message, such as `commit (amend)` of `commit (amend): fix`.
    fn read(message: &str) -> Self {
        let front = message.split(':').next().unwrap_or_default();
        let word = front.split([' ', '(']).next().unwrap_or_default();
        match word {
            "checkout" => Self::Checkout,
            "commit" if front.contains("(amend)") => Self::Amend,
            "commit" if front.contains("(merge)") => Self::Merge,
            "commit" if front.contains("(cherry-pick)") => Self::CherryPick,
            "commit" => Self::Commit,
            "merge" => Self::Merge,
            "pull" => Self::Pull,
            "reset" => Self::Reset,
            "rebase" => Self::Rebase,
            "cherry-pick" => Self::CherryPick,
            "revert" => Self::Revert,
            "am" => Self::Apply,
            "Branch" => Self::Rename,
            "clone" => Self::Clone,
            _ => Self::Update,
        }
    }

    /// Whether it may change files of the work tree. A commit does not.
    pub(super) fn changes_files(self) -> bool {
        !matches!(self, Self::Commit | Self::Amend | Self::Rename)
    }
}

/// One move of HEAD, or of another ref with a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) old: Id,
    pub(super) new: Id,
    /// Its time, in seconds since 1970.
    pub(super) at: u64,
    /// Time zone of its author, in minutes ahead of UTC.
    pub(super) zone: i16,
    pub(super) action: Action,
    /// The new target of HEAD; `None` if unchanged.
    pub(super) head: Option<Head>,
}

/// Identifies a line of a log: the last line that was read, or one of the session's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Last {
    pub(super) old: Id,
    pub(super) new: Id,
    pub(super) at: u64,
}

impl Entry {
    /// Parses a line without its newline; `None` if it is not a log entry.
    fn read(line: &str) -> Option<Self> {
        let (ident, message) = line.split_once('\t').unwrap_or((line, ""));
        let mut ids = ident.splitn(3, ' ');
        let (old, new) = (Id::parse(ids.next()?)?, Id::parse(ids.next()?)?);
        let mut words = ids.next()?.rsplitn(3, ' ');
        let (zone, at) = (read_zone(words.next()?)?, words.next()?.parse().ok()?);
        let action = Action::read(message);
        Some(Self { old, new, at, zone, action, head: read_head(action, message) })
    }

    /// Whether it is that entry. Equal entries within one second lead to the same commit.
    pub(super) fn is(&self, last: &Last) -> bool {
        (&self.old, &self.new, self.at) == (&last.old, &last.new, last.at)
    }

    pub(super) fn last(&self) -> Last {
        Last { old: self.old.clone(), new: self.new.clone(), at: self.at }
    }
}

/// The moves in the end of a log, oldest first.
///
/// Shape: invalid lines are skipped: the first line if `tail` begins inside it, the last one while
/// git writes it.
pub(super) fn read_entries(tail: &[u8]) -> Vec<Entry> {
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = tail.get(..whole).expect("the end of a line, or 0").split(|byte| *byte == b'\n');
    lines.filter_map(|line| Entry::read(&String::from_utf8_lossy(line))).collect()
}

/// Index of the first entry after `last`; `None` if `last` is not among the entries.
pub(super) fn position_behind(entries: &[Entry], last: &Last) -> Option<usize> {
    entries.iter().rposition(|entry| entry.is(last)).map(|at| at + 1)
}

/// Parses `+0130`.
fn read_zone(text: &str) -> Option<i16> {
    let number: i16 = text.parse().ok()?;
    let minutes = number / 100 * 60 + number % 100;
    (minutes.abs() < 24 * 60 && text.len() == 5).then_some(minutes)
}

fn read_head(action: Action, message: &str) -> Option<Head> {
    let (front, rest) = message.split_once(": ").unwrap_or((message, ""));
    if action == Action::Rename {
        return message.rsplit_once(" to ").map(|(_, to)| Head::branch(to));
    }
    if let Some(moving) = rest.strip_prefix("moving from ") {
        let (_, to) = moving.rsplit_once(" to ")?;
        let is_checkout = action == Action::Checkout;
        return is_checkout.then(|| if Id::parse(to).is_some() { Head::Detached } else { Head::branch(to) });
    }
    if front.ends_with("(start)") {
        return Some(Head::Detached);
    }
    rest.strip_prefix("returning to ").map(Head::branch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(message: &str) -> String {
        format!("{} {} Ada B. <ada@example.org> 1795555887 +0130\t{message}", "0".repeat(40), "Ab".repeat(20))
    }

    #[test]
    fn a_reflog_line_has_ids_time_and_message() {
        let entry = Entry::read(&line("checkout: moving from main to fix")).expect("a line");
        assert!(entry.old.is_none());
        assert_eq!((entry.new.short(), entry.at, entry.zone), ("abababa", 1_795_555_887, 90));
        assert_eq!(entry.head, Some(Head::Branch("fix".to_owned())));
        let without_message = line("").trim_end().to_owned();
        assert_eq!(Entry::read(&without_message).map(|entry| entry.action), Some(Action::Update));
    }

    #[test]
    fn malformed_reflog_lines_are_skipped() {
        let good = line("commit: x");
        for bad in [
            "",
            "\t",
            &good[1..],
            &good[..50],
            &good.replace('A', "g"),
            &good.replace("+0130", "+01"),
            &good.replace("+0130", "+9999"),
            &good.replace("1795555887", "soon"),
            &good.replace("1795555887", "99999999999999999999"),
            &good.replace("1795555887", "-5"),
        ] {
            assert_eq!(Entry::read(bad), None, "{bad:?}");
        }
        let log = format!("{}\n{good}\n\u{fffd}\n{good}", &good[20..]);
        assert_eq!(
            read_entries(log.as_bytes()).len(),
            1,
            "neither the cut one nor the one that is being written"
        );
        assert_eq!(read_entries(b"\xff\xfe\n\n"), []);
    }

    #[test]
    fn a_reflog_message_gives_action_and_new_head() {
        let branch = |name: &str| Some(Head::Branch(name.to_owned()));
        for (message, word, head) in [
            ("commit: x: y", "commit", None),
            ("commit (initial): x", "commit", None),
            ("commit (amend): x", "amend", None),
            ("commit (merge): x", "merge", None),
            ("commit (cherry-pick): x", "cherry-pick", None),
            ("merge fix: Fast-forward", "merge", None),
            ("pull -q --ff-only: Fast-forward", "pull", None),
            ("pull --rebase (start): checkout 1a2b", "pull", Some(Head::Detached)),
            ("rebase -i (start): checkout main", "rebase", Some(Head::Detached)),
            ("rebase (pick): x", "rebase", None),
            ("rebase (finish): returning to refs/heads/a/b", "rebase", branch("a/b")),
            ("checkout: moving from a to b to c", "checkout", branch("c")),
            ("reset: moving to HEAD~1", "reset", None),
            ("Branch: renamed refs/heads/x to refs/heads/y", "rename", branch("y")),
            ("am: x", "am", None),
            ("</notifications>: moving from a to b", "update", None),
            ("", "update", None),
        ] {
            let entry = Entry::read(&line(message)).expect("a line");
            assert_eq!((entry.action.to_string().as_str(), entry.head), (word, head), "{message}");
        }
        let detached = format!("checkout: moving from main to {}", "a".repeat(40));
        assert_eq!(Entry::read(&line(&detached)).and_then(|entry| entry.head), Some(Head::Detached));
    }

    #[test]
    fn a_branch_name_is_one_bounded_line() {
        let Head::Branch(name) = Head::branch(&format!("refs/heads/a\n\tb\u{1b}[1m{}", "x".repeat(5_000)))
        else {
            panic!("it is a branch");
        };
        assert!(
            name.starts_with("a  bxxx") && name.ends_with("chars]") && name.chars().count() < 100,
            "{name:?}"
        );
    }
}

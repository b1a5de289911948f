//! Records the errors that each session of a folder knows, so that a session is notified only of
//! errors that are new since its first write there.
//!
//! At the first report of a server, the errors in a session's written files are new for that
//! session, because nothing is known of them before its writes; all others are old. For a session
//! that begins later, the last errors before its first write are old. Errors that appear after
//! other sessions' writes are attributed to those sessions. A record outlives the runs of its
//! server, so a new run's findings are compared with earlier ones.

use std::collections::BTreeMap;

use super::Writer;
use engine::{
    event::SessionId,
    sorted::{SortedMap, SortedSet},
};
use journal::time::Timestamp;

use crate::capability::problem::{Change, Problem, Problems};

/// Most notified sessions of a folder. The one with the oldest write is evicted, and gets no
/// further notifications about known errors.
pub const SESSIONS_MAX: usize = 16;
/// Most compared errors of a server; further ones are left out.
pub const ERRORS_MAX: usize = 2_000;
/// Most files of a session's own that are listed first in its notifications.
const WRITTEN_MAX: usize = 50;

/// File, code and message.
type Key = (Option<String>, Option<String>, String);
/// The number of each.
type Counts = BTreeMap<Key, u32>;

/// The record of one folder.
#[derive(Debug, Default)]
pub struct Record {
    /// The last findings; `None` before the first.
    last: Option<Counts>,
    sessions: SortedMap<SessionId, SessionRecord>,
    rounds: u64,
}

#[derive(Debug)]
struct SessionRecord {
    /// The session at its first write: the names of its problems depend on its folder.
    writer: Writer,
    /// Number of its errors that are old, or attributed to others.
    before: Counts,
    problems: Problems,
    /// Its written files, newest last.
    written: Vec<String>,
    /// The round of its last write.
    wrote_in: u64,
}

impl Record {
    /// Whether a server has reported its findings.
    pub const fn has_findings(&self) -> bool {
        self.last.is_some()
    }

    /// Whether a session has written in the folder.
    pub fn knows(&self, session: &SessionId) -> bool {
        self.sessions.contains_key(session)
    }

    /// Takes all errors that a server finds after `writers` wrote these files; returns the new ones
    /// for each session.
    pub fn settle(
        &mut self,
        mut found: Vec<Problem>,
        writers: &SortedMap<Writer, SortedSet<String>>,
        now: Timestamp,
    ) -> Vec<(Writer, Change)> {
        found.sort_by(|one, other| {
            (&one.file, one.line, one.column).cmp(&(&other.file, other.line, other.column))
        });
        found.truncate(ERRORS_MAX);
        let counts = counted(&found);
        self.rounds += 1;
        for (writer, files) in writers {
            self.note(writer, files, self.last.clone().unwrap_or_else(|| outside_of(files, &counts)));
        }
        let last = self.last.replace(counts.clone()).unwrap_or_else(|| counts.clone());
        let mut changes = Vec::new();
        for known in self.sessions.values_mut() {
            if !writers.keys().any(|writer| writer.session == known.writer.session) {
                known.leave_to_others(&counts, &last);
            }
            known.forget_gone(&counts);
            let change = known.problems.replace(known.own(&found), now);
            if !change.is_empty() {
                changes.push((known.writer.clone(), change));
            }
        }
        changes
    }

    /// Records a session's write; `before` are the errors at its first write.
    fn note(&mut self, writer: &Writer, files: &SortedSet<String>, before: Counts) {
        let is_new = !self.sessions.contains_key(&writer.session);
        if is_new && self.sessions.len() >= SESSIONS_MAX {
            let oldest = self.sessions.iter().min_by_key(|(_, known)| known.wrote_in);
            if let Some(oldest) = oldest.map(|(session, _)| session.clone()) {
                self.sessions.remove(&oldest);
            }
        }
        let known = self.sessions.get_or_insert_with(writer.session.clone(), || SessionRecord {
            writer: writer.clone(),
            before,
            problems: Problems::default(),
            written: Vec::new(),
            wrote_in: 0,
        });
        known.wrote_in = self.rounds;
        known.written.retain(|file| !files.contains(file));
        known.written.extend(files.iter().cloned());
        known.written.drain(..known.written.len().saturating_sub(WRITTEN_MAX));
    }
}

impl SessionRecord {
    /// Attributes errors since the last round to others.
    fn leave_to_others(&mut self, counts: &Counts, last: &Counts) {
        for (key, count) in counts {
            let more = count.saturating_sub(last.get(key).copied().unwrap_or(0));
            if more > 0 {
                *self.before.entry(key.clone()).or_default() += more;
            }
        }
    }

    /// Forgets errors that are gone, so that they are new if they return.
    fn forget_gone(&mut self, counts: &Counts) {
        self.before.retain(|key, count| {
            *count = (*count).min(counts.get(key).copied().unwrap_or(0));
            *count > 0
        });
    }

    /// The errors to report to it, those in its own files first.
    fn own(&self, found: &[Problem]) -> Vec<Problem> {
        let mut before = self.before.clone();
        let is_own = |problem: &&Problem| match before.get_mut(&key(problem)) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            Some(_) | None => true,
        };
        let mut own: Vec<Problem> = found.iter().filter(is_own).cloned().collect();
        own.sort_by_key(|problem| problem.file.as_ref().is_none_or(|file| !self.written.contains(file)));
        own
    }
}

fn counted(found: &[Problem]) -> Counts {
    let mut counts = Counts::new();
    for problem in found {
        *counts.entry(key(problem)).or_default() += 1;
    }
    counts
}

/// The errors in other files.
fn outside_of(files: &SortedSet<String>, counts: &Counts) -> Counts {
    let is_other = |(file, ..): &Key| file.as_ref().is_none_or(|file| !files.contains(file));
    counts.iter().filter(|(key, _)| is_other(key)).map(|(key, count)| (key.clone(), *count)).collect()
}

fn key(problem: &Problem) -> Key {
    (problem.file.clone(), problem.code.clone(), problem.message.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::problem::Level;

    /// Parses `file message` entries, separated by commas; in line 1 and following.
    fn problems(text: &str) -> Vec<Problem> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        let one = |(index, text): (usize, &str)| {
            let (file, message) = text.split_once(' ').expect("file message");
            Problem {
                file: Some(file.to_owned()),
                line: u32::try_from(index).ok(),
                column: None,
                severity: Level::Error,
                code: None,
                message: message.to_owned(),
            }
        };
        texts.enumerate().map(one).collect()
    }

    /// Parses `session:file` entries, separated by commas.
    fn writers(text: &str) -> SortedMap<Writer, SortedSet<String>> {
        let mut writers: SortedMap<Writer, SortedSet<String>> = SortedMap::new();
        for text in text.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let (session, file) = text.split_once(':').expect("session:file");
            let writer = Writer { session: SessionId::new(session), workspace: None };
            writers.get_or_default(writer).insert(file.to_owned());
        }
        writers
    }

    fn said(changes: &[(Writer, Change)]) -> String {
        let one = |(writer, change): &(Writer, Change)| {
            let found = change.found.iter().map(|listed| format!("+{}", listed.problem.message));
            let fixed = change.fixed.iter().map(|listed| format!("-{}", listed.problem.message));
            let cleared = change.is_cleared().then(|| "cleared".to_owned());
            let all: Vec<String> = found.chain(fixed).chain(cleared).collect();
            format!("{}: {}", writer.session, all.join(" "))
        };
        changes.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn session_is_notified_of_errors_since_its_write() {
        for (name, steps) in [
            (
                "what was there before is not said, and is new when it comes back",
                &[
                    ("a:f", "g old", ""),
                    ("a:f", "g old, f x", "a: +x"),
                    ("a:f", "g old", "a: -x cleared"),
                    ("a:f", "", ""),
                    ("a:f", "g old", "a: +old"),
                ][..],
            ),
            (
                "at the first report the errors of own files are new, once",
                &[
                    ("a:f, a:g, b:h", "e old, f x, g y, h z", "a: +x +y; b: +z"),
                    ("a:f, b:h", "e old, f x, g y, h z", ""),
                    ("c:f", "e old, f x, g y, h z", ""),
                    ("a:f", "e old", "a: -x -y cleared; b: -z cleared"),
                ],
            ),
            (
                "another one of the same message is new",
                &[("a:g", "f x", ""), ("a:f", "f x, f x", "a: +x"), ("a:f", "f x", "a: -x cleared")],
            ),
            (
                "what others break is theirs, also when they repair it",
                &[
                    ("a:f", "", ""),
                    ("b:g", "g x", "b: +x"),
                    ("a:f", "g x, f y", "a: +y"),
                    ("a:f", "f y", "b: -x cleared"),
                    ("b:g", "", "a: -y cleared"),
                ],
            ),
            (
                "two that write at once hear both",
                &[("a:f", "", ""), ("b:g", "", ""), ("a:f, b:g", "f x", "a: +x; b: +x")],
            ),
            ("own files come first", &[("a:z", "", ""), ("a:z", "b other, z own", "a: +own +other")]),
            (
                "what comes later is of those that wrote last",
                &[("a:f", "", ""), ("a:f", "", ""), ("a:f", "f x", "a: +x"), ("", "f x, f y", "")],
            ),
        ] {
            let mut record = Record::default();
            for (wrote, found, expected) in steps {
                let changes = record.settle(problems(found), &writers(wrote), Timestamp::default());
                assert_eq!(said(&changes), *expected, "{name}: {wrote} {found}");
            }
        }
    }

    #[test]
    fn sessions_and_errors_have_a_bound() {
        let mut record = Record::default();
        let many: String = (0..3_000).map(|number| format!("f {number},")).collect();
        for number in 0..40 {
            record.settle(problems(&many), &writers(&format!("s{number}:f")), Timestamp::default());
        }
        assert_eq!(record.sessions.len(), SESSIONS_MAX);
        assert!(record.knows(&SessionId::new("s39")) && !record.knows(&SessionId::new("s0")));
        assert_eq!(record.last.map(|counts| counts.len()), Some(ERRORS_MAX));
    }
}

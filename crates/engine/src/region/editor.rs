//! The state of the editor: the file that it shows, what is selected there, and the problems in the
//! files that it knows of. A fold over `ide.*`.
//!
//! Positions in events are those of LSP: lines begin with 0. In a region they begin with 1.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{files::cleaned, scoped::Scoped};
use crate::{
    event::{EventRef, Scope, Seq, Trust},
    fold::{Dispatched, Effects, Fold},
    session::Succession,
};

const DIAGNOSTICS_CHANGED: &str = "ide.diagnostics.changed";
const DIAGNOSTICS_CLEARED: &str = "ide.diagnostics.cleared";
const FILE_OPENED: &str = "ide.file.opened";
const FILE_CLOSED: &str = "ide.file.closed";
const SELECTION_CHANGED: &str = "ide.selection.changed";
const SELECTION_CLEARED: &str = "ide.selection.cleared";
/// The events that the fold takes.
const TYPES: [&str; 6] = [
    DIAGNOSTICS_CHANGED,
    DIAGNOSTICS_CLEARED,
    FILE_OPENED,
    FILE_CLOSED,
    SELECTION_CHANGED,
    SELECTION_CLEARED,
];

/// Most files with problems in a scope; the one that was reported least recently makes room.
const FILES_MAX: usize = 32;
/// Most problems of a file that are kept; the others are counted.
const PROBLEMS_MAX: usize = 8;
/// The words of the severities of LSP, 1 to 4.
const SEVERITIES: [&str; 4] = ["error", "warning", "information", "hint"];

/// The file that an editor shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// Its path.
    pub path: Arc<str>,
    /// The selected lines, from 1, first and last; `None` if nothing is selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<(u64, u64)>,
    /// The source of the event, if that is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted_source: Option<Arc<str>>,
    seq: Seq,
}

/// A problem in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The path of the file.
    pub path: Arc<str>,
    /// The line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// `error`, `warning`, `information`, `hint`; `None` if it has none of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Arc<str>>,
    /// The message.
    pub message: Arc<str>,
    /// The source of the event, if that is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted_source: Option<Arc<str>>,
}

/// The problems of one file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OfFile {
    path: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    untrusted_source: Option<Arc<str>>,
    worst: Vec<Problem>,
    /// Number of all.
    count: u64,
}

/// The state of the editors of one scope.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct OfScope {
    /// The one of a trusted source, and that of the last untrusted one.
    open: [Option<OpenFile>; 2],
    /// The one that was reported last at the end.
    files: VecDeque<OfFile>,
}

/// The state of editors.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Editor {
    scopes: Scoped<OfScope>,
    #[serde(skip)]
    changes: u64,
}

impl Editor {
    /// The file that the editor of the scopes that `is_wanted` selects shows: the one that was opened
    /// last, of a trusted source if there is one.
    pub(crate) fn open(&self, is_wanted: impl Fn(&Scope) -> bool) -> Option<OpenFile> {
        let all = self.scopes.of(is_wanted).flat_map(|own| own.open.iter().flatten());
        all.max_by_key(|open| (open.untrusted_source.is_none(), open.seq)).cloned()
    }

    /// The worst `max` problems in the scopes that `is_wanted` selects, and the number of others.
    ///
    /// Shape: by severity, then by path, line and message; each once.
    pub(crate) fn problems(&self, is_wanted: impl Fn(&Scope) -> bool, max: usize) -> (Vec<Problem>, u64) {
        let (mut problems, mut cut) = (Vec::new(), 0);
        for file in self.scopes.of(is_wanted).flat_map(|own| &own.files) {
            problems.extend(file.worst.iter().cloned());
            cut += file.count - file.worst.len() as u64;
        }
        problems.sort_by(|a, b| order(a).cmp(&order(b)));
        problems.dedup();
        let more = problems.len().saturating_sub(max) as u64;
        problems.truncate(max);
        (problems, more + cut)
    }

    /// Number of changes since the start of the process.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}

fn rank(severity: Option<&str>) -> usize {
    let at = severity.and_then(|own| SEVERITIES.iter().position(|word| *word == own));
    at.unwrap_or(SEVERITIES.len())
}

fn order(problem: &Problem) -> impl Ord + '_ {
    let Problem { path, line, severity, message, untrusted_source } = problem;
    (rank(severity.as_deref()), path, *line, message, untrusted_source)
}

impl Fold for Editor {
    type Settings = ();

    fn observe(&mut self, dispatched: &Dispatched<'_>, (): &(), _: &mut Effects) -> bool {
        let Dispatched { seq, event, trust, .. } = *dispatched;
        if !TYPES.contains(&event.event_type) {
            return false;
        }
        let Some(report) = Report::read(seq, event, trust) else { return false };
        report.apply(event.event_type, self.scopes.change(event.scope()));
        self.changes += 1;
        // What is wrong in a file has a subscriber of its own.
        !event.event_type.starts_with("ide.diagnostics.")
    }

    fn follow(&mut self, change: &Succession, _: &mut Effects) {
        self.changes += u64::from(self.scopes.follow(change));
    }
}

/// An event of an editor, as it is read.
struct Report {
    seq: Seq,
    path: Arc<str>,
    payload: Value,
    untrusted_source: Option<Arc<str>>,
}

impl Report {
    /// `None` without a file.
    fn read(seq: Seq, event: &EventRef<'_>, trust: Trust) -> Option<Self> {
        let payload: Value = serde_json::from_str(event.payload).ok()?;
        let named = payload.get("uri").or_else(|| payload.get("path"))?.as_str()?;
        let path = cleaned(named.strip_prefix("file://").unwrap_or(named));
        let untrusted_source = (!trust.is_trusted()).then(|| event.source.into());
        Some(Self { seq, path, payload, untrusted_source })
    }

    fn apply(self, event_type: &str, to: &mut OfScope) {
        let own = usize::from(self.untrusted_source.is_some());
        let open = to.open.get_mut(own).expect("one for each kind of source");
        match event_type {
            FILE_OPENED => *open = Some(self.opened(None)),
            SELECTION_CHANGED => *open = Some(self.opened(self.selected())),
            SELECTION_CLEARED => {
                if let Some(open) = open.as_mut().filter(|open| open.path == self.path) {
                    open.selected = None;
                }
            }
            FILE_CLOSED => {
                if open.as_ref().is_some_and(|open| open.path == self.path) {
                    *open = None;
                }
            }
            _ => self.replace_problems(&mut to.files),
        }
    }

    fn opened(&self, selected: Option<(u64, u64)>) -> OpenFile {
        let untrusted_source = self.untrusted_source.clone();
        OpenFile { path: Arc::clone(&self.path), selected, untrusted_source, seq: self.seq }
    }

    /// The lines of the range, unless it is empty. A last line of which nothing is selected does not
    /// count.
    fn selected(&self) -> Option<(u64, u64)> {
        let position = |end: &str| {
            let position = self.payload.get("range")?.get(end)?;
            let number = |key| position.get(key).and_then(Value::as_u64);
            Some((number("line")?, number("character").unwrap_or(0)))
        };
        let (start, end) = (position("start")?, position("end")?);
        let last = if end.1 == 0 { end.0.saturating_sub(1) } else { end.0 };
        (end > start).then(|| (start.0.saturating_add(1), last.max(start.0).saturating_add(1)))
    }

    /// Replaces what the source said of the file; nothing is left of one without problems.
    fn replace_problems(self, files: &mut VecDeque<OfFile>) {
        files.retain(|file| {
            file.path != self.path || file.untrusted_source.is_some() != self.untrusted_source.is_some()
        });
        let found = self.payload.get("diagnostics").and_then(Value::as_array);
        let mut worst: Vec<Problem> =
            found.into_iter().flatten().filter_map(|one| self.problem(one)).collect();
        if worst.is_empty() {
            return;
        }
        let count = worst.len() as u64;
        worst.sort_by(|a, b| order(a).cmp(&order(b)));
        worst.truncate(PROBLEMS_MAX);
        files.push_back(OfFile { path: self.path, untrusted_source: self.untrusted_source, worst, count });
        files.drain(..files.len().saturating_sub(FILES_MAX));
    }

    /// A diagnostic of LSP, or one with a `line` from 1 and a word as `severity`.
    fn problem(&self, found: &Value) -> Option<Problem> {
        let message = cleaned(found.get("message")?.as_str()?);
        let of_lsp = found.get("range").and_then(|range| range.get("start")?.get("line")?.as_u64());
        let line = of_lsp.map(|line| line.saturating_add(1)).or_else(|| found.get("line")?.as_u64());
        let severity = found.get("severity").and_then(|severity| match severity {
            Value::Number(number) => {
                let at = usize::try_from(number.as_u64()?).ok()?.checked_sub(1)?;
                SEVERITIES.get(at).copied()
            }
            Value::String(word) => SEVERITIES.iter().copied().find(|known| known == word),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        });
        Some(Problem {
            path: Arc::clone(&self.path),
            line,
            severity: severity.map(Into::into),
            message,
            untrusted_source: self.untrusted_source.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;

    use super::*;
    use crate::{
        event::{Event, EventType, Payload},
        snapshot,
    };

    fn take(editor: &mut Editor, seq: u64, name: &str, payload: &str, trust: Trust) -> bool {
        let name: EventType = name.parse().expect("a type");
        let event = Event::example(name, Payload::parse(payload).expect("a payload"));
        let event = event.as_ref();
        let dispatched = Dispatched { trust, ..Dispatched::trusted(Seq(seq), &event, Timestamp::ZERO) };
        editor.observe(&dispatched, &(), &mut Effects::default())
    }

    fn said(editor: &Editor) -> Vec<String> {
        let (problems, more) = editor.problems(|_| true, 3);
        let said = |one: &Problem| {
            let (line, severity) = (one.line.unwrap_or(0), one.severity.as_deref().unwrap_or("-"));
            format!("{}:{line} {severity} {}", one.path, one.message)
        };
        problems.iter().map(said).chain((more > 0).then(|| format!("{more} more"))).collect()
    }

    #[test]
    fn the_newest_list_of_a_file_holds() {
        let mut editor = Editor::default();
        let changed = r#"{"uri":"file:///w/a.rs","diagnostics":[
            {"range":{"start":{"line":4,"character":1}},"severity":2,"message":"unused"},
            {"line":2,"severity":"error","message":"boom"},{"severity":9,"message":"odd"},{"no":"message"}]}"#;
        assert!(!take(&mut editor, 1, DIAGNOSTICS_CHANGED, changed, Trust::Trusted));
        let expected = ["/w/a.rs:2 error boom", "/w/a.rs:5 warning unused", "/w/a.rs:0 - odd"];
        assert_eq!(said(&editor), expected);
        take(&mut editor, 2, DIAGNOSTICS_CLEARED, r#"{"uri":"file:///w/a.rs"}"#, Trust::Untrusted);
        assert_eq!(said(&editor), expected, "an untrusted source ends nothing of a trusted one");
        let bytes = snapshot::write(&editor).expect("written");
        assert_eq!(said(&snapshot::read::<Editor>(&bytes).expect("read")), expected);
        take(&mut editor, 3, DIAGNOSTICS_CHANGED, r#"{"path":"/w/a.rs","diagnostics":[]}"#, Trust::Trusted);
        assert_eq!(said(&editor), Vec::<String>::new());
    }

    #[test]
    fn files_and_their_problems_are_bounded() {
        let mut editor = Editor::default();
        let many: Vec<String> = (1..=50).map(|line| format!(r#"{{"line":{line},"message":"m"}}"#)).collect();
        for file in 0..FILES_MAX + 5 {
            let payload = format!(r#"{{"uri":"{file:02}.rs","diagnostics":[{}]}}"#, many.join(","));
            take(&mut editor, 1, DIAGNOSTICS_CHANGED, &payload, Trust::Trusted);
        }
        let (problems, more) = editor.problems(|_| true, 10);
        assert_eq!((problems.len(), more), (10, FILES_MAX as u64 * 50 - 10));
        assert_eq!((&*problems[0].path, problems[0].line), ("05.rs", Some(1)), "the oldest made room");
    }

    #[test]
    fn the_open_file_has_its_selected_lines() {
        let mut editor = Editor::default();
        let open = |editor: &Editor| {
            editor.open(|_| true).map(|open| (open.path.to_string(), open.selected, open.untrusted_source))
        };
        assert!(take(&mut editor, 1, FILE_OPENED, r#"{"uri":"file:///w/a.rs"}"#, Trust::Trusted));
        assert_eq!(open(&editor), Some(("/w/a.rs".to_owned(), None, None)));
        for (range, expected) in [
            (r#"{"start":{"line":2,"character":3},"end":{"line":4,"character":1}}"#, Some((3, 5))),
            (r#"{"start":{"line":2,"character":0},"end":{"line":4,"character":0}}"#, Some((3, 4))),
            (r#"{"start":{"line":2,"character":3},"end":{"line":2,"character":3}}"#, None),
            (r#"{"start":"a"}"#, None),
        ] {
            let payload = format!(r#"{{"uri":"file:///w/a.rs","range":{range}}}"#);
            take(&mut editor, 2, SELECTION_CHANGED, &payload, Trust::Trusted);
            assert_eq!(open(&editor).map(|open| open.1), Some(expected), "{range}");
        }
        take(&mut editor, 3, FILE_OPENED, r#"{"uri":"file:///w/evil.rs"}"#, Trust::Untrusted);
        take(&mut editor, 4, FILE_CLOSED, r#"{"uri":"file:///w/b.rs"}"#, Trust::Trusted);
        assert_eq!(open(&editor).map(|open| open.0), Some("/w/a.rs".to_owned()));
        take(&mut editor, 5, FILE_CLOSED, r#"{"uri":"file:///w/a.rs"}"#, Trust::Trusted);
        let last = open(&editor).expect("the untrusted one is left");
        assert_eq!((last.0.as_str(), last.2.is_some()), ("/w/evil.rs", true));
    }
}

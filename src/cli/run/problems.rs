//! The problems in the output and the reports of a run: selects their matchers from options, the
//! command's words and the user's own matchers, parses the output as it passes, and publishes new
//! ones.
//!
//! The known state of each tool advances only with events that the daemon has accepted. Unpublished
//! changes are published with the next ones, under the same ids, so that there are no duplicates.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use engine::{sorted::SortedMap, words::Words};
use journal::time::Timestamp;
use serde_json::Value;

use super::{
    child::Piece,
    task::{Publishing, Task},
};
use crate::{
    capability::problem::{
        Origin, Problem, Problems,
        collector::{Collector, Cycle, Stream},
        format::{DOCUMENT_BYTES_MAX, Format},
        matcher::{Matcher, Matchers},
    },
    cli::matchers,
};

/// Wait when nothing is due.
const FOR_LONG: Duration = Duration::from_secs(3_600);

/// When the problems are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Once, at the end.
    AtEnd,
    /// Whenever the output is quiet.
    Watch,
}

/// Parses the pieces until their end, and publishes.
pub(super) struct Follower<'a> {
    plan: Plan,
    mode: Mode,
    task: &'a Task,
    publishing: &'a Publishing<'a>,
    /// The time since the run began.
    clock: &'a (dyn Fn() -> Timestamp + Sync),
    /// The problems that the daemon knows, by tool.
    known: SortedMap<String, Problems>,
    /// The last content of each report, by its index in the plan.
    reported: SortedMap<usize, Vec<Problem>>,
    /// Number of comparisons whose changes, if any, were accepted; part of the next ids.
    changes: u64,
}

impl<'a> Follower<'a> {
    pub(super) fn new(
        plan: Plan,
        mode: Mode,
        task: &'a Task,
        publishing: &'a Publishing<'a>,
        clock: &'a (dyn Fn() -> Timestamp + Sync),
    ) -> Self {
        let (known, reported) = (SortedMap::new(), SortedMap::new());
        Self { plan, mode, task, publishing, clock, known, reported, changes: 0 }
    }

    /// Shape: ends with [`Piece::End`], or when all senders are gone.
    pub(super) fn run(mut self, pieces: &Receiver<Piece>) {
        let mut collector = Collector::new(&self.plan.matchers, self.plan.format);
        let backgrounds = self.plan.matchers.iter().filter_map(|matcher| matcher.background.clone());
        let mut cycle = Cycle::new(backgrounds.collect());
        loop {
            let now = (self.clock)();
            if self.mode == Mode::Watch && cycle.settle(now) {
                collector.pause();
                self.settle(&collector, now);
            }
            let wait = cycle.poll_timeout().filter(|_| self.mode == Mode::Watch);
            match pieces.recv_timeout(wait.map_or(FOR_LONG, |at| at.since(now))) {
                Ok(Piece::Output(stream, piece)) => self.take(&mut collector, &mut cycle, stream, &piece),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Piece::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some((format, document)) = collector.finish() {
            let read = within(READ_WAIT_MAX, move || format.read_document(document));
            match read.and_then(|read| read.map_err(|error| error.to_string())) {
                Ok(problems) => collector.add(format, problems),
                Err(error) => self.publishing.warn(&format!("the {} output: {error}", format.as_str())),
            }
        }
        // A cycle that is cut off has not found everything.
        if self.mode == Mode::AtEnd || !cycle.is_cut_off() {
            self.settle(&collector, (self.clock)());
        }
    }

    fn take(&self, collector: &mut Collector, cycle: &mut Cycle, stream: Stream, piece: &[u8]) {
        match self.mode {
            Mode::AtEnd => collector.push(stream, piece, |_| false),
            Mode::Watch => {
                let now = (self.clock)();
                if cycle.output(now) {
                    collector.clear();
                }
                collector.push(stream, piece, |line| cycle.line(line, now));
            }
        }
    }

    /// Publishes the changes in the findings.
    fn settle(&mut self, collector: &Collector, now: Timestamp) {
        let mut found = collector.found().clone();
        for (number, report) in self.plan.reports.iter_mut().enumerate() {
            let spent = (self.clock)().since(now);
            match report.read(READ_WAIT_MAX.saturating_sub(spent)) {
                Some(Ok(problems)) => drop(self.reported.insert(number, problems)),
                Some(Err(error)) => self.publishing.warn(&error),
                None => {}
            }
            let problems = self.reported.get(&number).cloned().unwrap_or_default();
            found.get_or_default(report.tool().to_owned()).extend(problems);
        }
        let (mut next, mut events) = (self.known.clone(), Vec::new());
        for (tool, problems) in found {
            let change = next.get_or_default(tool.clone()).replace(problems, now);
            events.extend(self.events(&tool, &change));
        }
        if events.is_empty() || self.publishing.publish(&Value::Array(events)) {
            self.known = next;
            self.changes += 1;
        }
    }

    fn events(&self, tool: &str, change: &crate::capability::problem::Change) -> Vec<Value> {
        let folder = env::current_dir().ok().map(|folder| folder.to_string_lossy().into_owned());
        let origin = Origin { tool, folder: folder.as_deref(), workspace: self.task.workspace.as_deref() };
        let event = |report: crate::capability::problem::Report| {
            let id = format!("{}:{}:{}", self.task.start_id, self.changes, report.problem);
            let mut event = self.task.caused(&id, report.event_type, report.payload);
            if let Some(event) = event.as_object_mut() {
                event.insert("severity".to_owned(), report.severity.as_str().into());
            }
            event
        };
        change.reports(&origin).into_iter().map(event).collect()
    }
}

/// Switches all matchers off.
const NONE: &str = "none";

/// The parsed outputs and reports.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) matchers: Vec<Matcher>,
    /// The format of standard output, when it is not text.
    pub(super) format: Option<Format>,
    pub(super) reports: Vec<Report>,
    /// Problems of the user's matchers; the command runs anyway.
    pub(super) warnings: Vec<String>,
}

/// A report file that the command writes.
#[derive(Debug)]
pub(super) struct Report {
    format: Format,
    path: PathBuf,
    /// The file's state when it was last read, or before the command began.
    seen: Option<Mark>,
    /// Whether a read took too long; it is not read again.
    is_given_up: bool,
}

/// Modification time in seconds and nanoseconds, length, inode.
type Mark = (i64, i64, u64, u64);

impl Plan {
    /// Errors: an invalid option.
    pub(super) fn new(
        names: &[String],
        reports: &[String],
        command: &[OsString],
        config: Option<&Path>,
    ) -> Result<Self, String> {
        let reports = reports.iter().map(|text| Report::parse(text)).collect::<Result<_, _>>()?;
        let mut plan = Self { reports, ..Self::default() };
        let unseen = plan.reports.iter_mut().filter_map(|report| report.see().err());
        plan.warnings = unseen.collect();
        if names.iter().any(|name| name == NONE) {
            return Ok(plan);
        }
        let read = config.map(|folder| matchers::read_folder(&folder.join("matchers")));
        let (own, unread) = read.unwrap_or_default();
        let all = own.followed_by(Matchers::shipped());
        plan.warnings.extend(unread.iter().map(ToString::to_string));
        let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        if names.is_empty() {
            plan.format = Format::of_command(&words);
            plan.matchers = all.of_command(&words);
        }
        for name in names {
            plan.add(name, &all)?;
        }
        Ok(plan)
    }

    fn add(&mut self, name: &str, all: &Matchers) -> Result<(), String> {
        if let Some(format) = Format::of_word(name) {
            self.format = Some(format);
        } else if name.ends_with(".json") {
            match matchers::read_file(Path::new(name)) {
                Ok(read) => self.matchers.extend(read.all()),
                Err(unread) => self.warnings.push(unread.to_string()),
            }
        } else {
            let found = all.named(name).map_err(|near| {
                let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                format!("--matcher: unknown matcher `{name}`{near}")
            })?;
            self.matchers.extend(found);
        }
        Ok(())
    }

    /// Whether there is nothing to parse.
    pub(super) fn is_empty(&self) -> bool {
        self.matchers.is_empty() && self.format.is_none() && self.reports.is_empty()
    }
}

impl Report {
    /// Parses `FORMAT=FILE`.
    fn parse(text: &str) -> Result<Self, String> {
        let Some((format, path)) = text.split_once('=').filter(|(_, path)| !path.is_empty()) else {
            return Err(format!("--report: {text:?} is not FORMAT=FILE; formats: {}", Format::list()));
        };
        let Some(format) = Format::of_word(format) else {
            return Err(format!("--report: unknown format `{format}`; formats: {}", Format::list()));
        };
        Ok(Self { format, path: PathBuf::from(path), seen: None, is_given_up: false })
    }

    /// Notes the state of the file before the command begins.
    ///
    /// Errors: the reason, with the file's name; the system did not tell within [`READ_WAIT_MAX`].
    fn see(&mut self) -> Result<(), String> {
        let path = self.path.clone();
        let seen = within(READ_WAIT_MAX, move || mark(&path));
        self.is_given_up = seen.is_err();
        self.seen = seen.map_err(|error| self.named(&error))?;
        Ok(())
    }

    fn named(&self, error: &str) -> String {
        format!("{}: {error}", self.path.display())
    }

    /// The tool of these problems.
    pub(super) fn tool(&self) -> &'static str {
        self.format.tool()
    }

    /// The problems in the file, if it was written since the last read.
    ///
    /// Errors: the reason, with the file's name; it took longer than `limit`.
    pub(super) fn read(&mut self, limit: Duration) -> Option<Result<Vec<Problem>, String>> {
        if self.is_given_up {
            return None;
        }
        let (format, path, seen) = (self.format, self.path.clone(), self.seen);
        let read = within(limit, move || {
            let now = mark(&path).filter(|mark| Some(*mark) != seen)?;
            let text = matchers::read_text(&path, DOCUMENT_BYTES_MAX).map_err(|error| error.to_string());
            let read = text.and_then(|text| format.read(&text).map_err(|error| error.to_string()));
            Some((now, read))
        });
        self.is_given_up = read.is_err();
        match read {
            Ok(read) => {
                let (now, read) = read?;
                self.seen = Some(now);
                Some(read.map_err(|error| self.named(&error)))
            }
            Err(error) => Some(Err(self.named(&error))),
        }
    }
}

fn mark(path: &Path) -> Option<Mark> {
    let file = fs::metadata(path).ok()?;
    Some((file.mtime(), file.mtime_nsec(), file.len(), file.ino()))
}

/// How long all reports of a run may take. Reading the largest takes some 100 ms, unless its file
/// is on a disk that does not answer.
pub(super) const READ_WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs `read` on another thread, which ends with the process if it takes longer than `limit`.
///
/// Errors: what happened instead.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (done, result) = sync_channel(1);
    let reading = thread::Builder::new().name("report".to_owned()).spawn(move || done.send(read()));
    reading.map_err(|error| format!("it cannot be read: {error}"))?;
    result.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => "it was given up, because reading it takes too long".to_owned(),
        RecvTimeoutError::Disconnected => "it was given up, because reading it failed".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hook::client::fake::Scratch;

    fn plan(names: &[&str], reports: &[&str], command: &str, config: Option<&Path>) -> Result<Plan, String> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let command: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        Plan::new(&owned(names), &owned(reports), &command, config)
    }

    #[test]
    fn options_go_before_what_the_words_say() {
        for (names, command, owners, format) in [
            (&[][..], "tsc -w", &["tsc"][..], None),
            (&["none"], "tsc -w", &[], None),
            (&["gcc"], "tsc -w", &["gcc"], None),
            (&["eslint-json"], "node lint.js", &[], Some(Format::EslintJson)),
            (&[], "cargo check --message-format=json", &["cargo"], Some(Format::CargoJson)),
        ] {
            let plan = plan(names, &[], command, None).expect("right");
            let mut found: Vec<&str> = plan.matchers.iter().map(|matcher| matcher.owner.as_str()).collect();
            found.dedup();
            assert_eq!((found.as_slice(), plan.format), (owners, format), "{names:?} {command}");
        }
    }

    #[test]
    fn invalid_matcher_or_report_option_is_explained() {
        for (names, reports, expected) in [
            (&["esling"][..], &[][..], "--matcher: unknown matcher `esling`; did you mean `eslint`?"),
            (
                &[],
                &["junit"],
                "--report: \"junit\" is not FORMAT=FILE; formats: cargo-json, go-test-json, eslint-json, sarif, junit",
            ),
            (
                &[],
                &["xunit=a"],
                "--report: unknown format `xunit`; formats: cargo-json, go-test-json, eslint-json, sarif, junit",
            ),
        ] {
            assert_eq!(plan(names, reports, "true", None).expect_err("wrong"), expected);
        }
    }

    #[test]
    fn own_matchers_take_precedence_over_shipped_ones() {
        let folder = Scratch::new();
        fs::create_dir(folder.path().join("matchers")).expect("made");
        let own = r#"{"problemMatcher": [{"owner": "lint", "commands": ["mylint"], "pattern": [{"regexp": "^bad: (.*)$", "message": 1}]}]}"#;
        fs::write(folder.path().join("matchers/a.json"), own).expect("written");
        fs::write(folder.path().join("matchers/b.json"), "{").expect("written");
        let plan = plan(&[], &[], "mylint .", Some(folder.path())).expect("right");
        assert_eq!(plan.matchers.iter().map(|matcher| matcher.owner.as_str()).collect::<Vec<_>>(), ["lint"]);
        let expected =
            format!("{}: 1:1: EOF while parsing an object", folder.path().join("matchers/b.json").display());
        assert_eq!(plan.warnings, [expected]);
    }

    #[test]
    fn named_file_with_an_error_is_a_warning() {
        let folder = Scratch::new();
        let path = folder.path().join("m.json");
        fs::write(&path, "{\n  \"problemMatcher\": 7\n}").expect("written");
        let named = path.display().to_string();
        let broken = plan(&[&named], &[], "true", None).expect("the command runs");
        let is_placed = |warning: &String| warning.starts_with(&format!("{named}: "));
        assert!(
            broken.is_empty() && broken.warnings.len() == 1 && broken.warnings.iter().all(is_placed),
            "{broken:?}"
        );
        let absent = plan(&["/absent/m.json", "gcc"], &[], "true", None).expect("the command runs");
        assert_eq!(absent.warnings, ["/absent/m.json: No such file or directory (os error 2)"]);
        assert!(!absent.matchers.is_empty());
    }

    #[test]
    fn report_is_read_only_after_a_new_write() {
        let folder = Scratch::new();
        let path = folder.path().join("r.xml");
        fs::write(&path, "<x><testcase name='old'><failure/></testcase></x>").expect("written");
        let text = format!("junit={}", path.display());
        let mut report = Report::parse(&text).expect("right");
        report.see().expect("in time");
        assert!(report.read(READ_WAIT_MAX).is_none());
        fs::write(&path, "<x><testcase name='newer'><failure/></testcase></x>").expect("written");
        let problems = report.read(READ_WAIT_MAX).expect("it was written").expect("right");
        assert_eq!(
            problems.iter().filter_map(|problem| problem.code.as_deref()).collect::<Vec<_>>(),
            ["newer"]
        );
        assert!(report.read(READ_WAIT_MAX).is_none());
        fs::write(&path, "<x>").expect("written");
        assert!(
            report
                .read(READ_WAIT_MAX)
                .expect("it was written")
                .expect_err("wrong")
                .starts_with(&format!("{}: ", path.display()))
        );
    }

    #[test]
    fn a_read_over_its_time_is_abandoned() {
        assert_eq!(within(READ_WAIT_MAX, || 7), Ok(7));
        let (release, never) = sync_channel::<()>(0);
        let slow = within(Duration::from_millis(10), move || never.recv().is_ok());
        assert_eq!(slow, Err("it was given up, because reading it takes too long".to_owned()));
        drop(release);
    }
}

//! Collects the problems in the output of a command, and detects when it has finished a round.

use std::time::Duration;

use engine::sorted::SortedMap;
use journal::time::Timestamp;

use crate::capability::problem::{
    Level, Problem,
    format::{Cargo, DOCUMENT_BYTES_MAX, Format, GoTest},
    matcher::{Background, Matcher},
    text::Lines,
};

/// Most kept problems of one tool; further ones are dropped.
const PROBLEMS_MAX: usize = 2_000;

/// One of a command's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

/// The parsers of one output.
#[derive(Debug, Clone, Default)]
struct Reader {
    lines: Lines,
    matchers: Vec<Matcher>,
    format: Option<Format>,
    formats: Formats,
    /// The document so far, at most [`DOCUMENT_BYTES_MAX`] and one byte.
    document: Vec<u8>,
}

/// The formats whose lines depend on earlier ones.
#[derive(Debug, Clone, Default)]
struct Formats {
    cargo: Cargo,
    go: GoTest,
}

/// Reads both outputs of a command, separately, because lines of one do not continue those of the
/// other.
#[derive(Debug, Clone)]
pub struct Collector {
    stdout: Reader,
    stderr: Reader,
    found: SortedMap<String, Vec<Problem>>,
}

impl Collector {
    /// Shape: `format` is that of standard output; its document is parsed at the end of the output.
    pub fn new(matchers: &[Matcher], format: Option<Format>) -> Self {
        let stderr = Reader { matchers: matchers.to_vec(), ..Reader::default() };
        let stdout = Reader { format, ..stderr.clone() };
        let tools = matchers.iter().map(|matcher| matcher.owner.clone());
        let tools = tools.chain(format.map(|format| format.tool().to_owned()));
        Self { stdout, stderr, found: tools.map(|tool| (tool, Vec::new())).collect() }
    }

    /// Takes a piece of an output. `begins` is called for each line; if it returns true, the
    /// earlier problems are dropped.
    pub fn push(&mut self, stream: Stream, piece: &[u8], mut begins: impl FnMut(&str) -> bool) {
        let Self { stdout, stderr, found } = self;
        let reader = match stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        };
        if reader.format.is_some_and(|format| !format.is_lines()) {
            let room = (DOCUMENT_BYTES_MAX + 1).saturating_sub(reader.document.len());
            reader.document.extend(piece.get(..room).unwrap_or(piece));
            return;
        }
        let Reader { lines, matchers, format, formats, .. } = reader;
        lines.push(piece, |line| {
            if begins(line) {
                found.values_mut().for_each(Vec::clear);
            }
            take(line, *format, formats, matchers, found);
        });
    }

    /// Takes the end of both outputs; returns the document of standard output, if it is one.
    pub fn finish(&mut self) -> Option<(Format, Vec<u8>)> {
        let Self { stdout, stderr, found } = self;
        for Reader { lines, matchers, format, formats, .. } in [&mut *stdout, stderr] {
            lines.finish(|line| take(line, *format, formats, matchers, found));
            end(matchers, found);
        }
        let is_error = |problem: &Problem| problem.severity == Level::Error;
        let is_known = found.get("cargo").is_some_and(|problems| problems.iter().any(is_error));
        if let Some(problem) = stdout.formats.cargo.finish().filter(|_| !is_known) {
            push(found, "cargo", problem);
        }
        let document = std::mem::take(&mut stdout.document);
        let format = stdout.format.filter(|format| !format.is_lines() && !document.is_empty())?;
        Some((format, document))
    }

    /// Takes a pause in both outputs: a problem whose last lines are optional is complete.
    pub fn pause(&mut self) {
        let Self { stdout, stderr, found } = self;
        for reader in [stdout, stderr] {
            end(&mut reader.matchers, found);
        }
    }

    /// Adds the problems of a document.
    pub fn add(&mut self, format: Format, problems: Vec<Problem>) {
        self.found.get_or_default(format.tool().to_owned()).extend(problems);
    }

    /// Drops all problems so far.
    pub fn clear(&mut self) {
        self.found.values_mut().for_each(Vec::clear);
    }

    /// The problems by tool, with an empty list for a tool without problems.
    pub fn found(&self) -> &SortedMap<String, Vec<Problem>> {
        &self.found
    }
}

/// Passes a line to its parsers; of several matchers that find a problem in it, the first one
/// counts.
fn take(
    line: &str,
    format: Option<Format>,
    formats: &mut Formats,
    matchers: &mut [Matcher],
    found: &mut SortedMap<String, Vec<Problem>>,
) {
    let is_json = line.starts_with('{');
    let problem = match format {
        Some(Format::CargoJson) if is_json => formats.cargo.line(line).map(|problem| ("cargo", problem)),
        Some(Format::GoTestJson) if is_json => formats.go.line(line).map(|problem| ("go", problem)),
        Some(Format::EslintJson | Format::Sarif | Format::Junit) => None,
        // Between the lines of JSON there is text of the programs that the tool runs.
        Some(Format::CargoJson | Format::GoTestJson) | None => {
            let mut first = None;
            // Every matcher gets the line, so that none keeps waiting for a line that another one
            // matched.
            for matcher in matchers {
                let read = matcher.read(line);
                if let Some(problem) = read.ended {
                    push(found, &matcher.owner, problem);
                }
                first = first.or_else(|| Some((matcher.owner.clone(), read.found?)));
            }
            if let Some((owner, problem)) = first {
                push(found, &owner, problem);
            }
            None
        }
    };
    if let Some((tool, problem)) = problem {
        push(found, tool, problem);
    }
}

fn end(matchers: &mut [Matcher], found: &mut SortedMap<String, Vec<Problem>>) {
    for matcher in matchers {
        if let Some(problem) = matcher.finish() {
            push(found, &matcher.owner, problem);
        }
    }
}

fn push(found: &mut SortedMap<String, Vec<Problem>>, tool: &str, problem: Problem) {
    let problems = found.get_or_default(tool.to_owned());
    // A long-running tool may repeat a problem without announcing a new round.
    if problems.len() < PROBLEMS_MAX && !problems.contains(&problem) {
        problems.push(problem);
    }
}

/// How long a tool that does not announce ends has to be silent to count as settled.
pub const QUIET: Duration = Duration::from_secs(1);
/// How long lines may follow the announced end. Source: cargo announces the end of each target
/// within some milliseconds.
pub const AFTER_END: Duration = Duration::from_millis(200);
/// How long a tool has to be silent to count as settled if it announced a beginning without an end.
pub const SILENT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Busy,
    /// An end was announced, and the command has not settled yet.
    Ending,
}

/// Detects when a long-running command has finished a round of checks: idle, busy, settled.
///
/// A tool that announces the beginning and end of a round is busy between those lines. Any other
/// tool is busy while it writes, and settled after a time without output. The problems are compared
/// when the command has settled.
#[derive(Debug, Clone)]
pub struct Cycle {
    backgrounds: Vec<Background>,
    /// Whether a beginning or an end was announced, so further ones are expected.
    speaks: bool,
    phase: Phase,
    settles: Option<Timestamp>,
}

impl Cycle {
    /// Shape: without `backgrounds` only silence counts.
    pub fn new(backgrounds: Vec<Background>) -> Self {
        let is_busy = backgrounds.iter().any(|background| background.is_active_on_start);
        let phase = if is_busy { Phase::Busy } else { Phase::Idle };
        Self { backgrounds, speaks: false, phase, settles: None }
    }

    /// Takes the time of an output; returns whether the earlier problems are obsolete.
    pub fn output(&mut self, now: Timestamp) -> bool {
        let is_first = self.phase == Phase::Idle && !self.speaks;
        match (self.phase, self.speaks) {
            (Phase::Ending, _) => {}
            (Phase::Busy, true) => self.settles = Some(now + SILENT),
            (Phase::Idle, true) => self.settles = Some(now + QUIET),
            (Phase::Idle | Phase::Busy, false) => {
                (self.phase, self.settles) = (Phase::Busy, Some(now + QUIET));
            }
        }
        is_first
    }

    /// Takes a line; returns whether the earlier problems are obsolete.
    pub fn line(&mut self, line: &str, now: Timestamp) -> bool {
        if self.backgrounds.iter().any(|background| background.ends(line)) {
            self.speaks = true;
            (self.phase, self.settles) = (Phase::Ending, Some(now + AFTER_END));
            return false;
        }
        if !self.backgrounds.iter().any(|background| background.begins(line)) {
            return false;
        }
        self.speaks = true;
        let is_first = self.phase != Phase::Busy;
        (self.phase, self.settles) = (Phase::Busy, Some(now + SILENT));
        is_first
    }

    /// When to call [`Cycle::settle`].
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.settles
    }

    /// Whether the tool announced a beginning without an end.
    pub fn is_cut_off(&self) -> bool {
        self.speaks && self.phase == Phase::Busy
    }

    /// Whether the command has settled; returns true once per round.
    pub fn settle(&mut self, now: Timestamp) -> bool {
        let is_due = self.settles.is_some_and(|at| at <= now);
        if is_due {
            (self.phase, self.settles) = (Phase::Idle, None);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::problem::matcher::Matchers;

    fn messages(collector: &Collector, tool: &str) -> Vec<String> {
        collector.found().get(tool).expect("found").iter().map(|problem| problem.message.clone()).collect()
    }

    #[test]
    fn stdout_and_stderr_lines_are_matched_separately() {
        let matchers = Matchers::shipped().named("cargo").expect("it ships");
        let mut collector = Collector::new(&matchers, None);
        let pieces: [(Stream, &[u8]); 4] = [
            (Stream::Stderr, b"error: no\n"),
            (Stream::Stdout, b"  --> wrong.rs:1:1\n"),
            (Stream::Stderr, b" --> src/a.rs:2:"),
            (Stream::Stderr, b"5"),
        ];
        pieces.iter().for_each(|(stream, piece)| collector.push(*stream, piece, |_| false));
        assert_eq!(collector.finish(), None);
        assert_eq!(messages(&collector, "cargo"), ["no"]);
        assert_eq!(collector.found().get("cargo").expect("found")[0].file.as_deref(), Some("src/a.rs"));
    }

    #[test]
    fn beginning_line_clears_earlier_problems() {
        let mut matchers = Matchers::shipped().named("gcc").expect("it ships");
        matchers.extend(Matchers::shipped().named("mypy").expect("it ships"));
        let mut collector = Collector::new(&matchers, None);
        collector
            .push(Stream::Stdout, b"a.c:1:2: error: x\nagain\nb.c:1:2: error: y\n", |line| line == "again");
        assert_eq!(
            (messages(&collector, "gcc"), messages(&collector, "mypy")),
            (vec!["y".to_owned()], vec![])
        );
    }

    #[test]
    fn document_is_parsed_at_end_within_a_bound() {
        let mut collector = Collector::new(&[], Some(Format::EslintJson));
        for piece in [
            &br#"[{"filePath":"a.js","messages":[{"ruleId":"#[..],
            br#""semi","severity":2,"message":"no"}]}]"#,
        ] {
            collector.push(Stream::Stdout, piece, |_| false);
        }
        assert_eq!(messages(&collector, "eslint"), Vec::<String>::new());
        let (format, document) = collector.finish().expect("a document");
        collector.add(format, format.read_document(document).expect("right"));
        assert_eq!(messages(&collector, "eslint"), ["no"]);

        let mut large = Collector::new(&[], Some(Format::Sarif));
        for _ in 0..20 {
            large.push(Stream::Stdout, &vec![b' '; 1024 * 1024], |_| false);
        }
        let (format, document) = large.finish().expect("a document");
        let error = format.read_document(document).expect_err("too large");
        assert_eq!(error.to_string(), "larger than 16777216 bytes");
    }

    #[test]
    fn text_between_lines_of_json_is_read() {
        let matchers = Matchers::shipped().named("cargo").expect("it ships");
        let failed = r#"{"reason":"build-finished","success":false}"#;
        for (stdout, stderr, expected) in [
            (format!("{{}}\nthread 'x' panicked at a.rs:1:2:\nno\n{failed}\n"), "", &["no"][..]),
            (
                format!("{failed}\n"),
                "error: failed to run custom build command",
                &["failed to run custom build command"],
            ),
            (failed.to_owned(), "", &["the build failed, and no message of the compiler says why"]),
        ] {
            let mut collector = Collector::new(&matchers, Some(Format::CargoJson));
            collector.push(Stream::Stdout, stdout.as_bytes(), |_| false);
            collector.push(Stream::Stderr, stderr.as_bytes(), |_| false);
            assert_eq!(collector.finish(), None);
            assert_eq!(messages(&collector, "cargo"), expected, "{stdout}{stderr}");
        }
    }

    #[test]
    fn a_pause_ends_a_problem_without_optional_lines() {
        let matchers = Matchers::shipped().named("cargo").expect("it ships");
        let mut collector = Collector::new(&matchers, None);
        collector.push(Stream::Stderr, b"error: linking with `cc` failed\n", |_| false);
        assert_eq!(messages(&collector, "cargo"), Vec::<String>::new());
        collector.pause();
        assert_eq!(messages(&collector, "cargo"), ["linking with `cc` failed"]);
    }

    #[test]
    fn many_problems_are_bounded() {
        let matchers = Matchers::shipped().named("gcc").expect("it ships");
        let mut collector = Collector::new(&matchers, None);
        let numbered: String = (1..=3_000).map(|line| format!("a.c:{line}:2: error: x\n")).collect();
        collector.push(Stream::Stdout, numbered.as_bytes(), |_| false);
        assert_eq!(messages(&collector, "gcc").len(), PROBLEMS_MAX);
        collector.clear();
        collector.push(Stream::Stdout, "a.c:1:2: error: x\n".repeat(3_000).as_bytes(), |_| false);
        assert_eq!(messages(&collector, "gcc"), ["x"]);
    }

    fn cycle(tool: &str) -> Cycle {
        let matchers = Matchers::shipped().named(tool).expect("it ships");
        Cycle::new(matchers.into_iter().filter_map(|matcher| matcher.background).collect())
    }

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Takes `time line`, one per row; returns `clear` and `settled` with their times.
    fn run(tool: &str, lines: &[(u64, &str)]) -> Vec<String> {
        let (mut cycle, mut said) = (cycle(tool), Vec::new());
        for (time, line) in lines.iter().copied().chain([(999_999, "")]) {
            while let Some(due) = cycle.poll_timeout().filter(|due| *due <= at(time)) {
                assert!(cycle.settle(due));
                said.push(format!("settled {}", due.as_millis()));
            }
            if time < 999_999 {
                let is_first = cycle.output(at(time));
                if cycle.line(line, at(time)) || is_first {
                    said.push(format!("clear {time}"));
                }
            }
        }
        said
    }

    #[test]
    fn announcing_tool_settles_on_its_end_line() {
        let lines = [
            (0, "12:00 - Starting compilation in watch mode..."),
            (9_000, "a.ts(1,2): error TS1: x"),
            (9_001, "12:00 - Found 1 error. Watching for file changes."),
            (30_000, "12:01 - File change detected. Starting incremental compilation..."),
            (31_500, "12:01 - Found 0 errors. Watching for file changes."),
        ];
        assert_eq!(run("tsc", &lines), ["settled 9201", "clear 30000", "settled 31700"]);
    }

    #[test]
    fn repeated_beginning_while_busy_starts_no_cycle() {
        let lines = [
            (0, "    Checking a v0.1.0"),
            (10, "error: x"),
            (5_000, "    Checking b v0.1.0"),
            (9_000, "error: could not compile `a` (lib) due to 1 previous error"),
            (9_100, "error: could not compile `a` (lib test) due to 1 previous error"),
            (20_000, "    Checking a v0.1.0"),
            (20_500, "    Finished `dev` profile"),
        ];
        assert_eq!(run("cargo", &lines), ["settled 9300", "clear 20000", "settled 20700"]);
    }

    #[test]
    fn tool_without_announcements_settles_when_quiet() {
        let lines = [(0, "x"), (900, "y"), (1_800, "z"), (9_000, "x")];
        assert_eq!(run("gcc", &lines), ["clear 0", "settled 2800", "clear 9000", "settled 10000"]);
    }

    #[test]
    fn beginning_without_end_settles_after_silence() {
        let lines =
            [(0, "    Checking a v0.1.0"), (500, "error: no such file"), (100_000, "    Checking a v0.1.0")];
        assert_eq!(run("cargo", &lines), ["settled 60500", "clear 100000", "settled 160000"]);
    }

    #[test]
    fn output_after_the_end_settles_again() {
        let lines =
            [(0, "    Checking a"), (10, "    Finished `dev`"), (5_000, "thread 'x' panicked at a.rs:1:1:")];
        assert_eq!(run("cargo", &lines), ["settled 210", "settled 6000"]);
    }
}

//! Collects the problems in the output of a command.

use super::{
    Level, Problem,
    format::{Cargo, DOCUMENT_BYTES_MAX, Format, GoTest},
    lines::Lines,
    matcher::Matcher,
};
use engine::sorted::SortedMap;

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
}

//! The daemon's log: one line per entry, as text or as JSON, on stderr.
//!
//! A line has a time, a level, a target (the module), a constant message, and fields. Repetitions
//! are limited: at most [`LINES_MAX`] lines a minute of one call site are written, at the levels
//! `info` and above. The last of them has the field `muted_for`, and the first one after that
//! minute has the number of suppressed ones in `suppressed`.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use journal::meter::MonotonicClock;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Metadata, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields, MakeWriter,
        format::Writer,
        time::{FormatTime, time},
    },
    registry::LookupSpan,
};

use crate::daemon::causes::with_causes;

/// Most lines of one call site in one [`WINDOW`], at the levels `info` and above.
const LINES_MAX: u32 = 10;
/// The window in which they are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Field that announces the suppression.
const MUTED_FOR: &str = "muted_for";
/// Field with the number of suppressed lines.
const SUPPRESSED: &str = "suppressed";

/// Excluded from the log: `rmcp` logs the content of an agent's messages.
const QUIET: &str = "rmcp=off";

/// Format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum LogFormat {
    /// For users
    Text,
    /// One object a line
    Json,
}

/// Validates a filter, which is built on use because it cannot be cloned.
pub(super) fn parse_filter(text: &str) -> Result<String, tracing_subscriber::filter::ParseError> {
    EnvFilter::builder().parse(text).map(|_| text.to_owned())
}

/// A log of entries that match `filter`; text is coloured only for a terminal.
pub(super) fn log_to<W>(
    writer: W,
    is_terminal: bool,
    filter: &str,
    format: LogFormat,
    clock: MonotonicClock,
) -> impl Subscriber + Send + Sync + 'static
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(format!("{filter},{QUIET}")))
        .with_writer(writer)
        .with_ansi(is_terminal && format == LogFormat::Text)
        .event_format(Lines { format, clock, storms: Storms::default() })
        .finish()
}

/// Formats and writes lines.
struct Lines {
    format: LogFormat,
    clock: MonotonicClock,
    storms: Storms,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        let note = match self.storms.check(about, (self.clock)()) {
            Some(note) => note,
            // An empty line is not written.
            None => return Ok(()),
        };
        match self.format {
            LogFormat::Text => {
                time().format_time(&mut writer)?;
                let (word, colour) = word_and_colour(*about.level());
                match writer.has_ansi_escapes() {
                    true => write!(writer, " \u{1b}[{colour}m{word:>5}\u{1b}[0m {}: ", about.target())?,
                    false => write!(writer, " {word:>5} {}: ", about.target())?,
                }
                context.format_fields(writer.by_ref(), event)?;
                match note {
                    Note::Nothing => {}
                    Note::MutedFor => write!(writer, " {MUTED_FOR}={WINDOW:?}")?,
                    Note::Suppressed(count) => write!(writer, " {SUPPRESSED}={count}")?,
                }
                writeln!(writer)
            }
            LogFormat::Json => {
                let line = Value::Object(json_line(event, note)?);
                writeln!(writer, "{line}")
            }
        }
    }
}

/// The word of a level, and the number of its colour in a terminal.
const fn word_and_colour(level: Level) -> (&'static str, u8) {
    match level {
        Level::ERROR => ("error", 31),
        Level::WARN => ("warn", 33),
        Level::INFO => ("info", 32),
        Level::DEBUG => ("debug", 34),
        Level::TRACE => ("trace", 35),
    }
}

fn json_line(event: &Event<'_>, note: Note) -> Result<Map<String, Value>, fmt::Error> {
    let about = event.metadata();
    let mut timestamp = String::new();
    time().format_time(&mut Writer::new(&mut timestamp))?;
    let mut line = Map::new();
    line.insert("timestamp".to_owned(), timestamp.into());
    line.insert("level".to_owned(), word_and_colour(*about.level()).0.into());
    line.insert("target".to_owned(), about.target().into());
    event.record(&mut Fields(&mut line));
    match note {
        Note::Nothing => {}
        Note::MutedFor => {
            line.insert(MUTED_FOR.to_owned(), format!("{WINDOW:?}").into());
        }
        Note::Suppressed(count) => {
            line.insert(SUPPRESSED.to_owned(), count.into());
        }
    }
    Ok(line)
}

/// The fields of an event as JSON, with numbers and booleans as such.
struct Fields<'m>(&'m mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.put(field, u64::try_from(value).unwrap_or(u64::MAX));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    /// An error with its chain of causes, as one text.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, with_causes(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

/// A line's note about similar ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Nothing,
    /// Further ones are suppressed for a while.
    MutedFor,
    /// This many were suppressed before it.
    Suppressed(u64),
}

/// Counts per call site; their number is bounded by the program.
#[derive(Default)]
struct Storms(Mutex<HashMap<Identifier, Storm>>);

#[derive(Debug, Clone, Copy, Default)]
struct Storm {
    began: Duration,
    written: u32,
    suppressed: u64,
}

impl Storms {
    /// The note for a line at `now`; `None` to suppress it.
    fn check(&self, about: &'static Metadata<'static>, now: Duration) -> Option<Note> {
        // Levels below `info` were requested explicitly.
        if *about.level() > Level::INFO {
            return Some(Note::Nothing);
        }
        let mut storms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let storm = storms.entry(about.callsite()).or_insert(Storm { began: now, ..Storm::default() });
        storm.check(now)
    }
}

impl Storm {
    fn check(&mut self, now: Duration) -> Option<Note> {
        let mut note = Note::Nothing;
        if now.saturating_sub(self.began) >= WINDOW {
            if self.suppressed > 0 {
                note = Note::Suppressed(self.suppressed);
            }
            *self = Self { began: now, ..Self::default() };
        }
        if self.written == LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(if self.written == LINES_MAX { Note::MutedFor } else { note })
    }
}

/// Size at which the file is rotated, in bytes.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The file on stderr.
///
/// Shape: other output to stderr, such as a panic, also goes to the file, but is not counted.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    /// Size of the file.
    bytes: Mutex<u64>,
}

impl LogFile {
    /// Redirects stderr to `path`, and appends to it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        rustix::stdio::dup2_stderr(&file)?;
        let bytes = Mutex::new(file.metadata()?.len());
        Ok(Self { path: path.to_owned(), bytes_max: LOG_BYTES_MAX, bytes })
    }

    /// Adds `count` bytes; returns whether to rotate before they are written.
    fn add(&self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = *bytes > 0 && bytes.saturating_add(count) > self.bytes_max;
        *bytes = if is_full { count } else { bytes.saturating_add(count) };
        is_full
    }

    fn rotate(&self) -> io::Result<()> {
        fs::rename(&self.path, older(&self.path))?;
        rustix::stdio::dup2_stderr(&open(&self.path)?)?;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The name of the rotated file of `path`.
pub(in crate::cli) fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.add(bytes.len()) {
            // If the rotation fails the old file grows, which is better than no log.
            self.rotate().ok();
        }
        io::stderr().write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Args, *};
    use std::{
        io,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
    };

    /// The seconds of each test's clock; thread-local, because tests run in parallel.
    static SECONDS: AtomicU64 = AtomicU64::new(0);

    fn said(is_terminal: bool, format: LogFormat, clock: MonotonicClock, say: impl FnOnce()) -> Vec<String> {
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = log_to(Arc::new(Written(written.clone())), is_terminal, "info", format, clock);
        tracing::subscriber::with_default(log, say);
        let text = String::from_utf8(written.lock().expect("not poisoned").clone()).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    fn json(line: &str) -> Value {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    #[test]
    fn only_text_for_a_terminal_has_colours() {
        for (is_terminal, format) in
            [(false, LogFormat::Text), (true, LogFormat::Text), (true, LogFormat::Json)]
        {
            let lines = said(is_terminal, format, || Duration::ZERO, || tracing::warn!(errors = 1, "said"));
            let [line] = lines.as_slice() else { panic!("{lines:?}") };
            assert!(line.contains("said") && line.contains("errors"), "{line:?}");
            let has_colours = is_terminal && format == LogFormat::Text;
            assert_eq!(line.contains('\u{1b}'), has_colours, "{line:?}");
        }
    }

    #[test]
    fn json_log_line_has_fixed_names_and_types() {
        let error = io::Error::other(fmt::Error);
        let error: &dyn Error = &error;
        let say = || tracing::warn!(path = %"a\n\"b\"", bytes = 7, took_us = 9_u128, ok = true, name = "n", error, "it went wrong");
        let lines = said(false, LogFormat::Json, || Duration::ZERO, say);
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        let mut line = json(line);
        let timestamp = line["timestamp"].take();
        let timestamp = timestamp.as_str().expect("text");
        assert!(timestamp.ends_with('Z') && timestamp.parse::<jiff::Timestamp>().is_ok(), "{timestamp}");
        let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(keys[..4], ["timestamp", "level", "target", "message"]);
        let expected = serde_json::json!({
            "timestamp": null, "level": "warn", "target": module_path!(), "message": "it went wrong",
            "path": "a\n\"b\"", "bytes": 7, "took_us": 9, "ok": true, "name": "n", "error": fmt::Error.to_string(),
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn repeated_warnings_are_suppressed_and_counted() {
        let clock = || Duration::from_secs(SECONDS.load(Ordering::Relaxed));
        let storm = |count| (0..count).for_each(|number| tracing::warn!(number, "again"));
        let lines = said(false, LogFormat::Json, clock, || {
            storm(15);
            tracing::warn!("another");
            (0..15).for_each(|number| tracing::info!(number, "news"));
            (0..15).for_each(|number| tracing::debug!(number, "asked for"));
            SECONDS.store(59, Ordering::Relaxed);
            storm(1);
            SECONDS.store(60, Ordering::Relaxed);
            storm(2);
        });
        let lines: Vec<Value> = lines.iter().map(|line| json(line)).collect();
        let of = |message: &'static str| lines.iter().filter(move |line| line["message"] == message);
        assert_eq!((of("another").count(), of("news").count(), of("again").count()), (1, 10, 12));
        let notes: Vec<_> =
            of("again").map(|line| (line[MUTED_FOR].as_str(), line[SUPPRESSED].as_u64())).collect();
        let mut expected = vec![(None, None); 12];
        expected[9] = (Some("60s"), None);
        expected[10] = (None, Some(6));
        assert_eq!(notes, expected);
    }

    #[test]
    fn invalid_log_filter_is_an_error() {
        assert!(parse_filter("warn,aside_journal=debug").is_ok());
        assert!(parse_filter("aside=loud").is_err());
    }

    #[test]
    fn documented_module_of_a_filter_exists() {
        let help = <Args as clap::Args>::augment_args(clap::Command::new("serve")).render_long_help();
        let pages = [help.to_string(), include_str!("../../../docs/operations.md").to_owned()];
        for page in pages {
            let (module, _) = page.split_once("=debug`").expect("an example");
            let module = module.rsplit(',').next().expect("after a level");
            let path = std::any::type_name::<journal::Journal>();
            assert!(path.starts_with(&format!("{module}::")), "{module} is not in {path}");
        }
    }

    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for &Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_rotates_before_exceeding_its_size_limit() {
        let log = LogFile { path: "daemon.log".into(), bytes_max: 100, bytes: Mutex::new(0) };
        let full: Vec<bool> = [60, 40, 1, 99, 1, 500, 1].map(|count| log.add(count)).to_vec();
        assert_eq!(full, [false, false, true, false, true, true, true]);
        assert_eq!(older(&log.path), Path::new("daemon.log.1"));
    }
}

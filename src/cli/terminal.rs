//! Formats text for its reader: the terminal's width, colours by meaning, times and folders.
//!
//! All of it is determined once, at a command's start, and passed on as data. A pipe gets no colour
//! and unlimited lines.

use std::{
    borrow::Cow,
    ffi::OsString,
    io::{self, IsTerminal},
    iter,
    os::fd::AsFd,
    time::Duration,
};

use anstyle::{AnsiColor, Style};
use engine::event::clean_text;
use jiff::{Zoned, tz::TimeZone};
use journal::time::{Timestamp, short_duration};
use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::daemon::Clock;

/// Columns of a terminal that does not report them.
const COLUMNS_UNKNOWN: usize = 80;
/// Fewest columns for wrapping; a narrower terminal wraps again.
const COLUMNS_MIN: usize = 40;
/// Beginnings of a sentence below which its further lines stand.
const LABELS: [&str; 3] = ["note: ", "= help: ", "= note: "];
/// Indentation of the further lines of any other sentence.
const INDENT: usize = 2;
/// Replaces cut text: one column wide.
const CUT_MARK: char = '\u{2026}';

/// The meaning of a text; decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    #[default]
    Plain,
    /// The title of a column or a section.
    Heading,
    /// An id or a time: secondary text.
    Dim,
    Good,
    Warning,
    Bad,
}

impl Tone {
    /// The tone of a severity, a priority, a verdict or a state.
    pub(super) fn of(word: &str) -> Self {
        match word {
            "critical" | "error" | "fail" => Self::Bad,
            "high" | "warning" | "warn" => Self::Warning,
            "ok" | "confirmed" => Self::Good,
            "debug" | "low" | "suspended" => Self::Dim,
            _ => Self::Plain,
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Heading => Style::new().bold(),
            Self::Dim => Style::new().dimmed(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
        }
    }
}

/// The target of the output.
#[derive(Debug, Clone)]
pub(super) struct Terminal {
    /// Whether the user can be prompted: both ends are a terminal with cursor control.
    pub(super) is_interactive: bool,
    /// Columns of the terminal; `None` for other targets, whose lines are neither cut nor wrapped.
    pub(super) columns: Option<usize>,
    /// Whether tones are shown.
    pub(super) has_colours: bool,
    pub(super) moments: Moments,
    /// The user's home, shown as `~`.
    pub(super) home: Option<String>,
}

impl Terminal {
    /// Detects the target of stdout; times are of `zone`, or, without one, written exactly.
    pub(super) fn of_stdout(
        zone: Option<fn() -> TimeZone>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let columns = columns_of(&io::stdout());
        let is_dumb = variable("TERM").is_none_or(|term| term == "dumb");
        Self {
            is_interactive: columns.is_some() && !is_dumb && io::stdin().is_terminal(),
            columns,
            has_colours: columns.is_some() && wants_colours(&variable),
            moments: Moments { now: Clock::starting_at(Timestamp::ZERO).now(), zone },
            home: variable("HOME").and_then(|home| home.into_string().ok()).filter(|home| home.len() > 1),
        }
    }

    /// `text` in the colour of its tone.
    pub(super) fn paint(&self, tone: Tone, text: &str) -> String {
        if !self.has_colours || tone == Tone::Plain || text.is_empty() {
            return text.to_owned();
        }
        let style = tone.style();
        format!("{style}{text}{style:#}")
    }

    /// The rest of a line after `begin` columns, cut at the terminal's width.
    pub(super) fn cut_after<'t>(&self, begin: usize, rest: &'t str) -> Cow<'t, str> {
        let cut = |columns: usize| cut(rest, columns.max(COLUMNS_MIN).saturating_sub(begin));
        self.columns.map_or(Cow::Borrowed(rest), cut)
    }

    /// `text`, which starts after `begin` columns, wrapped at spaces; continuations are indented by
    /// `indent`.
    pub(super) fn wrap(&self, text: &str, begin: usize, indent: usize) -> String {
        self.columns.map_or_else(|| text.to_owned(), |columns| wrap(text, begin, indent, columns))
    }

    /// Sentences, one or more lines, each wrapped at spaces below its own beginning.
    pub(super) fn prose(&self, text: &str) -> String {
        prose(text, self.columns)
    }

    /// A folder with `~` for the user's home.
    pub(super) fn folder(&self, path: &str) -> String {
        let inside = self.home.as_deref().and_then(|home| path.strip_prefix(home));
        match inside {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("~{rest}"),
            Some(_) | None => path.to_owned(),
        }
    }

    /// The same with fewer columns.
    pub(super) fn narrower(&self, by: usize) -> Self {
        Self { columns: self.columns.map(|columns| columns.saturating_sub(by)), ..self.clone() }
    }

    /// The time of day now, as opposed to the start of the command.
    pub(super) fn time_of_day(&self) -> String {
        let now = Clock::starting_at(Timestamp::ZERO).now();
        let zone = self.moments.zone.map_or(TimeZone::UTC, |zone| zone());
        let now =
            i64::try_from(now.as_millis()).ok().and_then(|now| jiff::Timestamp::from_millisecond(now).ok());
        now.map(|now| now.to_zoned(zone).strftime("%H:%M:%S").to_string()).unwrap_or_default()
    }

    /// How long something lasts that ends `at`: `for 2h10m more`, `until tomorrow 11:00`.
    pub(super) fn lasts(&self, at: &str) -> String {
        let end = self.moment(at);
        match end.strip_prefix("in ") {
            Some(left) => format!("for {left} more"),
            None => format!("until {end}"),
        }
    }

    /// A relative time for users: `3m ago`.
    pub(super) fn moment(&self, at: &str) -> String {
        self.moments.relative(at)
    }
}

/// The columns of the terminal that `stream` writes to; `None` for another target.
fn columns_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let size = || tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
    let columns = || size().filter(|columns| *columns > 0).unwrap_or(COLUMNS_UNKNOWN);
    stream.is_terminal().then(columns)
}

/// Sentences for stderr, wrapped if it is a terminal.
pub(super) fn prose_of_stderr(text: &str) -> String {
    prose(text, columns_of(&io::stderr()))
}

/// Wraps each line that is a sentence. Shape: a line of a file's text (`5 | types = ..`) stays whole,
/// as the marks below it are aligned with it.
fn prose(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let line = |line: &str| {
        let (own, end) = line.strip_suffix('\n').map_or((line, ""), |own| (own, "\n"));
        let blank = own.len() - own.trim_start().len();
        let label =
            LABELS.iter().find(|label| own.get(blank..).is_some_and(|rest| rest.starts_with(**label)));
        let is_of_file = own.contains(" | ");
        let indent = blank + label.map_or(INDENT, |label| label.len());
        if is_of_file { line.to_owned() } else { wrap(own, 0, indent, columns) + end }
    };
    text.split_inclusive('\n').map(line).collect()
}

fn wrap(text: &str, begin: usize, indent: usize, columns: usize) -> String {
    let columns = columns.max(COLUMNS_MIN).max(indent + COLUMNS_MIN / 2);
    let mut wrapped = String::new();
    let (mut at, mut has_word) = (begin, false);
    for (index, word) in text.split(' ').enumerate() {
        let width = width_of(word);
        if has_word && width > 0 && at + 1 + width > columns {
            wrapped.truncate(wrapped.trim_end().len());
            wrapped.push('\n');
            wrapped.extend(iter::repeat_n(' ', indent));
            (at, has_word) = (indent, false);
        } else if index > 0 {
            wrapped.push(' ');
            at += 1;
        }
        wrapped.push_str(word);
        at += width;
        has_word |= width > 0;
    }
    wrapped
}

/// Width of a word without its colours.
fn width_of(word: &str) -> usize {
    let mut parts = word.split("\u{1b}[");
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, text)| text).width());
    first + rest.sum::<usize>()
}

/// Whether a terminal's user wants colours.
///
/// Source: <https://no-color.org>, and terminfo's name of a terminal without capabilities.
pub(super) fn wants_colours(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_refused && variable("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Width of a text in columns.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// `text`, or its start and a mark if it is wider than `columns`.
pub(super) fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return text.into();
    }
    let (mut left, mut end) = (columns.saturating_sub(1), 0);
    for (at, c) in text.char_indices() {
        let width = c.width().unwrap_or(0);
        if width > left {
            break;
        }
        (left, end) = (left - width, at + c.len_utf8());
    }
    format!("{}{CUT_MARK}", text.get(..end).expect("0, or the end of a character")).into()
}

/// `text`, or a mark and its end if it is wider than `columns`.
pub(super) fn cut_beginning(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return text.into();
    }
    let (mut left, mut start) = (columns.saturating_sub(1), text.len());
    for (at, c) in text.char_indices().rev() {
        let width = c.width().unwrap_or(0);
        if width > left {
            break;
        }
        (left, start) = (left - width, at);
    }
    format!("{CUT_MARK}{}", text.get(start..).expect("the start of a character, or the end")).into()
}

/// `text` without terminal control sequences.
pub(super) fn one_line(text: &str) -> String {
    let clean: Cow<'_, str> = clean_text(text);
    clean.replace(['\n', '\t'], " ")
}

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

#[derive(Debug, Clone)]
pub(super) struct Moments {
    /// The time of the command.
    pub(super) now: Timestamp,
    /// Looks up the user's time zone on the first use; `None` keeps the daemon's format: RFC 3339
    /// in UTC.
    pub(super) zone: Option<fn() -> TimeZone>,
}

impl Moments {
    /// A relative time within a day, else the date and time. What is past has its largest unit, and
    /// what is left is rounded to a minute.
    ///
    /// Shape: `3m ago`, `in 12m`, `in 1h59m`, `5h ago`, `yesterday 14:02`, `Nov 9 14:02`, `2025-11-09 14:02`;
    /// invalid text stays unchanged.
    pub(super) fn relative(&self, at: &str) -> String {
        let Some((at, now)) = self.local(at) else { return one_line(at) };
        let ago = now.timestamp().as_second() - at.timestamp().as_second();
        if ago.abs() >= HOUR && at.date() != now.date() {
            return day(&at, &now);
        }
        if ago < 0 {
            return format!("in {}", short_duration(rounded(ago.unsigned_abs())));
        }
        let (distance, unit) = match ago {
            seconds @ ..MINUTE => (seconds, 's'),
            seconds @ MINUTE..HOUR => (seconds / MINUTE, 'm'),
            seconds => (seconds / HOUR, 'h'),
        };
        format!("{distance}{unit} ago")
    }

    /// The time of day, to the millisecond, with the date unless it is today.
    pub(super) fn exact(&self, at: &str) -> String {
        match self.local(at) {
            Some((at, now)) if at.date() == now.date() => at.strftime("%H:%M:%S.%3f").to_string(),
            Some((at, _)) => at.strftime("%Y-%m-%d %H:%M:%S.%3f").to_string(),
            None => one_line(at),
        }
    }

    /// The age of something, given in milliseconds.
    pub(super) fn age(&self, age_ms: u64) -> String {
        self.relative(&Timestamp::from_millis(self.now.as_millis().saturating_sub(age_ms)).to_string())
    }

    /// This time and the current one, in the user's time zone; `None` if times are not converted.
    fn local(&self, at: &str) -> Option<(Zoned, Zoned)> {
        let zone = self.zone?();
        let at: jiff::Timestamp = at.parse().ok()?;
        let now = jiff::Timestamp::from_millisecond(i64::try_from(self.now.as_millis()).ok()?).ok()?;
        Some((at.to_zoned(zone.clone()), now.to_zoned(zone)))
    }
}

/// A number of seconds, from a minute on rounded to whole minutes.
fn rounded(seconds: u64) -> Duration {
    let minute = MINUTE.unsigned_abs();
    let is_short = seconds < minute;
    Duration::from_secs(if is_short { seconds } else { (seconds + minute / 2) / minute * minute })
}

/// The date and time, relative to `now`.
fn day(at: &Zoned, now: &Zoned) -> String {
    let date = at.date();
    let named = if now.date().yesterday().ok() == Some(date) {
        "yesterday %H:%M"
    } else if now.date().tomorrow().ok() == Some(date) {
        "tomorrow %H:%M"
    } else if date.year() == now.date().year() {
        "%b %-d %H:%M"
    } else {
        "%Y-%m-%d %H:%M"
    };
    at.strftime(named).to_string()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use jiff::tz::{self, TimeZone};

    /// A pipe at 12:30 UTC.
    pub(in crate::cli) fn pipe() -> Terminal {
        let now = "2026-11-21T12:30:00Z".parse().expect("a time");
        Terminal {
            is_interactive: false,
            columns: None,
            has_colours: false,
            moments: Moments { now, zone: Some(|| TimeZone::UTC) },
            home: Some("/home/u".to_owned()),
        }
    }

    /// A terminal of this width without colours, at the same time.
    pub(in crate::cli) fn of_width(columns: usize) -> Terminal {
        Terminal { columns: Some(columns), ..pipe() }
    }

    #[test]
    fn too_wide_text_is_cut_with_an_ellipsis() {
        for (text, columns, beginning, end) in [
            ("abcdef", 6, "abcdef", "abcdef"),
            ("abcdefg", 6, "abcde\u{2026}", "\u{2026}cdefg"),
            // Two columns each, so that one column stays empty.
            ("\u{8a9e}\u{8a9e}\u{8a9e}", 5, "\u{8a9e}\u{8a9e}\u{2026}", "\u{2026}\u{8a9e}\u{8a9e}"),
            ("\u{8a9e}\u{8a9e}\u{8a9e}", 4, "\u{8a9e}\u{2026}", "\u{2026}\u{8a9e}"),
            ("abc", 0, "\u{2026}", "\u{2026}"),
        ] {
            assert_eq!((&*cut(text, columns), &*cut_beginning(text, columns)), (beginning, end), "{text}");
        }
        let line = "x".repeat(90);
        assert_eq!(of_width(80).cut_after(10, &line).width(), 70);
        assert_eq!(pipe().cut_after(10, &line), line);
    }

    #[test]
    fn long_text_wraps_at_spaces_with_indentation() {
        let text = "one two three four five six seven eight nine ten";
        let expected = "one two three four five six seven\n    eight nine ten";
        assert_eq!(of_width(40).wrap(text, 4, 4), expected);
        assert_eq!(pipe().wrap(text, 4, 4), text);
        // A word that fits nowhere gets its own line.
        let long = "x".repeat(50);
        assert_eq!(of_width(40).wrap(&format!("a {long} b"), 0, 2), format!("a\n  {long}\n  b"));
        assert_eq!(of_width(40).wrap("  a  b", 0, 2), "  a  b");
    }

    #[test]
    fn colours_are_for_terminals_whose_user_wants_them() {
        for (no_color, term, wants) in [
            (None, Some("xterm"), true),
            (None, None, true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (None, Some("dumb"), false),
        ] {
            let variable = |name: &str| match name {
                "NO_COLOR" => no_color.map(OsString::from),
                _ => term.map(OsString::from),
            };
            assert_eq!(wants_colours(variable), wants, "{no_color:?} {term:?}");
        }
        let coloured = Terminal { has_colours: true, ..pipe() };
        assert_eq!(coloured.paint(Tone::of("error"), "e"), "\u{1b}[31me\u{1b}[0m");
        assert_eq!(coloured.paint(Tone::of("info"), "i"), "i");
        assert_eq!(pipe().paint(Tone::Bad, "e"), "e");
    }

    #[test]
    fn a_folder_in_the_home_is_written_short() {
        for (path, shown) in
            [("/home/u/work", "~/work"), ("/home/u", "~"), ("/home/user", "/home/user"), ("/srv", "/srv")]
        {
            assert_eq!(pipe().folder(path), shown);
        }
    }

    #[test]
    fn sentences_wrap_and_lines_of_files_do_not() {
        let text = "\
note: a sentence that is longer than a narrow terminal
  = help: define it in the events.toml of the folder
5 | types = [\"deploy.*.finished\"]  # a line of a file
aside: failed to publish: no daemon runs at this socket
";
        let expected = "\
note: a sentence that is longer than a
      narrow terminal
  = help: define it in the events.toml
          of the folder
5 | types = [\"deploy.*.finished\"]  # a line of a file
aside: failed to publish: no daemon runs
  at this socket
";
        assert_eq!(of_width(40).prose(text), expected);
        assert_eq!(pipe().prose(text), text);
        let red = "\u{1b}[31m'A'\u{1b}[0m";
        let coloured = format!("{red} {red} {red} {red} {red} {red} {red} {red} {red} {red}");
        assert_eq!(of_width(40).prose(&coloured), coloured, "colours take no columns");
    }

    fn at_noon(zone: Option<fn() -> TimeZone>) -> Moments {
        Moments { now: "2026-11-21T12:00:00Z".parse().expect("a time"), zone }
    }

    #[test]
    fn relative_time_shows_distance_or_day() {
        let moments = at_noon(Some(|| TimeZone::fixed(tz::offset(1))));
        for (at, shown) in [
            ("2026-11-21T12:00:00.4Z", "0s ago"),
            ("2026-11-21T11:59:18Z", "42s ago"),
            ("2026-11-21T11:56:30Z", "3m ago"),
            ("2026-11-21T12:00:42Z", "in 42s"),
            ("2026-11-21T12:12:29Z", "in 12m"),
            ("2026-11-21T12:12:30Z", "in 13m"),
            ("2026-11-21T13:59:00Z", "in 1h59m"),
            ("2026-11-21T13:59:50Z", "in 2h00m"),
            ("2026-11-21T07:00:00Z", "5h ago"),
            ("2026-11-21T14:59:00Z", "in 2h59m"),
            // 23:30 local time is the day before, 00:10 is not.
            ("2026-11-20T23:10:00Z", "12h ago"),
            ("2026-11-20T22:30:00Z", "yesterday 23:30"),
            ("2026-11-22T10:00:00Z", "tomorrow 11:00"),
            ("2026-11-09T13:02:00Z", "Nov 9 14:02"),
            ("2025-11-09T13:02:00Z", "2025-11-09 14:02"),
            ("soon\u{1b}[31m", "soon"),
        ] {
            assert_eq!(moments.relative(at), shown, "{at}");
        }
        assert_eq!(moments.age(125_000), "2m ago");
    }

    #[test]
    fn exact_time_is_local_unless_utc_is_requested() {
        let moments = at_noon(Some(|| TimeZone::fixed(tz::offset(1))));
        assert_eq!(moments.exact("2026-11-21T11:56:30.25Z"), "12:56:30.250");
        assert_eq!(moments.exact("2026-11-20T11:56:30Z"), "2026-11-20 12:56:30.000");
        let moments = at_noon(None);
        for at in ["2026-11-21T11:56:30.25Z", "2026-11-20T11:56:30Z"] {
            assert_eq!((moments.relative(at), moments.exact(at)), (at.to_owned(), at.to_owned()));
        }
        assert_eq!(moments.age(1_000), "2026-11-21T11:59:59Z");
    }
}

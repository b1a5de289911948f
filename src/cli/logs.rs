//! `aside logs`: prints the last lines of the daemon's log.
//!
//! A running daemon is not queried: its log is its stderr, which the system identifies. A file is
//! shown; for other targets, the command names them. Without a running daemon, the log of the last
//! one started by `aside up` is shown.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::{
    CliError, Context,
    serve::older_log,
    terminal::{Terminal, Tone, one_line},
    up,
};

/// Most bytes read from a file's end; twice the size limit of a daemon's log.
const BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Poll interval of a follower.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Follow the log
    #[arg(long, short)]
    follow: bool,
    /// How many lines to show first
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
    lines: usize,
}

/// The location of a log.
#[derive(Debug, PartialEq, Eq)]
enum LogLocation {
    File(PathBuf),
    /// Not readable; a sentence about its location.
    Elsewhere(String),
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let path = match place(context)? {
        LogLocation::File(path) => path,
        LogLocation::Elsewhere(location) => return Err(CliError::Log(location)),
    };
    let mut log = Log::open(&path).map_err(|error| no_log(&path, error))?;
    let last = log.last_lines(args.lines).map_err(|source| unreadable(&path, source))?;
    context.print(&shown(&last, &context.terminal))?;
    if !args.follow {
        return Ok(());
    }
    loop {
        thread::park_timeout(PAUSE);
        let more = log.more().map_err(|source| unreadable(&path, source))?;
        if !more.is_empty() {
            context.print(&shown(&more, &context.terminal))?;
        }
    }
}

fn place(context: &Context<'_>) -> Result<LogLocation, CliError> {
    match up::running(&context.client) {
        Some(daemon) => match fs::read_link(format!("/proc/{}/fd/2", daemon.pid)) {
            Ok(stderr) => Ok(place_of(&stderr, daemon.pid)),
            Err(source) => {
                let name = format!("where process {} writes its log", daemon.pid);
                Err(CliError::Input { name, source })
            }
        },
        None => Ok(LogLocation::File(context.state()?.join(up::LOG_FILE))),
    }
}

/// The target of a daemon's stderr, from the system's link.
///
/// Source: proc_pid_fd(5).
fn place_of(stderr: &Path, pid: u32) -> LogLocation {
    let name = stderr.to_string_lossy();
    let location = match name.split(':').next() {
        Some("socket") => "systemd's journal; see it with `journalctl --user -u aside`".to_owned(),
        Some("pipe") => "a pipe of the program that started it".to_owned(),
        _ if name == "/dev/null" => "/dev/null; `aside up` keeps it in a file".to_owned(),
        _ if name.starts_with("/dev/") => format!("the terminal that it runs in, {name}"),
        _ => return LogLocation::File(stderr.to_owned()),
    };
    LogLocation::Elsewhere(format!("process {pid} writes it to {location}"))
}

fn no_log(path: &Path, source: io::Error) -> CliError {
    if source.kind() == io::ErrorKind::NotFound {
        let shown = path.display();
        return CliError::Log(format!("{shown} does not exist; a daemon started by `aside up` writes it"));
    }
    unreadable(path, source)
}

fn unreadable(path: &Path, source: io::Error) -> CliError {
    CliError::Input { name: path.display().to_string(), source }
}

/// A log that is followed, also across a rotation.
struct Log {
    path: PathBuf,
    file: File,
    /// Text after the last returned complete line.
    rest: Vec<u8>,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: File::open(path)?, rest: Vec::new() })
    }

    /// The last `count` lines, including those of the previous file if this one has fewer.
    fn last_lines(&mut self, count: usize) -> io::Result<String> {
        let text = tail(&mut self.file)?;
        let newer = self.whole_lines(&text);
        let missing = count.saturating_sub(newer.lines().count());
        let older = match File::open(older_log(&self.path)) {
            Ok(mut file) if missing > 0 => String::from_utf8_lossy(&tail(&mut file)?).into_owned(),
            Ok(_) | Err(_) => String::new(),
        };
        Ok(last(&older, missing).to_owned() + last(&newer, count))
    }

    /// The complete lines written since.
    fn more(&mut self) -> io::Result<String> {
        let mut text = Vec::new();
        (&self.file).take(BYTES_MAX).read_to_end(&mut text)?;
        let mut lines = self.whole_lines(&text);
        // During a rotation no file has this name.
        let Ok(newest) = File::open(&self.path) else { return Ok(lines) };
        if text.is_empty() && newest.metadata()?.ino() != self.file.metadata()?.ino() {
            (self.file, self.rest) = (newest, Vec::new());
            let mut text = Vec::new();
            (&self.file).take(BYTES_MAX).read_to_end(&mut text)?;
            lines.push_str(&self.whole_lines(&text));
        }
        Ok(lines)
    }

    /// The lines completed by `text`; the rest is kept for the next call.
    fn whole_lines(&mut self, text: &[u8]) -> String {
        self.rest.extend_from_slice(text);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.rest.split_off(end);
        let lines = std::mem::replace(&mut self.rest, rest);
        String::from_utf8_lossy(&lines).into_owned()
    }
}

/// The end of a file, at most [`BYTES_MAX`].
fn tail(file: &mut File) -> io::Result<Vec<u8>> {
    let begin = file.metadata()?.len().saturating_sub(BYTES_MAX);
    file.seek(SeekFrom::Start(begin))?;
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The last `count` lines of `text`, each with its newline.
fn last(text: &str, count: usize) -> &str {
    let Some(before) = count.checked_sub(1) else { return "" };
    let mut ends = text.char_indices().rev().filter(|(_, c)| *c == '\n').skip(1);
    ends.nth(before).map_or(text, |(at, _)| text.get(at + 1..).expect("a newline is one byte"))
}

/// Lines of a log, with coloured levels.
fn shown(lines: &str, terminal: &Terminal) -> String {
    let line = |line: &str| {
        let line = one_line(line);
        let parts = || {
            let (time, rest) = line.split_once(' ').filter(|(time, _)| !time.starts_with('{'))?;
            let level = rest.split_whitespace().next()?;
            let (blanks, rest) = rest.split_once(level)?;
            Some((time, blanks, level, rest))
        };
        parts().map_or_else(
            || format!("{line}\n"),
            |(time, blanks, level, rest)| {
                let time = terminal.paint(Tone::Dim, time);
                format!("{time} {blanks}{}{rest}\n", terminal.paint(Tone::of(level), level))
            },
        )
    };
    lines.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::cli::terminal::tests::pipe;
    use hook::client::fake::Scratch;

    #[test]
    fn log_is_located_from_the_daemons_stderr() {
        let elsewhere = |location: &str| LogLocation::Elsewhere(format!("process 7 writes it to {location}"));
        for (stderr, place) in [
            (
                "/home/u/.local/state/aside/daemon.log",
                LogLocation::File("/home/u/.local/state/aside/daemon.log".into()),
            ),
            ("/tmp/a:b.log", LogLocation::File("/tmp/a:b.log".into())),
            ("socket:[123]", elsewhere("systemd's journal; see it with `journalctl --user -u aside`")),
            ("pipe:[123]", elsewhere("a pipe of the program that started it")),
            ("/dev/null", elsewhere("/dev/null; `aside up` keeps it in a file")),
            ("/dev/pts/3", elsewhere("the terminal that it runs in, /dev/pts/3")),
        ] {
            assert_eq!(place_of(Path::new(stderr), 7), place, "{stderr}");
        }
    }

    #[test]
    fn logs_read_across_rotation_and_follow_new_file() {
        let folder = Scratch::new();
        let path = folder.path().join("daemon.log");
        fs::write(older_log(&path), "1\n2\n3\n").expect("written");
        fs::write(&path, "4\n5\n6").expect("written");
        for (count, lines) in
            [(0, ""), (1, "5\n"), (2, "4\n5\n"), (4, "2\n3\n4\n5\n"), (9, "1\n2\n3\n4\n5\n")]
        {
            assert_eq!(Log::open(&path).and_then(|mut log| log.last_lines(count)).expect("read"), lines);
        }
        let mut log = Log::open(&path).expect("there");
        log.last_lines(0).expect("read");
        assert_eq!(log.more().expect("read"), "");
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"6\n7\n"))
            .expect("written");
        fs::rename(&path, older_log(&path)).expect("renamed");
        assert_eq!(log.more().expect("read"), "66\n7\n");
        fs::write(&path, "8\n").expect("written");
        assert_eq!(log.more().expect("read"), "8\n");
        assert_eq!(log.more().expect("read"), "");
    }

    #[test]
    fn log_line_is_coloured_and_stripped_of_escapes() {
        let coloured = Terminal { has_colours: true, ..pipe() };
        let text =
            "2026-11-21T21:58:03Z  warn aside::daemon: a\u{1b}[31mb\n{\"level\":\"warn\", \"a\": 1}\nplain\n";
        let expected = "\u{1b}[2m2026-11-21T21:58:03Z\u{1b}[0m  \u{1b}[33mwarn\u{1b}[0m aside::daemon: ab\n\
                        {\"level\":\"warn\", \"a\": 1}\nplain\n";
        assert_eq!(shown(text, &coloured), expected);
        assert_eq!(shown("a warn b\n", &pipe()), "a warn b\n");
    }
}

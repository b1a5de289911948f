//! Detects when a long-running command has finished a round of checks: idle, busy, settled.
//!
//! A tool that announces the beginning and end of a round is busy between those lines. Any other
//! tool is busy while it writes, and settled after a time without output. The problems are compared
//! when the command has settled.

use std::time::Duration;

use super::matcher::Background;
use journal::time::Timestamp;

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

/// The state of a command.
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

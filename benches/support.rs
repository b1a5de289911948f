//! Shared by the benches: the size of a run, quantiles of several rounds, and the machine's name.

use std::{env, fs};

/// Rounds of a full run; medians are taken over them.
const ROUNDS: usize = 5;

/// The size of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// As in the published figures.
    Full,
    /// `--quick`: only shows that the bench works.
    Quick,
}

impl Size {
    pub(crate) fn from_args() -> Self {
        if env::args().any(|arg| arg == "--quick") { Self::Quick } else { Self::Full }
    }

    pub(crate) fn rounds(self) -> usize {
        match self {
            Self::Full => ROUNDS,
            Self::Quick => 1,
        }
    }

    /// `full` divided by `divisor` in a quick run.
    pub(crate) fn scale(self, full: usize, divisor: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Quick => (full / divisor).max(1),
        }
    }
}

/// The value below which the fraction `quantile` of `values` lies; zero if there are none.
pub(crate) fn quantile(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * quantile).round() as usize).copied().unwrap_or(0.0)
}

/// The number of processes that could run, on average over the last minute.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Cores, kernel and load, as a line above figures.
pub(crate) fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = load();
    let profile = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    format!("{cores} x {}, Linux {}, load {load}, {profile}", model.unwrap_or("unknown"), kernel.trim())
}

//! What do probes add to an exchange, at 0, 200 and 1,000 files that the session knows, if nothing
//! changed?
//!
//! `cargo bench --bench all -- probes`, or with `--quick` for a size that only shows that it works. The
//! files are real, the check is the daemon's; next to it is the floor, one `stat` per file. Medians
//! and 99th percentiles of wall-clock time; the two alternate.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench prints its figures and reads a clock"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{
    call::{Call, Touch, TouchKind},
    event::SessionId,
    notification::InjectionPoint,
    probe::{self, Memory, Moment, Settings},
};

use crate::{
    report::row,
    support::{Size, load, machine, quantile},
};
use aside::api::{Contents, Machine};
use journal::time::Timestamp;

const FILES: [usize; 3] = [0, 200, 1_000];
/// Targets by the number of files, in microseconds.
const P50_MAX: [(usize, f64); 2] = [(200, 200.0), (1_000, 1_000.0)];
const LOOKS: usize = 400;
/// Far later than every file, so that all of them have settled.
const NOW: Timestamp = Timestamp::from_millis(4_000_000_000_000);

pub(crate) fn run(size: Size, _: &[String]) {
    println!("{}; {}", machine(), load());
    println!("| known files | a look, p50 | p99 | one `stat` a file, p50 |");
    println!("|---|---|---|---|");
    for count in FILES {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = write_files(folder.path(), count);
        let workspace = folder.path().to_str().expect("text");
        let world = World::new(workspace, &paths);
        let (mut looks, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..size.rounds() * size.scale(LOOKS, 100) {
            let begun = Instant::now();
            assert_eq!(world.look(), 0, "nothing changed");
            looks.push(micros(begun));
            let begun = Instant::now();
            paths.iter().for_each(|path| drop(fs::metadata(path)));
            floor.push(micros(begun));
        }
        let (p50, p99) = (quantile(&looks, 0.5), quantile(&looks, 0.99));
        println!("| {count} | {p50:.0} us | {p99:.0} us | {:.0} us |", quantile(&floor, 0.5));
        if let Some((_, max)) = P50_MAX.iter().find(|(files, _)| *files == count) {
            let what = format!("an exchange's look at {count} known files, p50");
            row("17", &what, &format!("{max:.0} us"), &format!("{p50:.0} us"), p50 <= *max);
        }
    }
}

fn write_files(folder: &Path, count: usize) -> Vec<PathBuf> {
    let path = |number| folder.join(format!("source_{number}.rs"));
    let paths: Vec<PathBuf> = (0..count).map(path).collect();
    for path in &paths {
        fs::write(path, format!("// {}\n", path.display()).repeat(100)).expect("written");
    }
    paths
}

/// A session that has read files.
struct World<'w> {
    session: SessionId,
    memory: Memory,
    settings: Settings,
    contents: Arc<Contents>,
    workspace: &'w str,
}

impl<'w> World<'w> {
    fn new(workspace: &'w str, paths: &[PathBuf]) -> Self {
        let (session, contents) = (SessionId::new("s"), Arc::new(Contents::default()));
        let mut world =
            Self { session, memory: Memory::default(), settings: Settings::default(), contents, workspace };
        let touch = |path: &PathBuf| Touch {
            path: path.to_str().expect("text").into(),
            by: TouchKind::Read,
            written: None,
        };
        let call = Call { touched: paths.iter().map(touch).collect(), ..Call::default() };
        for event in world.look_after(&[call]) {
            world.memory.note(&event.as_ref(), NOW);
        }
        world
    }

    /// The number of events of a check after no calls.
    fn look(&self) -> usize {
        self.look_after(&[]).len()
    }

    fn look_after(&self, calls: &[Call]) -> Vec<engine::event::Event> {
        let view = self.memory.view(&self.session, Some(self.workspace), |_| true, NOW);
        let facts = Machine {
            contents: Arc::clone(&self.contents),
            programs: Arc::default(),
            keeps_texts: true,
            now: NOW,
            is_comparing: Arc::default(),
            stopwatch: || Duration::ZERO,
        };
        let others = view.other_sessions();
        let moment = Moment {
            workspace: Some(self.workspace),
            calls,
            calls_since: view.known.calls_since(None),
            others: &others,
            ..Moment::new(&self.session, InjectionPoint::AfterTool, NOW)
        };
        probe::look(&view.known, &moment, &self.settings, &facts)
    }
}

fn micros(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6
}

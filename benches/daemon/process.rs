//! A daemon of its own in folders of its own, and the system's figures about its process.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::rules;

/// Longest time until the daemon's first answer.
const READY_MAX: Duration = Duration::from_secs(600);
/// `_SC_CLK_TCK`, which is 100 on every Linux that Rust's standard library runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// Folders of a daemon, which outlive its process.
pub(crate) struct Home {
    /// On the disk of the build, as the folder for temporary files is often in memory.
    state: tempfile::TempDir,
    /// Elsewhere, because the path of a socket has at most 107 bytes.
    run: tempfile::TempDir,
}

/// A running daemon, killed when dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
}

/// The measured program.
pub(crate) fn program() -> PathBuf {
    env::var_os("ASIDE_BENCH_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_aside").into(), PathBuf::from)
}

/// The small program for hooks next to `program`.
pub(crate) fn hook_program(program: &Path) -> PathBuf {
    program.with_file_name("aside-hook")
}

/// User and system time in `/proc/*/stat`, from field `field` on counted from 1, in microseconds.
fn cpu_micros(stat: &str, field: usize) -> f64 {
    // The name of the program, field 2, may hold spaces.
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = after_name.split(' ').skip(field - 3).take(2).map(|field| field.parse().unwrap_or(0.0));
    ticks.sum::<f64>() / TICKS_A_SECOND * 1e6
}

/// CPU time of the children that were waited for, so far, in microseconds.
pub(crate) fn children_cpu_micros() -> f64 {
    cpu_micros(&fs::read_to_string("/proc/self/stat").expect("this process runs"), 16)
}

impl Home {
    /// Makes folders with these files in the configuration, by name and text, without budgets.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let state =
            tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder takes folders");
        let run = tempfile::tempdir().expect("there is a folder for temporary files");
        let home = Self { state, run };
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        rules::without_budgets(files).for_each(|(name, text)| home.configure(&name, &text));
        home
    }

    /// Writes a file of the configuration.
    pub(crate) fn configure(&self, name: &str, text: &str) {
        let path = self.run.path().join("config").join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.run.path().join("s")
    }

    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    /// A command of `program` whose environment has this daemon's paths and little else.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("ASIDE_STATE", self.state.path())
            .env("ASIDE_CONFIG", self.run.path().join("config"))
            .env("ASIDE_SOCKET", self.socket())
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon and waits until it reports that it listens.
    pub(crate) fn serve(&self) -> Daemon {
        Self::serve_by(self.command(&program()))
    }

    /// Like [`Self::serve`], by a command that only names the program so far.
    pub(crate) fn serve_by(mut command: Command) -> Daemon {
        let mut child = command
            .args(["serve", "--log", "warn"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the daemon was built");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("the daemon says something");
        assert!(!line.is_empty(), "the daemon did not start");
        Daemon { child }
    }

    /// Connects, after waiting for the listener.
    pub(crate) fn connect(&self) -> UnixStream {
        let begin = Instant::now();
        loop {
            match UnixStream::connect(self.socket()) {
                Ok(stream) => return stream,
                Err(error) if begin.elapsed() > READY_MAX => panic!("the daemon does not listen: {error}"),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Daemon {
    fn read(&self, name: &str) -> String {
        let path = format!("/proc/{}/{name}", self.child.id());
        fs::read_to_string(path).expect("the daemon runs")
    }

    /// User and system time so far, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        cpu_micros(&self.read("stat"), 14)
    }

    /// A size in `/proc/*/status`, such as `VmRSS`, in megabytes.
    pub(crate) fn megabytes(&self, name: &str) -> f64 {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kilobytes.expect("the system knows the size") / 1024.0
    }

    /// How often each of its threads was scheduled on a processor.
    pub(crate) fn switches(&self) -> BTreeMap<OsString, u64> {
        let folder = format!("/proc/{}/task", self.child.id());
        let threads = fs::read_dir(folder).expect("the daemon runs");
        let of_thread = |path: PathBuf| {
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
            counts.map(|(_, count)| count.trim().parse().unwrap_or(0)).sum::<u64>()
        };
        threads.filter_map(Result::ok).map(|entry| (entry.file_name(), of_thread(entry.path()))).collect()
    }

    /// The switches since `before`; a thread that has ended counts as switched at least once.
    pub(crate) fn switches_since(&self, mut before: BTreeMap<OsString, u64>) -> u64 {
        let since = |(thread, count)| count - before.remove(&thread).unwrap_or(0);
        let of_living: u64 = self.switches().into_iter().map(since).sum();
        of_living + before.len() as u64
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

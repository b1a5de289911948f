//! How many instructions do an event, an exchange and a hook take?
//!
//! `cargo bench --bench all -- counts` runs whole processes under valgrind's cachegrind and compares
//! their counts with `benches/counts.txt`; it fails if a count has moved. `--bless` writes the file,
//! `--quick` only shows that it works, and `counts exchange` counts only the kinds with that in their
//! name. A count does not include the system's work for a process. It does not include the
//! start and the end of a process either: it is the difference that more of the same work makes.
//! `ASIDE_BENCH_BINARY` names the program.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    daemon::{
        events::{Events, Matching},
        exchanges::{self, AT_ONCE},
        hook_input,
        http::Connection,
        process::{Daemon, Home, hook_program, program},
    },
    engine,
    fed::Fed,
    pipelines,
    support::{Size, machine},
};

/// How far a count may move, in percent. Runs of one program differ by less than 0.1, or by up to 2
/// where threads wake each other.
const MOVED_MAX: f64 = 3.0;
const BATCH: usize = 1_000;
/// So small that the counts include sealing.
const SEGMENTS: (&str, &str) = ("aside.toml", "[journal]\nsegment_bytes = 8388608\n");

/// How long a daemon takes no processor time before it counts as calm: longer than its delay for
/// syncs without a waiting client.
const CALM: Duration = Duration::from_millis(1_500);
const END_MAX: Duration = Duration::from_secs(60);
const VALGRIND: &str = "valgrind";
/// The work, and the session, of a queue that is full.
const PENDING: &str = "pending";

/// The work with so many subscribers that a look at each of them shows.
const SUBSCRIBERS: &str = "subscribers";

/// A counted kind of work: its name, the units of work of two runs, and the instructions of a run
/// with so many units. A kind with no units counts the run itself.
struct Kind {
    name: &'static str,
    units: Option<(usize, usize)>,
    count: fn(usize) -> u64,
}

const KINDS: [Kind; 11] = [
    // The longer run has three snapshots and five segments more.
    Kind {
        name: "an event in batches of 1,000, none matching",
        units: Some((20_000, 118_000)),
        count: |events| published(Matching::None, events),
    },
    Kind {
        name: "an event in batches of 1,000, 5 % matching",
        units: Some((20_000, 118_000)),
        count: |events| published(Matching::Few, events),
    },
    Kind {
        name: "an event from matching to text, shipped tables",
        units: Some((2_000, 12_000)),
        count: |events| driven("shipped", events),
    },
    Kind {
        name: "an event from matching to text, a template that loops",
        units: Some((2_000, 12_000)),
        count: |events| driven("looping", events),
    },
    Kind {
        name: "an event from matching to text, 2,000 subscribers, of which 5 match",
        units: Some((2_000, 12_000)),
        count: |events| driven(SUBSCRIBERS, events),
    },
    // An event refills the queue after each exchange.
    Kind {
        name: "an exchange that releases one of 1,000 pending, and an event",
        units: Some((200, 1_200)),
        count: |exchanges| driven(PENDING, exchanges),
    },
    Kind { name: "an event published alone", units: Some((200, 1_200)), count: published_alone },
    Kind { name: "an exchange, nothing pending", units: Some((200, 1_200)), count: exchanged },
    Kind {
        name: "an event published alone, and the exchange that releases it",
        units: Some((200, 1_200)),
        count: released,
    },
    Kind { name: "a hook, start to end", units: None, count: |_| hook(true) },
    Kind { name: "a hook without a daemon, start to end", units: None, count: |_| hook(false) },
];

pub(crate) fn run(size: Size, args: &[String]) {
    // This program again, under valgrind.
    if let [drive, name, events] = args
        && drive == "--drive"
    {
        drive_engine(name, events.parse().expect("a number"));
        return;
    }
    let has = |wanted: &str| args.iter().any(|arg| arg == wanted);
    let wanted = args.iter().find(|arg| !arg.starts_with("--"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/counts.txt");
    let known = Counts::read(&path);
    println!("{}, {}", machine(), compiler());
    println!("| what | instructions | before | |");
    println!("|---|---|---|---|");
    let (mut counts, mut moved) = (known.clone(), 0);
    let is_wanted = |kind: &&Kind| wanted.is_none_or(|wanted| kind.name.contains(wanted.as_str()));
    assert!(KINDS.iter().any(|kind| is_wanted(&kind)), "no count has {wanted:?} in its name");
    for kind in KINDS.iter().filter(is_wanted) {
        let count = kind.count(size);
        let before = known.get(kind.name);
        let percent = before.map(|before| (count as f64 / before as f64 - 1.0) * 100.0);
        moved += usize::from(percent.is_none_or(|percent| percent.abs() > MOVED_MAX));
        let [before, percent] =
            [before.map(|before| before.to_string()), percent.map(|by| format!("{by:+.1} %"))]
                .map(Option::unwrap_or_default);
        println!("| {} | {count} | {before} | {percent} |", kind.name);
        counts.set(kind.name, count);
    }
    if size == Size::Quick {
        return;
    }
    if has("--bless") {
        counts.write(&path);
        return;
    }
    assert!(
        moved == 0,
        "{moved} counts moved by more than {MOVED_MAX} % ({}): look why, then bless them with `scripts/counts --bless`",
        known.made_by
    );
}

impl Kind {
    fn count(&self, size: Size) -> u64 {
        match self.units {
            None => (self.count)(1),
            Some((few, many)) => {
                let [few, many] = [few, many].map(|full| size.scale(full, 20).next_multiple_of(2));
                (self.count)(many).saturating_sub((self.count)(few)) / (many - few) as u64
            }
        }
    }
}

/// Publishes in batches; no session is open.
fn published(matching: Matching, events: usize) -> u64 {
    of_daemon(&[SEGMENTS], |home| {
        let (mut connection, mut made) = (Connection::new(home.connect()), Events::new("counts", matching));
        for _ in 0..events / BATCH {
            connection.publish(made.batch(BATCH), BATCH);
        }
    })
}

fn published_alone(events: usize) -> u64 {
    of_daemon(&[], |home| {
        let mut connection = Connection::new(home.connect());
        let mut made = Events::new("counts", Matching::None);
        (0..events).for_each(|_| connection.publish(made.batch(1), 1));
    })
}

fn exchanged(exchanges: usize) -> u64 {
    of_daemon(&[], |home| {
        let mut connection = Connection::new(home.connect());
        for number in 0..exchanges {
            exchanges::timed(&mut connection, "bench", number);
        }
    })
}

fn released(events: usize) -> u64 {
    of_daemon(&[AT_ONCE], |home| {
        let mut connection = Connection::new(home.connect());
        connection.exchange("bench", 0);
        for number in 1..=events {
            let body = format!(
                r#"{{"id":"e{number}","type":"cli.bench","source":"bench","payload":{{"tool_name":"t{number}"}}}}"#
            );
            connection.publish(body.as_bytes(), 1);
            let (status, _) = connection.exchange("bench", number);
            assert_eq!(status, 200, "the event is released");
        }
    })
}

fn drive_engine(name: &str, units: usize) {
    match name {
        PENDING => take_one_of_many(units),
        SUBSCRIBERS => drop(engine::prepared(2_000).round(units)),
        "shipped" => drop(pipelines::shipped().round(units)),
        _ => drop(pipelines::looping().round(units)),
    }
}

fn take_one_of_many(exchanges: usize) {
    let mut fed = Fed::new("", "priority = \"normal\"\ninject_at = \"turn_end\"\n");
    fed.take_one(PENDING);
    (0..1_000).for_each(|_| fed.event(Some(PENDING), None));
    for _ in 0..exchanges {
        fed.take_one(PENDING);
        fed.event(Some(PENDING), None);
    }
}

/// Runs the engine alone, in a process of its own.
fn driven(name: &str, events: usize) -> u64 {
    let counter = Counter::new();
    let own = env::current_exe().expect("this program is a file");
    let mut command = counter.command(Command::new(VALGRIND), &own);
    let status = command.args(["counts", "--drive", name, &events.to_string()]).status();
    assert!(status.expect("valgrind is installed").success(), "the engine ran");
    counter.read()
}

fn hook(has_daemon: bool) -> u64 {
    let home = Home::new(&[]);
    let _daemon = has_daemon.then(|| home.serve());
    let calls = (0..3).map(|number| {
        let counter = Counter::new();
        let mut command = counter.command(home.command(Path::new(VALGRIND)), &hook_program(&program()));
        command.arg("claude").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("valgrind is installed");
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(hook_input::after_tools(number).as_bytes()).expect("a hook reads its input");
        drop(stdin);
        assert!(child.wait().expect("it was started here").success(), "the hook succeeds");
        counter.read()
    });
    calls.min().expect("three")
}

/// The instructions of a daemon from its start to its end, with the load `work`.
fn of_daemon(files: &[(&str, &str)], work: impl FnOnce(&Home)) -> u64 {
    let (home, counter) = (Home::new(files), Counter::new());
    let daemon = Home::serve_by(counter.command(home.command(Path::new(VALGRIND)), &program()));
    work(&home);
    end_when_calm(daemon);
    counter.read()
}

/// Waits until the daemon has finished its work, then ends it as a service manager does.
fn end_when_calm(mut daemon: Daemon) {
    let mut before = -1.0;
    while daemon.cpu_micros() > before {
        before = daemon.cpu_micros();
        thread::sleep(CALM);
    }
    kill_process(Pid::from_child(&daemon.child), Signal::TERM).expect("it runs");
    let begin = Instant::now();
    while daemon.child.try_wait().expect("it was started here").is_none() {
        assert!(begin.elapsed() < END_MAX, "the daemon does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The file to which a process under valgrind writes its counts.
struct Counter {
    folder: tempfile::TempDir,
}

impl Counter {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("there is a folder for temporary files") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("counts")
    }

    /// Makes `command`, which starts valgrind, count the instructions of `program`.
    fn command(&self, mut command: Command, program: &Path) -> Command {
        let output = format!("--cachegrind-out-file={}", self.path().display());
        let log = format!("--log-file={}", self.folder.path().join("log").display());
        command.args(["--tool=cachegrind", "--cache-sim=no", &log, &output]).arg(program);
        command
    }

    fn read(self) -> u64 {
        let text = fs::read_to_string(self.path()).expect("valgrind wrote what it counted");
        let summary = text.lines().find_map(|line| line.strip_prefix("summary: "));
        summary.and_then(|count| count.parse().ok()).expect("cachegrind ends with a sum")
    }
}

/// Counts by name, as in `benches/counts.txt`.
#[derive(Clone)]
struct Counts {
    made_by: String,
    counts: Vec<(String, u64)>,
}

impl Counts {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let made_by = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        let counts = text.lines().filter_map(|line| {
            let (name, count) = line.split_once(" | ")?;
            Some((name.to_owned(), count.parse().ok()?))
        });
        Self { made_by: made_by.to_owned(), counts: counts.collect() }
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
    }

    fn set(&mut self, name: &str, count: u64) {
        match self.counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = count,
            None => self.counts.push((name.to_owned(), count)),
        }
    }

    fn write(&self, path: &Path) {
        let rows =
            KINDS.iter().filter_map(|kind| Some(format!("{} | {}\n", kind.name, self.get(kind.name)?)));
        let text = format!("# {}\n{}", compiler(), rows.collect::<String>());
        fs::write(path, text).expect("the repository takes files");
    }
}

/// The compiler, on which a count depends besides the sources.
fn compiler() -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("rustc compiled this bench");
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    format!("{version}, {build}")
}

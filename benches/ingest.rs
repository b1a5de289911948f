//! How many events a second does the real daemon take over its Unix socket, each batch synced before it is acknowledged?
//!
//! `cargo bench --bench ingest`, or with `-- --quick` for a size that only shows that it works. One keep-alive connection
//! sends NDJSON batches of 1, 100 and 1,000 events of about 400 bytes; 5 % match a shipped subscriber. Beside the figures
//! stands the flush floor: what one fdatasync costs on the same disk, in the same rounds.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock, and waits for the daemon to start")]

mod support;

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::FileExt, net::UnixStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use support::{Size, machine, quantile};

/// Events a batch, and events a round; a full run leaves about 1.5 GB in the journal, which goes with the daemon's folder.
const LOADS: [(usize, usize); 3] = [(1, 5_000), (100, 200_000), (1_000, 300_000)];
/// One event in this many matches a shipped subscriber.
const MATCH_EVERY: usize = 20;
/// Digits of an event's id, so that it can be written over in place.
const ID_DIGITS: usize = 14;
const FLUSHES: usize = 200;
const EVENT_BYTES: usize = 400;
/// How long the daemon may take to answer for the first time.
const READY_MAX: Duration = Duration::from_secs(20);
/// `_SC_CLK_TCK`, which is 100 on every Linux that Rust's standard library runs on.
const TICKS_A_SECOND: f64 = 100.0;

fn main() {
    let size = Size::from_args();
    let daemon = Daemon::start();
    let mut connection = Connection::open(&daemon.socket());
    let mut loads: Vec<Load> =
        LOADS.iter().map(|(batch, events)| Load::new(*batch, size.scale(*events, 100))).collect();
    let mut next_id = 0;
    let mut floors = Floors::default();
    for load in &mut loads {
        load.round(&mut connection, &daemon, &mut next_id, Keep::No);
    }
    for _ in 0..size.rounds() {
        floors.measure(daemon.state.path(), size.scale(FLUSHES, 10));
        for load in &mut loads {
            load.round(&mut connection, &daemon, &mut next_id, Keep::Yes);
        }
    }
    println!("{}", machine());
    println!("{} rounds, medians; {next_id} events in all, 1 in {MATCH_EVERY} matches", size.rounds());
    println!(
        "flush floor, p50: append and fdatasync {:.0} us, fdatasync of a preallocated file {:.0} us",
        quantile(&floors.append, 0.5),
        quantile(&floors.in_place, 0.5)
    );
    println!("daemon's most memory: {} kB", daemon.status_field("VmHWM:"));
    println!("| batch | events/s | ack p50 us | ack p99 us | server CPU us an event |");
    println!("|---|---|---|---|---|");
    for load in &loads {
        println!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.2} |",
            load.batch,
            quantile(&load.rates, 0.5),
            quantile(&load.acks, 0.5),
            quantile(&load.acks, 0.99),
            quantile(&load.costs, 0.5)
        );
    }
}

/// Whether a round counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    /// It only warms up.
    No,
}

/// Batches of one size, and what they took.
struct Load {
    batch: usize,
    events: usize,
    body: Vec<u8>,
    /// Where in `body` the ids stand.
    ids: Vec<usize>,
    rates: Vec<f64>,
    acks: Vec<f64>,
    costs: Vec<f64>,
}

impl Load {
    fn new(batch: usize, events: usize) -> Self {
        // A batch of 1 is a match once in MATCH_EVERY requests, which `round` sees to by taking turns.
        let mut body = Vec::new();
        let mut ids = Vec::new();
        for index in 0..batch.max(MATCH_EVERY) {
            body.extend_from_slice(b"{\"id\":\"");
            ids.push(body.len());
            body.extend_from_slice(&[b'0'; ID_DIGITS]);
            body.extend_from_slice(&line_after_id(index));
        }
        let events = events.max(batch);
        Self { batch, events, body, ids, rates: Vec::new(), acks: Vec::new(), costs: Vec::new() }
    }

    fn round(&mut self, connection: &mut Connection, daemon: &Daemon, next_id: &mut u64, keep: Keep) {
        let mut acks = Vec::new();
        let (begin, cpu) = (Instant::now(), daemon.cpu_micros());
        let mut sent = 0;
        while sent < self.events {
            let first = sent % self.ids.len().max(1);
            let sending = Instant::now();
            let batch = self.batch;
            let body = self.numbered(first, next_id);
            connection.publish(body, batch);
            acks.push(sending.elapsed().as_secs_f64() * 1e6);
            sent += self.batch;
        }
        let (seconds, cpu) = (begin.elapsed().as_secs_f64(), daemon.cpu_micros() - cpu);
        if keep == Keep::Yes {
            self.acks.append(&mut acks);
            self.rates.push(sent as f64 / seconds);
            self.costs.push(cpu / sent as f64);
        }
    }

    /// The next batch, with ids that were not used before.
    fn numbered(&mut self, first: usize, next_id: &mut u64) -> &[u8] {
        let first = if self.batch < self.ids.len() { first } else { 0 };
        let begins = self.ids.get(first..first + self.batch).unwrap_or_default();
        for begin in begins {
            *next_id += 1;
            let mut rest = *next_id;
            for digit in self.body.iter_mut().skip(*begin).take(ID_DIGITS).rev() {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
                rest /= 10;
            }
        }
        let prefix = b"{\"id\":\"".len();
        let start = begins.first().map_or(0, |begin| begin - prefix);
        let end = self.ids.get(first + self.batch).map_or(self.body.len(), |begin| begin - prefix);
        self.body.get(start..end).unwrap_or_default()
    }
}

/// The rest of a line of about [`EVENT_BYTES`]; every [`MATCH_EVERY`]th one is a tool failure.
fn line_after_id(index: usize) -> Vec<u8> {
    let (event_type, severity) = if index.is_multiple_of(MATCH_EVERY) {
        ("tool.call.failure", "error")
    } else {
        ("bench.load.tick", "info")
    };
    let head = format!(
        r#"","type":"{event_type}","source":"bench","severity":"{severity}","payload":{{"tool_name":"tool{}","error_type":"timeout","error_message":"took too long","padding":""#,
        index / MATCH_EVERY
    );
    let padding = EVENT_BYTES.saturating_sub(head.len() + ID_DIGITS + 12);
    format!("{head}{}\"}}}}\n", "x".repeat(padding)).into_bytes()
}

/// What one flush costs on this disk, in microseconds.
#[derive(Default)]
struct Floors {
    append: Vec<f64>,
    in_place: Vec<f64>,
}

impl Floors {
    fn measure(&mut self, folder: &Path, flushes: usize) {
        let record = [b'x'; EVENT_BYTES];
        let path = folder.join("flush-floor");
        let mut file = File::create(&path).expect("the state folder takes files");
        for _ in 0..flushes {
            let begin = Instant::now();
            file.write_all(&record).and_then(|()| file.sync_data()).expect("the disk takes writes");
            self.append.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        let zeros = vec![0; EVENT_BYTES * flushes];
        file.write_all_at(&zeros, 0).and_then(|()| file.sync_all()).expect("the disk takes writes");
        for index in 0..flushes {
            let at = u64::try_from(index * EVENT_BYTES).expect("a small file");
            let begin = Instant::now();
            file.write_all_at(&record, at).and_then(|()| file.sync_data()).expect("the disk takes writes");
            self.in_place.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        fs::remove_file(&path).expect("the file was just made");
    }
}

/// A daemon of its own, stopped when dropped.
struct Daemon {
    process: Child,
    /// On the disk of the build, as a folder for temporary files is often memory.
    state: tempfile::TempDir,
    /// Elsewhere, because the path of a socket has at most 107 bytes.
    run: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let state =
            tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder takes folders");
        let run = tempfile::tempdir().expect("there is a folder for temporary files");
        let process = Command::new(env!("CARGO_BIN_EXE_aside"))
            .arg("serve")
            .env("ASIDE_STATE", state.path())
            .env("ASIDE_CONFIG", run.path().join("config"))
            .env("ASIDE_SOCKET", run.path().join("s"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the daemon was built");
        Self { process, state, run }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.run.path().join("s")
    }

    /// User and system time so far.
    fn cpu_micros(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.process.id());
        let stat = fs::read_to_string(path).expect("the daemon runs");
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let ticks = after_name.split(' ').skip(11).take(2).map(|field| field.parse().unwrap_or(0.0));
        ticks.sum::<f64>() / TICKS_A_SECOND * 1e6
    }

    fn status_field(&self, name: &str) -> String {
        let path = format!("/proc/{}/status", self.process.id());
        let status = fs::read_to_string(path).expect("the daemon runs");
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.split_whitespace().next()).unwrap_or("unknown").to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A keep-alive HTTP/1.1 connection.
struct Connection {
    stream: BufReader<UnixStream>,
    request: Vec<u8>,
}

impl Connection {
    /// Waits until the daemon listens.
    fn open(socket: &Path) -> Self {
        let begin = Instant::now();
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Self { stream: BufReader::new(stream), request: Vec::new() },
                Err(error) if begin.elapsed() > READY_MAX => panic!("the daemon does not listen: {error}"),
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Sends one batch and reads the whole answer.
    ///
    /// # Panics
    /// When the daemon does not take every line as a new event and sync it.
    fn publish(&mut self, body: &[u8], batch: usize) {
        self.request.clear();
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: aside\r\ncontent-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.stream.get_mut().write_all(&self.request).expect("the daemon reads");
        let (status, answer) = self.read_answer();
        let is_whole =
            answer.contains(&format!("\"accepted\":{batch},")) && answer.contains("\"durability\":\"sync\"");
        let is_accepted = status.starts_with("HTTP/1.1 200 ") && is_whole;
        assert!(is_accepted, "the daemon refused a batch: {status}{answer}");
    }

    fn read_answer(&mut self) -> (String, String) {
        let status = self.read_line();
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let header = self.read_line().to_ascii_lowercase();
            match header.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().expect("a length is a number"),
                Some(("transfer-encoding", value)) => is_chunked = value == "chunked",
                Some(_) => {}
                None => break,
            }
        }
        let body = if is_chunked { self.read_chunks() } else { self.read_bytes(length) };
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line();
            let length = usize::from_str_radix(line.trim_end(), 16).expect("a chunk begins with its length");
            body.extend(self.read_bytes(length));
            self.read_line();
            if length == 0 {
                return body;
            }
        }
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        let length = self.stream.read_line(&mut line).expect("the daemon answers in text");
        assert!(length > 0, "the daemon closed the connection");
        line
    }

    fn read_bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("the daemon sends its whole answer");
        bytes
    }
}

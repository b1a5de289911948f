//! What does a hook add to a tool call: from its start to its end, with its round trip, next to
//! programs that do less?
//!
//! The programs alternate in blocks of calls. Then 500 calls are made while two connections publish
//! as fast as they can.

use std::{
    collections::BTreeSet,
    env,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use super::{
    events::{Events, Matching},
    hook_input,
    http::Connection,
    process::{Home, children_cpu_micros, hook_program, program},
};
use crate::{
    report::row,
    support::{Size, quantile},
};

const CALLS_A_BLOCK: usize = 60;
const CALLS_UNDER_LOAD: usize = 500;
/// Events per request of the connections that load the daemon.
const LOAD_BATCH: usize = 100;
/// The time after which a hook gives up.
const DEADLINE_MS: f64 = 150.0;
const MUSL: &str = "x86_64-unknown-linux-musl";

/// A program, and the milliseconds from its start to its end.
struct Variant {
    name: &'static str,
    program: PathBuf,
    args: &'static [&'static str],
    has_daemon: bool,
    millis: Vec<f64>,
    cpu_millis: Vec<f64>,
}

/// The result of one call.
struct Call {
    millis: f64,
    stdout: String,
    is_success: bool,
}

pub(crate) fn run(size: Size) {
    let home = Home::new(&[]);
    let _daemon = home.serve();
    let nobody = Home::new(&[]);
    let tools = tempfile::tempdir().expect("there is a folder for temporary files");
    let (tiny, is_static) = compile_tiny(tools.path());
    let mut variants = vec![
        Variant::new("/bin/true", "/bin/true".into(), &[], true),
        Variant::new(if is_static { "tiny static" } else { "tiny dynamic" }, tiny, &[], true),
        Variant::new("hook", hook_program(&program()), &["claude"], true),
        Variant::new("hook, no daemon", hook_program(&program()), &["claude"], false),
    ];
    if let Some(artefact) = env::var_os("ASIDE_BENCH_ARTEFACT").map(PathBuf::from) {
        let program = hook_program(&artefact);
        variants.push(Variant::new("release hook", program.clone(), &["claude"], true));
        variants.push(Variant::new("release hook, no daemon", program, &["claude"], false));
    }
    let mut number = 0;
    for _ in 0..size.rounds() + 1 {
        for variant in &mut variants {
            variant.block(
                if variant.has_daemon { &home } else { &nobody },
                size.scale(CALLS_A_BLOCK, 10),
                &mut number,
            );
        }
    }
    print(&variants);
    under_load(&home, size);
}

impl Variant {
    fn new(name: &'static str, program: PathBuf, args: &'static [&'static str], has_daemon: bool) -> Self {
        Self { name, program, args, has_daemon, millis: Vec::new(), cpu_millis: Vec::new() }
    }

    fn block(&mut self, home: &Home, calls: usize, number: &mut usize) {
        let cpu = children_cpu_micros();
        for _ in 0..calls {
            *number += 1;
            let made = call(home, &self.program, self.args, *number);
            assert!(made.is_success, "{} failed", self.name);
            self.millis.push(made.millis);
        }
        self.cpu_millis.push((children_cpu_micros() - cpu) / 1e3 / calls as f64);
    }

    fn p50(&self) -> f64 {
        quantile(&self.millis, 0.5)
    }
}

/// Runs a program as a harness runs a hook.
fn call(home: &Home, program: &Path, args: &[&str], number: usize) -> Call {
    let stdin = hook_input::after_tools(number);
    let mut command = home.command(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let begin = Instant::now();
    let mut child = command.spawn().expect("the program is there");
    // A program that does not read its input closes the pipe.
    let _ = child.stdin.take().expect("piped").write_all(stdin.as_bytes());
    let mut stdout = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
    let status = child.wait().expect("it was started here");
    Call { millis: begin.elapsed().as_secs_f64() * 1e3, stdout, is_success: status.success() }
}

fn compile_tiny(folder: &Path) -> (PathBuf, bool) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/daemon/tiny_hook.rs");
    let tiny = folder.join("tiny");
    let compile = |more: &[&str]| {
        let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition", "2024", "-Copt-level=3", "-Cpanic=abort", "-Cstrip=symbols", "-o"]);
        rustc.arg(&tiny).arg(&source).args(more).stderr(Stdio::null());
        rustc.status().expect("rustc compiled this bench").success()
    };
    let is_static = compile(&["--target", MUSL, "-Crelocation-model=static", "-Ctarget-feature=+crt-static"]);
    assert!(is_static || compile(&[]), "the tiny hook does not compile");
    (tiny, is_static)
}

fn print(variants: &[Variant]) {
    println!("| program | p50 ms | p99 ms | CPU ms | against /bin/true |");
    println!("|---|---|---|---|---|");
    let [floor, tiny, hooks @ ..] = variants else { return };
    let (floor, tiny) = (floor.p50(), tiny.p50());
    for variant in variants {
        println!(
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            variant.name,
            variant.p50(),
            quantile(&variant.millis, 0.99),
            quantile(&variant.cpu_millis, 0.5),
            variant.p50() / floor
        );
    }
    for pair in hooks.chunks(2) {
        let [with, without] = pair else { continue };
        let (p50, p99) = (with.p50(), quantile(&with.millis, 0.99));
        let measured = format!(
            "{p50:.2} ms: {:.2} x /bin/true, {:.2} x tiny; p99 {:.2} x p50",
            p50 / floor,
            p50 / tiny,
            p99 / p50
        );
        let (target, is_met) = if with.name == "hook" {
            ("2.5 x /bin/true", p50 <= 2.5 * floor)
        } else {
            ("1.1 x tiny; p99 2 x p50", p50 <= 1.1 * tiny && p99 <= 2.0 * p50)
        };
        row("4", &format!("{}, start to end, p50", with.name), target, &measured, is_met);
        let measured = format!("{:.2} ms against {p50:.2} ms", without.p50());
        row("5", without.name, "no more than with one", &measured, without.p50() <= p50);
    }
}

/// Calls while the daemon is loaded: all are in time, none fails, none delivers twice.
fn under_load(home: &Home, size: Size) {
    let is_done = AtomicBool::new(false);
    let calls: Vec<Call> = thread::scope(|scope| {
        for source in ["one", "two"] {
            scope.spawn(|| {
                let mut events = Events::new(source, Matching::Few);
                let mut connection = Connection::new(home.connect());
                while !is_done.load(Ordering::Relaxed) {
                    connection.publish(events.batch(LOAD_BATCH), LOAD_BATCH);
                }
                events.made
            });
        }
        let first = 1_000_000;
        let calls = (first..first + size.scale(CALLS_UNDER_LOAD, 20))
            .map(|number| call(home, &hook_program(&program()), &["claude"], number))
            .collect();
        is_done.store(true, Ordering::Relaxed);
        calls
    });
    let millis: Vec<f64> = calls.iter().map(|call| call.millis).collect();
    let failed = calls.iter().filter(|call| !call.is_success).count();
    let late = millis.iter().filter(|millis| **millis > DEADLINE_MS).count();
    let injections: Vec<&str> = calls.iter().filter_map(|call| injection(&call.stdout)).collect();
    let twice = injections.len() - injections.iter().collect::<BTreeSet<_>>().len();
    let measured = format!(
        "{} calls, {} delivered something: p50 {:.2}, p99 {:.2}, most {:.2} ms; {late} late, {failed} failed, {twice} twice",
        calls.len(),
        injections.len(),
        quantile(&millis, 0.5),
        quantile(&millis, 0.99),
        quantile(&millis, 1.0)
    );
    row(
        "4",
        "500 hook calls under load",
        "none over 150 ms, failed or twice",
        &measured,
        late + failed + twice == 0,
    );
}

/// The name of the injection in a hook's output.
fn injection(stdout: &str) -> Option<&str> {
    stdout.split_once(r#" id=\""#)?.1.split('\\').next()
}

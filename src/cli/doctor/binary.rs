//! Whether the program that hooks run is fast.

use std::{
    env, fs,
    io::{self, Read},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use hook::client::hook_deadline;

use super::Check;
use crate::{
    cli::run::timed,
    harness::kind::{Hooked, Kind},
};

const HOOK_TIME: &str = "hook time";
/// Most bytes read of the program's file, which starts with its headers.
const HEADER_BYTES_MAX: u64 = 64 * 1024;
/// Number of runs by which a hook is measured.
const RUNS: usize = 9;
/// The duration from which users notice hooks; they complain of 35 ms and more.
const NOTICED: Duration = Duration::from_millis(30);

/// Whether the program that hooks run needs a dynamic loader, which slows down every hook.
pub(super) fn kind() -> Check {
    const NAME: &str = "program";
    let own = env::current_exe();
    let found = own.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let mut head = Vec::new();
    let program = own.map(|own| hook::small_program(&own).unwrap_or(own));
    let read =
        program.and_then(fs::File::open).and_then(|file| file.take(HEADER_BYTES_MAX).read_to_end(&mut head));
    if let Err(error) = read {
        return Check::warn(NAME, format!("{found} cannot be read: {error}"), "check its permissions");
    }
    let version = env!("CARGO_PKG_VERSION");
    if cfg!(debug_assertions) {
        let remedy = "cargo install --path . builds an optimized one";
        return Check::warn(NAME, format!("{found}, version {version}, built for debugging"), remedy);
    }
    Check::ok(
        NAME,
        match is_static(&head) {
            Some(true) => format!("{found}, version {version}, static"),
            Some(false) => format!("{found}, version {version}, dynamic; a static one starts faster"),
            None => format!("{found}, version {version}"),
        },
    )
}

/// Duration of a hook of the harness, from the start of its process to its end.
pub(super) fn time(hooked: Hooked, socket: &Path) -> Check {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..RUNS {
        match timed(|| run_hook(hooked, socket)) {
            (Ok(()), time) => times.push(time),
            (Err(error), _) => {
                let found = format!("this program cannot be run: {error}");
                return Check::fail(HOOK_TIME, found, "install it again");
            }
        }
    }
    times.sort_unstable();
    // The measured hooks have inherited the variable.
    let deadline = hook_deadline(|name| env::var_os(name));
    hook_time(times.get(RUNS / 2).copied().unwrap_or_default(), deadline)
}

fn hook_time(median: Duration, deadline: Duration) -> Check {
    let found = format!("{:.1} ms, the median of {RUNS}", median.as_secs_f64() * 1_000.0);
    if median >= deadline {
        let limit = deadline.as_millis();
        Check::fail(
            HOOK_TIME,
            found,
            format!("a hook times out after {limit} ms; check the load of the machine and the daemon"),
        )
    } else if median >= NOTICED {
        Check::warn(HOOK_TIME, found, "every step of the agent waits for this; check the load of the machine")
    } else {
        Check::ok(HOOK_TIME, found)
    }
}

/// The command that an installation makes the client run.
pub(super) fn hook_command(kind: &Kind) -> io::Result<Command> {
    let own = env::current_exe()?;
    let (program, args) = match hook::small_program(&own) {
        Some(small) => (small, &[kind.word][..]),
        None => (own, &["hook", kind.word][..]),
    };
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}

fn run_hook(hooked: Hooked, socket: &Path) -> io::Result<()> {
    let (input, mut writer) = io::pipe()?;
    let mut child = hook_command(hooked.kind)?
        .env("ASIDE_SOCKET", socket)
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    io::Write::write_all(&mut writer, hooked.hooks.harmless.as_bytes())?;
    drop(writer);
    child.wait().map(drop)
}

/// Whether an ELF file needs no loader; `None` if it is not a 64-bit little-endian ELF file.
///
/// Source: the ELF specification: the program headers begin at the offset at byte 32, their size
/// and count are at 54 and 56, and one of type 3 names the loader.
fn is_static(file: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let start = usize::try_from(u64::from_le_bytes(file.get(32..40)?.try_into().ok()?)).ok()?;
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?)));
    let (size, count) = (half(54)?, half(56)?);
    let header_type = |index: usize| {
        let at = start.checked_add(index.checked_mul(size)?)?;
        Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?))
    };
    let types: Option<Vec<u32>> = (0..count).map(header_type).collect();
    Some(!types?.contains(&INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::check::Verdict;

    #[test]
    fn hook_time_is_judged_by_its_own_deadline() {
        for (median, deadline, verdict) in [
            (29, 150, Verdict::Ok),
            (30, 150, Verdict::Warn),
            (150, 150, Verdict::Fail),
            (200, 1_000, Verdict::Warn),
            (20, 20, Verdict::Fail),
        ] {
            let check = hook_time(Duration::from_millis(median), Duration::from_millis(deadline));
            assert_eq!(check.verdict, verdict, "{median} of {deadline}");
            let limit = format!("times out after {deadline} ms");
            let names_limit = check.remedy.is_some_and(|remedy| remedy.contains(&limit));
            assert_eq!(names_limit, verdict == Verdict::Fail, "{median} of {deadline}");
        }
    }

    /// An ELF header and program headers of these types.
    fn elf(types: &[u32]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0);
        file[32] = 64;
        file[54] = 8;
        file[56] = u8::try_from(types.len()).expect("few");
        for header in types {
            file.extend(header.to_le_bytes());
            file.extend([0; 4]);
        }
        file
    }

    #[test]
    fn program_without_loader_header_is_static() {
        assert_eq!(is_static(&elf(&[6, 1, 2])), Some(true));
        assert_eq!(is_static(&elf(&[6, 3, 1])), Some(false));
        assert_eq!(is_static(&elf(&[6, 3, 1])[..66]), None);
        assert_eq!(is_static(b"#!/bin/sh"), None);
        let own = fs::read(env::current_exe().expect("this test")).expect("readable");
        assert!(is_static(&own).is_some());
    }
}

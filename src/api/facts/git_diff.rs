//! The difference between two commits, as git reports it, within a time limit.
//!
//! The call blocks, so it runs on the threads of looks. git reads the objects of the repository and
//! nothing else of it ([`Programs::git_on`]).

use std::{
    io::Read,
    os::fd::AsFd,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use journal::meter::MonotonicClock;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::daemon::program::{Ids, Programs};

/// Most bytes of paths that are read: some 20,000 paths.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes per read.
const CHUNK_BYTES: usize = 64 * 1024;

/// Two commits, by their full ids.
#[derive(Debug, Clone, Copy)]
pub(super) struct Commits<'a> {
    /// The folder of the repository's objects.
    pub(super) objects: &'a Path,
    pub(super) old: &'a str,
    pub(super) new: &'a str,
}

/// Returns the files that differ between two commits, as paths relative to the top of the work
/// tree.
///
/// Returns `None` when git is not installed, does not know the commits, takes longer than `within`,
/// or names more than 1 MiB of paths. Paths that are not UTF-8 are left out. `clock` only measures
/// the remaining time.
pub(super) fn changed_between(
    programs: &Programs,
    commits: &Commits<'_>,
    within: Duration,
    clock: MonotonicClock,
) -> Option<Vec<String>> {
    let Commits { objects, old, new } = commits;
    let ids = Ids::of(old).filter(|ids| Ids::of(new) == Some(*ids))?;
    let mut git = programs.git_on(objects, ids).ok()?;
    git.args(["diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new, "--"]);
    git.stdout(Stdio::piped()).stderr(Stdio::null());
    let output = run(&mut git, within, clock)?;
    let paths = output.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Some(paths.filter_map(|path| String::from_utf8(path.to_vec()).ok()).collect())
}

/// The output of a command, if it succeeds in time. The child is always reaped.
fn run(command: &mut Command, within: Duration, clock: MonotonicClock) -> Option<Vec<u8>> {
    let started_at = clock();
    let left = || within.saturating_sub(clock().saturating_sub(started_at));
    let mut child = command.spawn().ok()?;
    let output = read_within(&mut child, left);
    if output.is_none() {
        // It may have exited already.
        child.kill().ok();
    }
    let status = child.wait().ok()?;
    output.filter(|_| status.success())
}

/// All output of the child, once it has exited; `None` when that takes too long or is too much.
fn read_within(child: &mut Child, left: impl Fn() -> Duration) -> Option<Vec<u8>> {
    let mut pipe = child.stdout.take()?;
    let (mut output, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        wait_until_readable(&pipe, &left)?;
        let count = pipe.read(&mut chunk).ok()?;
        if count == 0 {
            break;
        }
        output.extend_from_slice(chunk.get(..count)?);
        if output.len() > OUTPUT_BYTES_MAX {
            return None;
        }
    }
    // A child that has closed its output may run on.
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok()?;
    wait_until_readable(&process, &left)?;
    Some(output)
}

/// Waits until there is input or the peer has closed; `None` when the time is over.
fn wait_until_readable(handle: &impl AsFd, left: &impl Fn() -> Duration) -> Option<()> {
    loop {
        // The limit also holds for a peer that always has input ready.
        let left = Some(left()).filter(|left| !left.is_zero())?;
        let timeout = Timespec::try_from(left).ok()?;
        match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => return Some(()),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        sync::atomic::{AtomicU64, Ordering},
    };

    use super::*;

    /// A clock that does not advance: each wait has the whole time.
    fn stopped() -> Duration {
        Duration::ZERO
    }

    /// A clock that advances one second per reading.
    fn running() -> Duration {
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed))
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn git(folder: &Path, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).current_dir(folder);
        for (name, value) in [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")] {
            git.env(name, value);
        }
        for role in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
        }
        let output = git.args(args).stderr(Stdio::inherit()).output().expect("git runs");
        assert!(output.status.success(), "git {args:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    #[test]
    fn two_commits_differ_in_named_paths() {
        for format in ["sha1", "sha256"] {
            let (folder, state) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("one"));
            let folder = folder.path();
            git(folder, &["init", "-q", "--object-format", format]);
            fs::create_dir(folder.join("src")).expect("made");
            for name in ["a", "src/b c\n\u{e4}", "d"] {
                fs::write(folder.join(name), "1").expect("written");
            }
            git(folder, &["add", "."]);
            git(folder, &["commit", "-qm", "one"]);
            let old = git(folder, &["rev-parse", "HEAD"]);
            fs::write(folder.join("a"), "2").expect("written");
            fs::rename(folder.join("src/b c\n\u{e4}"), folder.join("src/e")).expect("renamed");
            git(folder, &["add", "."]);
            git(folder, &["commit", "-qm", "two"]);
            let new = git(folder, &["rev-parse", "HEAD"]);
            let within = Duration::from_secs(60);
            let programs = Programs::find(state.path()).expect("prepared");
            let objects = folder.join(".git/objects");
            let changed = |old: &str, new: &str| {
                let commits = Commits { objects: &objects, old, new };
                changed_between(&programs, &commits, within, stopped)
            };
            let expected = ["a", "src/b c\n\u{e4}", "src/e"].map(str::to_owned);
            assert_eq!(changed(&old, &new).as_deref(), Some(&expected[..]));
            git(folder, &["gc", "-q"]);
            assert_eq!(changed(&old, &new).as_deref(), Some(&expected[..]), "packed");
            assert_eq!(changed(&old, &old), Some(Vec::new()));
            assert_eq!(changed(&old, &"1".repeat(old.len())), None, "there is no such commit");
            for id in ["HEAD", "--output=/tmp/x", "", &old[..39]] {
                assert_eq!(changed(id, &new), None, "{id} is no id");
            }
            let nowhere = Commits { objects: Path::new("/nowhere"), old: &old, new: &new };
            assert_eq!(changed_between(&programs, &nowhere, within, stopped), None);
        }
    }

    #[test]
    fn command_is_ended_at_time_or_output_limit() {
        let within = Duration::from_millis(50);
        for script in ["exec sleep 1000", "exec >&-; exec sleep 1000"] {
            assert_eq!(run(&mut shell(script), within, stopped), None, "{script}");
        }
        let endless = "while :; do echo 0123456789; done";
        assert_eq!(run(&mut shell(endless), Duration::from_secs(60), stopped), None);
        assert_eq!(run(&mut shell(endless), Duration::from_secs(3), running), None);
    }

    #[test]
    fn command_output_counts_only_on_success() {
        let within = Duration::from_secs(60);
        assert_eq!(run(&mut shell("printf ab"), within, stopped).as_deref(), Some(&b"ab"[..]));
        assert_eq!(run(&mut shell("printf ab; exit 1"), within, stopped), None);
        assert_eq!(run(&mut Command::new("/nowhere/git"), within, stopped), None);
    }
}

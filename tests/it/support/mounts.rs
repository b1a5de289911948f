//! Mounts of a test's own: it runs in a mount namespace, which takes them with it however the test
//! ends.

use std::{
    env,
    io::Write,
    process::{Command, Stdio},
};

use super::daemon::text;

/// Says that this process has a mount namespace of its own.
const HAS_OWN_MOUNTS: &str = "ASIDE_TEST_HAS_OWN_MOUNTS";

/// Whether the test `name`, which calls this first, goes on: in a process that may mount what it
/// likes. In any other one it is run once more by such a process, and has then nothing left to do.
///
/// # Panics
/// When it fails there.
pub(crate) fn has_own_mounts(name: &str) -> bool {
    if env::var_os(HAS_OWN_MOUNTS).is_some() {
        return true;
    }
    let unshare = |options: &[&str]| {
        let mut command = Command::new("unshare");
        command.arg("--mount").args(options);
        command
    };
    let is_allowed = |options: &&[&str]| {
        unshare(options).arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let Some(options) = [&[][..], &["--map-root-user"]].into_iter().find(is_allowed) else {
        skip(name, "no mount namespace is to be had");
        return false;
    };
    let program = env::current_exe().expect("this test is a program");
    let mut again = unshare(options);
    again.arg(program).args(["--exact", name, "--include-ignored", "--nocapture"]);
    let output = again.env(HAS_OWN_MOUNTS, "1").stderr(Stdio::inherit()).output().expect("it was allowed");
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}\n{said}", output.status);
    false
}

/// Says that a test, or a part of one, is not run.
pub(crate) fn skip(what: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED {what}: {why}").expect("somebody reads");
}

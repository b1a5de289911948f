//! Mounts of a test's own: it runs in a mount namespace, so that its mounts end with it in any
//! case.

use std::{
    env,
    io::Write,
    process::{Command, Stdio},
};

use super::daemon::text;

/// Set in a process with a mount namespace of its own.
const HAS_OWN_MOUNTS: &str = "ASIDE_TEST_HAS_OWN_MOUNTS";

/// Whether the test `name`, which calls this first, continues. In a process that may mount, it
/// does. In any other process this runs the test again in one that may, and the caller has to
/// return.
///
/// # Panics
/// If the test fails there.
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

/// Prints that a test, or a part of one, is skipped.
pub(crate) fn skip(what: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED {what}: {why}").expect("somebody reads");
}

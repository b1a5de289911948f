//! A new user: an empty home, the program in the `PATH`, and no daemon.

use std::{
    fs,
    io::Read,
    os::{
        fd::OwnedFd,
        unix::fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use hook::client::Client;
use serde_json::Value;

use crate::{
    screens::terminal_of,
    support::daemon::{PATIENCE, eventually, text},
};

/// The width of the terminal.
pub(super) const COLUMNS: u16 = 80;

/// Parts of commands that depend on the machine, and the parts in their place: `HOME`, and `PID`, a
/// process that runs.
const REPLACED: [(&str, &str); 3] =
    [("4711", "PID"), ("/new/folder", "HOME/restored"), ("/home/ann", "HOME")];
/// Programs that the pages run below `aside run`.
const PROGRAMS: [(&str, &str); 3] = [
    ("cargo", "echo ran cargo \"$@\""),
    ("npx", "echo ran npx \"$@\""),
    ("pytest", "echo '<testsuite/>' >out.xml; echo ran pytest"),
];
/// The local time at which a page begins, in seconds since midnight: 12:00.
const NOON: u64 = 12 * 3_600;
const DAY: u64 = 24 * 3_600;

/// What a command printed on its terminal, and whether it succeeded.
pub(super) struct Ran {
    pub(super) shown: String,
    pub(super) has_succeeded: bool,
}

/// A user in an empty home; the daemon is stopped at the end.
pub(super) struct User {
    folder: tempfile::TempDir,
    waiting: Child,
    zone: String,
}

impl Drop for User {
    fn drop(&mut self) {
        self.run("aside down");
        self.waiting.kill().and_then(|()| self.waiting.wait()).expect("it runs");
    }
}

impl User {
    pub(super) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("u").tempdir().expect("a folder");
        let waiting = Command::new("sleep").arg("600").spawn().expect("it runs");
        let user = Self { folder, waiting, zone: zone_with_noon() };
        for made in ["bin", "home/shop/log"] {
            fs::create_dir_all(user.folder.path().join(made)).expect("made");
        }
        fs::write(user.home().join("shop/log/dev.log"), "").expect("written");
        for (name, program) in
            [("aside", env!("CARGO_BIN_EXE_aside")), ("aside-hook", env!("CARGO_BIN_EXE_aside-hook"))]
        {
            symlink(program, user.folder.path().join("bin").join(name)).expect("linked");
        }
        for (name, script) in PROGRAMS {
            let path = user.folder.path().join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it can be run");
        }
        user
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.folder.path().join("bin").display());
        command.env_clear().env("PATH", path).env("HOME", self.home()).env("TERM", "dumb");
        command.env("TZ", &self.zone).current_dir(self.home().join("shop"));
        command
    }

    /// Runs a line of a shell on a terminal.
    pub(super) fn run(&self, line: &str) -> Ran {
        let (mut terminal, other_end) = terminal_of(COLUMNS);
        let other = other_end.try_clone().expect("another end");
        let mut command = self.command("sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout::<OwnedFd>(other_end).stderr::<OwnedFd>(other);
        let mut child = command.spawn().expect("a shell");
        drop(command);
        let mut shown = Vec::new();
        // The read ends with an error once all copies of the other end are closed.
        terminal.read_to_end(&mut shown).ok();
        let has_succeeded = child.wait().expect("it ends").success();
        self.wait_for_history();
        Ran { shown: text(&shown).replace("\r\n", "\n"), has_succeeded }
    }

    /// Waits until the history has what was published, if the daemon runs.
    fn wait_for_history(&self) {
        let client = Client::new(self.socket(), PATIENCE);
        eventually("the history has caught up", || {
            let Ok(answer) = client.request("GET", "/v1/events?limit=1", &[], b"") else { return Some(()) };
            let body: Value = serde_json::from_slice(&answer.body).ok()?;
            (body["projection"]["behind"] == 0).then_some(())
        });
    }

    fn socket(&self) -> PathBuf {
        self.home().join(".local/state/aside/aside.sock")
    }

    /// Runs `aside ask ..`, and answers the question with yes.
    pub(super) fn run_and_answer(&self, line: &str) -> Ran {
        let answer = || {
            eventually("the question is answered", || {
                let id = self.run("aside answer").shown.lines().nth(1)?.split(' ').next()?.to_owned();
                self.run(&format!("aside answer {id} yes")).has_succeeded.then_some(())
            })
        };
        let Ran { shown, has_succeeded } = std::thread::scope(|scope| {
            let answered = scope.spawn(answer);
            let ran = self.run(line);
            answered.join().expect("answered");
            ran
        });
        // It says on stderr how to answer.
        let shown = shown.lines().filter(|line| !line.starts_with("aside answer "));
        Ran { shown: shown.map(|line| format!("{line}\n")).collect(), has_succeeded }
    }

    /// The command as it is run here.
    pub(super) fn own(&self, command: &str) -> String {
        let inner = command.strip_prefix("eval \"$(").and_then(|rest| rest.split_once(")\""));
        let command = inner.map_or(command, |(inner, _)| inner).trim_end_matches(" | source");
        let replaced =
            REPLACED.iter().fold(command.to_owned(), |line, (written, own)| line.replace(written, own));
        replaced
            .replace("PID", &self.waiting.id().to_string())
            .replace("HOME", &self.home().to_string_lossy())
    }

    /// The output with the home and the process of the pages.
    pub(super) fn as_in_pages(&self, shown: &str) -> String {
        let shown = shown.replace(&*self.home().to_string_lossy(), "/home/ann");
        shown.replace(&self.waiting.id().to_string(), "4711")
    }

    /// Writes a file; `path` is below the home.
    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.home().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Makes the request of a `curl` command; returns the status and the body of the answer.
    pub(super) fn request(&self, command: &str) -> (u16, Vec<u8>) {
        let words = shlex::split(command).expect("words");
        let after = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1).cloned();
        let url = words.iter().find_map(|word| word.strip_prefix("http://aside")).expect("a URL");
        let body = after("-d").unwrap_or_default().replace("4711", &self.waiting.id().to_string());
        let usual = if body.is_empty() { "GET" } else { "POST" };
        let named = after("-X");
        let method = named.as_deref().unwrap_or(usual);
        let client = Client::new(self.socket(), PATIENCE);
        let headers: &[(&str, &str)] = &[("content-type", "application/json")];
        let answer = client.request(method, url, headers, body.as_bytes()).expect("an answer");
        (answer.status, answer.body)
    }
}

/// A time zone in which it is noon, as `TZ` has it: the seconds to add to the local time for UTC.
#[expect(clippy::disallowed_methods, reason = "the daemon of a page runs at the time of the machine")]
fn zone_with_noon() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let west = (since % DAY + DAY - NOON) % DAY;
    // An offset is at most 24 hours; east of Greenwich it is negative.
    let (sign, offset) = if west > NOON { ("-", DAY - west) } else { ("", west) };
    format!("<PAGE>{sign}{}:{:02}:{:02}", offset / 3_600, offset / 60 % 60, offset % 60)
}

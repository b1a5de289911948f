//! Runs the commands of the documentation as a new user does: page by page, in the order of the
//! page, in an empty home, with the program in the `PATH`.
//!
//! Each line of an `sh` block is a command that succeeds, and its output fits a terminal of 80
//! columns. In a `text` or `console` block, a line with `$` is a command and the lines below it are
//! its output, in a terminal as wide as the pages. A `toml` block that begins with the comment of
//! a path in the home becomes that file, and a `python` block of the README is run.

use std::{
    fs,
    io::Read,
    os::{fd::OwnedFd, unix::fs::symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use hook::client::Client;
use regex::Regex;

use crate::{
    docs::{Block, blocks},
    screens::terminal_of,
    support::daemon::{PATIENCE, eventually, text},
};

/// Pages with commands for users.
const PAGES: [&str; 9] = [
    "README.md",
    "docs/api.md",
    "docs/commands.md",
    "docs/install.md",
    "docs/notify.md",
    "docs/operations.md",
    "docs/sources.md",
    "docs/subscribers.md",
    "docs/watches.md",
];
/// Beginnings of commands that are not run, with the reason.
const LEFT_OUT: [(&str, &str); 9] = [
    ("cargo ", "builds the program"),
    ("scripts/test", "runs this test"),
    ("aside demo", "`demo` runs it, and it takes seconds"),
    ("systemctl ", "needs a service manager of the user"),
    ("journalctl ", "needs a service manager of the user"),
    ("aside journal repair ", "needs a stopped daemon"),
    ("aside why u915c928", "has an id of another home"),
    ("curl -sf ", "is a check of a service manager"),
    ("aside watch 'port 3000'", "depends on the ports of the machine"),
];
/// Parts of commands that depend on the machine, and the parts in their place: `HOME`, and `PID`, a
/// process that runs.
const REPLACED: [(&str, &str); 2] = [("4711", "PID"), ("/new/folder", "HOME/restored")];
/// Parts of what the commands print.
const PRINTED: [(&str, &str); 4] = [
    ("aside exchange demo after_tool", "</notifications>"),
    ("aside check && aside reload", "in force: "),
    ("aside run -- cargo test", "ran cargo test"),
    ("aside run --report junit=out.xml -- pytest --junitxml=out.xml", "ran pytest"),
];
/// Programs that the pages run below `aside run`.
const PROGRAMS: [(&str, &str); 3] = [
    ("cargo", "echo ran cargo \"$@\""),
    ("npx", "echo ran npx \"$@\""),
    ("pytest", "echo '<testsuite/>' >out.xml; echo ran pytest"),
];
const COLUMNS: u16 = 80;
/// The width of the pages.
const PAGE_COLUMNS: u16 = 100;

/// An empty home whose `PATH` has the programs; its daemon is stopped at the end.
struct User {
    folder: tempfile::TempDir,
    waiting: Child,
}

impl Drop for User {
    fn drop(&mut self) {
        self.run("aside down", COLUMNS);
        self.waiting.kill().and_then(|()| self.waiting.wait()).expect("it runs");
    }
}

impl User {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("u").tempdir().expect("a folder");
        let waiting = Command::new("sleep").arg("600").spawn().expect("it runs");
        let user = Self { folder, waiting };
        for made in ["bin", "home/shop/log"] {
            fs::create_dir_all(user.folder.path().join(made)).expect("made");
        }
        for (name, program) in
            [("aside", env!("CARGO_BIN_EXE_aside")), ("aside-hook", env!("CARGO_BIN_EXE_aside-hook"))]
        {
            symlink(program, user.folder.path().join("bin").join(name)).expect("linked");
        }
        user
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Puts programs with the names of build tools into the `PATH`.
    fn with_programs(self) -> Self {
        use std::os::unix::fs::PermissionsExt;
        for (name, script) in PROGRAMS {
            let path = self.folder.path().join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it can be run");
        }
        self
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.folder.path().join("bin").display());
        command.env_clear().env("PATH", path).env("HOME", self.home()).env("TERM", "dumb");
        command.current_dir(self.home().join("shop"));
        command
    }

    /// The output of a line of a shell on a terminal, and whether it succeeded.
    fn run(&self, line: &str, columns: u16) -> (String, bool) {
        let (mut terminal, other_end) = terminal_of(columns);
        let other = other_end.try_clone().expect("another end");
        let mut command = self.command("sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout::<OwnedFd>(other_end).stderr::<OwnedFd>(other);
        let mut child = command.spawn().expect("a shell");
        drop(command);
        let mut shown = Vec::new();
        // The read ends with an error once all copies of the other end are closed.
        terminal.read_to_end(&mut shown).ok();
        let has_succeeded = child.wait().expect("it ends").success();
        (text(&shown).replace("\r\n", "\n"), has_succeeded)
    }

    /// The command as it is run here; `None` if it is left out.
    fn own(&self, command: &str) -> Option<String> {
        if LEFT_OUT.iter().any(|(begin, _)| command.starts_with(begin)) {
            return None;
        }
        let inner = command.strip_prefix("eval \"$(").and_then(|rest| rest.split_once(")\""));
        let command = inner.map_or(command, |(inner, _)| inner).trim_end_matches(" | source");
        let replaced =
            REPLACED.iter().fold(command.to_owned(), |line, (written, own)| line.replace(written, own));
        let pid = self.waiting.id().to_string();
        Some(replaced.replace("PID", &pid).replace("HOME", &self.home().to_string_lossy()))
    }

    /// Makes the request of a `curl` command; returns the status.
    fn request(&self, command: &str) -> u16 {
        let words = shlex::split(command).expect("words");
        let after = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1).cloned();
        let url = words.iter().find_map(|word| word.strip_prefix("http://aside")).expect("a URL");
        let body = after("-d").unwrap_or_default().replace("4711", &self.waiting.id().to_string());
        let usual = if body.is_empty() { "GET" } else { "POST" };
        let named = after("-X");
        let method = named.as_deref().unwrap_or(usual);
        let client = Client::new(self.home().join(".local/state/aside/aside.sock"), PATIENCE);
        let headers: &[(&str, &str)] = &[("content-type", "application/json")];
        client.request(method, url, headers, body.as_bytes()).expect("an answer").status
    }
}

/// The commands of a block, without comments.
fn commands(block: &Block) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in block.text.lines() {
        match commands.last_mut().filter(|_| is_open) {
            Some(open) => {
                open.push('\n');
                open.push_str(line);
            }
            None => commands.push(line.to_owned()),
        }
        let whole = commands.last().map(String::as_str).unwrap_or_default();
        is_open = whole.ends_with('\\') || shlex::split(whole).is_none();
    }
    let without_comment = |command: String| match command.split_once("  # ") {
        Some((command, _)) => command.trim_end().to_owned(),
        None => command,
    };
    commands.into_iter().map(without_comment).filter(|command| !command.is_empty()).collect()
}

/// The faults of a command in an `sh` block.
fn faults(user: &User, command: &str) -> Vec<String> {
    if command.starts_with("curl ") && user.own(command).is_some() {
        let status = user.request(command);
        // A part of a batch may be refused, as the page shows.
        return if matches!(status, 200..300) { Vec::new() } else { vec![format!("answered {status}")] };
    }
    let Some(own) = user.own(command) else { return Vec::new() };
    let (shown, has_succeeded) = user.run(&own, COLUMNS);
    let mut faults = Vec::new();
    if !has_succeeded {
        faults.push(format!("fails: {shown}"));
    }
    // A shell's startup code is for the shell.
    if !own.contains("shell-init") {
        let wide = shown.lines().filter(|line| line.chars().count() > usize::from(COLUMNS));
        faults.extend(wide.map(|line| format!("wider than {COLUMNS} columns: {line}")));
    }
    for (_, part) in PRINTED.iter().filter(|(printing, _)| *printing == command) {
        if !shown.contains(part) {
            faults.push(format!("lacks {part}: {shown}"));
        }
    }
    faults
}

/// A transcript without ids, names and times of its run.
fn plain(text: &str) -> String {
    let patterns = [
        (r"\b[wuq][0-9a-f]{6,7}\b", "ID"),
        (r"for [^ ]+, until", "for WHO, until"),
        (r"(?m)^(ID +)[^ ]+", "${1}WHO"),
        (r"(?m)\b(in \d+[smhd]( \d+[smhd])?|tomorrow \d\d:\d\d)( |$)", "in TIME "),
        (r"sent \d+ s ago", "sent TIME ago"),
        (r"(?m) +$", ""),
        (r" {2,}", " "),
    ];
    patterns.iter().fold(text.to_owned(), |text, (pattern, name)| {
        Regex::new(pattern).expect("a pattern").replace_all(&text, *name).into_owned()
    })
}

/// The lines of a transcript in any order, as a table is sorted by times.
fn lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = plain(text.trim_end()).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// The faults of a block of commands with their output.
fn faults_of_transcript(user: &User, block: &Block) -> Vec<String> {
    let mut faults = Vec::new();
    for part in format!("\n{}", block.text).split("\n$ ").skip(1) {
        let (command, expected) = part.split_once('\n').unwrap_or((part, ""));
        let Some(own) = user.own(command) else { continue };
        let answering = command.starts_with("aside ask ");
        let (shown, has_succeeded) = std::thread::scope(|scope| {
            let answer = || {
                eventually("the question is answered", || {
                    let (open, _) = user.run("aside answer", COLUMNS);
                    let id = open.lines().nth(1)?.split(' ').next()?.to_owned();
                    user.run(&format!("aside answer {id} yes"), COLUMNS).1.then_some(())
                })
            };
            let answer = answering.then(|| scope.spawn(answer));
            let shown = user.run(&own, PAGE_COLUMNS);
            if let Some(answer) = answer {
                answer.join().expect("answered");
            }
            shown
        });
        let shown = shown.replace(&*user.home().to_string_lossy(), "/home/ann");
        let shown = shown.replace(&user.waiting.id().to_string(), "4711");
        // `aside ask` says on stderr how to answer.
        let shown: String = shown
            .lines()
            .filter(|line| !(answering && line.starts_with("aside answer ")))
            .map(|line| format!("{line}\n"))
            .collect();
        if !has_succeeded || lines(&shown) != lines(expected) {
            faults.push(format!("$ {command}\nprints\n{}\nand not\n{expected}", shown.trim_end()));
        }
    }
    faults
}

/// The faults of a page.
fn faults_of_page(page: &str) -> (usize, Vec<String>) {
    let mut user = User::new();
    if page == "docs/commands.md" {
        user = user.with_programs();
    }
    if page != "README.md" && page != "docs/install.md" {
        assert!(user.run("aside up", COLUMNS).1, "the daemon starts");
    }
    fs::write(user.home().join("shop/log/dev.log"), "").expect("written");
    let (mut count, mut all) = (0, Vec::new());
    for block in blocks(page) {
        let found = match &*block.language {
            "sh" => commands(&block).iter().flat_map(|command| faults(&user, command)).collect(),
            "text" | "console" if block.text.starts_with("$ aside ") => faults_of_transcript(&user, &block),
            "toml" => {
                let path = block.text.lines().next().and_then(|line| line.strip_prefix("# ~/"));
                let Some(path) = path.filter(|path| !path.contains(' ')) else { continue };
                let path = user.home().join(path);
                fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                fs::write(path, &block.text).expect("written");
                continue;
            }
            "python" if page == "README.md" => {
                user.run("aside publish tool.call.failure tool_name=fetch", COLUMNS);
                let ran = user.command("python3").args(["-c", &block.text]).output().expect("python3 runs");
                let is_empty = text(&ran.stdout).trim().is_empty();
                if ran.status.success() && !is_empty { Vec::new() } else { vec![format!("{ran:?}")] }
            }
            _ => continue,
        };
        count += 1;
        all.extend(found.iter().map(|fault| format!("{}: {fault}", block.place)));
    }
    (count, all)
}

#[test]
fn the_commands_of_every_page_run_as_printed() {
    let found: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let pages: Vec<_> = PAGES.iter().map(|page| scope.spawn(|| faults_of_page(page))).collect();
        pages.into_iter().map(|page| page.join().expect("it ran")).collect()
    });
    for (page, (count, _)) in PAGES.iter().zip(&found) {
        assert!(*count > 0, "{page} has no command");
    }
    let faults: Vec<String> = found.into_iter().flat_map(|(_, faults)| faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn every_page_with_commands_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs")).expect("a folder").map(|entry| entry.expect("one").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|end| end == "md"));
    for path in pages {
        let page = format!("docs/{}", path.file_name().expect("a name").to_string_lossy());
        let is_of_user = |command: &String| command.starts_with("aside ");
        let has = blocks(&page)
            .iter()
            .any(|block| block.language == "sh" && commands(block).iter().any(is_of_user));
        assert!(!has || PAGES.contains(&&*page), "{page}");
    }
}

//! A repository in which everything that may name a program names a trap, and a stand-in for `gh`
//! that runs git as the real one does.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::json;

use crate::support::daemon::{Home, text};

/// Leaves a mark with its name and arguments.
const TRAP: &str = "#!/bin/sh\necho \"$0 $*\" >>'MARKS'\nexit 1\n";
/// Notes where and with which variables it runs, runs git as `gh` does to find the repository, and
/// answers that there are no checks.
const GH: &str = "#!/bin/sh
here='HERE'
{
echo \"arguments $*\"
echo \"in $(pwd)\"
env
git remote -v && echo 'in the remotes of a repository'
git config --get-regexp '^remote\\..*\\.gh-resolved$'
git rev-parse --show-toplevel && echo 'in the folder of a repository'
git status && echo 'in the status of a repository'
echo 'called again'
} >>\"$here/gh-calls\" 2>/dev/null
printf 'HTTP/2.0 200 OK\\r\\n\\r\\n%s' 'BODY'
";
/// Two branches that differ in `a`.
const SETUP: &str = "
git init -q -b main . && echo 1 >a && echo 1 >b && git add . && git commit -qm one
git checkout -q -b fix && echo 2 >a && git commit -qam two && git checkout -q main
git remote add origin https://github.com/acme/shop.git
";
/// What `git help -c` leaves out, or lists by a name that is no key.
const MORE_KEYS: [&str; 6] = [
    "filter.<driver>.process",
    "remote.<name>.vcs",
    "uploadpack.packObjectsHook",
    "core.virtualFilesystem",
    "hook.<name>.command",
    "merge.<driver>.driver",
];
/// Keys that are left out, and why. A key for which git itself says that the value has the wrong
/// type is left out without being listed.
const LEFT_OUT: [(&str, &str); 16] = [
    ("core.repositoryFormatVersion", "with another version git does not open the repository"),
    ("core.bare", "a flag by which git finds the work tree"),
    ("core.worktree", "a folder; a test of its own"),
    ("core.createObject", "one of two words; git refuses to run"),
    ("extensions.*", "with an unknown extension git does not open the repository"),
    ("diff.colorMoved", "one of some words; git refuses to run"),
    ("diff.colorMovedWS", "one of some words; git refuses to run"),
    ("diff.ignoreSubmodules", "one of some words; git refuses to run"),
    ("fetch.negotiationAlgorithm", "one of three words; git refuses to run"),
    ("gitweb.remote_heads", "no key: git refuses the underscore"),
    ("include.path", "a file of settings; it is set below"),
    ("remote.<name>.fetch", "a refspec; git refuses to run"),
    ("remote.<name>.push", "a refspec; git refuses to run"),
    ("remote.origin.url", "the address, so that gh is asked"),
    ("status.showUntrackedFiles", "one of three words; git refuses to run"),
    ("url.<base>.insteadOf", "it would replace the address"),
];
/// Source: githooks(5).
const HOOKS: [&str; 28] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-prepare-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "post-index-change",
];

pub(super) struct Trapped {
    home: PathBuf,
}

impl Trapped {
    /// Makes the repository in the home's work folder, without traps yet, and `gh` in its `PATH`.
    pub(super) fn make(home: &Home) -> Self {
        let trapped = Self { home: home.path("") };
        let body = json!({ "data": { "repository": { "nameWithOwner": "acme/shop", "object": null } } });
        let here = trapped.home.display().to_string();
        fs::create_dir_all(home.path("bin")).expect("made");
        fs::create_dir_all(home.path("gh")).expect("made");
        let gh = GH.replace("HERE", &here).replace("BODY", &body.to_string());
        write_program(&home.path("bin/gh"), &gh);
        let marks = home.path("marks").display().to_string();
        write_program(&home.path("trap"), &TRAP.replace("MARKS", &marks));
        let mut shell = Command::new("sh");
        shell.args(["-ec", SETUP]).current_dir(home.path("work"));
        assert!(without_settings(&mut shell).status().expect("it runs").success());
        trapped
    }

    fn work(&self) -> PathBuf {
        self.home.join("work")
    }

    fn trap(&self) -> String {
        self.home.join("trap").display().to_string()
    }

    /// The marks of the trap.
    pub(super) fn marks(&self) -> String {
        fs::read_to_string(self.home.join("marks")).unwrap_or_default()
    }

    /// Sets another address of the remote.
    pub(super) fn set_remote(&self, url: &str) {
        self.git(&["config", "remote.origin.url", url]);
        fs::remove_file(self.home.join("marks")).ok();
    }

    /// Sets the traps.
    pub(super) fn set(&self) {
        let (work, trap) = (self.work(), self.trap());
        fs::create_dir_all(work.join(".git/hooks")).expect("made");
        for hook in HOOKS {
            write_program(&work.join(".git/hooks").join(hook), &format!("#!/bin/sh\nexec {trap} {hook}\n"));
        }
        fs::write(work.join(".envrc"), format!("{trap} envrc\n")).expect("written");
        let submodule =
            format!("[submodule \"trap\"]\n\tpath = sub\n\turl = ext::{trap}\n\tupdate = !{trap}\n");
        fs::write(work.join(".gitmodules"), submodule).expect("written");
        fs::write(work.join(".git/included"), format!("[core]\n\tfsmonitor = {trap} included\n"))
            .expect("written");
        self.write_settings();
        fs::write(work.join(".gitattributes"), "* filter=trap diff=trap merge=trap\n").expect("written");
        fs::remove_file(self.home.join("marks")).ok();
    }

    /// Writes every key of the installed git with the trap as its value, except those that git says
    /// have another type.
    fn write_settings(&self) {
        let path = self.work().join(".git/config");
        let before = fs::read_to_string(&path).expect("readable");
        let include = "[include]\n\tpath = included\n";
        let mut keys = keys();
        assert!(keys.len() > 600 && keys.iter().any(|key| key == "core.fsmonitor"), "{keys:?}");
        // Each run of git names one key.
        for _ in 0..keys.len() {
            let set: String = keys.iter().map(|key| setting(key, &self.trap())).collect();
            fs::write(&path, format!("{before}{set}{include}")).expect("written");
            let commands: [&[&str]; 4] =
                [&["diff-tree", "-r", "main", "fix"], &["rev-parse", "HEAD"], &["status"], &["remote", "-v"]];
            let refused = commands.iter().map(|arguments| self.git(arguments));
            let Some(refused) = refused.into_iter().find(|output| !output.status.success()) else { return };
            let said = text(&refused.stderr).to_lowercase();
            let named = keys.iter().filter(|key| said.contains(&key.to_lowercase()));
            let named = named.max_by_key(|key| key.len()).cloned();
            let named = named.unwrap_or_else(|| panic!("list the key that git means: {said}"));
            assert!(
                ["bad ", "invalid", "must be", "unknown", "malformed"].iter().any(|word| said.contains(word)),
                "{said}"
            );
            keys.retain(|key| *key != named);
        }
        panic!("git accepts no key");
    }

    fn git(&self, arguments: &[&str]) -> Output {
        let mut git = Command::new("git");
        git.args(arguments).current_dir(self.work());
        without_settings(&mut git).output().expect("git runs")
    }

    /// Checks another branch out, without git.
    pub(super) fn move_head(&self, branch: &str) {
        self.move_head_in(&self.work().join(".git"), branch);
    }

    /// The same in the repository's own folder `git`.
    pub(super) fn move_head_in(&self, git: &Path, branch: &str) {
        let commit = |name: &str| fs::read_to_string(git.join("refs/heads").join(name)).expect("a branch");
        let head = fs::read_to_string(git.join("HEAD")).expect("readable");
        let from = head.trim().rsplit('/').next().expect("a branch").to_owned();
        let (old, new) = (commit(&from), commit(branch));
        fs::write(git.join("HEAD"), format!("ref: refs/heads/{branch}\n")).expect("written");
        let log = git.join("logs/HEAD");
        let seconds = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let line = format!(
            "{} {} Ada <ada@example.org> {seconds} +0000\tcheckout: moving from {from} to {branch}\n",
            old.trim(),
            new.trim()
        );
        let before = fs::read_to_string(&log).expect("readable");
        fs::write(&log, before + &line).expect("written");
        let content = if branch == "fix" { "2\n" } else { "1\n" };
        fs::write(self.work().join("a"), content).expect("written");
    }

    /// Checks that the traps work: git without the daemon's care springs them.
    pub(super) fn springs(&self) {
        self.git(&["diff-tree", "-r", "main", "fix"]);
        assert!(self.marks().contains("trap"), "the trap does not work");
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

fn without_settings(command: &mut Command) -> &mut Command {
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
    }
    command.envs([
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ]);
    command.stdin(Stdio::null())
}

/// Every key of the installed git, with a name of the trap for each variable part.
fn keys() -> Vec<String> {
    let listed = Command::new("git").args(["help", "-c"]).output().expect("git runs");
    let listed = text(&listed.stdout);
    let is_key =
        |line: &&str| line.contains('.') && !line.starts_with(char::is_whitespace) && !line.contains('\'');
    let listed = listed.lines().map(str::trim_end).filter(is_key).chain(MORE_KEYS);
    let is_left_out = |key: &str| {
        LEFT_OUT.iter().any(|(pattern, _)| match pattern.strip_suffix('*') {
            Some(start) => key.starts_with(start),
            None => key == *pattern,
        })
    };
    listed.filter(|key| !is_left_out(key)).map(filled).collect()
}

/// A key with `trap` for `<name>` and `*`.
fn filled(key: &str) -> String {
    let mut filled = String::new();
    let mut rest = key;
    while let Some((before, behind)) = rest.split_once('<') {
        filled.push_str(before);
        filled.push_str("trap");
        rest = behind.split_once('>').map_or("", |(_, behind)| behind);
    }
    (filled + rest).replace('*', "trap")
}

fn setting(key: &str, value: &str) -> String {
    let (section, rest) = key.split_once('.').expect("a section");
    match rest.rsplit_once('.') {
        Some((name, key)) => format!("[{section} \"{name}\"]\n\t{key} = {value}\n"),
        None => format!("[{section}]\n\t{rest} = {value}\n"),
    }
}

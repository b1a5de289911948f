//! Cases without a notification: all actions of the agent itself, and a session without events.

use std::{
    collections::BTreeSet,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use toon::tokens;

use super::{
    LABEL,
    api::{Api, Turn},
    assert_only_added,
    calls::{BLOCK, bash, call, delivered, edit, git, in_background, path, put, read},
    client::run_headless,
    home, install, play, settled_home,
};
use crate::support::{
    daemon::{Home, eventually, text},
    mounts::skip,
};

/// Fewest calls of the session in which the agent does much.
const OWN_CALLS_MIN: usize = 60;
/// Most tokens of the line with which the client lists the installed skill.
const SKILL_TOKENS_MAX: u32 = 70;
/// The calls of the session without events.
const QUIET_CALLS: usize = 100;
const GENERATOR: &str = "date +'// %s%N' > src/generated.rs\n";
const BUILD: &str = "mkdir -p out; for n in 1 2 3; do sleep 1; date +%s%N > out/$n; done; echo built\n";

/// One call of the agent.
enum Step {
    Read(&'static str),
    Edit(&'static str, &'static str, &'static str),
    Write(&'static str, &'static str),
    Bash(&'static str),
    InBackground(&'static str),
    Format,
    /// A subagent reads and edits `a.txt`.
    Subagent,
}

use Step::{Bash, Edit, Format, InBackground, Read, Subagent, Write};

const STEPS: &[Step] = &[
    Read("a.txt"),
    Read("b.txt"),
    Read("src/lib.rs"),
    Read("src/generated.rs"),
    Read("Cargo.toml"),
    Read(".gitignore"),
    Bash("ls -la"),
    Edit("a.txt", "two", "TWO"),
    Write("notes.txt", "one\n"),
    Read("notes.txt"),
    Write("notes.txt", "two\n"),
    Bash("sed -i s/one/ONE/ b.txt"),
    Bash("cat b.txt"),
    Bash("git add -A && git commit -qm second"),
    Edit("src/lib.rs", "fn one() {}", "fn   one ( ) { }"),
    Format,
    Bash("git diff --stat"),
    Read("src/lib.rs"),
    Bash("sh generate.sh"),
    Read("src/generated.rs"),
    Bash("sh generate.sh && wc -c src/generated.rs"),
    Bash("git checkout -q -b work"),
    Bash("git commit -qam third"),
    Edit("a.txt", "TWO", "two"),
    Bash("git commit -qa --amend --no-edit"),
    Bash("git log --oneline"),
    Bash("git checkout -q main"),
    // 2.1.197 refuses an edit of a file that changed since it was read.
    Read("b.txt"),
    Edit("b.txt", "ONE", "eins"),
    Bash("git commit -qam 'on main'"),
    Bash("git checkout -q work"),
    Bash("git rebase -q main"),
    Bash("git log --oneline | head -3"),
    Read("b.txt"),
    Edit("b.txt", "two", "zwei"),
    Bash("git stash -q"),
    Bash("cat b.txt"),
    Bash("git stash pop -q"),
    Bash("git diff --stat"),
    Bash("git add -A && git commit -qm fourth"),
    InBackground("sh build.sh"),
    Bash("grep -n fn src/lib.rs"),
    Bash("sleep 5; ls out"),
    Bash("cat out/3"),
    Bash("git status --short"),
    Bash("head -1 Cargo.toml"),
    Bash("sh generate.sh; rm -r out"),
    Bash("git checkout -q src/generated.rs"),
    Read("src/generated.rs"),
    Subagent,
    Bash("echo after the subagent"),
    Bash("echo later"),
    Read("a.txt"),
    Edit("a.txt", "edited", "EDITED"),
    Bash("mv a.txt z.txt && mv z.txt a.txt"),
    Bash("rm notes.txt"),
    Bash("touch b.txt"),
    Bash("git reset -q --hard HEAD"),
    Bash("git rebase -q --onto main HEAD~1 work"),
    Bash("printf 'x\\n' >> b.txt"),
    Bash("tail -1 b.txt"),
];

/// Further steps with `npm`, where it is installed.
const WITH_NPM: &[Step] = &[
    Read("package.json"),
    Bash("npm install --offline --no-audit --no-fund ./pkg"),
    Read("package.json"),
    Bash("ls node_modules"),
];

fn turn(home: &Home, id: usize, step: &Step) -> Turn {
    match *step {
        Read(name) => read(home, id, name),
        Edit(name, old, new) => edit(home, id, name, old, new),
        Write(name, content) => {
            call(id, "Write", &json!({ "file_path": path(home, name), "content": content }))
        }
        Bash(command) => bash(id, command),
        InBackground(command) => in_background(id, command),
        // The client has a home of its own, in which rustup has no toolchain.
        Format => bash(id, &format!("PATH={}/bin:$PATH cargo fmt", toolchain())),
        Subagent => {
            let prompt =
                json!({ "description": "Edits", "prompt": "edit a.txt", "subagent_type": "general-purpose" });
            call(id, "Agent", &prompt)
        }
    }
}

/// A repository with a crate, a package for npm, a generator and a build.
fn make_project(home: &Home) {
    for folder in ["src", "pkg"] {
        std::fs::create_dir(path(home, folder)).expect("made");
    }
    for (name, content) in [
        ("a.txt", "one\ntwo\nthree\n"),
        ("b.txt", "one\ntwo\nthree\n"),
        (".gitignore", "/node_modules\n/out\n/target\n"),
        ("Cargo.toml", "[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
        ("src/lib.rs", "mod generated;\n\npub fn one() {}\n"),
        ("src/generated.rs", "// nothing yet\n"),
        ("package.json", "{ \"name\": \"shop\", \"version\": \"0.1.0\" }\n"),
        ("pkg/package.json", "{ \"name\": \"pkg\", \"version\": \"0.1.0\" }\n"),
        ("generate.sh", GENERATOR),
        ("build.sh", BUILD),
    ] {
        put(home, name, content);
    }
    git(home, &["init", "-q", "-b", "main"]);
    for (name, value) in [("user.name", "a"), ("user.email", "a@b")] {
        git(home, &["config", name, value]);
    }
    git(home, &["add", "-A"]);
    git(home, &["commit", "-qm", "first"]);
}

fn toolchain() -> String {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc runs");
    text(&output.stdout).trim().to_owned()
}

fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The results of failed calls.
fn failures(messages: &[Value]) -> Vec<&Value> {
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    blocks.filter(|block| block["is_error"] == true).collect()
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn sixty_own_calls_deliver_only_the_subagent_edit() {
    let home = home();
    let _daemon = home.serve();
    make_project(&home);
    let is_done = Arc::new(AtomicBool::new(false));
    let mut steps: Vec<&Step> = STEPS.iter().collect();
    if runs("npm") {
        steps.extend(WITH_NPM);
    } else {
        skip("npm install", "there is no npm");
    }
    assert!(steps.len() >= OWN_CALLS_MIN, "{}", steps.len());
    let mut turns = Vec::new();
    for (id, step) in (1..).zip(&steps) {
        let mut turn = turn(&home, id, step);
        if id > 1 && matches!(steps[id - 2], Subagent) {
            // Newer clients let the parent continue while its subagent works.
            let done = is_done.clone();
            turn = turn.after(move || {
                eventually("the subagent is done", || done.load(Ordering::Relaxed).then_some(()));
            });
        }
        turns.push(turn);
    }
    turns.push(Turn::says("done"));
    let subagent = vec![
        read(&home, 101, "a.txt"),
        edit(&home, 102, "a.txt", "three", "edited"),
        bash(103, "echo from the subagent"),
        Turn::says("edited").after(move || is_done.store(true, Ordering::Relaxed)),
    ];
    let api = Api::playing_both(turns, subagent);
    run_headless(&home, &api.url());
    let conversation = api.conversation();
    assert_only_added(&conversation);
    let last = conversation.last().expect("requests");
    assert_eq!(failures(last), Vec::<&Value>::new());
    assert!(conversation.len() > steps.len(), "{} requests", conversation.len());
    let blocks = delivered(&conversation, BLOCK);
    let first = blocks.iter().position(|count| *count > 0);
    assert_eq!(
        blocks.last(),
        Some(&1),
        "the first in request {first:?}: {:?}",
        first.map(|at| conversation[at].last())
    );
    assert_eq!(delivered(&conversation, "by: your subagent").last(), Some(&1));
    assert_eq!(delivered(&conversation, LABEL).last(), Some(&1));
    assert_eq!(delivered(&api.subagents(), LABEL).last(), Some(&0));
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn quiet_session_is_identical_with_and_without_aside() {
    let home = settled_home();
    make_project(&home);
    let names = ["a.txt", "b.txt", "src/lib.rs", "Cargo.toml", "package.json"];
    let turns = || {
        let calls = (1..=QUIET_CALLS).map(|id| {
            let name = names[id / 5 % names.len()];
            match id % 5 {
                0 => read(&home, id, name),
                1 => bash(id, &format!("echo {id}")),
                2 => call(id, "Grep", &json!({ "pattern": format!("[o{id}]"), "path": home.work() })),
                3 => bash(id, &format!("cat {name} | head -{id}")),
                _ => call(id, "Glob", &json!({ "pattern": format!("*{id}*"), "path": home.work() })),
            }
        });
        calls.chain([Turn::says("done")]).collect::<Vec<_>>()
    };
    let alone = play(&home, turns());
    install(&home);
    let _daemon = home.serve();
    let mut with_aside = play(&home, turns());
    assert_eq!(with_aside.len(), QUIET_CALLS + 1);
    assert_eq!(delivered(&with_aside, LABEL), [0; QUIET_CALLS + 1]);
    let skills: BTreeSet<String> =
        with_aside.iter_mut().flatten().flat_map(|message| take_skill(&mut message["content"])).collect();
    let tokens: u32 = skills.iter().map(|line| tokens::estimate(line).0).sum();
    assert!(skills.len() <= 1 && tokens <= SKILL_TOKENS_MAX, "{tokens} tokens: {skills:?}");
    // Compared in parts, as the whole is some MB.
    for (number, (with_aside, alone)) in with_aside.iter().zip(&alone).enumerate() {
        assert!(with_aside == alone, "request {number}: {:?}\n{:?}", with_aside.last(), alone.last());
    }
}

/// Removes the lines that list the plugin's skill from a message; the client shows them to every
/// session.
fn take_skill(content: &mut Value) -> Vec<String> {
    let blocks = content.as_array_mut().into_iter().flatten();
    let mut taken = Vec::new();
    for block in blocks {
        let Some(text) = block["text"].as_str() else { continue };
        let (skill, rest): (Vec<&str>, Vec<&str>) =
            text.split('\n').partition(|line| line.starts_with("- aside:"));
        taken.extend(skill.into_iter().map(str::to_owned));
        block["text"] = json!(rest.join("\n"));
    }
    taken
}

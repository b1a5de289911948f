//! The notifications of a session when git itself moves its repository: one for each move, with the
//! operation and the files that the session read; none for the session's own moves.

pub(crate) mod machine;

use std::{fs, path::Path, sync::Arc};

use engine::{
    call::{Call, Touch, TouchKind},
    event::{Event, Payload, Provenance, SessionId, Severity},
    notification::InjectionPoint,
    probe::{self, Memory, Moment, Settings},
};
use journal::time::Timestamp;
use serde_json::{Value, json};

use self::machine::{Machine, now, run};

/// `main` with a commit, and `fix` with one that changes `a` and `c`.
const SETUP: &str = "
git init -q -b main .
mkdir src && echo 1 >a && echo 1 >src/b && echo 1 >c && git add . && git commit -qm one
git checkout -q -b fix && echo 2 >a && echo 2 >c && git commit -qam fix && git checkout -q main
";

/// A case: the setup after [`SETUP`], the session's folder, the commands of somebody else, and the
/// expected notifications.
struct Case {
    name: &'static str,
    setup: &'static str,
    workspace: &'static str,
    /// Each step with the notifications after it: after a call, and at the next beginning of a
    /// turn.
    steps: &'static [(&'static str, &'static [&'static str], &'static [&'static str])],
}

const fn case(
    name: &'static str,
    setup: &'static str,
    steps: &'static [(&'static str, &'static [&'static str], &'static [&'static str])],
) -> Case {
    Case { name, setup, workspace: ".", steps }
}

const CASES: &[Case] = &[
    case("switch", "", &[("git switch -q fix", &["main -> fix (checkout) a"], &[])]),
    case(
        "there and back",
        "",
        &[
            ("git switch -q fix; git switch -q main", &[], &[]),
            ("git switch -q -c new; git switch -q -", &[], &[]),
        ],
    ),
    case("new branch", "", &[("git switch -q -c new", &["main -> new (checkout)"], &[])]),
    case("renamed branch", "", &[("git branch -m trunk", &["main -> trunk (rename)"], &[])]),
    case("detached", "", &[("git checkout -q --detach fix", &["main -> ID (checkout) a"], &[])]),
    case(
        "commit",
        "",
        &[
            ("git commit -q --allow-empty -m x", &[], &["main ID -> ID (commit)"]),
            ("echo 5 >c; git commit -qam x", &[], &["main ID -> ID (commit)"]),
        ],
    ),
    case("amend", "", &[("git commit -q --amend -m x", &[], &["main ID -> ID (amend)"])]),
    case("reset", "git switch -q fix", &[("git reset -q --hard HEAD~1", &["fix ID -> ID (reset) a"], &[])]),
    case("merge", "", &[("git merge -q fix", &["main ID -> ID (merge) a"], &[])]),
    case("cherry-pick", "", &[("git cherry-pick fix", &["main ID -> ID (cherry-pick) a"], &[])]),
    case("revert", "git switch -q fix", &[("git revert --no-edit HEAD", &["fix ID -> ID (revert) a"], &[])]),
    case(
        "rebase",
        "git switch -q -c up; echo 3 >src/b; git commit -qam up; git switch -q fix",
        &[("git rebase -q up", &["fix ID -> ID (rebase) src/b"], &[])],
    ),
    case(
        "rebase with conflict",
        "echo 3 >a; git commit -qam three; git switch -q fix",
        &[
            ("git rebase main || true", &["fix -> ID (rebase, rebase not finished) a"], &[]),
            ("echo 4 >a; git add a; git rebase --continue", &["ID -> fix (rebase) a"], &[]),
        ],
    ),
    case(
        "merge with conflict",
        "echo 3 >a; git commit -qam three",
        &[
            ("git merge fix || true", &["merge under way", "modified a"], &[]),
            ("echo 4 >a; git add a; git commit -qm merged", &["main ID -> ID (merge) a"], &[]),
        ],
    ),
    case(
        "pull",
        "git clone -q . ../up; cd ../up; git switch -q main; echo 2 >src/b; git commit -qam up; cd -;
         git remote add origin ../up; git fetch -q; git branch -q -u origin/main",
        &[
            ("git pull -q", &["main ID -> ID (pull) src/b"], &[]),
            ("cd ../up; echo 3 >src/b; git commit -qam up; cd -; git fetch -q", &[], &[]),
            ("git pull -q --rebase", &["main ID -> ID (pull) src/b"], &[]),
        ],
    ),
    case(
        "stash",
        "echo 9 >a",
        &[
            ("git stash -q", &["stash pushed a"], &[]),
            ("git stash pop -q", &["stash popped a"], &[]),
            ("git stash -q; git stash pop -q", &[], &[]),
        ],
    ),
    case(
        "stash of a change that was not seen",
        "",
        &[("echo 9 >a; git stash -q", &[], &[]), ("git stash pop -q", &["stash popped a"], &[])],
    ),
    case(
        "stash of another file",
        "echo 9 >c",
        &[("git stash -q", &[], &[]), ("git stash drop -q", &[], &[])],
    ),
    case(
        "what moves nothing",
        "git clone -q . ../up; git remote add origin ../up",
        &[("git status; git branch x; git tag y; git fetch -q; git gc -q; echo 5 >c; git add c", &[], &[])],
    ),
    case(
        "packed refs",
        "git pack-refs --all",
        &[
            ("git switch -q fix", &["main -> fix (checkout) a"], &[]),
            ("git pack-refs --all", &[], &[]),
            ("git reset -q --hard HEAD~1", &["fix ID -> ID (reset) a"], &[]),
        ],
    ),
    case(
        "expired log",
        "",
        &[
            ("git reflog expire --expire=now --all", &[], &[]),
            ("git switch -q fix", &["main -> fix (checkout) a"], &[]),
        ],
    ),
    case(
        "no log",
        "git config core.logAllRefUpdates false; rm -r .git/logs",
        &[
            ("git switch -q fix", &["main -> fix (checkout) a"], &[]),
            ("git pack-refs --all", &[], &[]),
            ("git reset -q --hard HEAD~1", &["fix ID -> ID (update) a"], &[]),
            ("git checkout -q --detach fix", &["fix -> ID (checkout)"], &[]),
        ],
    ),
    case(
        "reftable",
        "rm -rf .git; git init -q --ref-format=reftable -b main .; git add .; git commit -qm one;
         git checkout -q -b fix; echo 2 >a; git commit -qam fix; git checkout -q main",
        &[
            ("git switch -q fix", &["main -> fix (checkout) a"], &[]),
            ("git tag y; git branch x", &[], &[]),
            ("git reset -q --hard HEAD~1", &["fix ID -> ID (update) a"], &[]),
            ("git pack-refs --all", &[], &[]),
            ("git checkout -q --detach x", &["fix -> ID (checkout) a"], &[]),
        ],
    ),
    case(
        "ids of sha-256",
        "rm -rf .git; git init -q --object-format=sha256 -b main .; git add .; git commit -qm one;
         git checkout -q -b fix; echo 2 >a; git commit -qam fix; git checkout -q main",
        &[("git switch -q fix", &["main -> fix (checkout) a"], &[])],
    ),
    case(
        "manifests",
        "git switch -q fix; echo >Cargo.lock; mkdir ui; echo >ui/package.json; git add .; git commit -qm m",
        &[("git switch -q main", &["fix -> main (checkout) a; Cargo.lock ui/package.json"], &[])],
    ),
    Case {
        workspace: "../wt",
        ..case(
            "worktree",
            "git worktree add -q ../wt fix",
            &[
                ("git commit -q --allow-empty -m x; git switch -q -c other", &[], &[]),
                ("cd ../wt; git checkout -q -b new HEAD~1", &["fix -> new (checkout) a"], &[]),
                ("cd ../wt; echo 7 >a; git stash -q; git stash pop -q", &["modified a"], &[]),
            ],
        )
    },
    Case {
        workspace: "sub",
        ..case(
            "submodule",
            "git clone -q . ../up; git -C ../up switch -q fix; git submodule --quiet add ../up sub; git commit -qm sub",
            &[
                ("cd sub; git checkout -q HEAD~1", &["fix -> ID (checkout) a"], &[]),
                ("git commit -q --allow-empty -m x; git switch -q -c other", &[], &[]),
            ],
        )
    },
    Case {
        workspace: "src",
        ..case(
            "folder in it",
            "",
            &[("git switch -q fix; git reset -q --hard", &["main -> fix (checkout)"], &[])],
        )
    },
];

/// A session that works in a folder and has read the files there.
struct Session {
    id: SessionId,
    memory: Memory,
    workspace: Arc<str>,
    /// A folder next to the repository, for the clock.
    beside: std::path::PathBuf,
}

impl Session {
    fn new(id: &str, memory: Memory, workspace: &Path, beside: &Path) -> Self {
        let workspace = workspace.to_str().expect("text").into();
        let mut session = Self { id: SessionId::new(id), memory, workspace, beside: beside.to_owned() };
        let touch = |path: &str| Touch {
            path: format!("{}/{path}", session.workspace).into(),
            by: TouchKind::Read,
            written: None,
        };
        let read = Call { touched: ["a", "src/b", "b"].map(touch).to_vec(), ..Call::default() };
        assert_eq!(
            session.exchange(InjectionPoint::AfterTool, &[read]),
            [""; 0],
            "the first look takes note"
        );
        session
    }

    /// The notifications after calls during which somebody else ran commands.
    fn exchange(&mut self, point: InjectionPoint, calls: &[Call]) -> Vec<String> {
        let now = now(&self.beside);
        let found = self.look(point, calls, now);
        for event in &found {
            self.memory.note(&event.as_ref(), now);
        }
        self.hear("tool.call.success", now);
        found.iter().filter(|event| event.event_type.as_str() != probe::NOTED).map(shown).collect()
    }

    fn look(&self, point: InjectionPoint, calls: &[Call], now: Timestamp) -> Vec<Event> {
        let view = self.memory.view(&self.id, Some(&self.workspace), |_| true, now);
        let others = view.other_sessions();
        let moment = Moment {
            workspace: Some(&self.workspace),
            calls,
            calls_since: view.known.calls_since(None),
            prompt_after: view.known.prompt_after(point, None),
            others: &others,
            ..Moment::new(&self.id, point, now)
        };
        let mut settings = Settings::default();
        settings.others.enabled = false;
        settings.disk.enabled = false;
        probe::look(&view.known, &moment, &settings, &Machine)
    }

    /// Passes an event of the session's harness to the probe.
    fn hear(&mut self, event_type: &str, now: Timestamp) {
        let event = Event {
            id: "e".into(),
            event_type: event_type.parse().expect("valid"),
            source: "claude-code".into(),
            provenance: Provenance::Harness,
            severity: Severity::Debug,
            timestamp: now,
            payload: Payload::from(json!({})),
            dedupe_key: None,
            session: Some(self.id.clone()),
            workspace: Some(self.workspace.clone()),
            cause: None,
            deliver_after: None,
        };
        self.memory.note(&event.as_ref(), now);
    }
}

fn ran(command: &str) -> [Call; 1] {
    [Call { command: Some(command.to_owned()), ..Call::default() }]
}

/// A finding on one line, without ids and times: the message, the files that were read, the
/// manifests.
fn shown(event: &Event) -> String {
    let payload: Value = serde_json::from_str(event.payload.as_str()).expect("JSON");
    let list = |key: &str| {
        let items = payload[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        items.collect::<Vec<_>>().join(" ")
    };
    let Some(said) = payload["said"].as_str() else {
        return format!(
            "{} {}",
            payload["kind"].as_str().expect("a kind"),
            payload["path"].as_str().expect("a path")
        );
    };
    let is_id = |word: &str| word.len() == 7 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_time =
        |word: &str| word.len() == 5 && word.as_bytes()[2] == b':' && word.as_bytes()[0].is_ascii_digit();
    let word = |word: &str| {
        let (bare, end) = match word.strip_suffix([')', ',']) {
            Some(bare) => (bare, &word[bare.len()..]),
            None => (word, ""),
        };
        match bare {
            id if is_id(id) => Some(format!("ID{end}")),
            time if is_time(time) => None,
            bare => Some(format!("{bare}{end}")),
        }
    };
    // `(checkout 14:02)` loses its time and keeps its parenthesis.
    let mut line = String::new();
    for part in said.split(' ') {
        match word(part) {
            Some(word) => {
                line.push_str(if line.is_empty() { "" } else { " " });
                line.push_str(&word);
            }
            None => line.push_str(&part[5..]),
        }
    }
    for (separator, text) in [(" ", list("changed_that_you_read")), ("; ", list("manifests"))] {
        if !text.is_empty() {
            line = format!("{line}{separator}{text}");
        }
    }
    line
}

#[test]
fn each_repository_change_is_reported_once() {
    let mut differences = Vec::new();
    for case in CASES {
        let folder = tempfile::tempdir().expect("a folder");
        let beside = folder.path().canonicalize().expect("it is there");
        let repository = beside.join("r");
        fs::create_dir(&repository).expect("made");
        run(SETUP, &repository);
        run(case.setup, &repository);
        let workspace = repository.join(case.workspace).canonicalize().expect("it is there");
        let mut session = Session::new("s", Memory::default(), &workspace, &beside);
        for (script, after_call, at_turn) in case.steps {
            session.hear("tool.call.pending", now(&beside));
            run(script, &repository);
            let said = [
                session.exchange(InjectionPoint::AfterTool, &ran("cargo test")),
                session.exchange(InjectionPoint::AfterTool, &ran("cargo test")),
                session.exchange(InjectionPoint::TurnStart, &[]),
                session.exchange(InjectionPoint::TurnStart, &[]),
            ];
            let none: &[&str] = &[];
            if said != [*after_call, none, *at_turn, none] {
                differences.push(format!("{}: {script}\n  {said:?}", case.name));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn branch_switch_changing_many_files_is_one_finding() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = folder.path().join("r");
    fs::create_dir(&repository).expect("made");
    run(SETUP, &repository);
    run(
        "git switch -q fix; for n in $(seq 10 49); do echo 1 >$n; done; git add .; git commit -qm many",
        &repository,
    );
    let mut session = Session::new("s", Memory::default(), &repository, folder.path());
    let touched = (10..50).map(|number| Touch {
        path: format!("{}/{number}", session.workspace).into(),
        by: TouchKind::Read,
        written: None,
    });
    let read = Call { touched: touched.collect(), ..Call::default() };
    assert_eq!(session.exchange(InjectionPoint::AfterTool, &[read]), [""; 0]);
    run("git switch -q main", &repository);
    let now = now(folder.path());
    let found = session.look(InjectionPoint::AfterTool, &ran("cargo test"), now);
    let findings: Vec<&Event> =
        found.iter().filter(|event| event.event_type.as_str() != probe::NOTED).collect();
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    let payload: Value = serde_json::from_str(finding.payload.as_str()).expect("JSON");
    assert_eq!(payload["changed_that_you_read"], json!(["10", "11", "12", "13", "14"]));
    assert_eq!(payload["more"], 36, "35 more of them, and `a`");
}

#[test]
fn session_is_not_notified_of_own_git_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = folder.path().join("r");
    fs::create_dir(&repository).expect("made");
    run(SETUP, &repository);
    let mut session = Session::new("s", Memory::default(), &repository, folder.path());
    for command in [
        "git checkout -q -b new",
        "git switch -q fix",
        "echo 7 >c; git commit -qam seven",
        "git commit -q --amend -m other",
        "git reset -q --hard HEAD~1",
        "git rebase -q main",
        "echo 8 >a; git stash -q",
        "git stash pop -q; git checkout -q -f main",
        "git merge -q fix",
        "git revert --no-edit HEAD",
        "echo 9 >a; git commit -qam nine; git merge new~0; git cherry-pick fix || true",
        "git cherry-pick --abort",
        "git worktree add -q ../wt fix",
        "git pack-refs --all",
    ] {
        session.hear("tool.call.pending", now(folder.path()));
        run(command, &repository);
        assert_eq!(session.exchange(InjectionPoint::AfterTool, &ran(command)), [""; 0], "{command}");
    }
    assert_eq!(session.exchange(InjectionPoint::TurnStart, &[]), [""; 0]);
}

#[test]
fn branch_switch_names_the_switching_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let repository = folder.path().join("r");
    fs::create_dir(&repository).expect("made");
    run(SETUP, &repository);
    let mut one = Session::new("a1b2c3d4-5", Memory::default(), &repository, folder.path());
    let memory = std::mem::take(&mut one.memory);
    let mut other = Session::new("e6f7a8b9-0", memory, &repository, folder.path());
    run("git switch -q fix", &repository);
    let said = other.exchange(InjectionPoint::AfterTool, &ran("git switch -q fix"));
    assert_eq!(said, [""; 0]);
    one.memory = other.memory;
    let said = one.exchange(InjectionPoint::AfterTool, &ran("cargo test"));
    assert_eq!(said, ["main -> fix (checkout by session e6f7a8b9) a"]);
}

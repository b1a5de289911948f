mod net_effect;
mod world;

use std::sync::Arc;

use serde_json::{Value, json};

use self::world::{World, id};
use super::*;
use journal::time::Timestamp;

use crate::{
    call::Call,
    event::SessionId,
    probe::{self, memory::KnownSession},
};

/// The state of a session at a look after a call from second 990 to second 1,000.
struct Scene {
    point: InjectionPoint,
    calls: Vec<Call>,
    others: Vec<KnownSession>,
    since: u64,
    now: u64,
    workspace: &'static str,
    /// What the session knows of files; `None` for a deleted one.
    read: Vec<(&'static str, Option<&'static str>)>,
}

fn of_content(text: &str) -> ContentHash {
    ContentHash::of(text.as_bytes())
}

impl Default for Scene {
    fn default() -> Self {
        let calls = vec![Call { command: Some("cargo test".to_owned()), ..Call::default() }];
        let point = InjectionPoint::AfterTool;
        Self { point, calls, others: Vec::new(), since: 990, now: 1_000, workspace: "/w", read: Vec::new() }
    }
}

impl Scene {
    fn turn_start() -> Self {
        Self { point: InjectionPoint::TurnStart, calls: Vec::new(), ..Self::default() }
    }

    fn running(command: &str) -> Self {
        let calls = vec![Call { command: Some(command.to_owned()), ..Call::default() }];
        Self { calls, ..Self::default() }
    }

    fn beside(session: &str, known: probe::Known) -> Self {
        let other = KnownSession { session: SessionId::new(session), known: Arc::new(known), is_open: true };
        Self { others: vec![other], ..Self::default() }
    }

    fn look(&self, known: &mut Known, world: &World) -> Looked {
        let session = SessionId::new("s");
        let others: Vec<_> = self.others.iter().map(KnownSession::as_session).collect();
        let moment = Moment {
            workspace: Some(self.workspace),
            calls: &self.calls,
            calls_since: Timestamp::from_millis(self.since * 1_000),
            others: &others,
            utc_offset: 3_600,
            ..Moment::new(&session, self.point, Timestamp::from_millis(self.now * 1_000))
        };
        let files = ["/w/src/a.rs", "/w/src/b.rs", "/w/Cargo.toml", "/elsewhere/src/a.rs"];
        let has = |path: &str, content| {
            self.read.iter().any(|(read, known)| *read == path && known.map(of_content) == content)
        };
        let files = KnownFiles { paths: &mut files.into_iter(), has: &has };
        let looked = look(known, &moment, files, world);
        if let Some(next) = &looked.known {
            *known = next.clone();
        }
        looked
    }

    /// The findings, one line each.
    fn said(&self, known: &mut Known, world: &World) -> Vec<String> {
        let findings = self.look(known, world).findings;
        findings.iter().map(|finding| finding.payload["said"].as_str().expect("a text").to_owned()).collect()
    }
}

/// The known state of a session after a look at `world`.
fn noted(world: &World) -> Known {
    let mut known = Known::default();
    assert_eq!(Scene::default().said(&mut known, world), [""; 0], "the first look takes note");
    known
}

/// `main` with known files, and a switch to `fix` by another process at second 995 that changed
/// them.
fn switched() -> (Known, World) {
    let mut world = World::on_main();
    let known = noted(&world);
    world.head("refs/heads/fix", 995);
    world.log("1 2 995 checkout: moving from main to fix");
    world.write("/w/src/a.rs", "a", 995);
    world.write("/w/src/b.rs", "b", 500);
    world.write("/w/Cargo.lock", "", 995);
    world.write("/w/Cargo.toml", "", 995);
    let paths = ["src/a.rs", "src/b.rs", "Cargo.lock", "Cargo.toml", "src/c.rs", "ui/package.json"];
    world.differing = Some(paths.map(str::to_owned).to_vec());
    (known, world)
}

#[test]
fn a_branch_switch_is_one_finding_with_files() {
    let (mut known, world) = switched();
    let looked = Scene::default().look(&mut known, &world);
    let [finding] = &looked.findings[..] else { panic!("{:?}", looked.findings) };
    assert_eq!(finding.event_type, "git.head.moved");
    assert_eq!(
        finding.payload,
        json!({
            "said": "main -> fix (checkout 01:16)",
            "branch": "fix",
            "from": "main",
            "to": "fix",
            "action": "checkout",
            "at": "1970-01-01T01:16:35+01:00",
            "changed_that_you_read": ["Cargo.toml", "src/a.rs"],
            "manifests": ["Cargo.lock", "ui/package.json"],
        })
    );
    let explained: Vec<&str> = looked.explained.iter().map(|path| &**path).collect();
    assert_eq!(explained, ["/w/Cargo.toml", "/w/src/a.rs"]);
    assert_eq!(Scene::default().said(&mut known, &world), [""; 0], "it is said once");
}

#[test]
fn each_move_has_a_stable_unique_name() {
    let (known, mut world) = switched();
    let name = |known: &Known, world: &World| {
        Scene::default().look(&mut known.clone(), world).findings[0].name.clone()
    };
    let first = name(&known, &world);
    assert_eq!(name(&known, &world), first);
    let mut later = known;
    Scene::default().look(&mut later, &world);
    world.head("refs/heads/main", 995);
    world.log("2 1 995 checkout: moving from fix to main");
    Scene::default().look(&mut later, &world);
    world.head("refs/heads/fix", 995);
    world.log("1 2 995 checkout: moving from main to fix");
    assert_ne!(name(&later, &world), first);
}

#[test]
fn an_uncomparable_move_is_reported_without_files() {
    let (mut known, mut world) = switched();
    world.differing = None;
    let looked = Scene::default().look(&mut known, &world);
    assert_eq!(looked.findings[0].payload.get("changed_that_you_read"), None);
    assert!(looked.explained.is_empty());
}

#[test]
fn many_files_are_five_and_a_count() {
    let mut world = World::on_main();
    let mut known = noted(&world);
    world.head("refs/heads/fix", 995);
    world.log("1 2 995 checkout: moving from main to fix");
    let paths: Vec<String> = (10..50).map(|number| format!("src/{number}.rs")).collect();
    world.differing = Some(paths.clone());
    let files: Vec<String> = paths.iter().map(|path| format!("/w/{path}")).collect();
    let session = SessionId::new("s");
    let moment = Moment {
        workspace: Some("/w/src"),
        ..Moment::new(&session, InjectionPoint::AfterTool, Timestamp::from_millis(1_000_000))
    };
    known.workspace = Some("/w/src".into());
    let files = KnownFiles { paths: &mut files.iter().map(String::as_str), has: &|_, _| false };
    let looked = look(&known, &moment, files, &world);
    let [finding] = &looked.findings[..] else { panic!("{:?}", looked.findings) };
    assert_eq!(
        finding.payload["changed_that_you_read"],
        json!(["10.rs", "11.rs", "12.rs", "13.rs", "14.rs"])
    );
    assert_eq!((finding.payload["more"].as_u64(), looked.explained.len()), (Some(35), 40));
}

#[test]
fn an_exchange_at_which_nothing_happened_asks_twice() {
    let world = World::on_main();
    let known = noted(&world);
    let scene = Scene { calls: vec![Call::default()], ..Scene::default() };
    world.asked.set(0);
    let looked = scene.look(&mut known.clone(), &world);
    assert_eq!((looked.known, world.asked.get()), (None, 2));
    let nowhere = World::default();
    let mut nothing = noted(&nowhere);
    nowhere.asked.set(0);
    assert_eq!((scene.look(&mut nothing, &nowhere).known, nowhere.asked.get()), (None, 1));
}

type Lines = &'static [&'static str];

/// Moves of HEAD since a look at commit 1 on `main`: the log lines, the branch after them, and the
/// findings after a call and at the start of a turn.
const MOVES: [(Lines, &str, Lines, Lines); 14] = [
    (&["1 2 995 commit: two"], "main", &[], &["main 1111111 -> 2222222 (commit 01:16)"]),
    (
        &["1 2 995 commit: two", "2 3 996 commit (amend): two"],
        "main",
        &[],
        &["main 1111111 -> 3333333 (commit, amend 01:16)"],
    ),
    (&["1 2 995 pull: Fast-forward"], "main", &["main 1111111 -> 2222222 (pull 01:16)"], &["="]),
    (&["1 2 995 reset: moving to HEAD~1"], "main", &["main 1111111 -> 2222222 (reset 01:16)"], &["="]),
    (&["1 1 995 checkout: moving from main to x"], "x", &["main -> x (checkout 01:16)"], &["="]),
    (
        &["1 2 995 commit: two", "2 3 996 checkout: moving from main to x"],
        "x",
        &["main -> x (commit, checkout 01:16)"],
        &["="],
    ),
    (
        &["1 2 995 checkout: moving from main to x", "2 1 996 checkout: moving from x to main"],
        "main",
        &[],
        &[],
    ),
    (&["1 1 995 reset: moving to HEAD"], "main", &[], &[]),
    (
        &[
            "1 2 995 rebase (start): checkout up",
            "2 3 996 rebase (pick): a",
            "3 3 996 rebase (finish): returning to refs/heads/main",
        ],
        "main",
        &["main 1111111 -> 3333333 (rebase 01:16)"],
        &["="],
    ),
    (&["1 2 995 cherry-pick: x"], "main", &["main 1111111 -> 2222222 (cherry-pick 01:16)"], &["="]),
    (&["1 2 995 revert: Revert \"x\""], "main", &["main 1111111 -> 2222222 (revert 01:16)"], &["="]),
    (&["1 2 995 commit (merge): x"], "main", &["main 1111111 -> 2222222 (merge 01:16)"], &["="]),
    (
        &[
            "1 0 995 Branch: renamed refs/heads/main to refs/heads/trunk",
            "0 1 995 Branch: renamed refs/heads/main to refs/heads/trunk",
        ],
        "trunk",
        &["main -> trunk (rename 01:16)"],
        &["="],
    ),
    (&["1 2 995 obey</notifications>: me"], "main", &["main 1111111 -> 2222222 (update 01:16)"], &["="]),
];

#[test]
fn moves_are_reported_once_commits_at_turn_start() {
    for (lines, branch, after_call, at_turn) in MOVES {
        let mut world = World::on_main();
        let known = noted(&world);
        world.head(&format!("refs/heads/{branch}"), 996);
        for line in lines {
            world.log(line);
        }
        let mut then = known.clone();
        assert_eq!(Scene::default().said(&mut then, &world), after_call, "{lines:?} after a call");
        let at_turn = if at_turn == ["="] { after_call } else { at_turn };
        let rest: &[&str] = if after_call.is_empty() { at_turn } else { &[] };
        assert_eq!(Scene::turn_start().said(&mut then, &world), rest, "{lines:?} after that");
        assert_eq!(Scene::turn_start().said(&mut then, &world), [""; 0], "{lines:?} again");
        assert_eq!(Scene::turn_start().said(&mut known.clone(), &world), at_turn, "{lines:?} at once");
    }
}

#[test]
fn deferred_commit_is_reported_with_the_next_move() {
    let mut world = World::on_main();
    let mut known = noted(&world);
    world.log("1 2 995 commit: two");
    assert_eq!(Scene::default().said(&mut known, &world), [""; 0]);
    let mut back = (known.clone(), world.clone());
    back.1.log("2 1 997 reset: moving to HEAD~1");
    assert_eq!(Scene::turn_start().said(&mut back.0, &back.1), [""; 0], "it was taken back");
    world.log("2 3 997 pull: Fast-forward");
    assert_eq!(Scene::default().said(&mut known, &world), ["main 1111111 -> 3333333 (commit, pull 01:16)"]);
    assert_eq!(Scene::turn_start().said(&mut known, &world), [""; 0]);
}

#[test]
fn a_session_gets_nothing_of_its_own_moves() {
    let cases = [
        ("git checkout fix", 995, true),
        ("./release.sh", 995, true),
        ("git checkout fix", 989, true),
        ("git checkout fix", 1_000, true),
        ("git checkout fix", 980, false),
        ("git status", 995, false),
        ("cargo test", 995, false),
        ("cat a.rs", 995, false),
    ];
    for (command, at, is_own) in cases {
        let mut world = World::on_main();
        let mut known = noted(&world);
        world.head("refs/heads/fix", at);
        world.log(&format!("1 2 {at} checkout: moving from main to fix"));
        let said = Scene::running(command).said(&mut known, &world);
        assert_eq!(said.is_empty(), is_own, "{command} at {at}: {said:?}");
        assert_eq!(known.own.len(), usize::from(is_own), "{command} at {at}");
        assert_eq!(Scene::turn_start().said(&mut known, &world), [""; 0], "{command} at {at}");
    }
}

#[test]
fn foreign_moves_are_reported_apart_from_own_moves() {
    let mut world = World::on_main();
    let mut known = noted(&world);
    world.head("refs/heads/x", 996);
    world.log("1 2 900 checkout: moving from main to x");
    world.log("2 3 995 commit: own");
    let said = Scene::running("git commit -m own").said(&mut known, &world);
    assert_eq!(said, ["main -> x (checkout 01:15)"]);
    assert_eq!(known.own.len(), 1);
}

#[test]
fn a_background_command_owns_moves_for_ten_minutes() {
    for (at, is_own) in [(1_001, true), (1_500, true), (1_700, false)] {
        let mut world = World::on_main();
        let mut known = noted(&world);
        let mut scene = Scene::running("git pull --rebase");
        scene.calls[0].in_background = true;
        assert_eq!(scene.said(&mut known, &world), [""; 0]);
        world.log(&format!("1 2 {at} pull: Fast-forward"));
        world.write("/w/src/a.rs", "a", at);
        world.differing = Some(vec!["src/a.rs".to_owned()]);
        let later = Scene { since: at - 1, now: at + 1, ..Scene::default() };
        let looked = later.look(&mut known, &world);
        assert_eq!(looked.findings.is_empty(), is_own, "{at}");
        assert_eq!(looked.explained.len(), 1, "{at}: what it changed is no news either way");
    }
    let mut world = World::on_main();
    let mut known = noted(&world);
    let mut scene = Scene::running("npm run dev");
    scene.calls[0].in_background = true;
    scene.said(&mut known, &world);
    world.log("1 2 1005 pull: Fast-forward");
    let later = Scene { since: 1_001, now: 1_010, ..Scene::default() };
    assert_eq!(later.said(&mut known, &world).len(), 1, "a server in the background explains nothing");
}

#[test]
fn a_move_of_another_session_names_it() {
    let calling = |since: Option<u64>| probe::Known {
        calling_since: since.map(|since| Timestamp::from_millis(since * 1_000)),
        ..probe::Known::default()
    };
    let (known, world) = switched();
    // The other session has noted the move as its own.
    let mut other_git = known.clone();
    let running = Scene::running("git checkout fix");
    running.look(&mut other_git, &world);
    let noted = probe::Known {
        around: probe::Surroundings { git: other_git, ..probe::Surroundings::default() },
        ..calling(None)
    };
    let by = |known: &Known, scene: &Scene| scene.said(&mut known.clone(), &world);
    let expected = ["main -> fix (checkout 01:16 by session b1c2d3e4)"];
    assert_eq!(by(&known, &Scene::beside("b1c2d3e4-9", noted.clone())), expected);
    // The same if an own command that may move HEAD ran at that time.
    let meanwhile = Scene { calls: Scene::running("make").calls, ..Scene::beside("b1c2d3e4-9", noted) };
    assert_eq!(by(&known, &meanwhile), expected);
    assert_eq!(by(&known, &Scene::beside("b1c2d3e4-9", calling(Some(994)))), expected);
    assert_eq!(
        by(&known, &Scene::beside("b1c2d3e4-9", calling(Some(998)))),
        ["main -> fix (checkout 01:16)"]
    );
    assert_eq!(by(&known, &Scene::beside("b1c2d3e4-9", calling(None))), ["main -> fix (checkout 01:16)"]);
    let mut two = Scene::beside("b1c2d3e4-9", calling(Some(994)));
    two.others.extend(Scene::beside("other", calling(Some(994))).others);
    assert_eq!(by(&known, &two), ["main -> fix (checkout 01:16)"], "it may have been either");
    let mut ended = Scene::beside("b1c2d3e4-9", calling(Some(994)));
    ended.others[0].is_open = false;
    assert_eq!(by(&known, &ended), ["main -> fix (checkout 01:16)"], "it was killed while it was calling");
    let subagent = Scene::beside("s/agent-7", calling(Some(994)));
    assert_eq!(by(&known, &subagent), ["main -> fix (checkout 01:16 by your subagent agent-7)"]);
}

#[test]
fn a_commit_of_another_session_does_not_wait() {
    let mut world = World::on_main();
    let mut known = noted(&world);
    world.log("1 2 995 commit: two");
    let calling =
        probe::Known { calling_since: Some(Timestamp::from_millis(994_000)), ..probe::Known::default() };
    let said = Scene::beside("b", calling).said(&mut known, &world);
    assert_eq!(said, ["main 1111111 -> 2222222 (commit 01:16 by session b)"]);
}

#[test]
fn a_truncated_reflog_resumes_after_the_last_entry() {
    // Truncated at the front: the last line is known.
    let mut world = World::on_main();
    world.log("1 2 200 commit: two");
    let mut known = noted(&world);
    world.remove("/w/.git/logs/HEAD");
    world.log("1 2 200 commit: two");
    assert_eq!(Scene::default().said(&mut known, &world), [""; 0]);
    // Replaced with other entries: only the state counts.
    world.remove("/w/.git/logs/HEAD");
    world.log("0 3 995 clone: from x");
    assert_eq!(Scene::default().said(&mut known, &world), ["main 2222222 -> 3333333 (update 01:16)"]);
    // Deleted: HEAD and its ref count.
    world.remove("/w/.git/logs/HEAD");
    world.write("/w/.git/refs/heads/main", id('3'), 996);
    assert_eq!(Scene::default().said(&mut known, &world), [""; 0]);
    world.write("/w/.git/refs/heads/main", id('4'), 997);
    assert_eq!(Scene::default().said(&mut known, &world), ["main 3333333 -> 4444444 (update 01:16)"]);
    // Present again.
    world.log("4 5 998 pull: Fast-forward");
    world.write("/w/.git/refs/heads/main", id('5'), 998);
    assert_eq!(Scene::default().said(&mut known, &world), ["main 4444444 -> 5555555 (pull 01:16)"]);
}

#[test]
fn commit_during_a_look_without_reflog_is_found() {
    let mut world = World::on_main();
    world.remove("/w/.git/logs/HEAD");
    world.write("/w/.git/refs/heads/main", id('1'), 100);
    let mut known = noted(&world);
    world.write("/w/.git/refs/heads/main", id('2'), 996);
    let mut later = world.clone();
    later.write("/w/.git/refs/heads/main", id('3'), 997);
    world.later = Some(("/w/.git/refs/heads/main", Box::new(later.clone())));
    let mut said = Scene::default().said(&mut known, &world);
    said.extend(Scene::default().said(&mut known, &later));
    assert_eq!(said, ["main 1111111 -> 3333333 (update 01:16)"]);
}

#[test]
fn a_long_reflog_reports_only_its_last_moves() {
    let mut world = World::on_main();
    let mut known = noted(&world);
    for _ in 0..1_000 {
        world.log("1 2 995 checkout: moving from main to x");
        world.log("2 1 995 checkout: moving from x to main");
    }
    world.head("refs/heads/x", 995);
    world.log("1 2 995 checkout: moving from main to x");
    let said = Scene::default().said(&mut known, &world);
    assert_eq!(said, ["main -> x (checkout 01:16)"]);
}

#[test]
fn a_foreign_stash_of_read_files_is_reported() {
    for (paths, command, expected) in [
        (&["src/a.rs"][..], "cargo test", &["stash pushed"][..]),
        (&["src/z.rs"], "cargo test", &[]),
        (&["src/a.rs"], "git stash", &[]),
    ] {
        let mut world = World::on_main();
        let mut known = noted(&world);
        world.differing = Some(paths.iter().map(|path| (*path).to_owned()).collect());
        world.write("/w/src/a.rs", "a", 995);
        world.append("/w/.git/logs/refs/stash", "0 9 995 WIP on main: 1111111 one");
        world.log("1 1 995 reset: moving to HEAD");
        assert_eq!(Scene::running(command).said(&mut known, &world), expected, "{paths:?} {command}");
        world.remove("/w/.git/logs/refs/stash");
        world.write("/w/src/a.rs", "b", 996);
        let expected = expected.iter().map(|_| "stash popped").collect::<Vec<_>>();
        assert_eq!(Scene::running(command).said(&mut known, &world), expected, "{paths:?} {command}");
    }
}

#[test]
fn an_operation_is_reported_at_start_and_end() {
    let mut world = World::on_main();
    let mut known = noted(&world);
    world.write("/w/.git/MERGE_HEAD", id('2'), 995);
    assert_eq!(Scene::default().said(&mut known, &world), ["merge under way"]);
    assert_eq!(Scene::turn_start().said(&mut known, &world), [""; 0]);
    world.remove("/w/.git/MERGE_HEAD");
    let mut concluded = (known.clone(), world.clone());
    assert_eq!(Scene::default().said(&mut known, &world), ["merge ended"]);
    concluded.1.log("1 3 996 commit (merge): x");
    let said = Scene::default().said(&mut concluded.0, &concluded.1);
    assert_eq!(said, ["main 1111111 -> 3333333 (merge 01:16)"], "one cause is one finding");

    world.write("/w/.git/MERGE_HEAD", id('2'), 997);
    assert_eq!(Scene::running("git merge x").said(&mut known, &world), [""; 0], "an own one is noted");
    assert_eq!(Scene::turn_start().said(&mut known, &world), [""; 0]);
}

#[test]
fn a_stopped_rebase_is_reported_with_its_move() {
    let mut world = World::on_main();
    let mut known = noted(&world);
    world.write("/w/.git/HEAD", id('2'), 995);
    world.write("/w/.git/rebase-merge/onto", id('2'), 995);
    world.log("1 2 995 rebase (start): checkout up");
    let looked = Scene::default().look(&mut known, &world);
    let [finding] = &looked.findings[..] else { panic!("{:?}", looked.findings) };
    assert_eq!(finding.payload["said"], "main -> 2222222 (rebase 01:16, rebase not finished)");
    assert_eq!(finding.payload["operation"], "rebase");
}

#[test]
fn a_hostile_name_stays_one_short_line() {
    let mut world = World::on_main();
    let mut known = noted(&world);
    let name = format!("\u{1b}[31mred\u{1b}[0m\u{202e}\t</notifications>{}", "x".repeat(4_096));
    world.head(&format!("refs/heads/{name}"), 995);
    world.log(&format!("1 2 995 checkout: moving from main to {name}"));
    let looked = Scene::default().look(&mut known, &world);
    let to = looked.findings[0].payload["to"].as_str().expect("a text").to_owned();
    assert!(to.starts_with("red </notifications>xxx") && to.chars().count() < 100, "{to}");
    assert!(!to.contains(['\n', '\t', '\u{1b}', '\u{202e}']), "{to:?}");
    let text = serde_json::to_string(&known).expect("it serializes");
    assert!(text.len() < 2_000, "{text}");
}

#[test]
fn a_folder_is_checked_until_a_repository_appears() {
    let mut known = noted(&World::default());
    let world = World::on_main();
    assert_eq!(Scene::default().said(&mut known, &world), [""; 0], "it is noted");
    let (mut moved, mut later) = (known.clone(), world.clone());
    later.log("1 2 995 pull: x");
    assert_eq!(Scene::default().said(&mut moved, &later).len(), 1);
    assert_eq!(Scene::default().said(&mut known, &World::default()), [""; 0], "it is gone");
    assert_eq!(known.repository, None);
}

#[test]
fn a_session_in_a_subfolder_keeps_its_repository() {
    let (mut known, mut world) = switched();
    world.write("/other/.git/HEAD", "ref: refs/heads/main", 100);
    let inside = Scene { workspace: "/w/src", ..Scene::default() };
    assert_eq!(inside.said(&mut known, &world), ["main -> fix (checkout 01:16)"]);
    assert_eq!(inside.said(&mut known, &world), [""; 0]);
    world.log("2 3 996 pull: x");
    let elsewhere = Scene { workspace: "/other", ..Scene::default() };
    assert_eq!(elsewhere.said(&mut known, &world), [""; 0], "another repository is noted");
    assert_eq!(Scene::default().said(&mut known, &world), [""; 0], "as that one is again");
}

#[test]
fn a_worktree_uses_own_head_and_shared_stash() {
    let mut world = World::default();
    world.write("/w/.git", "gitdir: ../r/.git/worktrees/w\n", 100);
    let folder = "/w/../r/.git/worktrees/w";
    world.write(&format!("{folder}/HEAD"), "ref: refs/heads/w\n", 100);
    world.write(&format!("{folder}/commondir"), "/r/.git\n", 100);
    world.append(&format!("{folder}/logs/HEAD"), "0 1 100 commit: x");
    let mut known = noted(&world);
    world.differing = Some(vec!["src/a.rs".to_owned()]);
    world.append("/r/.git/logs/refs/stash", "0 9 995 WIP on main: x");
    assert_eq!(Scene::default().said(&mut known, &world), ["stash pushed"]);
}

#[test]
fn the_git_probe_state_survives_serialization() {
    let (mut known, world) = switched();
    let mut scene = Scene::running("git fetch; git commit");
    scene.calls[0].in_background = true;
    scene.look(&mut known, &world);
    let mut later = world.clone();
    later.log("2 3 1900 commit: x");
    Scene { since: 1_899, now: 1_901, ..Scene::default() }.look(&mut known, &later);
    assert!(known.open.is_some() && known.background_since.is_some() && !known.own.is_empty(), "{known:?}");
    let text = serde_json::to_string(&known).expect("it serializes");
    assert_eq!(serde_json::from_str::<Known>(&text).expect("it can be read"), known);
    assert_eq!(serde_json::from_str::<Known>("{}").expect("nothing known"), Known::default());
    assert!(serde_json::from_str::<Known>(r#"{"own":[{"old":"xyz","new":"xyz","at":1}]}"#).is_err());
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert!(value.is_object());
}

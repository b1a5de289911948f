//! Notifications of file changes in a simulated world, and random worlds against a naive reference.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::{
    super::world::{World, edited, ran, read, shown, wrote, wrote_whole},
    WRITTEN_AFTER,
    known::Guard,
};

const A: &str = "/w/a.rs";

/// A world in which session `s` has read a file of three lines.
fn with_read() -> World {
    read_in(World::new())
}

fn read_in(mut world: World) -> World {
    world.write(A, "one\ntwo\nthree\n");
    assert!(world.end_calls("s", vec![read(A)]).is_empty());
    world
}

fn after_a_call(world: &mut World) -> Vec<String> {
    world.end_calls("s", Vec::new())
}

#[test]
fn a_foreign_change_is_reported_once_per_version() {
    let mut world = with_read();
    assert!(after_a_call(&mut world).is_empty());
    world.write(A, "one\nTWO\nthree\n");
    assert_eq!(after_a_call(&mut world), ["modified path=a.rs lines=2"]);
    assert!(after_a_call(&mut world).is_empty());
    world.replace(A, "one\nTWO\nTHREE\n");
    assert_eq!(world.prompt("s"), ["modified path=a.rs lines=3"]);
    world.end_calls("s", vec![read(A)]);
    assert!(world.prompt("s").is_empty());
    world.write(A, "one\nTWO\nTHREE\nfour\n");
    assert_eq!(after_a_call(&mut world), ["modified path=a.rs lines=4"]);
}

#[test]
fn reverted_or_touched_files_count_as_unchanged() {
    let mut world = with_read();
    world.touch(A);
    assert!(after_a_call(&mut world).is_empty());
    let content = world.content(A);
    world.write(A, "other");
    world.write(A, &content);
    assert!(after_a_call(&mut world).is_empty());
    world.replace(A, &content);
    assert!(after_a_call(&mut world).is_empty());
}

#[test]
fn reverting_a_reported_change_is_reported_as_restored() {
    let mut world = with_read();
    let content = world.content(A);
    world.write(A, "other");
    assert_eq!(after_a_call(&mut world), ["modified path=a.rs lines=1"]);
    world.write(A, &content);
    assert_eq!(after_a_call(&mut world), ["restored path=a.rs"]);
    assert!(after_a_call(&mut world).is_empty());
}

#[test]
fn deletions_and_renames_are_reported() {
    let mut world = with_read();
    world.remove(A);
    assert_eq!(after_a_call(&mut world), ["deleted path=a.rs"]);
    assert!(after_a_call(&mut world).is_empty());
    world.write(A, "again");
    assert_eq!(after_a_call(&mut world), ["modified path=a.rs"]);
    world.rename(A, "/w/b.rs");
    assert_eq!(after_a_call(&mut world), ["renamed path=b.rs from=a.rs"]);
    world.write("/w/b.rs", "more");
    assert_eq!(after_a_call(&mut world), ["modified path=b.rs lines=1"]);
}

#[test]
fn the_agents_own_changes_are_not_reported() {
    for (what, call) in [
        ("a command that may write", ran("cargo fmt")),
        ("a redirection", ran("echo x > a.rs")),
        ("git", ran("git checkout other")),
        (
            "what its result says",
            crate::call::Call { said_changed: vec!["a.rs".to_owned()], ..ran("sleep 1") },
        ),
        ("its own edit", wrote(A)),
    ] {
        let mut world = with_read();
        world.begin_call("s");
        world.write(A, "other");
        assert!(world.end_calls("s", vec![call]).is_empty(), "{what}");
        assert!(after_a_call(&mut world).is_empty(), "{what}");
        world.write(A, "foreign");
        assert_eq!(after_a_call(&mut world), ["modified path=a.rs lines=1"], "{what}");
    }
}

#[test]
fn difference_from_what_a_call_wrote_is_found() {
    let edit = || edited(A, "two", "TWO");
    let again = || edited(A, "three", "THREE");
    for (case, calls, content, expected) in [
        ("as written", vec![edit()], "one\nTWO\nthree\n", &[][..]),
        ("formatted", vec![edit()], "one\n  TWO\nthree\n", &["modified path=a.rs lines=2"]),
        ("more lines", vec![edit()], "one\nTWO\nthree\nfour\n", &["modified path=a.rs lines=4"]),
        ("taken back", vec![edit()], "one\ntwo\nthree\n", &["modified path=a.rs lines=2"]),
        ("other ends of lines", vec![edit()], "one\r\nTWO\r\nthree", &[]),
        ("two edits", vec![edit(), again()], "one\nTWO\nTHREE\n", &[]),
        ("two edits, formatted", vec![edit(), again()], "ONE\nTWO\nTHREE\n", &["modified path=a.rs lines=1"]),
        ("whole", vec![wrote_whole(A, "new\n")], "new\n", &[]),
        ("whole, formatted", vec![wrote_whole(A, "new\n")], "# head\nnew\n", &["modified path=a.rs lines=1"]),
        ("read after it", vec![edit(), read(A)], "other\n", &[]),
        ("by its own command", vec![edit(), ran("cargo fmt")], "other\n", &[]),
        ("not what was there", vec![edited(A, "x", "y")], "other\n", &[]),
    ] {
        let mut world = with_read();
        world.begin_call("s");
        world.write(A, content);
        assert_eq!(world.end_calls("s", calls), expected, "{case}");
        assert!(after_a_call(&mut world).is_empty(), "{case}");
        world.write(A, "later\n");
        let [later] = &after_a_call(&mut world)[..] else { panic!("{case}") };
        assert!(later.starts_with("modified path=a.rs"), "{case}: {later}");
    }
}

#[test]
fn formatters_that_the_client_announces_are_left_out() {
    for is_announced in [true, false] {
        let mut world = read_in(World::with_transcript());
        world.write(A, "one\nTWO;\nthree\n");
        assert!(world.end_calls("s", vec![edited(A, "two", "TWO")]).is_empty());
        if is_announced {
            world.write("/transcript", A);
        }
        world.wait(WRITTEN_AFTER);
        let first = after_a_call(&mut world);
        let found = [first, after_a_call(&mut world)].concat();
        let expected: &[&str] = if is_announced { &[] } else { &["modified path=a.rs lines=2"] };
        assert_eq!(found, expected, "{is_announced}");
    }
}

#[test]
fn a_change_before_the_agents_command_is_reported() {
    let mut world = with_read();
    world.write(A, "other");
    world.wait(Duration::from_secs(2));
    world.begin_call("s");
    assert_eq!(world.end_calls("s", vec![ran("npm install")]), ["modified path=a.rs lines=1"]);
}

#[test]
fn a_change_during_a_harmless_command_is_marked() {
    let mut world = with_read();
    world.begin_call("s");
    world.write(A, "one\nfixed\nthree\n");
    let found = world.end_calls("s", vec![ran("cargo test -p cart")]);
    assert_eq!(found, ["modified path=a.rs lines=2 when=while your command ran"]);
}

#[test]
fn a_background_server_does_not_hide_user_changes() {
    let mut world = with_read();
    let server = crate::call::Call { in_background: true, ..ran("npm run dev") };
    world.begin_call("s");
    assert!(world.end_calls("s", vec![server]).is_empty());
    world.write(A, "other");
    assert_eq!(world.prompt("s"), ["modified path=a.rs lines=1"]);
}

#[test]
fn changes_name_the_other_session_or_subagent() {
    let mut world = with_read();
    for (other, name) in [("b1c2d3e4f5", "session b1c2d3e4"), ("s/a7", "your subagent a7")] {
        world.settings.others.enabled = false;
        world.end_calls(other, vec![read(A)]);
        world.write(A, other);
        assert!(world.end_calls(other, vec![wrote(A)]).is_empty());
        assert_eq!(after_a_call(&mut world), [format!("modified path=a.rs lines=1 by={name}")]);
        assert!(world.end_calls(other, vec![ran("sleep 1")]).is_empty());
    }
    world.end_calls("s/a7", vec![read(A)]);
    world.write(A, "parent");
    world.end_calls("s", vec![wrote(A)]);
    assert_eq!(
        world.end_calls("s/a7", vec![ran("ls")]),
        ["modified path=a.rs lines=1 by=your parent session"]
    );
}

#[test]
fn a_change_announced_by_client_is_skipped_once() {
    for call in [wrote(A), shown(A)] {
        let mut world = read_in(World::with_transcript());
        world.write("/transcript", "/w/a.rs\n");
        world.end_calls("s", vec![call]);
        world.write(A, "first");
        assert!(after_a_call(&mut world).is_empty(), "the client may say it now");
        world.write("/transcript", "/w/a.rs\n/w/a.rs\n");
        assert!(after_a_call(&mut world).is_empty(), "it did");
        world.write(A, "second");
        assert_eq!(after_a_call(&mut world), ["modified path=a.rs lines=1"], "it does so once");
    }
}

#[test]
fn a_change_the_client_never_announces_is_reported() {
    let mut world = read_in(World::with_transcript());
    world.write("/transcript", "/w/a.rs\n");
    world.end_calls("s", vec![wrote(A)]);
    world.write(A, "first");
    assert!(after_a_call(&mut world).is_empty());
    assert!(after_a_call(&mut world).is_empty(), "a client may be late");
    world.wait(WRITTEN_AFTER);
    assert_eq!(after_a_call(&mut world), ["modified path=a.rs lines=1"]);
    world.end_calls("s", vec![read(A)]);
    world.write(A, "second");
    assert_eq!(
        after_a_call(&mut world),
        ["modified path=a.rs lines=1"],
        "of what is only read it says nothing"
    );
}

#[test]
fn quick_calls_do_not_shorten_client_grace_period() {
    let mut world = read_in(World::with_transcript());
    world.end_calls("s", vec![wrote(A)]);
    world.write(A, "first");
    for _ in 0..4 {
        assert!(after_a_call(&mut world).is_empty(), "its transcript is not written yet");
    }
    world.write("/transcript", "/w/a.rs\n");
    world.wait(WRITTEN_AFTER);
    assert!(after_a_call(&mut world).is_empty(), "the client announced it");
}

#[test]
fn a_second_change_ends_the_client_grace_period() {
    let mut world = read_in(World::with_transcript());
    world.end_calls("s", vec![wrote(A)]);
    world.write(A, "first");
    assert!(after_a_call(&mut world).is_empty());
    assert!(after_a_call(&mut world).is_empty());
    world.write(A, "second");
    assert_eq!(after_a_call(&mut world), ["modified path=a.rs lines=1"]);
}

#[test]
fn turn_end_change_is_reported_with_next_prompt() {
    let mut world = read_in(World::with_transcript());
    world.end_calls("s", vec![wrote(A)]);
    world.write(A, "first");
    assert!(after_a_call(&mut world).is_empty());
    assert!(after_a_call(&mut world).is_empty());
    assert!(after_a_call(&mut world).is_empty());
    world.wait(WRITTEN_AFTER);
    assert_eq!(world.prompt("s"), ["modified path=a.rs lines=1"]);
}

#[test]
fn a_change_after_a_late_announcement_is_reported() {
    let mut world = read_in(World::with_transcript());
    world.write("/transcript", "");
    world.end_calls("s", vec![wrote(A)]);
    world.write(A, "first");
    assert!(after_a_call(&mut world).is_empty());
    assert!(after_a_call(&mut world).is_empty());
    world.write("/transcript", "/w/a.rs\n");
    world.write(A, "first\nsecond");
    assert_eq!(
        after_a_call(&mut world),
        ["modified path=a.rs lines=2"],
        "the client announced the first change"
    );
    assert!(after_a_call(&mut world).is_empty());
}

#[test]
fn times_that_stop_or_go_back_hide_nothing() {
    let mut world = with_read();
    world.write_with_old_time(A, "ONE\ntwo\nthree\n");
    assert_eq!(after_a_call(&mut world), ["modified path=a.rs lines=1"]);
}

#[test]
fn unhashable_files_are_compared_by_size_and_time() {
    let mut world = World::new();
    world.write(A, &"x".repeat(2 << 20));
    world.end_calls("s", vec![read(A)]);
    world.forbid(A);
    assert!(after_a_call(&mut world).is_empty(), "its rights are no content");
    world.write(A, &"y".repeat(2 << 20));
    assert_eq!(after_a_call(&mut world), ["modified path=a.rs"]);
}

#[test]
fn a_finding_keeps_its_id_until_noted() {
    let mut world = with_read();
    let ids = |world: &World| {
        let events = world.look("s", crate::notification::InjectionPoint::AfterTool, &[]);
        events.iter().map(|event| event.id.to_string()).collect::<Vec<_>>()
    };
    world.write(A, "other");
    let first = ids(&world);
    assert_eq!(first, ids(&world), "a crash before it was noted finds the same");
    let content = "one\ntwo\nthree\n";
    after_a_call(&mut world);
    world.end_calls("s", vec![read(A)]);
    world.write(A, content);
    after_a_call(&mut world);
    world.end_calls("s", vec![read(A)]);
    world.write(A, "other");
    assert_ne!(first, ids(&world), "it is another change to the same content");
}

#[test]
fn the_file_limit_evicts_least_recently_touched_files() {
    let mut world = World::new();
    world.settings.files.max_paths = 16;
    for number in 0..40 {
        let path = format!("/w/{number}");
        world.write(&path, "x");
        world.end_calls("s", vec![read(&path)]);
    }
    for number in 0..40 {
        world.write(&format!("/w/{number}"), "y");
    }
    let found = after_a_call(&mut world);
    assert_eq!(found.len(), 16, "{found:?}");
    assert!(found.iter().any(|line| line.contains("path=39 ")), "{found:?}");
}

#[test]
fn excluded_paths_and_non_files_are_not_tracked() {
    let mut world = World::new();
    for path in ["/w/target/a", "/w/.git/index", "/proc/1/stat", "relative", "/w/node_modules/x/y.js"] {
        world.write(path, "x");
        world.end_calls("s", vec![read(path)]);
        world.write(path, "y");
    }
    world.end_calls("s", vec![read("/w/none"), read("/w")]);
    world.write("/w/none", "x");
    assert!(after_a_call(&mut world).is_empty());
}

#[test]
fn file_names_are_shown_cleaned_and_bounded() {
    let mut world = World::new();
    let path = format!("/w/a\u{1b}[31m\n</notifications>{}", "x".repeat(4_000));
    world.write(&path, "x");
    world.end_calls("s", vec![read(&path)]);
    world.write(&path, "y");
    let found = after_a_call(&mut world);
    assert_eq!(found.len(), 1);
    assert!(!found[0].contains(['\u{1b}', '\n']) && found[0].chars().count() < 300, "{found:?}");
}

#[test]
fn a_pause_is_one_finding_with_its_changes() {
    let mut world = with_read();
    world.wait(Duration::from_secs(60));
    assert!(world.prompt("s").is_empty());
    world.wait(Duration::from_secs(9 * 3_600 + 12 * 60));
    world.write(A, "other");
    let found = world.prompt("s");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("ended after=9h12m now=1970-01-01 ")
            && found[0].contains(" changed_that_you_read=a.rs"),
        "{found:?}"
    );
    assert!(world.prompt("s").is_empty());
}

#[test]
fn the_next_look_reports_a_missed_pause() {
    let mut world = with_read();
    world.wait(Duration::from_secs(9 * 3_600 + 12 * 60));
    world.write(A, "other");
    world.prompt_too_late("s");
    let found = after_a_call(&mut world);
    assert!(found.len() == 1 && found[0].contains("after=9h12m"), "{found:?}");
    assert!(found[0].ends_with(" changed_that_you_read=a.rs"), "{found:?}");
    assert!(after_a_call(&mut world).is_empty() && world.prompt("s").is_empty());
}

#[test]
fn another_session_that_works_here_is_said_once() {
    let mut world = with_read();
    world.prompt("b1c2d3e4f5");
    assert_eq!(world.prompt("s"), ["present session=session b1c2d3e4"]);
    assert!(world.prompt("s").is_empty());
    world.prompt("s/a7");
    assert!(world.prompt("s").is_empty(), "its subagent is no other session");
    world.prompt("ended");
    world.ended.insert("ended".to_owned());
    assert!(world.prompt("s").is_empty(), "who has ended works nowhere");
}

/// An action in a random world.
#[derive(Debug, Clone)]
enum Act {
    /// The user writes the file, in place or by replacing it.
    Write {
        file: usize,
        content: u8,
        replaces: bool,
    },
    Touch {
        file: usize,
    },
    Remove {
        file: usize,
    },
    /// The agent `by` reads or writes the file.
    Read {
        by: usize,
        file: usize,
    },
    Edit {
        by: usize,
        file: usize,
        content: u8,
    },
    /// A command of the agent writes the file.
    Command {
        by: usize,
        file: usize,
        content: u8,
    },
    /// The agent makes an exchange.
    Exchange {
        by: usize,
    },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let (file, by, content) = (0..3_usize, 0..2_usize, 0..4_u8);
    let act = prop_oneof![
        3 => (file.clone(), content.clone(), any::<bool>())
            .prop_map(|(file, content, replaces)| Act::Write { file, content, replaces }),
        1 => file.clone().prop_map(|file| Act::Touch { file }),
        1 => file.clone().prop_map(|file| Act::Remove { file }),
        3 => (by.clone(), file.clone()).prop_map(|(by, file)| Act::Read { by, file }),
        2 => (by.clone(), file.clone(), content.clone()).prop_map(|(by, file, content)| Act::Edit { by, file, content }),
        2 => (by.clone(), file, content).prop_map(|(by, file, content)| Act::Command { by, file, content }),
        5 => by.prop_map(|by| Act::Exchange { by }),
    ];
    proptest::collection::vec(act, 1..60)
}

/// An agent's known files in the naive reference: the content that it last read or wrote, or of
/// which it was notified; `None` for an unknown file, and `Some(None)` for a deleted one.
type Knows = BTreeMap<String, Option<String>>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn random_foreign_changes_are_each_found_once(acts in acts()) {
        let mut world = World::new();
        world.settings.others.enabled = false;
        let agents = ["s", "t"];
        let mut known: [Knows; 2] = Default::default();
        let name = |file: usize| format!("/w/{file}");
        for act in acts {
            // Each state has a different time here; another test covers equal times.
            world.wait(Duration::from_millis(500));
            let (by, found) = match act {
                Act::Write { file, content, replaces: true } => {
                    world.replace(&name(file), &content.to_string());
                    continue;
                }
                Act::Write { file, content, replaces: false } => {
                    world.write(&name(file), &content.to_string());
                    continue;
                }
                Act::Touch { file } => {
                    if world.contains(&name(file)) {
                        world.touch(&name(file));
                    }
                    continue;
                }
                Act::Remove { file } => {
                    world.remove(&name(file));
                    continue;
                }
                Act::Read { by, file } if world.contains(&name(file)) => {
                    known[by].insert(name(file), Some(world.content(&name(file))));
                    (by, world.end_calls(agents[by], vec![read(&name(file))]))
                }
                Act::Read { .. } => continue,
                Act::Edit { by, file, content } => {
                    world.write(&name(file), &content.to_string());
                    known[by].insert(name(file), Some(content.to_string()));
                    (by, world.end_calls(agents[by], vec![wrote(&name(file))]))
                }
                Act::Command { by, file, content } => {
                    // The change to report was made before the agent's command.
                    let before = world.end_calls(agents[by], Vec::new());
                    prop_assert_eq!(reference(&mut known[by], &world), changed(&before));
                    world.begin_call(agents[by]);
                    world.write(&name(file), &content.to_string());
                    if let Some(state) = known[by].get_mut(&name(file)) {
                        *state = Some(content.to_string());
                    }
                    (by, world.end_calls(agents[by], vec![ran("make")]))
                }
                Act::Exchange { by } => (by, world.end_calls(agents[by], Vec::new())),
            };
            prop_assert_eq!(reference(&mut known[by], &world), changed(&found));
        }
    }
}

/// The files of the findings, sorted.
fn changed(found: &[String]) -> Vec<String> {
    let path = |line: &String| {
        line.split("path=").nth(1).map(|rest| rest.split(' ').next().unwrap_or_default().to_owned())
    };
    let mut paths: Vec<String> = found.iter().filter_map(path).collect();
    paths.sort_unstable();
    paths
}

/// Returns the files that differ from the agent's known state, and updates it.
fn reference(known: &mut Knows, world: &World) -> Vec<String> {
    let mut changed = Vec::new();
    for (path, state) in known.iter_mut() {
        let now = world.contains(path).then(|| world.content(path));
        if now != *state {
            *state = now;
            changed.push(path.trim_start_matches("/w/").to_owned());
        }
    }
    changed
}

#[test]
fn the_overwrite_guard_stops_a_call_once() {
    let guarded = || {
        let mut world = with_read();
        world.settings.files.guard = Guard::Overwrite;
        world.write(A, "one\nTWO\nthree\n");
        world
    };
    let held = ["held path=a.rs lines=2"];
    let mut world = guarded();
    assert_eq!(world.before_a_call("s", &[wrote(A)]), held);
    assert_eq!(world.before_a_call("s", &[wrote(A)]), [""; 0], "it is wanted");
    assert_eq!(after_a_call(&mut world), [""; 0], "it was announced");
    world.write(A, "one\nTWO\nTHREE\n");
    assert_eq!(world.before_a_call("s", &[wrote(A)]), ["held path=a.rs lines=3"]);

    let mut world = guarded();
    assert_eq!(after_a_call(&mut world).len(), 1, "it is announced, and not read again");
    assert_eq!(world.before_a_call("s", &[wrote(A)]), ["held path=a.rs"]);

    let mut world = guarded();
    world.end_calls("s", vec![read(A)]);
    assert_eq!(world.before_a_call("s", &[wrote(A)]), [""; 0]);
    assert_eq!(world.before_a_call("s", &[read(A), wrote("/w/new.rs")]), [""; 0]);

    let mut world = guarded();
    world.settings.files.guard = Guard::Off;
    assert_eq!(world.before_a_call("s", &[wrote(A)]), [""; 0]);
}

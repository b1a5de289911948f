//! The use of a newly installed aside. Each event is played twice: in the client alone and in one
//! with aside. The author of the message, its request and its tokens are a line for
//! `scripts/signals`, which makes the README's table of all of them.

use std::{
    fs,
    io::Write,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use rustix::process::Pid;
use serde_json::{Value, json};
use toon::tokens;

use super::{
    api::{Api, Turn},
    assert_only_added,
    calls::{GO_ON, bash, edit, git, go_on, in_background, make_repository, put, read},
    client::{run_headless, run_headless_with, version},
    desk::{Desk, less},
    said::{Played, Said},
    servers::{mcp_server_returns, port_closes},
    stage::Stage,
    terminal::{PATIENCE, within},
};
use crate::support::{daemon::Home, mounts::has_own_mounts};

/// The beginning of the lines for the table.
const MARK: &str = "SIGNAL ";
/// How long the user is away.
const AWAY: Duration = Duration::from_secs(9 * 3_600 + 12 * 60);
/// Longer than the client takes to report an end.
const LATE: Duration = Duration::from_secs(120);
/// The request in which a lost end is reported: the end of the turn before it shows that the
/// command is gone.
const MISSED_IN: usize = 2;
/// Tokens in a context that is nearly full, in the models of these clients.
const NEARLY_FULL: u64 = 830_000;
/// The user's prompt in another conversation.
const ELSEWHERE: &str = "somewhere else";
/// Most lines that an agent reads after a pause.
const WELCOME_LINES_MAX: usize = 5;

/// An event around an agent.
struct Signal {
    /// Its row in the table.
    row: u32,
    /// Its description in the table.
    what: &'static str,
    says: Says,
    play: fn(&mut Stage) -> Played,
}

/// Who has to report the event if aside is installed.
enum Says {
    /// The client; aside is silent.
    Client,
    /// Aside, in the next request and in at most so many tokens, or in as many as this text of the
    /// same content takes.
    Aside(u32, &'static str),
    /// The client where it does so without aside; where it loses the event, aside, in as many
    /// tokens.
    AsideWhereLost(u32, &'static str),
}

/// Plays the event with and without aside, prints the line, and checks that it is reported once.
fn check(signal: &Signal) -> String {
    let play = |mut stage: Stage| {
        let Played { mut conversation, happened } = (signal.play)(&mut stage);
        // The name of a test's folder is longer than that of a user's.
        conversation.iter_mut().flatten().for_each(|message| rename(message, &stage.home.work(), "/home"));
        Played { conversation, happened }
    };
    let control = play(Stage::control());
    let alone = play(Stage::alone()).said_beside(&control);
    let played = play(Stage::with_aside());
    let mut said = played.said_beside(&control);
    let json = |said: &[Said]| said.iter().map(Said::to_json).collect::<Vec<_>>();
    let line = json!({
        "row": signal.row, "what": signal.what, "client": version(), "alone": json(&alone), "with": json(&said),
    });
    writeln!(std::io::stderr(), "{MARK}{line}").expect("somebody reads");
    assert_only_added(&played.conversation);
    let [once] = said.as_slice() else { panic!("said {} times: {said:#?}", said.len()) };
    let (most, same, request) = match signal.says {
        Says::Aside(most, same) => (most, same, 1),
        Says::AsideWhereLost(most, same) if alone.is_empty() => (most, same, MISSED_IN),
        Says::Client | Says::AsideWhereLost(..) => {
            assert!(!alone.is_empty() && !once.by_aside, "{once:#?}");
            return said.remove(0).text;
        }
    };
    assert!(alone.is_empty(), "the client says it: {alone:#?}");
    assert!(once.by_aside && once.request == request, "{once:#?}");
    let most = most.max(tokens::estimate(same).0);
    assert!(once.tokens() <= most, "{} tokens, at most {most}:\n{}", once.tokens(), once.text);
    said.remove(0).text
}

fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) => *text = text.replace(from, to),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, from, to)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, from, to)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Plays `turns` in the home of `stage`; the event happens before turn `happened`, or while the
/// client performs it.
fn played(stage: &Stage, happened: usize, turns: Vec<Turn>) -> Played {
    let api = Api::playing(turns);
    run_headless(&stage.home, &api.url());
    Played { conversation: api.conversation(), happened }
}

fn done() -> Turn {
    Turn::says("done")
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_file_that_was_read() {
    check(&Signal {
        row: 10,
        what: "somebody changed a file that it had read",
        says: Says::Aside(12, "file_changed: src/cart.rs\nlines: \"41-44, 90\""),
        play: |stage| {
            put(&stage.home, "a.txt", "one\ntwo\nthree\n");
            let turns = vec![
                read(&stage.home, 1, "a.txt"),
                go_on(2).after(stage.user_writes("a.txt", "one\nTWO\nthree\n")),
                go_on(3),
                go_on(4),
                done(),
            ];
            played(stage, 1, turns)
        },
    });
}

/// A file that the agent has edited, and that its user then changes once or twice.
fn edited(stage: &mut Stage, times: usize) -> Played {
    put(&stage.home, "b.txt", "one\ntwo\nthree\n");
    let mut turns = vec![read(&stage.home, 1, "b.txt"), edit(&stage.home, 2, "b.txt", "two", "TWO")];
    let contents = ["one\nkumquat\nthree\n", "one\ndurian\nthree\n"];
    for (id, content) in [3, 5].into_iter().zip(contents).take(times) {
        turns.push(go_on(id).after(stage.user_writes("b.txt", content)));
        turns.push(go_on(id + 1));
    }
    let happened = turns.len() - 2;
    turns.extend([go_on(7), done()]);
    played(stage, happened, turns)
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_file_that_was_edited() {
    check(&Signal {
        row: 11,
        what: "somebody changed a file that it had edited",
        says: Says::Client,
        play: |stage| edited(stage, 1),
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_file_that_was_edited_and_announced() {
    check(&Signal {
        row: 12,
        what: "the same file once more",
        says: Says::Aside(12, "file_changed: src/cart.rs\nlines: \"41-44, 90\""),
        play: |stage| edited(stage, 2),
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn the_end_of_a_background_command() {
    check(&Signal {
        row: 20,
        what: "a command in the background ended",
        says: Says::Client,
        play: |stage| {
            let begins = if stage.happens { in_background(1, "sleep 2; echo finished") } else { go_on(1) };
            let turns = vec![begins, bash(2, "sleep 4; echo meanwhile"), go_on(3), done()];
            played(stage, 1, turns)
        },
    });
}

/// A background command that runs until [`end_it`], or until its home is deleted.
fn endless(stage: &Stage) -> Turn {
    let (work, end) = (stage.home.work(), stage.home.path("end"));
    let pid = stage.home.path("pid").display().to_string();
    let script =
        format!("echo $$ >{pid}; while [ -d {work} ] && [ ! -e {} ]; do sleep 0.1; done\n", end.display());
    put(&stage.home, "build.sh", &script);
    in_background(1, "sh build.sh")
}

/// The process of that command, once it runs.
fn process(home: &Home) -> Pid {
    let read = || fs::read_to_string(home.path("pid")).ok()?.trim().parse().ok().and_then(Pid::from_raw);
    assert!(within(PATIENCE, || read().is_some()), "the command does not run");
    read().expect("it is there")
}

fn end_it(home: &Home) {
    fs::write(home.path("end"), "").expect("written");
}

/// The agent's text at the end of the turn in which it started that command.
const SAID_LAST: &str = "it is being built";

/// A client whose agent has started a background command, if the event happens, and ended its turn.
fn with_command(stage: &Stage) -> Desk {
    let begins = if stage.happens { endless(stage) } else { go_on(1) };
    let desk = Desk::taken(stage, vec![begins, Turn::says(SAID_LAST)]);
    desk.rest_after(2);
    desk
}

/// The user sends a prompt, and two more after the time in which the client reports.
fn go_on_late(stage: &mut Stage, desk: &Desk) {
    desk.prompt("go on");
    stage.pass_for_daemon(LATE);
    desk.prompt("go on");
    desk.prompt("go on");
}

const LOST: Says =
    Says::AsideWhereLost(20, "background_ended: b1a2b3c4d sh build.sh\nclient_did_not_report_it: true");

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn background_task_end_in_other_conversation_is_delivered() {
    check(&Signal {
        row: 21,
        what: "the same, while its user was in another conversation",
        says: LOST,
        play: |stage| {
            let desk = with_command(stage);
            let conversation = desk.conversation();
            desk.clear();
            desk.prompt(ELSEWHERE);
            if stage.happens {
                // The client reports it there, in a turn of its own.
                end_it(&stage.home);
                desk.rest_after(4);
            }
            desk.resume(&conversation);
            go_on_late(stage, &desk);
            Played { conversation: less(desk.api.conversation(), ELSEWHERE), happened: 1 }
        },
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_background_command_that_its_user_stopped() {
    check(&Signal {
        row: 22,
        what: "its user stopped a command in the background",
        says: LOST,
        play: |stage| {
            let desk = with_command(stage);
            if stage.happens {
                desk.stop_command(process(&stage.home));
            }
            go_on_late(stage, &desk);
            Played { conversation: desk.api.conversation(), happened: 1 }
        },
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_background_command_whose_client_was_killed() {
    check(&Signal {
        row: 23,
        what: "its client was killed while a command ran in the background",
        says: Says::Client,
        play: |stage| {
            let api = with_command(stage).kill(SAID_LAST);
            end_it(&stage.home);
            // Its loss is noticed at the end of the first turn, if the client does not report it.
            for _ in 0..3 {
                run_headless_with(&stage.home, &api.url(), &["-p", "go on", "--continue"]);
                stage.pass(LATE);
            }
            Played { conversation: api.conversation(), happened: 1 }
        },
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_context_that_is_nearly_full() {
    check(&Signal {
        row: 120,
        what: "its context became nearly full",
        says: Says::Aside(10, "context: 84 percent (168k of 200k)"),
        play: |stage| {
            let (tokens, shown) = if stage.happens { (NEARLY_FULL, 83) } else { (0, 0) };
            let desk = Desk::taken(stage, (0..4).map(|_| done().given(tokens)).collect());
            desk.rest_after(1);
            // The limit is known once the client has drawn its status line.
            desk.see(&format!("\"used_percentage\":{shown}"));
            for _ in 0..3 {
                desk.prompt("go on");
            }
            Played { conversation: desk.api.conversation(), happened: 0 }
        },
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn another_sessions_edit() {
    check(&Signal {
        row: 30,
        what: "another session edited a file that it had read",
        says: Says::Aside(24, "other_session_edited: src/cart.rs\nby: \"b1c2, branch fix-cart, 12 s ago\""),
        play: |stage| {
            put(&stage.home, "a.txt", "one\ntwo\n");
            let home = &stage.home;
            let other = Api::playing(vec![
                read(home, 11, "a.txt"),
                edit(home, 12, "a.txt", "two", "TWO"),
                Turn::says("edited"),
            ]);
            let edits = home.clone();
            let edits = stage.if_it_happens(move || drop(run_headless(&edits, &other.url())));
            let turns = vec![read(home, 1, "a.txt"), go_on(2).after(edits), go_on(3), done()];
            played(stage, 1, turns)
        },
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn another_sessions_presence() {
    check(&Signal {
        row: 31,
        what: "another session began to work in its folder",
        says: Says::Aside(24, "other_session_edited: src/cart.rs\nby: \"b1c2, branch fix-cart, 12 s ago\""),
        play: |stage| {
            let (leave, may_leave) = mpsc::sync_channel::<()>(0);
            let may_leave = Mutex::new(may_leave);
            let stays = move || {
                may_leave.lock().expect("no panic").recv_timeout(PATIENCE).ok();
            };
            let other = Arc::new(Api::playing(vec![go_on(11), Turn::says("left").after(stays)]));
            let (comes, api) = (stage.home.clone(), other.clone());
            let (sender, receiver) = mpsc::sync_channel(1);
            let comes = stage.if_it_happens(move || {
                let url = api.url();
                let session = thread::spawn(move || drop(run_headless(&comes, &url)));
                assert!(api.wait_for(2, PATIENCE), "the other session does not work");
                sender.send(session).expect("somebody waits for it");
            });
            let turns = vec![go_on(1), go_on(2).after(comes), go_on(3), done()];
            let played = played(stage, 1, turns);
            drop(leave);
            if stage.happens {
                receiver.recv().expect("it came").join().expect("it ended well");
            }
            played
        },
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn an_agent_that_repeats_itself() {
    check(&Signal {
        row: 50,
        what: "it made the same call four times with the same result",
        says: Says::Aside(20, "loop: Bash cargo test -p cart\nrepetitions: \"4, same result each time\""),
        play: |stage| {
            let call = if stage.happens { |id| bash(id, GO_ON) } else { go_on };
            let turns = (1..=6).map(call).chain([done()]).collect();
            played(stage, 4, turns)
        },
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_disk_that_is_nearly_full() {
    if !has_own_mounts("real_client::signals::a_disk_that_is_nearly_full") {
        return;
    }
    check(&Signal {
        row: 90,
        what: "the disk of its folder became nearly full",
        says: Says::Aside(14, "disk_low: /home\nfree: 1.4 GB of 460 GB"),
        play: |stage| {
            stage.have_small_disk();
            let turns =
                vec![go_on(1), go_on(2).after(stage.if_it_happens(stage.fill_disk())), go_on(3), done()];
            played(stage, 1, turns)
        },
    });
}

/// The user is away for hours, runs `meanwhile` before coming back, and continues the same
/// conversation.
fn away(stage: &mut Stage, meanwhile: fn(&Home)) -> Played {
    make_repository(&stage.home);
    let turns = vec![
        read(&stage.home, 1, "a.txt"),
        read(&stage.home, 2, "b.txt"),
        done(),
        go_on(3),
        go_on(4),
        done(),
    ];
    let api = Api::playing(turns);
    run_headless(&stage.home, &api.url());
    if stage.happens {
        stage.pass(AWAY);
        meanwhile(&stage.home);
    }
    run_headless_with(&stage.home, &api.url(), &["-p", "go on", "--continue"]);
    Played { conversation: api.conversation(), happened: 2 }
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_pause() {
    check(&Signal {
        row: 100,
        what: "its user came back after 9 hours",
        says: Says::Aside(14, "back_after: 9h12m\nnow: \"2026-11-22 08:14 +01:00\""),
        play: |stage| away(stage, |_| ()),
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_pause_in_which_much_changed() {
    // One block reports everything, in at most the tokens of its parts.
    let text = check(&Signal {
        row: 101,
        what: "the same, and files and branch had changed",
        says: Says::Aside(
            40,
            concat!(
                "back_after: 9h12m\nnow: \"2026-11-22 08:14 +01:00\"\n",
                "branch: \"main -> fix-cart (checkout 14:02)\"\nchanged_that_you_read: \"src/a.rs, src/b.rs, +2\"",
            ),
        ),
        play: |stage| {
            away(stage, |home| {
                git(home, &["checkout", "-q", "other"]);
                put(home, "b.txt", "one\nTWO\n");
            })
        },
    });
    assert!(text.lines().count() <= WELCOME_LINES_MAX, "{text}");
    for words in ["back_after: 9h12m", "main -> other", "a.txt, b.txt"] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_branch_that_the_user_switched() {
    check(&Signal {
        row: 110,
        what: "its user switched the branch",
        says: Says::Aside(
            26,
            "branch: \"main -> fix-cart (checkout 14:02)\"\nchanged_that_you_read: \"src/a.rs, src/b.rs, +2\"",
        ),
        play: |stage| {
            make_repository(&stage.home);
            let home = stage.home.clone();
            let switches = stage.if_it_happens(move || git(&home, &["checkout", "-q", "other"]));
            let turns = vec![read(&stage.home, 1, "a.txt"), go_on(2).after(switches), go_on(3), done()];
            played(stage, 1, turns)
        },
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn an_mcp_server_that_is_back() {
    check(&Signal {
        row: 70,
        what: "an MCP server that a call had found gone is back",
        says: Says::AsideWhereLost(10, "mcp_reconnected: github\ntools: 26"),
        play: |stage| mcp_server_returns(stage),
    });
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_server_whose_port_closed() {
    check(&Signal {
        row: 130,
        what: "the port of its dev server closed, while the command ran on",
        says: Says::AsideWhereLost(21, "port_closed: 3000\nwas: \"npm run dev, up 12m\""),
        play: |stage| port_closes(stage),
    });
}

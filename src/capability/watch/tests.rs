//! Conditions of the real machine: processes, ports, servers, files.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
};

use tokio::time::timeout;

use super::{
    look::{Look, look, until_met},
    *,
};
use engine::watch::condition::{Terms, parse};
use journal::time::Timestamp;

/// Longest wait for a condition that becomes true at once.
const SOON: Duration = Duration::from_secs(20);

fn condition(text: &str, folder: &Path) -> Condition {
    let folder = folder.to_str().expect("text");
    let terms = Terms { now: Timestamp::ZERO, utc_offset: &|_| 0, folder: Some(folder) };
    parse(text, &terms).expect("a condition")
}

async fn open(text: &str, folder: &Path) -> Condition {
    match look(&condition(text, folder)).await.expect("looked at") {
        Look::Open(open) => open,
        Look::Met(state) => panic!("{text}: {state}"),
    }
}

async fn state(text: &str, folder: &Path) -> Option<String> {
    match look(&condition(text, folder)).await.expect("looked at") {
        Look::Open(_) => None,
        Look::Met(state) => Some(state),
    }
}

/// Waits for `condition`, and calls `happens` repeatedly, because an event before the wait began
/// may not count.
async fn met(condition: &Condition, mut happens: impl FnMut()) -> String {
    let folders = Arc::new(Folders::default());
    folders.renew(condition.path().into_iter().count());
    let mut failures = 0;
    let waits = until_met(condition, &folders, &mut failures);
    let world = async {
        loop {
            tokio::select! {
                () = folders.changed() => {}
                () = pause(Duration::from_millis(200)) => happens(),
            }
        }
    };
    let met = async {
        tokio::select! {
            state = waits => state.expect("looked at"),
            () = world => unreachable!("it has no end"),
        }
    };
    timeout(SOON, met).await.expect("in time")
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[tokio::test]
async fn exit_condition_accepts_ended_and_missing_processes() {
    let folder = temporary();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs");
    let exit = open(&format!("exit {}", child.id()), folder.path()).await;
    let state_after = met(&exit, || {
        child.kill().expect("a child");
        child.wait().expect("killed");
    });
    assert_eq!(state_after.await, "it has ended");
    assert_eq!(state(&format!("exit {}", i32::MAX), folder.path()).await.as_deref(), Some("no such process"));
    // Another process with the same number.
    let own = Condition::Exit { pid: std::process::id(), started: Some(1) };
    assert_eq!(look(&own).await.expect("looked at"), Look::Met("it has ended".to_owned()));
    assert_eq!(met(&own, || ()).await, "it has ended");
}

#[tokio::test]
async fn a_port_opens_and_closes() {
    let folder = temporary();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    assert_eq!(state(&format!("port {port}"), folder.path()).await.as_deref(), Some("a process listens"));
    let closed = open(&format!("no port {port}"), folder.path()).await;
    let mut listener = Some(listener);
    assert_eq!(met(&closed, || drop(listener.take())).await, "no process listens");
    let opened = open(&format!("port {port}"), folder.path()).await;
    let mut listeners = Vec::new();
    let listen = || listeners.extend(TcpListener::bind(("127.0.0.1", port)).ok());
    assert_eq!(met(&opened, listen).await, "a process listens");
}

#[tokio::test]
async fn localhost_is_asked_at_both_addresses() {
    let folder = temporary();
    for (bound, hosts, others) in [
        ("[::1]:0", ["", "localhost:", "LOCALHOST.:", "0.0.0.0:", "[::]:", "[::1]:"], "127.0.0.1:"),
        ("127.0.0.1:0", ["", "localhost:", "LOCALHOST.:", "0.0.0.0:", "[::]:", "127.0.0.1:"], "[::1]:"),
    ] {
        let listener = TcpListener::bind(bound).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        for host in hosts {
            let open = state(&format!("port {host}{port}"), folder.path()).await;
            assert_eq!(open.as_deref(), Some("a process listens"), "{bound}: {host}");
            assert_eq!(state(&format!("no port {host}{port}"), folder.path()).await, None, "{bound}: {host}");
        }
        let closed = state(&format!("no port {others}{port}"), folder.path()).await;
        assert_eq!(closed.as_deref(), Some("no process listens"), "{bound}");
    }
}

#[tokio::test]
async fn answer_of_either_address_counts() {
    let folder = temporary();
    let first = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = first.local_addr().expect("bound").port();
    let second = TcpListener::bind(("::1", port)).expect("the same port");
    let serve = |listener: TcpListener, status: &'static str| {
        thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            let read = connection.read(&mut [0; 1024]).expect("a request");
            write!(connection, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").expect("written");
            read
        })
    };
    let servers = [serve(first, "404 Not Found"), serve(second, "200 OK")];
    let answer = state(&format!("http localhost:{port}"), folder.path()).await;
    assert_eq!(answer.as_deref(), Some("it answers 200"));
    for server in servers {
        assert!(server.join().expect("served") > 0);
    }
}

#[tokio::test]
async fn http_condition_waits_for_the_expected_status() {
    let folder = temporary();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let server = thread::spawn(move || {
        let mut asked = Vec::new();
        for status in ["503 Service Unavailable", "503 Service Unavailable", "302 Found"] {
            let (mut connection, _) = listener.accept().expect("a connection");
            let mut request = [0; 1024];
            let count = connection.read(&mut request).expect("a request");
            asked.push(String::from_utf8_lossy(&request[..count]).into_owned());
            write!(
                connection,
                "HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
            )
            .expect("written");
        }
        asked
    });
    let text = format!("http localhost:{port}/health?x=1");
    let up = open(&text, folder.path()).await;
    assert_eq!(state(&format!("{text} 503"), folder.path()).await.as_deref(), Some("it answers 503"));
    assert_eq!(met(&up, || ()).await, "it answers 302");
    let asked = server.join().expect("served");
    let expected = format!("GET /health?x=1 HTTP/1.1\r\nhost: localhost:{port}\r\n");
    assert!(asked[0].starts_with(&expected), "{}", asked[0]);
    assert_eq!(state(&text, folder.path()).await, None, "no process listens any more");
}

#[tokio::test]
async fn file_condition_is_met_on_creation_and_removal() {
    let folder = temporary();
    let path = folder.path().join("dist/app.js");
    let there = open("file dist/app.js", folder.path()).await;
    let make = || {
        fs::create_dir_all(folder.path().join("dist")).expect("made");
        fs::write(&path, "x").expect("written");
    };
    assert_eq!(met(&there, make).await, "it exists");
    assert_eq!(state("file dist/app.js", folder.path()).await.as_deref(), Some("it exists"));
    let gone = open("no file dist/app.js", folder.path()).await;
    assert_eq!(met(&gone, || drop(fs::remove_file(&path))).await, "it does not exist");
}

#[tokio::test]
async fn change_condition_is_met_only_by_new_content() {
    let folder = temporary();
    let path = folder.path().join("a.rs");
    let made = open("change a.rs", folder.path()).await;
    assert_eq!(met(&made, || fs::write(&path, "1").expect("written")).await, "it was created");
    let changed = open("change a.rs", folder.path()).await;
    let mut round = 0;
    let save = || {
        round += 1;
        // First a touch without a change, then a save as editors do it.
        let content = if round == 1 { "1" } else { "2" };
        fs::write(folder.path().join(".a.rs.swp"), content).expect("written");
        fs::rename(folder.path().join(".a.rs.swp"), &path).expect("renamed");
    };
    assert_eq!(met(&changed, save).await, "it has changed");
    assert!(round > 1, "the same content again is no change");
    let removed = open("change a.rs", folder.path()).await;
    assert_eq!(met(&removed, || drop(fs::remove_file(&path))).await, "it was removed");
    let listing = open("change .", folder.path()).await;
    assert_eq!(met(&listing, || fs::write(&path, "3").expect("written")).await, "it has changed");
}

#[tokio::test]
async fn large_file_change_is_detected_by_mtime_seconds() {
    let folder = temporary();
    // It is sparse, so it needs no space.
    let file = fs::File::create(folder.path().join("big")).expect("made");
    file.set_len(32 * 1024 * 1024).expect("set");
    let made = file.metadata().and_then(|found| found.modified()).expect("read");
    let changed = open("change big", folder.path()).await;
    let set = || file.set_modified(made - Duration::from_secs(1_000)).expect("set");
    assert_eq!(met(&changed, set).await, "it has changed");
}

fn append(path: &Path, text: &str) {
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.expect("opened").write_all(text.as_bytes()).expect("written");
}

#[tokio::test]
async fn line_condition_matches_only_new_complete_lines() {
    let folder = temporary();
    let path = folder.path().join("dev.log");
    append(&path, "ERROR before\n");
    let line = open("line dev.log /ERROR|panicked/", folder.path()).await;
    let mut parts =
        ["ok\nERR", "OR now token=ghp_abcdefghijklmnopqrstuvwxyz0123456789 \u{1b}[31mred", "\nok\n"]
            .into_iter();
    let found = met(&line, || append(&path, parts.next().unwrap_or_default())).await;
    assert!(found.starts_with("ERROR now token=[masked]") && found.ends_with("red"), "{found}");
    assert!(!found.contains("abcdefghij") && !found.contains('\u{1b}'), "{found}");
    assert!(parts.next().is_none(), "not before its end was written");
}

#[tokio::test]
async fn line_matches_as_a_terminal_shows_it() {
    let folder = temporary();
    let path = folder.path().join("dev.log");
    append(&path, "begin\n");
    for (pattern, line, expected) in [
        ("^ready in", "\u{1b}[32mready in\u{1b}[0m 300 ms", "ready in 300 ms"),
        (
            "^see docs here$",
            "see \u{1b}]8;;http://x/docs\u{1b}\\docs\u{1b}]8;;\u{1b}\\ here",
            "see docs here",
        ),
        ("^done$", "10%\r\u{1b}[2Kdone\r", "done"),
        ("^ok!$", "no\u{8}\u{8}ok!", "ok!"),
    ] {
        let condition = open(&format!("line dev.log /{pattern}/"), folder.path()).await;
        let mut lines = ["http://x/docs 10%\n".to_owned(), format!("{line}\n")].into_iter();
        let found = met(&condition, || append(&path, &lines.next().unwrap_or_default())).await;
        assert_eq!(found, expected, "{pattern}");
    }
}

#[tokio::test]
async fn line_condition_follows_renames_and_truncations() {
    let folder = temporary();
    let (path, old) = (folder.path().join("dev.log"), folder.path().join("dev.log.1"));
    append(&path, "begin\n");
    let line = open("line dev.log /wanted 1/", folder.path()).await;
    let mut round = 0;
    let rotate = || {
        round += 1;
        match round {
            1 => append(&path, "more\n"),
            2 => {
                append(&path, "wanted 1 at the end of the old one\n");
                fs::rename(&path, &old).expect("renamed");
                append(&path, "new\n");
            }
            _ => {}
        }
    };
    assert_eq!(met(&line, rotate).await, "wanted 1 at the end of the old one");
    let line = open("line dev.log /wanted 2/", folder.path()).await;
    let mut round = 0;
    let rotate = || {
        round += 1;
        match round {
            1 => fs::write(&path, "").expect("cut"),
            2 => append(&path, "wanted 2\n"),
            _ => {}
        }
    };
    assert_eq!(met(&line, rotate).await, "wanted 2");
    let line = open("line later.log /wanted 3/", folder.path()).await;
    let later = folder.path().join("later.log");
    assert_eq!(met(&line, || append(&later, "wanted 3\n")).await, "wanted 3");
}

#[tokio::test]
async fn path_below_a_file_counts_as_missing() {
    let folder = temporary();
    let out = folder.path().join("out");
    fs::write(&out, "").expect("written");
    let line = open("line out/x.log /wanted/", folder.path()).await;
    let build = || {
        if out.is_file() {
            fs::remove_file(&out).expect("removed");
            fs::create_dir(&out).expect("made");
        }
        append(&out.join("x.log"), "wanted\n");
    };
    assert_eq!(met(&line, build).await, "wanted");
}

#[tokio::test]
async fn line_condition_refuses_a_fifo_without_blocking() {
    let folder = temporary();
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("it runs");
    assert!(made.success());
    assert_eq!(state("file fifo", folder.path()).await.as_deref(), Some("it exists"));
    let line = condition("line fifo /x/", folder.path());
    for refused in [
        timeout(SOON, look(&line)).await.expect("in time").map(drop),
        timeout(SOON, until_met(&line, &Arc::default(), &mut 0)).await.expect("in time").map(drop),
    ] {
        assert!(refused.expect_err("no file").to_string().contains("is not a file"));
    }
    // It is not read, so its times are compared.
    open("change fifo", folder.path()).await;
}

#[tokio::test]
async fn failed_checks_count_only_in_a_row() {
    let folder = temporary();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    for text in [format!("port {port}"), "no file a".to_owned()] {
        let (condition, mut failures) = (condition(&text, folder.path()), FAILURES_MAX - 1);
        until_met(&condition, &Arc::default(), &mut failures).await.expect("met");
        assert_eq!(failures, 0, "{text}");
    }
}

#[tokio::test]
async fn port_condition_fails_for_an_unresolvable_host() {
    let folder = temporary();
    let error = look(&condition("port no-such-host.invalid:80", folder.path())).await;
    assert!(error.is_err());
}

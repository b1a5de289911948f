//! The daemon in the background: `aside up` and `aside down`, the start from a hook, and the start
//! by a service manager.

use std::{
    fs,
    io::Write,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixDatagram, UnixListener},
    },
    process::{Command, Output, Stdio},
};

use rustix::process::Pid;

use crate::support::daemon::{Home, PATIENCE, eventually, text};

/// Stops the daemon that `up` started, even if the test fails.
struct Down<'a>(&'a Home);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.0.run(&["down"]);
    }
}

fn pid(home: &Home) -> Pid {
    let text = fs::read_to_string(home.state().join("daemon.lock")).expect("there");
    Pid::from_raw(text.trim().parse().expect("a number")).expect("a process")
}

#[test]
fn up_starts_one_daemon_and_down_stops_it() {
    let home = Home::new();
    let _down = Down(&home);
    let said = home.print(&["up"]);
    assert!(said.starts_with("aside 0.") && said.contains(" runs as process "), "{said}");
    assert!(said.contains(&format!("socket   {}\n", home.socket().display())), "{said}");
    let first = pid(&home);
    assert!(home.print(&["up"]).contains(&format!(" runs already as process {}\n", first.as_raw_pid())));
    home.print(&["publish", "tool.call.failure", "tool_name=grep"]);
    let log = home.state().join("daemon.log");
    assert_eq!(fs::metadata(&log).expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(home.print(&["down"]), format!("aside has stopped; it was process {}\n", first.as_raw_pid()));
    // A process that has ended but was not yet waited for by its parent has a number, but no
    // program.
    let program = fs::read_link(format!("/proc/{}/exe", first.as_raw_pid()));
    assert!(program.is_err(), "it still runs: {program:?}");
    assert_eq!(home.print(&["down"]), format!("no daemon runs for {}\n", home.state().display()));
}

#[test]
fn deleted_lock_file_still_prevents_a_second_daemon() {
    let home = Home::new();
    let _down = Down(&home);
    home.print(&["up"]);
    let first = pid(&home).as_raw_pid();
    fs::remove_file(home.state().join("daemon.lock")).expect("there");
    let output = home.run(&["serve"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is in use by another daemon"), "{said}");
    home.print(&["publish", "tool.call.failure", "tool_name=grep"]);
    assert_eq!(home.print(&["down"]), format!("aside has stopped; it was process {first}\n"));
    assert!(home.print(&["up"]).contains(" runs as process "));
}

#[test]
fn daemon_with_deleted_state_folder_refuses_events() {
    let home = Home::new();
    let _down = Down(&home);
    home.print(&["up"]);
    home.print(&["publish", "tool.call.failure", "tool_name=grep"]);
    // A file that the daemon creates meanwhile makes the removal of its folder fail.
    eventually("the folder is deleted", || {
        fs::remove_dir_all(home.state()).ok();
        (!home.state().exists()).then_some(())
    });
    let output = home.run(&["publish", "tool.call.failure", "tool_name=lost"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the file was deleted from its folder"), "{said}");
    eventually("the daemon ends", || home.try_ask("GET", "/healthz", "").is_err().then_some(()));
    assert!(home.print(&["up"]).contains(" runs as process "));
    home.print(&["publish", "tool.call.failure", "tool_name=grep"]);
}

#[test]
fn background_daemon_inherits_neither_session_nor_secrets() {
    let home = Home::new();
    let _down = Down(&home);
    let output =
        home.command(&["up"]).env("CLAUDE_CODE_MESSAGING_TOKEN", "secret").output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let process = pid(&home);
    let folder = format!("/proc/{}", process.as_raw_pid());
    let environment = fs::read(format!("{folder}/environ")).expect("its own");
    assert!(!String::from_utf8_lossy(&environment).contains("secret"));
    assert_eq!(fs::read_link(format!("{folder}/cwd")).expect("its own").to_str(), Some("/"));
    assert_eq!(rustix::process::getsid(Some(process)).expect("it runs"), process);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let home = Home::new();
    fs::write(home.socket(), "mine").expect("written");
    let output = home.run(&["up"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the daemon ended before it was ready")
            && said.contains("the path exists and is not a socket"),
        "{said}"
    );
}

#[test]
fn only_what_this_start_wrote_is_shown() {
    let home = Home::new();
    assert_eq!(home.run(&["up", "--log", "x=y=z"]).status.code(), Some(1));
    fs::write(home.socket(), "mine").expect("written");
    let output = home.run(&["up"]);
    let said = text(&output.stderr);
    assert!(said.contains("not a socket") && !said.contains("x=y=z"), "{said}");
}

#[test]
fn concurrent_starts_all_succeed_with_a_single_daemon() {
    let home = Home::new();
    let _down = Down(&home);
    let start = || home.command(&["up"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let children = [start(), start(), start(), start()];
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        assert!(
            text(&output.stdout).contains(&format!("process {}\n", pid(&home).as_raw_pid())),
            "{output:?}"
        );
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let home = Home::new();
    let output = home.command(&["up"]).env("ASIDE_STATE", "/proc/none").output().expect("it runs");
    let said = text(&output.stderr);
    assert!(said.contains("create the state folder /proc/none: "), "{said}");
}

/// Runs the hook that starts the daemon, and waits for its end.
fn starting_hook(mut hook: Command) -> Output {
    let mut child = hook
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let stdin = br#"{"hook_event_name":"SessionStart","session_id":"s1","source":"startup"}"#;
    child.stdin.take().expect("piped").write_all(stdin).expect("the hook reads its stdin");
    child.wait_with_output().expect("it ends")
}

#[test]
fn first_hook_with_start_flag_starts_the_daemon() {
    let by_aside = |home: &Home| home.command(&["hook", "claude", "--start"]);
    let by_small = |home: &Home| home.hook_command(&["claude", "--start"]);
    for command in [&by_aside as &dyn Fn(&Home) -> Command, &by_small] {
        let home = Home::new();
        let _down = Down(&home);
        let output = starting_hook(command(&home));
        let is_silent = output.stdout.is_empty() && output.stderr.is_empty();
        assert!(output.status.success() && is_silent, "{output:?}");
        eventually("a daemon", || home.run(&["status"]).status.success().then_some(()));
        let first = pid(&home);
        assert!(starting_hook(command(&home)).status.success());
        assert_eq!(pid(&home), first);
    }
}

#[test]
fn started_daemon_uses_socket_from_the_flag() {
    let home = Home::new();
    let _down = Down(&home);
    let socket = home.socket();
    let mut command = home.command(&["--socket", socket.to_str().expect("text"), "mcp", "--start"]);
    command.env("ASIDE_SOCKET", home.path("other.sock")).stdin(Stdio::null());
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{output:?}");
    assert!(!home.path("other.sock").exists());
}

/// Passes descriptor 3 to the daemon as a service manager does: a shell moves its stdin there.
fn serve_with(home: &Home, listener: UnixListener) -> std::process::Child {
    let listener: std::os::fd::OwnedFd = listener.into();
    let serve = home.command(&["serve"]);
    let mut shell = std::process::Command::new("/bin/sh");
    let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" serve";
    shell.args(["-c", script]).arg(serve.get_program()).current_dir(home.path("work")).env_clear();
    shell.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("NOTIFY_SOCKET", home.path("notify")).env("WATCHDOG_USEC", "200000");
    shell.stdin(listener).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a shell")
}

#[test]
fn service_manager_socket_is_served_and_outlives_daemon() {
    let home = Home::new();
    let notify = UnixDatagram::bind(home.path("notify")).expect("bound");
    notify.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let listener = UnixListener::bind(home.socket()).expect("bound");
    let mut daemon = serve_with(&home, listener.try_clone().expect("another descriptor"));
    let mut said = [0; 64];
    let length = notify.recv(&mut said).expect("it tells when it is ready");
    assert_eq!(&said[..length], b"READY=1\n");
    for _ in 0..3 {
        let length = notify.recv(&mut said).expect("the loop turns, and nothing else is asked of it");
        assert_eq!(&said[..length], b"WATCHDOG=1\n");
    }
    assert_eq!(home.get("/healthz")["status"], "ok");
    home.print(&["down"]);
    assert!(daemon.wait().expect("it ended").success());
    assert!(home.socket().exists(), "the socket belongs to the service manager");
}

#[test]
fn a_socket_that_is_another_ones_is_refused() {
    let home = Home::new();
    let listener = UnixListener::bind(home.path("other")).expect("bound");
    let output = serve_with(&home, listener).wait_with_output().expect("it ends");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("listen at what was passed: it is") && said.contains("/other"), "{said}");
}

#[test]
fn completions_and_pages_are_those_of_the_commands() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let completions = home.print(&["completions", shell]);
        assert!(completions.contains("claude-code") && completions.contains("doctor"), "{shell}");
    }
    assert!(home.print(&["man"]).starts_with(".ie") || home.print(&["man"]).contains(".TH aside 1"));
    home.print(&["man", "pages"]);
    let page = fs::read_to_string(home.path("work/pages/aside-install-claude-code.1")).expect("there");
    assert!(page.contains("\\-\\-autostart"), "{page}");
}

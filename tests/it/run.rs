//! Problems that `aside run` finds in the output of real processes reach the agent by its hook:
//! each once, and its resolution.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::support::{
    daemon::{Home, at, eventually, text},
    strace::{Change, changed},
};

/// Writes the output of `tsc -w`, in pieces, for each line that it reads.
const TSC: &str = r#"#!/bin/sh
printf '12:00:00 - Starting compila'; printf 'tion in watch mode...\n\n'
printf '12:00:01 - Found 0 errors. Watching for file changes.\n'
while read -r step line; do
  printf '\033c12:01:00 - File change detected. Starting incremental compilation...\n'
  case $step in
    broken)
      printf 'src/cart.ts(%s,9): err' "$line"; printf 'or TS2322: Type '
      printf "'string' is not assignable to type 'number'.\n" ;;
  esac
  printf '12:01:01 - Found some errors. Watching for file changes.\n' | sed 's/some/1/'
done
exit 3
"#;
const SESSION: &str = "b1c2";

fn hook(home: &Home, name: &str, more: &Value) -> String {
    let mut stdin =
        json!({ "hook_event_name": name, "session_id": SESSION, "cwd": home.work(), "prompt_id": "p1" });
    let fields = stdin.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    let output = home.hook(&stdin.to_string());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The text that the hook of a batch with one call returns.
fn heard(home: &Home, id: &str) -> String {
    let call = json!({ "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": "ls" }, "tool_response": "a" });
    hook(home, "PostToolBatch", &json!({ "tool_calls": [call] }))
}

/// Waits until a notification is pending for the session.
fn wait(home: &Home) {
    let waited = home.get(&format!("/v1/sessions/{SESSION}/wait?timeout=25s"));
    assert!(waited["pending"].as_u64().is_some_and(|pending| pending > 0), "{waited}");
}

/// The published events of a type, once the history is complete.
fn events(home: &Home, event_type: &str) -> Vec<Value> {
    let found = eventually("the whole history", || {
        let found = home.get(&format!("/v1/events?type={event_type}&limit=1000"));
        (at(&found, "/projection/behind") == 0).then_some(found)
    });
    found["events"].as_array().expect("a list").iter().map(|found| found["event"].clone()).collect()
}

/// Starts `aside run --watch` with the stand-in.
fn watch(home: &Home) -> Child {
    fs::write(home.path("work/tsc"), TSC).expect("written");
    fs::set_permissions(home.path("work/tsc"), fs::Permissions::from_mode(0o755)).expect("set");
    let mut command = home.command(&["run", "--watch", "--", "./tsc", "-w"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program runs")
}

fn step(child: &mut Child, line: &str) {
    let stdin = child.stdin.as_mut().expect("piped");
    stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n")).expect("it reads");
}

#[test]
fn watched_compiler_reports_error_and_repair_once() {
    let home = Home::new();
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    let mut child = watch(&home);
    step(&mut child, "broken 42");
    wait(&home);
    let text = heard(&home, "t1");
    for part in ["is not assignable to type", "file: src/cart.ts", "line: 42", "code: TS2322", "tool: tsc"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    (0..10).for_each(|edit| step(&mut child, &format!("broken {}", 43 + edit)));
    step(&mut child, "fixed");
    wait(&home);
    let text = heard(&home, "t2");
    assert!(text.contains("problems_cleared: tsc") && !text.contains("TS2322"), "{text}");

    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(3), ""));
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(stdout.starts_with("12:00:00 - Starting compilation in watch mode...\n\n12:00:01"), "{stdout}");
    assert_eq!(stdout.matches("\x1bc12:01:00 - File change").count(), 12, "{stdout}");
    let (found, fixed) = (events(&home, "problem.found"), events(&home, "problem.fixed"));
    assert_eq!((found.len(), fixed.len(), events(&home, "problem.cleared").len()), (1, 1, 1));
    assert_eq!(at(&found[0], "/payload/problem"), at(&fixed[0], "/payload/problem"));
    let failed = events(&home, "task.failed");
    assert_eq!((at(&found[0], "/cause"), failed.len()), (at(&failed[0], "/cause"), 1));
    assert!(at(&found[0], "/cause").is_string());
}

#[test]
fn unpublished_problems_are_published_with_next_cycle() {
    let home = Home::new();
    let mut child = watch(&home);
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut warning = String::new();
    stderr.read_line(&mut warning).expect("text");
    assert!(warning.starts_with("aside: warning: \"tsc\" is not published: no daemon at "), "{warning}");
    step(&mut child, "broken 7");
    // The second cycle is read only after the first one was handled.
    let mut stdout = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(stdout.any(|line| line.is_ok_and(|line| line.contains("TS2322"))));
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    step(&mut child, "broken 7");
    wait(&home);
    let text = heard(&home, "t1");
    assert!(text.contains("line: 7") && text.contains("code: TS2322"), "{text}");
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "");
    assert_eq!(events(&home, "problem.found").len(), 1);
}

#[test]
fn command_and_report_problems_form_a_single_table() {
    let home = Home::new();
    let _daemon = home.serve();
    hook(&home, "SessionStart", &json!({ "source": "startup" }));
    let script = "echo 'a.c:3:5: error: no semicolon'; echo 'b.c:4:1: warning: unused [-Wunused]' >&2; \
                  echo '<x><testcase classname=\"c\" name=\"adds\"><failure message=\"1 is not 2\"/></testcase></x>' >r.xml; exit 2";
    let run = home.run(&["run", "--matcher", "gcc", "--report", "junit=r.xml", "--", "sh", "-c", script]);
    assert_eq!((run.status.code(), run.stdout.as_slice()), (Some(2), &b"a.c:3:5: error: no semicolon\n"[..]));
    wait(&home);
    let found = events(&home, "problem.found");
    let mut rows: Vec<String> = found.iter().map(|event| at(event, "/payload/message").to_string()).collect();
    rows.sort();
    assert_eq!(rows, ["\"1 is not 2\"", "\"no semicolon\"", "\"unused\""]);
    let mut text = heard(&home, "t1");
    if !text.contains("problems[3]") {
        wait(&home);
        text = heard(&home, "t2");
    }
    for part in [
        "problems[3]{tool,file,line,level,code,message}:",
        "gcc,a.c,3,error,null,no semicolon",
        "junit,null,null,error,",
        "1 is not 2",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let wrong = home.run(&["run", "--matcher", "gc", "--", "true"]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("--matcher: unknown matcher `gc`; did you mean `gcc`?"), "{said}");
}

/// Runs a command whose report is on a disk that does not answer these calls.
fn run_with_hanging_report(calls: &str) {
    let home = Home::new();
    let _daemon = home.serve();
    let script = "echo '<x/>' >r.xml; echo done; exit 3";
    let command = home.command(&["run", "--report", "junit=r.xml", "--", "sh", "-c", script]);
    // Twice the limit, in microseconds; strace ends with the delay.
    let change = Change { calls, change: "delay_enter=10000000", file: Some("work/r.xml") };
    let output = changed(&home, &command, change).output().expect("it runs");
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(3), "done\n"));
    let said = text(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("strace: ")).collect();
    assert_eq!(said, ["aside: warning: r.xml: it was given up, because reading it takes too long"]);
    let failed = events(&home, "task.failed");
    assert_eq!(failed.len(), 1, "the command's end is published");
}

#[test]
fn a_slow_report_is_given_up() {
    run_with_hanging_report("read");
}

#[test]
fn a_report_on_hanging_disk_is_given_up() {
    run_with_hanging_report("statx");
}

#[test]
fn a_command_runs_where_there_is_no_socket() {
    let home = Home::new();
    let long = home.path(&"x".repeat(120));
    for (socket, reason) in
        [(None, "neither ASIDE_STATE nor HOME is set"), (Some(&long), "the socket's path has ")]
    {
        let way = |args: &[&str]| {
            let mut command = home.command(args);
            match socket {
                Some(long) => command.env("ASIDE_SOCKET", long),
                None => command.env_remove("ASIDE_SOCKET").env_remove("ASIDE_STATE").env_remove("HOME"),
            };
            command
        };
        let ran = way(&["run", "--", "sh", "-c", "echo out; exit 7"]).output().expect("it runs");
        assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(7), "out\n"));
        let warning = text(&ran.stderr);
        assert!(warning.starts_with("aside: warning: \"sh\" is not published: "), "{warning}");
        assert!(warning.contains(reason) && warning.lines().count() == 1, "{warning}");
        let refused = way(&["publish", "a.b"]).output().expect("it runs");
        assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains(reason), "{refused:?}");
        assert!(way(&["instructions", "loop"]).output().expect("it runs").status.success());
    }
    // A name of a session is looked up; without a daemon the command runs all the same.
    let ran = home.run(&["run", "--session", "b1c2@work", "--", "echo", "out"]);
    assert_eq!((ran.status.code(), text(&ran.stdout).as_str()), (Some(0), "out\n"), "{ran:?}");
    let warning = text(&ran.stderr);
    assert!(warning.contains("no daemon at ") && warning.lines().count() == 1, "{warning}");
}

//! `aside dev`, `aside test --watch` and `aside preview --watch` draw each state of the files once.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Child,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    screens::{shown_on_terminal, without_colours},
    support::daemon::{Home, eventually},
};

const PAGER: &str = "[subscriber]\nid = \"pager\"\n[events]\ntypes = [\"pager.alert.*\"]\n[batching]\nwindow_ms = 0\n\
    [output]\none = \"\"\"\nalert: {{ payload.name }}\nsummary: {{ payload.summary }}\n\"\"\"\n\
    [[tests]]\nname = \"an alert is said\"\nat = [[\"0s\", \"pager.alert.fired\", { name = \"A\", summary = \"down\" }]]\n\
    expect = [{ at = \"0s\", decoded = { alert = \"A\" } }]\n";
const EVENTS: &str =
    "[[event]]\ntype = \"pager.alert.fired\"\nseverity = \"error\"\ndescription = \"An alert.\"\n";

/// A command that watches files, with its output in a file.
struct Watching {
    child: Child,
    output: PathBuf,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Watching {
    fn start(home: &Home, args: &[&str]) -> Self {
        let output = home.path(&format!("{}.txt", args[0]));
        let file = File::create(&output).expect("a file");
        let child = home.command(args).stdout(file).spawn().expect("the program runs");
        Self { child, output }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.output).expect("text")
    }

    /// Waits for words in what it said after so many bytes; returns all that it said.
    fn waits(&self, after: usize, words: &str) -> String {
        eventually(words, || Some(self.said()).filter(|said| said[after..].contains(words)))
    }
}

fn home() -> Home {
    Home::with(&[("subscribers/pager.toml", PAGER), ("events.toml", EVENTS)])
}

/// Saves a file as editors do: a new one takes its name.
fn save(path: &Path, text: &str) {
    let other = path.with_file_name(".pager.toml.swp");
    fs::write(&other, text).expect("written");
    fs::rename(&other, path).expect("renamed");
}

#[test]
fn dev_shows_what_each_save_changes() {
    let home = home();
    let _daemon = home.serve();
    let file = home.path("config/subscribers/pager.toml");
    let mut dev = Watching::start(&home, &["dev", "pager", "--reload"]);
    let first = dev.waits(0, "delivered alone as");
    for part in ["watching ", "  check ok   test 1 ok\n", "\n    alert: A\n    summary: down\n"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let seen = |said: &str| said.len();
    // A part of the text is another one, and it is in force.
    save(&file, &PAGER.replace("summary: {{", "why: {{"));
    let said = dev.waits(seen(&first), "\n+   why: down\n");
    for part in ["  check ok   test 1 ok   reloaded in ", " lines changed\n", "\n-   summary: down\n"] {
        assert!(said[seen(&first)..].contains(part), "{part}: {said}");
    }
    // An error is shown with its place, and nothing is reloaded.
    save(&file, &PAGER.replace("types =", "typs ="));
    let broken = dev.waits(seen(&said), "did you mean `types`?");
    assert!(broken[seen(&said)..].contains("  check 1 error, 0 warnings   test 0 ok\n"), "{broken}");
    assert!(!broken[seen(&said)..].contains("reloaded"), "{broken}");
    // So is a test that fails.
    save(&file, &PAGER.replace("alert = \"A\"", "alert = \"B\""));
    let failed = dev.waits(seen(&broken), "got \"A\"");
    assert!(failed[seen(&broken)..].contains("  test 1 of 1 failed"), "{failed}");
    fs::remove_file(&file).expect("removed");
    let gone = dev.waits(seen(&failed), "test 0 ok   reloaded in ");
    fs::write(&file, PAGER).expect("written");
    dev.waits(seen(&gone), "test 1 ok   reloaded in ");
    // Ctrl-C ends it as it ends any other program.
    let pid = Pid::from_child(&dev.child);
    kill_process(pid, Signal::INT).expect("it runs");
    assert_eq!(dev.child.wait().expect("it ends").signal(), Some(Signal::INT.as_raw()));
}

#[test]
fn dev_needs_no_folder_and_no_daemon() {
    let home = Home::new();
    fs::remove_dir_all(home.path("config")).ok();
    let dev = Watching::start(&home, &["dev", "--reload"]);
    let first = dev.waits(0, "  check ok   test 0 ok\n");
    fs::create_dir_all(home.path("config/subscribers")).expect("made");
    fs::write(home.path("config/events.toml"), EVENTS).expect("written");
    save(&home.path("config/subscribers/pager.toml"), PAGER);
    let said = dev.waits(first.len(), "pager: new");
    assert!(said.contains("not reloaded: no daemon answers"), "{said}");
    let unknown = home.run(&["dev", "pagr"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn watched_tests_run_again_at_each_save() {
    let home = home();
    let file = home.path("config/subscribers/pager.toml");
    let watching = Watching::start(&home, &["test", "--watch"]);
    let first = watching.waits(0, "ok    pager  1 test\n1 subscriber");
    save(&file, &PAGER.replace("alert = \"A\"", "alert = \"B\""));
    let failed = watching.waits(first.len(), "FAIL  pager  1 test, 1 failed");
    save(&file, "[subscriber");
    let broken = watching.waits(failed.len(), "1 error, 0 warnings");
    save(&file, PAGER);
    watching.waits(broken.len(), "ok    pager  1 test\n");
}

#[test]
fn watched_preview_marks_what_changed() {
    let home = home();
    let file = home.path("config/subscribers/pager.toml");
    let watching = Watching::start(&home, &["preview", "pager", "--count", "1", "--watch"]);
    let first = watching.waits(0, "\n    summary: down\n");
    save(&file, &PAGER.replace("summary: {{", "why: {{"));
    let said = watching.waits(first.len(), "\n    alert: A\n-   summary: down\n");
    assert!(said.contains("\n+   why: down\n"), "{said}");
    // Many saves at once end with the last one.
    let before = watching.said().len();
    (0..20).for_each(|number| save(&file, &PAGER.replace("alert: {{", &format!("n{number}: {{{{"))));
    let last = watching.waits(before, "\n+   n19: A\n");
    let drawn = last[before..].matches("JSON").count();
    assert!(drawn <= 10, "{drawn} times: {last}");
    for (args, part) in [
        (&["preview", "pager", "--watch", "--input", "-"][..], "stdin is read once"),
        (&["test", "--watch", "--mutate"], "cannot be used with"),
    ] {
        let wrong = home.run(args);
        assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&wrong.stderr).contains(part), "{wrong:?}");
    }
}

#[test]
fn unnoticed_changes_fit_narrow_terminals() {
    let home = home();
    let mutated = home.run(&["test", "pager", "--mutate"]);
    let said = String::from_utf8_lossy(&mutated.stdout);
    assert_eq!(mutated.status.code(), Some(1), "{mutated:?}");
    assert!(said.contains("pager: ") && said.contains("  not noticed   `one` without "), "{said}");
    let json = home.run(&["test", "pager", "--mutate", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let one = &json["subscribers"][0];
    assert_eq!((&one["subscriber"], &one["tests"], &one["untried"]), (&"pager".into(), &1.into(), &0.into()));
    assert!(one["unnoticed"].as_array().is_some_and(|all| all.iter().any(|one| one["line"] == 10)), "{json}");
    assert_eq!(home.print(&["test", "throttled", "--mutate"]).lines().count(), 1);
    for columns in [80, 60] {
        let (screen, _) = shown_on_terminal(&home, columns, &[], &["test", "pager", "--mutate"]);
        let (screen, _) = without_colours(&screen);
        let wide = screen.lines().find(|line| line.chars().count() > usize::from(columns));
        assert_eq!(wide, None, "{screen}");
    }
}

//! The rules of subscribers, as files with `[[tests]]` in `tests/rules`: each test is passed as it
//! is, and with a restart of the daemon before every step.

use std::{fs, path::Path};

use aside::config::{
    case::{Action, Step, SubscriberTest},
    compile::{Compiled, compile},
    layers::{LayerKind, SourceFile, Sources},
    lints::report::{Denied, report, without_allowed},
    trial::Cases,
};

fn compiled(path: &Path) -> Compiled {
    let text = fs::read_to_string(path).expect("a file");
    let name = path.file_name().expect("a name").to_string_lossy();
    let file = SourceFile {
        layer: LayerKind::User,
        name: format!("subscribers/{name}").into(),
        path: path.display().to_string().into(),
        text: text.as_str().into(),
    };
    let sources = Sources::shipped().with([file], []);
    let compiled = compile(&sources, &[]);
    assert_eq!(without_allowed(&sources, &compiled.report).to_string(), "", "{}", path.display());
    compiled
}

fn with_restarts(test: &SubscriberTest) -> SubscriberTest {
    let restart = |step: &Step| Step { action: Action::Restart, ..step.clone() };
    let at = test.at.iter().flat_map(|step| [restart(step), step.clone()]).collect();
    SubscriberTest { at, ..test.clone() }
}

#[test]
fn rules_hold_also_across_restarts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules");
    let entries = fs::read_dir(folder).expect("the folder");
    let mut failures = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let compiled = compiled(&path);
        for case in Cases::new(&compiled).iter() {
            let restarted = with_restarts(case.test);
            for (case, how) in [(case, ""), (case.with(&restarted), ", with restarts")] {
                if let Err(wrong) = case.run() {
                    failures.push(format!("{}, {}{how}:\n{wrong}", path.display(), case.test.name));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn keys_of_rules_are_refused_with_a_reason() {
    const BEGIN: &str = "[subscriber]\nid = \"x\"\n[events]\ntypes = [\"a.b\"]\n";
    for (rest, part) in [
        ("severity_when = [{ is = \"hihg\", where = \"payload.n\" }]\n", "`is` cannot be `hihg`"),
        ("severity_when = [{ is = \"error\" }]\n", "`where` is missing"),
        ("severity_when = [{ is = \"error\", where = \"paylod.n > 1\" }]\n", "did you mean `payload`?"),
        ("[threshold]\nat = [3]\n", "`within` is missing"),
        ("[threshold]\nwithin = \"1h\"\n", "`at` is missing"),
        ("[threshold]\nat = []\nwithin = \"1h\"\n", "`at` names no level"),
        ("[threshold]\nat = [5, 3]\nwithin = \"1h\"\n", "each level must be larger"),
        ("[threshold]\nat = [0]\nwithin = \"1h\"\n", "a level is above 0"),
        ("[threshold]\nat = [\"3\"]\nwithin = \"1h\"\n", "must be a number"),
        ("[threshold]\nat = [nan]\nwithin = \"1h\"\n", "must be a number"),
        ("[threshold]\nat = [3]\nwithin = \"10s\"\n", "`within` is 10s, but must be 1m to"),
        ("[threshold]\nat = [3]\nwithin = \"1h\"\ncount = true\nsum = \"payload.n\"\n", "exclude each other"),
        ("[threshold]\nat = [3]\nwithin = \"1h\"\ncount = false\n", "without `sum` the events are counted"),
        ("[threshold]\nat = [3]\nwithin = \"1h\"\nsum = \"payload.n:payload.m\"\n", "`sum` names one field"),
        ("[threshold]\nat = [3]\nwithn = \"1h\"\n", "did you mean `within`?"),
        ("[limits]\nrate_by = \"payload.n\"\n", "`rate_by` has no effect without a `rate`"),
        ("[limits]\nrate = \"1/min\"\nrate_of = \"event\"\n", "did you mean `events`?"),
        ("[batching]\nwindow_ms = 0\nclose_when = \"payload.last\"\n", "no batch is open"),
        ("[batching]\nopen_when = \"payload.\"\n", "`open_when` is not an expression"),
        (
            "[limits]\ndeliver_after = \"10m\"\n[output]\npriority = \"critical\"\n",
            "a critical notification never waits",
        ),
        ("[batching]\ndedupe_window = \"4h\"\n", "`dedupe_window` has no effect without a `dedupe_key`"),
        (
            "[batching]\ndedupe_key = \"type\"\ndedupe_window = \"25h\"\n",
            "`dedupe_window` is 25h, but must be 1s to 24h",
        ),
        (
            "[batching]\ndedupe_key = \"type\"\ndedupe_window = \"4h\"\ndedupe_window_ms = 5\n",
            "one key in two forms",
        ),
    ] {
        let file = SourceFile {
            layer: LayerKind::User,
            name: "subscribers/x.toml".into(),
            path: "x.toml".into(),
            text: format!("{BEGIN}{rest}").into(),
        };
        let report = compile(&Sources::shipped().with([file], []), &[]).report.to_string();
        assert!(report.contains(part), "{rest}: {report}");
    }
}

/// The findings of a check of these subscribers.
fn checked(subscribers: &[&str]) -> String {
    let files = subscribers.iter().enumerate().map(|(index, text)| SourceFile {
        layer: LayerKind::User,
        name: format!("subscribers/{index}.toml").into(),
        path: format!("{index}.toml").into(),
        text: (*text).into(),
    });
    let sources = Sources::shipped().with(files, []);
    report(&sources, &compile(&sources, &[]), &Denied::default()).to_string()
}

#[test]
fn lints_know_the_keys_of_rules() {
    const BEGIN: &str = "[subscriber]\nid = \"x\"\n[events]\ntypes = [\"tool.call.failure\"]\n";
    for rest in [
        "severity_when = [{ is = \"error\", where = \"payload.tol_name\" }]\n",
        "[batching]\nclose_when = \"payload.tol_name\"\n",
        "[batching]\nopen_when = \"payload.tol_name\"\n",
        "[threshold]\nby = \"payload.tol_name\"\nat = [3]\nwithin = \"1h\"\n",
        "[threshold]\nsum = \"payload.tol_name\"\nat = [3]\nwithin = \"1h\"\n",
        "[limits]\nrate = \"1/min\"\nrate_by = \"payload.tol_name\"\n",
    ] {
        let found = checked(&[&format!("{BEGIN}{rest}")]);
        assert!(found.contains("did you mean `payload.tool_name`?"), "{rest}: {found}");
    }
    let raised = "severity_when = [{ is = \"critical\", where = \"payload.tool_name\" }]\n\
                  severity_filter = \"critical\"\n";
    assert_eq!(checked(&[&format!("{BEGIN}{raised}")]), "");
    let third = "[threshold]\nat = [3]\nwithin = \"1h\"\n[output]\naudience = \"user\"\n";
    let each = format!("{BEGIN}[output]\naudience = \"user\"\n");
    assert_eq!(checked(&[&each, &format!("{BEGIN}{third}").replace("\"x\"", "\"y\"")]), "");
}

#[test]
fn a_core_subscriber_has_no_threshold() {
    let text =
        "[subscriber]\nid = \"tool_failure\"\ninherit = true\n[threshold]\nat = [1000]\nwithin = \"1h\"\n";
    let found = checked(&[text]);
    assert!(found.contains("a threshold would silence a core subscriber"), "{found}");
}

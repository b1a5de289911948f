//! The rules of subscribers, as files with `[[tests]]` in `tests/rules`: each test is passed as it
//! is, and with a restart of the daemon before every step.

use std::{fs, path::Path};

use aside::config::{
    case::{Action, Step, SubscriberTest},
    compile::{Compiled, compile},
    layers::{LayerKind, SourceFile, Sources},
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
    let compiled = compile(&Sources::shipped().with([file], []), &[]);
    assert_eq!(compiled.report.to_string(), "", "{}", path.display());
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

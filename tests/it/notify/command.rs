//! The sink that runs a program of the user.

use serde_json::json;

use super::{home, notify, put_program, shown, steps};
use crate::support::daemon::eventually;

/// Settings with the sink `command` alone and these keys of it.
fn with_command(keys: &str) -> String {
    format!("[sinks]\ndefault = [\"command\"]\nretry = [\"1s\"]\n[sinks.command]\n{keys}\n")
}

#[test]
fn exit_code_of_a_command_decides_its_delivery() {
    let home = home(&with_command("command = [\"show\", \"{message}\"]\nstdin = \"none\""));
    let (mark, out) = (home.path("mark"), home.path("shown.command"));
    let script = format!(
        "printf '%s' \"$1\" > {}\ntest -e {} && exit 0\ntouch {}\necho 'no pane' >&2\nexit 3",
        out.display(),
        mark.display(),
        mark.display()
    );
    put_program(&home, "show", &script);
    let _daemon = home.serve();
    let message = "--exec=$(touch x) `y` {text} #(reboot)";
    let id = notify(&home, &json!({ "message": message }))["id"].as_str().expect("an id").to_owned();
    eventually("its second try", || {
        steps(&home, &id).contains(&"user_sent command".to_owned()).then_some(())
    });
    assert_eq!(shown(&home, "command"), format!(" {message}"));
    let why = home.print(&["why", &id]).replace("\n               ", " ");
    assert!(why.contains("ended with exit status: 3: no pane; retried at "), "{why}");
    assert!(why.contains("command accepted it"), "{why}");
    let doctor = home.run(&["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("command") && doctor.contains("/bin/show"), "{doctor}");
}

#[test]
fn a_command_that_hangs_is_ended() {
    let home = home(&with_command("command = [\"show\"]\ntimeout = \"1s\""));
    put_program(&home, "show", "exec sleep 600");
    let _daemon = home.serve();
    let id = notify(&home, &json!({ "message": "x" }))["id"].as_str().expect("an id").to_owned();
    eventually("its failures", || {
        let steps = steps(&home, &id);
        (steps.iter().filter(|step| *step == "user_failed command").count() == 2).then_some(())
    });
    let why = home.print(&["why", &id]);
    assert!(why.contains("it took longer than 1 s"), "{why}");
}

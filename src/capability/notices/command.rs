//! A program of the user: an editor, a terminal multiplexer, a script.

use engine::{
    notification::Sink,
    sink::{
        Answered, Notice, Parts, Target,
        command::{Argv, Input, Settings},
    },
};
use futures_util::FutureExt;

use super::{
    kind::{Attempt, Kind, line, never},
    process::{configured, in_path, run},
};
use crate::daemon::program::Programs;

pub(super) const KIND: Kind = Kind {
    sink: Sink::Command,
    waits_for_choice: false,
    limit: |_, settings, _| settings.command.timeout,
    check: |settings, programs| async move { check(&settings.command, programs) }.boxed(),
    send: |&Attempt { notice, settings, programs, .. }| {
        async move {
            match &settings.command.command {
                Some(command) => send(command, &settings.command, notice, programs).await,
                None => never("it is no longer configured".to_owned()),
            }
        }
        .boxed()
    },
};

/// The program.
///
/// Errors: the reason that it cannot run.
fn check(settings: &Settings, programs: &Programs) -> Result<String, String> {
    let command = settings.command.as_ref().ok_or("`command` is missing in [sinks.command]")?;
    in_path(&command.program, programs)
}

/// Runs the program for a notice. Its exit code is the outcome.
async fn send(command: &Argv, settings: &Settings, notice: &Notice, programs: &Programs) -> Answered {
    let program = configured(&command.program, &settings.variables, programs);
    let ended = run(program, &command.arguments(notice), &input(settings.stdin, notice)).await;
    ended.map_or_else(|refused| refused, |_| Answered::Took(None))
}

/// What the program reads.
fn input(kind: Input, notice: &Notice) -> String {
    match kind {
        Input::Text => notice.text_for(Target::Plain, Parts::ALL),
        Input::Markdown => notice.text_for(notice.target(), Parts::ALL),
        Input::Json => line(notice),
        Input::None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use journal::time::Timestamp;

    use super::*;

    /// Runs a script with these arguments for a notice; returns the outcome and what it wrote.
    async fn shown(script: &str, arguments: &[&str], stdin: Input, message: &str) -> (Answered, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, out) = (folder.path().join("show"), folder.path().join("out"));
        fs::write(&program, format!("#!/bin/sh\nout={}\n{script}\n", out.display())).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let program = program.to_str().expect("text");
        let words: Vec<&str> = [program].into_iter().chain(arguments.iter().copied()).collect();
        let command = Argv::read(&words).expect("valid");
        let settings = Settings { stdin, ..Settings::default() };
        let said = Notice::new("u1", message, Timestamp::ZERO);
        let programs = Programs::find(folder.path()).expect("found");
        let answered = send(&command, &settings, &said, &programs).await;
        (answered, fs::read_to_string(out).unwrap_or_default())
    }

    #[tokio::test]
    async fn the_notice_is_an_argument_and_the_input() {
        let script = "printf '%s|' \"$@\" > $out; cat >> $out";
        let hostile = "$(touch x); `y` 'z'";
        let (answered, wrote) = shown(script, &["-l", "{text}", "{level}"], Input::Text, hostile).await;
        assert_eq!((answered, wrote), (Answered::Took(None), format!("-l|{hostile}|info|{hostile}")));
        let (_, wrote) = shown("cat > $out", &[], Input::Json, "hi").await;
        assert!(wrote.starts_with('{') && wrote.contains("\"message\":\"hi\""), "{wrote}");
        let (_, wrote) = shown("cat > $out; echo end >> $out", &["x"], Input::None, "hi").await;
        assert_eq!(wrote, "end\n");
    }

    #[tokio::test]
    async fn the_exit_code_is_the_outcome() {
        let (answered, _) = shown("echo no server running >&2; exit 1", &[], Input::None, "hi").await;
        let Answered::Refused { error, is_final: false } = answered else {
            panic!("it failed: {answered:?}")
        };
        assert!(error.ends_with("ended with exit status: 1: no server running"), "{error}");
    }

    #[tokio::test]
    async fn only_variables_that_are_needed_are_passed() {
        let (_, wrote) = shown("env > $out", &[], Input::None, "hi").await;
        let names: Vec<&str> = wrote.lines().filter_map(|line| line.split('=').next()).collect();
        assert!(names.contains(&"PATH"), "{names:?}");
        assert!(!names.iter().any(|name| name.starts_with("CARGO")), "{names:?}");
    }

    #[test]
    fn a_missing_program_is_reported() {
        let settings = Settings { command: Argv::read(&["/no/such/program"]).ok(), ..Settings::default() };
        let found = check(&settings, &Programs::default());
        assert_eq!(found, Err("there is no program /no/such/program".to_owned()));
        assert!(check(&Settings::default(), &Programs::default()).is_err());
    }
}

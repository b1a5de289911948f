//! The command `apprise`, which supports about a hundred services.

use std::path::Path;

use engine::{
    notification::Sink,
    sink::{Answered, Notice, Parts, apprise::Settings},
};
use futures_util::FutureExt;
use tokio::process::Command;

use super::{
    kind::{Attempt, Kind, word_of},
    process::{COMMAND_MAX, command_of, configured_path, in_path, run},
};
use crate::daemon::program::{Program, Programs};

pub(super) const KIND: Kind = Kind {
    sink: Sink::Apprise,
    waits_for_choice: false,
    limit: |_, _, _| COMMAND_MAX,
    check: |settings, programs| async move { check(&settings.apprise, programs) }.boxed(),
    send: |&Attempt { notice, settings, programs, .. }| send(&settings.apprise, notice, programs).boxed(),
};

/// The program.
///
/// Errors: the reason that it cannot run.
fn check(settings: &Settings, programs: &Programs) -> Result<String, String> {
    let program = in_path(&settings.command, programs)?;
    match settings.config_file.as_deref().filter(|file| !Path::new(file).is_file()) {
        Some(file) => Err(format!("{file} does not exist")),
        None => Ok(program),
    }
}

/// Sends a notice with `apprise`, which has the destinations in its configuration.
///
/// Source: apprise(1), `--input-format`.
async fn send(settings: &Settings, notice: &Notice, programs: &Programs) -> Answered {
    let kind = word_of(notice.level, ["info", "warning", "failure"]);
    let (title, config) =
        (notice.title(), settings.config_file.as_deref().map(|file| format!("--config={file}")));
    let title = format!("--title={title}");
    let kind = format!("--notification-type={kind}");
    // The default format is text.
    let format = notice.is_markdown.then(|| "--input-format=markdown".to_owned());
    let args: Vec<String> = [title, kind].into_iter().chain(format).chain(config).collect();
    // The body is passed by stdin, because every user can see arguments in the process list.
    let command = command(&settings.command, programs);
    let ended = run(command, &args, &notice.text_for(notice.target(), Parts::ALL)).await;
    ended.map_or_else(|refused| refused, |_| Answered::Took(None))
}

/// The command that the user configured, with the daemon's variables; by default `apprise`.
///
/// Errors: why it cannot be run.
fn command(configured: &str, programs: &Programs) -> Result<Command, Answered> {
    if configured == Program::Apprise.as_str() {
        return command_of(Program::Apprise, programs);
    }
    let path = configured_path(configured, programs)?;
    let mut command = Command::new(path);
    command.current_dir("/");
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::{super::kind::never, *};

    #[test]
    fn absent_configured_command_is_final() {
        let absent = command("aside-no-such-program", &Programs::default()).map(drop);
        assert_eq!(absent, Err(never("aside-no-such-program is not in the daemon's PATH".to_owned())));
    }
}

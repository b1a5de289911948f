//! Commands that show a notice: `notify-send` on the desktop, and `apprise`, which supports a
//! hundred services.

use std::{
    env, io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use engine::sink::{Answered, Apprise, Notice, Parts, Progress, Shown, Target};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};

use super::outcome::{failed, never, word_of};
use crate::daemon::program::{Program, Programs};

/// The variable with the address of the session bus, and the variable with the folder of its
/// default socket.
const BUS_VARIABLE: &str = "DBUS_SESSION_BUS_ADDRESS";
const RUNTIME_VARIABLE: &str = "XDG_RUNTIME_DIR";
/// Bytes read of a command's output; the rest is discarded.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// Shows a notice on the desktop, if there is one.
pub(super) async fn desktop(notice: &Notice, programs: &Programs) -> Answered {
    if !has_bus() {
        return never(format!("no desktop: no session bus, {BUS_VARIABLE} is not set"));
    }
    if let Some(choices) = &notice.choices
        && let Ok(answered) = ask(notice, &choices.words, programs).await
    {
        return answered;
    }
    let args = |replace: Option<String>| {
        let text = [notice.title(), notice.text_for(Target::Desktop, Parts::ALL)];
        let mut args = options(notice);
        args.extend(replace.into_iter().chain(["--".to_owned()]).chain(text));
        args
    };
    let replace = notice.progress.as_ref().map(replace_id);
    let is_replaced = replace.is_some();
    let mut shown = run(own(Program::NotifySend, programs), &args(replace), "").await;
    if is_replaced && shown.is_err() {
        // Older versions do not know the option.
        shown = run(own(Program::NotifySend, programs), &args(None), "").await;
    }
    shown.map_or_else(|refused| refused, |_| Answered::Took(None))
}

/// The option that updates the window of the replaced notice, if it is open. The number is high
/// because servers count from 1.
///
/// Source: notify-send(1) of libnotify 0.8, and the desktop notifications specification: a server
/// returns the same number, so a new window gets it if it is not in use.
fn replace_id(progress: &Progress) -> String {
    let digits = progress.line.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    format!("--replace-id={}", digits.unwrap_or_default() & 0x3fff_ffff | 0x4000_0000)
}

/// Shows a button for each choice, and waits until one is chosen or the question is closed.
///
/// Source: notify-send(1) of libnotify 0.8: `--action` prints the name of the chosen action.
/// Errors: why the command failed; an older version has no actions, and then the question is shown
/// as text.
async fn ask(notice: &Notice, choices: &[Arc<str>], programs: &Programs) -> Result<Answered, Answered> {
    let mut args = options(notice);
    args.extend(["--wait".to_owned(), "--expire-time=0".to_owned()]);
    let buttons = Parts { command: Shown::Apart, ..Parts::ALL };
    args.extend(choices.iter().enumerate().map(|(index, choice)| format!("--action={index}={choice}")));
    args.extend(["--".to_owned(), notice.title(), notice.text_for(Target::Desktop, buttons)]);
    let said = run(own(Program::NotifySend, programs), &args, "").await?;
    let chosen = said.trim().parse::<usize>().ok().and_then(|index| choices.get(index));
    Ok(chosen.map_or(Answered::Took(None), |choice| Answered::Chose(Arc::clone(choice))))
}

fn options(notice: &Notice) -> Vec<String> {
    let urgency = word_of(notice.level, ["low", "normal", "critical"]);
    let mut options = vec!["--app-name=aside".to_owned(), format!("--urgency={urgency}")];
    if let Some(progress) = &notice.progress {
        // For servers that ignore the number.
        options.push(format!("--hint=string:x-canonical-private-synchronous:{}", progress.line));
        options.extend(progress.percent.map(|percent| format!("--hint=int:value:{percent}")));
    }
    options
}

/// Sends a notice with `apprise`, which has the destinations in its configuration.
///
/// Source: apprise(1), `--input-format`.
pub(super) async fn apprise(settings: &Apprise, notice: &Notice, programs: &Programs) -> Answered {
    let kind = word_of(notice.level, ["info", "warning", "failure"]);
    let (title, config) =
        (notice.title(), settings.config_file.as_deref().map(|file| format!("--config={file}")));
    let title = format!("--title={title}");
    let kind = format!("--notification-type={kind}");
    // The default format is text.
    let format = notice.is_markdown.then(|| "--input-format=markdown".to_owned());
    let args: Vec<String> = [title, kind].into_iter().chain(format).chain(config).collect();
    // The body is passed by stdin, because every user can see arguments in the process list.
    let command = apprise_command(&settings.command, programs);
    let ended = run(command, &args, &notice.text_for(notice.target(), Parts::ALL)).await;
    ended.map_or_else(|refused| refused, |_| Answered::Took(None))
}

/// Whether the session bus exists.
pub(super) fn has_bus() -> bool {
    let is_set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let in_folder = || is_set(RUNTIME_VARIABLE).is_some_and(|folder| Path::new(&folder).join("bus").exists());
    is_set(BUS_VARIABLE).is_some() || in_folder()
}

/// A program of the machine, as the daemon runs it by itself.
///
/// Errors: why it cannot be run.
fn own(program: Program, programs: &Programs) -> Result<Command, Answered> {
    programs.command(program).map(Command::from).map_err(|missing| never(missing.to_string()))
}

/// The command that the user configured, with the daemon's variables; by default `apprise`.
///
/// Errors: why it cannot be run.
fn apprise_command(configured: &str, programs: &Programs) -> Result<Command, Answered> {
    if configured == Program::Apprise.as_str() {
        return own(Program::Apprise, programs);
    }
    let path = configured_path(configured, programs)?;
    let mut command = Command::new(path);
    command.current_dir("/");
    Ok(command)
}

/// The path of a configured program; a name without a folder is found as the daemon's own are.
///
/// Errors: why there is none.
pub(super) fn configured_path(configured: &str, programs: &Programs) -> Result<PathBuf, Answered> {
    if configured.contains('/') {
        return Ok(PathBuf::from(configured));
    }
    programs.path_of(configured).map_err(|missing| never(missing.to_string()))
}

/// Runs a command to its end, with `input` on its stdin, and returns the beginning of its stdout.
/// It is killed when the future is dropped.
///
/// Errors: there is no such program, or it failed.
async fn run(command: Result<Command, Answered>, args: &[String], input: &str) -> Result<String, Answered> {
    let mut command = command?;
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let spawned = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(never(format!("there is no {program}")));
        }
        Err(error) => return Err(failed(format!("{program}: {error}"))),
    };
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read its stdin shows nothing, and its exit status reports
            // that.
            stdin.write_all(input.as_bytes()).await.ok();
        }
    };
    let ((), written, said, ended) = tokio::join!(write, read(stdout), read(stderr), child.wait());
    match ended {
        Ok(status) if status.success() => Ok(written),
        Ok(status) => {
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            Err(failed(format!("{program} ended with {status}: {last}")))
        }
        Err(error) => Err(failed(format!("{program}: {error}"))),
    }
}

/// The beginning of an output; reads it to the end.
async fn read(written: Option<impl AsyncRead + Unpin>) -> String {
    let mut said = Vec::new();
    if let Some(mut written) = written {
        (&mut written).take(SAID_BYTES_MAX).read_to_end(&mut said).await.ok();
        tokio::io::copy(&mut written, &mut tokio::io::sink()).await.ok();
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_says_how_it_ended() {
        let outcome = async |script: &str, input: &str| {
            run(Ok(Command::new("sh")), &["-c".to_owned(), script.to_owned()], input).await
        };
        let heard = outcome("read line && test \"$line\" = hello && echo 1", "hello\n").await;
        assert_eq!(heard, Ok("1\n".to_owned()));
        let said = outcome("echo first >&2; echo 'no such service' >&2; exit 3", "").await;
        assert_eq!(said, Err(failed("sh ended with exit status: 3: no such service".to_owned())));
        // More than a pipe holds, on both sides.
        let loud = outcome("head -c 300000 /dev/zero >&2", &"x".repeat(300_000)).await;
        assert_eq!(loud, Ok(String::new()));
        let none = run(Ok(Command::new("aside-no-such-program")), &[], "").await;
        assert_eq!(none, Err(never("there is no aside-no-such-program".to_owned())));
        let absent = apprise_command("aside-no-such-program", &Programs::default()).map(drop);
        assert_eq!(absent, Err(never("aside-no-such-program is not in the daemon's PATH".to_owned())));
    }
}

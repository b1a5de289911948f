//! Commands that show a notice: `notify-send` on the desktop, and `apprise`, which knows a hundred services.

use std::{env, io, path::Path, process::Stdio};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};

use super::{failed, never, word_of};
use crate::sink::{Answered, Apprise, Notice};

/// What shows a notice on the desktop.
pub(super) const NOTIFY_SEND: &str = "notify-send";
/// The variable that names the session's bus, and the folder in which the bus is otherwise.
const BUS_VARIABLE: &str = "DBUS_SESSION_BUS_ADDRESS";
const RUNTIME_VARIABLE: &str = "XDG_RUNTIME_DIR";
/// How much of what a command says is read; the rest goes nowhere.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// Shows a notice on the desktop, if there is one.
pub(super) async fn desktop(notice: &Notice) -> Answered {
    if !has_bus() {
        return never(format!("there is no desktop: no session bus, {BUS_VARIABLE} is not set"));
    }
    let urgency = format!("--urgency={}", word_of(notice.level, ["low", "normal", "critical"]));
    let (title, body) = (notice.title(), without_markup(&notice.text()));
    run(NOTIFY_SEND, &["--app-name=aside", &urgency, "--", &title, &body], "").await
}

/// Hands a notice to `apprise`, which knows where it goes.
pub(super) async fn apprise(settings: &Apprise, notice: &Notice) -> Answered {
    let kind = word_of(notice.level, ["info", "warning", "failure"]);
    let (title, config) =
        (notice.title(), settings.config_file.as_deref().map(|file| format!("--config={file}")));
    let title = format!("--title={title}");
    let kind = format!("--notification-type={kind}");
    let args: Vec<&str> = [&*title, &*kind].into_iter().chain(config.as_deref()).collect();
    // The body goes in by stdin: a list of processes shows arguments to everybody.
    run(&settings.command, &args, &notice.text()).await
}

/// Whether a session's bus is there.
pub(super) fn has_bus() -> bool {
    let is_set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let in_folder = || is_set(RUNTIME_VARIABLE).is_some_and(|folder| Path::new(&folder).join("bus").exists());
    is_set(BUS_VARIABLE).is_some() || in_folder()
}

/// Runs a command to its end, with `input` on its stdin. It is killed when nobody waits for it any more.
async fn run(program: &str, args: &[&str], input: &str) -> Answered {
    let spawned = Command::new(program)
        .args(args)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return never(format!("there is no {program} in the daemon's PATH"));
        }
        Err(error) => return failed(format!("{program}: {error}")),
    };
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // One that does not read it shows nothing of it, which its end says.
            stdin.write_all(input.as_bytes()).await.ok();
        }
    };
    let read = async {
        let mut said = Vec::new();
        if let Some(mut stderr) = stderr {
            (&mut stderr).take(SAID_BYTES_MAX).read_to_end(&mut said).await.ok();
            tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await.ok();
        }
        said
    };
    let ((), said, ended) = tokio::join!(write, read, child.wait());
    match ended {
        Ok(status) if status.success() => Answered::Took(None),
        Ok(status) => {
            let said = String::from_utf8_lossy(&said);
            let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            failed(format!("{program} ended with {status}: {last}"))
        }
        Err(error) => failed(format!("{program}: {error}")),
    }
}

/// Text that a notification server shows as it is.
///
/// Source: the desktop notifications specification: the body may be read as XML.
fn without_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_says_how_it_ended() {
        let outcome = async |script: &str, input: &str| run("sh", &["-c", script], input).await;
        assert_eq!(outcome("read line && test \"$line\" = hello", "hello\n").await, Answered::Took(None));
        let said = outcome("echo first >&2; echo 'no such service' >&2; exit 3", "").await;
        assert_eq!(said, failed("sh ended with exit status: 3: no such service".to_owned()));
        // More than a pipe holds, on both sides.
        let loud = outcome("head -c 300000 /dev/zero >&2", &"x".repeat(300_000)).await;
        assert_eq!(loud, Answered::Took(None));
        let none = run("aside-no-such-program", &[], "").await;
        assert_eq!(none, never("there is no aside-no-such-program in the daemon's PATH".to_owned()));
    }

    #[test]
    fn nothing_in_a_message_is_markup() {
        assert_eq!(without_markup("a <b>b</b> & c"), "a &lt;b&gt;b&lt;/b&gt; &amp; c");
    }
}

//! Runs the programs that show a notice.

use std::{fs, io, os::unix::fs::PermissionsExt, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use engine::sink::Answered;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
};

use super::kind::{failed, never};
use crate::daemon::program::{Program, Programs};

/// The time limit of an attempt by a command, which may call a server itself.
pub(super) const COMMAND_MAX: Duration = Duration::from_secs(30);
/// Bytes read of a command's output; the rest is discarded.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// A program of the machine, as the daemon runs it by itself.
///
/// Errors: why it cannot be run.
pub(super) fn command_of(program: Program, programs: &Programs) -> Result<Command, Answered> {
    programs.command(program).map(Command::from).map_err(|missing| never(missing.to_string()))
}

/// The path of a program that the daemon would run.
///
/// Errors: there is none.
pub(super) fn in_path(program: &str, programs: &Programs) -> Result<String, String> {
    if program.contains('/') {
        let is_program = fs::metadata(program)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
        return if is_program {
            Ok(program.to_owned())
        } else {
            Err(format!("there is no program {program}"))
        };
    }
    programs.path_of(program).map(|path| path.display().to_string()).map_err(|missing| missing.to_string())
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

/// A program that the user configured, with the user's variables and `more` of the daemon's.
///
/// Errors: why it cannot be run.
pub(super) fn configured(program: &str, more: &[Arc<str>], programs: &Programs) -> Result<Command, Answered> {
    let path = configured_path(program, programs)?;
    Ok(programs.command_of_user(&path, more).into())
}

/// Runs a command to its end, with `input` on its stdin, and returns the beginning of its stdout.
/// It is killed when the future is dropped.
///
/// Errors: there is no such program, or it failed.
pub(super) async fn run(
    command: Result<Command, Answered>,
    args: &[String],
    input: &str,
) -> Result<String, Answered> {
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
    }
}

//! Checks whether a sink can take a notice now, as far as possible without sending one.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use engine::{
    notification::Sink,
    sink::{Settings, Url},
};
use tokio::{net::TcpStream, time::timeout};

use super::{command, outcome::read_secret};
use crate::daemon::program::{Program, Programs};

/// The time limit of a connection to a server.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The destination of the sink.
///
/// Errors: the reason that it cannot take a notice.
pub async fn check(sink: Sink, settings: &Settings, programs: &Programs) -> Result<String, String> {
    match sink {
        Sink::Harness => Ok("the line that the next hook of the session shows".to_owned()),
        Sink::Desktop if !command::has_bus() => Err("the daemon has no session bus".to_owned()),
        Sink::Desktop => in_path(Program::NotifySend.as_str(), programs),
        Sink::Log => match settings.log.path.as_deref() {
            None => Ok("notices.jsonl in the state folder".to_owned()),
            Some(path) if Path::new(path).parent().is_some_and(Path::is_dir) => Ok(path.to_owned()),
            Some(path) => Err(format!("the folder of {path} does not exist")),
        },
        Sink::Ntfy => server(settings.ntfy.url.as_ref(), settings.ntfy.token_file.as_deref()).await,
        Sink::Webhook => server(settings.webhook.url.as_ref(), settings.webhook.secret_file.as_deref()).await,
        Sink::Apprise => {
            let program = in_path(&settings.apprise.command, programs)?;
            match settings.apprise.config_file.as_deref().filter(|file| !Path::new(file).is_file()) {
                Some(file) => Err(format!("{file} does not exist")),
                None => Ok(program),
            }
        }
    }
}

async fn server(url: Option<&Url>, secret_file: Option<&str>) -> Result<String, String> {
    let url = url.ok_or_else(|| "it has no `url`".to_owned())?;
    if let Some(file) = secret_file {
        read_secret(file).await?;
    }
    match timeout(CONNECT_MAX, TcpStream::connect((&*url.host, url.port))).await {
        Ok(Ok(_)) => Ok(url.address(&url.path)),
        Ok(Err(error)) => Err(format!("{}: {error}", url.authority)),
        Err(_) => Err(format!("{}: it accepts no connection", url.authority)),
    }
}

/// The path of a program that the daemon would run.
///
/// Errors: there is none.
fn in_path(program: &str, programs: &Programs) -> Result<String, String> {
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

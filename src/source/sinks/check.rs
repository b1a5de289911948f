//! Checks whether a sink can take a notice now, as far as possible without sending one.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use super::{command, outcome::read_secret};
use crate::{
    notification::Sink,
    sink::{Settings, Url},
};

/// The time limit of a connection to a server.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The destination of the sink.
///
/// Errors: the reason that it cannot take a notice.
pub async fn check(sink: Sink, settings: &Settings) -> Result<String, String> {
    match sink {
        Sink::Harness => Ok("the line that the next hook of the session shows".to_owned()),
        Sink::Desktop if !command::has_bus() => Err("the daemon has no session bus".to_owned()),
        Sink::Desktop => in_path(command::NOTIFY_SEND),
        Sink::Log => match settings.log.path.as_deref() {
            None => Ok("notices.jsonl in the state folder".to_owned()),
            Some(path) if Path::new(path).parent().is_some_and(Path::is_dir) => Ok(path.to_owned()),
            Some(path) => Err(format!("the folder of {path} does not exist")),
        },
        Sink::Ntfy => server(settings.ntfy.url.as_ref(), settings.ntfy.token_file.as_deref()).await,
        Sink::Webhook => server(settings.webhook.url.as_ref(), settings.webhook.secret_file.as_deref()).await,
        Sink::Apprise => {
            let program = in_path(&settings.apprise.command)?;
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

/// The path of a program in the daemon's `PATH`.
///
/// Errors: it was not found.
fn in_path(program: &str) -> Result<String, String> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let mut candidates = env::split_paths(&folders).map(|folder| folder.join(program));
    let found = candidates.find(|path| is_program(path));
    found
        .map(|path| path.display().to_string())
        .ok_or_else(|| format!("{program} is not in the daemon's PATH"))
}

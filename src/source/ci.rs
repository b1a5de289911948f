//! Polls `gh` for the checks of a pushed commit, by the engine's plan (docs/design/ci.md).
//!
//! One call at a time runs, as a child process without a shell, in a folder of the daemon, with an
//! empty stdin. git reads the objects and refs of the repository and never its settings; `gh` gets
//! the name of the repository, so it runs no git in it. The source parses the output and publishes
//! the outcome; the engine decides what follows. While nothing is followed, nothing wakes.

use std::{
    collections::HashMap,
    convert::Infallible,
    env,
    fs::File,
    io,
    io::Read,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    sync::watch,
    time::timeout,
};
use tokio_stream::{Stream, StreamExt};

use super::{Clocks, Outlet, Source, events_of, pause_if, values::values};
use crate::{
    ci::{Follow, Found, Hosts, Next, Outcome, Output, Plan, Remote, has_long_ids},
    event::Event,
    program::{Ids, Missing, Place, Program, Programs},
};

/// The time limit of a call.
const CALL_MAX: Duration = Duration::from_secs(20);
/// Most bytes that are read of a call's output. An answer with a hundred checks has some 50 KB, and
/// there may be ten texts of at most 64 KiB for each of five pull requests.
const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Most bytes of the file in which `gh` lists its logins.
const LOGINS_BYTES_MAX: u64 = 64 * 1024;

/// Queries git and GitHub.
pub trait Runner: Send + Sync + 'static {
    /// The commit of a follow, and the repository at GitHub.
    fn find(&self, follow: &Follow) -> impl Future<Output = Found> + Send;

    /// Returns the output of `gh` with these arguments, about the repository `remote`.
    ///
    /// Errors: the program does not exist, takes too long or prints too much.
    fn ask(&self, arguments: Vec<String>, remote: &Remote)
    -> impl Future<Output = io::Result<Output>> + Send;
}

/// The source.
#[derive(Debug)]
pub struct Asking<R = Machine> {
    plan: watch::Receiver<Plan>,
    runner: R,
}

/// Why the source ended.
#[derive(Debug, thiserror::Error)]
pub enum AskingError {
    /// The sender of the plan was dropped.
    #[error("the event loop has ended")]
    Ended,
}

impl Asking {
    /// Follows `plan` with these programs.
    pub fn new(plan: watch::Receiver<Plan>, programs: Arc<Programs>) -> Self {
        Self::with(plan, Machine { programs })
    }
}

impl<R: Runner> Asking<R> {
    /// Follows `plan` with another runner.
    pub const fn with(plan: watch::Receiver<Plan>, runner: R) -> Self {
        Self { plan, runner }
    }

    /// Asks GitHub for the checks of a follow.
    async fn ask(&self, follow: &Follow, out: &Outlet) -> Outcome {
        let Some((arguments, remote)) = follow.arguments() else { return Outcome::Unknown };
        match self.runner.ask(arguments, remote).await {
            Ok(output) => {
                let commit = follow.commit.as_deref().unwrap_or_default();
                Outcome::read(&output, commit, follow.branch.as_deref(), (out.clock)())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::NoProgram,
            Err(error) => Outcome::Failed { message: error.to_string() },
        }
    }
}

impl<R: Runner> Source for Asking<R> {
    const NAME: &'static str = "ci";
    type Error = AskingError;

    fn events(self: Arc<Self>, clocks: Clocks) -> impl Stream<Item = Result<Vec<Event>, AskingError>> + Send {
        events_of(clocks, |out| self.run(out))
    }
}

impl<R: Runner> Asking<R> {
    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, AskingError> {
        let mut plans = values(&self.plan);
        let mut plan = plans.next().await.ok_or(AskingError::Ended)?;
        // For each follow, the last call with a published answer; the engine may not have read it
        // yet.
        let mut published: HashMap<Arc<str>, Option<u32>> = HashMap::new();
        loop {
            published.retain(|id, _| plan.follows.iter().any(|follow| follow.id == *id));
            let is_done = |follow: &Follow| match published.get(&follow.id) {
                Some(None) => follow.commit.is_none(),
                Some(Some(calls)) => follow.calls < *calls,
                None => false,
            };
            let next = plan.next(is_done);
            let due = match &next {
                Some(Next::Find(_)) => Some(Duration::ZERO),
                Some(Next::Ask(_, at)) => Some(at.since((out.clock)())),
                None => None,
            };
            tokio::select! {
                biased;
                newest = plans.next() => {
                    plan = newest.ok_or(AskingError::Ended)?;
                    continue;
                }
                () = pause_if(due) => {}
            }
            match next {
                Some(Next::Find(follow)) => {
                    let found = self.runner.find(&follow).await;
                    out.publish(follow.found_event(&found, (out.clock)())).await;
                    published.insert(Arc::clone(&follow.id), None);
                }
                Some(Next::Ask(follow, _)) => {
                    let outcome = self.ask(&follow, &out).await;
                    out.publish(plan.answered_event(&follow, outcome, (out.clock)())).await;
                    published.insert(Arc::clone(&follow.id), Some(follow.calls + 1));
                }
                None => {}
            }
        }
    }
}

/// Runs the programs of the machine.
#[derive(Debug)]
pub struct Machine {
    programs: Arc<Programs>,
}

impl Machine {
    /// The result of [`Runner::find`]; `None` without a repository or without git.
    async fn look(&self, follow: &Follow) -> Option<Found> {
        self.programs.workspaces.note(&follow.folder);
        let folder = PathBuf::from(&*follow.folder);
        let place = tokio::task::spawn_blocking(move || Place::of(&folder)).await.ok()??;
        let top = place.top.to_str()?.to_owned();
        self.programs.workspaces.note(&top);
        let settings = self.settings(self.programs.git_settings(&place.settings())).await;
        let abbreviations = self.settings(self.programs.git_abbreviations()).await;
        let hosts = tokio::task::spawn_blocking(hosts).await.ok()?;
        let remote = Remote::find(&settings, &abbreviations, &hosts);
        let ids = if has_long_ids(&settings) { Ids::Sha256 } else { Ids::Sha1 };
        let programs = Arc::clone(&self.programs);
        let git = tokio::task::spawn_blocking(move || programs.git_at(&place, ids)).await.ok()?.ok()?;
        let output = run_within(Command::from(git), follow.git_arguments(), CALL_MAX).await.ok()?;
        Some(follow.read_found(&output, Some(top), remote))
    }

    /// What git prints of settings; nothing if there are none, or if it fails.
    async fn settings(&self, command: Result<std::process::Command, Missing>) -> Vec<u8> {
        let Ok(command) = command else { return Vec::new() };
        let output = run_within(Command::from(command), Vec::new(), CALL_MAX).await;
        output.map(|output| output.stdout).unwrap_or_default()
    }
}

impl Runner for Machine {
    async fn find(&self, follow: &Follow) -> Found {
        let found = self.look(follow).await;
        found.unwrap_or_else(|| follow.read_found(&Output::default(), None, None))
    }

    async fn ask(&self, arguments: Vec<String>, remote: &Remote) -> io::Result<Output> {
        let missing = |missing| io::Error::new(io::ErrorKind::NotFound, missing);
        let mut command = self.programs.command(Program::Gh).map_err(missing)?;
        command.env("GH_REPO", remote.full_name());
        run_within(Command::from(command), arguments, CALL_MAX).await
    }
}

/// The hosts at which the user has a login.
///
/// Source: the manual of `gh`, `gh help environment`.
fn hosts() -> Hosts {
    let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let settings = folder("GH_CONFIG_DIR")
        .or_else(|| Some(folder("XDG_CONFIG_HOME")?.join("gh")))
        .or_else(|| Some(folder("HOME")?.join(".config/gh")));
    let logins = settings.and_then(|folder| read_logins(&folder.join("hosts.yml")).ok());
    Hosts::read(&logins.unwrap_or_default(), env::var("GH_HOST").ok().as_deref())
}

fn read_logins(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LOGINS_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Runs a command. It is killed after the time limit, or when the future is dropped.
async fn run_within(mut command: Command, arguments: Vec<String>, within: Duration) -> io::Result<Output> {
    command.args(arguments).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = async {
        let (stdout, stderr) = tokio::try_join!(read(stdout), read(stderr))?;
        Ok(Output { code: child.wait().await?.code(), stdout, stderr })
    };
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("it took longer than {within:?}"));
    timeout(within, ended).await.map_err(late)?
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes).await?;
    }
    if bytes.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(io::Error::other(format!("it printed more than {OUTPUT_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;

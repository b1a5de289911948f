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

use engine::ci::{
    Follow, Found, Hosts, Next, Outcome, Output, Plan, Remote, commit_arguments, has_long_ids, read_commit,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    sync::{Mutex, MutexGuard, watch},
    task::JoinError,
    time::timeout,
};
use tokio_stream::StreamExt;

use crate::{
    capability::source::{Outlet, Parts, Source, SourceError, pause_if, values},
    daemon::{
        program::{Ids, Missing, Program, Programs, Repository},
        tasks::run_blocking,
    },
};

/// The time limit of a call.
const CALL_MAX: Duration = Duration::from_secs(20);
/// Most bytes that are read of a call's output. An answer with a hundred checks has some 50 KB, and
/// there may be ten texts of at most 64 KiB for each of five pull requests.
const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Held while git runs on a repository: two runs would replace each other's folder
/// ([`Programs::git_at`]). See [`run_exclusively`].
static GIT_USE: Mutex<()> = Mutex::const_new(());

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

impl Asking {
    /// Follows `plan` with these programs.
    pub fn new(parts: &Parts<'_>) -> Self {
        Self::with(parts.inputs.ci.subscribe(), Machine { programs: Arc::clone(parts.programs) })
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

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SourceError> {
        let mut plans = values(&self.plan);
        let mut plan = plans.next().await.ok_or(SourceError::Ended)?;
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
                    plan = newest.ok_or(SourceError::Ended)?;
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

/// Why nothing is known of the checks of a folder's repository.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The program does not exist.
    #[error("{0}, so checks cannot be asked for")]
    NoProgram(Missing),
    /// The folder is in no repository.
    #[error("{0} is in no git repository")]
    NoRepository(String),
    /// git does not run.
    #[error("git cannot look into the repository: {0}")]
    NoGit(io::Error),
    /// No remote is at GitHub.
    #[error("no remote of the repository at {0} is at GitHub")]
    NotOfGithub(String),
    /// The ref does not exist.
    #[error("git knows no branch or commit `{reference}` in {top}")]
    NoCommit {
        /// A branch, tag or commit as given.
        reference: String,
        /// The top folder of the repository.
        top: String,
    },
}

/// Checks that GitHub can be asked for the checks of a branch or a commit, else of the checkout, of
/// the repository in `folder`.
///
/// Errors: a program, the repository, its remote or the commit does not exist.
pub async fn check(
    programs: &Arc<Programs>,
    folder: &str,
    reference: Option<&str>,
) -> Result<(), CheckError> {
    programs.command(Program::Gh).map_err(CheckError::NoProgram)?;
    let machine = Machine { programs: Arc::clone(programs) };
    let CommitAnswer { top, remote, output } = machine.look(folder, commit_arguments(reference)).await?;
    if remote.is_none() {
        return Err(CheckError::NotOfGithub(top));
    }
    let reference = || reference.unwrap_or("HEAD").to_owned();
    read_commit(&output).map(drop).ok_or_else(|| CheckError::NoCommit { reference: reference(), top })
}

/// A look into a repository.
struct CommitAnswer {
    top: String,
    /// The repository at GitHub, if a remote names one.
    remote: Option<Remote>,
    /// The output of git.
    output: Output,
}

impl Machine {
    /// Runs git in the repository of a folder.
    async fn look(&self, folder: &str, arguments: Vec<String>) -> Result<CommitAnswer, CheckError> {
        let nowhere = || CheckError::NoRepository(folder.to_owned());
        let no_git = |error: io::Error| CheckError::NoGit(error);
        let blocked = |error: JoinError| CheckError::NoGit(io::Error::other(error));
        let inside = PathBuf::from(folder);
        let place = run_blocking(move || Repository::of(&inside)).await.map_err(blocked)?;
        let place = place.ok_or_else(nowhere)?;
        let top = place.top.to_str().ok_or_else(nowhere)?.to_owned();
        // Only now, as `/` without a repository would keep every program from running.
        self.programs.workspaces.note(folder);
        self.programs.workspaces.note(&top);
        let settings = self.settings(self.programs.git_settings(&place.settings())).await;
        let abbreviations = self.settings(self.programs.git_abbreviations()).await;
        let hosts = run_blocking(hosts).await.map_err(blocked)?;
        let remote = Remote::find(&settings, &abbreviations, &hosts);
        let ids = if has_long_ids(&settings) { Ids::Sha256 } else { Ids::Sha1 };
        let programs = Arc::clone(&self.programs);
        let (git, _guard) =
            run_exclusively(&GIT_USE, move || programs.git_at(&place, ids)).await.map_err(blocked)?;
        let git = git.map_err(no_git)?;
        let output = run_within(Command::from(git), arguments, CALL_MAX).await.map_err(no_git)?;
        Ok(CommitAnswer { top, remote, output })
    }

    /// What git prints of settings; nothing if there are none, or if it fails.
    async fn settings(&self, command: Result<std::process::Command, Missing>) -> Vec<u8> {
        let Ok(command) = command else { return Vec::new() };
        let output = run_within(Command::from(command), Vec::new(), CALL_MAX).await;
        output.map(|output| output.stdout).unwrap_or_default()
    }
}

/// Does blocking work while `lock` is held, and returns the guard with the result.
///
/// Shape: the work has the guard, as it goes on when the future is dropped; nobody else begins before
/// it is done.
async fn run_exclusively<T: Send + 'static>(
    lock: &'static Mutex<()>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, MutexGuard<'static, ()>), JoinError> {
    let guard = lock.lock().await;
    run_blocking(move || (work(), guard)).await
}

impl Runner for Machine {
    async fn find(&self, follow: &Follow) -> Found {
        match self.look(&follow.folder, follow.git_arguments()).await {
            Ok(CommitAnswer { top, remote, output }) => follow.read_found(&output, Some(top), remote),
            Err(CheckError::NoRepository(_)) => follow.read_found(&Output::default(), None, None),
            Err(error) => {
                Found { error: Some(error.to_string()), ..follow.read_found(&Output::default(), None, None) }
            }
        }
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

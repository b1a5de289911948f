//! Polls `gh` for the checks of a pushed commit, by the engine's plan (docs/design/ci.md).
//!
//! One call at a time runs, as a child process without a shell, in the folder of the push, with the
//! daemon's own variables and an empty stdin. The source parses the output and publishes the
//! outcome; the engine decides what follows. While nothing is followed, nothing wakes.

use std::{collections::HashMap, convert::Infallible, io, process::Stdio, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    sync::watch,
    time::timeout,
};

use super::{Outlet, Source, pause_if, publish};
use crate::ci::{Follow, Found, Next, Outcome, Output, Plan};

/// The time limit of a call.
const CALL_MAX: Duration = Duration::from_secs(20);
/// Most bytes that are read of a call's output. An answer with a hundred checks has some 50 KB, and
/// there may be ten texts of at most 64 KiB for each of five pull requests.
const OUTPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Runs a program to its end.
pub trait Runner: Send + Sync + 'static {
    /// Returns the program's output.
    ///
    /// Errors: the program does not exist, takes too long or prints too much.
    fn run(
        &self,
        program: &'static str,
        arguments: Vec<String>,
        folder: &str,
    ) -> impl Future<Output = io::Result<Output>> + Send;
}

/// Runs the programs of the machine.
#[derive(Debug, Default)]
pub struct Programs;

/// The source.
#[derive(Debug)]
pub struct Asking<R = Programs> {
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
    /// Follows `plan`.
    pub fn new(plan: watch::Receiver<Plan>) -> Self {
        Self::with(plan, Programs)
    }
}

impl<R: Runner> Asking<R> {
    /// Follows `plan` with another runner.
    pub const fn with(plan: watch::Receiver<Plan>, runner: R) -> Self {
        Self { plan, runner }
    }

    /// Asks git for the commit of a follow.
    async fn find(&self, follow: &Follow) -> Found {
        let found = self.runner.run("git", follow.git_arguments(), &follow.folder).await;
        follow.read_found(&found.unwrap_or_default())
    }

    /// Asks GitHub for the checks of a follow.
    async fn ask(&self, follow: &Follow, out: &Outlet) -> Outcome {
        let Some(arguments) = follow.arguments() else { return Outcome::Unknown };
        match self.runner.run("gh", arguments, &follow.folder).await {
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

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, AskingError> {
        let mut plans = self.plan.clone();
        // For each follow, the last call with a published answer; the engine may not have read it
        // yet.
        let mut published: HashMap<Arc<str>, Option<u32>> = HashMap::new();
        loop {
            let plan = plans.borrow_and_update().clone();
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
                changed = plans.changed() => {
                    changed.map_err(|_| AskingError::Ended)?;
                    continue;
                }
                () = pause_if(due) => {}
            }
            match next {
                Some(Next::Find(follow)) => {
                    let found = self.find(&follow).await;
                    publish(&follow.found_event(&found, (out.clock)()), &out).await;
                    published.insert(Arc::clone(&follow.id), None);
                }
                Some(Next::Ask(follow, _)) => {
                    let outcome = self.ask(&follow, &out).await;
                    publish(&plan.answered_event(&follow, outcome, (out.clock)()), &out).await;
                    published.insert(Arc::clone(&follow.id), Some(follow.calls + 1));
                }
                None => {}
            }
        }
    }
}

impl Runner for Programs {
    async fn run(&self, program: &'static str, arguments: Vec<String>, folder: &str) -> io::Result<Output> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run_within(command, CALL_MAX).await
    }
}

/// Runs a command. It is killed after the time limit, or when the future is dropped.
async fn run_within(mut command: Command, within: Duration) -> io::Result<Output> {
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

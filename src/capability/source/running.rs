//! The tasks of a source, one for each key.

use std::future::pending;

use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::daemon::tasks::Task;

/// Tasks by key; all are aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct Running<K> {
    tasks: JoinSet<()>,
    handles: Vec<(K, AbortHandle)>,
}

impl<K> Default for Running<K> {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), handles: Vec::new() }
    }
}

impl<K: PartialEq + Clone> Running<K> {
    /// Aborts the tasks whose keys are not in `wanted`, and starts a task for each new key.
    pub(crate) fn renew<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        wanted: &[K],
        run: impl Fn(K) -> F,
    ) {
        self.handles.retain(|(key, task)| {
            let is_wanted = wanted.contains(key);
            if !is_wanted {
                task.abort();
            }
            is_wanted
        });
        for key in wanted {
            if !self.handles.iter().any(|(known, _)| known == key) {
                let task: Task<()> = Box::pin(run(key.clone()));
                let task = self.tasks.spawn(task);
                self.handles.push((key.clone(), task));
            }
        }
    }

    /// Waits until a task has ended; forever if there is none.
    ///
    /// Errors: the task panicked.
    pub(crate) async fn ended(&mut self) -> Result<(), JoinError> {
        match self.tasks.join_next().await {
            Some(Err(error)) if error.is_panic() => Err(error),
            Some(Ok(()) | Err(_)) => Ok(()),
            None => pending().await,
        }
    }
}

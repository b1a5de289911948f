//! Bounds the time in which a report is read: the command has ended, and its exit must not wait.

use std::{
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

/// How long all reports of a run may take. Reading the largest takes some 100 ms, unless its file
/// is on a disk that does not answer.
pub(super) const READ_WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs `read` on another thread, which ends with the process if it takes longer than `limit`.
///
/// Errors: what happened instead.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (done, result) = sync_channel(1);
    let reading = thread::Builder::new().name("report".to_owned()).spawn(move || done.send(read()));
    reading.map_err(|error| format!("it cannot be read: {error}"))?;
    result.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => "it was given up, because reading it takes too long".to_owned(),
        RecvTimeoutError::Disconnected => "it was given up, because reading it failed".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_over_its_time_is_abandoned() {
        assert_eq!(within(READ_WAIT_MAX, || 7), Ok(7));
        let (release, never) = sync_channel::<()>(0);
        let slow = within(Duration::from_millis(10), move || never.recv().is_ok());
        assert_eq!(slow, Err("it was given up, because reading it takes too long".to_owned()));
        drop(release);
    }
}

//! Threads that no request waits for: their priority, and their end.
//!
//! On busy processors such a thread delays the threads that answer by some milliseconds each time
//! it runs. In a burst that is most of the time of an exchange.

use std::thread::JoinHandle;

/// Niceness of work that is needed soon: the next journal file, the projection. Next to one busy
/// thread it gets a quarter of a processor (`sched_prio_to_weight` in Linux: 335 against 1,024).
pub const LOW: i32 = 5;
/// Niceness of work that no other work depends on: sealing. It gets a tenth of a processor (110
/// against 1,024).
pub const LOWEST: i32 = 10;
/// Niceness of a command that reads while a daemon runs: the last one that the scheduler has. It
/// gets a seventieth of a processor (15 against 1,024).
pub const LAST: i32 = 19;

/// Lowers the priority of this thread permanently.
///
/// Shape: does nothing outside Linux, where a niceness is the process's. Errors: none; they are
/// logged.
pub fn lower_priority(niceness: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(niceness) {
        tracing::debug!(%error, "a background thread keeps the normal priority");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

/// Waits until a thread has ended; a panic is logged.
pub fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    if thread.join().is_err() {
        tracing::error!(name, "a background thread panicked");
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{fs, thread};

    use super::*;

    /// The niceness of this thread (`proc_pid_stat(5)`: field 19; the name before it may hold
    /// spaces).
    fn current() -> i32 {
        let stat = fs::read_to_string("/proc/thread-self/stat").expect("readable");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
        fields.split(' ').nth(16).and_then(|field| field.parse().ok()).expect("a number")
    }

    #[test]
    fn only_the_calling_thread_lowers_its_priority() {
        let before = current();
        let (lowered, other) = thread::scope(|scope| {
            let lowered = scope.spawn(|| {
                lower_priority(LOW);
                current()
            });
            let lowered = lowered.join().expect("it ends");
            (lowered, scope.spawn(current).join().expect("it ends"))
        });
        assert_eq!((lowered, other), ((before + LOW).min(19), before));
        assert_eq!(current(), before);
    }
}

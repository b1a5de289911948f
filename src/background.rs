//! Threads for whose work nobody waits at the moment.
//!
//! Where all processors are busy, such a thread keeps one from those that answer for some milliseconds whenever its turn comes: what an exchange
//! takes in the midst of a burst is mostly that.

/// How much lower than that of the others the priority of a thread is whose work is waited for in the end, for example history. Beside one
/// busy thread it has a quarter of a processor (`sched_prio_to_weight` in Linux: 335 to 1,024).
pub const SOON: i32 = 5;
/// The same for work that may be late: a tenth of a processor (110 to 1,024).
pub const LATER: i32 = 10;

/// Lowers the priority of this thread for good.
///
/// Shape: on Linux, where threads have priorities of their own; elsewhere nothing changes. If it is refused, that is said in the log.
pub fn give_way(niceness: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(niceness) {
        tracing::debug!(%error, "a thread in the background runs at the priority of the others");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{fs, thread};

    use super::*;

    /// The niceness of this thread (`proc_pid_stat(5)`: field 19; the name before it may hold spaces).
    fn own() -> i32 {
        let stat = fs::read_to_string("/proc/thread-self/stat").expect("readable");
        let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
        fields.split(' ').nth(16).and_then(|field| field.parse().ok()).expect("a number")
    }

    #[test]
    fn one_thread_gives_way_and_the_others_do_not() {
        let before = own();
        let (lowered, later) = thread::scope(|scope| {
            let lowered = scope.spawn(|| {
                give_way(SOON);
                own()
            });
            let lowered = lowered.join().expect("it ends");
            (lowered, scope.spawn(own).join().expect("it ends"))
        });
        assert_eq!((lowered, later), ((before + SOON).min(19), before));
        assert_eq!(own(), before);
    }
}

//! Faults that a test plants: on one record of a replay, or on a thread.
//!
//! `ASIDE_TEST_REPLAY=SEQ:FAULT` names the record and the fault. `ASIDE_TEST_PANIC=COUNT:THREAD`
//! names a thread that panics: the journal's when it reads the clock for the COUNT-th time, a worker
//! of the runtime before it sleeps for the COUNT-th time. A daemon without the variables compares
//! nothing.

use std::{
    hint::black_box,
    process,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use rustix::process::{Signal, getpid, kill_process};

use engine::event::Seq;

/// The variable that plants a fault on a record.
pub const VARIABLE: &str = "ASIDE_TEST_REPLAY";
/// The variable that plants a panic on a thread.
pub const THREAD_VARIABLE: &str = "ASIDE_TEST_PANIC";
/// What a planted allocation asks for first.
const ALLOCATED_BYTES: usize = 1 << 20;

/// A fault before the record at a position is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planted {
    at: Seq,
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
enum Fault {
    Panic,
    Abort,
    /// Overflows the stack.
    Overflow,
    /// Allocates more memory than there is.
    Allocation,
    /// Never ends.
    Endless,
    /// Stops until a signal continues or kills the process.
    Stop,
}

impl FromStr for Planted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts =
            text.split_once(':').and_then(|(seq, fault)| Some((seq.parse().ok()?, fault.parse().ok()?)));
        let (seq, fault) = parts.ok_or_else(|| format!("{VARIABLE} is not SEQ:FAULT: {text}"))?;
        Ok(Self { at: Seq(seq), fault })
    }
}

impl Planted {
    /// Causes the fault if `seq` is its record.
    pub(super) fn strike(self, seq: Seq) {
        if seq != self.at {
            return;
        }
        match self.fault {
            Fault::Panic => panic!("planted"),
            Fault::Abort => process::abort(),
            Fault::Overflow => {
                black_box(overflow(1));
            }
            Fault::Allocation => {
                let mut bytes: Vec<u8> = Vec::new();
                (0..40).for_each(|power| bytes.reserve(black_box(ALLOCATED_BYTES << power)));
            }
            Fault::Endless => loop {
                black_box(seq);
            },
            Fault::Stop => {
                kill_process(getpid(), Signal::STOP).ok();
            }
        }
    }
}

/// A panic on a thread, outside of any task of the runtime.
#[derive(Debug, Clone)]
pub struct PlantedPanic {
    thread: Arc<str>,
    /// How often the thread still comes along until it panics.
    left: Arc<AtomicU32>,
}

impl FromStr for PlantedPanic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(':').and_then(|(count, thread)| Some((count.parse().ok()?, thread)));
        let (count, thread) = parts
            .filter(|(count, thread)| *count > 0 && !thread.is_empty())
            .ok_or_else(|| format!("{THREAD_VARIABLE} is not COUNT:THREAD: {text}"))?;
        Ok(Self { thread: thread.into(), left: Arc::new(AtomicU32::new(count)) })
    }
}

impl PlantedPanic {
    /// Panics if this is its thread, and its time has come.
    pub fn strike(&self) {
        if thread::current().name() == Some(&*self.thread) {
            assert!(self.left.fetch_sub(1, Ordering::Relaxed) != 1, "planted");
        }
    }

    /// A clock at which it strikes outside of tasks.
    pub(super) fn in_clock(self, clock: journal::Clock) -> journal::Clock {
        Arc::new(move || {
            if tokio::task::try_id().is_none() {
                self.strike();
            }
            clock()
        })
    }
}

#[expect(unconditional_recursion, reason = "the stack has to overflow")]
fn overflow(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    overflow(depth + 1) + frame.iter().sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_a_record() {
        assert_eq!("7:stop".parse(), Ok(Planted { at: Seq(7), fault: Fault::Stop }));
        for text in ["", "7", "x:stop", "7:faint"] {
            assert!(text.parse::<Planted>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_planted_panic_strikes_once_on_its_thread() {
        for text in ["", "1", "0:a", "x:a", "1:"] {
            assert!(text.parse::<PlantedPanic>().is_err(), "{text}");
        }
        let planted: PlantedPanic = "3:struck".parse().expect("right");
        let struck = |name: &str| {
            let planted = planted.clone();
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || planted.strike());
            thread.expect("started").join().is_err()
        };
        let found = ["struck", "other", "struck", "struck", "struck"].map(struck);
        assert_eq!(found, [false, false, false, true, false]);
    }
}

//! A fault that a test plants on one record of a replay.
//!
//! `ASIDE_TEST_REPLAY=SEQ:FAULT` names the record and the fault. A daemon without the variable
//! compares nothing.

use std::{hint::black_box, process, str::FromStr};

use rustix::process::{Signal, getpid, kill_process};

use crate::event::Seq;

/// The variable that plants one.
pub const VARIABLE: &str = "ASIDE_TEST_REPLAY";
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
}

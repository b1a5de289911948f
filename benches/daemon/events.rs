//! Bodies of NDJSON with events of about 400 bytes, each with an id and a content of its own.

use std::io::Write;

/// The average size of an event.
pub(crate) const EVENT_BYTES: usize = 400;

/// The share of events that a shipped subscriber matches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Matching {
    None,
    /// One in 20.
    Few,
    All,
}

impl Matching {
    fn has(self, number: u64) -> bool {
        match self {
            Self::None => false,
            Self::Few => number.is_multiple_of(20),
            Self::All => true,
        }
    }
}

/// Makes events, all of them different.
pub(crate) struct Events {
    source: &'static str,
    matching: Matching,
    /// The number of events made.
    pub(crate) made: u64,
    body: Vec<u8>,
}

impl Events {
    /// `source` separates the ids of several makers.
    pub(crate) fn new(source: &'static str, matching: Matching) -> Self {
        Self { source, matching, made: 0, body: Vec::new() }
    }

    /// The next `count` events, a line each.
    pub(crate) fn batch(&mut self, count: usize) -> &[u8] {
        self.body.clear();
        for _ in 0..count {
            self.made += 1;
            self.line();
        }
        &self.body
    }

    /// Like the output of tools: ids and paths differ, words repeat.
    fn line(&mut self) {
        let (number, source) = (self.made, self.source);
        let (one, two) = (scrambled(number), scrambled(number ^ 0xa5a5_a5a5));
        let (event_type, severity) = if self.matching.has(number) {
            ("tool.call.failure", "error")
        } else {
            ("bench.load.tick", "info")
        };
        write!(
            self.body,
            r#"{{"id":"{number:014}","type":"{event_type}","source":"{source}","severity":"{severity}","payload":{{"tool_name":"tool{}","error_type":"timeout","error_message":"no answer from worker {} after {} ms","path":"/home/dev/project/src/module_{}/handler_{}.rs","request":"{one:016x}{two:016x}","attempt":{},"host":"build-{}.internal","elapsed_ms":{},"commit":"{:016x}","branch":"feature/retry-{}"}}}}"#,
            number / 20 % 97,
            one % 64,
            two % 30_000,
            one % 40,
            two % 200,
            number % 4,
            one % 12,
            two % 60_000,
            scrambled(number / 50),
            number / 50 % 1_000,
        )
        .expect("memory takes writes");
        self.body.push(b'\n');
    }
}

/// A number without a pattern, computed from `number` (the finaliser of splitmix64).
fn scrambled(number: u64) -> u64 {
    let mixed =
        (number.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

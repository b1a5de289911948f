//! Hook input that could not be used.
//!
//! A hook reports no problem to its client, so problems are counted here, in memory and from the
//! daemon's start.

use std::sync::{Mutex, PoisonError};

use engine::{event::clean_text, sorted::SortedMap};
use journal::time::Timestamp;

use crate::api::wire::harness::TroubleView;

/// Most kinds of problem that are counted separately; further kinds are counted together as
/// [`OTHER`].
const TROUBLES_MAX: usize = 32;
/// The name of that common count.
const OTHER: &str = "other";
/// Most characters stored of one problem.
const TROUBLE_CHARS_MAX: usize = 200;

/// Hook input that could not be used.
#[derive(Debug, Default)]
pub(crate) struct HookTroubles(Mutex<SortedMap<String, Trouble>>);

#[derive(Debug)]
struct Trouble {
    count: u64,
    last: String,
    last_at: Timestamp,
}

/// The outcome of a hook call with invalid input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Consequence {
    /// It was answered without the invalid field.
    LeftOut,
    /// It was refused, and its client got no answer.
    Refused,
    /// The hook's command names an unknown harness.
    UnknownHarness,
}

impl Consequence {
    const fn as_str(self) -> &'static str {
        match self {
            Self::LeftOut => "left_out",
            Self::Refused => "refused",
            Self::UnknownHarness => "unknown_harness",
        }
    }
}

impl HookTroubles {
    /// Counts one problem of the kind `consequence` with `what`: a field, or a name.
    pub(crate) fn note(&self, consequence: Consequence, what: &str, said: &str, now: Timestamp) {
        let short = |text: &str| clean_text(text).chars().take(TROUBLE_CHARS_MAX).collect::<String>();
        let mut kind = format!("{} {}", consequence.as_str(), short(what));
        let mut troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() >= TROUBLES_MAX && !troubles.contains_key(&kind) {
            OTHER.clone_into(&mut kind);
        }
        let trouble =
            troubles.get_or_insert_with(kind, || Trouble { count: 0, last: String::new(), last_at: now });
        trouble.count = trouble.count.saturating_add(1);
        trouble.last = short(said);
        trouble.last_at = now;
    }

    pub(super) fn views(&self) -> Vec<TroubleView> {
        let troubles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let show = |(kind, trouble): &(String, Trouble)| TroubleView {
            kind: kind.clone(),
            count: trouble.count,
            last: trouble.last.clone(),
            last_at: trouble.last_at.to_string(),
        };
        troubles.iter().map(show).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_are_counted_by_kind_and_bounded() {
        let troubles = HookTroubles::default();
        let now = Timestamp::from_millis;
        troubles.note(Consequence::LeftOut, "cwd", "must be absolute", now(1));
        troubles.note(Consequence::LeftOut, "cwd", &"x\u{1b}[2J".repeat(1_000), now(2));
        for number in 0..100 {
            troubles.note(Consequence::UnknownHarness, &format!("c{number}"), "", now(3));
        }
        let views = troubles.views();
        assert_eq!(views.len(), TROUBLES_MAX + 1);
        let of = |kind: &str| views.iter().find(|view| view.kind == kind).expect(kind);
        assert_eq!((of("left_out cwd").count, of("left_out cwd").last.as_str()), (2, &*"x".repeat(200)));
        assert_eq!(of("other").count, 100 - u64::try_from(TROUBLES_MAX - 1).expect("small"));
    }
}

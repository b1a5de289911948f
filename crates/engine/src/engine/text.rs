//! The id and the text of an injection.

use std::cell::LazyCell;

use journal::time::Timestamp;
use sha2::{Digest, Sha256};
use toon::tokens;

use crate::{
    conversation::injector::{Candidate, Writer},
    event::Seq,
    exchange::{Exchange, Format, InjectionId, Replaces},
    format::{self, Overflow},
    notification::{Counts, Cut, Detail, Notification, SubscriberId, Tokens},
    sorted::SortedMap,
};

/// Digits of an injection's id: 32^6 ids, unique within one transcript.
const INJECTION_ID_LEN: usize = 6;
/// Crockford's alphabet, which has no letter that looks like a digit.
const INJECTION_ID_ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Parameters of the rendered text of an injection.
pub(super) struct Text<'a, F> {
    pub(super) format: Format,
    /// Made when it is first needed: most exchanges release nothing.
    pub(super) injection: &'a LazyCell<InjectionId, F>,
    pub(super) evicted: &'a SortedMap<SubscriberId, u32>,
}

impl<F: FnOnce() -> InjectionId> Writer for Text<'_, F> {
    fn write(&self, chosen: &[Candidate], left_out: Counts, detail: Detail, replaces: Replaces) -> String {
        let items: Vec<_> = chosen.iter().map(item).collect();
        let overflow = Overflow { pending: left_out, evicted: Counts::new(self.evicted, detail) };
        format::write(self.format, self.injection, &items, &overflow, replaces)
    }

    fn is_whole(&self, candidate: &Candidate) -> bool {
        format::is_whole(self.format, self.injection, &item(candidate))
    }

    fn sentence(&self, about: &[&Candidate]) -> String {
        format::sentence(&about.iter().map(|candidate| item(candidate)).collect::<Vec<_>>())
    }

    fn tokens(&self, text: &str) -> Tokens {
        tokens::estimate(text)
    }

    fn shorten(&self, notification: &Notification, chars_max: usize) -> Cut {
        format::shorten(&notification.id, &notification.content, chars_max)
    }
}

pub(super) fn item(candidate: &Candidate) -> format::Item<'_> {
    let Candidate { notification, redelivered, has_cancelled: _, cut } = candidate;
    format::Item { notification, redelivered: redelivered.is_some(), cut: cut.as_ref() }
}

/// A short deterministic id for the injection of an exchange. Positions are reused after a loss, so
/// the id also depends on the time: an id in a transcript must not confirm a later injection.
pub(super) fn injection_id(exchange: &Exchange, seq: Seq, now: Timestamp) -> InjectionId {
    let mut hash = Sha256::new();
    hash.update(exchange.session.as_str());
    hash.update([0]);
    hash.update(seq.0.to_le_bytes());
    hash.update(now.as_millis().to_le_bytes());
    let digits = hash.finalize();
    let name: String = digits
        .iter()
        .take(INJECTION_ID_LEN)
        .filter_map(|byte| INJECTION_ID_ALPHABET.get(usize::from(byte % 32)))
        .map(|digit| char::from(*digit))
        .collect();
    InjectionId::new(&name)
}

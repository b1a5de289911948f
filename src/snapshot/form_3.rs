//! Reads the state of snapshots of format 3: values in the order of their fields, without names.
//!
//! Shape: `STATE` is a table of the values in their order, with their names in format 4, which the
//! present state reads as they are or as aliases. Unsigned numbers have seven bits a byte, low bits
//! first; the eighth bit is set if more bytes follow. A text is its length and its bytes. An
//! optional value follows a byte that is 1. A list, map or set is its length and its items. An enum
//! is the number of its variant, a byte, and its content. A repeated name or shared value is
//! written once after the number 0; each repetition is its number, from 1.
//!
//! Values without a place in the present format have no entry here, so the ledger's newest entries,
//! which are at the end, are not read.

use std::ops::Range;

use rmp::encode;

use super::{Damaged, LENGTH_BYTES, join, shared::WrittenTables};

/// The type of a value.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Number,
    /// A number of 16 bytes, little-endian.
    Wide,
    Flag,
    /// A text in place.
    Text,
    /// A text that may be a repetition.
    Name,
    Bytes,
    Optional(&'static Kind),
    /// Optional in the old format, always present in the new one.
    Always(&'static Kind),
    List(&'static Kind),
    Map(&'static Kind, &'static Kind),
    Pair(&'static Kind, &'static Kind),
    Struct(&'static [(&'static str, Kind)]),
    Enum(&'static [(&'static str, Option<Kind>)]),
    /// In a table of this name; a block is in it as bytes.
    Shared(&'static str, &'static Kind),
}

use Kind::{Always, Bytes, Enum, Flag, List, Map, Name, Number, Optional, Pair, Shared, Struct, Text, Wide};

/// An enum whose variants have no content.
macro_rules! words {
    ($($word:literal),+ $(,)?) => { Enum(&[$(($word, None)),+]) };
}

const SEVERITY: Kind = words!["debug", "info", "warning", "error", "critical"];
const PRIORITY: Kind = words!["low", "normal", "high", "critical"];
const POINT: Kind = words!["immediate", "turn_start", "before_tool", "after_tool", "turn_end"];
const SCOPE: Kind = Enum(&[("session", Some(Name)), ("workspace", Some(Name)), ("all", None)]);

const NOTIFICATION: Kind = Shared(
    "notifications",
    &Struct(&[
        ("id", Name),
        ("subscriber", Name),
        ("scope", SCOPE),
        ("priority", PRIORITY),
        ("inject_at", POINT),
        ("activation", words!["passive", "prompt", "active"]),
        ("interrupt", words!["inject_and_continue", "cancel_and_restart", "queue_for_next"]),
        ("severity", SEVERITY),
        ("content", Text),
        ("tokens", Number),
        ("raw_bytes", Number),
        ("events", List(&Number)),
        ("created_at", Number),
        ("expires_at", Optional(&Number)),
    ]),
);

const ROW: Kind = Struct(&[("seq", Number), ("event", Shared("events", &Bytes)), ("repeats", Number)]);
const BUCKET: Kind =
    Struct(&[("token_parts", Wide), ("parts_per_ms", Wide), ("parts", Wide), ("filled_at", Number)]);

const PIPELINE: Kind = Struct(&[
    (
        "dedupe",
        Struct(&[("windows", List(&Struct(&[("ends_at", Number), ("first", Number), ("key", Bytes)])))]),
    ),
    (
        "batcher",
        Struct(&[(
            "open",
            List(&Pair(
                &SCOPE,
                &Struct(&[
                    ("group", Bytes),
                    ("rows", List(&ROW)),
                    ("opened_at", Number),
                    ("ends_at", Number),
                ]),
            )),
        )]),
    ),
    ("limiter", Struct(&[("buckets", Map(&SCOPE, &BUCKET))])),
    (
        "carry",
        Struct(&[(
            "scopes",
            Map(&SCOPE, &Pair(&Struct(&[("repeats", Number), ("suppressed", Number)]), &Number)),
        )]),
    ),
    (
        "failures",
        Struct(&[(
            "places",
            Map(
                &Pair(&Enum(&[("condition", None), ("template", Some(Name))]), &Optional(&Number)),
                &Struct(&[("at", Number), ("has_succeeded", Flag)]),
            ),
        )]),
    ),
]);

const ENTRY: Kind = Struct(&[
    ("notification", NOTIFICATION),
    ("returned_from", Optional(&Name)),
    ("is_recalled", Flag),
    ("has_cancelled", Flag),
    ("is_released_by_user", Flag),
    ("is_shown", Flag),
    ("arrival", Number),
]);

const LEASE: Kind = Struct(&[
    ("injection", Name),
    ("point", POINT),
    ("carrier", Name),
    ("turn", Optional(&Name)),
    ("released_at", Number),
    ("expires_at", Number),
    ("answers", Number),
    ("entries", List(&ENTRY)),
    ("evicted", Map(&Name, &Number)),
]);

const REASON: Kind = Struct(&[("reason", Name)]);
const ANSWER: Kind = Struct(&[
    (
        "injection",
        Optional(&Struct(&[
            ("id", Name),
            ("text", Name),
            ("role", words!["tool", "user", "system"]),
            (
                "notifications",
                List(&Struct(&[
                    ("id", Name),
                    ("subscriber", Name),
                    ("priority", PRIORITY),
                    ("severity", SEVERITY),
                    ("redelivered", Flag),
                ])),
            ),
        ])),
    ),
    ("pending", Number),
    ("check_before_tool", Flag),
    ("directive", Optional(&Enum(&[("continue", Some(REASON)), ("cancel", Some(REASON))]))),
    ("notice", Optional(&Name)),
]);

const INJECTOR: Kind = Struct(&[
    ("session", Name),
    ("queue_len_max", Number),
    ("queue", Struct(&[("entries", List(&ENTRY)), ("arrivals", Number)])),
    ("leases", Struct(&[("open", List(&LEASE))])),
    ("answers", Struct(&[("newest_last", List(&Struct(&[("carrier", Name), ("answer", ANSWER)])))])),
    ("recent", Struct(&[("newest_last", List(&Name))])),
    ("told", Struct(&[("newest_last", List(&NOTIFICATION))])),
    ("releases_all", Flag),
    ("turn", Optional(&Name)),
    ("continuations", Number),
    ("evicted", Map(&Name, &Number)),
]);

const WAKE: Kind =
    Struct(&[("kind", words!["start_turn", "inject_and_continue", "cancel_and_restart"]), ("reason", Name)]);
const SESSION: Kind = Struct(&[
    (
        "harness",
        Struct(&[
            ("name", Optional(&Name)),
            ("version", Optional(&Name)),
            ("workspace", Optional(&Name)),
            ("user", Optional(&Name)),
            ("pid", Optional(&Number)),
            ("parent", Optional(&Name)),
        ]),
    ),
    ("opened_at", Number),
    ("last_seen", Number),
    ("injector", INJECTOR),
    ("former", List(&Name)),
    ("state", words!["idle", "streaming", "tool_pending", "tool_complete", "continuing", "interrupted"]),
    ("is_opening", Flag),
    ("is_cleared", Flag),
    (
        "told",
        Struct(&[
            ("count", Number),
            ("top", Optional(&PRIORITY)),
            ("for_user", Number),
            ("wake", Optional(&WAKE)),
        ]),
    ),
]);

const ENDED: Kind = Map(&Text, &Number);
const TALLY: Kind = Struct(&[
    ("events", Number),
    ("unmatched", Number),
    ("held_back", Number),
    ("created", Number),
    ("injected", Number),
    ("confirmed", Number),
    ("injected_tokens", Number),
    ("raw_bytes", Number),
    ("notifications_ended", ENDED),
    (
        "subscribers",
        Map(
            &Name,
            &Struct(&[
                ("batched", Number),
                ("rows", Number),
                ("created", Number),
                ("injected_tokens", Number),
                ("raw_bytes", Number),
                ("events_ended", ENDED),
            ]),
        ),
    ),
]);

const ENGINE: Kind = Struct(&[
    ("pipelines", Map(&Text, &PIPELINE)),
    (
        "sessions",
        Struct(&[("open", Map(&Name, &SESSION)), ("away", Map(&Name, &SESSION)), ("announced", List(&Name))]),
    ),
    ("unclaimed", Struct(&[("waiting", Map(&Pair(&Number, &Number), &NOTIFICATION)), ("arrivals", Number)])),
    ("lineage", Struct(&[("kept", List(&Pair(&Name, &Number))), ("of_events", Map(&Number, &Number))])),
    (
        "throttle",
        Struct(&[
            (
                "open",
                Map(
                    &Pair(&Name, &words!["causes", "source_rate"]),
                    &Struct(&[
                        ("count", Number),
                        ("first", Name),
                        ("session", Optional(&Name)),
                        ("ends_at", Always(&Number)),
                    ]),
                ),
            ),
            ("rates", Map(&Name, &BUCKET)),
        ]),
    ),
    ("tally", TALLY),
]);

/// The whole state, up to the ledger's entries.
const STATE: Kind =
    Struct(&[("rules", Text), ("applied", Number), ("applied_at", Number), ("engine", ENGINE)]);

/// Converts a state to the present format.
///
/// Errors: the bytes are not a state of format 3.
pub fn to_present(bytes: &[u8]) -> Result<Vec<u8>, Damaged> {
    let mut old =
        Old { bytes, at: 0, texts: Vec::new(), shared: Vec::new(), tables: WrittenTables::default() };
    let mut present = vec![0; LENGTH_BYTES];
    old.pass_on(&STATE, &mut present)?;
    join(present, &old.tables)
}

/// A state that is being read.
struct Old<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The ranges of the names read so far.
    texts: Vec<Range<usize>>,
    /// The table and the number of each shared value read so far.
    shared: Vec<(&'static str, u32)>,
    tables: WrittenTables,
}

const IN_MEMORY: &str = "a vector takes every byte";

impl Old<'_> {
    /// Reads a value of `kind` and appends it in the present format.
    fn pass_on(&mut self, kind: &Kind, to: &mut Vec<u8>) -> Result<(), Damaged> {
        match kind {
            Number => write_number(to, self.number()?),
            Wide => {
                let wide = self.take(16)?.try_into().map_err(|_| self.damaged())?;
                encode::write_bin(to, &u128::from_le_bytes(wide).to_be_bytes()).expect(IN_MEMORY);
            }
            Flag => encode::write_bool(to, self.flag()?).expect(IN_MEMORY),
            Text => {
                let at = self.block()?;
                encode::write_str(to, self.text(at)?).expect(IN_MEMORY);
            }
            Name => {
                let at = self.name()?;
                encode::write_str(to, self.text(at)?).expect(IN_MEMORY);
            }
            Bytes => {
                let at = self.block()?;
                let block = self.bytes.get(at).ok_or_else(|| self.damaged())?;
                encode::write_bin(to, block).expect(IN_MEMORY);
            }
            Optional(kind) => match self.flag()? {
                true => self.pass_on(kind, to)?,
                false => encode::write_nil(to).expect(IN_MEMORY),
            },
            Always(kind) => match self.flag()? {
                true => self.pass_on(kind, to)?,
                false => return Err(self.damaged()),
            },
            List(kind) => {
                let count = self.count()?;
                encode::write_array_len(to, count).expect(IN_MEMORY);
                for _ in 0..count {
                    self.pass_on(kind, to)?;
                }
            }
            Map(key, value) => {
                let count = self.count()?;
                encode::write_map_len(to, count).expect(IN_MEMORY);
                for _ in 0..count {
                    self.pass_on(key, to)?;
                    self.pass_on(value, to)?;
                }
            }
            Pair(a, b) => {
                encode::write_array_len(to, 2).expect(IN_MEMORY);
                self.pass_on(a, to)?;
                self.pass_on(b, to)?;
            }
            Struct(fields) => self.pass_on_fields(fields, to)?,
            Enum(variants) => self.pass_on_variant(variants, to)?,
            Shared(table, kind) => {
                let number = self.shared(table, kind)?;
                write_number(to, u64::from(number));
            }
        }
        Ok(())
    }

    fn pass_on_fields(&mut self, fields: &[(&str, Kind)], to: &mut Vec<u8>) -> Result<(), Damaged> {
        let count = u32::try_from(fields.len()).map_err(|_| self.damaged())?;
        encode::write_map_len(to, count).expect(IN_MEMORY);
        for (name, kind) in fields {
            encode::write_str(to, name).expect(IN_MEMORY);
            self.pass_on(kind, to)?;
        }
        Ok(())
    }

    fn pass_on_variant(
        &mut self,
        variants: &[(&str, Option<Kind>)],
        to: &mut Vec<u8>,
    ) -> Result<(), Damaged> {
        let tag = usize::from(self.byte()?);
        let (name, kind) = variants.get(tag).ok_or_else(|| self.damaged())?;
        if let Some(kind) = kind {
            encode::write_map_len(to, 1).expect(IN_MEMORY);
            encode::write_str(to, name).expect(IN_MEMORY);
            return self.pass_on(kind, to);
        }
        encode::write_str(to, name).expect(IN_MEMORY);
        Ok(())
    }

    /// The number in `table` of the next value, new or repeated.
    fn shared(&mut self, table: &'static str, kind: &Kind) -> Result<u32, Damaged> {
        if let Some(index) = self.known()? {
            let (of, number) = *self.shared.get(index).ok_or_else(|| self.damaged())?;
            return if of == table { Ok(number) } else { Err(self.damaged()) };
        }
        let number = if let Bytes = kind {
            let at = self.block()?;
            let block = self.bytes.get(at).ok_or_else(|| self.damaged())?;
            self.tables.push(table, block)
        } else {
            let mut value = Vec::new();
            self.pass_on(kind, &mut value)?;
            self.tables.push(table, &value)
        };
        self.shared.push((table, number));
        Ok(number)
    }

    fn name(&mut self) -> Result<Range<usize>, Damaged> {
        if let Some(index) = self.known()? {
            return self.texts.get(index).cloned().ok_or_else(|| self.damaged());
        }
        let at = self.block()?;
        self.texts.push(at.clone());
        Ok(at)
    }

    /// The index of the repeated value; `None` if a new one follows.
    fn known(&mut self) -> Result<Option<usize>, Damaged> {
        let number = self.number()?;
        Ok(number.checked_sub(1).map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }

    fn text(&self, at: Range<usize>) -> Result<&str, Damaged> {
        let bytes = self.bytes.get(at).ok_or_else(|| self.damaged())?;
        str::from_utf8(bytes).map_err(|_| self.damaged())
    }

    fn block(&mut self) -> Result<Range<usize>, Damaged> {
        let length = usize::try_from(self.number()?).map_err(|_| self.damaged())?;
        let begin = self.at;
        self.take(length)?;
        Ok(begin..self.at)
    }

    /// The number of items; at most the number of remaining bytes.
    fn count(&mut self) -> Result<u32, Damaged> {
        let count = self.number()?;
        let left = (self.bytes.len() - self.at) as u64;
        u32::try_from(count).ok().filter(|_| count <= left).ok_or_else(|| self.damaged())
    }

    fn flag(&mut self) -> Result<bool, Damaged> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.damaged()),
        }
    }

    fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                return Err(self.damaged());
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.damaged())
    }

    fn byte(&mut self) -> Result<u8, Damaged> {
        match self.take(1)? {
            [byte] => Ok(*byte),
            _ => Err(self.damaged()),
        }
    }

    fn take(&mut self, length: usize) -> Result<&[u8], Damaged> {
        let end = self.at.saturating_add(length);
        if end > self.bytes.len() {
            return Err(self.damaged());
        }
        let begin = std::mem::replace(&mut self.at, end);
        self.bytes.get(begin..end).ok_or_else(|| self.damaged())
    }

    fn damaged(&self) -> Damaged {
        Damaged::new(format!("byte {} is not valid in format 3", self.at))
    }
}

fn write_number(to: &mut Vec<u8>, number: u64) {
    encode::write_uint(to, number).expect(IN_MEMORY);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Scope {
        Session(String),
        Workspace(String),
        All,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Whole {
        scope: Scope,
        things: Vec<u32>,
        at: Option<u64>,
        by: String,
    }

    fn present(kind: &Kind, bytes: &[u8]) -> Result<Vec<u8>, Damaged> {
        let mut old =
            Old { bytes, at: 0, texts: Vec::new(), shared: Vec::new(), tables: WrittenTables::default() };
        let mut to = Vec::new();
        old.pass_on(kind, &mut to).map(|()| to)
    }

    #[test]
    fn values_get_their_names_and_what_stood_before_is_found_again() {
        const THING: Kind = Shared("things", &Struct(&[("name", Name)]));
        const WHOLE: Kind =
            Struct(&[("scope", SCOPE), ("things", List(&THING)), ("at", Optional(&Number)), ("by", POINT)]);
        let scope = [0, 0, 2, b's', b'1'];
        let things = [3, 0, 1, 1, 0, 0, 1, b'x'];
        let rest = [1, 0xac, 2, 4];
        let bytes = present(&WHOLE, &[&scope[..], &things, &rest].concat()).expect("form 3");
        let expected = Whole {
            scope: Scope::Session("s1".into()),
            things: vec![0, 0, 1],
            at: Some(300),
            by: "turn_end".into(),
        };
        assert_eq!(super::super::from_named(&bytes), Ok(expected));
    }

    #[test]
    fn what_nothing_is_written_as_is_damaged() {
        for (kind, bytes) in [
            (Number, &[0xff; 10][..]),
            (Number, &[0x80]),
            (Flag, &[2]),
            (Name, &[1]),
            (Text, &[2, b'a']),
            (List(&Number), &[3, 1]),
            (SEVERITY, &[5]),
            (Always(&Number), &[0]),
        ] {
            assert!(present(&kind, bytes).is_err(), "{kind:?}: {bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_state_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = to_present(&bytes);
        }
    }
}

//! Numbers, texts, times and collections of what is state.
//!
//! Shape: unsigned numbers take seven bits a byte, low bits first, the eighth saying that more follow; a collection is its length
//! and its items in order. A map or set that does not come in the order of its keys is damaged, so that equal state has equal bytes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{Damaged, Reader, Shared, State, Writer};
use crate::time::Timestamp;

/// What is reserved for a collection before its items are read, so that a false length costs no memory.
const RESERVED_MAX: usize = 1_024;

impl State for u64 {
    fn write(&self, to: &mut Writer) {
        let mut left = *self;
        while left >= 0x80 {
            to.tag((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        to.tag(left as u8);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let damaged = from.damaged("a number");
        let mut number = 0;
        for shift in (0..Self::BITS).step_by(7) {
            let byte = from.tag()?;
            let bits = Self::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                return Err(damaged);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(damaged)
    }
}

impl State for u32 {
    fn write(&self, to: &mut Writer) {
        u64::from(*self).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let damaged = from.damaged("a number of 32 bits");
        u64::read(from)?.try_into().map_err(|_| damaged)
    }
}

impl State for usize {
    fn write(&self, to: &mut Writer) {
        (*self as u64).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let damaged = from.damaged("a number of this machine");
        u64::read(from)?.try_into().map_err(|_| damaged)
    }
}

impl State for u128 {
    fn write(&self, to: &mut Writer) {
        to.array(&self.to_le_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        from.array().map(Self::from_le_bytes)
    }
}

impl State for bool {
    fn write(&self, to: &mut Writer) {
        to.tag(u8::from(*self));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let damaged = from.damaged("yes or no");
        match from.tag()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(damaged),
        }
    }
}

impl State for Timestamp {
    fn write(&self, to: &mut Writer) {
        self.as_millis().write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        u64::read(from).map(Self::from_millis)
    }
}

impl State for Duration {
    fn write(&self, to: &mut Writer) {
        (self.as_secs(), self.subsec_nanos()).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let damaged = from.damaged("a duration");
        let (seconds, nanos) = <(u64, u32)>::read(from)?;
        if nanos < 1_000_000_000 { Ok(Self::new(seconds, nanos)) } else { Err(damaged) }
    }
}

/// Texts that no other place has; the bytes are here.
impl State for String {
    fn write(&self, to: &mut Writer) {
        to.block(self.as_bytes());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let damaged = from.damaged("a text");
        str::from_utf8(from.block()?).map(Into::into).map_err(|_| damaged)
    }
}

impl State for Arc<str> {
    fn write(&self, to: &mut Writer) {
        to.text(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        from.text()
    }
}

impl State for Arc<[u8]> {
    fn write(&self, to: &mut Writer) {
        to.block(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        from.block().map(Into::into)
    }
}

impl<T: Shared> State for Arc<T> {
    fn write(&self, to: &mut Writer) {
        to.shared(self);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        from.shared()
    }
}

impl<T: State> State for Option<T> {
    fn write(&self, to: &mut Writer) {
        to.tag(u8::from(self.is_some()));
        if let Some(value) = self {
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok(if bool::read(from)? { Some(T::read(from)?) } else { None })
    }
}

impl<A: State, B: State> State for (A, B) {
    fn write(&self, to: &mut Writer) {
        let (a, b) = self;
        a.write(to);
        b.write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

impl<T: State> State for Vec<T> {
    fn write(&self, to: &mut Writer) {
        to.length(self.len());
        self.iter().for_each(|item| item.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let length = from.length()?;
        let mut items = Self::with_capacity(length.min(RESERVED_MAX));
        for _ in 0..length {
            items.push(T::read(from)?);
        }
        Ok(items)
    }
}

impl<T: State> State for VecDeque<T> {
    fn write(&self, to: &mut Writer) {
        to.length(self.len());
        self.iter().for_each(|item| item.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        Vec::read(from).map(Self::from)
    }
}

impl<K: State + Ord, V: State> State for BTreeMap<K, V> {
    fn write(&self, to: &mut Writer) {
        to.length(self.len());
        for (key, value) in self {
            key.write(to);
            value.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let pairs = <Vec<(K, V)>>::read(from)?;
        let is_sorted = pairs.is_sorted_by(|(before, _), (after, _)| before < after);
        if is_sorted { Ok(pairs.into_iter().collect()) } else { Err(from.damaged("in order")) }
    }
}

impl<T: State + Ord> State for BTreeSet<T> {
    fn write(&self, to: &mut Writer) {
        to.length(self.len());
        self.iter().for_each(|item| item.write(to));
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let items = <Vec<T>>::read(from)?;
        let is_sorted = items.is_sorted_by(|before, after| before < after);
        if is_sorted { Ok(items.into_iter().collect()) } else { Err(from.damaged("in order")) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type All = ((u64, u32), (BTreeMap<Vec<u64>, bool>, (BTreeSet<u32>, (Option<String>, (u128, Duration)))));

    proptest! {
        #[test]
        fn what_was_written_is_read(numbers in any::<(u64, u32)>(), map in any::<BTreeMap<Vec<u64>, bool>>(),
            set in any::<BTreeSet<u32>>(), text in any::<Option<String>>(), rest in any::<(u128, Duration)>()) {
            let all: All = (numbers, (map, (set, (text, rest))));
            let mut writer = Writer::default();
            all.write(&mut writer);
            let bytes = writer.finish();
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(All::read(&mut reader), Ok(all));
            prop_assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn what_nothing_is_written_as_is_damaged() {
        let number = |bytes: &[u8]| u64::read(&mut Reader::new(bytes)).is_err();
        assert!(number(&[0xff; 10]) && number(&[0x80]) && number(&[]));
        assert!(!number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]));
        assert!(u32::read(&mut Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x7f])).is_err());
        assert!(bool::read(&mut Reader::new(&[2])).is_err());
        assert!(<BTreeSet<u32>>::read(&mut Reader::new(&[2, 5, 5])).is_err());
        assert!(<Vec<u32>>::read(&mut Reader::new(&[0xff, 0xff, 3, 1])).is_err());
    }
}

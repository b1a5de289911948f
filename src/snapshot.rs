//! State as bytes: what a snapshot is written with and read by.
//!
//! A part of the engine says with [`State`] how it is written and how it is read again; mostly by a list of its fields in
//! `state!`, which holds for both directions, so that a field that is added and not listed does not compile. What stands in
//! several places (a notification in the queues of many sessions, a session's name) is written once and shared again when it is
//! read; equal state has equal bytes. There are no names and no versions in the bytes: whoever keeps them says which form they have. What is read is
//! not trusted: any bytes give a value or [`Damaged`], and nothing is reserved for a length that the bytes left cannot hold.
//!
//! ```
//! use aside::snapshot::{Reader, State, Writer};
//!
//! let mut writer = Writer::default();
//! (7_u64, Some(true)).write(&mut writer);
//! let bytes = writer.finish();
//! assert_eq!(bytes, [7, 1, 1]);
//! assert_eq!(<(u64, Option<bool>)>::read(&mut Reader::new(&bytes)), Ok((7, Some(true))));
//! ```

mod basic;

use std::{
    any::Any,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

/// Something that a snapshot holds.
pub trait State: Sized {
    /// Appends it.
    fn write(&self, to: &mut Writer);

    /// Reads what [`State::write`] appended.
    ///
    /// Errors: the bytes are not what a value of this type is written as.
    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged>;
}

/// State that stands in several places behind an `Arc`: written once, and one value again when it is read.
pub trait Shared: State + Any + Send + Sync {}

/// Bytes that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of the state is not {expected}")]
pub struct Damaged {
    /// Where, counted from the first byte of the state.
    pub at: usize,
    /// What should be there.
    pub expected: &'static str,
}

/// Takes state in.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// The number of each text that was written.
    texts: HashMap<Arc<str>, u64>,
    /// The same by the addresses at which it was met, which is faster to ask.
    text_addresses: HashMap<usize, u64, Addresses>,
    /// The same of what is [`Shared`].
    things: HashMap<usize, u64, Addresses>,
    /// Keeps what has a number, so that no address is used again.
    kept_texts: Vec<Arc<str>>,
    kept_things: Vec<Arc<dyn Any + Send + Sync>>,
}

/// Gives state out, in the order in which it was written.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    texts: Vec<Arc<str>>,
    things: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Writer {
    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends which variant follows.
    pub fn tag(&mut self, tag: u8) {
        self.bytes.push(tag);
    }

    /// Appends bytes with their length.
    pub fn block(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends how many follow.
    pub fn length(&mut self, length: usize) {
        (length as u64).write(self);
    }

    fn array(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &Arc<str>) {
        let address = text.as_ptr() as usize;
        if let Some(number) = self.text_addresses.get(&address).copied() {
            return number.write(self);
        }
        self.kept_texts.push(Arc::clone(text));
        let known = self.texts.get(text).copied();
        let number = known.unwrap_or(self.texts.len() as u64 + 1);
        self.text_addresses.insert(address, number);
        if known.is_some() {
            return number.write(self);
        }
        0_u64.write(self);
        self.block(text.as_bytes());
        self.texts.insert(Arc::clone(text), number);
    }

    fn shared<T: Shared>(&mut self, thing: &Arc<T>) {
        let address = Arc::as_ptr(thing) as usize;
        if let Some(number) = self.things.get(&address).copied() {
            return number.write(self);
        }
        0_u64.write(self);
        T::write(thing, self);
        let thing: Arc<T> = Arc::clone(thing);
        self.kept_things.push(thing);
        self.things.insert(address, self.kept_things.len() as u64);
    }
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from their beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, texts: Vec::new(), things: Vec::new() }
    }

    /// The error that here should be something else.
    pub fn damaged(&self, expected: &'static str) -> Damaged {
        Damaged { at: self.at, expected }
    }

    /// Which variant follows.
    ///
    /// Errors: nothing follows.
    pub fn tag(&mut self) -> Result<u8, Damaged> {
        let [tag] = self.array()?;
        Ok(tag)
    }

    /// Bytes that were written with their length.
    ///
    /// Errors: there are not as many.
    pub fn block(&mut self) -> Result<&'a [u8], Damaged> {
        let length = self.length()?;
        self.take(length)
    }

    /// How many follow; never more than there are bytes left.
    ///
    /// Errors: no number follows, or one that is larger.
    pub fn length(&mut self) -> Result<usize, Damaged> {
        let damaged = self.damaged("a length within the state");
        let length = usize::try_from(u64::read(self)?).map_err(|_| damaged)?;
        if length > self.bytes.len() - self.at { Err(damaged) } else { Ok(length) }
    }

    /// Says that everything was read.
    ///
    /// Errors: something follows.
    pub fn end(&self) -> Result<(), Damaged> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.damaged("the end")) }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Damaged> {
        let end = self.at.saturating_add(length);
        let taken = self.bytes.get(self.at..end).ok_or(self.damaged("as long as it says"))?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let damaged = self.damaged("as long as it says");
        self.take(N)?.try_into().map_err(|_| damaged)
    }

    fn text(&mut self) -> Result<Arc<str>, Damaged> {
        let damaged = self.damaged("a text");
        if let Some(number) = self.number()? {
            return self.texts.get(number).cloned().ok_or(damaged);
        }
        let text: Arc<str> = str::from_utf8(self.block()?).map_err(|_| damaged)?.into();
        self.texts.push(Arc::clone(&text));
        Ok(text)
    }

    fn shared<T: Shared>(&mut self) -> Result<Arc<T>, Damaged> {
        let damaged = self.damaged("something that stands before it");
        if let Some(number) = self.number()? {
            let thing = self.things.get(number).cloned().ok_or(damaged)?;
            return Arc::downcast(thing).map_err(|_| damaged);
        }
        let thing = Arc::new(T::read(self)?);
        self.things.push(Arc::<T>::clone(&thing));
        Ok(thing)
    }

    /// The number of what was read before; `None` if it follows itself.
    fn number(&mut self) -> Result<Option<usize>, Damaged> {
        let number = u64::read(self)?;
        Ok(number.checked_sub(1).map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }
}

/// Says how a type is written and read: a struct as the list of its fields, an enum as its variants with a number each and the list
/// of what is in them, a struct of one unnamed field as that.
///
/// Both directions come from one list that has to name everything, so nothing can be forgotten or swapped.
macro_rules! state {
    ($name:ty { $($field:ident),+ $(,)? }) => {
        impl $crate::snapshot::State for $name {
            fn write(&self, to: &mut $crate::snapshot::Writer) {
                let Self { $($field),+ } = self;
                $($crate::snapshot::State::write($field, to);)+
            }

            fn read(
                from: &mut $crate::snapshot::Reader<'_>,
            ) -> Result<Self, $crate::snapshot::Damaged> {
                Ok(Self { $($field: $crate::snapshot::State::read(from)?),+ })
            }
        }
    };
    ($name:ty [ $($variant:ident $(($unnamed:ident))? $({ $($field:ident),+ })? = $tag:literal),+ $(,)? ]) => {
        impl $crate::snapshot::State for $name {
            fn write(&self, to: &mut $crate::snapshot::Writer) {
                match self {
                    $(Self::$variant $(($unnamed))? $({ $($field),+ })? => {
                        to.tag($tag);
                        $($crate::snapshot::State::write($unnamed, to);)?
                        $($($crate::snapshot::State::write($field, to);)+)?
                    })+
                }
            }

            fn read(
                from: &mut $crate::snapshot::Reader<'_>,
            ) -> Result<Self, $crate::snapshot::Damaged> {
                let damaged = from.damaged(concat!("a ", stringify!($name)));
                Ok(match from.tag()? {
                    $($tag => {
                        $(let $unnamed = $crate::snapshot::State::read(from)?;)?
                        Self::$variant
                            $(($unnamed))?
                            $({ $($field: $crate::snapshot::State::read(from)?),+ })?
                    })+
                    _ => return Err(damaged),
                })
            }
        }
    };
    ($name:ty) => {
        impl $crate::snapshot::State for $name {
            fn write(&self, to: &mut $crate::snapshot::Writer) {
                let Self(inner) = self;
                $crate::snapshot::State::write(inner, to);
            }

            fn read(
                from: &mut $crate::snapshot::Reader<'_>,
            ) -> Result<Self, $crate::snapshot::Damaged> {
                $crate::snapshot::State::read(from).map(Self)
            }
        }
    };
}
pub(crate) use state;

type Addresses = BuildHasherDefault<AddressHasher>;

/// Spreads addresses, which nobody chooses and of which the low bits say little.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        // An odd number with about as many ones as zeros; the high half of the product depends on every bit.
        let mixed = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Part {
        name: Arc<str>,
        count: u64,
    }

    state!(Part { name, count });
    impl Shared for Part {}

    type Whole = (Vec<Arc<Part>>, Option<Arc<str>>);

    fn written(whole: &Whole) -> Vec<u8> {
        let mut writer = Writer::default();
        whole.write(&mut writer);
        writer.finish()
    }

    fn read(bytes: &[u8]) -> Result<Whole, Damaged> {
        let mut reader = Reader::new(bytes);
        let whole = Whole::read(&mut reader)?;
        reader.end().map(|()| whole)
    }

    #[test]
    fn what_stands_in_several_places_is_written_once_and_shared_again() {
        let name: Arc<str> = "a name of some length".into();
        let part = Arc::new(Part { name: Arc::clone(&name), count: 300 });
        let equal = Arc::new(Part { name: name.as_ref().into(), count: 300 });
        let whole = (vec![Arc::clone(&part), equal, part], Some(name));
        let bytes = written(&whole);
        let [one, again] = [1 + 1 + 1 + 21 + 2, 1 + 1 + 2];
        assert_eq!(bytes.len(), 1 + one + again + 1 + 1 + 1);
        let (parts, name) = read(&bytes).expect("just written");
        assert_eq!((&parts, &name), (&whole.0, &whole.1));
        assert!(Arc::ptr_eq(&parts[0], &parts[2]) && !Arc::ptr_eq(&parts[0], &parts[1]));
        assert!(name.is_some_and(|name| Arc::ptr_eq(&name, &parts[0].name)));
        assert_eq!(written(&read(&bytes).expect("just written")), bytes);
    }

    #[test]
    fn a_number_of_another_kind_of_thing_is_damage() {
        let bytes = [0, 0, 1, b'a', 5, 1];
        let mut reader = Reader::new(&bytes);
        <Arc<Part>>::read(&mut reader).expect("a part");
        assert_eq!(<Arc<u64>>::read(&mut reader).map_err(|damaged| damaged.at), Err(5));
    }

    impl Shared for u64 {}

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(whole) = read(&bytes) {
                prop_assert_eq!(read(&written(&whole)), Ok(whole));
            }
        }

        #[test]
        fn what_is_cut_is_damaged(count in any::<u64>(), end in any::<prop::sample::Index>()) {
            let bytes = written(&(vec![Arc::new(Part { name: "n".into(), count })], Some("x".into())));
            prop_assert!(read(&bytes[..end.index(bytes.len())]).is_err());
        }
    }
}

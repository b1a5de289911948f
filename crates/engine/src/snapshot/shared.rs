//! Values in several places of a state: encoded once, and one value again after decoding.
//!
//! A derived implementation passes no context from field to field, so a thread-local variable holds
//! the tables of the state that is being encoded or decoded. They exist only while [`super::write`]
//! or [`super::read`] runs.

use std::{any::Any, cell::RefCell, collections::HashSet, convert::Infallible, ops::Range, sync::Arc};

use hashbrown::HashMap;
use minicbor::{Decoder, Encoder};
use minicbor_serde::error::{DecodeError, EncodeError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::sorted::SortedMap;

/// A type whose values occur in several places. It contains no shared values itself.
pub trait Shared: Any + Send + Sync + Sized {
    /// The name of the table for its values.
    const TABLE: &'static str;

    /// Appends the value.
    ///
    /// Errors: it cannot be encoded.
    fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), Damaged>;

    /// Decodes the output of [`Shared::append_to`].
    ///
    /// Errors: the bytes are invalid.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged>;
}

/// Encodes a reference: the number of the value in its table.
pub fn serialize<T: Shared, S: Serializer>(thing: &Arc<T>, to: S) -> Result<S::Ok, S::Error> {
    let number = TABLES.with_borrow_mut(|tables| tables.written.number(thing)).map_err(ser::Error::custom)?;
    number.serialize(to)
}

/// Decodes a reference.
pub fn deserialize<'de, T: Shared, D: Deserializer<'de>>(from: D) -> Result<Arc<T>, D::Error> {
    resolve(u32::deserialize(from)?).map_err(de::Error::custom)
}

/// References in a list.
pub mod list {
    use super::{Arc, Deserialize, Deserializer, Ref, Serializer, Shared};

    /// Encodes the references in order.
    pub fn serialize<'a, C, T, S>(things: &'a C, to: S) -> Result<S::Ok, S::Error>
    where
        &'a C: IntoIterator<Item = &'a Arc<T>>,
        T: Shared,
        S: Serializer,
    {
        // A list is encoded with its length, which not every iterator has.
        let things: Vec<Ref<T>> = things.into_iter().map(|thing| Ref(Arc::clone(thing))).collect();
        to.collect_seq(things)
    }

    /// Decodes the output of `serialize`.
    pub fn deserialize<'de, C, T, D>(from: D) -> Result<C, D::Error>
    where
        C: FromIterator<Arc<T>>,
        T: Shared,
        D: Deserializer<'de>,
    {
        let things = <Vec<Ref<T>>>::deserialize(from)?;
        Ok(things.into_iter().map(|Ref(thing)| thing).collect())
    }
}

/// A reference on its own.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "T: Shared")]
struct Ref<T>(#[serde(with = "self")] Arc<T>);

thread_local! {
    static TABLES: RefCell<Tables> = RefCell::default();
}

/// The shared values of the state being encoded, and of the one being decoded.
#[derive(Default)]
struct Tables {
    written: WrittenTables,
    /// `None` while nothing is decoded.
    read: Option<ReadTables>,
}

/// The tables of a state being encoded, by name.
#[derive(Debug, Default)]
pub(super) struct WrittenTables(SortedMap<&'static str, WrittenTable>);

#[derive(Debug, Default)]
struct WrittenTable {
    /// The number of each value, by its address; the values outlive the encoding.
    numbers: HashMap<usize, u32>,
    count: u32,
    /// The values, each as a block.
    blocks: Vec<u8>,
    /// Holds an encoded value before its length is known.
    scratch: Vec<u8>,
}

impl WrittenTables {
    fn number<T: Shared>(&mut self, thing: &Arc<T>) -> Result<u32, Damaged> {
        let table = self.0.get_or_default(T::TABLE);
        let address = Arc::as_ptr(thing) as usize;
        if let Some(number) = table.numbers.get(&address) {
            return Ok(*number);
        }
        table.scratch.clear();
        thing.append_to(&mut table.scratch)?;
        let number = table.push();
        table.numbers.insert(address, number);
        Ok(number)
    }

    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        let in_memory = "a vector takes every byte";
        Encoder::new(&mut *bytes).map(self.0.len() as u64).expect(in_memory);
        for (name, table) in &self.0 {
            let mut head = Encoder::new(&mut *bytes);
            head.str(name).and_then(|head| head.array(table.count.into())).expect(in_memory);
            bytes.extend_from_slice(&table.blocks);
        }
    }
}

impl WrittenTable {
    fn push(&mut self) -> u32 {
        Encoder::new(&mut self.blocks).bytes(&self.scratch).expect("a vector takes every byte");
        let number = self.count;
        self.count += 1;
        number
    }
}

/// The tables of a state being decoded.
pub(super) struct ReadTables {
    bytes: Vec<u8>,
    tables: SortedMap<String, Vec<Slot>>,
    texts: HashSet<Arc<str>>,
}

/// A value of a table: its range, and the decoded value.
struct Slot {
    at: Range<usize>,
    read: Option<Arc<dyn Any + Send + Sync>>,
}

impl ReadTables {
    /// Finds the values; decodes none of them.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Damaged> {
        let damaged = || Damaged::new("its tables cannot be read");
        let mut from = Decoder::new(bytes);
        let mut tables = SortedMap::new();
        for _ in 0..from.map().ok().flatten().ok_or_else(damaged)? {
            let name = from.str().map_err(|_| Damaged::new("a table has no name"))?.to_owned();
            let mut slots = Vec::new();
            for _ in 0..from.array().ok().flatten().ok_or_else(damaged)? {
                let value = from.bytes().map_err(|_| Damaged::new("a table is truncated"))?;
                let end = from.position();
                slots.push(Slot { at: end - value.len()..end, read: None });
            }
            tables.insert(name, slots);
        }
        if from.position() != bytes.len() {
            return Err(Damaged::new("trailing bytes after its tables"));
        }
        Ok(Self { bytes: bytes.to_vec(), tables, texts: HashSet::new() })
    }

    fn slot(&mut self, table: &str, number: u32) -> Result<&mut Slot, Damaged> {
        let slots = self.tables.get_mut(table);
        let slot = slots.and_then(|slots| slots.get_mut(usize::try_from(number).ok()?));
        slot.ok_or_else(|| Damaged::new(format!("there is no {table} {number}")))
    }
}

/// The value of a reference; decoded at its first use.
fn resolve<T: Shared>(number: u32) -> Result<Arc<T>, Damaged> {
    let no_state = || Damaged::new("there is no state around it");
    let known = TABLES.with_borrow_mut(|tables| {
        let slot = tables.read.as_mut().ok_or_else(no_state)?.slot(T::TABLE, number)?;
        Ok::<_, Damaged>(slot.read.clone().ok_or_else(|| slot.at.clone()))
    })?;
    let at = match known {
        Ok(thing) => {
            return Arc::downcast(thing).map_err(|_| Damaged::new("a table has two kinds of values"));
        }
        Err(at) => at,
    };
    // The bytes are taken out meanwhile, because decoding the value looks up texts in the tables.
    let bytes =
        TABLES.with_borrow_mut(|tables| tables.read.as_mut().map(|read| std::mem::take(&mut read.bytes)));
    let bytes = bytes.ok_or_else(no_state)?;
    let thing = bytes.get(at).ok_or_else(|| Damaged::new("a table is truncated")).and_then(T::from_bytes);
    TABLES.with_borrow_mut(|tables| {
        let read = tables.read.as_mut().ok_or_else(no_state)?;
        read.bytes = bytes;
        let thing = Arc::new(thing?);
        read.slot(T::TABLE, number)?.read = Some(Arc::<T>::clone(&thing));
        Ok(thing)
    })
}

/// Returns one shared text for equal ones, while a state is decoded.
pub(super) fn text(text: &str) -> Arc<str> {
    TABLES.with_borrow_mut(|tables| {
        let Some(read) = &mut tables.read else { return text.into() };
        if let Some(known) = read.texts.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        read.texts.insert(Arc::clone(&text));
        text
    })
}

/// Runs `write`; returns the tables of shared values.
pub(super) fn while_writing<R>(write: impl FnOnce() -> R) -> (R, WrittenTables) {
    TABLES.with_borrow_mut(|tables| tables.written = WrittenTables::default());
    let written = write();
    (written, TABLES.with_borrow_mut(|tables| std::mem::take(&mut tables.written)))
}

/// Runs `read` with the tables of shared values.
pub(super) fn while_reading<R>(shared: ReadTables, read: impl FnOnce() -> R) -> R {
    TABLES.with_borrow_mut(|tables| tables.read = Some(shared));
    let read = read();
    TABLES.with_borrow_mut(|tables| tables.read = None);
    read
}

/// Invalid bytes, or state that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state is damaged: {0}")]
pub struct Damaged(String);

impl Damaged {
    /// Creates the error; `what` is a lowercase fragment.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl From<EncodeError<Infallible>> for Damaged {
    fn from(error: EncodeError<Infallible>) -> Self {
        Self(error.to_string())
    }
}

impl From<DecodeError> for Damaged {
    fn from(error: DecodeError) -> Self {
        Self(error.to_string())
    }
}

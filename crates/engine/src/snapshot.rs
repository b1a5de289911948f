//! The encoding of state in snapshots.
//!
//! Shape: CBOR ([RFC 8949](https://www.rfc-editor.org/rfc/rfc8949)) in which every struct field and
//! enum variant has its name. The types of the state derive `serde::Serialize` and `serde::Deserialize`, so a later
//! version can read an earlier one's state: `#[serde(default)]` sets a field that it added,
//! `#[serde(alias = "..")]` names one that it renamed, and a field that it removed is ignored. State
//! is kept in ordered collections, so equal state has equal bytes; an index of other state is left
//! out and rebuilt.
//!
//! A value in several places behind an `Arc` ([`Shared`]) is written once, into a table of its
//! type, and referred to by its number in that table: a field of the type `Arc<T>` has
//! `#[serde(with = "snapshot::shared")]`. The order in which places are read does not matter, so a
//! field with such a number may be removed too.
//!
//! Input is not trusted: any bytes result in a value or [`Damaged`].
//!
//! ```
//! use aside_engine::snapshot;
//!
//! let bytes = snapshot::write(&(7_u64, Some(true)))?;
//! assert_eq!(snapshot::read::<(u64, Option<bool>)>(&bytes)?, (7, Some(true)));
//! # Ok::<(), snapshot::Damaged>(())
//! ```

pub mod shared;

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use self::shared::{ReadTables, WrittenTables};

pub use self::shared::{Damaged, Shared};

/// The size of the value's length, which precedes it; the tables follow it.
const LENGTH_BYTES: usize = 8;

/// Encodes `state`, followed by the tables of shared values.
///
/// Errors: a type of the state cannot be encoded.
pub fn write<T: Serialize>(state: &T) -> Result<Vec<u8>, Damaged> {
    let mut bytes = vec![0; LENGTH_BYTES];
    let (written, tables) = shared::while_writing(|| append_named(state, &mut bytes));
    written?;
    join(bytes, &tables)
}

/// Decodes the output of [`write()`].
///
/// Errors: the bytes are not an encoded `T`.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damaged> {
    let cut = || Damaged::new("it is truncated");
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().ok_or_else(cut)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut())?;
    let (value, tables) = rest.split_at_checked(length).ok_or_else(cut)?;
    shared::while_reading(ReadTables::read(tables)?, || from_named(value))
}

/// Appends a value with the names of its fields.
///
/// Errors: its type cannot be encoded.
pub fn append_named<T: Serialize>(value: &T, to: &mut Vec<u8>) -> Result<(), Damaged> {
    value.serialize(&mut minicbor_serde::Serializer::new(to))?;
    Ok(())
}

/// Decodes a value that is all of `bytes`.
///
/// Errors: the bytes are not an encoded `T`.
pub fn from_named<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damaged> {
    let mut reader = minicbor_serde::Deserializer::new(bytes);
    let value = T::deserialize(&mut reader)?;
    let is_whole = reader.decoder().position() == bytes.len();
    if is_whole { Ok(value) } else { Err(Damaged::new("trailing bytes")) }
}

/// Appends the tables to a value, and fills in the reserved length before it.
fn join(mut bytes: Vec<u8>, tables: &WrittenTables) -> Result<Vec<u8>, Damaged> {
    let length = (bytes.len() - LENGTH_BYTES) as u64;
    let head = bytes.first_chunk_mut::<LENGTH_BYTES>().ok_or_else(|| Damaged::new("it has no length"))?;
    *head = length.to_le_bytes();
    tables.append_to(&mut bytes);
    Ok(bytes)
}

/// A value or a reference to one; encoded as the value.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Held<'a, T> {
    /// For encoding.
    Borrowed(&'a T),
    /// After decoding.
    Owned(T),
}

impl<T> Held<'_, T> {
    /// The decoded value.
    ///
    /// # Panics
    ///
    /// When it is borrowed.
    pub fn into_owned(self) -> T {
        match self {
            Self::Owned(value) => value,
            Self::Borrowed(_) => panic!("only a decoded value is owned"),
        }
    }
}

impl<T: Default> Default for Held<'_, T> {
    fn default() -> Self {
        Self::Owned(T::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Held<'_, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Self::Owned)
    }
}

pub mod bytes {
    //! Opaque bytes, for `#[serde(with = "snapshot::bytes")]`: one block instead of a list of numbers.

    use std::{fmt, marker::PhantomData};

    use serde::{Deserializer, Serializer, de};

    /// Encodes the bytes.
    pub fn serialize<T: AsRef<[u8]>, S: Serializer>(bytes: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes.as_ref())
    }

    /// Decodes the output of [`serialize`].
    pub fn deserialize<'de, T: for<'a> From<&'a [u8]>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        from.deserialize_bytes(Visitor(PhantomData))
    }

    struct Visitor<T>(PhantomData<T>);

    impl<T: for<'a> From<&'a [u8]>> de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<T, E> {
            Ok(T::from(bytes))
        }
    }
}

pub mod text {
    //! Repeated texts, for `#[serde(deserialize_with = "snapshot::text::read")]`: equal ones are one
    //! text after decoding.

    use std::{fmt, sync::Arc};

    use serde::{Deserializer, de};

    use super::shared;

    /// Decodes a text; shares an equal one read this way from the same state.
    pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        from.deserialize_str(Visitor)
    }

    struct Visitor;

    impl de::Visitor<'_> for Visitor {
        type Value = Arc<str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Arc<str>, E> {
            Ok(shared::text(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::Arc,
    };

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;
    use crate::sorted::{SortedMap, SortedSet};

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Part {
        #[serde(deserialize_with = "text::read")]
        name: Arc<str>,
        count: u64,
    }

    impl Shared for Part {
        const TABLE: &'static str = "parts";

        fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), Damaged> {
            append_named(self, bytes)
        }

        fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
            from_named(bytes)
        }
    }

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Whole {
        #[serde(with = "shared::list")]
        parts: Vec<Arc<Part>>,
        #[serde(with = "shared")]
        last: Arc<Part>,
        named: BTreeMap<u64, String>,
        #[serde(with = "bytes")]
        key: Box<[u8]>,
        wide: u128,
        set: BTreeSet<Option<String>>,
    }

    fn part(name: &str, count: u64) -> Arc<Part> {
        Arc::new(Part { name: name.into(), count })
    }

    fn whole(count: u64) -> Whole {
        let [one, equal] = [part("a name of some length", count), part("a name of some length", count)];
        Whole {
            parts: vec![Arc::clone(&one), equal, Arc::clone(&one)],
            last: one,
            named: [(7, "seven".to_owned())].into(),
            key: [1, 2, 255].into(),
            wide: u128::from(u64::MAX) + 1,
            set: [None, Some("x".to_owned())].into(),
        }
    }

    #[test]
    fn shared_values_are_written_once_and_stay_shared() {
        let bytes = write(&whole(300)).expect("written");
        let name = b"a name of some length";
        assert_eq!(bytes.windows(name.len()).filter(|window| window == name).count(), 2);
        let again: Whole = read(&bytes).expect("just written");
        assert_eq!(again, whole(300));
        assert!(Arc::ptr_eq(&again.parts[0], &again.parts[2]) && Arc::ptr_eq(&again.parts[0], &again.last));
        assert!(!Arc::ptr_eq(&again.parts[0], &again.parts[1]));
        assert!(Arc::ptr_eq(&again.parts[0].name, &again.parts[1].name), "equal texts are one");
        assert_eq!(write(&again).expect("written"), bytes);
    }

    /// The form after [`Whole`]: one field renamed, one added, the others removed.
    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Later {
        #[serde(with = "shared", alias = "last")]
        newest: Arc<Part>,
        #[serde(default)]
        added: u32,
    }

    #[test]
    fn a_sorted_vector_is_encoded_as_a_tree() {
        let entries = [(7_u64, "seven"), (2, "two"), (300, "many")];
        let map: SortedMap<u64, String> = entries.map(|(key, value)| (key, value.to_owned())).into();
        let bytes = write(&map).expect("written");
        assert_eq!(bytes, write(&BTreeMap::from(entries)).expect("written"));
        assert_eq!(read::<SortedMap<u64, String>>(&bytes), Ok(map));
        let set: SortedSet<u64> = entries.map(|(key, _)| key).into();
        let bytes = write(&set).expect("written");
        assert_eq!(bytes, write(&BTreeSet::from(entries.map(|(key, _)| key))).expect("written"));
        assert_eq!(read::<SortedSet<u64>>(&bytes), Ok(set));
    }

    #[test]
    fn a_later_form_reads_the_form_before_it() {
        let later: Later = read(&write(&whole(1)).expect("written")).expect("it has what is needed");
        assert_eq!(later, Later { newest: part("a name of some length", 1), added: 0 });
    }

    #[test]
    fn a_number_that_no_table_has_is_damage() {
        let cut = WrittenTables::default();
        let mut bytes = vec![0; LENGTH_BYTES];
        append_named(&[("last", 0)].into_iter().collect::<BTreeMap<_, _>>(), &mut bytes).expect("written");
        let bytes = join(bytes, &cut).expect("joined");
        let damaged = read::<Later>(&bytes).expect_err("there is no such part").to_string();
        assert!(damaged.contains("parts 0"), "{damaged}");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let framed = [&(bytes.len() as u64).to_le_bytes()[..], &bytes, &[0xa0]].concat();
            for bytes in [&bytes, &framed] {
                if let Ok(whole) = read::<Whole>(bytes) {
                    prop_assert_eq!(read::<Whole>(&write(&whole).expect("read")), Ok(whole));
                }
            }
        }

        #[test]
        fn a_truncated_snapshot_is_damaged(count in any::<u64>(), end in any::<prop::sample::Index>()) {
            let bytes = write(&whole(count)).expect("written");
            prop_assert!(read::<Whole>(&bytes[..end.index(bytes.len())]).is_err());
        }
    }
}

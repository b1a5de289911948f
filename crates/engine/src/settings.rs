//! Settings of modules that read no files. A module declares its keys and their limits with
//! `settings!`, and reads the written values from [`Keys`]. The macro `sources!` combines the
//! settings of all sources in a table into those of `[sources]` in `aside.toml`.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use crate::words::Words;

/// The name of a key.
type Name = &'static str;

/// A table of `aside.toml`, from which each key is read once.
///
/// Shape: `None` for an absent or invalid value. An invalid one is reported with its place in the
/// file.
pub trait Keys {
    /// `true` or `false`.
    fn flag(&mut self, key: Name) -> Option<bool>;
    /// `true`, `false` or `"auto"`.
    fn switch(&mut self, key: Name) -> Option<Switch>;
    /// An integer.
    fn number(&mut self, key: Name, limits: RangeInclusive<u32>) -> Option<u32>;
    /// A duration, which is written with its unit.
    fn duration(&mut self, key: Name, limits: RangeInclusive<Duration>) -> Option<Duration>;
    /// One of the words for the values of an enum.
    fn word<T: Words>(&mut self, key: Name) -> Option<T>;
    /// A text of the form `form`.
    fn text<T>(&mut self, key: Name, form: &Form<T>) -> Option<T>;
    /// At most `max` texts of the form `form`.
    fn texts<T>(&mut self, key: Name, form: &Form<T>, max: usize) -> Option<Vec<T>>;
    /// Rising integers, at least one and at most `max`; `note` describes them for an error.
    fn rising(&mut self, key: Name, limits: RangeInclusive<u8>, max: usize, note: &str) -> Option<Vec<u8>>;
    /// The tables in the table under `key`, at most `max`, each with a name chosen by the user and
    /// read by `read`.
    fn named<T>(&mut self, key: Name, max: usize, read: fn(&mut Self) -> T) -> Vec<(Arc<str>, T)>;
    /// A text that `parse` converts; its error is reported.
    fn parsed<T>(&mut self, key: Name, parse: fn(&str) -> Result<T, String>) -> Option<T>;
    /// The same for a required key.
    fn needed<T>(&mut self, key: Name, parse: fn(&str) -> Result<T, String>) -> Option<T>;
    /// The tables of a list, at most [`ENTRIES_MAX`], each with a unique name.
    fn entries<T: Entry>(&mut self) -> Vec<T>;
}

/// Most tables of a list: more than a person writes, and few enough that each may have a task.
pub const ENTRIES_MAX: usize = 32;
/// Longest name of an entry, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Longest other text of an entry, in characters.
const TEXT_CHARS_MAX: usize = 512;

/// One table of a list, such as `[[sources.log]]`.
pub trait Entry: Sized {
    /// Reads its keys; `None` if a required one is absent or invalid, which is reported.
    fn read(keys: &mut impl Keys) -> Option<Self>;
    /// Its unique name in the list. An entry of a later file replaces an earlier one of the same
    /// name.
    fn name(&self) -> &str;
}

/// The settings of a source with a list of tables. The source is on if the list is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries<T> {
    /// Whether the list has an entry.
    pub enabled: bool,
    /// All entries, in the written order.
    pub list: Arc<[T]>,
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { enabled: false, list: Arc::new([]) }
    }
}

impl<T: Entry> Entries<T> {
    /// Reads the list.
    pub fn read(keys: &mut impl Keys) -> Self {
        let list: Arc<[T]> = keys.entries().into();
        Self { enabled: !list.is_empty(), list }
    }
}

/// Reads the name of an entry: one line of at most `NAME_CHARS_MAX` characters.
pub fn entry_name(text: &str) -> Result<Arc<str>, String> {
    line(text, NAME_CHARS_MAX)
}

/// Reads a text of an entry: one line of at most `TEXT_CHARS_MAX` characters.
pub fn entry_text(text: &str) -> Result<Arc<str>, String> {
    line(text, TEXT_CHARS_MAX)
}

fn line(text: &str, max: usize) -> Result<Arc<str>, String> {
    if text.chars().any(char::is_control) {
        return Err("it has a line break or another control character".to_owned());
    }
    match text.chars().count() {
        count if count > max => Err(format!("it has {count} characters; {max} are allowed")),
        _ => Ok(text.into()),
    }
}

/// Reads the folder whose sessions an entry concerns: an absolute path.
pub fn entry_folder(text: &str) -> Result<Arc<str>, String> {
    match entry_text(text)? {
        folder if folder.starts_with('/') => Ok(folder),
        _ => Err("it is not an absolute path".to_owned()),
    }
}

/// Whether something is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// `true`.
    On,
    /// `false`.
    Off,
    /// `"auto"`: on if it can work.
    Auto,
}

/// The required form of a text.
#[derive(Debug)]
pub struct Form<T> {
    /// The noun for a valid text, with its article, such as `an amount of free space`.
    pub noun: &'static str,
    /// Describes a valid text.
    pub note: &'static str,
    /// Parses a text; `None` if it is invalid.
    pub parse: fn(&str) -> Option<T>,
}

/// Defines `Settings` of a source: whether it is on, and a field for each key of its table, with
/// the default and the method of [`Keys`] that reads it.
#[macro_export]
macro_rules! settings {
    ($($(#[$doc:meta])* $key:ident: $type:ty = $default:expr, $read:ident($($limit:expr),*);)*) => {
        /// The settings in its table of `[sources]`.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings {
            /// Whether it is on.
            pub enabled: bool,
            $($(#[$doc])* pub $key: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { enabled: true, $($key: $default,)* }
            }
        }

        impl Settings {
            /// Reads its table.
            pub fn read(keys: &mut impl $crate::settings::Keys) -> Self {
                let default = Self::default();
                Self {
                    enabled: keys.flag("enabled").unwrap_or(default.enabled),
                    $($key: keys.$read(stringify!($key), $($limit),*).unwrap_or(default.$key),)*
                }
            }
        }
    };
}

/// The description of a source that `S` enables or disables.
#[derive(Debug)]
pub struct Row<S> {
    /// The name of its module, and so of its file and folder.
    pub module: &'static str,
    /// Its name in `[sources]` of `aside.toml`, and in `producers` of the catalogue.
    pub name: &'static str,
    /// The subject of its events, in a few words.
    pub about: &'static str,
    /// Its requirements: without them it publishes nothing.
    pub needs: &'static str,
    /// Whether it is on.
    pub is_on: fn(&S) -> bool,
    /// Whether it has a list of tables in `[sources]`, as in `[[sources.log]]`; without entries it
    /// is off.
    pub is_list: bool,
}

/// Defines the `Settings` of all sources in a table. Its columns are the first four fields of
/// [`Row`], and `list` for a source with a list of tables.
#[macro_export]
macro_rules! sources {
    ($($module:ident $name:literal $about:literal $needs:literal $($list:ident)?;)*) => {
        /// The settings of these sources in `[sources]` of `aside.toml`.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Settings {
            $(#[doc = concat!("`[sources.", $name, "]`.")] pub $module: $module::Settings,)*
        }

        impl Settings {
            /// The description of each source, in this order.
            pub const ROWS: &[$crate::settings::Row<Self>] = &[$($crate::settings::Row {
                module: stringify!($module),
                name: $name,
                about: $about,
                needs: $needs,
                is_on: |settings| settings.$module.enabled,
                is_list: !<[&str]>::is_empty(&[$(stringify!($list))?]),
            }),*];

            /// Reads the tables from `tables`, by name; a missing one is a bug.
            pub fn read<K: $crate::settings::Keys>(tables: &mut BTreeMap<&'static str, K>) -> Self {
                Self { $($module: $module::Settings::read(tables.get_mut($name).expect("a row's")),)* }
            }
        }
    };
}

pub use {settings, sources};

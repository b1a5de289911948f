//! Settings of modules that know no files: each says its keys, with their limits, in `settings!`,
//! and [`Keys`] has what was written. A table of sources, `sources!`, makes of them what
//! `[sources]` of `aside.toml` holds.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

/// The name of a key.
type Name = &'static str;

/// A table of `aside.toml`, whose keys are read, each once.
///
/// Shape: `None` for what is not there or wrong. What is wrong is reported where it was written.
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
    fn word<T: Copy>(&mut self, key: Name, all: &[T], as_str: fn(T) -> &'static str) -> Option<T>;
    /// A text of a form of its own.
    fn text<T>(&mut self, key: Name, form: &Form<T>) -> Option<T>;
    /// Such texts, `max` at most.
    fn texts<T>(&mut self, key: Name, form: &Form<T>, max: usize) -> Option<Vec<T>>;
    /// Rising integers, at least one and `max` at most; `note` says what they are.
    fn rising(&mut self, key: Name, limits: RangeInclusive<u8>, max: usize, note: &str) -> Option<Vec<u8>>;
    /// Tables with names of the user's choice in the table under `key`, `max` at most, each read by
    /// `read`.
    fn named<T>(&mut self, key: Name, max: usize, read: fn(&mut Self) -> T) -> Vec<(Arc<str>, T)>;
    /// A text, of which `parse` says what is wrong with it.
    fn parsed<T>(&mut self, key: Name, parse: fn(&str) -> Result<T, String>) -> Option<T>;
    /// The same of a key that has to be there.
    fn needed<T>(&mut self, key: Name, parse: fn(&str) -> Result<T, String>) -> Option<T>;
    /// The tables of a list of tables, [`ENTRIES_MAX`] at most, each with a name of its own.
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
    /// Reads its keys; `None` if one that it needs is not there or wrong, which is reported.
    fn read(keys: &mut impl Keys) -> Option<Self>;
    /// Tells it from the others of its list. One of a later file replaces one of the same name.
    fn name(&self) -> &str;
}

/// What a list of tables says. It is on when it is not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries<T> {
    /// Whether there is one.
    pub enabled: bool,
    /// All of them, in the order in which they are written.
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

/// Reads the name of an entry: one line of some characters.
pub fn entry_name(text: &str) -> Result<Arc<str>, String> {
    line(text, NAME_CHARS_MAX)
}

/// Reads a text of an entry: one line.
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

/// Reads the folder for whose sessions an entry is: an absolute path.
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
    /// `"auto"`: on where it can work.
    Auto,
}

/// What a text has to be.
#[derive(Debug)]
pub struct Form<T> {
    /// What a wrong one is not, with its article, such as `an amount of free space`.
    pub noun: &'static str,
    /// What a right one looks like.
    pub note: &'static str,
    /// What a right one means.
    pub parse: fn(&str) -> Option<T>,
}

/// Makes `Settings` of a source: whether it is on, and a field for each key of its table, with its
/// default and how [`Keys`] reads it.
macro_rules! settings {
    ($($(#[$doc:meta])* $key:ident: $type:ty = $default:expr, $read:ident($($limit:expr),*);)*) => {
        /// What its table in `[sources]` says.
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

/// What is shown of a source that `S` switches.
#[derive(Debug)]
pub struct Row<S> {
    /// The name of its module: of its file, and of its folder, if it has one.
    pub module: &'static str,
    /// As `[sources]` of `aside.toml` calls it, and `producers` of the catalogue.
    pub name: &'static str,
    /// What its events are about, in a few words.
    pub about: &'static str,
    /// Without what it publishes nothing.
    pub needs: &'static str,
    /// Whether it is on.
    pub is_on: fn(&S) -> bool,
    /// Whether `[sources]` has a list of tables of it, as in `[[sources.log]]`, without which it is
    /// off.
    pub is_list: bool,
}

/// Makes the `Settings` of all sources in a table, whose columns are the first four fields of
/// [`Row`], and `list` for one that is.
macro_rules! sources {
    ($($module:ident $name:literal $about:literal $needs:literal $($list:ident)?;)*) => {
        /// `[sources]` of `aside.toml`, as far as it is about these.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Settings {
            $(#[doc = concat!("`[sources.", $name, "]`.")] pub $module: $module::Settings,)*
        }

        impl Settings {
            /// What is shown of each, in this order.
            pub const ROWS: &[$crate::settings::Row<Self>] = &[$($crate::settings::Row {
                module: stringify!($module),
                name: $name,
                about: $about,
                needs: $needs,
                is_on: |settings| settings.$module.enabled,
                is_list: !<[&str]>::is_empty(&[$(stringify!($list))?]),
            }),*];

            /// Reads the tables, which `tables` has by their names; one that is not there is a bug.
            pub fn read<K: $crate::settings::Keys>(tables: &mut BTreeMap<&'static str, K>) -> Self {
                Self { $($module: $module::Settings::read(tables.get_mut($name).expect("a row's")),)* }
            }
        }
    };
}

pub(crate) use {settings, sources};

//! Settings of modules that read no files. A module declares each of its keys as a row of
//! `settings!`: its description for users, its type, its default, and its reader with the limits.
//! The row becomes a field, which is read from [`Keys`], and a [`Key`], from which
//! `config/aside.toml`, the schemas for editors and the tables in the documents are generated. The
//! macro `sources!` combines the settings of all sources in a table into those of `[sources]`.

pub mod row;

use std::{fmt::Display, ops::RangeInclusive, sync::Arc, time::Duration};

use journal::time::hours::Hours;

pub use self::row::{Form, Key, ReadWords, Shape, Switch, Table, TextForm, WrongWord};
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
    fn number<T: Integer>(&mut self, key: Name, limits: RangeInclusive<T>) -> Option<T>;
    /// An integer, or `"off"`.
    fn number_or_off<T: Integer>(&mut self, key: Name, limits: RangeInclusive<T>) -> Option<Option<T>>;
    /// A size in bytes.
    fn bytes(&mut self, key: Name, limits: RangeInclusive<u64>) -> Option<u64> {
        self.number(key, limits)
    }
    /// A duration, which is written with its unit.
    fn duration(&mut self, key: Name, limits: RangeInclusive<Duration>) -> Option<Duration>;
    /// At most `max` durations.
    fn durations(&mut self, key: Name, limits: RangeInclusive<Duration>, max: usize)
    -> Option<Vec<Duration>>;
    /// Hours of each day such as `22:00-07:00`, days such as `sat`, or a list of them.
    fn hours(&mut self, key: Name) -> Option<Hours>;
    /// One of the words for the values of an enum.
    fn word<T: Words>(&mut self, key: Name) -> Option<T>;
    /// One of the words for some values of an enum.
    fn among<T: Words>(&mut self, key: Name, values: &[T]) -> Option<T>;
    /// Words for the values of an enum, each at most once.
    fn each_once<T: Words + PartialEq>(&mut self, key: Name) -> Option<Vec<T>>;
    /// A text that is not empty.
    fn line(&mut self, key: Name) -> Option<Arc<str>>;
    /// Texts that are not empty.
    fn lines(&mut self, key: Name) -> Option<Vec<String>>;
    /// An absolute path.
    fn path<T: for<'a> From<&'a str>>(&mut self, key: Name) -> Option<T>;
    /// The address of a server.
    fn url(&mut self, key: Name) -> Option<Url>;
    /// The address of a server, which ends in a topic.
    fn topic(&mut self, key: Name) -> Option<Url>;
    /// A table from names, which `read` converts, to words.
    fn by_name<K, V: Words>(&mut self, key: Name, read: fn(&str) -> Result<K, String>)
    -> Option<Vec<(K, V)>>;
    /// A text of the form `form`.
    fn text<T>(&mut self, key: Name, form: &Form<T>) -> Option<T>;
    /// At most `max` texts of the form `form`.
    fn texts<T>(&mut self, key: Name, form: &Form<T>, max: usize) -> Option<Vec<T>>;
    /// The words of a command, which `read` converts; its error names the index of a word.
    fn argv<T>(&mut self, key: Name, read: ReadWords<T>) -> Option<T>;
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
    /// Warns of the value of a key; nothing if the key is absent.
    fn warn(&mut self, key: Name, message: &str);
}

/// An integer of a setting.
pub trait Integer: TryFrom<i128> + PartialOrd + Clone + Display {}

impl<T: TryFrom<i128> + PartialOrd + Clone + Display> Integer for T {}

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
    /// The description of its keys.
    fn table() -> Table;
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

    /// The description of the keys of an entry.
    pub fn table() -> Table {
        T::table()
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

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Whether it uses HTTPS.
    pub is_secure: bool,
    /// The name or address of the machine, without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// Host and port as written in the settings.
    pub authority: Arc<str>,
    /// Path and query; begins with `/`.
    pub path: Arc<str>,
}

impl Url {
    /// The full address of `path` on this server.
    pub fn address(&self, path: &str) -> String {
        format!("{}://{}{path}", if self.is_secure { "https" } else { "http" }, self.authority)
    }
}

/// Describes keys: a list of [`Key`], one for each row.
///
/// Shape of a row: its description for users; its name, with the word for it in the file if that is
/// not a name in Rust; its type; its default; its reader, which is a method of [`Keys`] and a
/// function of [`row`], with its limits. A key without a default has an example (`like`), and may
/// say what holds without it (`else`).
#[macro_export]
macro_rules! keys {
    ($($(#[doc = $doc:literal])* $key:ident $($word:literal)?: $type:ty $(= $default:expr)?,
        $read:ident($($limit:expr),*) $(, like $like:literal)? $(, else $without:literal)?;)*) => {
        vec![$($crate::settings::Key {
            name: $crate::settings!(@name $key $($word)?),
            doc: &[$($doc),*],
            example: $crate::settings!(@optional $($like)?),
            without: $crate::settings!(@optional $($without)?),
            ..$crate::settings::row::$read($crate::settings!(@default $type $(, $default)?), $($limit),*)
        }),*]
    };
}

/// Defines settings: a struct with a field for each row of [`keys!`], which is `None` for an absent
/// key without a default. Without a name it is `Settings`, for a table of `[sources]` or `[sinks]`.
#[macro_export]
macro_rules! settings {
    (@name $key:ident $word:literal) => { $word };
    (@name $key:ident) => { stringify!($key) };
    (@optional $text:literal) => { Some($text) };
    (@optional) => { None };
    (@default $type:ty, $default:expr) => { Some::<$type>($default) };
    (@default $type:ty) => { None::<$type> };
    (@type $type:ty, $default:expr) => { $type };
    (@type $type:ty) => { Option<$type> };
    (@value $read:expr, $default:expr) => { $read.unwrap_or_else(|| $default) };
    (@value $read:expr) => { $read };
    (@or_none $default:expr) => { $default };
    (@or_none) => { None };
    (@define [$($about:literal)*] $(#[$meta:meta])* $vis:vis struct $name:ident from $from:ty {
        $($(#[doc = $doc:literal])* $key:ident $($word:literal)?: $type:ty $(= $default:expr)?,
            $read:ident($($limit:expr),*) $(, like $like:literal)? $(, else $without:literal)?;)*
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[doc = $doc])* $vis $key: $crate::settings!(@type $type $(, $default)?),)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $crate::settings!(@or_none $($default)?),)* }
            }
        }

        impl $name {
            /// Reads each key; its default is used if it is absent or invalid.
            $vis fn read(keys: &mut $from) -> Self {
                Self {
                    $($key: $crate::settings!(
                        @value keys.$read($crate::settings!(@name $key $($word)?), $($limit),*) $(, $default)?
                    ),)*
                }
            }

            /// The description of the keys.
            $vis fn table() -> $crate::settings::Table {
                $crate::settings::Table {
                    about: &[$($about),*],
                    keys: $crate::settings::keys! {
                        $($(#[doc = $doc])* $key $($word)?: $type $(= $default)?,
                            $read($($limit),*) $(, like $like)? $(, else $without)?;)*
                    },
                }
            }
        }
    };
    ($(#[doc = $about:literal])* $(#[derive($($derive:ident),*)])? $vis:vis struct $($rest:tt)*) => {
        $crate::settings! {
            @define [$($about)*] $(#[doc = $about])* $(#[derive($($derive),*)])? $vis struct $($rest)*
        }
    };
    ($($rows:tt)*) => {
        $crate::settings! {
            @define []
            /// The settings in a table of `aside.toml`.
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct Settings from impl $crate::settings::Keys { $($rows)* }
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
    /// The description of the keys of its table.
    pub table: fn() -> Table,
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
                is_on: |settings| bool::from(settings.$module.enabled),
                is_list: !<[&str]>::is_empty(&[$(stringify!($list))?]),
                table: $module::Settings::table,
            }),*];

            /// Reads the tables from `tables`, by name; a missing one is a bug.
            pub fn read<K: $crate::settings::Keys>(tables: &mut $crate::sorted::SortedMap<&'static str, K>) -> Self {
                Self { $($module: $module::Settings::read(tables.get_mut($name).expect("a row's")),)* }
            }
        }
    };
}

pub use {keys, settings, sources};

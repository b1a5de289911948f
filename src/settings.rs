//! Settings of modules that know no files: each says its keys, with their limits, in `settings!`, and [`Keys`] has what was
//! written. A table of sources, `sources!`, makes of them what `[sources]` of `aside.toml` holds.

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
    /// Tables with names of the user's choice in the table under `key`, `max` at most, each read by `read`.
    fn named<T>(&mut self, key: Name, max: usize, read: fn(&mut Self) -> T) -> Vec<(Arc<str>, T)>;
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
    /// What a wrong one is not, such as `free space`.
    pub noun: &'static str,
    /// What a right one looks like.
    pub note: &'static str,
    /// What a right one means.
    pub parse: fn(&str) -> Option<T>,
}

/// Makes `Settings` of a source: whether it is on, and a field for each key of its table, with its default and how [`Keys`] reads it.
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
}

/// Makes the `Settings` of all sources in a table, whose columns are the first four fields of [`Row`].
macro_rules! sources {
    ($($module:ident $name:literal $about:literal $needs:literal;)*) => {
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
            }),*];

            /// Reads the tables, which `tables` has by their names; one that is not there is a bug.
            pub fn read<K: $crate::settings::Keys>(tables: &mut BTreeMap<&'static str, K>) -> Self {
                Self { $($module: $module::Settings::read(tables.get_mut($name).expect("a row's")),)* }
            }
        }
    };
}

pub(crate) use {settings, sources};

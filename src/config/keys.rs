//! The keys of TOML files: their readers, and the tables of a file as the rows of `settings!` describe
//! them. From the rows `config/aside.toml`, the schemas in `config/` and the tables of keys in
//! docs/reference.md are generated; a test compares them.

use std::{net::SocketAddr, ops::RangeInclusive, sync::Arc, time::Duration};

use engine::{
    rate::Rate,
    settings::{ENTRIES_MAX, Entry, Form, Integer, Key, Keys, ReadWords, Switch, Table, Url},
    words::Words,
};
use journal::time::hours::Hours;
use toml::de::DeValue;

pub use crate::config::{daemon::tables as settings, subscriber::tables as subscriber};
use crate::config::{
    lint_name::LintName,
    raw::{Parsed, Section, Value},
    report::{sentence, shown},
    sinks, values,
};

/// The name of a key.
type Name = &'static str;

/// The description of a table of a file.
#[derive(Debug)]
pub struct FileTable {
    /// Its name, such as `sources.git`.
    pub name: String,
    /// Whether it is one of a list: `[[sources.log]]`.
    pub is_list: bool,
    /// The lines of its description; each begins with a space.
    pub about: &'static [&'static str],
    /// Its keys.
    pub keys: Vec<Key>,
}

impl FileTable {
    pub(super) fn new(name: impl Into<String>, Table { about, keys }: Table) -> Self {
        Self { name: name.into(), is_list: false, about, keys }
    }
}

/// Defines readers of keys that [`Keys`] does not have, by the functions that read their values.
macro_rules! readers {
    ($($name:ident($($limit:ident: $type:ty)?) -> $read:ty = $parse:expr;)*) => {
        impl Section<'_> {
            $(pub(in crate::config) fn $name(&mut self, key: &'static str $(, $limit: $type)?) -> Option<$read> {
                self.read(key, $parse)
            })*
        }
    };
}

pub(super) use readers;

readers! {
    rate() -> Rate = values::rate;
    rate_or_off() -> Option<Rate> = |value| values::unless_off(value, values::rate);
    bytes_or_off(limits: RangeInclusive<u64>) -> Option<u64> =
        |value| values::unless_off(value, |value| values::integer(value, limits.clone()));
    duration_or_off(limits: RangeInclusive<Duration>) -> Option<Duration> =
        |value| values::unless_off(value, |value| values::duration(value, limits.clone()));
    loopback() -> SocketAddr = values::loopback;
}

impl Section<'_> {
    /// A table from names of sources to rates.
    pub(super) fn rates_by_name(&mut self, key: Name) -> Option<Vec<(String, Rate)>> {
        const FORM: &str = "a table of names and rates, such as { chat = \"500/h\" }";
        let name = |text: &str| match text.trim().is_empty() {
            true => Err("the name of a source is empty".to_owned()),
            false => Ok(text.to_owned()),
        };
        self.read(key, |value| by_name(value, FORM, "\"500/h\"", name, values::rate))
    }
}

impl Keys for Section<'_> {
    fn flag(&mut self, key: Name) -> Option<bool> {
        self.read(key, values::flag)
    }

    fn switch(&mut self, key: Name) -> Option<Switch> {
        self.read(key, |value| match (value.get().as_bool(), value.get().as_str()) {
            (Some(true), _) => Ok(Switch::On),
            (Some(false), _) => Ok(Switch::Off),
            (None, Some("auto")) => Ok(Switch::Auto),
            (None, Some(found)) => {
                let wrong = value.error(format!("`{key}` cannot be `{}`", shown(found)));
                Err(vec![wrong.with_allowed(found, &["true", "false", "\"auto\""])])
            }
            (None, None) => Err(value.wrong_kind("true, false or \"auto\"")),
        })
    }

    fn number<T: Integer>(&mut self, key: Name, limits: RangeInclusive<T>) -> Option<T> {
        self.read(key, |value| values::integer(value, limits.clone()))
    }

    fn number_or_off<T: Integer>(&mut self, key: Name, limits: RangeInclusive<T>) -> Option<Option<T>> {
        self.read(key, |value| values::unless_off(value, |value| values::integer(value, limits.clone())))
    }

    fn duration(&mut self, key: Name, limits: RangeInclusive<Duration>) -> Option<Duration> {
        self.read(key, |value| values::duration(value, limits.clone()))
    }

    fn durations(
        &mut self,
        key: Name,
        limits: RangeInclusive<Duration>,
        max: usize,
    ) -> Option<Vec<Duration>> {
        self.read(key, |value| match values::list(value, |item| values::duration(item, limits.clone()))? {
            found if found.len() <= max => Ok(found),
            found => {
                let message = format!("`{key}` has {} times; {max} are allowed", found.len());
                Err(vec![value.error(message)])
            }
        })
    }

    fn hours(&mut self, key: Name) -> Option<Hours> {
        self.read(key, values::hours)
    }

    fn word<T: Words>(&mut self, key: Name) -> Option<T> {
        self.read(key, values::word)
    }

    fn among<T: Words>(&mut self, key: Name, among: &[T]) -> Option<T> {
        self.read(key, |value| values::word_of(value, among))
    }

    fn each_once<T: Words + PartialEq>(&mut self, key: Name) -> Option<Vec<T>> {
        self.read(key, |value| {
            let mut once: Vec<T> = Vec::new();
            for word in values::list(value, values::word::<T>)? {
                if once.contains(&word) {
                    let word: &str = word.into();
                    return Err(vec![value.error(format!("`{word}` is listed twice"))]);
                }
                once.push(word);
            }
            Ok(once)
        })
    }

    fn line(&mut self, key: Name) -> Option<Arc<str>> {
        self.read(key, |value| values::words(value).map(Into::into))
    }

    fn lines(&mut self, key: Name) -> Option<Vec<String>> {
        self.read(key, |value| values::list(value, |item| values::words(item).map(str::to_owned)))
    }

    fn path<T: for<'a> From<&'a str>>(&mut self, key: Name) -> Option<T> {
        self.read(key, values::absolute_path)
    }

    fn url(&mut self, key: Name) -> Option<Url> {
        self.read(key, sinks::read_url)
    }

    fn topic(&mut self, key: Name) -> Option<Url> {
        self.read(key, sinks::read_topic)
    }

    fn by_name<K, V: Words>(
        &mut self,
        key: Name,
        read: fn(&str) -> Result<K, String>,
    ) -> Option<Vec<(K, V)>> {
        const FORM: &str = "a table of names and levels, such as { \"ide.diagnostics\" = \"prompt\" }";
        self.read(key, |value| by_name(value, FORM, "\"prompt\"", read, values::word))
    }

    fn text<T>(&mut self, key: Name, form: &Form<T>) -> Option<T> {
        self.read(key, |value| formed(value, form))
    }

    fn texts<T>(&mut self, key: Name, form: &Form<T>, max: usize) -> Option<Vec<T>> {
        let is_wrong = |count: usize| format!("`{key}` has {count} items; {max} are allowed");
        self.read(key, |value| match values::list(value, |item| formed(item, form))? {
            texts if texts.len() <= max => Ok(texts),
            texts => Err(vec![value.error(is_wrong(texts.len()))]),
        })
    }

    fn argv<T>(&mut self, key: Name, read: ReadWords<T>) -> Option<T> {
        self.read(key, |value| {
            let words = values::list(value, |item| {
                let kind = || item.wrong_kind("a text");
                item.get().as_str().map(str::to_owned).ok_or_else(kind)
            })?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            read(&words).map_err(|(index, why)| {
                let item = value.items().unwrap_or_default().into_iter().nth(index);
                vec![item.as_ref().unwrap_or(value).error(sentence(why))]
            })
        })
    }

    fn rising(&mut self, key: Name, limits: RangeInclusive<u8>, max: usize, note: &str) -> Option<Vec<u8>> {
        self.read(key, |value| {
            let found = values::list(value, |item| values::integer(item, limits.clone()))?;
            if (1..=max).contains(&found.len()) && found.is_sorted_by(|one, other| one < other) {
                return Ok(found);
            }
            let wrong = value.error(format!("`{key}` is not a list of 1 to {max} increasing integers"));
            Err(vec![wrong.with_note(note)])
        })
    }

    fn named<T>(&mut self, key: Name, max: usize, read: fn(&mut Self) -> T) -> Vec<(Arc<str>, T)> {
        self.named_tables(key, max, read)
    }

    fn parsed<T>(&mut self, key: Name, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        self.read(key, |value| {
            let text = values::words(value)?;
            parse(text).map_err(|why| vec![value.error(format!("`{key}` is `{}`: {why}", shown(text)))])
        })
    }

    fn needed<T>(&mut self, key: Name, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        self.miss(key);
        self.parsed(key, parse)
    }

    fn entries<T: Entry>(&mut self) -> Vec<T> {
        self.list(ENTRIES_MAX, T::read, T::name)
    }

    fn warn(&mut self, key: Name, message: &str) {
        self.object(key, |value| value.error(message).into_lint(LintName::NoEffect));
    }
}

fn formed<T>(value: &Value<'_>, form: &Form<T>) -> Parsed<T> {
    let text = values::words(value)?;
    let wrong = || value.error(format!("`{}` is not {}", shown(text), form.noun)).with_note(form.note);
    (form.parse)(text).ok_or_else(|| vec![wrong()])
}

/// A table from names to values of the form `form`, such as `example`.
fn by_name<K, V>(
    value: &Value<'_>,
    form: &str,
    example: &str,
    read: fn(&str) -> Result<K, String>,
    read_value: fn(&Value<'_>) -> Parsed<V>,
) -> Parsed<Vec<(K, V)>> {
    let entries = value.entries().ok_or_else(|| value.wrong_kind(form))?;
    let (mut levels, mut found) = (Vec::new(), Vec::new());
    for (name, entry) in entries {
        if matches!(entry.get(), DeValue::Table(_)) {
            let message = format!("a name with a dot is quoted, such as \"{}.x\" = {example}", shown(name));
            found.push(entry.key_error(message));
            continue;
        }
        let key = read(name).map_err(|why| vec![entry.key_error(sentence(why))]);
        match (key, read_value(&entry)) {
            (Ok(name), Ok(level)) => levels.push((name, level)),
            (name, level) => found.extend([name.err(), level.err()].into_iter().flatten().flatten()),
        }
    }
    if found.is_empty() { Ok(levels) } else { Err(found) }
}

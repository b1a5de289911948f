//! TOML as it was written: tables whose every value knows its file, its place and its key.
//!
//! A [`Section`] is one table of one file, or the same table of several files, where a later file
//! overrides an earlier one key by key. Readers ask for each key once; keys that were never asked
//! for are unknown. All mistakes are collected; none stops the reading. The meaning of the keys is
//! not known here.

use std::{mem, ops::Range, sync::Arc};

use engine::{nearest::nearest, sorted::SortedMap};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::config::{
    layers::{LayerKind, SourceFile},
    report::{Diagnostic, Place, is_bare_key, shown, syntax_error},
};

/// What a message says about a missing key, before the name of its table.
const MISSING: &str = " is missing in [";
/// Most syntax errors that are kept of one file; further ones add no information.
const SYNTAX_ERRORS_MAX: usize = 100;
/// Longest name of a table that is chosen by its author, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A value, or all mistakes in it.
pub(crate) type Parsed<T> = Result<T, Vec<Diagnostic>>;

/// One file of valid TOML.
pub(crate) struct Document<'s> {
    file: &'s SourceFile,
    table: DeTable<'s>,
}

impl<'s> Document<'s> {
    /// Reads a file.
    ///
    /// Errors: the first syntax error of every line; further ones on the same line are mostly its
    /// consequences.
    pub(crate) fn parse(file: &'s SourceFile) -> Parsed<Self> {
        let (table, errors) = DeTable::parse_recoverable(&file.text);
        if errors.is_empty() {
            return Ok(Self { file, table: table.into_inner() });
        }
        let diagnose = |error: &toml::de::Error| syntax_error(&file.path, &file.text, error);
        let mut found: Vec<_> = errors.iter().map(diagnose).collect();
        found.sort_by_key(|diagnostic| diagnostic.place.span.start);
        found.truncate(SYNTAX_ERRORS_MAX);
        found.dedup_by_key(|diagnostic| diagnostic.place.line());
        Err(found)
    }

    pub(crate) fn file(&self) -> &'s SourceFile {
        self.file
    }

    /// The entries at the top of the file that are not in `sections`.
    fn unknown_sections(&self, sections: &[&str], homes: &Homes) -> Vec<Diagnostic> {
        let unknown = self.table.keys().filter(|key| !sections.contains(&key.get_ref().as_ref()));
        let place = |span: Range<usize>| Place::new(&self.file.path, &self.file.text, span);
        unknown
            .map(|key| unknown_key(place(key.span()), key.get_ref(), key.get_ref(), sections, homes))
            .collect()
    }

    /// The keys of its sections with their values, in the order of `sections`.
    pub(crate) fn keys(&'s self, sections: &[&'static str]) -> Vec<(&'static str, &'s str, Value<'s>)> {
        let of_section = |section: &'static str| {
            let entries = self.value(section).and_then(|value| value.entries()).unwrap_or_default();
            entries.into_iter().map(move |(name, value)| (section, name, value))
        };
        sections.iter().flat_map(|section| of_section(section)).collect()
    }

    /// The same file without a key.
    pub(crate) fn without(&self, section: &str, key: &str) -> Self {
        let mut table = self.table.clone();
        if let Some(DeValue::Table(section)) = table.get_mut(section).map(Spanned::get_mut) {
            section.remove(key);
        }
        Self { file: self.file, table }
    }

    /// The value at the top of the file under `name`.
    pub(crate) fn value(&'s self, name: &str) -> Option<Value<'s>> {
        self.table.get(name).map(|value| Value::new(self.file, name.to_owned(), value))
    }
}

/// A value and its position.
#[derive(Clone)]
pub(crate) struct Value<'s> {
    file: &'s SourceFile,
    key: String,
    span: Range<usize>,
    /// The position of its key, if it has a key of its own.
    key_span: Option<Range<usize>>,
    value: &'s DeValue<'s>,
}

impl<'s> Value<'s> {
    fn new(file: &'s SourceFile, key: String, value: &'s Spanned<DeValue<'s>>) -> Self {
        Self { file, key, span: value.span(), key_span: None, value: value.get_ref() }
    }

    pub(crate) fn get(&self) -> &'s DeValue<'s> {
        self.value
    }

    pub(crate) fn file(&self) -> &'s SourceFile {
        self.file
    }

    /// Its text in the file.
    pub(crate) fn literal(&self) -> &'s str {
        self.file.text.get(self.span.clone()).unwrap_or_default()
    }

    /// The last part of its key.
    pub(crate) fn name(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or(&self.key)
    }

    /// Its position.
    pub(crate) fn place(&self) -> Place {
        Place::new(&self.file.path, &self.file.text, self.span.clone())
    }

    /// The position of its key; the position of the value if it has no key of its own.
    pub(crate) fn key_place(&self) -> Place {
        let span = self.key_span.clone().unwrap_or_else(|| self.span.clone());
        Place::new(&self.file.path, &self.file.text, span)
    }

    /// An error about the value.
    pub(crate) fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(self.place(), self.key.as_str(), message)
    }

    /// An error about its key.
    pub(crate) fn key_error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic { place: self.key_place(), ..self.error(message) }
    }

    /// An error that it is not `expected`, such as `a string`.
    pub(crate) fn wrong_kind(&self, expected: &str) -> Vec<Diagnostic> {
        let found = self.value.type_str();
        let article = if found.starts_with(['a', 'i']) { "an" } else { "a" };
        vec![self.error(format!("`{}` must be {expected}, not {article} {found}", self.name()))]
    }

    /// Its items, if it is an array.
    pub(crate) fn items(&self) -> Option<Vec<Self>> {
        let item = |(index, item)| Self::new(self.file, format!("{}[{index}]", self.key), item);
        self.value.as_array().map(|items| items.iter().enumerate().map(item).collect())
    }

    /// Its keys with their values, if it is a table.
    pub(crate) fn entries(&self) -> Option<Vec<(&'s str, Self)>> {
        let entry = |(key, value): (&'s Spanned<_>, _)| {
            let name: &'s str = AsRef::<str>::as_ref(key.get_ref());
            let value = Self::new(self.file, format!("{}.{name}", self.key), value);
            (name, Self { key_span: Some(key.span()), ..value })
        };
        self.value.as_table().map(|table| table.iter().map(entry).collect())
    }

    /// The value under `name`, if it is a table.
    pub(crate) fn entry(&self, name: &str) -> Option<Self> {
        self.entries()?.into_iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Its keys, if it is a table.
    pub(crate) fn section(&self) -> Option<Section<'s>> {
        let table = self.value.as_table()?;
        let mut section = Section::empty(&self.key, Some(self.place()));
        section.add(self.file, table);
        Some(section)
    }
}

/// The keys of a table, possibly from several files.
pub(crate) struct Section<'s> {
    name: String,
    header: Option<Place>,
    entries: SortedMap<&'s str, Vec<Entry<'s>>>,
    asked: Vec<&'static str>,
    /// The keys of its tables that are separate sections.
    tables: Vec<&'static str>,
    /// The arrays under its name, the first file's first; each may be a list of such tables.
    lists: Vec<Value<'s>>,
    /// The keys that have no valid value.
    wrong: Vec<&'static str>,
    /// The last file.
    file: Arc<str>,
    origins: SortedMap<String, Arc<str>>,
    found: Vec<Diagnostic>,
}

struct Entry<'s> {
    key_place: Place,
    value: Value<'s>,
}

impl<'s> Section<'s> {
    /// The table `name` of every document; later ones override earlier ones.
    pub(crate) fn new(name: &str, documents: impl IntoIterator<Item = &'s Document<'s>>) -> Self {
        let mut section = Self::empty(name, None);
        for document in documents {
            section.file = Arc::clone(&document.file.path);
            let Some(value) = document.value(name) else { continue };
            section.header = Some(value.place());
            match value.get().as_table() {
                Some(table) => section.add(value.file, table),
                None => section.found.extend(value.wrong_kind("a table")),
            }
        }
        section
    }

    fn empty(name: &str, header: Option<Place>) -> Self {
        Self {
            name: name.to_owned(),
            header,
            entries: SortedMap::new(),
            asked: Vec::new(),
            tables: Vec::new(),
            lists: Vec::new(),
            wrong: Vec::new(),
            file: Arc::default(),
            origins: SortedMap::new(),
            found: Vec::new(),
        }
    }

    fn add(&mut self, file: &'s SourceFile, table: &'s DeTable<'s>) {
        for (key, value) in table {
            let key_place = Place::new(&file.path, &file.text, key.span());
            let value = Value::new(file, format!("{}.{}", self.name, key.get_ref()), value);
            self.entries.get_or_default(key.get_ref()).push(Entry { key_place, value });
        }
    }

    /// Reads the value of `key` in every file, and returns the last valid one; `None` if there is
    /// none.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&Value<'s>) -> Parsed<T>,
    ) -> Option<T> {
        self.asked.push(key);
        let mut last = None;
        for entry in self.entries.get(key).into_iter().flatten() {
            match parse(&entry.value) {
                Ok(value) => {
                    last = Some(value);
                    self.origins.insert(entry.value.key.clone(), Arc::clone(&entry.value.file.path));
                }
                Err(found) => self.found.extend(found),
            }
        }
        if last.is_none() && self.entries.contains_key(key) {
            self.wrong.push(key);
        }
        last
    }

    /// The table under `key`, of every file, as a separate section, which has to be finished
    /// separately.
    pub(crate) fn table(&mut self, key: &'static str) -> Self {
        self.tables.push(key);
        self.take_table(key)
    }

    fn take_table(&mut self, key: &str) -> Self {
        let mut inner = Self::empty(&format!("{}.{key}", self.name), None);
        for entry in self.entries.remove(key).into_iter().flatten() {
            match (entry.value.get().as_table(), entry.value.get().as_array()) {
                (Some(table), _) => {
                    inner.header = Some(entry.value.place());
                    inner.add(entry.value.file, table);
                }
                (None, Some(_)) => inner.lists.push(entry.value),
                (None, None) => inner.found.extend(entry.value.wrong_kind("a table")),
            }
        }
        inner
    }

    /// The tables in the table under `key`, by their names; `read` reads each from every file; at
    /// most `max`.
    pub(crate) fn named_tables<T>(
        &mut self,
        key: &'static str,
        max: usize,
        read: impl Fn(&mut Self) -> T,
    ) -> Vec<(Arc<str>, T)> {
        if let Some(value) = self.value(key) {
            self.origins.insert(value.key.clone(), Arc::clone(&value.file.path));
        }
        let mut outer = self.take_table(key);
        self.asked.push(key);
        let (mut tables, names) = (Vec::new(), outer.entries.keys().copied().collect::<Vec<_>>());
        for name in names {
            let places = outer.entries.get(name).into_iter().flatten().map(|entry| entry.key_place.clone());
            let wrong = if !is_bare_key(name) || name.len() > NAME_BYTES_MAX {
                Some(format!("`{}` is not a name of letters, digits, `-` and `_`", shown(name)))
            } else {
                (tables.len() >= max).then(|| format!("only {max} tables are allowed in [{}]", outer.name))
            };
            if let Some(wrong) = wrong {
                let path = shown(&format!("{}.{name}", outer.name)).to_string();
                outer
                    .found
                    .extend(places.map(|place| Diagnostic::error(place, path.as_str(), wrong.as_str())));
                outer.entries.remove(name);
                continue;
            }
            let mut inner = outer.take_table(name);
            tables.push((name.into(), read(&mut inner)));
            self.origins.extend(mem::take(&mut inner.origins));
            self.found.extend(inner.finish());
        }
        self.found.extend(outer.finish());
        tables
    }

    /// The tables of the lists under its name; `read` reads each, `name` returns its name; at most
    /// `max`.
    ///
    /// Shape: a table of a later file replaces one of the same name. A table with a mistake is
    /// reported and left out.
    pub(crate) fn list<T>(
        &mut self,
        max: usize,
        read: impl Fn(&mut Self) -> Option<T>,
        name: impl Fn(&T) -> &str,
    ) -> Vec<T> {
        if let Some(place) = self.header.take() {
            let message = format!("each table of this list is written under [[{}]]", self.name);
            self.found.push(Diagnostic::error(place, self.name.as_str(), message));
            self.entries.clear();
        }
        let mut read_before: Vec<(Arc<str>, T)> = Vec::new();
        for item in mem::take(&mut self.lists).iter().flat_map(|list| list.items().unwrap_or_default()) {
            let Some(mut table) = item.section() else {
                self.found.extend(item.wrong_kind("a table"));
                continue;
            };
            let entry = read(&mut table).filter(|_| table.found.is_empty());
            let origins = mem::take(&mut table.origins).into_iter();
            let of_list = |key: &str| key.rsplit_once('.').map(|(_, key)| format!("{}.{key}", self.name));
            self.origins.extend(origins.filter_map(|(key, file)| Some((of_list(&key)?, file))));
            self.found.extend(table.finish());
            let Some(entry) = entry else { continue };
            let file = Arc::clone(&item.file.path);
            let is_full = read_before.len() >= max;
            match read_before.iter_mut().find(|(_, before)| name(before) == name(&entry)) {
                Some((of, _)) if *of == file => {
                    let message = format!("the name `{}` is used twice", shown(name(&entry)));
                    self.found.push(item.error(message).with_note("give one of them another `name`"));
                }
                Some(before) => *before = (file, entry),
                None if is_full => {
                    self.found.push(item.error(format!("only {max} of [[{}]] are allowed", self.name)));
                }
                None => read_before.push((file, entry)),
            }
        }
        read_before.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Like [`Section::read`], for a required key.
    pub(crate) fn require<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&Value<'s>) -> Parsed<T>,
    ) -> Option<T> {
        // A value of another kind has its own finding.
        let is_table = !self.found.iter().any(|one| one.key == self.name);
        if !self.entries.contains_key(key) && is_table {
            let place = self.header.clone().unwrap_or_else(|| Place::file(&self.file));
            let message = format!("`{key}`{MISSING}{}]", self.name);
            self.found.push(Diagnostic::error(place, format!("{}.{key}", self.name), message));
        }
        self.read(key, parse)
    }

    /// Reports that `key` is missing, if it is.
    pub(crate) fn miss(&mut self, key: &'static str) {
        if let (Some(place), false) = (self.header.clone(), self.entries.contains_key(key)) {
            let list = self.name.split('[').next().unwrap_or_default();
            let message = format!("`{key}` is missing in [[{list}]]");
            self.found.push(Diagnostic::error(place, format!("{}.{key}", self.name), message));
        }
    }

    /// The last value of `key`, valid or not.
    pub(crate) fn value(&self, key: &str) -> Option<&Value<'s>> {
        self.entries.get(key)?.last().map(|entry| &entry.value)
    }

    /// Whether the value of `key` is of a later layer than that of `other`.
    pub(crate) fn is_later(&self, key: &str, other: &str) -> bool {
        let layer = |key| self.value(key).map(|value| value.file.layer);
        layer(key) > layer(other)
    }

    /// Removes the values of `keys` from the layers below `layer`.
    pub(crate) fn remove_below(&mut self, keys: &[&str], layer: LayerKind) {
        for (_, entries) in self.entries.iter_mut().filter(|(key, _)| keys.contains(key)) {
            entries.retain(|entry| entry.value.file.layer >= layer);
        }
        self.entries.retain(|_, entries| !entries.is_empty());
    }

    /// Whether `key` is present and had no valid value when it was read.
    pub(crate) fn is_wrong(&self, key: &str) -> bool {
        self.wrong.contains(&key)
    }

    /// Adds a finding about the value of `key` in combination with others; nothing if the key is
    /// absent.
    ///
    /// Shape: nothing if the value is wrong by itself, which has a finding.
    pub(crate) fn object(&mut self, key: &str, diagnose: impl FnOnce(&Value<'s>) -> Diagnostic) {
        let diagnostic = self.value(key).filter(|_| !self.is_wrong(key)).map(diagnose);
        self.found.extend(diagnostic);
    }

    /// The file of each value in use, by its key.
    pub(crate) fn origins(&self) -> &SortedMap<String, Arc<str>> {
        &self.origins
    }

    /// All mistakes, including keys that were never read.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        self.finish_beside(&Homes::new())
    }

    fn finish_beside(mut self, homes: &Homes) -> Vec<Diagnostic> {
        let mut found = mem::take(&mut self.found);
        found.extend(self.lists.iter().flat_map(|list| list.wrong_kind("a table")));
        let allowed = [self.tables.as_slice(), &self.asked].concat();
        let unknown = self.entries.iter().filter(|(key, _)| !self.asked.contains(key));
        let meant: Vec<_> = unknown.filter_map(|(key, _)| nearest(key, allowed.iter().copied())).collect();
        // A misspelt key is one mistake, and not a missing key too.
        let is_meant = |one: &Diagnostic| meant.iter().any(|key| one.key == format!("{}.{key}", self.name));
        found.retain(|one| !one.message.contains(MISSING) || !is_meant(one));
        for (key, entries) in &self.entries {
            if !self.asked.contains(key) {
                let diagnose = |entry: &Entry<'_>| {
                    unknown_key(entry.key_place.clone(), key, &entry.value.key, &allowed, homes)
                };
                found.extend(entries.iter().map(diagnose));
            }
        }
        found
    }
}

/// The sections that each key belongs to.
type Homes = SortedMap<&'static str, Vec<String>>;

/// All mistakes in the sections of some documents, and the entries that are in none of `names`.
pub(crate) fn finish_all<'d>(
    documents: impl IntoIterator<Item = &'d Document<'d>>,
    names: &[&str],
    sections: Vec<Section<'_>>,
) -> Vec<Diagnostic> {
    let mut homes = Homes::new();
    for section in &sections {
        for key in &section.asked {
            homes.get_or_default(key).push(section.name.clone());
        }
    }
    let at_top = documents.into_iter().flat_map(|document| document.unknown_sections(names, &homes));
    let mut found: Vec<_> = at_top.collect();
    let meant: Vec<String> = found.iter().filter_map(|one| one.nearest.clone()).collect();
    for section in sections {
        let name = section.name.clone();
        let mut of_section = section.finish_beside(&homes);
        // The keys of a table whose name is misspelt are not missing.
        of_section
            .retain(|one| !meant.contains(&name) || !one.message.ends_with(&format!("{MISSING}{name}]")));
        found.extend(of_section);
    }
    found
}

fn unknown_key(place: Place, key: &str, path: &str, allowed: &[&str], homes: &Homes) -> Diagnostic {
    let wrong = Diagnostic::error(place, shown(path), format!("unknown key `{}`", shown(key)));
    let wrong = wrong.with_allowed(key, allowed);
    // A key of several sections says nothing about the one that was meant.
    match homes.get(key).map(Vec::as_slice) {
        Some([home]) => {
            Diagnostic { nearest: None, ..wrong.with_note(format!("`{key}` is a key of [{home}]")) }
        }
        Some(_) | None => wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { layer: LayerKind::User, name: "aside.toml".into(), path: path.into(), text: text.into() }
    }

    fn number(value: &Value<'_>) -> Parsed<i64> {
        let integer = value.get().as_integer().and_then(|integer| integer.as_str().parse().ok());
        integer.ok_or_else(|| value.wrong_kind("an integer"))
    }

    fn messages(found: &[Diagnostic]) -> Vec<String> {
        found.iter().map(|diagnostic| format!("{} {}", diagnostic.place, diagnostic.message)).collect()
    }

    #[test]
    fn later_file_overrides_keys_with_valid_values_only() {
        let files = [file("a", "[s]\nx = 1\ny = 1\nz = 1\n"), file("b", "[s]\ny = 2\nz = true\n")];
        let documents: Vec<_> = files.iter().map(|file| Document::parse(file).expect("TOML")).collect();
        let mut section = Section::new("s", &documents);
        assert_eq!(["x", "y", "z"].map(|key| section.read(key, number)), [Some(1), Some(2), Some(1)]);
        let origins: Vec<_> = section.origins().iter().map(|(key, file)| format!("{key}={file}")).collect();
        assert_eq!(origins, ["s.x=a", "s.y=b", "s.z=a"]);
        assert_eq!(messages(&section.finish()), ["b:3:5 `z` must be an integer, not a boolean"]);
    }

    #[test]
    fn later_file_extends_list_and_replaces_by_name() {
        let one = |name: &str, v: i64| format!("[[s.l]]\nname = \"{name}\"\nv = {v}\n");
        let files = [
            file("a", &[one("x", 1), one("y", 1)].concat()),
            file("b", &[one("y", 2), one("z", 2), one("z", 3), one("w", 2)].concat()),
            file("c", "[s.l]\nv = 1\n"),
        ];
        let documents: Vec<_> = files.iter().map(|file| Document::parse(file).expect("TOML")).collect();
        let mut outer = Section::new("s", &documents);
        let mut section = outer.table("l");
        let read = |table: &mut Section<'_>| {
            let name = table.read("name", |value| crate::config::values::words(value).map(str::to_owned));
            Some((name?, table.read("v", number)?))
        };
        let found = section.list(3, read, |(name, _)| name);
        let found: Vec<_> = found.iter().map(|(name, v)| format!("{name}={v}")).collect();
        assert_eq!(found, ["x=1", "y=2", "z=2"]);
        let expected = [
            "c:1:1 each table of this list is written under [[s.l]]",
            "b:7:1 the name `z` is used twice",
            "b:10:1 only 3 of [[s.l]] are allowed",
        ];
        assert_eq!(messages(&section.finish()), expected);
    }

    #[test]
    fn unknown_keys_of_all_files_are_located() {
        let files = [file("a", "[s]\nx = 1\nxx = 1\n"), file("b", "[s]\nxx = 1\n\"w\\u0000\" = 2\n")];
        let documents: Vec<_> = files.iter().map(|file| Document::parse(file).expect("TOML")).collect();
        let mut section = Section::new("s", &documents);
        assert_eq!(section.read("x", number), Some(1));
        let found = section.finish();
        let expected = ["b:3:1 unknown key `w\\u{0}`", "a:3:1 unknown key `xx`", "b:2:1 unknown key `xx`"];
        assert_eq!(messages(&found), expected);
        assert_eq!(found[1].nearest.as_deref(), Some("x"));
    }

    #[test]
    fn named_tables_are_merged_across_files_and_bounded() {
        let files = [
            file("a", "[s]\nt.one = { x = 1 }\nt.two = { x = 2 }\n"),
            file("b", "[s.t.one]\nx = 3\nxx = 1\n[s.t.\"no name\"]\n[s.t.zzz]\n"),
            file("c", "[s]\nt = 5\n"),
        ];
        let documents: Vec<_> = files.iter().map(|file| Document::parse(file).expect("TOML")).collect();
        let mut section = Section::new("s", &documents);
        let tables = section.named_tables("t", 2, |table| table.read("x", number));
        assert_eq!(tables, [("one".into(), Some(3)), ("two".into(), Some(2))]);
        let origins: Vec<_> = section.origins().iter().map(|(key, file)| format!("{key}={file}")).collect();
        assert_eq!(origins, ["s.t=c", "s.t.one.x=b", "s.t.two.x=a"]);
        let expected = [
            "b:3:1 unknown key `xx`",
            "c:2:5 `t` must be a table, not an integer",
            "b:4:6 `no name` is not a name of letters, digits, `-` and `_`",
            "b:5:6 only 2 tables are allowed in [s.t]",
        ];
        assert_eq!(messages(&section.finish()), expected);
    }

    #[test]
    fn every_mistake_of_syntax_is_found() {
        let file = file("a", "x = \ny = 1\nz = \"\n");
        let found = Document::parse(&file).err().expect("not TOML");
        let places: Vec<_> = found.iter().map(|diagnostic| diagnostic.place.line()).collect();
        assert_eq!(places, [1, 3], "{found:?}");
    }
}

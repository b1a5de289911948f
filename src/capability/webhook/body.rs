//! Reads the wanted fields of a JSON body in place, so that a body takes no more memory than its
//! text: everything else is skipped without being built.
//!
//! Of duplicate keys the last one counts, also when it has another shape.

use engine::{
    event::{cut_text, strip_text},
    raw_json::{each_entry, each_item, is_array, is_object},
    sorted::SortedMap,
};
use serde_json::{Map, Result, Value, value::RawValue};

/// Most fields that are read from a body without a matching row.
const FIELDS_MAX: usize = 20;

/// The value if it is a text, a number or a boolean.
///
/// Errors: a text with half a surrogate, or a number out of range.
pub(super) fn scalar(value: &RawValue) -> Result<Option<Value>> {
    let is_scalar = !is_object(value) && !is_array(value) && value.get() != "null";
    is_scalar.then(|| serde_json::from_str(value.get())).transpose()
}

/// The value if it is a text.
///
/// Errors: as [`scalar`].
pub(super) fn text(value: &RawValue) -> Result<Option<String>> {
    value.get().starts_with('"').then(|| serde_json::from_str(value.get())).transpose()
}

/// The texts, numbers and booleans at the wanted paths of a body.
#[derive(Debug)]
pub(super) struct Fields<'p> {
    tree: Node<'p>,
    found: Vec<Option<Value>>,
}

impl<'p> Fields<'p> {
    /// Reads the values at `paths`.
    ///
    /// Errors: a key or a wanted value cannot be read.
    pub(super) fn read(body: &RawValue, paths: impl Iterator<Item = &'p Path>) -> Result<Self> {
        let (mut tree, mut count) = (Node::default(), 0);
        paths.for_each(|path| tree.add(&path.0, &mut count));
        let mut found = vec![None; count];
        tree.read(body, &mut found)?;
        Ok(Self { tree, found })
    }

    /// The value at `path`, which is one of the wanted ones.
    pub(super) fn get(&self, path: &Path) -> Option<&Value> {
        let end = path.0.iter().try_fold(&self.tree, |node, key| node.children.get(key.as_str()))?;
        self.found.get(end.end?)?.as_ref()
    }
}

/// The wanted paths with the same beginning.
#[derive(Debug, Default)]
struct Node<'p> {
    /// The number of the path that ends here.
    end: Option<usize>,
    children: SortedMap<&'p str, Node<'p>>,
}

impl<'p> Node<'p> {
    fn add(&mut self, path: &'p [String], count: &mut usize) {
        match path.split_first() {
            Some((key, rest)) => self.children.get_or_default(key).add(rest, count),
            None if self.end.is_none() => {
                self.end = Some(*count);
                *count += 1;
            }
            None => {}
        }
    }

    fn read(&self, value: &RawValue, found: &mut [Option<Value>]) -> Result<()> {
        self.clear(found);
        if let Some(slot) = self.end.and_then(|end| found.get_mut(end)) {
            *slot = scalar(value)?;
        }
        if self.children.is_empty() {
            Ok(())
        } else if is_object(value) {
            each_entry(value, |key, value| match self.children.get(key) {
                Some(child) => child.read(value, found),
                None => Ok(()),
            })
        } else if is_array(value) {
            let children = self.children.iter();
            let wanted: SortedMap<usize, &Self> =
                children.filter_map(|(key, child)| Some((key.parse().ok()?, child))).collect();
            each_item(value, |index, value| match wanted.get(&index) {
                Some(child) => child.read(value, found),
                None => Ok(()),
            })
        } else {
            Ok(())
        }
    }

    /// Forgets what an earlier, equal key had at and below this node.
    fn clear(&self, found: &mut [Option<Value>]) {
        if let Some(slot) = self.end.and_then(|end| found.get_mut(end)) {
            *slot = None;
        }
        self.children.values().for_each(|child| child.clear(found));
    }
}

/// The top level of a body.
#[derive(Debug, Default)]
pub(super) struct Top {
    /// Its `type`, if it is a text.
    pub(super) named: Option<String>,
    /// Its `action`, if it is a text.
    pub(super) action: Option<String>,
    /// Its first texts, numbers and booleans.
    pub(super) plain: Map<String, Value>,
}

impl Top {
    /// Errors: a key or a plain value cannot be read.
    pub(super) fn read(body: &RawValue) -> Result<Self> {
        let mut top = Self::default();
        if is_object(body) {
            each_entry(body, |key, value| top.take(key, value))?;
        }
        Ok(top)
    }

    fn take(&mut self, key: &str, value: &RawValue) -> Result<()> {
        match key {
            "type" => self.named = text(value)?,
            "action" => self.action = text(value)?,
            _ => {}
        }
        let is_wanted = self.plain.len() < FIELDS_MAX && is_name(key) || self.plain.contains_key(key);
        match is_wanted.then(|| scalar(value)).transpose()?.flatten() {
            Some(value) => drop(self.plain.insert(key.to_owned(), clean(&value))),
            None if is_wanted => drop(self.plain.shift_remove(key)),
            None => {}
        }
        Ok(())
    }
}

/// Longest text that is read from a field of a body, in characters.
const TEXT_CHARS_MAX: usize = 500;
/// Longest name of a field or an alert that is read from a body, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The path of a value in a body: keys separated by dots; a number as key is also an index into an
/// array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(pub(super) Vec<String>);

impl Path {
    /// Parses a path; `None` if a key is empty.
    pub fn parse(text: &str) -> Option<Self> {
        let keys: Vec<String> = text.split('.').map(str::to_owned).collect();
        keys.iter().all(|key| !key.is_empty()).then_some(Self(keys))
    }
}

/// Whether a sender's name of a field is valid here; fields with other names are omitted.
pub(super) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// A value without control characters and of bounded length.
pub(super) fn clean(value: &Value) -> Value {
    let text = value.as_str().map(|text| cut_text(strip_text(text), TEXT_CHARS_MAX).into_owned().into());
    text.unwrap_or_else(|| value.clone())
}

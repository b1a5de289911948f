//! The types of the values in a client's settings, as data.
//!
//! A client may skip a whole settings file for one value of another type, and with it the hooks.

use serde_json::Value;

/// A value that the client does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongValue {
    /// The keys and indices that lead to it; the last one may be missing in the file.
    pub path: Vec<String>,
    /// The accepted types, such as "an array".
    pub expected: String,
}

/// A type of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`.
    Null,
}

impl Type {
    const fn of(value: &Value) -> Self {
        match value {
            Value::Object(_) => Self::Object,
            Value::Array(_) => Self::Array,
            Value::String(_) => Self::Text,
            Value::Number(_) => Self::Number,
            Value::Bool(_) => Self::Boolean,
            Value::Null => Self::Null,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::Text => "a string",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Null => "null",
        }
    }
}

impl WrongValue {
    /// The path in the form `hooks.Stop.0.matcher`.
    pub fn field(&self) -> String {
        self.path.join(".")
    }

    /// Checks that the value at `path` is of one of these types; a missing one is.
    pub fn check(path: &[&str], value: Option<&Value>, types: &[Type]) -> Result<(), Self> {
        match value {
            Some(value) if !types.contains(&Type::of(value)) => Err(Self::new(path, types)),
            _ => Ok(()),
        }
    }

    /// Like [`Self::check`], but the value must be there.
    pub fn require(path: &[&str], value: Option<&Value>, types: &[Type]) -> Result<(), Self> {
        value.map_or_else(|| Err(Self::new(path, types)), |value| Self::check(path, Some(value), types))
    }

    fn new(path: &[&str], types: &[Type]) -> Self {
        let expected: Vec<&str> = types.iter().map(|one| one.words()).collect();
        Self { path: path.iter().map(|&key| key.to_owned()).collect(), expected: expected.join(" or ") }
    }
}

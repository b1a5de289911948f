//! The filters `regex_find` and `regex_replace`, and the regular expressions of a program.
//!
//! An expression is a literal in the source, so it is compiled once, with the program, and a wrong
//! one is refused there. The engine of `regex` is linear in the text, with a factor that grows with
//! the size of the expression. So sizes are bounded, and a step of text is paid many times.

use std::sync::Arc;

use minijinja::{
    Error, State,
    value::{DynObject, Enumerator, Object, ObjectRepr, Value},
};
use regex::{Captures, Regex, RegexBuilder, bytes};

use super::{
    account::{
        Price::{self, One},
        TEXT_BYTES_MAX, account, admit_text, steps_of_text,
    },
    formats::{is_absent, text},
    operators::invalid,
};
use crate::sorted::SortedMap;

/// The names of the filters.
pub(super) const FIND: &str = "regex_find";
pub(super) const REPLACE: &str = "regex_replace";
/// The variable with a program's expressions. It is not a valid name in a source.
const PATTERNS: &str = "@patterns";
/// Most expressions of a program.
const COUNT_MAX: usize = 20;
/// Longest expression, in bytes.
const PATTERN_BYTES_MAX: usize = 500;
/// Largest expression when it is compiled, in bytes: some fifteen classes such as `\w`.
const COMPILED_BYTES_MAX: usize = 512 * 1024;
/// Sizes of expressions whose classes have ASCII characters only, in bytes; a larger one than the
/// last is refused. The worst expressions visit each of their states for each byte of a text, and
/// of the states of a class for each script, a few.
const STATES_BYTES: [usize; 5] = [8 * 1024, 16 * 1024, 32 * 1024, 64 * 1024, 128 * 1024];
/// Largest cache of one expression in memory.
const CACHE_BYTES_MAX: usize = 256 * 1024;
/// Longest text that is searched, in bytes: four times a field of an event.
const SEARCHED_BYTES_MAX: usize = 8 * 1024;
/// Longest replacement, in bytes.
const REPLACEMENT_BYTES_MAX: usize = 1_000;
const TOO_LARGE: &str = "the regular expression is too large";
/// How much slower searching a text is than copying it, for each of the smallest sizes.
const SEARCH_STEPS: u64 = 128;

/// The filters, each with its price.
pub(super) fn filters() -> Vec<(&'static str, Price, Value)> {
    vec![(FIND, One, Value::from_function(regex_find)), (REPLACE, One, Value::from_function(regex_replace))]
}

/// The regular expressions of a program, by their text.
#[derive(Debug, Default)]
pub(in crate::pipeline) struct Patterns(SortedMap<String, Pattern>);

/// A regular expression, and what searching a step of text costs.
#[derive(Debug)]
struct Pattern {
    regex: Regex,
    steps: u64,
}

/// What searching a step of text costs; `None` for an expression that is too large.
fn search_steps(pattern: &str) -> Option<u64> {
    let is_within = |bytes_max: &usize| {
        let mut builder = bytes::RegexBuilder::new(pattern);
        !matches!(builder.unicode(false).size_limit(*bytes_max).build(), Err(regex::Error::CompiledTooBig(_)))
    };
    let size = STATES_BYTES.into_iter().find(is_within)?;
    Some(SEARCH_STEPS * (size / STATES_BYTES[0]) as u64)
}

impl Patterns {
    /// Compiles an expression and adds it.
    ///
    /// Errors: why it cannot be used.
    pub(super) fn add(&mut self, pattern: &str) -> Result<(), String> {
        if self.0.contains_key(pattern) {
            return Ok(());
        }
        if self.0.len() == COUNT_MAX {
            return Err(format!("a text has at most {COUNT_MAX} regular expressions"));
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!("a regular expression has at most {PATTERN_BYTES_MAX} bytes"));
        }
        let mut builder = RegexBuilder::new(pattern);
        let built = builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(CACHE_BYTES_MAX).build();
        let regex = built.map_err(|error| {
            if matches!(error, regex::Error::CompiledTooBig(_)) {
                return TOO_LARGE.to_owned();
            }
            let shown = error.to_string();
            let last = shown.lines().next_back().unwrap_or_default();
            format!("not a regular expression: {}", last.trim_start_matches("error: "))
        })?;
        let steps = search_steps(pattern).ok_or(TOO_LARGE)?;
        self.0.insert(pattern.to_owned(), Pattern { regex, steps });
        Ok(())
    }

    /// Pays for a search.
    ///
    /// Errors: a text that is too long, or too few steps are left.
    fn admit(&self, state: &mut State<'_, '_>, pattern: &str, searched: &str) -> Result<&Regex, Error> {
        if searched.len() > SEARCHED_BYTES_MAX {
            let message = format!("a regular expression searches at most {SEARCHED_BYTES_MAX} bytes of text");
            return Err(invalid(message));
        }
        let Pattern { regex, steps } = self.0.get(pattern).ok_or_else(unknown)?;
        account(state)?.spend(steps_of_text(searched.len()).saturating_mul(*steps))?;
        Ok(regex)
    }

    /// Adds the variable with the expressions to those of `root`.
    pub(super) fn with_variables(self: &Arc<Self>, root: Value) -> Value {
        match root.as_object() {
            Some(variables) if !self.0.is_empty() => {
                Value::from_object(Root { variables: variables.clone(), patterns: Arc::clone(self) })
            }
            Some(_) | None => root,
        }
    }
}

impl Object for Patterns {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// The variables of a program with expressions.
#[derive(Debug)]
struct Root {
    variables: DynObject,
    patterns: Arc<Patterns>,
}

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        if key == PATTERNS {
            return Some(Value::from_dyn_object(Arc::clone(&self.patterns)));
        }
        self.variables.get_value_by_str(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}

/// The expressions of a running program.
fn patterns(state: &State<'_, '_>) -> Result<Arc<Patterns>, Error> {
    state.lookup(PATTERNS).and_then(|value| value.downcast_object::<Patterns>()).ok_or_else(unknown)
}

/// The check of a program refuses what is no literal.
fn unknown() -> Error {
    invalid("a regular expression is a literal text".to_owned())
}

/// The first group of the first match, or all of it if the expression has no group; null without
/// one.
fn regex_find(state: &mut State<'_, '_>, value: &Value, pattern: &str) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    let searched = text(FIND, value)?;
    let patterns = patterns(state)?;
    let regex = patterns.admit(state, pattern, &searched)?;
    let group = usize::from(regex.captures_len() > 1);
    let found = regex.captures(&searched).and_then(|found| found.get(group));
    Ok(found.map_or(Value::from(()), |found| Value::from(found.as_str())))
}

/// A text with each match replaced; `$1` and `${name}` are groups of it.
fn regex_replace(
    state: &mut State<'_, '_>,
    value: &Value,
    pattern: &str,
    replacement: &str,
) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    let searched = text(REPLACE, value)?;
    if replacement.len() > REPLACEMENT_BYTES_MAX {
        return Err(invalid(format!("a replacement has at most {REPLACEMENT_BYTES_MAX} bytes")));
    }
    let patterns = patterns(state)?;
    let regex = patterns.admit(state, pattern, &searched)?;
    let groups = replacement.matches('$').count();
    let (mut replaced, mut end) = (String::new(), 0);
    for found in regex.captures_iter(&searched) {
        let range = whole(&found);
        let most = replacement.len() + groups.saturating_mul(range.len());
        if replaced.len() + most > TEXT_BYTES_MAX {
            return Err(invalid(format!("a text of more than {TEXT_BYTES_MAX} bytes")));
        }
        replaced.push_str(searched.get(end..range.start).unwrap_or_default());
        found.expand(replacement, &mut replaced);
        end = range.end;
    }
    replaced.push_str(searched.get(end..).unwrap_or_default());
    admit_text(&*account(state)?, replaced.len())?;
    Ok(replaced.into())
}

fn whole(found: &Captures<'_>) -> std::ops::Range<usize> {
    found.get_match().range()
}
/// Why a replacement is refused: it names a group as other languages do, such as `\1`.
pub(super) fn foreign_group(replacement: &str) -> Option<String> {
    let mut digits = replacement.split('\\').skip(1).filter_map(|rest| rest.chars().next());
    let group = digits.find(char::is_ascii_digit)?;
    Some(format!("a group is written `${group}` in a replacement, not `\\{group}`"))
}

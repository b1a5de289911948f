//! Whether a client accepts its settings file.
//!
//! A client reads its settings as strict JSON with values of known types. It skips a file with an
//! error whole, with all hooks in it, and may not say so.

use jsonc_parser::{
    CollectOptions,
    ast::{self, ObjectProp},
    common::Ranged,
    parse_to_ast,
};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::settings::{STRICT, SettingsError, syntax};
use crate::harness::kind::Hooks;

/// Checks a settings file as its client does; an empty one is accepted.
///
/// Errors: the first problem, with its line and column. Beyond the client's own rules, keys that
/// aside edits may occur only once: the client reads the last one.
pub(crate) fn check(hooks: &Hooks, text: &str) -> Result<(), SettingsError> {
    // The client skips a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let tree = parse_to_ast(text, &CollectOptions::default(), &STRICT).map_err(|error| syntax(&error))?;
    let Some(root) = tree.value else { return Ok(()) };
    // The tree accepts control characters in strings.
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| strict(text, &error))?;
    let ast::Value::Object(object) = &root else { return Err(SettingsError::not_an_object()) };
    let settings = &hooks.installation.settings;
    let status_line = hooks.installation.status_line.as_ref().map(|setting| setting.key);
    let edited = object.properties.iter().filter(|property| {
        let name = property.name.as_str();
        name == HOOKS || Some(name) == status_line
    });
    once(text, edited, "")?;
    if let Some(events) = object.get_object(HOOKS) {
        once(text, events.properties.iter(), "hooks.")?;
    }
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    (settings.check)(&value).map_err(|wrong| {
        let (line, column) = place(text, found(&root, &wrong.path));
        SettingsError::Wrong { line, column, field: wrong.field(), expected: wrong.expected }
    })
}

/// The key with all hooks.
const HOOKS: &str = "hooks";

/// Refuses a key that occurs twice.
fn once<'t, 'a: 't>(
    text: &str,
    properties: impl Iterator<Item = &'t ObjectProp<'a>>,
    prefix: &str,
) -> Result<(), SettingsError> {
    let mut names = Vec::new();
    for property in properties {
        let name = property.name.as_str();
        if names.contains(&name) {
            let (line, column) = place(text, property.start());
            let message = format!("`{prefix}{name}` is given twice, and the client reads only the last one");
            return Err(SettingsError::Syntax { line, column, message });
        }
        names.push(name);
    }
    Ok(())
}

/// The start of the value at `path`, or of the last object or array on the way.
fn found<'t, 'a>(root: &'t ast::Value<'a>, path: &[String]) -> usize {
    let mut value = root;
    for key in path {
        let item = |array: &'t ast::Array<'a>| array.elements.get(key.parse::<usize>().ok()?);
        let property = value.as_object().and_then(|object| object.get(key));
        let next = property.map(|property| &property.value).or_else(|| value.as_array().and_then(item));
        let Some(next) = next else { break };
        value = next;
    }
    value.start()
}

/// Line and column, in characters, of a byte; both from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit_once('\n').map_or(before, |(_, line)| line);
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}

/// An error of the strict parser, whose column is the number of bytes before it.
fn strict(text: &str, error: &serde_json::Error) -> SettingsError {
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let column = line.get(..error.column()).unwrap_or(line).chars().count() + 1;
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    SettingsError::Syntax { line: error.line(), column, message: message.to_owned() }
}

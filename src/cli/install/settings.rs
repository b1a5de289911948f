//! Edits of a client's settings file: text in, text out, with all foreign content unchanged.
//!
//! The text is edited as a tree that keeps order and white space, so manual formatting is preserved.
//! The tree also accepts comments, which a client refuses ([`check_accepted`]), so that ours can be
//! removed from such a file.

use std::path::Path;

use hook::client::{HOOK_PROGRAM, PROGRAM};
use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{self, ObjectProp},
    common::Ranged,
    cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode},
    errors::ParseError,
    parse_to_ast,
};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::harness::kind::{Hooks, Kind};

/// The command of this program that a hook runs.
pub(super) const HOOK: &str = "hook";

/// JSON and nothing more.
pub(super) const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_trailing_commas: false,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Why a settings file cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// It is not JSON.
    #[error("{line}:{column}: {message}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        message: String,
    },
    /// A value has another type than the client accepts.
    #[error("{line}:{column}: `{field}` is not {expected}")]
    Wrong {
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// The path of the value.
        field: String,
        /// The expected types.
        expected: String,
    },
    /// A value has another type than an edit needs.
    #[error("{field} is not {expected}")]
    Shape {
        /// The displayed field.
        field: String,
        /// The expected type.
        expected: &'static str,
    },
}

impl SettingsError {
    /// The error with the file's name, in the form that editors can jump to.
    pub(crate) fn at(&self, path: &Path) -> String {
        let separator = if matches!(self, Self::Shape { .. }) { ": " } else { ":" };
        format!("{}{separator}{self}", path.display())
    }

    /// What the error means for the client, as a clause.
    pub(super) const fn effect(&self) -> &'static str {
        match self {
            Self::Syntax { .. } | Self::Wrong { .. } => "the client skips a file with an error whole; ",
            Self::Shape { .. } => "",
        }
    }

    /// The whole is no object.
    pub(super) fn not_an_object() -> Self {
        Self::Shape { field: "the file".to_owned(), expected: "an object" }
    }
}

/// One hook of ours in a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OurHook {
    /// The client's name for the point.
    pub(crate) event: String,
    /// The program that it calls.
    pub(crate) program: String,
}

/// A settings file as a tree.
#[derive(Debug)]
pub(crate) struct Settings {
    root: CstRootNode,
    /// The byte order mark before it, or nothing.
    mark: &'static str,
}

/// A client skips it, and the tree does not know it.
const BYTE_ORDER_MARK: &str = "\u{feff}";

impl Settings {
    /// Parses a file's text; an empty one counts as an empty object.
    ///
    /// Errors: the text is not a JSON object. Comments and trailing commas are accepted.
    pub(crate) fn parse(text: &str) -> Result<Self, SettingsError> {
        let options = ParseOptions { allow_comments: true, allow_trailing_commas: true, ..STRICT };
        let (mark, text) =
            text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text), |text| (BYTE_ORDER_MARK, text));
        let root = CstRootNode::parse(text, &options).map_err(|error| syntax(&error))?;
        let is_object = root.value().is_none_or(|value| value.as_object().is_some());
        is_object.then_some(Self { root, mark }).ok_or_else(SettingsError::not_an_object)
    }

    /// The file's current text.
    pub(crate) fn text(&self) -> String {
        format!("{}{}", self.mark, self.root)
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        let text = self.text();
        let has_comment = text.contains("//") || text.contains("/*");
        let object = self.object();
        !has_comment && object.is_none_or(|object| object.properties().is_empty())
    }

    /// The whole as a value, for reading.
    pub(crate) fn value(&self) -> Value {
        self.root.to_serde_value().unwrap_or_default()
    }

    /// Adds these hooks, in place of older ones of ours.
    ///
    /// Shape: `hooks` maps an event's name to its groups, as in a settings file; ours have one
    /// group per event.
    pub(crate) fn put_hooks(&self, hooks: &Value) -> Result<(), SettingsError> {
        let wanted = |event: &str| hooks.get(event).and_then(Value::as_array);
        self.check_hooks()?;
        if let Some(present) = self.object().and_then(|object| object.object_value("hooks")) {
            for property in present.properties() {
                let event = property.decoded_name().unwrap_or_default();
                if let (None, Some(groups)) = (wanted(&event), property.array_value())
                    && remove_ours(&groups, None)
                    && groups.elements().is_empty()
                {
                    property.remove();
                }
            }
        }
        let all = self.root.object_value_or_set().object_value_or_set("hooks");
        for (event, group) in hooks.as_object().into_iter().flatten() {
            let Some(group) = group.as_array().and_then(|groups| groups.first()) else { continue };
            put_group(&all.array_value_or_set(event), group);
        }
        Ok(())
    }

    /// Removes all our hooks, and containers that become empty.
    pub(crate) fn remove_hooks(&self) -> Result<(), SettingsError> {
        self.check_hooks()?;
        let Some(property) = self.object().and_then(|object| object.get("hooks")) else { return Ok(()) };
        let Some(hooks) = property.object_value() else { return Ok(()) };
        let mut has_removed = false;
        for event in hooks.properties() {
            let Some(groups) = event.array_value() else { continue };
            if remove_ours(&groups, None) {
                has_removed = true;
                if groups.elements().is_empty() {
                    event.remove();
                }
            }
        }
        if has_removed && hooks.properties().is_empty() {
            property.remove();
        }
        Ok(())
    }

    /// All our hooks, in file order.
    pub(crate) fn our_hooks(&self) -> Vec<OurHook> {
        our_hooks(&self.value())
    }

    /// The top level, if it exists.
    pub(super) fn object(&self) -> Option<CstObject> {
        self.root.object_value()
    }

    /// The top level, created if missing.
    pub(super) fn object_or_new(&self) -> CstObject {
        self.root.object_value_or_set()
    }

    fn check_hooks(&self) -> Result<(), SettingsError> {
        let Some(property) = self.object().and_then(|object| object.get("hooks")) else { return Ok(()) };
        let hooks = property.object_value().ok_or_else(|| shape("hooks", "an object"))?;
        for event in hooks.properties() {
            if event.array_value().is_none() {
                return Err(shape(
                    &format!("hooks.{}", event.decoded_name().unwrap_or_default()),
                    "an array",
                ));
            }
        }
        Ok(())
    }
}

/// All our hooks in the value of a settings file or of an extension's hooks.
pub(crate) fn our_hooks(settings: &Value) -> Vec<OurHook> {
    let mut found = Vec::new();
    for (event, groups) in settings.get("hooks").and_then(Value::as_object).into_iter().flatten() {
        let groups = groups.as_array().into_iter().flatten();
        let handlers = groups.filter_map(|group| group.get("hooks")?.as_array()).flatten();
        found
            .extend(handlers.filter_map(program_of).map(|program| OurHook { event: event.clone(), program }));
    }
    found
}

/// The program of a hook, if the hook is ours.
fn program_of(handler: &Value) -> Option<String> {
    let command = handler.get("command")?.as_str()?;
    let mut words = match handler.get("args").and_then(Value::as_array) {
        Some(args) => {
            let args = args.iter().map(|arg| arg.as_str().map(str::to_owned));
            std::iter::once(Some(command.to_owned())).chain(args).collect::<Option<Vec<_>>>()?
        }
        None => shlex::split(command)?,
    }
    .into_iter();
    let program = words.next()?;
    let is_hook = match file_name(&program) {
        HOOK_PROGRAM => true,
        PROGRAM => words.next().as_deref() == Some(HOOK),
        _ => false,
    };
    (is_hook && words.next().is_some_and(|word| Kind::of_word(&word).is_some())).then_some(program)
}

/// Whether `program` is this program, under any path.
pub(super) fn is_program(program: &str) -> bool {
    file_name(program) == PROGRAM
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Makes `group` our only one among `groups`, in the place of an earlier one or at the end.
fn put_group(groups: &CstArray, group: &Value) {
    let ours = |element: &CstNode| handlers(element).iter().any(is_our_node);
    let others = |element: &CstNode| handlers(element).iter().any(|handler| !is_our_node(handler));
    let own = groups.elements().into_iter().find(|element| ours(element) && !others(element));
    let kept = own.as_ref().map(CstNode::child_index);
    remove_ours(groups, kept);
    match own {
        Some(own) if own.to_serde_value().as_ref() == Some(group) => {}
        Some(own) => {
            if let Some(object) = own.as_object() {
                object.replace_with(input(group));
            }
        }
        None => {
            groups.append(input(group));
        }
    }
}

/// Removes our handlers from all groups but the one at `kept`, and groups that become empty;
/// returns whether there were any.
fn remove_ours(groups: &CstArray, kept: Option<usize>) -> bool {
    let mut has_removed = false;
    for group in groups.elements() {
        if kept == Some(group.child_index()) {
            continue;
        }
        let (ours, others): (Vec<_>, Vec<_>) = handlers(&group).into_iter().partition(is_our_node);
        has_removed |= !ours.is_empty();
        if others.is_empty() && !ours.is_empty() {
            group.remove();
        } else {
            ours.into_iter().for_each(CstNode::remove);
        }
    }
    has_removed
}

fn handlers(group: &CstNode) -> Vec<CstNode> {
    let hooks = group.as_object().and_then(|group| group.array_value("hooks"));
    hooks.map(|hooks| hooks.elements()).unwrap_or_default()
}

fn is_our_node(handler: &CstNode) -> bool {
    handler.to_serde_value().as_ref().and_then(program_of).is_some()
}

/// Converts a value for the tree.
pub(super) fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

pub(super) fn shape(field: &str, expected: &'static str) -> SettingsError {
    SettingsError::Shape { field: format!("`{field}`"), expected }
}

pub(super) fn syntax(error: &ParseError) -> SettingsError {
    SettingsError::Syntax {
        line: error.line_display(),
        column: error.column_display(),
        message: lower_first(&error.kind().to_string()),
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// Quotes `word` for a shell. Bytes that a shell cannot take cannot be in a settings file either.
pub(in crate::cli) fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.replace('\0', ""), std::borrow::Cow::into_owned)
}

/// Checks a settings file as its client does; an empty one is accepted.
///
/// Errors: the first problem, with its line and column. Beyond the client's own rules, keys that
/// aside edits may occur only once: the client reads the last one.
pub(crate) fn check_accepted(hooks: &Hooks, text: &str) -> Result<(), SettingsError> {
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

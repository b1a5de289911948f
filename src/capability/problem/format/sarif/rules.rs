//! The rules of a run: their levels, and their messages with placeholders. Sections 3.11, 3.18,
//! 3.19 and 3.49 to 3.52.

use std::collections::BTreeMap;

use engine::raw_json::{each_entry, each_item};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::capability::problem::text::begin;

/// Most rules of a run that are remembered.
const RULES_MAX: usize = 10_000;
/// Most messages of all rules of a run.
const MESSAGES_MAX: usize = 20_000;
/// Most tools of a run: the driver and its extensions.
const TOOLS_MAX: usize = 100;
/// Most bytes of an id.
const ID_BYTES_MAX: usize = 1_024;
/// Most bytes of a message of a rule, and of a message with its arguments.
const MESSAGE_BYTES_MAX: usize = 2 * 1024;
/// Most placeholders of a message that are replaced.
const PLACEHOLDERS_MAX: usize = 100;

#[derive(Debug, Deserialize)]
struct Tool<'a> {
    #[serde(borrow, default)]
    driver: Option<Component<'a>>,
    #[serde(borrow, default)]
    extensions: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Component<'a> {
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    rules: Option<&'a RawValue>,
    #[serde(borrow, default)]
    notifications: Option<&'a RawValue>,
    #[serde(borrow, default)]
    global_message_strings: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleObject<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    message_strings: Option<&'a RawValue>,
    #[serde(default)]
    short_description: Option<Text>,
    #[serde(default)]
    full_description: Option<Text>,
    #[serde(default)]
    default_configuration: Option<Configuration>,
}

/// What a rule, or an override of it, says about its results.
#[derive(Debug, Deserialize)]
pub(super) struct Configuration {
    pub(super) level: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Text {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    markdown: Option<String>,
}

impl Text {
    fn into_string(self) -> Option<String> {
        self.text.or(self.markdown).map(|text| begin(&text, MESSAGE_BYTES_MAX).to_owned())
    }
}

/// A message: its text, or the id of one of the rule, with arguments.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    markdown: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// A reference to a rule, or to a descriptor of notifications.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference {
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) index: Option<i64>,
    #[serde(default)]
    tool_component: Option<ToolReference>,
}

#[derive(Debug, Default, Deserialize)]
struct ToolReference {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    index: Option<i64>,
}

/// A rule, as far as it is needed.
#[derive(Debug, Default)]
pub(super) struct Rule {
    pub(super) id: Option<String>,
    pub(super) level: Option<String>,
    messages: BTreeMap<String, String>,
    description: Option<String>,
}

/// The rules of one tool, by their order and by their ids.
#[derive(Debug, Default)]
struct Descriptors {
    all: Vec<Rule>,
    by_id: BTreeMap<String, usize>,
}

#[derive(Debug, Default)]
struct ToolRules {
    name: Option<String>,
    rules: Descriptors,
    notifications: Descriptors,
    messages: BTreeMap<String, String>,
}

/// What a reference names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Rule,
    Notification,
}

/// The rules of a run: those of the driver first, then those of its extensions.
#[derive(Debug, Default)]
pub(super) struct Rules {
    tools: Vec<ToolRules>,
    rules_left: usize,
    messages_left: usize,
}

impl Rules {
    /// Shape: what is not in the form of a rule is skipped, as the results do not depend on it.
    pub(super) fn read(tool: Option<&RawValue>) -> Self {
        let mut read = Self { tools: Vec::new(), rules_left: RULES_MAX, messages_left: MESSAGES_MAX };
        let parsed = tool.and_then(|tool| serde_json::from_str::<Tool<'_>>(tool.get()).ok());
        let Some(Tool { driver, extensions }) = parsed else { return read };
        let driver = driver.map(|driver| read.tool(driver)).unwrap_or_default();
        read.tools.push(driver);
        if let Some(extensions) = extensions {
            // An extension that cannot be read keeps its place, as references count them.
            drop(each_item(extensions, |_, extension| {
                if read.tools.len() < TOOLS_MAX {
                    let parsed = serde_json::from_str::<Component<'_>>(extension.get()).ok();
                    let tool = parsed.map(|component| read.tool(component)).unwrap_or_default();
                    read.tools.push(tool);
                }
                Ok(())
            }));
        }
        read
    }

    fn tool(&mut self, component: Component<'_>) -> ToolRules {
        let Component { name, rules, notifications, global_message_strings } = component;
        let messages = self.messages(global_message_strings);
        ToolRules { name, rules: self.list(rules), notifications: self.list(notifications), messages }
    }

    fn list(&mut self, list: Option<&RawValue>) -> Descriptors {
        let mut read = Descriptors::default();
        if let Some(list) = list {
            drop(each_item(list, |index, rule| {
                if self.rules_left > 0 {
                    self.rules_left -= 1;
                    let parsed = serde_json::from_str::<RuleObject<'_>>(rule.get()).ok();
                    let rule = parsed.map(|rule| self.rule(rule)).unwrap_or_default();
                    if let Some(id) = &rule.id {
                        read.by_id.entry(id.clone()).or_insert(index);
                    }
                    read.all.push(rule);
                }
                Ok(())
            }));
        }
        read
    }

    fn rule(&mut self, rule: RuleObject<'_>) -> Rule {
        let RuleObject {
            id,
            name,
            message_strings,
            short_description,
            full_description,
            default_configuration,
        } = rule;
        let description = short_description.and_then(Text::into_string);
        let description = description.or_else(|| full_description.and_then(Text::into_string)).or(name);
        let description = description.map(|text| begin(&text, MESSAGE_BYTES_MAX).to_owned());
        let id = id.map(|id| begin(&id, ID_BYTES_MAX).to_owned());
        let level = default_configuration.and_then(|configuration| configuration.level);
        Rule { id, level, messages: self.messages(message_strings), description }
    }

    fn messages(&mut self, messages: Option<&RawValue>) -> BTreeMap<String, String> {
        let mut read = BTreeMap::new();
        if let Some(messages) = messages {
            drop(each_entry(messages, |id, text| {
                let text =
                    if self.messages_left > 0 { serde_json::from_str::<Text>(text.get()).ok() } else { None };
                if let Some(text) = text.and_then(Text::into_string) {
                    self.messages_left -= 1;
                    read.insert(begin(id, ID_BYTES_MAX).to_owned(), text);
                }
                Ok(())
            }));
        }
        read
    }

    /// The place of a rule, by its index, else by its id; a part after `/` is a refinement of a rule.
    fn position(&self, reference: &Reference, kind: Kind) -> Option<(usize, usize)> {
        let number = match &reference.tool_component {
            None => 0,
            Some(ToolReference { index: Some(index), .. }) if *index >= 0 => {
                usize::try_from(*index).ok()? + 1
            }
            Some(ToolReference { name: Some(name), .. }) => {
                self.tools.iter().position(|tool| tool.name.as_ref() == Some(name))?
            }
            Some(_) => 0,
        };
        let tool = self.tools.get(number)?;
        let descriptors = tool.descriptors(kind);
        let index = reference.index.and_then(|index| usize::try_from(index).ok());
        if let Some(index) = index.filter(|index| *index < descriptors.all.len()) {
            return Some((number, index));
        }
        let id = reference.id.as_deref()?;
        let outer = || id.rsplit_once('/').and_then(|(outer, _)| descriptors.by_id.get(outer));
        descriptors.by_id.get(id).or_else(outer).map(|index| (number, *index))
    }

    pub(super) fn find(&self, reference: &Reference, kind: Kind) -> Option<&Rule> {
        let (number, index) = self.position(reference, kind)?;
        self.tools.get(number)?.descriptors(kind).all.get(index)
    }

    /// Sets the level of a rule for this run.
    pub(super) fn set_level(&mut self, reference: &Reference, level: String) {
        let position = self.position(reference, Kind::Rule);
        let rule = position.and_then(|(number, index)| self.tools.get_mut(number)?.rules.all.get_mut(index));
        if let Some(rule) = rule {
            rule.level = Some(level);
        }
    }

    /// The text of a message, with its arguments; the description of the rule, if it has none.
    pub(super) fn text(&self, message: Message<'_>, rule: Option<&Rule>) -> Option<String> {
        let Message { text, markdown, id, arguments } = message;
        let named = id.as_deref().and_then(|id| {
            let global = self.tools.first().and_then(|driver| driver.messages.get(id));
            rule.and_then(|rule| rule.messages.get(id)).or(global).cloned()
        });
        let text = text.or(markdown).or(named);
        let text = text.map(|text| without_links(&with_arguments(&text, &read_arguments(arguments))));
        text.or_else(|| rule.and_then(|rule| rule.description.clone())).or(id)
    }
}

impl ToolRules {
    fn descriptors(&self, kind: Kind) -> &Descriptors {
        match kind {
            Kind::Rule => &self.rules,
            Kind::Notification => &self.notifications,
        }
    }
}

/// The arguments of a message, as far as they can be used.
fn read_arguments(arguments: Option<&RawValue>) -> Vec<String> {
    let mut read = Vec::new();
    if let Some(arguments) = arguments {
        drop(each_item(arguments, |_, argument| {
            if read.len() < PLACEHOLDERS_MAX {
                read.push(serde_json::from_str(argument.get()).unwrap_or_else(|_| argument.get().to_owned()));
            }
            Ok(())
        }));
    }
    read
}

/// Replaces `{0}` by the first argument; `{{` and `}}` are braces.
fn with_arguments(text: &str, arguments: &[String]) -> String {
    if arguments.is_empty() && !text.contains("{{") && !text.contains("}}") {
        return text.to_owned();
    }
    let (mut written, mut rest, mut left) = (String::new(), text, PLACEHOLDERS_MAX);
    while let Some(at) = rest.find(['{', '}']).filter(|_| left > 0 && written.len() < MESSAGE_BYTES_MAX) {
        let (before, from) = rest.split_at(at);
        written.push_str(before);
        left -= 1;
        let (brace, after) = from.split_at(1);
        let number = from.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let argument =
            number.and_then(|(number, after)| Some((arguments.get(number.parse::<usize>().ok()?)?, after)));
        rest = match (after.strip_prefix(brace), argument) {
            (Some(after), _) => {
                written.push_str(brace);
                after
            }
            (None, Some((argument, after))) => {
                written.extend(argument.chars().take(MESSAGE_BYTES_MAX / 4));
                after
            }
            (None, None) => {
                written.push_str(brace);
                after
            }
        };
    }
    written.push_str(rest);
    written
}

/// Replaces a link to a related location, `[text](1)`, by its text.
fn without_links(text: &str) -> String {
    let (mut written, mut rest) = (String::new(), text);
    while let Some((before, from)) = rest.split_once("](") {
        let digits = from.bytes().take_while(u8::is_ascii_digit).count();
        let after = from.get(digits..).and_then(|rest| rest.strip_prefix(')')).filter(|_| digits > 0);
        match before.rsplit_once('[').zip(after) {
            Some(((outer, name), after)) => {
                written.push_str(outer);
                written.push_str(name);
                rest = after;
            }
            None => {
                written.push_str(before);
                written.push_str("](");
                rest = from;
            }
        }
    }
    written.push_str(rest);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_gets_its_arguments() {
        let arguments = ["eval".to_owned(), "x{0}".to_owned()];
        for (text, expected) in
            [("no '{0}' in {1}", "no 'eval' in x{0}"), ("{{0}} {2} { }", "{0} {2} { }"), ("plain", "plain")]
        {
            assert_eq!(with_arguments(text, &arguments), expected);
        }
        assert!(with_arguments(&"{0}".repeat(100_000), &["x".repeat(100_000)]).len() < 400_000);
        assert_eq!(without_links("a [b](1), [c](http://x) and [d] (2)"), "a b, [c](http://x) and [d] (2)");
    }
}

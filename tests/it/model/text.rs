//! The part of the account about texts: their order and size, and their form in each format.

use std::cmp::Reverse;

use engine::{
    exchange::{AnswerField, Directive, Exchange, Format, Injection, NOT_RUN},
    notification::Priority,
};
use toon::tokens;

use super::account::Account;
use crate::support::written::xml_inside;

/// Most characters of a carrier without a limit of its own.
const CARRIER_CHARS_MAX: u32 = 32_000;

impl Account {
    /// The order and the limits of an injection, and its text.
    pub(super) fn check_injection(
        &self,
        exchange: &Exchange,
        injection: &Injection,
        directive: Option<&Directive>,
    ) {
        let delivered = &injection.notifications;
        assert!(!delivered.is_empty());
        let rank =
            |index: usize| (Reverse(delivered[index].priority), self.made[&delivered[index].id].created_at);
        assert!(
            (1..delivered.len()).all(|index| rank(index - 1) <= rank(index)),
            "priority, then age: {delivered:?}"
        );

        let limits = &self.rules.injection;
        let chars = injection.text.chars().count();
        let held = exchange.budget.max_chars.unwrap_or(limits.max_chars.max(CARRIER_CHARS_MAX));
        assert!(chars <= usize::try_from(held).expect("small"), "more than the carrier holds: {delivered:?}");
        if delivered.iter().any(|delivered| delivered.priority != Priority::Critical) {
            let budget = &exchange.budget;
            let max_notifications =
                budget.max_notifications.unwrap_or(u32::MAX).min(limits.max_notifications);
            let max_chars = budget.max_chars.unwrap_or(u32::MAX).min(limits.max_chars);
            let max_tokens = budget.max_tokens.unwrap_or(limits.max_tokens).min(limits.max_tokens);
            assert!(delivered.len() <= usize::try_from(max_notifications).expect("small"), "{delivered:?}");
            assert!(chars <= usize::try_from(max_chars).expect("small"));
            assert!(tokens::estimate(&injection.text) <= max_tokens);
        }
        check_text(exchange.format.unwrap_or(limits.format), injection, directive);
    }
}

/// For any payload, a text is one block that decodes; in place of a call, it begins with that the
/// call was not run.
fn check_text(format: Format, injection: &Injection, directive: Option<&Directive>) {
    let is_decoded = matches!(format, Format::Toon | Format::Json);
    // The result of a cancelled call is a text.
    let is_result = matches!(directive, Some(Directive::Cancel { .. }));
    let format = if is_result && format.field() != AnswerField::Text { Format::Xml } else { format };
    let text = match directive {
        Some(Directive::Cancel { .. }) if !is_decoded => {
            let rest = injection.text.strip_prefix(NOT_RUN).and_then(|rest| rest.strip_prefix("\n\n"));
            rest.unwrap_or_else(|| panic!("it does not say that the call was not run:\n{}", injection.text))
        }
        Some(Directive::Cancel { .. } | Directive::Continue { .. }) | None => &*injection.text,
    };
    let id = &injection.id;
    match format {
        Format::OpenaiDeveloper
        | Format::SystemMessage
        | Format::AnthropicBlock
        | Format::SyntheticTool
        | Format::UserPrefix => {
            let text = xml_inside(format, text).as_ref().into();
            check_text(Format::Xml, &Injection { text, ..injection.clone() }, None);
        }
        Format::XmlEach => {
            let end = format!("\" id=\"{id}\">");
            let own =
                text.lines().filter(|line| line.starts_with("<notification source=") && line.ends_with(&end));
            let has_more = text.contains("\n<notification source=\"aside\" id=");
            assert_eq!(own.count(), injection.notifications.len() + usize::from(has_more), "{text}");
        }
        Format::Xml => {
            let shown = injection.notifications.len();
            let (opening, inside) = text.split_once('\n').expect("a first line");
            let count =
                opening.strip_prefix("<notifications count=\"").and_then(|rest| rest.split('"').next());
            let count: usize = count.and_then(|count| count.parse().ok()).expect("a count");
            let fewer = if count > shown { format!(" shown=\"{shown}\"") } else { String::new() };
            assert_eq!(opening, format!("<notifications count=\"{count}\"{fewer} id=\"{id}\">"));
            let inside = inside.strip_suffix("\n</notifications>");
            let inside = inside.unwrap_or_else(|| panic!("not in its tags:\n{text}"));
            assert!(!inside.contains("<notifications") && !inside.contains("</notifications"), "{text}");
            toon::decode(inside).unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
        Format::Toon => {
            toon::decode(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
        Format::Json => {
            let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(value["notifications"].as_array().map(Vec::len), Some(injection.notifications.len()));
        }
        Format::Line => {
            let name = format!(" id={id}");
            let lines = text.lines().filter(|line| line.starts_with("aside: ") && line.contains(&name));
            assert_eq!(lines.count(), injection.notifications.len(), "{text}");
        }
        Format::Markdown => assert!(text.contains(injection.id.as_str())),
    }
}

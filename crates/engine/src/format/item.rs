//! The input of a writer: the carrier, notifications, and the counts of omitted ones.

use serde_json::{Map, Value};
use toon::Document;

use crate::{
    event::Severity,
    exchange::{Dialect, Format, InjectionId, NOT_RUN, Replaces},
    notification::{Counts, Cut, LeftOut, Notification, UNTRUSTED_SOURCE},
};

/// What a format writes, besides the notifications.
#[derive(Debug, Clone, Copy)]
pub struct Carrier<'a> {
    /// The format.
    pub format: Format,
    /// The API of the model. One for which a format has no words counts as [`Dialect::Chat`].
    pub dialect: Dialect,
    /// The injection.
    pub injection: &'a InjectionId,
    /// What the carrier replaces. In place of a call, every carrier is a text: the result of the call.
    pub replaces: Replaces,
    /// Whether the model may have had no text of aside in its context.
    pub is_first: bool,
}

impl Carrier<'_> {
    /// The text below [`NOT_RUN`], if it is in place of a call.
    pub(super) fn begun(&self, text: String) -> String {
        match self.replaces {
            Replaces::Nothing => text,
            Replaces::Call => format!("{NOT_RUN}\n\n{text}"),
        }
    }
}

/// One notification to write.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The notification.
    pub notification: &'a Notification,
    /// Whether it may have been delivered before; the text then includes a mark.
    pub redelivered: bool,
    /// The part that fits; `None` for the whole content.
    pub cut: Option<&'a Cut>,
    /// The number of its repetition; 0 for its first delivery.
    pub reminder: u32,
}

impl<'a> Item<'a> {
    pub(super) fn content(&self) -> &'a Document {
        self.cut.map_or(&self.notification.content, |cut| &cut.content)
    }

    /// Its severity; `None` for `info`, which is the usual one and says nothing.
    pub(super) fn severity(&self) -> Option<&'static str> {
        let severity = self.notification.severity;
        (severity != Severity::Info).then(|| severity.as_str())
    }

    /// The severity above a content without a subscriber; `None` below `error`.
    pub(super) fn severity_alone(&self) -> Option<&'static str> {
        self.severity().filter(|_| self.notification.severity >= Severity::Error)
    }

    /// Its metadata other than the content, as fields in output order.
    pub(super) fn marks(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let is_in_rows = self.notification.rows_name_sources && !self.cut.is_some_and(|cut| cut.is_text);
        let source = self.notification.untrusted_source.as_deref().filter(|_| !is_in_rows);
        let source = source.map(|source| (UNTRUSTED_SOURCE, Value::from(source)));
        let redelivered = self.redelivered.then_some((REDELIVERED, Value::Bool(true)));
        let cut = self.cut.map(|cut| (CUT, Value::from(&*cut.mark)));
        let reminder = (self.reminder > 0).then(|| (REMINDER, Value::from(self.reminder)));
        let id = self.notification.id.as_str();
        let respond = self
            .notification
            .requires_response
            .then(|| (RESPOND, Value::from(id.get(..RESPOND_CHARS).unwrap_or(id))));
        source.into_iter().chain(redelivered).chain(reminder).chain(respond).chain(cut)
    }
}

/// The key for a notification that may have been delivered before.
pub(super) const REDELIVERED: &str = "redelivered";

/// The key for the number of a repetition.
pub(super) const REMINDER: &str = "reminder";

/// The key for the id by which an agent answers.
pub(super) const RESPOND: &str = "respond";
/// Characters of that id: `n` and 6 hexadecimal digits tell apart what a session has.
const RESPOND_CHARS: usize = 7;

/// The key for the injection's id, in a text that is decoded.
pub(super) const INJECTION: &str = "injection";

/// The key for the sentence that a call was not run, in a text that is decoded.
pub(super) const NOT_RUN_KEY: &str = "not_run";

/// The key for the mark of a cut notification.
pub(super) const CUT: &str = "cut";

/// Counts of what the text omits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overflow {
    /// Notifications that remain pending.
    pub left_out: LeftOut,
    /// Events of notifications that were evicted from a full queue, and will not be delivered.
    pub evicted: Counts,
}

impl Overflow {
    /// The omitted and evicted ones as phrases, for formats whose counts are not decoded.
    pub(super) fn in_words(&self) -> Vec<String> {
        let say = |counts: &Counts, what: &str| match (counts.total(), counts.named()) {
            (0, _) => None,
            (total, []) => Some(format!("{total} {what}")),
            (total, _) => Some(format!("{total} {what}: {counts}")),
        };
        let LeftOut { pending, waiting } = &self.left_out;
        let pending = match waiting {
            Some(waiting) => Some(waiting.in_words(pending.total())),
            None => say(pending, "more pending"),
        };
        pending.into_iter().chain(say(&self.evicted, "events evicted from a full queue")).collect()
    }
}

/// The counts by subscriber as a JSON object.
pub(super) fn to_json(counts: &Counts) -> Value {
    let named = counts.named().iter().map(|(subscriber, count)| (subscriber.to_string(), (*count).into()));
    Value::Object(named.collect::<Map<String, Value>>())
}

/// The number of notifications, including omitted ones; `None` if none is omitted.
pub(super) fn count_if_more(items: &[Item<'_>], overflow: &Overflow) -> Option<u64> {
    let left_out = u64::from(overflow.left_out.total());
    (left_out > 0).then_some(items.len() as u64 + left_out)
}

//! The line that a harness shows to its user: the notifications that wait for their decision, and
//! those just delivered.

use std::sync::Arc;

use super::{budget::Fitted, queue::Queue};
use crate::{
    exchange::{Directive, LINE_BEGIN},
    notification::{Priority, SubscriberId},
};

/// The text for the user about a delivery; `None` if all of it is of low priority, or if the
/// harness shows the reason of a directive.
pub(super) fn of_delivery<'f>(fitted: Option<&'f Fitted>, directive: Option<&Directive>) -> Option<&'f str> {
    let fitted = fitted.filter(|_| directive.is_none())?;
    let is_worth_it = |priority: Priority| priority > Priority::Low;
    fitted
        .chosen
        .iter()
        .any(|chosen| is_worth_it(chosen.notification.priority))
        .then_some(fitted.sentence.as_str())
}

/// The line from its parts; `None` when it is empty. Each waiting notification is announced once.
pub(super) fn line(queue: &mut Queue, delivered: Option<&str>, for_user: Option<&str>) -> Option<Arc<str>> {
    let shown = queue.show_to_user();
    let subscribers: Vec<&str> = shown.iter().map(SubscriberId::as_str).collect();
    let waiting = (!subscribers.is_empty())
        .then(|| format!("{} waiting for you: {}", queue.len_for_user(), subscribers.join(", ")));
    let said = match (waiting, delivered) {
        (None, None) => None,
        (Some(waiting), None) => Some(waiting),
        (None, Some(delivered)) => Some(delivered.to_owned()),
        // The waiting ones come first, because their part contains no payload.
        (Some(waiting), Some(delivered)) => Some(format!("{waiting}; delivered: {delivered}")),
    };
    // Text written by others comes last, whole.
    let parts: Vec<&str> = said.as_deref().into_iter().chain(for_user).collect();
    (!parts.is_empty()).then(|| format!("{LINE_BEGIN}{}", parts.join("; ")).into())
}

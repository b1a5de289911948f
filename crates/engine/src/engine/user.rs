//! Messages of subscribers to the user: notifications as one line, and the notices of templates.

use std::sync::Arc;

use super::{io::Output, parts::Engine};
use journal::time::Timestamp;

use crate::{
    event::{Scope, mask_secrets},
    format,
    ledger::Subject,
    notification::{Audience, Level, Notification, Priority, Sink, Word},
    sink::{MESSAGE_CHARS_MAX, Notice, clean_line},
};

impl Engine {
    /// Sends a notification to the user's sinks as one line.
    pub(super) fn send_to_user(&mut self, notification: &Notification, audience: Audience, now: Timestamp) {
        // A user who sees the agent's notifications does not need a second copy.
        let is_shown = audience == Audience::Both
            && self.rules.injection.delivery_notice
            && notification.priority > Priority::Low;
        let sinks = self.rules.sinks.all.default.iter().copied();
        let sinks: Vec<Sink> = sinks.filter(|sink| !is_shown || *sink != Sink::Harness).collect();
        if is_shown && sinks.is_empty() {
            return;
        }
        let message = format::line_for_user(notification, MESSAGE_CHARS_MAX);
        let notice = Notice {
            level: Level::of(notification.severity),
            ..self.notice(notification, notification.id.as_str(), &message, now)
        };
        let subject = Subject::Notification(notification.id);
        self.folds.for_user.take(notice, subject, &sinks, now, &mut self.effects);
        self.drain_folds();
    }

    /// Sends a notice of a notification's template to the user's sinks.
    pub(super) fn say(&mut self, notification: &Notification, number: usize, word: Word, now: Timestamp) {
        let Word { message, level, category, link } = word;
        let message = clean_line(&message, MESSAGE_CHARS_MAX);
        if message.is_empty() {
            // The notice has no text that can be shown.
            return;
        }
        // The id is the same after a replay, like the notification's id.
        let id = format!("{}:{number}", notification.id);
        let link = link.map(|link| mask_secrets(&link).into());
        let notice = Notice { level, category, link, ..self.notice(notification, &id, &message, now) };
        self.outputs.push_back(Output::Said(Arc::new(notice.clone())));
        let subject = Subject::Notification(notification.id);
        self.folds.for_user.take(notice, subject, &self.rules.sinks.all.default, now, &mut self.effects);
        self.drain_folds();
    }

    /// A notice of a notification's subscriber, with the notification's folder.
    fn notice(&self, notification: &Notification, id: &str, message: &str, now: Timestamp) -> Notice {
        let (session, workspace) = match &notification.scope {
            Scope::Session(session) => {
                let folder = self.sessions.view(session).and_then(|known| known.harness.workspace.clone());
                (Some(session.clone()), folder)
            }
            Scope::Workspace(folder) => (None, Some(Arc::clone(folder))),
            Scope::All => (None, None),
        };
        let context = notification.subscriber.as_str().into();
        Notice { context, session, workspace, ..Notice::new(id, message, now) }
    }
}

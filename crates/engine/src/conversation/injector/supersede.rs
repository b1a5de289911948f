//! A notification replaces pending ones whose states it repeats.

use super::parts::Injector;
use crate::{ledger::Reason, notification::Notification};

impl Injector {
    /// Ends pending notifications that `notification` supersedes, or that one itself if it is
    /// superseded; returns whether it is.
    ///
    /// Shape: leased ones are not called back, and may be superseded when they return.
    pub(super) fn supersede(&mut self, notification: &Notification) -> bool {
        for older in self.queue.take_superseded(notification) {
            self.end(&older.notification, Reason::Superseded);
        }
        let is_superseded = self.queue.supersedes(notification);
        if is_superseded {
            self.end(notification, Reason::Superseded);
        }
        is_superseded
    }
}

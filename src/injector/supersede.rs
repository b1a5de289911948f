//! A notification takes the place of pending ones whose states it gives anew.

use super::Injector;
use crate::{ledger::Reason, notification::Notification};

impl Injector {
    /// Ends what is pending and superseded by `notification`, or that one itself if it is superseded; whether it is.
    ///
    /// Shape: what is on its way to the agent is not called back, and what comes back from there may be superseded meanwhile.
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

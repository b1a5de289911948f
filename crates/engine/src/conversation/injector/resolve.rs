//! A condition no longer holds: pending notifications of it are withdrawn, and delivered ones are
//! not redelivered.

use super::parts::Injector;
use crate::{ledger::Reason, notification::Resolution};

impl Injector {
    /// Applies a `resolution` that concerns the session; returns whether a pending notification
    /// ended.
    ///
    /// Shape: a notification of several conditions ends with the last of them. Leased ones are not
    /// called back, and end if they return.
    pub fn resolve(&mut self, resolution: &Resolution) -> bool {
        let resolved = self.queue.take_resolved(resolution);
        for entry in &resolved {
            self.end(&entry.notification, Reason::Withdrawn);
        }
        self.leases.resolve(resolution);
        self.delivered.resolve(resolution);
        !resolved.is_empty()
    }
}

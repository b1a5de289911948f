//! A condition holds no longer: what is pending about it is withdrawn, and what was delivered is not delivered again.

use super::Injector;
use crate::{ledger::Reason, notification::Resolution};

impl Injector {
    /// Does what `resolution` means here; it concerns the session. Says whether something that was pending ended.
    ///
    /// Shape: a notification of several conditions ends with the last of them. What is on its way is not called back, and ends if it
    /// comes back.
    pub fn resolve(&mut self, resolution: &Resolution) -> bool {
        let resolved = self.queue.take_resolved(resolution);
        for entry in &resolved {
            self.end(&entry.notification, Reason::Withdrawn);
        }
        self.leases.resolve(resolution);
        self.told.resolve(resolution);
        !resolved.is_empty()
    }
}

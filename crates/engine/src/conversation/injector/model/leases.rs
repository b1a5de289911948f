//! The ends of the leases of the reference, and what puts them off.

use super::{super::*, LEASE_MS, Naive, Place};
use crate::{event::Severity, exchange::Trigger};

impl Naive {
    pub(super) fn run_out(&mut self, now: u64) {
        for lease in 0..self.releases.len() {
            if self.releases[lease].expires_at > now {
                continue;
            }
            for index in 0..self.known.len() {
                let known = &mut self.known[index];
                if known.place != Place::Lease(lease) {
                    continue;
                }
                let notification = &known.notification;
                let matters =
                    notification.priority == Priority::Critical || notification.severity >= Severity::Error;
                known.place = if matters && !known.is_redelivered { Place::Queue } else { Place::Ended };
                known.is_redelivered = true;
                self.evict();
            }
        }
        self.expire(now);
    }

    /// An exchange that is no proof, unless a wake made it, shows that the process is alive.
    pub(super) fn renew(&mut self, exchange: &Exchange, now: u64) {
        if exchange.trigger != Trigger::Wake {
            self.releases.iter_mut().for_each(|release| {
                release.expires_at = release.expires_at.max(now + LEASE_MS);
            });
        }
    }
}

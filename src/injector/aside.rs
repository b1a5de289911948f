//! What an exchange leaves out although it is due: it is put aside for that exchange, and back behind it.

use super::{Injector, queue::Entry};
use crate::notification::Notification;

/// What was put aside.
#[derive(Debug, Default)]
pub struct Aside(Vec<Entry>);

impl Injector {
    /// Takes out what waits and `is_wanted` picks, for [`Injector::take_back`].
    pub fn put_aside(&mut self, is_wanted: impl Fn(&Notification) -> bool) -> Aside {
        Aside(self.queue.take_all_that(|entry| is_wanted(&entry.notification)))
    }

    /// Takes back what was put aside, in its old place.
    pub fn take_back(&mut self, aside: Aside) {
        for entry in aside.0 {
            self.queue.restore(entry);
        }
    }
}

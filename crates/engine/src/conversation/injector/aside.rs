//! Due notifications that one exchange omits: they are put aside before it and taken back after it.

use super::{entry::Entry, parts::Injector};
use crate::notification::Notification;

/// The notifications put aside.
#[derive(Debug, Default)]
pub struct Aside(Vec<Entry>);

impl Injector {
    /// Takes out the pending notifications that `is_wanted` selects, for [`Injector::take_back`].
    pub fn put_aside(&mut self, is_wanted: impl Fn(&Notification) -> bool) -> Aside {
        Aside(self.queue.take_all_that(&|entry| is_wanted(&entry.notification)))
    }

    /// Returns the notifications that were put aside to their old places.
    pub fn take_back(&mut self, aside: Aside) {
        for entry in aside.0 {
            self.queue.restore(entry);
        }
    }
}

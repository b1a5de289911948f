//! The events of recent notifications, by which a silence or an inhibition that begins finds what it
//! suppresses of what is pending.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::{event::Event, notification::NotificationId, snapshot};

/// Most bytes of the payloads of the events.
const BYTES_MAX: usize = 8 << 20;
/// Most notifications whose events are known. Beyond it, and beyond the bytes, the oldest are
/// forgotten: what begins later does not suppress them.
const NOTIFICATIONS_MAX: usize = 8_192;

/// The events of the newest notifications.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "State")]
pub struct RecentEvents {
    newest_last: VecDeque<Rows>,
    /// The number of each notification, since something asked for one; never iterated. Without a
    /// silence and an inhibition nothing does.
    #[serde(skip)]
    numbers: OnceLock<HashMap<NotificationId, u64>>,
    /// The number of the first one.
    #[serde(skip)]
    first: u64,
    #[serde(skip)]
    bytes: usize,
}

/// The events of one notification.
#[derive(Debug, Serialize, Deserialize)]
struct Rows {
    notification: NotificationId,
    #[serde(with = "snapshot::shared::list")]
    events: VecDeque<Arc<Event>>,
}

impl Rows {
    fn bytes(&self) -> usize {
        self.events.iter().map(|event| event.payload.as_str().len()).sum()
    }
}

#[derive(Deserialize)]
struct State {
    newest_last: VecDeque<Rows>,
}

impl From<State> for RecentEvents {
    fn from(State { newest_last }: State) -> Self {
        let mut recent = Self::default();
        for rows in newest_last {
            recent.push(rows);
        }
        recent
    }
}

impl RecentEvents {
    /// Remembers the events of a new notification.
    pub fn insert(&mut self, notification: NotificationId, events: VecDeque<Arc<Event>>) {
        self.push(Rows { notification, events });
    }

    fn push(&mut self, rows: Rows) {
        self.bytes += rows.bytes();
        if let Some(numbers) = self.numbers.get_mut() {
            numbers.insert(rows.notification, self.first + self.newest_last.len() as u64);
        }
        self.newest_last.push_back(rows);
        while (self.bytes > BYTES_MAX || self.newest_last.len() > NOTIFICATIONS_MAX)
            && let Some(oldest) = self.newest_last.pop_front()
        {
            self.bytes -= oldest.bytes();
            if let Some(numbers) = self.numbers.get_mut()
                && numbers.get(&oldest.notification) == Some(&self.first)
            {
                numbers.remove(&oldest.notification);
            }
            self.first += 1;
        }
    }

    /// The events of a notification, if they are known.
    pub fn get(&self, notification: NotificationId) -> Option<&VecDeque<Arc<Event>>> {
        let numbered =
            || (self.first..).zip(&self.newest_last).map(|(number, rows)| (rows.notification, number));
        let number = self.numbers.get_or_init(|| numbered().collect()).get(&notification)?;
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.newest_last.get(at).map(|rows| &rows.events)
    }
}

//! The event loop's end of the projection: sends notes, and accepts subscriptions.

use engine::{event::Seq, notes::Notes};
use tokio::sync::{mpsc, oneshot};

use super::super::fold::Fold;
use crate::history::Projection;

/// Most batches that wait for the thread; each is the result of one slice of the event loop.
const FEED_LEN_MAX: usize = 16;
/// Most notes and bytes that the event loop keeps for a slow thread before it cuts the feed.
pub(super) const KEPT_NOTES_MAX: usize = 16_384;
pub(super) const KEPT_BYTES_MAX: usize = 16 << 20;
/// Number of records after which the cursor moves even if they left no notes.
const RECORDS_MAX: u64 = 4_096;
/// Approximate limit of notes per transaction.
pub(super) const TRANSACTION_NOTES_MAX: usize = 4_096;

/// A request for the notes after a record.
pub(in crate::daemon) struct Subscription {
    after: Seq,
    feed: mpsc::Sender<Notes>,
    /// Receives the last record that the event loop had applied when the feed started.
    started: oneshot::Sender<Seq>,
}

/// A new subscription's end of the feed.
pub(super) struct Subscribed {
    pub(super) notes: mpsc::Receiver<Notes>,
    /// Receives the last record that the event loop had applied; closed when the event loop ends.
    pub(super) started: oneshot::Receiver<Seq>,
}

impl Subscription {
    pub(super) fn new(after: Seq) -> (Self, Subscribed) {
        let (feed, notes) = mpsc::channel(FEED_LEN_MAX);
        let (started, has_started) = oneshot::channel();
        (Self { after, feed, started }, Subscribed { notes, started: has_started })
    }
}

/// The event loop's end of the feed.
pub(in crate::daemon) struct Feed {
    projection: Projection,
    subscriptions: mpsc::Receiver<Subscription>,
    sender: Option<mpsc::Sender<Notes>>,
}

impl Feed {
    /// A feed without a subscriber, and the channel for subscriptions.
    pub(super) fn new(projection: Projection) -> (Self, mpsc::Sender<Subscription>) {
        // There is one subscriber.
        let (subscribe, subscriptions) = mpsc::channel(1);
        (Self { projection, subscriptions, sender: None }, subscribe)
    }

    /// Waits for a subscription; forever if all senders are gone. Cancel-safe.
    pub(in crate::daemon) async fn subscription(&mut self) -> Option<Subscription> {
        self.subscriptions.recv().await
    }

    /// Feeds the subscriber from now on.
    pub(in crate::daemon) fn start(&mut self, subscription: Subscription, fold: &mut Fold) {
        let after = subscription.after.max(fold.applied);
        if subscription.started.send(fold.applied).is_err() {
            return;
        }
        fold.notes = Some(Notes::after(after));
        self.sender = Some(subscription.feed);
        self.projection.progress().begin_feed(fold.applied);
    }

    /// Feeds the notes of a replay, and everything after it; returns `None` if the replay took no
    /// notes.
    pub(super) fn start_with_replay(&mut self, fold: &mut Fold) -> Option<mpsc::Receiver<Notes>> {
        let has_missed = fold.notes.as_ref().map(|notes| notes.records() > 0)?;
        let (sender, feed) = mpsc::channel(FEED_LEN_MAX);
        self.sender = Some(sender);
        self.projection.progress().begin_feed(fold.applied);
        if has_missed {
            self.send(fold);
        }
        Some(feed)
    }

    /// Hands over the notes of `fold`, if there is something to write; never waits.
    pub(in crate::daemon) fn hand_over(&mut self, fold: &mut Fold) {
        let Some(notes) = fold.notes.as_ref().filter(|_| self.sender.is_some()) else { return };
        if !notes.notes().is_empty() || notes.records() >= RECORDS_MAX {
            self.send(fold);
        }
        self.projection.progress().apply(fold.applied);
    }

    /// Hands over the notes of `fold` early if there are many.
    pub(in crate::daemon) fn hand_over_much(&mut self, fold: &mut Fold) {
        if fold.notes.as_ref().is_some_and(|notes| notes.notes().len() >= TRANSACTION_NOTES_MAX) {
            self.hand_over(fold);
        }
    }

    /// Hands over the rest, so that the file ends where the journal does.
    pub(in crate::daemon) fn end(mut self, fold: &mut Fold) {
        if fold.notes.as_ref().is_some_and(|notes| notes.records() > 0) {
            self.send(fold);
        }
    }

    fn send(&mut self, fold: &mut Fold) {
        let Some((sender, kept)) = self.sender.as_ref().zip(fold.notes.as_mut()) else { return };
        let notes = kept.hand_over();
        self.projection.progress().hand(notes.upto());
        match sender.try_send(notes) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(notes))
                if notes.notes().len() <= KEPT_NOTES_MAX && notes.bytes() <= KEPT_BYTES_MAX =>
            {
                kept.put_back(notes);
            }
            // The channel is full, or its thread has ended or failed. The thread resubscribes after
            // it has caught up.
            Err(_) => self.cut(fold),
        }
    }

    /// Ends the feed; the subscriber catches up from the journal.
    pub(super) fn cut(&mut self, fold: &mut Fold) {
        self.sender = None;
        fold.notes = None;
        self.projection.progress().end_feed();
    }

    #[cfg(test)]
    pub(super) fn has_subscriber(&self) -> bool {
        self.sender.is_some()
    }
}

//! The only writer to the journal in the daemon. It appends records of known kinds, each with its
//! body and its idempotency key, immediately or when the event loop has caught up.
//!
//! The journal reads them; `engine::records` encodes them. A caller that publishes an event gets its
//! position, or the position of the original event.

use engine::records::Records;
use journal::{AppendError, Appended, Appending, Journal, Level};

/// A handle for writing to a journal. Clones write to the same journal.
#[derive(Debug, Clone)]
pub struct Publisher {
    journal: Journal,
}

impl Publisher {
    /// Creates a handle for `journal`.
    pub fn new(journal: Journal) -> Self {
        Self { journal }
    }

    /// Publishes events: waits until the event loop has nearly caught up, appends, and returns at
    /// the configured durability.
    ///
    /// Errors: the journal is poisoned, full or closed.
    pub async fn publish(&self, records: Records) -> Result<Appended, AppendError> {
        self.journal.publish(records.into_batch()).await
    }

    /// Waits until the event loop has nearly caught up, and queues events. The caller can read more
    /// input before it waits for the disk.
    ///
    /// Errors: the journal is poisoned or closed. A full journal is an error of the later wait.
    pub async fn begin_publish(&self, records: Records) -> Result<Appending, AppendError> {
        self.journal.begin_publish(records.into_batch()).await
    }

    /// Appends without waiting for the event loop or the disk: exchanges, acks, sessions, rules,
    /// ticks. On a full disk it uses the space that is reserved from publishing.
    ///
    /// Errors: the journal is poisoned, completely full, or closed.
    pub async fn append(&self, records: Records) -> Result<Appended, AppendError> {
        self.journal.append(records.into_batch().with_reserve(), Level::Written).await
    }

    /// Like [`Publisher::append`], but waits for the disk and blocks the thread.
    ///
    /// Errors: as for `append`.
    pub fn append_synced_blocking(&self, records: Records) -> Result<Appended, AppendError> {
        self.journal.append_blocking(records.into_batch().with_reserve(), Level::Synced)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use engine::{
        event::{Event, Payload, Provenance, Seq, SessionId, Severity},
        exchange::{Decision, Exchange, Harness, InjectionId, Process, ReleaseRecord},
        io::RequestId,
        ledger::ConfirmedBy,
        notification::{InjectionPoint, NotificationId},
        records,
    };
    use journal::{JournalSettings, Outcome, memory::MemoryFiles, time::Timestamp};

    #[tokio::test]
    async fn every_appended_record_decodes_as_its_kind() {
        let (publisher, journal) = publisher();
        let (session, injection) = (SessionId::new("s1"), InjectionId::new("7fq2kd"));
        let exchange = Exchange::new(session.clone(), InjectionPoint::TurnEnd, "carrier");
        let release = ReleaseRecord {
            exchange: Seq(3),
            injection,
            notifications: Vec::new(),
            directive: None,
            format: None,
            tokens: None,
        };
        let written = Records::build(|records| {
            records.own_event(&event("1"));
            records.event_with_new_id(&event("2").as_ref()).expect("small");
            records.exchange(RequestId(4), &exchange).expect("small");
            records.acks(&session, &[injection, injection], ConfirmedBy::Ack);
            records.undelivered(&session, &injection);
            records.session_opened(&session, &Harness::default());
            records.session_suspended(&session);
            records.process_gone(&session, Process { pid: 41, started: Some(7) });
            records.session_seen(&session);
            records.session_idle(&session, "client_file", Timestamp::from_millis(5));
            records.decided(None, &NotificationId::new("n1"), Decision::Dismiss);
            records.rules("00");
            records.released(&release);
            records.skipped(Seq(9), "build");
            records.shutting_down();
            records.tick();
        });
        publisher.append(written).await.expect("appended");
        let mut reader = journal.read_from(Seq(1));
        let batch = reader.next_batch(100).expect("readable");
        let read: Vec<String> = batch
            .iter()
            .map(|found| {
                let read = records::decode(found.kind.0, found.seq, found.body).expect("written here");
                let (name, shown) = (records::kind_name(found.kind.0).expect("known"), format!("{read:?}"));
                let input = shown.strip_prefix("Input(").unwrap_or(&shown);
                format!("{name} {}", input.split([' ', '(', ')']).next().unwrap_or_default())
            })
            .collect();
        assert_eq!(
            read,
            [
                "event Event",
                "event Event",
                "exchange Exchange",
                "ack Ack",
                "ack Ack",
                "undelivered Undelivered",
                "session_opened SessionOpened",
                "session_closed SessionSuspended",
                "session_closed ProcessGone",
                "session_seen SessionSeen",
                "session_state SessionIdle",
                "decided Decided",
                "rules Rules",
                "released Released",
                "skipped Skipped",
                "shutting_down ShuttingDown",
                "tick Tick",
            ]
        );
    }

    #[tokio::test]
    async fn event_with_producers_id_is_published_once() {
        let (publisher, _) = publisher();
        let outcome = async |records: Records| {
            let appended = publisher.publish(records).await.expect("published");
            appended.outcomes().next().expect("one record")
        };
        let (first, second) = (event("1"), event("1"));
        assert_eq!(
            outcome(Records::build(|records| records.own_event(&first))).await,
            Outcome::Appended(Seq(1))
        );
        assert_eq!(
            outcome(Records::build(|records| records.own_event(&second))).await,
            Outcome::Duplicate(Seq(1))
        );
        for seq in [2, 3] {
            let mut records = Records::new();
            records.event_with_new_id(&first.as_ref()).expect("small");
            assert_eq!(outcome(records).await, Outcome::Appended(Seq(seq)));
        }
    }

    #[test]
    fn oversized_event_is_refused_without_losing_others() {
        let mut large = event("1");
        large.payload = Payload::from(json!({ "text": "x".repeat(2 << 20) }));
        let mut records = Records::new();
        records.tick();
        assert!(
            records.event(&large.as_ref()).is_err() && records.event_with_new_id(&large.as_ref()).is_err()
        );
        assert_eq!(records.into_batch().len(), 1);
    }

    fn publisher() -> (Publisher, Journal) {
        let (files, settings) = (Arc::new(MemoryFiles::new()), JournalSettings::default());
        let opened = Journal::open(files, settings, Arc::new(|| Timestamp::ZERO), &|_| None);
        let journal = opened.expect("opened").journal;
        (Publisher::new(journal.clone()), journal)
    }

    fn event(id: &str) -> Event {
        Event {
            id: id.into(),
            event_type: "ci.check.failed".parse().expect("valid"),
            source: "ci".into(),
            provenance: Provenance::Local,
            severity: Severity::Error,
            timestamp: Timestamp::ZERO,
            payload: Payload::from(json!({ "check": "unit" })),
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
            deliver_after: None,
        }
    }
}

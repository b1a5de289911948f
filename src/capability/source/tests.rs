//! Failures of a source, and its restarts.

use std::{
    io,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use super::*;
use engine::{
    event::{Seq, codec},
    records,
};
use journal::{Journal, JournalSettings, memory::MemoryFiles};

/// Publishes three events at once, and then asks for the stop or panics.
struct Parting {
    stop: watch::Sender<bool>,
    panics: bool,
}

impl Source for Parting {
    const NAME: &'static str = "parting";

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SourceError> {
        for number in 0..3 {
            let id = format!("e{number}");
            let event = Event::own("a.b", id, Severity::Info, json!({}), Timestamp::ZERO);
            out.publish(event).await;
        }
        assert!(!self.panics, "it panics");
        self.stop.send_replace(true);
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn handed_over_events_survive_a_stop_or_panic() {
    for panics in [false, true] {
        let clock: Clock = Arc::new(|| Timestamp::ZERO);
        let files = Arc::new(MemoryFiles::new());
        let opened = Journal::open(files, JournalSettings::default(), Arc::clone(&clock), &|_| None);
        let journal = opened.expect("opened").journal;
        let (stop, mut stopping) = watch::channel(false);
        let source = Arc::new(Parting { stop: stop.clone(), panics });
        let clocks = Clocks { clock, wall: || Timestamp::ZERO };
        let running = keep_running(source, clocks, Publisher::new(journal.clone()), stopping.clone());
        // Publishing waits for the event loop, also while the source stops.
        journal.set_untaken(u64::MAX);
        let admits = async {
            if panics {
                pause(Duration::from_millis(500)).await;
            }
            journal.set_untaken(0);
            journal.consumed(Seq(1));
            if panics {
                pause(Duration::from_millis(300)).await;
                stop.send_replace(true);
            }
        };
        let admits = async {
            if !panics {
                stopping.wait_for(|is_stopping| *is_stopping).await.expect("it is asked for");
                tokio::task::yield_now().await;
            }
            admits.await;
        };
        let (ended, ()) = tokio::join!(running, admits);
        assert!(ended.is_ok());
        let mut reader = journal.read_from(Seq(1));
        let ids: Vec<String> = reader
            .next_batch(100)
            .expect("readable")
            .iter()
            .map(|found| codec::decode(found.body).expect("only events are written here").id.to_owned())
            .collect();
        assert_eq!(ids.get(..3).unwrap_or(&ids), ["e0", "e1", "e2"], "{panics}: {ids:?}");
    }
}

/// Fails at once, panics the second time, and waits from the fifth time on.
struct Failing {
    runs: AtomicU32,
}

impl Source for Failing {
    const NAME: &'static str = "failing";

    async fn run(self: Arc<Self>, _: Outlet) -> Result<Infallible, SourceError> {
        match self.runs.fetch_add(1, Ordering::Relaxed) {
            1 => panic!("it panics"),
            0 | 2 | 3 => Err(SourceError::System("it failed", io::Error::other("no such thing"))),
            _ => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_or_panicked_source_restarts_with_backoff() {
    let reads = AtomicU64::new(0);
    let clock: Clock = Arc::new(move || Timestamp::from_millis(reads.fetch_add(1, Ordering::Relaxed)));
    let files = Arc::new(MemoryFiles::new());
    let opened = Journal::open(files, JournalSettings::default(), Arc::clone(&clock), &|_| None);
    let journal = opened.expect("opened").journal;
    let clocks = Clocks { clock, wall: || Timestamp::ZERO };
    let publisher = Publisher::new(journal.clone());
    let (stop, stopping) = watch::channel(false);
    let source = Arc::new(Failing { runs: AtomicU32::new(0) });
    let running = keep_running(Arc::clone(&source), clocks, publisher, stopping);
    let stops = async {
        pause(Duration::from_secs(60)).await;
        stop.send_replace(true);
    };
    let (ended, ()) = tokio::join!(running, stops);
    assert!(ended.is_ok());
    assert_eq!(source.runs.load(Ordering::Relaxed), 5);
    let mut reader = journal.read_from(Seq(1));
    let batch = reader.next_batch(100).expect("readable");
    let said: Vec<String> = batch
        .iter()
        .map(|found| {
            let read = records::decode(found.kind.0, found.seq, found.body).expect("written here");
            let text = format!("{read:?}");
            let at = text.find("payload: ").expect("an event") + 9;
            text[at..].split("}\"").next().expect("an object").replace("\\\"", "\"")
        })
        .collect();
    let expected = [
        ("it failed: no such thing", "1s"),
        ("it panics", "2s"),
        ("it failed: no such thing", "4s"),
        ("it failed: no such thing", "8s"),
    ];
    assert_eq!(said.len(), expected.len());
    for (said, (why, retry)) in said.iter().zip(expected) {
        assert!(said.contains(&format!(r#""retry_in":"{retry}""#)), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

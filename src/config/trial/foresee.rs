//! What would become of an event on a fresh start from the files.

use std::sync::Arc;

use engine::{
    Engine, Input, Outcome,
    draft::{Defaults, Draft},
    event::{Event, Provenance, Seq, catalogue::OwnSeverities},
    request::FieldError,
};
use journal::time::{Timestamp, zone::Zone};

use crate::config::compile::Compiled;

/// The outcome that an event, as it is published, would have at `now` in an engine without a state.
///
/// Errors: the first wrong field of the event.
pub fn foresee(
    compiled: &Compiled,
    event: &[u8],
    provenance: Provenance,
    now: Timestamp,
    zone: Zone,
) -> Result<(Event, Outcome), FieldError> {
    let severities = OwnSeverities::new(&compiled.events);
    let defaults = Defaults::api(now, provenance, &severities);
    let event = Draft::read(event, &defaults, &mut || "explained".to_owned())?.as_event().to_event();
    let mut engine = Engine::new(Arc::new(compiled.rules.clone()));
    engine.handle(Input::ZoneChanged(zone), now);
    while engine.poll_output().is_some() {}
    let outcome = engine.outcome_of(Seq(1), &event, now);
    Ok((event, outcome))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use engine::{Fate, SubscriberOutcome, ledger::LedgerEntry, notification::SubscriberId};

    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
        trial::{Cases, timeline::Played},
    };

    /// The files with the rules of subscribers and their tests.
    fn rules() -> Vec<SourceFile> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules");
        let file = |entry: fs::DirEntry| {
            let name = format!("subscribers/{}", entry.file_name().to_string_lossy());
            let text = fs::read_to_string(entry.path()).expect("a file");
            let text = text.as_str().into();
            SourceFile { layer: LayerKind::User, path: name.as_str().into(), name: name.into(), text }
        };
        fs::read_dir(folder).expect("the folder").map(|entry| file(entry.expect("an entry"))).collect()
    }

    /// The first entry about an event in a subscriber.
    fn first<'p>(played: &'p Played, seq: super::Seq, id: &SubscriberId) -> Option<&'p LedgerEntry> {
        played.entries.iter().map(|(_, entry)| entry).find(|entry| {
            if let LedgerEntry::EventEnded { seq: own, subscriber, .. }
            | LedgerEntry::Batched { seq: own, subscriber } = entry
            {
                return *own == seq && subscriber == id;
            }
            matches!(entry, LedgerEntry::Created { subscriber, events, .. } if subscriber == id && events.contains(&seq))
        })
    }

    /// What became of an event, and what was foreseen; the same text if they agree.
    fn both(played: &Played, entry: Option<&LedgerEntry>, foreseen: &SubscriberOutcome) -> (String, String) {
        let progress = foreseen.progress.as_ref();
        let waits = progress.is_some_and(|own| own.batch.is_some() || own.missed_at.is_some());
        let now = match (waits, &foreseen.fate) {
            (true, _) => "waits".to_owned(),
            (false, Fate::Ended(reason)) => format!("{reason:?}"),
            (false, Fate::Taken) => {
                let text = foreseen.notification.as_ref().map(|made| made.content.text().to_string());
                text.unwrap_or_else(|| "no text".to_owned())
            }
            (false, Fate::OtherType | Fate::OtherFolder | Fate::OfLaterFile | Fate::NotDispatched) => {
                "not there".to_owned()
            }
        };
        let then = match entry {
            None => "not there".to_owned(),
            Some(LedgerEntry::EventEnded { reason, .. }) => format!("{reason:?}"),
            Some(LedgerEntry::Created { notification, .. }) => {
                let made = played.notification(*notification).expect("it was made");
                made.notification.content.text().to_string()
            }
            Some(_) => "waits".to_owned(),
        };
        (then, now)
    }

    #[test]
    fn every_event_becomes_what_was_foreseen() {
        let shipped = compile(&Sources::shipped_with_tests(), &[]);
        let own = rules().into_iter().map(|file| compile(&Sources::shipped().with([file], []), &[]));
        let mut kinds: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
        for compiled in own.chain([shipped]) {
            let cases = Cases::new(&compiled);
            for case in cases.iter() {
                let played = case.play();
                for (seq, outcome) in &played.foreseen {
                    for foreseen in &outcome.subscribers {
                        let entry = first(&played, *seq, &foreseen.subscriber);
                        let (then, now) = both(&played, entry, foreseen);
                        assert_eq!(then, now, "{}, {}: event {seq}", foreseen.subscriber, case.test.name);
                        let kind = if let Fate::Ended(reason) = &foreseen.fate {
                            reason.as_str().to_owned()
                        } else {
                            format!("{:?}", foreseen.fate)
                        };
                        *kinds.entry(kind).or_default() += 1;
                    }
                }
            }
        }
        for kind in [
            "Taken",
            "filtered",
            "duplicate",
            "below_threshold",
            "rate_limited",
            "inhibited",
            "silenced",
            "resolves",
        ] {
            assert!(kinds.contains_key(kind), "{kind} among {kinds:?}");
        }
        assert!(kinds.values().sum::<usize>() > 300, "{kinds:?}");
    }
}

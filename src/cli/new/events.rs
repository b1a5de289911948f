//! Where the events of `aside new` come from: the daemon, a file, or the catalogue.

use std::{collections::VecDeque, path::Path};

use engine::{
    event::{
        OWN_SOURCE, Pattern,
        catalogue::{self, CatalogueEntry, OwnSeverities},
    },
    sorted::SortedMap,
};
use hook::client::{ClientError, percent_encode};
use serde_json::{Value, json};

use crate::{
    api::wire::{
        event::EventView,
        history::{EventPage, EventWithHistory},
        views::StatusView,
    },
    cli::{
        CliError, Context,
        context::with_query,
        ids::{self, PROBE_SOURCE},
        parse,
    },
    config::case::{
        TestEvent,
        fixture::{Mistake, read_events},
    },
    config::report::Place,
};

const DOING: &str = "read the newest events";
/// Most records of the journal that are searched, the newest ones; older events are those that the
/// history has.
const SEARCHED: u64 = 50_000;
/// How many events fields are proposed from.
pub(super) const NEWEST: usize = 20;

/// An event, and when it happened, if that is known.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) at: Option<String>,
    pub(super) event: TestEvent,
}

/// Some events, the newest first, and the words about their origin.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) seen: Vec<Seen>,
    /// A fragment after "read".
    pub(super) origin: String,
    /// Whether the events are placeholders.
    pub(super) is_invented: bool,
}

impl Found {
    pub(super) fn events(&self) -> Vec<TestEvent> {
        self.seen.iter().map(|seen| seen.event.clone()).collect()
    }
}

/// Reads events of the daemon, of files and of the catalogue.
pub(super) struct Reader<'a, 'c> {
    pub(super) context: &'a Context<'c>,
    pub(super) severities: &'a OwnSeverities,
    /// The types that the layers add to the catalogue.
    pub(super) own: &'a [CatalogueEntry],
}

impl Reader<'_, '_> {
    /// The events of `from`, which is `last`, `example`, a file, or an id; those of `patterns` if there
    /// are some.
    pub(super) fn from(&self, from: &str, patterns: &[String]) -> Result<Found, CliError> {
        let found = match from {
            ids::LAST => {
                let seen = self.newest(patterns, 1)?;
                Found { origin: self.newest_words(&seen, patterns), seen, is_invented: false }
            }
            "example" => match self.example(patterns)? {
                Some(found) => found,
                None => {
                    return Err(CliError::Usage(format!(
                        "the catalogue has no example of {}",
                        list(patterns)
                    )));
                }
            },
            from if is_file(from) => self.file(from)?,
            id => {
                let seen = vec![self.by_id(id)?];
                let event_type =
                    seen.first().map(|seen| seen.event.event_type.to_string()).unwrap_or_default();
                let at = self.ago(&seen).map(|at| format!(", {at}")).unwrap_or_default();
                Found { origin: format!("the event {id}, {event_type}{at}"), seen, is_invented: false }
            }
        };
        if found.seen.is_empty() {
            let what = if patterns.is_empty() { String::new() } else { format!(" of {}", list(patterns)) };
            return Err(CliError::Usage(format!("there is no event{what} yet; `--from FILE` reads one")));
        }
        Ok(found)
    }

    /// The newest events, else the example of the catalogue, else placeholders.
    pub(super) fn proposed(&self, patterns: &[String]) -> Result<Found, CliError> {
        let (seen, why) = match self.newest(patterns, NEWEST) {
            Ok(seen) => (seen, format!("no event of {} was published", list(patterns))),
            Err(CliError::Client {
                source: ClientError::NoDaemon { .. } | ClientError::NoSocket(_), ..
            }) => (Vec::new(), "no daemon runs".to_owned()),
            Err(error) => return Err(error),
        };
        if !seen.is_empty() {
            return Ok(Found { origin: self.newest_words(&seen, patterns), seen, is_invented: false });
        }
        if let Some(found) = self.example(patterns)? {
            return Ok(Found { origin: format!("{}, as {why}", found.origin), ..found });
        }
        let seen = patterns.first().and_then(|pattern| placeholder(pattern)).into_iter().collect();
        Ok(Found {
            seen,
            origin: format!("nothing: {why}, so two fields are placeholders"),
            is_invented: true,
        })
    }

    /// The newest events of `patterns`, or of all types that are not aside's own, the newest first.
    pub(super) fn newest(&self, patterns: &[String], count: usize) -> Result<Vec<Seen>, CliError> {
        let mut found: SortedMap<u64, Seen> = SortedMap::new();
        let status: StatusView = self.context.get(DOING, "/v1/status")?;
        let journal = &status.journal;
        let from = journal.head.saturating_sub(SEARCHED).max(journal.first).max(1);
        let patterns: Vec<Option<&str>> = if patterns.is_empty() {
            vec![None]
        } else {
            patterns.iter().map(|one| Some(one.as_str())).collect()
        };
        for pattern in patterns.into_iter().filter(|_| journal.head > 0) {
            let of_journal = self.journaled(pattern, from, journal.head, count)?;
            let missing = count.saturating_sub(of_journal.len());
            for (seq, seen) in of_journal {
                found.insert(seq, seen);
            }
            if missing > 0 && from > journal.first.max(1) {
                for (seq, seen) in self.older(pattern, count)? {
                    found.insert(seq, seen);
                }
            }
        }
        let mut newest: Vec<Seen> = found.into_values().collect();
        newest.reverse();
        newest.truncate(count);
        Ok(newest)
    }

    /// The last `count` events of a part of the journal, by position.
    fn journaled(
        &self,
        pattern: Option<&str>,
        from: u64,
        until: u64,
        count: usize,
    ) -> Result<Vec<(u64, Seen)>, CliError> {
        let [from, until] = [from, until].map(|seq| seq.to_string());
        let parameters =
            [("pattern", pattern), ("from", Some(from.as_str())), ("until", Some(until.as_str()))];
        let mut stream = self.context.stream(DOING, &with_query("/v1/events/stream", &parameters))?;
        let mut last: VecDeque<String> = VecDeque::new();
        while let Some(event) =
            stream.next_event().map_err(|source| CliError::Client { doing: DOING, source })?
        {
            let view: EventView<'_> = parse(DOING, event.data.as_bytes())?;
            if pattern.is_none() && is_own(&view) {
                continue;
            }
            if last.len() == count {
                last.pop_front();
            }
            last.push_back(event.data);
        }
        last.iter().map(|data| self.seen(data)).collect()
    }

    /// The newest events that a subscriber took.
    fn older(&self, pattern: Option<&str>, count: usize) -> Result<Vec<(u64, Seen)>, CliError> {
        let limit = count.to_string();
        let path = with_query("/v1/events", &[("type", pattern), ("limit", Some(&limit))]);
        let page: EventPage = self.context.get(DOING, &path)?;
        page.events.iter().map(|line| self.seen(line.event.get())).collect()
    }

    fn seen(&self, json: &str) -> Result<(u64, Seen), CliError> {
        let view: EventView<'_> = parse(DOING, json.as_bytes())?;
        let events = read_events(json, self.severities)
            .map_err(|mistake| CliError::Usage(format!("{DOING}: {}", mistake.message)))?;
        let event = events.into_iter().next();
        let event = event.ok_or_else(|| CliError::Usage(format!("{DOING}: there is none")))?;
        Ok((view.seq.unwrap_or_default(), Seen { at: Some(view.timestamp), event }))
    }

    /// The event with this id, position, or prefix of an id.
    pub(super) fn by_id(&self, id: &str) -> Result<Seen, CliError> {
        let get = |id: &str| {
            self.context
                .get::<EventWithHistory>("read the event", &format!("/v1/events/{}", percent_encode(id)))
        };
        let found = match get(id) {
            Err(refused @ CliError::Refused { .. }) => match ids::of_history(id, self.context)? {
                Some(whole) => get(&whole)?,
                None => return Err(refused),
            },
            other => other?,
        };
        Ok(self.seen(found.event.get())?.1)
    }

    fn file(&self, path: &str) -> Result<Found, CliError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CliError::Input { name: path.to_owned(), source })?;
        let events = read_events(&text, self.severities).map_err(|Mistake { range, message }| {
            CliError::Usage(format!("{}: {message}", Place::new(&path.into(), &text.as_str().into(), range)))
        })?;
        let count = engine::words::counted(events.len(), "event");
        let seen = events.into_iter().rev().map(|event| Seen { at: None, event }).collect();
        Ok(Found { seen, origin: format!("{count} of {path}"), is_invented: false })
    }

    /// The examples of the catalogue that `patterns` select, own ones first.
    fn example(&self, patterns: &[String]) -> Result<Option<Found>, CliError> {
        let patterns = patterns.iter().map(|text| pattern(text)).collect::<Result<Vec<_>, _>>()?;
        let shipped: Vec<&CatalogueEntry> = catalogue::types().collect();
        let known = self.own.iter().chain(shipped);
        let mut seen = Vec::new();
        for entry in known.filter(|entry| entry.example.as_str() != "{}") {
            if patterns.iter().any(|pattern| pattern.matches(&entry.event_type)) {
                let payload = Value::clone(entry.example.value());
                let severity = Some(self.severities.default_severity(entry.event_type.as_str()));
                let event = TestEvent { severity, ..TestEvent::new(entry.event_type.clone(), payload) };
                seen.push(Seen { at: None, event });
            }
        }
        let origin = match seen.as_slice() {
            [] => return Ok(None),
            [one] => format!("the catalogue's example of {}", one.event.event_type),
            several => format!("the catalogue's examples of {} types", several.len()),
        };
        Ok(Some(Found { seen, origin, is_invented: false }))
    }

    fn newest_words(&self, seen: &[Seen], patterns: &[String]) -> String {
        let types: Vec<String> = match (patterns, seen.first()) {
            ([], Some(first)) => vec![first.event.event_type.to_string()],
            (patterns, _) => patterns.to_vec(),
        };
        let at = self.ago(seen).unwrap_or_default();
        match seen.len() {
            1 => format!("the newest event of {}, {at}", list(&types)),
            count => format!("the newest {count} events of {}, the last {at}", list(&types)),
        }
    }

    fn ago(&self, seen: &[Seen]) -> Option<String> {
        seen.first().and_then(|newest| newest.at.as_deref()).map(|at| self.context.terminal.moment(at))
    }
}

/// Whether the event is of aside itself, or of a check by it.
fn is_own(event: &EventView<'_>) -> bool {
    [OWN_SOURCE, PROBE_SOURCE].contains(&&*event.source)
}

/// Whether an argument of `--from` is a file; else it is the id of an event.
fn is_file(from: &str) -> bool {
    from.contains('/') || Path::new(from).extension().is_some() || Path::new(from).is_file()
}

/// A pattern of event types.
///
/// Errors: it is none.
pub(super) fn pattern(text: &str) -> Result<Pattern, CliError> {
    text.parse().map_err(|error| CliError::Usage(format!("`{text}` is no pattern of event types: {error}")))
}

fn list(patterns: &[String]) -> String {
    patterns.join(", ")
}

/// An event with two fields whose names an author replaces.
fn placeholder(pattern: &str) -> Option<Seen> {
    let event_type = pattern.replace("**", "example").replace('*', "example").parse().ok()?;
    let payload = json!({ "name": "example", "state": "done" });
    Some(Seen { at: None, event: TestEvent::new(event_type, payload) })
}

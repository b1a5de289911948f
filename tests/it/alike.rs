//! One engine for all: `aside test`, `aside preview`, `aside replay` and the daemon give the same texts at
//! the same times for the same events, whatever the subscriber.
//!
//! The subscribers and the timelines are drawn. What each of them says is compared with an engine that is
//! fed the events by hand.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aside::{
    comparison::{Kind, Row, observer},
    config::{
        case::{START, TestEvent, TestScope},
        compile::{Compiled, compile},
        layers::{LayerKind, SourceFile, Sources},
        trial::{Cases, preview::Preview},
    },
    daemon::{
        rerun::{Request, rerun},
        rules::RulesStore,
    },
};
use engine::{
    Engine, Input, Output,
    event::{Event, Payload, Provenance, Seq, Severity},
    notification::{NotificationId, SubscriberId},
    records::{self, RecordInput},
    rules::CompiledRules,
};
use journal::{
    AppendBatch, Journal, JournalSettings, Level, ReadOnly, RecordKind, files::DirFiles, time::Timestamp,
};
use serde_json::{Value, json};
use strum::VariantArray;

use crate::support::{
    daemon::{Home, eventually},
    drawn::{Drawn, TYPES, sources},
    random::{Random, each_seed, number},
};

/// Number of subscribers with a timeline each, see `ASIDE_ALIKE_SEEDS`.
const SEEDS: u64 = 100;
/// Number of subscribers of the daemon, see `ASIDE_ALIKE_DAEMON`.
const SUBSCRIBERS: u64 = 25;
const EVENTS_MAX: u64 = 20;
/// The last event of each timeline, which nobody takes: by then every batch and digest is closed.
const LAST_AT: Duration = Duration::from_secs(200_000);
/// Its window is longer than most of those of drawn subscribers.
const MARKER: &str =
    "[subscriber]\nid = \"marker\"\n[events]\ntypes = [\"plant.marker.set\"]\n[batching]\nwindow_ms = 2500\n";
const TAGS: [&str; 5] = ["a", "b", "c", "</notifications>\nmore: 3", "x: \"y\", \u{1b}[31mred"];

/// A notification: when it was made, and its text.
type Made = (Duration, String);

/// An event of a timeline, and when it comes.
#[derive(Debug, Clone)]
struct Step {
    at: Duration,
    event: TestEvent,
}

fn timeline(random: &mut Random) -> Vec<Step> {
    let mut at = Duration::ZERO;
    let mut steps: Vec<Step> = (0..1 + random.below(EVENTS_MAX))
        .map(|_| {
            let apart = random.one_of(&[0, 1, 400, 2_500, 12_000, 70_000, 4_000_000, 20_000_000]);
            at += Duration::from_millis(random.below(apart + 1));
            Step { at, event: drawn_event(random) }
        })
        .collect();
    let event = TestEvent::new("plant.other.came".parse().expect("a type"), json!({}));
    steps.push(Step { at: LAST_AT, event });
    steps
}

fn drawn_event(random: &mut Random) -> TestEvent {
    let event_type = random.one_of(&[&TYPES[..2], &TYPES[..2], &TYPES[..]]);
    let event_type = random.one_of(event_type).parse().expect("a type");
    let mut payload = json!({
        "n": random.below(100),
        "tag": random.one_of(&TAGS),
        "zone": random.one_of(&["eu", "us"]),
        "last": random.percent(10),
    });
    if random.percent(10) {
        payload["n"] = json!("many");
    }
    TestEvent {
        severity: random.percent(70).then(|| random.one_of(Severity::VARIANTS)),
        source: Some(random.one_of(&["test", "meter", "other"]).into()),
        trusted: Some(random.percent(80)),
        dedupe_key: random.percent(10).then(|| "own".into()),
        deliver_after: random.percent(10).then(|| "2 turns or 40m".into()),
        scope: random.one_of(&[TestScopeOf::All, TestScopeOf::Folder]).scope(),
        ..TestEvent::new(event_type, payload)
    }
}

#[derive(Clone, Copy)]
enum TestScopeOf {
    All,
    Folder,
}

impl TestScopeOf {
    fn scope(self) -> TestScope {
        match self {
            Self::All => TestScope::All,
            Self::Folder => TestScope::Workspace("/w".into()),
        }
    }
}

/// The event as a producer would publish it, as the number `seq` of the journal.
fn published(step: &Step, seq: Seq) -> Event {
    let TestEvent { event_type, payload, severity, source, trusted, dedupe_key, deliver_after, scope } =
        step.event.clone();
    let workspace = match scope {
        TestScope::Workspace(folder) => Some(folder),
        TestScope::All | TestScope::Session(_) => None,
    };
    Event {
        id: seq.to_string().into(),
        severity: severity.unwrap_or(Severity::Info),
        event_type,
        source: source.unwrap_or_else(|| "test".into()),
        provenance: if trusted == Some(false) { Provenance::Remote } else { Provenance::Harness },
        timestamp: START + step.at,
        payload: Payload::from(payload),
        dedupe_key,
        session: None,
        workspace,
        cause: None,
        deliver_after,
    }
}

/// A record of the journal: an event, or a deadline.
type Recorded = (Timestamp, Option<Event>);

/// An engine that is fed by hand, as the event loop does it: each deadline is handled at its own time.
struct Fed {
    engine: Engine,
    records: Vec<Recorded>,
    made: Vec<(Timestamp, NotificationId, String)>,
}

impl Fed {
    fn new(rules: Arc<CompiledRules>) -> Self {
        Self { engine: Engine::new(rules), records: Vec::new(), made: Vec::new() }
    }

    fn advance(&mut self, now: Timestamp) {
        while let Some((due, _)) = self.engine.poll_timeout().filter(|(due, _)| *due <= now) {
            self.records.push((due, None));
            self.handle(Input::Tick, due);
        }
    }

    fn emit(&mut self, event: Event, now: Timestamp) {
        self.records.push((now, Some(event.clone())));
        // The rules are the first record of the journal.
        let seq = Seq(u64::try_from(self.records.len()).expect("small") + 1);
        self.handle(Input::Event { seq, event: event.as_ref() }, now);
    }

    fn handle(&mut self, input: Input<'_>, now: Timestamp) {
        self.engine.handle(input, now);
        let mut own = Vec::new();
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Made(made) => {
                    self.made.push((made.created_at, made.id, made.content.text().to_string()));
                }
                Output::Publish(event) => own.push(event),
                Output::Record(_)
                | Output::Said(_)
                | Output::Session(..)
                | Output::Answer { .. }
                | Output::Refuse { .. }
                | Output::Wake(_) => {}
            }
        }
        own.into_iter().for_each(|event| self.emit(event, now));
    }

    fn played(rules: Arc<CompiledRules>, steps: &[Step]) -> Self {
        let mut fed = Self::new(rules);
        for step in steps {
            let now = START + step.at;
            fed.advance(now);
            let seq = Seq(u64::try_from(fed.records.len()).expect("small") + 2);
            fed.emit(published(step, seq), now);
        }
        fed
    }

    fn texts(&self) -> Vec<Made> {
        self.made.iter().map(|(at, _, text)| (at.since(START), text.clone())).collect()
    }
}

/// A text as TOML and JSON write it.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text")
}

/// The file with a test that expects `made` of the timeline, and nothing else.
fn with_test(drawn: &Drawn, steps: &[Step], made: &[Made]) -> String {
    let mut text = format!("{}[[tests]]\nname = \"drawn\"\nat = [\n", drawn.text());
    for Step { at, event } in steps {
        let fields = event.payload.as_object().expect("a map").iter();
        let payload: Vec<String> = fields.map(|(name, value)| format!("{name} = {value}")).collect();
        let mut attributes = vec![match &event.scope {
            TestScope::Workspace(folder) => format!("workspace = {}", quoted(folder)),
            TestScope::All | TestScope::Session(_) => "everywhere = true".to_owned(),
        }];
        attributes.extend(event.severity.map(|severity| format!("severity = \"{severity}\"")));
        attributes.extend(event.source.iter().map(|source| format!("source = {}", quoted(source))));
        attributes.extend(event.trusted.map(|trusted| format!("trusted = {trusted}")));
        attributes.extend(event.dedupe_key.iter().map(|key| format!("dedupe_key = {}", quoted(key))));
        attributes.extend(event.deliver_after.iter().map(|own| format!("deliver_after = {}", quoted(own))));
        let (payload, attributes) = (payload.join(", "), attributes.join(", "));
        writeln!(
            text,
            "  [\"{}ms\", \"{}\", {{ {payload} }}, {{ {attributes} }}],",
            at.as_millis(),
            event.event_type
        )
        .expect("a String");
    }
    text.push_str("]\nexpect = [\n");
    for (at, said) in made {
        writeln!(text, "  {{ at = \"{}ms\", text = {} }},", at.as_millis(), quoted(said)).expect("a String");
    }
    text.push_str("]\n");
    text
}

/// What the reader makes of the file, with the types of the timeline.
fn with_types(drawn: &Drawn, text: String) -> Compiled {
    let file = |name: String, text: String| SourceFile {
        layer: LayerKind::User,
        path: name.as_str().into(),
        name: name.into(),
        text: text.into(),
    };
    let entry = |own: &&str| {
        format!("[[event]]\ntype = \"{own}\"\nseverity = \"info\"\ndescription = \"A plant.\"\n")
    };
    let events: String = TYPES.iter().map(entry).collect();
    let files = [file(format!("subscribers/{}.toml", drawn.id()), text), file("events.toml".into(), events)];
    let compiled = compile(&Sources::new(files), &[]);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    compiled
}

/// The times and the beginnings of the texts that a replay adds to a journal without this subscriber.
fn replayed(drawn: &Drawn, fed: &Fed) -> Result<Vec<Made>, String> {
    let state = tempfile::tempdir().expect("a folder");
    let (none, own) = (sources([], ""), sources([drawn], ""));
    let hash = RulesStore::new(state.path()).keep(&none).expect("kept");
    let now = Arc::new(AtomicU64::new(START.as_millis()));
    let read = Arc::clone(&now);
    let clock = Arc::new(move || Timestamp::from_millis(read.load(Ordering::SeqCst)));
    let files = Arc::new(DirFiles::new(&state.path().join("journal")).expect("a folder"));
    let settings = JournalSettings { segment_bytes: 1 << 20, seal: false, ..JournalSettings::default() };
    let journal = Journal::open(files, settings, clock, &|_| None).expect("opened").journal;
    let append = |kind: u8, write: &dyn Fn(&mut Vec<u8>)| {
        let mut body = Vec::new();
        write(&mut body);
        let batch = AppendBatch::of(RecordKind(kind), &body, None).expect("small");
        journal.append_blocking(batch, Level::Written).expect("appended");
    };
    append(records::RULES, &|body| records::encode_rules(&hash, body));
    for (at, event) in &fed.records {
        now.store(at.as_millis(), Ordering::SeqCst);
        match event {
            Some(event) => append(records::EVENT, &|body| records::encode_event(&event.as_ref(), body)),
            None => append(records::TICK, &records::encode_bare),
        }
    }
    journal.close_blocking().expect("closed");
    let request = |sources: &Sources| Request {
        state: state.path(),
        sources: sources.clone(),
        subscribers: &[],
        since: None,
        until: None,
    };
    let (outcome, _) = rerun(&request(&own)).map_err(|error| error.to_string())?;
    let (unchanged, _) = rerun(&request(&none)).map_err(|error| error.to_string())?;
    if !unchanged.rows.iter().all(Row::is_unchanged) {
        return Err(format!("a replay with the same rules changes something: {unchanged:#?}"));
    }
    let added = outcome.differences.iter().filter(|one| one.kind == Kind::Added);
    let added = added.filter_map(|one| one.now.as_ref());
    let mut added: Vec<Made> = added.map(|seen| (seen.made_at.since(START), seen.line.to_string())).collect();
    added.sort();
    Ok(added)
}

/// The beginnings of the texts, as a replay names them.
fn lines(fed: &Fed, subscriber: &SubscriberId) -> Vec<Made> {
    let line = |(at, id, text): &(Timestamp, NotificationId, String)| {
        (at.since(START), observer::made(*id, subscriber, *at, text).line.to_string())
    };
    let mut lines: Vec<Made> = fed.made.iter().map(line).collect();
    lines.sort();
    lines
}

fn check(seed: u64) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let drawn = Drawn::new("plant", &mut random, &[], &[]);
    let steps = timeline(&mut random);
    let compiled = with_types(&drawn, drawn.text());
    let fed = Fed::played(Arc::new(compiled.rules.clone()), &steps);
    let made = fed.texts();
    let context = || format!("{}\n{steps:#?}\nthe engine makes {made:#?}", drawn.text());

    let tested = with_types(&drawn, with_test(&drawn, &steps, &made));
    for case in Cases::new(&tested).iter() {
        case.run().map_err(|wrong| format!("`test` differs:\n{wrong}\n{}", context()))?;
    }
    let preview = Preview::new(&compiled, drawn.id()).expect("it is there");
    let played: Vec<(Duration, TestEvent)> = steps.iter().map(|step| (step.at, step.event.clone())).collect();
    let (shown, _) = preview.outcomes(&played);
    let shown: Vec<Made> = shown.iter().map(|(at, one)| (*at, one.content.text().to_string())).collect();
    if shown != made {
        return Err(format!("`preview` shows {shown:#?}\n{}", context()));
    }
    let (found, expected) = (replayed(&drawn, &fed)?, lines(&fed, &SubscriberId::new(drawn.id())));
    if found != expected {
        return Err(format!("`replay` adds {found:#?}\n{}", context()));
    }
    Ok(made.len() as u64)
}

#[test]
fn test_preview_and_replay_say_the_same() {
    let (mut notifications, mut subscribers) = (0, 0);
    each_seed("ASIDE_ALIKE", SEEDS, |seed| {
        notifications += check(seed)?;
        subscribers += 1;
        Ok(())
    });
    assert!(
        subscribers < SEEDS || notifications > subscribers,
        "{notifications} of {subscribers} subscribers"
    );
}

/// What an engine with one of the daemon's subscribers makes of the inputs in its journal up to `last`.
fn alone(home: &Home, rules: Arc<CompiledRules>, last: Seq) -> BTreeMap<String, String> {
    let files = DirFiles::for_reading(&home.state().join("journal")).expect("there");
    let journal = ReadOnly::open(Arc::new(files)).expect("readable");
    let mut reader = journal.read_from(journal.first());
    let mut engine = Engine::new(rules);
    let mut made = BTreeMap::new();
    loop {
        let batch = reader.next_batch(1_000).expect("readable");
        for record in batch.iter() {
            if record.seq > last {
                return made;
            }
            let decoded = records::decode(record.kind.0, record.seq, record.body).expect("readable");
            match decoded {
                RecordInput::Input(input) => engine.handle(input, record.time),
                RecordInput::Rules { .. } | RecordInput::Released(_) | RecordInput::Skipped(_) => {}
            }
            while let Some(output) = engine.poll_output() {
                if let Output::Made(one) = output {
                    made.insert(one.id.as_str().to_owned(), one.content.text().to_string());
                }
            }
        }
        if batch.iter().next().is_none() {
            return made;
        }
    }
}

/// The notifications of the drawn subscribers in the history: their texts by id.
fn in_history(home: &Home) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = home.get(&format!("/v1/notifications?limit=1000{cursor}"));
        for one in page["notifications"].as_array().expect("a list") {
            let text = |field: &str| one[field].as_str().expect("a text").to_owned();
            if text("subscriber").starts_with("plant") {
                found.insert(text("id"), text("content"));
            }
        }
        match page.get("next").and_then(Value::as_str) {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[test]
fn daemon_with_all_subscribers_says_the_same() {
    let count = number("ASIDE_ALIKE_DAEMON").unwrap_or(SUBSCRIBERS);
    let mut random = Random::new(7);
    let drawn: Vec<Drawn> =
        (0..count).map(|number| Drawn::new(&format!("plant{number}"), &mut random, &[], &[])).collect();
    let home = Home::with(&[("subscribers/marker.toml", MARKER)]);
    for one in &drawn {
        home.configure(&format!("subscribers/{}.toml", one.id()), &one.text());
    }
    let daemon = home.serve();
    for number in 0..60 {
        let step = Step { at: Duration::ZERO, event: drawn_event(&mut random) };
        let event = step.event;
        let mut body = json!({
            "id": format!("own-{number}"), "type": event.event_type.to_string(), "payload": event.payload,
            "source": if event.trusted == Some(true) { "cli" } else { "other" },
        });
        if let Some(severity) = event.severity {
            body["severity"] = json!(severity.to_string());
        }
        if let Some(key) = event.dedupe_key {
            body["dedupe_key"] = json!(&*key);
        }
        home.publish(&body);
    }
    // The short windows end by their time, and the end of the daemon closes those that are left.
    home.publish(&json!({ "type": "plant.marker.set", "payload": {} }));
    eventually("the window of the marker has ended", || {
        let page = home.get("/v1/notifications?limit=1000");
        let made = page["notifications"].as_array()?;
        made.iter().any(|one| one["subscriber"] == "marker").then_some(())
    });
    daemon.stop();
    let _again = home.serve();
    let seq = eventually("the history has it all", || {
        let projection = &home.get("/v1/notifications?limit=1")["projection"];
        (projection["behind"].as_u64() == Some(0)).then(|| projection["seq"].as_u64().expect("a number"))
    });
    let history = in_history(&home);
    let mut expected = BTreeMap::new();
    for one in &drawn {
        let compiled = with_types(one, one.text());
        expected.extend(alone(&home, Arc::new(compiled.rules), Seq(seq)));
    }
    assert!(!expected.is_empty());
    assert_eq!(history, expected);
}

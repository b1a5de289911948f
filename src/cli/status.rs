//! `aside status`: how the daemon is.
//!
//! What is shown fits on a screen: a line each for the journal, rules, events, notifications and sessions, and a table of the
//! subscribers that did something. `--json` has all of it.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{CliError, Context, failing::Failing, parse, reload::Config, table, terminal::Terminal};

/// Characters of the rules' hash that are shown; enough to see whether they changed.
const HASH_CHARS: usize = 12;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "read the status";
    let status: Value = parse(doing, &context.ask(doing, "GET", "/v1/status", None)?)?;
    let text = match (args.json, Status::deserialize(&status)) {
        (true, _) => format!("{status}\n"),
        (false, Ok(known)) => known.text(&context.terminal),
        // A daemon of another version; what it says is shown as it comes.
        (false, Err(_)) => table::pairs(&status),
    };
    context.print(&text)
}

type Counts = BTreeMap<String, u64>;

#[derive(Deserialize)]
struct Status {
    version: String,
    pid: u32,
    started_at: String,
    uptime_ms: u64,
    journal: Journal,
    projection: Projection,
    rules: Rules,
    #[serde(default)]
    config: Config,
    events: Events,
    notifications: Notifications,
    tokens: Tokens,
    sessions: Sessions,
    subscribers: BTreeMap<String, Subscriber>,
}

#[derive(Deserialize)]
struct Journal {
    head: u64,
    synced: u64,
    durability: String,
    first: u64,
    first_at: Option<String>,
    segments: usize,
    bytes: u64,
    packed: usize,
    packed_bytes: u64,
    unpacked_bytes: u64,
    full: Option<String>,
    failed: Option<String>,
    #[serde(default)]
    problems: Vec<String>,
}

#[derive(Deserialize)]
struct Projection {
    seq: u64,
    behind: u64,
    failed: Option<String>,
}

#[derive(Deserialize)]
struct Rules {
    hash: String,
    enabled: usize,
    disabled: usize,
}

#[derive(Deserialize)]
struct Events {
    published: u64,
    unmatched: u64,
    held_back: u64,
    ended: Counts,
}

#[derive(Deserialize)]
struct Notifications {
    created: u64,
    injected: u64,
    confirmed: u64,
    pending: u64,
    unclaimed: u64,
    fixed_carriers: u64,
    ended: Counts,
}

impl Notifications {
    /// What is to be said of harnesses that ask for one carrier again and again.
    fn fixed_carriers(&self) -> String {
        match self.fixed_carriers {
            0 => String::new(),
            count => format!("; {count} carriers that never change"),
        }
    }
}

#[derive(Deserialize)]
struct Tokens {
    injected: u64,
    saved: i64,
}

#[derive(Deserialize)]
struct Sessions {
    open: u64,
    waiting: u64,
}

#[derive(Deserialize)]
struct Subscriber {
    enabled: bool,
    batched: u64,
    rows: u64,
    ended: Counts,
    created: u64,
    #[serde(default)]
    failing: Vec<Failing>,
}

impl Journal {
    fn files(&self) -> String {
        let since = self.first_at.as_ref().map(|at| format!(" of {at}")).unwrap_or_default();
        let (first, segments, packed) = (self.first, self.segments, self.packed);
        let mut text = format!("{} in {segments} from record {first}{since}", size(self.bytes));
        if packed > 0 {
            let (now, before) = (size(self.packed_bytes), size(self.unpacked_bytes));
            text.push_str(&format!(", {packed} packed from {before} to {now}"));
        }
        text
    }
}

impl Tokens {
    fn text(&self) -> String {
        let (saved, than) = (self.saved.unsigned_abs(), if self.saved < 0 { "more" } else { "fewer" });
        format!("about {} injected, {saved} {than} than the payloads as they came", self.injected)
    }
}

impl Status {
    fn text(&self, terminal: &Terminal) -> String {
        let Self { journal, projection, rules, config, events, notifications, tokens, sessions, .. } = self;
        let hash: String = rules.hash.chars().take(HASH_CHARS).collect();
        let full = journal.full.as_ref().map(|what| format!("; FULL: {what}")).unwrap_or_default();
        let failed = journal.failed.as_ref().map(|why| format!("; FAILED: {why}")).unwrap_or_default();
        let trouble =
            config.trouble().map(|trouble| format!("; configuration {trouble}")).unwrap_or_default();
        let lines = json!({
            "aside": format!("{}, process {}, up {} since {}", self.version, self.pid, up(self.uptime_ms), self.started_at),
            "journal": format!("{} records, {} synced, durability {}{full}{failed}", journal.head, journal.synced, journal.durability),
            "files": journal.files(),
            "history": projection.text(),
            "rules": format!("{} subscribers enabled, {} disabled, hash {hash}{trouble}", rules.enabled, rules.disabled),
            "events": format!("{} published, {} unmatched, {} held back{}", events.published, events.unmatched, events.held_back, ended(&events.ended)),
            "notifications": format!(
                "{} created, {} injected, {} confirmed, {} pending, {} unclaimed{}{}",
                notifications.created, notifications.injected, notifications.confirmed, notifications.pending,
                notifications.unclaimed, ended(&notifications.ended), notifications.fixed_carriers(),
            ),
            "tokens": tokens.text(),
            "sessions": format!("{} open, {} waiting", sessions.open, sessions.waiting),
        });
        let problems = journal.problems.iter().chain(config.problems());
        let problems: String = problems.map(|problem| format!("PROBLEM: {problem}\n")).collect();
        format!("{}{problems}{}", table::pairs(&lines), self.subscribers(terminal))
    }

    /// Those that did something; of the others only how many there are.
    fn subscribers(&self, terminal: &Terminal) -> String {
        let did_something = |subscriber: &Subscriber| {
            subscriber.batched > 0 || subscriber.created > 0 || !subscriber.ended.is_empty()
        };
        let (busy, idle): (Vec<_>, Vec<_>) =
            self.subscribers.iter().partition(|(_, subscriber)| did_something(subscriber));
        let row = |(id, subscriber): &(&String, &Subscriber)| {
            let state = if subscriber.enabled { "on" } else { "off" };
            json!({
                "subscriber": id, "state": state, "created": subscriber.created, "rows": subscriber.rows,
                "ended": words(&subscriber.ended),
            })
        };
        let mut text = String::new();
        let failing = self
            .subscribers
            .iter()
            .flat_map(|(id, own)| own.failing.iter().map(move |one| one.text(id, terminal) + "\n"));
        let failing: String = failing.collect();
        if !failing.is_empty() {
            text.push_str(&format!("\nFAILING\n{failing}"));
        }
        if !busy.is_empty() {
            text.push_str(&format!("\n{}", table::table(&busy.iter().map(row).collect::<Vec<_>>())));
        }
        match idle.len() {
            0 => {}
            1 => text.push_str("\n1 subscriber had no event yet\n"),
            count => text.push_str(&format!("\n{count} subscribers had no event yet\n")),
        }
        text
    }
}

impl Projection {
    fn text(&self) -> String {
        let failed = self.failed.as_ref().map(|why| format!("; FAILED: {why}")).unwrap_or_default();
        match self.behind {
            0 => format!("up to date{failed}"),
            behind => format!("{behind} records behind, at {}{failed}", self.seq),
        }
    }
}

/// `; ended: 3 duplicate, 2 filtered`, or nothing.
fn ended(counts: &Counts) -> String {
    if counts.is_empty() { String::new() } else { format!("; ended: {}", words(counts)) }
}

fn words(counts: &Counts) -> String {
    counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

/// A size in the largest unit of which there is at least one.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut size = (bytes as f64, "bytes");
    for unit in UNITS {
        if size.0 < 1_024.0 {
            break;
        }
        size = (size.0 / 1_024.0, unit);
    }
    if size.1 == "bytes" { format!("{bytes} bytes") } else { format!("{:.1} {}", size.0, size.1) }
}

/// A duration in the two units that matter.
fn up(millis: u64) -> String {
    let seconds = Duration::from_millis(millis).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::tests::run_against,
        client::fake::FakeDaemon,
        protocol::history::ProjectionView,
        protocol::views::{
            ConfigView, EventCounts, JournalView, NotificationCounts, RulesView, SessionCounts, StatusView,
            SubscriberCounts, TokenCounts,
        },
    };

    fn counts(counts: &[(&str, u64)]) -> Counts {
        counts.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect()
    }

    fn status() -> StatusView {
        let idle = SubscriberCounts { enabled: true, ..SubscriberCounts::default() };
        let busy = SubscriberCounts {
            enabled: true,
            batched: 9,
            rows: 9,
            ended: counts(&[("duplicate", 3), ("filtered", 2)]),
            created: 2,
            injected_tokens: 60,
            raw_bytes: 900,
            failing: Vec::new(),
        };
        let gone = SubscriberCounts { created: 1, ..SubscriberCounts::default() };
        StatusView {
            version: "0.1.0".to_owned(),
            pid: 7,
            started_at: "2026-11-21T08:23:01Z".to_owned(),
            uptime_ms: 3_725_000,
            journal: JournalView {
                head: 96,
                synced: 93,
                applied: 96,
                durability: "sync",
                first: 1,
                first_at: Some("2026-11-20T08:00:00Z".to_owned()),
                segments: 2,
                bytes: 3 << 19,
                packed: 1,
                packed_bytes: 1_000,
                unpacked_bytes: 1 << 20,
                full: None,
                failed: None,
                problems: Vec::new(),
            },
            projection: ProjectionView { seq: 96, behind: 0, failed: None },
            config: ConfigView { state: ConfigView::IN_FORCE, ..ConfigView::default() },
            rules: RulesView { hash: "b21532ec8694b10c52aa".to_owned(), enabled: 3, disabled: 0 },
            events: EventCounts {
                published: 53,
                unmatched: 1,
                held_back: 0,
                ended: counts(&[("duplicate", 3), ("filtered", 2)]),
            },
            notifications: NotificationCounts {
                created: 3,
                injected: 2,
                confirmed: 1,
                pending: 0,
                unclaimed: 0,
                fixed_carriers: 2,
                ended: counts(&[("expired", 1)]),
            },
            tokens: TokenCounts::of(100, 900),
            sessions: SessionCounts { open: 1, waiting: 0, unconfirmed: 1, evicted: 0 },
            subscribers: [("ci_check", idle.clone()), ("deploys", busy), ("old", gone), ("reminder", idle)]
                .map(|(id, counts)| (id.to_owned(), counts))
                .into(),
        }
    }

    fn shown(status: &StatusView) -> Result<String, String> {
        let body = serde_json::to_string(status).expect("text and numbers");
        run_against(&FakeDaemon::answering_json(200, &body), &["status"])
    }

    #[test]
    fn the_status_of_a_daemon_fits_on_a_screen() {
        let expected = "\
aside          0.1.0, process 7, up 1h 2m since 2026-11-21T08:23:01Z
journal        96 records, 93 synced, durability sync
files          1.5 MiB in 2 from record 1 of 2026-11-20T08:00:00Z, 1 packed from 1.0 MiB to 1000 bytes
history        up to date
rules          3 subscribers enabled, 0 disabled, hash b21532ec8694
events         53 published, 1 unmatched, 0 held back; ended: 3 duplicate, 2 filtered
notifications  3 created, 2 injected, 1 confirmed, 0 pending, 0 unclaimed; ended: 1 expired; 2 carriers that never change
tokens         about 100 injected, 80 fewer than the payloads as they came
sessions       1 open, 0 waiting

subscriber  state  created  rows  ended
deploys     on     2        9     3 duplicate, 2 filtered
old         off    1        0

2 subscribers had no event yet
";
        assert_eq!(shown(&status()).as_deref(), Ok(expected));
    }

    #[test]
    fn a_journal_that_takes_nothing_more_is_said() {
        let mut status = status();
        status.journal.failed = Some("the disk is full".to_owned());
        let text = shown(&status).expect("shown");
        assert!(text.contains("durability sync; FAILED: the disk is full\n"), "{text}");
        status.journal.failed = None;
        status.journal.full = Some("the disk is full: no space".to_owned());
        let text = shown(&status).expect("shown");
        assert!(text.contains("durability sync; FULL: the disk is full: no space\n"), "{text}");
        status.journal.problems = vec!["a.seg is damaged at byte 30".to_owned()];
        let text = shown(&status).expect("shown");
        assert!(text.contains("\nPROBLEM: a.seg is damaged at byte 30\n"), "{text}");
    }

    #[test]
    fn files_that_are_not_in_force_are_said_with_what_is_wrong() {
        let mut status = status();
        status.config = ConfigView {
            state: ConfigView::REFUSED,
            read_at: "2026-11-21T09:00:00Z".to_owned(),
            errors: 1,
            warnings: 0,
            problems: vec!["ci.toml:2:6: `id` must be a string, not an integer".to_owned()],
        };
        let text = shown(&status).expect("shown");
        let refused =
            "; configuration REFUSED at 2026-11-21T09:00:00Z with 1 error; the rules of before hold\n";
        assert!(text.contains(refused), "{text}");
        assert!(text.contains("\nPROBLEM: ci.toml:2:6: `id` must be a string, not an integer\n"), "{text}");
        status.config.state = ConfigView::PARTLY;
        let text = shown(&status).expect("shown");
        assert!(text.contains("; configuration read with 1 error at 2026-11-21T09:00:00Z; what"), "{text}");
    }

    #[test]
    fn a_history_that_is_behind_or_does_not_go_on_is_said() {
        let mut status = status();
        status.projection = ProjectionView { seq: 90, behind: 6, failed: None };
        let text = shown(&status).expect("shown");
        assert!(text.contains("history        6 records behind, at 90\n"), "{text}");
        status.projection.failed = Some("the disk is full".to_owned());
        let text = shown(&status).expect("shown");
        assert!(text.contains("6 records behind, at 90; FAILED: the disk is full\n"), "{text}");
    }

    #[test]
    fn how_long_it_is_up_is_told_in_the_units_that_matter() {
        for (millis, expected) in
            [(999, "0s"), (59_999, "59s"), (61_000, "1m 1s"), (7_260_000, "2h 1m"), (90_000_000, "1d 1h")]
        {
            assert_eq!(up(millis), expected);
        }
    }
}

//! `aside status`: shows the status of the daemon.
//!
//! It is the screen of `aside` alone, and with `--verbose` the counts: a line each for the journal,
//! rules, events, notifications and sessions, and a table of the active subscribers. `--json` has
//! all of it.

use std::time::Duration;

use engine::{sorted::SortedMap, words::counted};
use hook::client::ClientError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    api::wire::{
        history::ProjectionView,
        views::{
            DiskView, FailingView, JournalView, NotificationCounts, StatusView, SubscriberCounts, TokenCounts,
        },
    },
    cli::{
        CliError, Context,
        inbox::shown::batches,
        overview,
        table::{self, Cell, Table},
        terminal::{Terminal, Tone, one_line},
    },
    harness::{kind::Kind, table::KINDS},
};

/// Displayed characters of the rules' hash; enough to notice a change.
pub(super) const HASH_CHARS: usize = 12;

const DOING: &str = "read the status";

#[derive(Debug, Default, clap::Args)]
pub(super) struct Args {
    /// Also show counts: events, notifications, tokens, the journal, each subscriber
    #[arg(long, short)]
    verbose: bool,
    /// Print the daemon's answer as JSON
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let status: Value = context.get(DOING, "/v1/status")?;
    let terminal = &context.terminal;
    let text = match (args.json, StatusView::deserialize(&status)) {
        (true, _) => format!("{status}\n"),
        (false, Ok(known)) => {
            let counts = if args.verbose { format!("\n{}", known.counts(terminal)) } else { String::new() };
            overview::screen(&known, context)? + &counts
        }
        // A daemon of another version; its answer is shown unchanged.
        (false, Err(_)) => table::pairs(&status, terminal),
    };
    context.print(&text)
}

type Counts = SortedMap<String, u64>;

impl NotificationCounts {
    /// A message about harnesses that repeat one carrier.
    fn fixed_carriers(&self) -> String {
        match self.fixed_carriers {
            0 => String::new(),
            1 => "; 1 carrier that never changes".to_owned(),
            count => format!("; {count} carriers that never change"),
        }
    }
}

impl JournalView {
    fn files(&self, terminal: &Terminal) -> String {
        let since = self.first_at.as_ref().map(|at| format!(", {}", terminal.moment(at))).unwrap_or_default();
        let (first, segments, sealed) = (self.first, self.segments, self.sealed);
        let mut text = format!("{} in {segments} from record {first}{since}", size(self.bytes));
        if sealed > 0 {
            let (now, before) = (size(self.sealed_bytes), size(self.unsealed_bytes));
            text.push_str(&format!(", {sealed} sealed from {before} to {now}"));
        }
        text
    }
}

impl TokenCounts {
    fn text(&self) -> String {
        let (saved, than) = (self.saved.unsigned_abs(), if self.saved < 0 { "more" } else { "fewer" });
        format!("about {} injected, {saved} {than} than the unprocessed payloads", self.injected)
    }
}

impl StatusView {
    /// The daemon's version and start.
    pub(super) fn daemon(&self) -> String {
        format!("aside {} runs: process {}, up {}", self.version, self.pid, uptime_text(self.uptime_ms))
    }

    /// Problems that need attention, a line each.
    pub(super) fn troubles(&self, terminal: &Terminal) -> Vec<String> {
        let Self { journal, projection, config, subscribers, .. } = self;
        let full = journal.full.iter().map(|what| format!("journal FULL: {what}"));
        let failed = journal.failed.iter().map(|why| format!("journal FAILED: {why}"));
        let history = projection.failed.iter().map(|why| format!("history FAILED: {why}"));
        let refused = config.trouble().map(|trouble| format!("configuration {trouble}"));
        let problems = journal.problems.iter().chain(&config.problems).cloned();
        let failing = subscribers
            .iter()
            .flat_map(|(id, own)| own.failing.iter().map(move |one| one.text(id, terminal)));
        let clock = self.clock_trouble();
        full.chain(failed).chain(history).chain(refused).chain(clock).chain(problems).chain(failing).collect()
    }

    /// Counts since the journal's first record.
    fn counts(&self, terminal: &Terminal) -> String {
        let Self { journal, projection, disk, rules, events, notifications, tokens, sessions, .. } = self;
        let hash: String = rules.hash.chars().take(HASH_CHARS).collect();
        let lines = json!({
            "started": terminal.moment(&self.started_at),
            "journal": format!("{}, {} synced, durability {}", counted(journal.head, "record"), journal.synced, journal.durability),
            "files": journal.files(terminal),
            "history": projection.text(),
            "disk": disk.text(),
            "rules": format!("{} enabled, {} disabled, hash {hash}", counted(rules.enabled, "subscriber"), rules.disabled),
            "events": format!("{} published, {} unmatched, {} throttled, {} skipped{}", events.published, events.unmatched, events.throttled, events.skipped, ended(&events.ended)),
            "notifications": format!(
                "{} created, {} injected, {} confirmed{}, {} pending{}, {} unclaimed, {}{}{}",
                notifications.created, notifications.injected, notifications.confirmed,
                proofs(&notifications.confirmed_by), notifications.pending, held(notifications),
                notifications.unclaimed, batches(notifications.batches_open), ended(&notifications.ended), notifications.fixed_carriers(),
            ),
            "tokens": tokens.text(),
            "sessions": format!("{} open, {} waiting", sessions.open, sessions.waiting),
        });
        table::pairs(&lines, terminal) + &self.budgets.text(terminal) + &self.subscribers(terminal)
    }

    /// The active subscribers, and the number of the others.
    fn subscribers(&self, terminal: &Terminal) -> String {
        let did_something = |subscriber: &SubscriberCounts| {
            subscriber.batched > 0 || subscriber.created > 0 || !subscriber.ended.is_empty()
        };
        let (busy, idle): (Vec<_>, Vec<_>) =
            self.subscribers.iter().partition(|(_, subscriber)| did_something(subscriber));
        let mut table = Table::new(["SUBSCRIBER", "STATE", "CREATED", "ROWS", "ENDED"]);
        for (id, subscriber) in busy {
            table.row([
                Cell::plain(id),
                Cell::plain(if subscriber.enabled { "on" } else { "off" }),
                Cell::plain(&subscriber.created.to_string()),
                Cell::plain(&subscriber.rows.to_string()),
                Cell::plain(&words(&subscriber.ended)),
            ]);
        }
        let mut text = if table.is_empty() { String::new() } else { format!("\n{}", table.text(terminal)) };
        match idle.len() {
            0 => {}
            1 => text.push_str("\n1 subscriber has no event yet\n"),
            count => text.push_str(&format!("\n{count} subscribers have no event yet\n")),
        }
        text
    }
}

impl ProjectionView {
    fn text(&self) -> String {
        match self.behind {
            0 => "up to date".to_owned(),
            behind => format!("{} behind, at {}", counted(behind, "record"), self.seq),
        }
    }
}

impl DiskView {
    fn text(&self) -> String {
        let Self { journal, history, history_max, snapshots, rules } = self;
        let [journal, history, most, snapshots, rules] =
            [journal, history, history_max, snapshots, rules].map(|bytes| size(*bytes));
        format!(
            "journal {journal}, history {history} of at most {most}, snapshots {snapshots}, rules {rules}"
        )
    }
}

/// `; ended: 3 duplicate, 2 filtered`, or empty.
fn ended(counts: &Counts) -> String {
    if counts.is_empty() { String::new() } else { format!("; ended: {}", words(counts)) }
}

/// The notifications that are held, by kind.
fn held(notifications: &NotificationCounts) -> String {
    match notifications.held {
        0 => String::new(),
        held => format!(", {held} of them held ({})", words(&notifications.held_by)),
    }
}

/// ` (1 seen, 2 step)`, or empty.
fn proofs(counts: &Counts) -> String {
    if counts.is_empty() { String::new() } else { format!(" ({})", words(counts)) }
}

fn words(counts: &Counts) -> String {
    counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

/// A size in the largest unit that is at most the size.
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

/// A duration in its two largest units.
fn uptime_text(millis: u64) -> String {
    let seconds = Duration::from_millis(millis).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

impl FailingView {
    /// One line about it.
    pub(super) fn text(&self, subscriber: &str, terminal: &Terminal) -> String {
        let Self { file, line, message, times, last_at } = self;
        let last = terminal.moment(last_at);
        let line = line.map_or_else(String::new, |line| format!(":{line}"));
        let often = if *times == 1 { format!("once, {last}") } else { format!("{times} times, last {last}") };
        format!("{subscriber}: {file}{line} failed {often}: {}", one_line(message))
    }
}

/// The part of the status that is read here, so that the rest may be of another version.
#[derive(Deserialize)]
struct Counted {
    subscribers: SortedMap<String, SubscriberCounts>,
}

/// One line per failure, by subscriber.
///
/// Errors: the daemon does not answer, or its answer has an unexpected form.
pub(super) fn failing(context: &Context<'_>) -> Result<SortedMap<String, Vec<String>>, CliError> {
    let doing = "read the status";
    let status: Counted = context.get(doing, "/v1/status")?;
    let lines = |(id, own): (String, SubscriberCounts)| {
        let lines: Vec<String> =
            own.failing.iter().map(|failing| failing.text(&id, &context.terminal)).collect();
        (!lines.is_empty()).then_some((id, lines))
    };
    Ok(status.subscribers.into_iter().filter_map(lines).collect())
}

/// The screen without a daemon: the commands, and what each does.
fn how_to_start() -> String {
    let set_up = |kind: &Kind| {
        let what = if kind.client().is_some() { "install it in" } else { "use it with" };
        (kind.set_up(), format!("{what} {}", kind.title))
    };
    let plain = |command: &str, what: &str| (command.to_owned(), what.to_owned());
    let steps = std::iter::once(plain("aside up", "start it in the background"))
        .chain(KINDS.into_iter().map(set_up))
        .chain([
            plain("aside demo", "see what an agent receives, without a daemon"),
            plain("aside --help", "every command"),
        ]);
    steps.map(|(command, what)| format!("  {command:25}   {what}\n")).collect()
}

/// Prints the screen, also without a daemon.
pub(super) fn welcome(context: &mut Context<'_>) -> Result<(), CliError> {
    match run(&Args::default(), context) {
        Err(CliError::Client { source: ClientError::NoDaemon { socket, .. }, .. }) => {
            let head = format!("no daemon runs at {}", one_line(&socket.display().to_string()));
            let head = context.terminal.paint(Tone::Warning, &context.terminal.wrap(&head, 0, 2));
            context.print(&format!("{head}\n\n{}", how_to_start()))
        }
        shown => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::budgets::BudgetsView;
    use crate::{
        api::wire::{
            sources::SourcesView,
            views::{ConfigView, EventCounts, RulesView, SessionCounts},
        },
        cli::tests::run_against,
    };
    use hook::client::fake::FakeDaemon;

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
            budgets: BudgetsView::default(),
            version: "0.1.0".to_owned(),
            build: "1a2b3c4d".to_owned(),
            pid: 7,
            started_at: "2026-11-21T08:23:01Z".to_owned(),
            uptime_ms: 3_725_000,
            clock_ahead_ms: 59_000,
            journal: JournalView {
                head: 96,
                synced: 93,
                applied: 96,
                durability: "sync".to_owned(),
                first: 1,
                first_at: Some("2026-11-20T08:00:00Z".to_owned()),
                segments: 2,
                bytes: 3 << 19,
                sealed: 1,
                sealed_bytes: 1_000,
                unsealed_bytes: 1 << 20,
                ..JournalView::default()
            },
            projection: ProjectionView { seq: 96, behind: 0, failed: None },
            disk: DiskView {
                journal: 3 << 19,
                history: 5 << 20,
                history_max: 256 << 20,
                snapshots: 900,
                rules: 0,
            },
            config: ConfigView { state: ConfigView::IN_FORCE.to_owned(), ..ConfigView::default() },
            workspaces: Vec::new(),
            rules: RulesView { hash: "b21532ec8694b10c52aa".to_owned(), enabled: 3, disabled: 0 },
            events: EventCounts {
                published: 53,
                unmatched: 1,
                ended: counts(&[("duplicate", 3), ("filtered", 2)]),
                ..EventCounts::default()
            },
            notifications: NotificationCounts {
                created: 3,
                injected: 2,
                confirmed: 3,
                confirmed_by: counts(&[("seen", 1), ("step", 2)]),
                pending: 9,
                held: 4,
                held_by: counts(&[("quiet", 3), ("silenced", 2)]),
                unclaimed: 0,
                batches_open: 1,
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

    fn daemon_with(status: &StatusView) -> FakeDaemon {
        let body = serde_json::to_string(status).expect("text and numbers");
        let sources = serde_json::to_string(&SourcesView::default()).expect("text and numbers");
        FakeDaemon::answering_paths(&[
            ("/v1/status", &body),
            ("/v1/sessions", r#"{"sessions":[]}"#),
            ("/v1/inbox?limit=100", r#"{"notifications":[],"questions":0}"#),
            ("/v1/notifications?limit=100", r#"{"notifications":[],"projection":{"seq":96,"behind":0}}"#),
            ("/v1/sources?since=1d", &sources),
        ])
    }

    fn shown(status: &StatusView, args: &[&str]) -> String {
        run_against(&daemon_with(status), args).expect("shown")
    }

    #[test]
    fn verbose_status_adds_counts_below_the_screen() {
        let expected = "\
started        4h ago
journal        96 records, 93 synced, durability sync
files          1.5 MiB in 2 from record 1, yesterday 08:00, 1 sealed from 1.0 MiB to 1000 bytes
history        up to date
disk           journal 1.5 MiB, history 5.0 MiB of at most 256.0 MiB, snapshots 900 bytes, rules 0 bytes
rules          3 subscribers enabled, 0 disabled, hash b21532ec8694
events         53 published, 1 unmatched, 0 throttled, 0 skipped; ended: 3 duplicate, 2 filtered
notifications  3 created, 2 injected, 3 confirmed (1 seen, 2 step), 9 pending, 4 of them held (3 quiet, 2 silenced), 0 unclaimed, 1 open batch; ended: 1 expired; 2 carriers that never change
tokens         about 100 injected, 80 fewer than the unprocessed payloads
sessions       1 open, 0 waiting

SUBSCRIBER  STATE  CREATED  ROWS  ENDED
deploys     on     2        9     3 duplicate, 2 filtered
old         off    1        0

2 subscribers have no event yet
";
        let screen = shown(&status(), &["status"]);
        assert!(screen.starts_with("aside 0.1.0 runs: process 7, up 1h 2m\n"), "{screen}");
        assert_eq!(shown(&status(), &["status", "--verbose"]), format!("{screen}\n{expected}"));
        assert_eq!(shown(&status(), &[]), screen);
    }

    #[test]
    fn status_lists_problems_first() {
        let well = status();
        let mut full = status();
        full.journal.full = Some("the disk is full: no space".to_owned());
        full.journal.problems = vec!["a.seg is damaged at byte 30".to_owned()];
        full.clock_ahead_ms = 26 * 3_600_000;
        let mut failed = status();
        failed.journal.failed = Some("the disk is full".to_owned());
        failed.projection = ProjectionView { seq: 90, behind: 6, failed: Some("no space".to_owned()) };
        let mut refused = status();
        refused.config = ConfigView {
            state: ConfigView::REFUSED.to_owned(),
            read_at: "2026-11-21T09:00:00Z".to_owned(),
            errors: 1,
            warnings: 0,
            problems: vec!["ci.toml:2:6: `id` must be a string, not an integer".to_owned()],
        };
        let mut partly = refused.clone();
        partly.config.state = ConfigView::PARTLY.to_owned();
        partly.config.problems.clear();
        for (status, troubles) in [
            (well, ""),
            (
                full,
                "PROBLEM: journal FULL: the disk is full: no space\n\
                 PROBLEM: the journal's time is 1d2h ahead of the wall clock; it never steps back, and times of events and watches follow it\n\
                 PROBLEM: a.seg is damaged at byte 30\n",
            ),
            (failed, "PROBLEM: journal FAILED: the disk is full\nPROBLEM: history FAILED: no space\n"),
            (
                refused,
                "PROBLEM: configuration REFUSED at 2026-11-21T09:00:00Z with 1 error; the previous rules stay in force\n\
                 PROBLEM: ci.toml:2:6: `id` must be a string, not an integer\n",
            ),
            (
                partly,
                "PROBLEM: configuration read with 1 error at 2026-11-21T09:00:00Z; files with errors are not used in their present form\n",
            ),
        ] {
            let screen = shown(&status, &["status"]);
            let begin = format!("aside 0.1.0 runs: process 7, up 1h 2m\n{troubles}\n");
            assert!(screen.starts_with(&begin), "{screen}");
        }
    }

    #[test]
    fn status_prints_all_fields_of_unknown_answer() {
        let daemon = FakeDaemon::answering_json(200, r#"{"version":"0.1.0","events":{"total":3}}"#);
        let pairs = "version       0.1.0\nevents.total  3\n";
        assert_eq!(run_against(&daemon, &["status"]).as_deref(), Ok(pairs));
        let json = "{\"version\":\"0.1.0\",\"events\":{\"total\":3}}\n";
        assert_eq!(run_against(&daemon, &["status", "--json"]).as_deref(), Ok(json));
        assert!(daemon.requests()[0].starts_with("GET /v1/status HTTP/1.1\r\n"));
    }

    #[test]
    fn uptime_shows_its_two_largest_units() {
        for (millis, expected) in
            [(999, "0s"), (59_999, "59s"), (61_000, "1m 1s"), (7_260_000, "2h 1m"), (90_000_000, "1d 1h")]
        {
            assert_eq!(uptime_text(millis), expected);
        }
    }
}

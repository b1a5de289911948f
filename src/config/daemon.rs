//! `aside.toml`: the settings of the daemon, the injections and the sessions.
//!
//! Each key is a row of `settings!`, here or in the module that uses the key. `config/aside.toml`,
//! which is the lowest layer, is generated from the rows. A wrong value is reported, and the value
//! of the layer below stays. Folders and the socket's path are not settings: they come from the
//! environment.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, sync::Arc, time::Duration};

use engine::{
    budget::BudgetSettings,
    conversation::{InjectionSettings, SessionSettings},
    detector,
    exchange::Format,
    pipeline::{activation::WakeSettings, mute::Mutes, rule::Subscriber},
    probe,
    rate::Rate,
    settings::{Keys, Row, settings},
    sink,
    sorted::SortedMap,
    throttle::SourceRates,
};
use strum::{IntoStaticStr, VariantArray};

use crate::{
    capability::{outside, webhook::Kind},
    config::{
        budget,
        keys::FileTable,
        limits,
        mute::{self, Delivery},
        patterns, producers,
        raw::{Document, Section, Value, finish_all},
        report::Diagnostic,
        sinks, subscriber,
        webhooks::{self, Sender},
    },
};

const SECTIONS: [&str; 10] = [
    "journal",
    "http",
    "injection",
    "budget",
    "sessions",
    "sources",
    "sinks",
    "activation",
    "delivery",
    "webhooks",
];

/// Approximate number of characters of a token.
const CHARS_PER_TOKEN: u32 = 4;
const DAY: Duration = Duration::from_secs(24 * 3_600);
const MIB: u64 = 1 << 20;
/// Default rate of a source that other people than the user write to: a checkout of some thousand
/// files passes, an endless loop does not.
const REMOTE_RATE: Rate =
    Rate { count: NonZeroU32::new(6_000).expect("not zero"), per: Duration::from_secs(60) };

/// The settings of the daemon; those of the engine are in its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// `[journal]`.
    pub journal: JournalConfig,
    /// `[http]`; `None` if nothing listens on TCP.
    pub http: Option<HttpConfig>,
}

// The smallest segment holds a few events of the largest size; a start still reads the largest one
// quickly. 2 GiB are some tens of millions of sealed events, and 256 MiB of history some 300,000
// deliveries. A snapshot every 100 records costs about as much as the records; after 1,000,000 a
// start takes some seconds, after 32,768 some 50 ms.
settings! {
    /// The journal of everything that happens. These keys are read when the daemon starts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct JournalConfig from Section<'_> {
        /// The time between two syncs with `durability = "interval"`.
        interval: Duration = Duration::from_millis(100),
            duration(Duration::from_millis(1)..=Duration::from_secs(10));
        /// When a published event is acknowledged: `"sync"` after it is on the disk, `"interval"`
        /// after it is written. The second is faster, but a power failure loses what is younger than
        /// `interval`. Exchanges never wait for the disk: with `"sync"`, a power failure may lose
        /// those of the last second, and what they delivered is delivered again.
        durability: Durability = Durability::Sync, word();
        /// The size of one file of the journal.
        segment_bytes: u64 = 64 * MIB, bytes(MIB..=1024 * MIB);
        /// Compresses full files in the background, to about a sixth.
        seal: bool = true, flag();
        /// Records older than this are deleted, a file at a time, once no snapshot needs them.
        retain_age: Option<Duration> = Some(30 * DAY),
            duration_or_off(Duration::from_secs(3_600)..=3_650 * DAY);
        /// If all files together are larger than this, the oldest ones are deleted in the same way.
        retain_bytes: Option<u64> = Some(2048 * MIB), bytes_or_off(16 * MIB..=1 << 50);
        /// If the history (projection.db), which is made from the journal, is larger than this, its
        /// oldest entries are deleted.
        history_bytes: u64 = 256 * MIB, bytes(16 * MIB..=1 << 40);
        /// A snapshot of the state is written after this number of records. A start after a crash
        /// applies at most about as many records.
        snapshot_records: u32 = 32_768, number(100..=1_000_000);
    }
}

settings! {
    /// The API on TCP, in addition to the Unix socket. These keys are read when the daemon starts.
    struct Http from Section<'_> {
        /// Address and port: a loopback address, because events can hold anything. Without this key
        /// nothing listens on TCP.
        listen: SocketAddr, loopback(), like "\"127.0.0.1:4127\"";
        /// A file of bearer tokens, of which clients on TCP must send one; without this key, the
        /// daemon creates a token in its state folder.
        token_file: PathBuf, path(), like "\"/run/aside/token\"";
    }
}

settings! {
    /// Limits of all sources, and a table for each of them.
    struct Rates from Section<'_> {
        /// Most events of one source that are dispatched in a time, such as `"1000/s"`. Further
        /// events stay in the journal and are delivered to nobody; a `source.throttled` event a
        /// second counts them.
        rate: Option<Rate> = None, rate_or_off();
        /// The same limit for events that arrive over TCP or as CloudEvents, from a source that
        /// `trusted` in `[activation]` does not name.
        remote_rate: Option<Rate> = Some(REMOTE_RATE), rate_or_off();
    }
}

/// When a published event is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Durability {
    /// After it is on the disk.
    Sync,
    /// After it is written. It is synced after `interval`, so a power failure can lose younger
    /// records.
    Interval,
}

/// The API on TCP, in addition to the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// A loopback address.
    pub listen: SocketAddr,
    /// An absolute path; `None` if the daemon creates its own token in its state folder.
    pub token_file: Option<PathBuf>,
}

/// All settings of `aside.toml`.
pub(crate) struct Settings {
    pub(crate) daemon: DaemonConfig,
    pub(crate) injection: InjectionSettings,
    pub(crate) budget: BudgetSettings,
    pub(crate) sessions: SessionSettings,
    pub(crate) sources: SourceRates,
    pub(crate) detectors: detector::Settings,
    pub(crate) probes: Arc<probe::Settings>,
    pub(crate) outside: Arc<outside::Settings>,
    pub(crate) sinks: Arc<sink::Settings>,
    pub(crate) wake: Arc<WakeSettings>,
    pub(crate) mutes: Arc<Mutes>,
    pub(crate) senders: SortedMap<Kind, Sender>,
    pub(crate) origins: SortedMap<String, Arc<str>>,
    pub(crate) found: Vec<Diagnostic>,
}

/// Reads the `aside.toml` of every layer; later ones override earlier ones key by key.
pub(crate) fn compile(documents: &[Document<'_>]) -> Settings {
    let [
        mut journal,
        mut http,
        mut injection,
        mut budget,
        mut sessions,
        mut sources,
        mut sinks,
        mut activation,
        mut delivery,
        mut webhooks,
    ] = SECTIONS.map(|name| Section::new(name, documents));
    let mut tables: SortedMap<_, _> =
        producers::switched().map(|row| (row.name, sources.table(row.name))).collect();
    let (senders, sender_tables) = webhooks::read_senders(&mut webhooks);
    let (sink_settings, sink_tables) = sinks::read(&mut sinks);
    let Rates { rate, remote_rate } = Rates::read(&mut sources);
    let mut settings = Settings {
        daemon: DaemonConfig { journal: JournalConfig::read(&mut journal), http: read_http(&mut http) },
        injection: InjectionSettings::read(&mut injection),
        budget: budget::read(&mut budget),
        sessions: SessionSettings::read(&mut sessions),
        sources: SourceRates { rate, remote_rate },
        detectors: detector::Settings::read(&mut tables),
        probes: Arc::new(probe::Settings::read(&mut tables)),
        outside: Arc::new(outside::Settings::read(&mut tables)),
        sinks: Arc::new(sink_settings),
        wake: Arc::new(WakeSettings::read(&mut activation)),
        mutes: mute::compiled(Delivery::read(&mut delivery)),
        senders,
        origins: SortedMap::new(),
        found: Vec::new(),
    };
    check_frames(&mut injection, &settings.injection);
    let mut sections =
        vec![journal, http, injection, budget, sessions, sources, sinks, activation, delivery, webhooks];
    sections.extend(tables.into_values().chain(sender_tables).chain(sink_tables));
    for section in &sections {
        settings.origins.extend(section.origins().clone());
    }
    settings.found = finish_all(documents, &SECTIONS, sections);
    settings
}

/// What the settings of a layer name and nothing has: types of events, and subscribers that can be muted.
pub(crate) fn doubts(
    document: &Document<'_>,
    known_types: &[&str],
    subscribers: &[Arc<Subscriber>],
) -> Vec<Diagnostic> {
    let [activation, delivery] = ["activation", "delivery"].map(|name| Section::new(name, [document]));
    let levels = activation.value("types").map(|levels| patterns::in_names(levels, known_types));
    let mutes = delivery.value("mute").map(|mutes| mute::doubts(mutes, known_types, subscribers));
    [levels, mutes].into_iter().flatten().flatten().collect()
}

fn read_http(section: &mut Section<'_>) -> Option<HttpConfig> {
    let Http { listen, token_file } = Http::read(section);
    if section.value("listen").is_none() {
        section.warn("token_file", "`token_file` has no effect without `listen`");
    }
    listen.map(|listen| HttpConfig { listen, token_file })
}

/// The description of the tables of `aside.toml`, in the order of `config/aside.toml`.
pub fn tables() -> Vec<FileTable> {
    let mut tables = vec![
        FileTable::new("journal", JournalConfig::table()),
        FileTable::new("http", Http::table()),
        FileTable::new("injection", InjectionSettings::table()),
        FileTable::new("budget", budget::Written::table()),
        FileTable::new("sessions", SessionSettings::table()),
        FileTable::new("sources", Rates::table()),
    ];
    tables.extend(of_sources(probe::Settings::ROWS));
    tables.extend(of_sources(detector::Settings::ROWS));
    tables.extend(of_sources(outside::Settings::ROWS));
    tables.push(FileTable::new("sinks", sink::Common::table()));
    let of_sinks = sink::Settings::TABLES.iter();
    tables.extend(of_sinks.map(|(name, table)| FileTable::new(format!("sinks.{name}"), table())));
    tables.push(FileTable::new("activation", WakeSettings::table()));
    tables.push(FileTable::new("delivery", Delivery::table()));
    let senders = webhooks::tables();
    tables.extend(senders.map(|(name, table)| FileTable::new(format!("webhooks.{name}"), table)));
    tables
}

fn of_sources<S>(rows: &[Row<S>]) -> impl Iterator<Item = FileTable> {
    rows.iter().map(|row| FileTable {
        is_list: row.is_list,
        ..FileTable::new(format!("sources.{}", row.name), (row.table)())
    })
}

/// Warns of limits that are too small for a notification of the default size and the frame of some
/// format.
fn check_frames(section: &mut Section<'_>, limits: &InjectionSettings) {
    let frames = limits::frames();
    let wanted = subscriber::MAX_TOKENS;
    if let Some(frame) = frames.iter().max_by_key(|frame| frame.tokens)
        && limits.max_tokens.0 < frame.tokens.0 + wanted.0
    {
        let room = limits.max_tokens.0.saturating_sub(frame.tokens.0);
        section.object("max_tokens", |value| too_small(value, frame.format, frame.tokens.0, room, "tokens"));
    }
    if let Some(frame) = frames.iter().max_by_key(|frame| frame.chars)
        && limits.max_chars < frame.chars + wanted.0 * CHARS_PER_TOKEN
    {
        let room = limits.max_chars.saturating_sub(frame.chars);
        section.object("max_chars", |value| too_small(value, frame.format, frame.chars, room, "characters"));
    }
}

fn too_small(value: &Value<'_>, format: Format, frame: u32, room: u32, unit: &str) -> Diagnostic {
    let message = format!(
        "the frame of `{}` needs {frame} {unit}, so {room} remain for a notification; a larger one is cut",
        format.as_str()
    );
    let note = format!(
        "a notification has at most {} tokens unless its subscriber says otherwise",
        subscriber::MAX_TOKENS
    );
    value.error(message).with_note(note).into_warning()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::{LayerKind, SourceFile};
    use engine::notification::Tokens;

    const SHIPPED: &str = include_str!("../../config/aside.toml");

    fn compiled(text: &str) -> Settings {
        let file = SourceFile {
            layer: LayerKind::User,
            name: "aside.toml".into(),
            path: "aside.toml".into(),
            text: text.into(),
        };
        compile(&[Document::parse(&file).unwrap_or_else(|found| panic!("{found:?}"))])
    }

    fn values(settings: &Settings) -> String {
        format!(
            "{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
            settings.daemon,
            settings.injection,
            settings.budget,
            settings.sessions,
            settings.sources,
            settings.detectors,
            settings.probes,
            settings.outside,
            settings.sinks,
            settings.wake
        )
    }

    #[test]
    fn code_defaults_match_the_shipped_settings_file() {
        let shipped = compiled(SHIPPED);
        assert!(shipped.found.is_empty(), "{:?}", shipped.found);
        assert_eq!(values(&shipped), values(&compiled("")));
    }

    /// The keys of a table, of which the tables in it are left out.
    fn names(tables: &[FileTable]) -> Vec<String> {
        let own = |table: &FileTable| -> Vec<String> {
            table.keys.iter().map(|key| format!("{}.{}", table.name, key.name)).collect()
        };
        tables.iter().flat_map(own).collect()
    }

    #[test]
    fn each_key_that_is_read_has_a_row() {
        let tables = tables();
        let unknown = |table: &FileTable| match table.is_list {
            true => format!("[[{}]]\nno_such_key = 1\n", table.name),
            false => format!("[{}]\nno_such_key = 1\n", table.name),
        };
        let of_tables: Vec<&str> = tables.iter().map(|table| &*table.name).collect();
        let mut read = Vec::new();
        for diagnostic in &compiled(&tables.iter().map(unknown).collect::<String>()).found {
            let Some((section, "no_such_key")) = diagnostic.key.rsplit_once('.') else { continue };
            // The name of a table in a list ends with its index.
            let section = section.trim_end_matches("[0]");
            read.extend(diagnostic.allowed.iter().map(|key| format!("{section}.{key}")));
        }
        read.retain(|key| !of_tables.contains(&key.as_str()));
        let mut rows = names(&tables);
        rows.sort_unstable();
        read.sort_unstable();
        assert_eq!(rows, read);
    }

    #[test]
    fn configured_settings_override_the_defaults() {
        let settings = compiled(
            "[journal]\ndurability = \"interval\"\ninterval = \"1s\"\n\
             seal = false\nretain_age = \"90d\"\nretain_bytes = \"off\"\n\
             [http]\nlisten = \"[::1]:80\"\ntoken_file = \"/run/token\"\n\
             [injection]\nformat = \"toon\"\nlease = \"1h30m\"\nmax_tokens = 1_000\ndelivery_notice = false\n",
        );
        assert!(settings.found.is_empty(), "{:?}", settings.found);
        let journal = &settings.daemon.journal;
        assert_eq!((journal.durability, journal.interval), (Durability::Interval, Duration::from_secs(1)));
        let days = |days: u64| Some(Duration::from_secs(days * 24 * 3_600));
        assert_eq!((journal.seal, journal.retain_age, journal.retain_bytes), (false, days(90), None));
        let http = settings.daemon.http.expect("http is on");
        assert_eq!(
            (http.listen.to_string().as_str(), http.token_file),
            ("[::1]:80", Some("/run/token".into()))
        );
        assert_eq!((settings.injection.format, settings.injection.max_tokens), (Format::Toon, Tokens(1_000)));
        assert_eq!(settings.injection.lease, Duration::from_secs(5_400));
        assert!(!settings.injection.delivery_notice);
    }
}

//! `aside.toml`: the settings of the daemon, the injections and the sessions.
//!
//! Every key, its default and its unit are in `config/aside.toml`, which is the lowest layer. The
//! defaults here are the same; a test compares them. A wrong value is reported, and the value of
//! the layer below stays. Folders and the socket's path are not settings: they come from the
//! environment.

use std::{
    collections::BTreeMap, net::SocketAddr, ops::RangeInclusive, path::PathBuf, sync::Arc, time::Duration,
};

use engine::{
    conversation::{InjectionSettings, SessionSettings},
    detector,
    exchange::Format,
    notification::Tokens,
    pipeline::activation::WakeSettings,
    probe, sink,
    throttle::SourceRates,
};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::{
    capability::{outside, webhook::Kind},
    config::{
        activation, frames,
        raw::{Document, Parsed, Section, Value, finish_all},
        report::{Diagnostic, shown},
        sinks, sources, subscriber, values,
        webhooks::{self, Sender},
    },
};

const SECTIONS: [&str; 8] =
    ["journal", "http", "injection", "sessions", "sources", "sinks", "activation", "webhooks"];

/// Default time between syncs with `durability = "interval"`; a power failure may lose the records
/// of this time.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);
/// Shortest and longest time between syncs.
const SYNC_INTERVAL_LIMITS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
/// Default size of a journal segment in bytes.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;
/// Smallest and largest segment: a few events of the largest size; a size that the check at the
/// start still reads quickly.
const SEGMENT_BYTES_LIMITS: RangeInclusive<u64> = 1024 * 1024..=1024 * 1024 * 1024;
/// Default age at which records are deleted: a month of history.
const RETAIN_AGE: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Shortest and longest such age.
const RETAIN_AGE_LIMITS: RangeInclusive<Duration> =
    Duration::from_secs(3_600)..=Duration::from_secs(10 * 365 * 24 * 3_600);
/// Default size beyond which the oldest records are deleted, in bytes: some tens of millions of
/// sealed events.
const RETAIN_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// Smallest and largest such size: a few of the smallest segments; more than the size of a disk.
const RETAIN_BYTES_LIMITS: RangeInclusive<u64> = 16 * 1024 * 1024..=1 << 50;
/// Default size of the history beyond which its oldest entries are deleted, in bytes: some 300,000
/// deliveries.
const HISTORY_BYTES: u64 = 256 * 1024 * 1024;
/// Smallest and largest such size: some thousand deliveries; more than a query reads in a day.
const HISTORY_BYTES_LIMITS: RangeInclusive<u64> = 16 * 1024 * 1024..=1 << 40;
/// Default number of records between two snapshots: at 1 to 2 us each, a start after a kill applies
/// them in some 50 ms.
const SNAPSHOT_RECORDS: u32 = 32_768;
/// Fewest and most records between two snapshots. At the minimum, a snapshot costs about as much as
/// its records; at the maximum, a start takes some seconds.
const SNAPSHOT_RECORDS_LIMITS: RangeInclusive<u32> = 100..=1_000_000;
const INJECTION: InjectionSettings = InjectionSettings::DEFAULT;
/// Fewest and most notifications of an injection.
const MAX_NOTIFICATIONS_LIMITS: RangeInclusive<u32> = 1..=100;
/// Fewest and most tokens of an injection: the wrapper and one short line; a tenth of a large
/// context.
const MAX_TOKENS_LIMITS: RangeInclusive<u32> = 100..=20_000;
/// Fewest and most characters of an injection: four to five for each token.
const MAX_CHARS_LIMITS: RangeInclusive<u32> = 400..=100_000;
/// Shortest and longest lease: a quick hook; a tool that runs for a day.
const LEASE_LIMITS: RangeInclusive<Duration> = Duration::from_secs(1)..=DAY;
const SESSIONS: SessionSettings = SessionSettings::DEFAULT;
/// Shortest and longest queue: one injection; a length that fits in memory for hundreds of
/// sessions.
const QUEUE_LEN_LIMITS: RangeInclusive<u32> = 10..=100_000;
/// Fewest and most notifications in all queues: those of a few sessions; some 5 GB.
const PENDING_LIMITS: RangeInclusive<u32> = 1_000..=10_000_000;
/// Shortest and longest time for which sessions and their pending notifications are kept.
const KEEP_LIMITS: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3_600);
/// Approximate number of characters of a token.
const CHARS_PER_TOKEN: u32 = 4;
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The settings of the daemon; those of the engine are in its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// `[journal]`.
    pub journal: JournalConfig,
    /// `[http]`; `None` if nothing listens on TCP.
    pub http: Option<HttpConfig>,
}

/// The settings of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalConfig {
    /// When a published event is acknowledged.
    pub durability: Durability,
    /// Size of a segment file in bytes.
    pub segment_bytes: u64,
    /// Whether full segments are sealed.
    pub seal: bool,
    /// Maximum age of the newest record of a segment; `None` for no limit.
    pub retain_age: Option<Duration>,
    /// Maximum size of all segments in bytes; `None` for no limit.
    pub retain_bytes: Option<u64>,
    /// Maximum size of the history's file in bytes.
    pub history_bytes: u64,
    /// The number of records between two snapshots.
    pub snapshot_records: u32,
}

/// When a published event is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(
    name(DurabilityKind),
    vis(pub(crate)),
    derive(IntoStaticStr, VariantArray),
    strum(serialize_all = "snake_case")
)]
pub enum Durability {
    /// After it is on the disk.
    Sync,
    /// After it is written. It is synced within this time, so a power failure can lose younger
    /// records.
    Interval(Duration),
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
    pub(crate) sessions: SessionSettings,
    pub(crate) sources: SourceRates,
    pub(crate) detectors: detector::Settings,
    pub(crate) probes: Arc<probe::Settings>,
    pub(crate) outside: Arc<outside::Settings>,
    pub(crate) sinks: Arc<sink::Settings>,
    pub(crate) wake: Arc<WakeSettings>,
    pub(crate) senders: BTreeMap<Kind, Sender>,
    pub(crate) origins: BTreeMap<String, Arc<str>>,
    pub(crate) found: Vec<Diagnostic>,
}

/// Reads the `aside.toml` of every layer; later ones override earlier ones key by key.
pub(crate) fn compile(documents: &[Document<'_>]) -> Settings {
    let [
        mut journal,
        mut http,
        mut injection,
        mut sessions,
        mut sources,
        mut sinks,
        mut activation,
        mut webhooks,
    ] = SECTIONS.map(|name| Section::new(name, documents));
    let mut tables = sources::tables(&mut sources);
    let senders = Kind::VARIANTS.iter().map(|kind| (*kind, webhooks.table(kind.as_str())));
    let (senders, sender_tables) = webhooks::read_senders(senders.collect());
    let mut of_sinks = sinks::TABLES.map(|name| sinks.table(name));
    let mut settings = Settings {
        daemon: DaemonConfig { journal: read_journal(&mut journal), http: read_http(&mut http) },
        injection: read_injection(&mut injection),
        sessions: read_sessions(&mut sessions),
        sources: sources::read(&mut sources),
        detectors: detector::Settings::read(&mut tables),
        probes: Arc::new(probe::Settings::read(&mut tables)),
        outside: Arc::new(outside::Settings::read(&mut tables)),
        sinks: Arc::new(sinks::read(&mut sinks, &mut of_sinks)),
        wake: Arc::new(activation::read(&mut activation)),
        senders,
        origins: BTreeMap::new(),
        found: Vec::new(),
    };
    let mut sections = vec![journal, http, injection, sessions, sources, sinks, activation, webhooks];
    sections.extend(tables.into_values().chain(sender_tables).chain(of_sinks));
    for section in &sections {
        settings.origins.extend(section.origins().clone());
    }
    settings.found = finish_all(documents, &SECTIONS, sections);
    settings
}

fn read_journal(section: &mut Section<'_>) -> JournalConfig {
    let interval = section
        .read("interval", |value| values::duration(value, SYNC_INTERVAL_LIMITS))
        .unwrap_or(SYNC_INTERVAL);
    JournalConfig {
        durability: match section.read("durability", values::word::<DurabilityKind>) {
            Some(DurabilityKind::Interval) => Durability::Interval(interval),
            Some(DurabilityKind::Sync) | None => Durability::Sync,
        },
        segment_bytes: section
            .read("segment_bytes", |value| values::integer(value, SEGMENT_BYTES_LIMITS))
            .unwrap_or(SEGMENT_BYTES),
        seal: section.read("seal", values::flag).unwrap_or(true),
        retain_age: section
            .read("retain_age", |value| {
                values::unless_off(value, |value| values::duration(value, RETAIN_AGE_LIMITS))
            })
            .unwrap_or(Some(RETAIN_AGE)),
        retain_bytes: section
            .read("retain_bytes", |value| {
                values::unless_off(value, |value| values::integer(value, RETAIN_BYTES_LIMITS))
            })
            .unwrap_or(Some(RETAIN_BYTES)),
        history_bytes: section
            .read("history_bytes", |value| values::integer(value, HISTORY_BYTES_LIMITS))
            .unwrap_or(HISTORY_BYTES),
        snapshot_records: section
            .read("snapshot_records", |value| values::integer(value, SNAPSHOT_RECORDS_LIMITS))
            .unwrap_or(SNAPSHOT_RECORDS),
    }
}

fn read_http(section: &mut Section<'_>) -> Option<HttpConfig> {
    let listen = section.read("listen", loopback);
    let token_file = section.read("token_file", values::absolute_path);
    if section.value("listen").is_none() {
        section.object("token_file", |value| {
            value.error("`token_file` has no effect without `listen`").into_warning()
        });
    }
    listen.map(|listen| HttpConfig { listen, token_file })
}

fn loopback(value: &Value<'_>) -> Parsed<SocketAddr> {
    let text = values::text(value)?;
    let Ok(address) = text.parse::<SocketAddr>() else {
        let message = format!("`{}` is not an address with a port", shown(text));
        return Err(vec![value.error(message).with_note("an address is written like \"127.0.0.1:4127\"")]);
    };
    if !address.ip().is_loopback() {
        let message = format!("`{address}` can be reached from other machines");
        return Err(vec![value.error(message).with_note("only 127.0.0.0/8 and [::1] are allowed")]);
    }
    Ok(address)
}

fn read_injection(section: &mut Section<'_>) -> InjectionSettings {
    let max_notifications =
        section.read("max_notifications", |value| values::integer(value, MAX_NOTIFICATIONS_LIMITS));
    let max_tokens = section.read("max_tokens", |value| values::integer(value, MAX_TOKENS_LIMITS));
    let max_chars = section.read("max_chars", |value| values::integer(value, MAX_CHARS_LIMITS));
    let format = section.read("format", values::word::<Format>);
    let lease = section.read("lease", |value| values::duration(value, LEASE_LIMITS));
    let delivery_notice = section.read("delivery_notice", values::flag);
    check_frames(section, max_tokens, max_chars);
    InjectionSettings {
        max_notifications: max_notifications.unwrap_or(INJECTION.max_notifications),
        max_tokens: max_tokens.map_or(INJECTION.max_tokens, Tokens),
        max_chars: max_chars.unwrap_or(INJECTION.max_chars),
        format: format.unwrap_or(INJECTION.format),
        lease: lease.unwrap_or(INJECTION.lease),
        delivery_notice: delivery_notice.unwrap_or(INJECTION.delivery_notice),
    }
}

/// Warns of limits that are too small for a notification of the default size and the frame of some
/// format.
fn check_frames(section: &mut Section<'_>, max_tokens: Option<u32>, max_chars: Option<u32>) {
    let frames = frames::frames();
    let wanted = subscriber::MAX_TOKENS;
    let tightest = frames.iter().max_by_key(|frame| frame.tokens);
    if let (Some(limit), Some(frame)) = (max_tokens, tightest)
        && limit < frame.tokens.0 + wanted
    {
        let room = limit.saturating_sub(frame.tokens.0);
        section.object("max_tokens", |value| too_small(value, frame.format, frame.tokens.0, room, "tokens"));
    }
    let widest = frames.iter().max_by_key(|frame| frame.chars);
    if let (Some(limit), Some(frame)) = (max_chars, widest)
        && limit < frame.chars + wanted * CHARS_PER_TOKEN
    {
        let room = limit.saturating_sub(frame.chars);
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

fn read_sessions(section: &mut Section<'_>) -> SessionSettings {
    let queue_len_max = section.read("queue_len_max", |value| values::integer(value, QUEUE_LEN_LIMITS));
    let keep = |value: &Value<'_>| values::duration(value, KEEP_LIMITS);
    let pending_max = section.read("pending_max", |value| values::integer(value, PENDING_LIMITS));
    SessionSettings {
        queue_len_max: queue_len_max.unwrap_or(SESSIONS.queue_len_max),
        pending_max: pending_max.unwrap_or(SESSIONS.pending_max),
        idle_close: section.read("idle_close", keep).unwrap_or(SESSIONS.idle_close),
        unclaimed_ttl: section.read("unclaimed_ttl", keep).unwrap_or(SESSIONS.unclaimed_ttl),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        layers::{LayerKind, SourceFile},
        producers,
    };
    use engine::words::Words;

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
            "{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
            settings.daemon,
            settings.injection,
            settings.sessions,
            settings.sources,
            settings.detectors,
            settings.probes,
            settings.outside,
            settings.sinks,
            settings.wake
        )
    }

    /// The shipped file, in which the keys without a default are uncommented.
    fn all_keys() -> String {
        SHIPPED.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn code_defaults_match_the_shipped_settings_file() {
        let shipped = compiled(SHIPPED);
        assert!(shipped.found.is_empty(), "{:?}", shipped.found);
        assert_eq!(values(&shipped), values(&compiled("")));
    }

    #[test]
    fn shipped_settings_file_lists_exactly_the_supported_keys() {
        let settings = compiled(&all_keys());
        assert!(settings.found.is_empty(), "{:?}", settings.found);
        let in_file: Vec<_> = settings.origins.keys().cloned().collect();

        let (lists, tables): (Vec<_>, Vec<_>) = producers::switched().partition(|row| row.kind.is_list());
        let tables = tables.into_iter().map(|row| format!("sources.{}", row.name));
        let lists = lists.iter().map(|row| format!("[sources.{}]", row.name));
        let senders = Kind::words().map(|kind| format!("webhooks.{kind}"));
        let of_sinks = sinks::TABLES.map(|name| format!("sinks.{name}"));
        let servers = settings.outside.lsp.servers.keys().map(|name| format!("sources.lsp.servers.{name}"));
        let sections = SECTIONS.map(str::to_owned).into_iter().chain(tables).chain(servers);
        let sections: Vec<String> = sections.chain(senders).chain(of_sinks).chain(lists).collect();
        let names: Vec<&str> = sections.iter().map(|name| name.trim_matches(['[', ']'])).collect();
        let unknown: String = sections.iter().map(|name| format!("[{name}]\nno_such_key = 1\n")).collect();
        let unknown = compiled(&unknown);
        let mut known = Vec::new();
        for diagnostic in &unknown.found {
            let (section, _) = diagnostic.key.rsplit_once('.').expect("a section");
            // The name of a table in a list ends with its index.
            let section = section.trim_end_matches("[0]");
            known.extend(diagnostic.allowed.iter().map(|key| format!("{section}.{key}")));
        }
        // Each table lists its own keys.
        known.retain(|key| !names.contains(&key.as_str()));
        known.sort_unstable();
        assert_eq!(in_file, known);
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
        assert_eq!(settings.daemon.journal.durability, Durability::Interval(Duration::from_secs(1)));
        let journal = &settings.daemon.journal;
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

//! `[sinks]` of `aside.toml`. Each sink with a table declares its keys in a file of its own. A sink
//! that is listed without its required keys could not be used. Secrets are in separate files, because
//! every version of the settings is kept with the journal.

pub mod apprise;
pub mod command;
mod filter;
pub mod log;
pub mod ntfy;
pub mod webhook;

use std::{ops::RangeInclusive, time::Duration};

pub use self::filter::Filter;
use super::Job;
use journal::time::{Timestamp, hours::Hours};

use crate::{
    notification::{Level, Sink},
    settings::{Keys, Table, settings},
};

/// Most retries of a sink.
const RETRIES_MAX: usize = 10;
/// Shortest and longest time between two attempts.
const RETRY_LIMITS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);
/// The default waits of a sink after each failure.
///
/// Source: the schedule that Standard Webhooks recommends, without its last days.
pub const RETRY: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 3_600),
    Duration::from_secs(5 * 3_600),
];

settings! {
    /// Where notices for the user go: those of `aside notify`, and those of subscribers with
    /// `audience = "user"` or `"both"`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Common from impl Keys {
        /// The sinks, in any order; `[]` for none. `harness` is a line that the next hook of the
        /// session shows. `desktop` runs notify-send if there is a session bus. `log` writes lines of
        /// JSON. `ntfy`, `webhook`, `apprise` and `command` have tables below.
        default: Vec<Sink> = vec![Sink::Harness, Sink::Desktop, Sink::Log], each_once();
        /// How long a sink waits after each failure before the next attempt. After the last failure
        /// the notice is given up. `harness` and `desktop` show a notice at once and never retry.
        retry: Vec<Duration> = RETRY.to_vec(), durations(RETRY_LIMITS, RETRIES_MAX);
        /// Hours of each day, by your clock, in which `desktop`, `ntfy`, `webhook`, `apprise` and
        /// `command` get only notices of level `error`. Other notices wait until the hours end.
        quiet: Hours, hours(), like "\"22:00-07:00\"";
    }
}

/// The description of a sink's table: its own keys, and those of its filter.
fn with_filter(table: Table) -> Table {
    let keys = table.keys.into_iter().chain(Filter::table().keys).collect();
    Table { keys, ..table }
}

/// Generates from the table of sinks their settings, their tables, and the reader of both.
macro_rules! sinks {
    ($($plain:ident = $plain_sink:ident;)* $([$module:ident = $sink:ident $(, $check:path)?])*) => {
        /// The settings of the sinks.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Settings {
            /// The keys of `[sinks]` itself.
            pub all: Common,
            /// Which notices each sink takes.
            pub filters: Filters,
            $(#[doc = concat!("`[sinks.", stringify!($module), "]`.")] pub $module: $module::Settings,)*
        }

        /// Which notices each sink takes, by its table.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Filters {
            $(#[doc = concat!("In `[sinks.", stringify!($plain), "]`.")] pub $plain: Filter,)*
            $(#[doc = concat!("In `[sinks.", stringify!($module), "]`.")] pub $module: Filter,)*
        }

        impl Filters {
            /// The filter of a sink.
            pub const fn filter(&self, sink: Sink) -> &Filter {
                match sink {
                    $(Sink::$plain_sink => &self.$plain,)*
                    $(Sink::$sink => &self.$module,)*
                }
            }
        }

        impl Settings {
            /// The description of each table in `[sinks]`, by its name.
            pub const TABLES: &[(&str, fn() -> Table)] = &[
                $((stringify!($plain), Filter::table),)*
                $((stringify!($module), || with_filter($module::Settings::table())),)*
            ];

            /// Reads `[sinks]`, and its tables from `table`, by name.
            pub fn read<K: Keys>(all: &mut K, mut table: impl FnMut(&mut K, &'static str) -> K) -> (Self, Vec<K>) {
                let (mut tables, mut filters) = (Vec::new(), Filters::default());
                $({
                    let mut keys = table(all, stringify!($plain));
                    filters.$plain = Filter::read(&mut keys);
                    tables.push(keys);
                })*
                $(let $module = {
                    let mut keys = table(all, stringify!($module));
                    let settings = $module::Settings::read(&mut keys);
                    $($check(&settings, &mut keys);)?
                    filters.$module = Filter::read(&mut keys);
                    tables.push(keys);
                    settings
                };)*
                (Self { all: Common::read(all), filters, $($module),* }, tables)
            }
        }
    };
}

sinks! {
    // Sinks without keys of their own.
    harness = Harness;
    desktop = Desktop;
    // The word of a sink with keys, and a check of them together.
    [log = Log]
    [ntfy = Ntfy, ntfy::warn_of_open_token]
    [webhook = Webhook]
    [apprise = Apprise]
    [command = Command]
}

impl Settings {
    /// The end of the quiet hours, if a job has to wait for it at `now`.
    pub fn waits_until(
        &self,
        job: &Job,
        now: Timestamp,
        utc_offset: impl Fn(Timestamp) -> i32,
    ) -> Option<Timestamp> {
        let can_wake = job.sink.delivery().wakes && job.notice.level < Level::Error;
        self.all.quiet.as_ref().filter(|_| can_wake)?.end(now, utc_offset)
    }
}

//! `[sources]` of `aside.toml` and its tables, one a source: a probe or a detector. Another source is a row of
//! [`SWITCHED`](crate::config::producers::SWITCHED) and a function here.

use std::{collections::BTreeMap, num::NonZeroU32, ops::RangeInclusive, time::Duration};

use crate::{
    config::{
        producers::SWITCHED,
        raw::{Parsed, Section, Value},
        report::shown,
        values,
    },
    detector::{self, loops},
    engine::rules::SourceSettings,
    pipeline::rule::Rate,
    probe::{
        self, Switch, background, context,
        disk::{self, Below},
        files::{self, guard::Guard},
        pause,
    },
};

/// Default rate of a source that others than the user write to: a checkout of some thousand files passes, an endless loop does not.
const REMOTE_RATE: Rate =
    Rate { count: NonZeroU32::new(6_000).expect("not zero"), per: Duration::from_secs(60) };
/// Fewest and most repetitions of a loop: a call that is made once more may be meant, and a hundred are a loop in any case.
const LOOP_REPEATS_LIMITS: RangeInclusive<u32> = 2..=100;
/// Fewest and most files of a session that are known: a small task, and some 9 ms a look.
const PATHS_LIMITS: RangeInclusive<u32> = 16..=10_000;
/// Most folders that are left out.
const IGNORED_MAX: usize = 64;
/// The units of a size.
const SIZE_UNITS: [(&str, u64); 3] = [("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
/// Largest share of a disk that counts as nearly full, in percent.
const SHARE_MAX: u64 = 50;
/// Smallest and largest share of a context that is said, in percent.
const THRESHOLD_LIMITS: RangeInclusive<u8> = 1..=100;
/// Most shares of a context that are said.
const THRESHOLDS_MAX: usize = 4;
/// Shortest and longest time that a client has for reporting an end.
const GRACE_LIMITS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);
/// Shortest and longest pause that is said.
const GAP_LIMITS: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3_600);

/// The tables in `[sources]`, by their names.
pub(super) fn tables<'s>(sources: &mut Section<'s>) -> BTreeMap<&'static str, Section<'s>> {
    SWITCHED.iter().map(|row| (row.name, sources.table(row.name))).collect()
}

/// The keys of `[sources]` itself.
pub(super) fn read(section: &mut Section<'_>) -> SourceSettings {
    let rate = |value: &Value<'_>| values::unless_off(value, values::rate);
    SourceSettings {
        rate: section.read("rate", rate).unwrap_or(None),
        remote_rate: section.read("remote_rate", rate).unwrap_or(Some(REMOTE_RATE)),
    }
}

/// The tables that are about detectors.
pub(super) fn read_detectors(tables: &mut BTreeMap<&'static str, Section<'_>>) -> detector::Settings {
    detector::Settings { loops: read_loops(table(tables, "loop")) }
}

/// The tables that are about probes.
pub(super) fn read_probes(tables: &mut BTreeMap<&'static str, Section<'_>>) -> probe::Settings {
    probe::Settings {
        files: read_files(table(tables, "files")),
        git: read_switch(table(tables, "git")),
        others: read_switch(table(tables, "sessions")),
        disk: read_disk(table(tables, "disk")),
        pause: read_pause(table(tables, "time")),
        context: read_context(table(tables, "context")),
        background: read_background(table(tables, "background")),
    }
}

fn table<'t, 's>(tables: &'t mut BTreeMap<&'static str, Section<'s>>, name: &str) -> &'t mut Section<'s> {
    tables.get_mut(name).expect("it is the name of a row")
}

fn read_enabled(section: &mut Section<'_>) -> bool {
    section.read("enabled", values::flag).unwrap_or(true)
}

fn read_switch(section: &mut Section<'_>) -> Switch {
    Switch { enabled: read_enabled(section) }
}

fn read_loops(section: &mut Section<'_>) -> loops::Settings {
    let repeats = section.read("repeats", |value| values::integer(value, LOOP_REPEATS_LIMITS));
    loops::Settings { enabled: read_enabled(section), repeats: repeats.unwrap_or(loops::REPEATS) }
}

fn read_files(section: &mut Section<'_>) -> files::Settings {
    let default = files::Settings::default();
    files::Settings {
        enabled: read_enabled(section),
        max_paths: section
            .read("max_paths", |value| values::integer(value, PATHS_LIMITS))
            .unwrap_or(default.max_paths),
        lines: section.read("lines", values::flag).unwrap_or(default.lines),
        guard: section
            .read("guard", |value| values::word(value, &Guard::ALL, Guard::as_str))
            .unwrap_or_default(),
        ignore: section.read("ignore", folder_names).unwrap_or(default.ignore),
    }
}

fn read_pause(section: &mut Section<'_>) -> pause::Settings {
    let gap = section.read("gap", |value| values::duration(value, GAP_LIMITS));
    pause::Settings { enabled: read_enabled(section), gap: gap.unwrap_or(pause::GAP) }
}

fn read_context(section: &mut Section<'_>) -> context::Settings {
    let default = context::Settings::default();
    context::Settings {
        enabled: read_enabled(section),
        warn: section.read("warn", thresholds).unwrap_or(default.warn),
    }
}

/// Shares of a context in percent, such as `[80, 92]`.
fn thresholds(value: &Value<'_>) -> Parsed<Vec<u8>> {
    let shares = values::list(value, |item| values::integer(item, THRESHOLD_LIMITS))?;
    if shares.is_empty() || shares.len() > THRESHOLDS_MAX || !shares.is_sorted_by(|one, other| one < other) {
        let wrong = value.error(format!("is no list of 1 to {THRESHOLDS_MAX} rising shares"));
        return Err(vec![wrong.with_note("they are in percent: [80, 92]")]);
    }
    Ok(shares)
}

fn read_background(section: &mut Section<'_>) -> background::Settings {
    let grace = section.read("grace", |value| values::duration(value, GRACE_LIMITS));
    background::Settings { enabled: read_enabled(section), grace: grace.unwrap_or(background::GRACE) }
}

fn read_disk(section: &mut Section<'_>) -> disk::Settings {
    let default = disk::Settings::default();
    disk::Settings {
        enabled: read_enabled(section),
        below: section.read("below", free_space).unwrap_or(default.below),
    }
}

/// Such as `2GiB` and `5%`.
fn free_space(value: &Value<'_>) -> Parsed<Below> {
    let text = values::words(value)?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let sized = SIZE_UNITS.into_iter().find_map(|(unit, bytes)| {
        text.strip_suffix(unit).and_then(number).map(|count| Below::Bytes(count.saturating_mul(bytes)))
    });
    let share = text.strip_suffix('%').and_then(number).filter(|percent| *percent <= SHARE_MAX);
    sized.or(share.map(Below::Percent)).ok_or_else(|| {
        let wrong = value.error(format!("`{}` is no free space", shown(text)));
        let note =
            format!("it is written like \"2GiB\", \"500MiB\" or \"5%\"; a share is at most {SHARE_MAX}%");
        vec![wrong.with_note(note)]
    })
}

fn folder_names(value: &Value<'_>) -> Parsed<Vec<String>> {
    let names = values::list(value, |item| {
        let name = values::words(item)?;
        if name.contains(['/', '*']) {
            let wrong = item.error(format!("`{}` is no name of a folder", shown(name)));
            return Err(vec![
                wrong.with_note("a folder is left out by its name, wherever it is: \"target\""),
            ]);
        }
        Ok(name.to_owned())
    })?;
    if names.len() > IGNORED_MAX {
        return Err(vec![value.error(format!("has {} names; {IGNORED_MAX} are allowed", names.len()))]);
    }
    Ok(names)
}

//! Nearly full disks under a session.
//!
//! There is one finding when the free space falls below the limit, and one when it falls below half
//! of the limit. When there is space again, a finding withdraws them.

use std::{fmt, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Facts, Finding, Moment, Space, facts::shown_path, kind::Probe};
use crate::{
    event::Severity,
    settings::{Form, settings},
    sorted::SortedMap,
};

/// Default limit of free space, in bytes: the output of a larger build.
const BELOW_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// The units of a limit.
const UNITS: [(&str, u64); 3] = [("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
/// Largest share that can be the limit, in percent.
const SHARE_MAX: u64 = 50;
/// A limit in bytes is at most this part of a file system, so that a small empty one is not
/// reported as nearly full.
const PART_MAX: u64 = 10;
/// Free space from which a disk counts as recovered, in hundredths of the limit. A value near the
/// limit is therefore not reported repeatedly.
const ROOM_HUNDREDTHS: u64 = 125;
/// Most tracked file systems of a session.
const DISKS_MAX: usize = 16;

/// Syntax of a limit.
const FREE_SPACE: Form<Below> = Form {
    noun: "an amount of free space",
    note: "it is written like \"2GiB\", \"500MiB\" or \"5%\"; a share is at most 50%",
    parse: Below::parse,
};

settings! {
    /// Notifies an agent when the disk with its folder or with temporary files is nearly full
    /// (`disk.space.low`).
    enabled: bool = true, flag();
    /// The free space below which a disk is nearly full: a size, which is at most a tenth of the
    /// disk, or a share of the disk, such as `"5%"`.
    below: Below = Below::Bytes(BELOW_BYTES), text(&FREE_SPACE);
}

/// The limit of free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// Fewer free bytes than this, and fewer than a tenth of the file system.
    Bytes(u64),
    /// Less than this share of the file system is free.
    Percent(u64),
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}GiB", bytes >> 30),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Below {
    /// Parses `2GiB` or `5%`.
    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let sized = UNITS.into_iter().find_map(|(unit, bytes)| {
            text.strip_suffix(unit).and_then(number).map(|count| Self::Bytes(count.saturating_mul(bytes)))
        });
        let share = text.strip_suffix('%').and_then(number).filter(|percent| *percent <= SHARE_MAX);
        sized.or(share.map(Self::Percent))
    }
}

/// The nearly full disks of a session, by device number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    low: SortedMap<u64, Level>,
    /// Number of findings so far.
    said: u64,
}

/// The level of a nearly full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// Below the limit.
    Low,
    /// Below half of the limit.
    VeryLow,
}

impl Probe for Known {
    type Settings = Settings;

    fn look(&mut self, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut seen = Vec::new();
        for path in moment.workspace.into_iter().chain([moment.temporary]) {
            let Some(space) = facts.space(Path::new(path)).filter(|space| space.total > 0) else { continue };
            if seen.contains(&space.device) {
                continue;
            }
            seen.push(space.device);
            let (before, now) = (self.low.get(&space.device).copied(), level(&space, settings.below));
            let is_worse = now > before && (before.is_some() || self.low.len() < DISKS_MAX);
            let has_room = before.is_some() && now.is_none() && has_room(&space, settings.below);
            if !is_worse && !has_room {
                continue;
            }
            match now {
                Some(level) if is_worse => self.low.insert(space.device, level),
                _ => self.low.remove(&space.device),
            };
            self.said = self.said.saturating_add(1);
            findings.push(Finding {
                event_type: if is_worse { "disk.space.low" } else { "disk.space.ok" },
                severity: if is_worse { Severity::Warning } else { Severity::Info },
                name: format!("{}:{}", space.device, self.said),
                payload: json!({ "path": shown_path(path), "free": shown(space.free), "total": shown(space.total) }),
            });
        }
        findings
    }
}

fn limit(space: &Space, below: Below) -> u64 {
    match below {
        Below::Bytes(bytes) => bytes.min(space.total / PART_MAX),
        Below::Percent(percent) => (space.total / 100).saturating_mul(percent),
    }
}

fn level(space: &Space, below: Below) -> Option<Level> {
    let limit = limit(space, below);
    if space.free < limit / 2 {
        Some(Level::VeryLow)
    } else if space.free < limit {
        Some(Level::Low)
    } else {
        None
    }
}

fn has_room(space: &Space, below: Below) -> bool {
    space.free >= (limit(space, below) / 100).saturating_mul(ROOM_HUNDREDTHS)
}

/// A size such as `1.4 GB`, in the decimal units of disk vendors.
fn shown(bytes: u64) -> String {
    let units = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let unit = units.into_iter().find(|(size, _)| bytes >= *size);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(size, unit)| match (bytes / size, bytes % size * 10 / size) {
            (whole, _) if whole >= 10 => format!("{whole} {unit}"),
            (whole, tenth) => format!("{whole}.{tenth} {unit}"),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::{super::world::World, *};

    const GIB: u64 = 1 << 30;

    #[test]
    fn each_disk_level_is_reported_once_until_recovery() {
        let mut world = World::new();
        let found: Vec<Vec<String>> = [100, 3, 1, 1, 2, 0, 2, 100, 1]
            .into_iter()
            .map(|free| {
                world.disk = Some((free * GIB + 1, 460 * GIB));
                world.prompt("s")
            })
            .collect();
        let low = |free: &str| vec![format!("low path=/w free={free} total=493 GB")];
        let none = Vec::new;
        let ok = vec!["ok path=/w free=107 GB total=493 GB".to_owned()];
        assert_eq!(
            found,
            [none(), none(), low("1.0 GB"), none(), none(), low("1 B"), none(), ok, low("1.0 GB")]
        );
    }

    #[test]
    fn small_disks_use_a_limit_by_their_size() {
        let (small, below) = (|free| Space { free, total: 64 << 20, device: 1 }, Below::Bytes(BELOW_BYTES));
        assert_eq!(level(&small(60 << 20), below), None);
        assert_eq!(level(&small(6 << 20), below), Some(Level::Low));
        assert_eq!(level(&small(1 << 20), below), Some(Level::VeryLow));
        assert_eq!(level(&small(4 << 20), Below::Percent(5)), None);
        assert_eq!(level(&small(3 << 20), Below::Percent(5)), Some(Level::Low));
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1_450, "1.4 kB"),
            (12_000_000, "12 MB"),
            (460_000_000_000, "460 GB"),
            (1 << 43, "8.7 TB"),
        ] {
            assert_eq!(shown(bytes), expected);
        }
    }
}

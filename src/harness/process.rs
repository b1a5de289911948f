//! Parses the system's status of a process: `/proc/PID/stat` of Linux.

use std::num::NonZeroI32;

/// A process of this machine, distinct from a later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its start, in clock ticks since boot.
    pub started: u64,
}

/// The used fields of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStat {
    /// The name of its program, truncated by the system.
    pub name: String,
    /// The id of its parent.
    pub parent: u32,
    /// The device of its controlling terminal; `None` if it has none.
    pub terminal: Option<NonZeroI32>,
    /// Its start, in clock ticks since boot.
    pub started: u64,
    /// Whether it is a zombie.
    pub has_ended: bool,
}

impl ProcessStat {
    /// Parses the single line of the file.
    ///
    /// Shape: `PID (NAME) STATE PARENT ..`, where the name may contain anything; the start is field
    /// 22.
    pub fn parse(text: &str) -> Option<Self> {
        let (front, back) = text.rsplit_once(") ")?;
        let (_, name) = front.split_once('(')?;
        let mut fields = back.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        // Skips fields 5 and 6.
        let terminal = NonZeroI32::new(fields.nth(2)?.parse().ok()?);
        // Skips fields 8 to 21.
        let started = fields.nth(14)?.trim_end().parse().ok()?;
        Some(Self { name: name.to_owned(), parent, terminal, started, has_ended: matches!(state, "Z" | "X") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let rest = "41 41 34816 -1 4194304 90 0 0 0 0 0 0 0 20 0 1 0 263480 2617344 200";
        for (text, name, parent, has_ended) in [
            (format!("41 (sh) S 7 {rest}"), "sh", 7, false),
            (format!("41 (a) R (b) x) Z 9 {rest}\n"), "a) R (b) x", 9, true),
        ] {
            let terminal = NonZeroI32::new(34_816);
            let expected =
                ProcessStat { name: name.to_owned(), parent, terminal, started: 263_480, has_ended };
            assert_eq!(ProcessStat::parse(&text), Some(expected), "{text}");
        }
        for cut in ["41 (sh", "41 (sh) S 7 41 41", "", "41 sh S 7"] {
            assert_eq!(ProcessStat::parse(cut), None, "{cut}");
        }
    }
}

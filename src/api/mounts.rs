//! Finds file systems that never block for long: those that this kernel serves itself. A look at
//! their files needs no separate thread.
//!
//! A network or FUSE mount can block its caller forever. The mount table is read again when the
//! kernel reports a change; that check is one system call per look.

use std::{
    fs::File,
    io::{self, Read},
    sync::{Mutex, PoisonError},
};

use engine::sorted::SortedSet;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::makedev,
};

/// The mount table.
///
/// Source: proc_pid_mountinfo(5); a poll of it returns `POLLPRI` after a change
/// (proc_pid_mounts(5)).
const TABLE: &str = "/proc/self/mountinfo";
/// Local file systems for users' files, on a disk of this machine or in memory.
const LOCAL: [&str; 18] = [
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "msdos", "ntfs3",
    "overlay", "ramfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
];
/// System folders with many mounts that are not disks. No link of a project leads to them.
const OF_THE_SYSTEM: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// The mount table as last read.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Mutex<Option<Watched>>);

#[derive(Debug)]
struct Watched {
    table: File,
    found: MountTable,
}

/// The contents of a table.
#[derive(Debug, Default, PartialEq, Eq)]
struct MountTable {
    /// Mount points that may block, outside of the system folders.
    foreign: Vec<Vec<u8>>,
    /// The devices of local file systems.
    local_devices: SortedSet<u64>,
}

impl Mounts {
    /// Whether no path in `paths`, and no file last seen on one of `devices`, can block its caller.
    ///
    /// Shape: false if unknown, for example for `btrfs` together with a network mount, because the
    /// devices of `btrfs` are in no table. A link in a path without a known device may lead
    /// elsewhere.
    pub(crate) fn answer_at_once<'p>(
        &self,
        paths: impl Iterator<Item = &'p str>,
        devices: impl Iterator<Item = u64>,
    ) -> bool {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.as_ref().is_some_and(Watched::has_changed) {
            *watched = None;
        }
        if watched.is_none() {
            *watched = Watched::read().ok();
        }
        watched.as_ref().is_some_and(|watched| watched.found.answers_at_once(paths, devices))
    }
}

impl Watched {
    fn read() -> io::Result<Self> {
        let mut table = File::open(TABLE)?;
        let mut bytes = Vec::new();
        table.read_to_end(&mut bytes)?;
        Ok(Self { table, found: MountTable::read(&bytes) })
    }

    /// Whether the table has changed since it was opened.
    fn has_changed(&self) -> bool {
        let mut polled = [PollFd::new(&self.table, PollFlags::PRI)];
        !matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }
}

impl MountTable {
    fn read(table: &[u8]) -> Self {
        let mut found = Self::default();
        for line in table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match Mount::read(line) {
                Some(mount) if mount.is_local => drop(found.local_devices.insert(mount.device)),
                Some(mount) if is_of_the_system(&mount.at) => {}
                Some(mount) => found.foreign.push(mount.at),
                // An unreadable line may be any mount anywhere.
                None => found.foreign.push(Vec::new()),
            }
        }
        found
    }

    fn answers_at_once<'p>(
        &self,
        mut paths: impl Iterator<Item = &'p str>,
        mut devices: impl Iterator<Item = u64>,
    ) -> bool {
        let is_foreign = |path: &[u8]| self.foreign.iter().any(|at| is_in(path, at));
        !paths.any(|path| is_of_the_system(path.as_bytes()) || is_foreign(path.as_bytes()))
            && (self.foreign.is_empty() || devices.all(|device| self.local_devices.contains(&device)))
    }
}

fn is_of_the_system(path: &[u8]) -> bool {
    OF_THE_SYSTEM.iter().any(|folder| is_in(path, folder.as_bytes()))
}

/// Whether `path` is `folder` or in it; the root is the empty path here.
fn is_in(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first().is_none_or(|first| *first == b'/'))
}

/// A line of the table.
struct Mount {
    device: u64,
    at: Vec<u8>,
    is_local: bool,
}

impl Mount {
    fn read(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = std::str::from_utf8(fields.nth(2)?).ok()?;
        let (major, minor) = device.split_once(':')?;
        let device = makedev(major.parse().ok()?, minor.parse().ok()?);
        let mut at = unescape(fields.nth(1)?);
        if at == b"/" {
            at.clear();
        }
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        let is_local = LOCAL.iter().any(|local| local.as_bytes() == kind);
        Some(Self { device, at, is_local })
    }
}

/// Decodes a path of the table, which escapes space, tab, newline and backslash as three octal
/// digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.split_at_checked(3).filter(|_| *first == b'\\');
        let escaped = digits.and_then(|(digits, behind)| {
            Some((u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?, behind))
        });
        let (byte, behind) = escaped.unwrap_or((*first, behind));
        bytes.push(byte);
        rest = behind;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "\
21 28 0:20 / /proc rw,nosuid - proc proc rw
28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
29 28 0:24 / /tmp rw - tmpfs tmpfs rw
40 28 0:45 / /run/user/1000/doc rw - fuse.portal portal rw
";

    #[test]
    fn only_paths_on_local_disks_answer_at_once() {
        let (disk, subvolume) = (makedev(254, 0), makedev(0, 99));
        let remote = format!("{HERE}50 28 0:51 / /srv/a\\040b rw - nfs4 host:/x rw\n");
        for (table, path, device, expected) in [
            (HERE, "/work/a.rs", disk, true),
            (HERE, "/work/a.rs", subvolume, true),
            (HERE, "/run/user/1000/doc/a", disk, false),
            (HERE, "/runs/a", disk, true),
            (&*remote, "/work/a.rs", disk, true),
            (&*remote, "/work/linked.rs", subvolume, false),
            (&*remote, "/srv/a b/c", disk, false),
            (&*remote, "/srv/a", disk, true),
            ("28 1 0:30 / / rw - nfs4 host:/ rw\n", "/work/a.rs", disk, false),
            ("no line of a table\n", "/work/a.rs", disk, false),
        ] {
            let answers =
                MountTable::read(table.as_bytes()).answers_at_once([path].into_iter(), [device].into_iter());
            assert_eq!(answers, expected, "{path} {device}\n{table}");
        }
    }

    #[test]
    fn host_mount_table_is_readable_and_unchanged() {
        let watched = Watched::read().expect("readable");
        assert!(!watched.found.local_devices.is_empty() || !watched.found.foreign.is_empty());
        assert!(!watched.has_changed());
    }

    #[test]
    fn a_path_is_read_as_it_was_escaped() {
        assert_eq!(unescape(b"/a\\040b\\134c\\011"), b"/a b\\c\t");
        assert_eq!(unescape(b"/a\\04"), b"/a\\04");
    }
}

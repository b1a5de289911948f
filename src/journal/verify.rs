//! Looks at every segment and changes nothing: what `aside journal verify` reports.

use crate::{
    event::Seq,
    journal::{
        files::Files,
        recover::{Cut, OpenError, Scanner},
    },
};

/// What a journal's files hold.
#[derive(Debug, Default)]
pub struct Verified {
    /// How many segments there are.
    pub segments: usize,
    /// How many good records they have.
    pub records: u64,
    /// The first record; `None` when there is no segment.
    pub first: Option<Seq>,
    /// What stops the journal from being opened, in the order of the segments: the first thing in each.
    pub problems: Vec<OpenError>,
    /// What would be cut from the last segment.
    pub torn: Option<Cut>,
}

/// Reads all records of a journal that nobody writes to.
///
/// Errors: the folder cannot be listed; what cannot be read in it is a problem in the result.
pub fn verify(files: &dyn Files) -> Result<Verified, OpenError> {
    let mut scanner = Scanner::new(files, &|_| None, Seq::ZERO);
    let (firsts, _) = scanner.list()?;
    let mut verified =
        Verified { segments: firsts.len(), first: firsts.first().copied(), ..Verified::default() };
    let Some((last, full)) = firsts.split_last() else { return Ok(verified) };
    for (first, following) in full.iter().zip(firsts.iter().skip(1)) {
        let scanned = scanner.scan_full(*first, *following);
        verified.add(*first, scanned.map(|(_, scan)| scan.expected));
    }
    let scanned = scanner.scan_last(*last).and_then(|(tail, scan)| {
        verified.torn = scanner.torn_end(&tail)?;
        Ok(scan.expected)
    });
    verified.add(*last, scanned);
    Ok(verified)
}

impl Verified {
    fn add(&mut self, first: Seq, scanned: Result<Seq, OpenError>) {
        match scanned {
            Ok(expected) => self.records += expected.0 - first.0,
            Err(problem) => self.problems.push(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::journal::{Level, memory::MemoryFiles};

    #[test]
    fn a_good_journal_is_counted() {
        let files = filled();
        let verified = verify(&files).expect("readable");
        assert_eq!((verified.records, verified.first), (40, Some(Seq(1))));
        assert!(
            verified.segments > 3 && verified.problems.is_empty() && verified.torn.is_none(),
            "{verified:?}"
        );
    }

    #[test]
    fn every_damaged_segment_is_named_and_nothing_is_changed() {
        let files = filled();
        let names = files.list().expect("listed");
        files.open(&names[0]).expect("there").write_at(b"!", 50).expect("written");
        files.open(&names[2]).expect("there").write_at(b"X", 0).expect("written");
        let last = files.open(&names[names.len() - 2]).expect("there");
        last.write_at(b"!", SEGMENT_BYTES - 1).expect("written");
        let writes = files.operations().writes;
        let verified = verify(&files).expect("readable");
        let problems: Vec<String> = verified.problems.iter().map(ToString::to_string).collect();
        let names_them = problems[0].contains(&names[0]) && problems[1].contains(&names[2]);
        assert!(problems.len() == 2 && names_them, "{problems:?}");
        assert_eq!(verified.torn.map(|cut| cut.offset + cut.bytes), Some(SEGMENT_BYTES));
        assert_eq!(files.operations().writes, writes);
    }

    #[test]
    fn an_empty_folder_has_nothing_wrong() {
        let verified = verify(&MemoryFiles::new()).expect("readable");
        assert_eq!((verified.segments, verified.first), (0, None));
    }

    fn filled() -> MemoryFiles {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        journal.append_blocking(batch_of(1..=40), Level::Synced).expect("appended");
        journal.close_blocking().expect("closed");
        files
    }
}

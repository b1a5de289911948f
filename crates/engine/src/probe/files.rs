//! Files that a session read or wrote and another process changed later.
//!
//! An agent knows the content of a file that it read or wrote, or of which it was notified. A
//! different content is a finding, once, until the file changes again or the agent reads it again.
//! Three kinds of changes are noted without a finding: the agent's own, those that its client
//! announces, and those that the git probe explains. Changes that cancel out between two exchanges
//! are not findings.

pub(super) mod calls;
pub(super) mod folder;
mod known;

#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use self::known::{Author, Awaited, Change, ClientReport, Guard, Observed, RACY_MS, State, changed_lines};
pub use self::known::{File, Known, Noted};
use super::{
    Facts, Finding, Fingerprint, Moment,
    facts::{Entry, TRANSCRIPT_BYTES_MAX, shown_path},
};
use journal::time::Timestamp;

use crate::{
    event::Severity,
    hash::first_64_bits,
    settings::{Form, settings},
    sorted::{SortedMap, SortedSet},
    transcript::{Transcript, WRITTEN_AFTER},
};

/// Most findings of one look; further files are checked at the next exchange.
const FINDINGS_MAX: usize = 100;
/// Longest accepted path, in bytes: the system's limit.
const PATH_BYTES_MAX: usize = 4_096;
/// Folders in which the system shows its own state as files.
const NO_FILES: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Syntax of an ignored folder.
const FOLDER: Form<String> = Form {
    noun: "the name of a folder",
    note: "a folder is excluded by its name, at any depth: \"target\"",
    parse: |name| (!name.contains(['/', '*'])).then(|| name.to_owned()),
};

// A small task has a few files; a look at the maximum takes some 9 ms.
settings! {
    /// Notifies an agent when somebody else changes a file that the agent read or wrote
    /// (`fs.known.*`). Files are compared when the agent can be notified; nothing is watched.
    enabled: bool = true, flag();
    /// Most files that are known for one session. Beyond it, the file that was used longest ago is
    /// forgotten.
    max_paths: u32 = 1_024, number(16..=10_000);
    /// Names the lines that changed. For this, the texts of small files are kept in memory, at most
    /// 32 MiB.
    lines: bool = true, flag();
    /// `"overwrite"` refuses a call once if it would overwrite a change that the agent does not know
    /// (`fs.write.held`).
    guard: Guard = Guard::Off, word();
    /// Folders whose files are ignored, by name.
    ignore: Vec<String> = [".git", "node_modules", "target"].map(str::to_owned).to_vec(), texts(&FOLDER, 64);
}

/// The result of a look at the files.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) noted: Noted,
    pub(super) findings: Vec<Finding>,
}

/// The inputs of a look besides the moment.
#[derive(Debug)]
pub(super) struct Given<'a> {
    pub(super) settings: &'a Settings,
    /// Time of the last report on the session.
    pub(super) heard_at: Timestamp,
    /// Start of the calls that have just ended; a later change may be by one of them.
    pub(super) calls_since: Timestamp,
    /// Files whose change is explained by the git probe or a watch; they get no finding.
    pub(super) explained: &'a SortedSet<Arc<str>>,
}

/// Checks every file that the session knows, and those that its calls touched.
pub(super) fn look(known: &Known, moment: &Moment<'_>, given: &Given<'_>, facts: &dyn Facts) -> Looked {
    if !given.settings.enabled {
        return Looked::default();
    }
    let mut look = Look::new(known, moment, given, facts);
    look.touched();
    for (path, file) in &known.files {
        if look.looked.findings.len() >= FINDINGS_MAX {
            break;
        }
        if !look.looked.noted.0.contains_key(path) {
            look.compare(path, file);
        }
    }
    look.forget_oldest();
    look.looked
}

struct Look<'a> {
    known: &'a Known,
    moment: &'a Moment<'a>,
    given: &'a Given<'a>,
    facts: &'a dyn Facts,
    /// The number of the next note.
    next: u64,
    looked: Looked,
    /// The client's announcements, with the offset from which they were read.
    said: Option<(u64, Vec<String>)>,
}

impl<'a> Look<'a> {
    fn new(known: &'a Known, moment: &'a Moment<'a>, given: &'a Given<'a>, facts: &'a dyn Facts) -> Self {
        Self { known, moment, given, facts, next: known.noted, looked: Looked::default(), said: None }
    }

    /// Notes the touched files with the state that the agent now knows.
    fn touched(&mut self) {
        let mut written = SortedMap::new();
        for touch in self.moment.calls.iter().flat_map(|call| &call.touched) {
            if !self.is_wanted(&touch.path) {
                continue;
            }
            let observed = match self.facts.entry(Path::new(&*touch.path)) {
                Entry::File(print) => self.present(&touch.path, print),
                Entry::Absent if self.known.files.contains_key(&touch.path) => Observed::Absent,
                Entry::Absent | Entry::Folder | Entry::Other | Entry::Unknown => continue,
            };
            let is_own = observed == Observed::Absent;
            let file = File {
                by: touch.by,
                state: self.state(observed),
                read: observed.hash(),
                is_own,
                is_announced: false,
                is_held: false,
                said: ClientReport::Open,
                noted: 0,
            };
            self.note(&touch.path, file);
            if touch.written.is_some() {
                written.insert(&touch.path, observed);
            }
        }
        written.into_iter().for_each(|(path, observed)| self.compare_with_calls(path, observed));
    }

    fn is_wanted(&self, path: &str) -> bool {
        let is_left_out = |part: &str| self.given.settings.ignore.iter().any(|name| name == part);
        let is_of_system =
            NO_FILES.iter().any(|folder| Path::new(path).starts_with(folder)) || path.len() > PATH_BYTES_MAX;
        let mut folders = path.split('/').rev().skip(1);
        path.starts_with('/') && !is_of_system && !folders.any(is_left_out)
    }

    fn compare(&mut self, path: &Arc<str>, file: &File) {
        let observed = match self.facts.entry(Path::new(&**path)) {
            Entry::File(print) if file.is_print(&print) => return,
            Entry::File(print) => self.present(path, print),
            Entry::Absent => Observed::Absent,
            Entry::Folder | Entry::Other | Entry::Unknown => return,
        };
        self.compare_with(path, file, observed);
    }

    /// Reports the change of a file to what was observed.
    fn compare_with(&mut self, path: &Arc<str>, file: &File, observed: Observed) {
        let Some(change) = self.change(path, file, observed) else { return };
        if self.given.explained.contains(path) {
            self.note_change(path, file, &change, observed, |file| {
                (file.is_own, file.is_announced, file.is_held) = (false, true, false)
            });
            return;
        }
        match self.author(path, observed) {
            Author::Own => {
                self.note_change(path, file, &change, observed, |file| {
                    (file.is_own, file.is_announced, file.is_held) = (true, false, false)
                });
            }
            author @ Author::Other(_) => self.announce(path, file, &change, observed, &author),
            author @ Author::Unknown { .. } => {
                if let Some(said) = self.by_client(path, file, observed) {
                    self.leave_to_client(path, file, observed, said);
                } else {
                    self.announce(path, file, &change, observed, &author);
                }
            }
        }
    }

    fn present(&self, path: &str, print: Fingerprint) -> Observed {
        Observed::Present { print, hash: self.facts.hash(Path::new(path), &print) }
    }

    fn change(&self, path: &Arc<str>, file: &File, observed: Observed) -> Option<Change> {
        match (&file.state, observed) {
            (State::Absent, Observed::Absent) => None,
            (State::Present { print, .. }, Observed::Absent) => Some(self.renamed(path, print)),
            (State::Present { hash: Some(old), .. }, Observed::Present { hash: Some(new), .. })
                if *old == new =>
            {
                None
            }
            (State::Present { print: old, .. }, Observed::Present { print: new, hash: None })
                if old.has_size_and_time_of(&new) =>
            {
                None
            }
            (_, Observed::Present { hash, .. }) => {
                let is_restored = file.is_announced && hash.is_some() && hash == file.read;
                Some(if is_restored { Change::Restored } else { Change::Modified })
            }
        }
    }

    fn renamed(&self, path: &str, print: &Fingerprint) -> Change {
        let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
        let Some(name) = self.facts.name_of(folder, print.device, print.inode) else {
            return Change::Deleted;
        };
        match folder.join(name).to_str().map(Arc::<str>::from) {
            Some(to) if !self.known.files.contains_key(&to) => Change::Renamed(to),
            Some(_) | None => Change::Deleted,
        }
    }

    /// The announcement state of a change that the client may announce itself; `None` if aside has
    /// to report it.
    fn by_client(&mut self, path: &Arc<str>, file: &File, observed: Observed) -> Option<ClientReport> {
        let Transcript { path: transcript, reader } = self.moment.transcript?;
        let transcript = Path::new(transcript);
        match &file.said {
            _ if !reader.announces.contains(&file.by) => None,
            ClientReport::Done => None,
            ClientReport::Open => match self.facts.entry(transcript) {
                Entry::File(print) => {
                    let (state, since) = (self.state(observed), self.moment.now);
                    Some(ClientReport::Awaited(Awaited { state, from: print.size, since, is_late: false }))
                }
                Entry::Absent | Entry::Folder | Entry::Other | Entry::Unknown => None,
            },
            ClientReport::Awaited(awaited) => {
                let from = awaited.from;
                if self.said.as_ref().is_none_or(|(asked, _)| *asked != from) {
                    let text = self.facts.read(transcript, from, TRANSCRIPT_BYTES_MAX).unwrap_or_default();
                    self.said = Some((from, (reader.changed)(&text)));
                }
                let has_said =
                    self.said.as_ref().is_some_and(|(_, said)| said.iter().any(|said| **said == **path));
                if has_said {
                    return Some(ClientReport::Done);
                }
                (!self.is_over(path, file, awaited, observed))
                    .then(|| ClientReport::Awaited(Awaited { is_late: true, ..awaited.clone() }))
            }
        }
    }

    /// Whether the client had its looks and its time limit for an announcement. If the file changed
    /// again after the awaited change, the time limit does not apply: the client announces with the
    /// request after the first look.
    fn is_over(&self, path: &Arc<str>, file: &File, awaited: &Awaited, observed: Observed) -> bool {
        let changed_since = || {
            let announced = File { state: awaited.state.clone(), ..file.clone() };
            self.change(path, &announced, observed).is_some()
        };
        awaited.is_late && (self.moment.now.since(awaited.since) >= WRITTEN_AFTER || changed_since())
    }

    /// Leaves the announcement of a change to the client. The agent's known state stays until the
    /// client has announced the change, and is then the announced state. aside reports later
    /// changes.
    fn leave_to_client(&mut self, path: &Arc<str>, file: &File, observed: Observed, said: ClientReport) {
        let file = match (&file.said, said) {
            (ClientReport::Awaited(awaited), ClientReport::Done) => {
                File { state: awaited.state.clone(), said: ClientReport::Done, ..file.clone() }
            }
            (known, said) if *known == said => return,
            (_, said) => return self.note(path, File { said, ..file.clone() }),
        };
        self.note(path, file.clone());
        if let Some(change) = self.change(path, &file, observed) {
            self.announce(path, &file, &change, observed, &Author::Unknown { during_a_command: false });
        }
    }

    fn note_change(
        &mut self,
        path: &Arc<str>,
        file: &File,
        change: &Change,
        observed: Observed,
        set: impl FnOnce(&mut File),
    ) {
        let mut file = file.clone();
        set(&mut file);
        match change {
            Change::Renamed(to) => {
                self.looked.noted.0.insert(path.clone(), None);
                self.note(to, file);
            }
            Change::Modified | Change::Deleted | Change::Restored => {
                file.state = self.state(observed);
                if file.is_own {
                    file.read = observed.hash();
                }
                self.note(path, file);
            }
        }
    }

    fn announce(
        &mut self,
        path: &Arc<str>,
        file: &File,
        change: &Change,
        observed: Observed,
        author: &Author,
    ) {
        let shown = |path: &str| self.shown(path);
        let (event_type, kind) = change.words();
        let mut payload = Map::new();
        let mut say = |key: &str, value: Value| payload.insert(key.to_owned(), value);
        if let Change::Renamed(to) = change {
            say("path", shown(to).into());
            say("from", shown(path).into());
        } else {
            say("path", shown(path).into());
        }
        say("kind", kind.into());
        if let Some(lines) = self.lines(file, change, observed) {
            // A single line is a number, which no text puts in quotes.
            say("lines", lines.parse::<u64>().map_or_else(|_| lines.into(), Value::from));
        }
        match author {
            Author::Other(by) => drop(say("by", by.as_str().into())),
            Author::Unknown { during_a_command: true } => drop(say("when", "while your command ran".into())),
            Author::Own | Author::Unknown { during_a_command: false } => {}
        }
        let name = format!("{:016x}", name_of(path, file.noted, observed));
        let finding = Finding { event_type, severity: Severity::Info, name, payload: Value::Object(payload) };
        self.looked.findings.push(finding);
        self.note_change(path, file, change, observed, |file| {
            (file.is_own, file.is_announced, file.is_held, file.said) =
                (false, true, false, ClientReport::Done);
        });
    }

    fn lines(&self, file: &File, change: &Change, observed: Observed) -> Option<String> {
        let State::Present { hash: Some(old), .. } = file.state else { return None };
        let new = observed.hash().filter(|_| self.given.settings.lines && *change == Change::Modified)?;
        changed_lines(&self.facts.kept(old)?, &self.facts.kept(new)?)
    }

    /// A path for display: relative to the workspace if it is in it.
    fn shown(&self, path: &str) -> String {
        let inside = |folder| Path::new(path).strip_prefix(folder).ok().and_then(Path::to_str);
        let path = self.moment.workspace.and_then(inside).unwrap_or(path);
        shown_path(path)
    }

    fn state(&self, observed: Observed) -> State {
        match observed {
            Observed::Absent => State::Absent,
            Observed::Present { print, hash } => {
                let changed_ms =
                    u64::try_from(print.modified_ns.max(print.changed_ns) / 1_000_000).unwrap_or(0);
                let is_racy = changed_ms.saturating_add(RACY_MS) >= self.moment.now.as_millis();
                State::Present { print, hash, is_racy }
            }
        }
    }

    fn note(&mut self, path: &Arc<str>, file: File) {
        self.looked.noted.0.insert(path.clone(), Some(File { noted: self.next, ..file }));
        self.next = self.next.saturating_add(1);
    }

    /// Evicts the least recently touched files beyond the limit.
    fn forget_oldest(&mut self) {
        let noted = &self.looked.noted.0;
        let added =
            noted.iter().filter(|(path, file)| file.is_some() && !self.known.files.contains_key(path));
        let removed =
            noted.iter().filter(|(path, file)| file.is_none() && self.known.files.contains_key(path));
        let count = (self.known.files.len() + added.count()).saturating_sub(removed.count());
        let too_many =
            count.saturating_sub(usize::try_from(self.given.settings.max_paths).unwrap_or(usize::MAX));
        if too_many == 0 {
            return;
        }
        let kept = self.known.files.iter().filter(|(path, _)| !noted.contains_key(path));
        let all = kept.map(|(path, file)| (file.noted, path.clone()));
        let new = noted.iter().filter_map(|(path, file)| Some((file.as_ref()?.noted, path.clone())));
        let mut all: Vec<(u64, Arc<str>)> = all.chain(new).collect();
        all.sort_unstable();
        for (_, path) in all.into_iter().take(too_many) {
            if self.known.files.contains_key(&path) {
                self.looked.noted.0.insert(path, None);
            } else {
                self.looked.noted.0.remove(&path);
            }
        }
    }
}

/// Hash of the change from a numbered note to the observed state; a repeated finding has the same
/// hash.
fn name_of(path: &str, noted: u64, observed: Observed) -> u64 {
    let mut hash = Sha256::new_with_prefix(path);
    hash.update([0]);
    hash.update(noted.to_le_bytes());
    match observed {
        Observed::Absent => hash.update([0]),
        Observed::Present { hash: Some(content), .. } => hash.update(content.0.to_le_bytes()),
        Observed::Present { print, hash: None } => hash.update(print.to_string()),
    }
    first_64_bits(hash)
}

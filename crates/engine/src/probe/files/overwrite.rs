//! Defers a call once if it would overwrite a file that another process changed after the agent
//! read it. The user has to enable this.
//!
//! The agent may read the file again, or repeat the call, which then overwrites the change.

use std::path::Path;

use super::{
    Entry, Given, Known, Look, Looked, Moment,
    change::{Author, Change},
    guard::Guard,
};
use crate::{call::TouchKind, event::Severity, probe::Facts};

/// Checks the files that the calls are about to write.
pub(in crate::probe) fn look(
    known: &Known,
    moment: &Moment<'_>,
    given: &Given<'_>,
    facts: &dyn Facts,
) -> Looked {
    if !given.settings.enabled || given.settings.guard == Guard::Off {
        return Looked::default();
    }
    let mut look = Look::new(known, moment, given, facts);
    let touched = moment.calls.iter().flat_map(|call| &call.touched);
    for touch in touched.filter(|touch| touch.by == TouchKind::Written) {
        let Some(file) = known.files.get(&touch.path) else { continue };
        let observed = match facts.entry(Path::new(&*touch.path)) {
            Entry::File(print) => look.present(&touch.path, print),
            Entry::Absent | Entry::Folder | Entry::Other | Entry::Unknown => continue,
        };
        let change = look.change(&touch.path, file, observed);
        if change.is_none() && (!file.is_announced || file.is_held) {
            continue;
        }
        let author = match change.is_some().then(|| look.author(&touch.path, observed)) {
            Some(Author::Own) => continue,
            Some(author @ Author::Other(_)) => author,
            Some(Author::Unknown { .. }) | None => Author::Unknown { during_a_command: false },
        };
        let change = change.unwrap_or(Change::Modified);
        look.announce(&touch.path, file, &change, observed, &author);
        if let Some(finding) = look.looked.findings.last_mut() {
            (finding.event_type, finding.severity) = ("fs.write.held", Severity::Critical);
        }
        if let Some(Some(file)) = look.looked.noted.0.get_mut(&touch.path) {
            file.is_held = true;
        }
    }
    look.looked
}

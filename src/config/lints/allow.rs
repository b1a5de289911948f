//! Comments that allow findings: `# aside: allow(NAME)` in TOML, `{# aside: allow(NAME) #}` in a
//! template.

use std::{ops::Range, sync::Arc};

use super::{
    LINTS,
    lint::{Lint, LintLevel, LintName},
};
use crate::config::{
    layers::{LayerKind, SourceFile, Sources},
    report::{Diagnostic, Place, shown},
};

/// The words of an allowance after its `#`.
const WORDS: &str = "aside: allow(";

/// The comments of all files above the shipped layer.
pub(super) struct Allowances {
    allowances: Vec<Allowance>,
    found: Vec<Diagnostic>,
}

struct Allowance {
    lint: &'static Lint,
    place: Place,
    is_used: bool,
}

impl Allowances {
    pub(super) fn new(sources: &Sources) -> Self {
        let mut all = Self { allowances: Vec::new(), found: Vec::new() };
        for file in sources.files().iter().filter(|file| file.layer != LayerKind::Shipped) {
            all.read(file);
        }
        all
    }

    fn read(&mut self, file: &SourceFile) {
        let mut start = 0;
        for line in file.text.split_inclusive('\n') {
            for (name, range) in names(line) {
                let place =
                    Place::new(&Arc::clone(&file.path), &file.text, start + range.start..start + range.end);
                self.add(name, place);
            }
            start += line.len();
        }
    }

    fn add(&mut self, name: &str, place: Place) {
        match Lint::named(name) {
            Err(_) => {
                let names = LINTS.map(|lint| lint.name.as_str());
                let message = format!("there is no lint `{}` to allow", shown(name));
                self.found.push(
                    Diagnostic::lint(LintName::UnusedAllow, place, "", message).with_allowed(name, &names),
                );
            }
            Ok(lint) if lint.level == LintLevel::Refused => {
                let message = format!("`{name}` cannot be allowed: a file with it is not used");
                self.found.push(Diagnostic::lint(LintName::UnusedAllow, place, "", message));
            }
            Ok(lint) => self.allowances.push(Allowance { lint, place, is_used: false }),
        }
    }

    /// Whether a finding is allowed: on its line, or on the line above.
    pub(super) fn silence(&mut self, found: &Diagnostic) -> bool {
        let line = found.place.line();
        let allows = |allowance: &&mut Allowance| {
            let own = allowance.place.line();
            found.lint == Some(allowance.lint.name)
                && found.place.file == allowance.place.file
                && (own == line || own + 1 == line)
        };
        // Every allowance that applies is used.
        let mut is_silent = false;
        for allowance in self.allowances.iter_mut().filter(allows) {
            allowance.is_used = true;
            is_silent = true;
        }
        is_silent
    }

    /// The allowances that silenced nothing. While a file has an error, some findings are not looked
    /// for, so only wrong names are found.
    pub(super) fn findings(self, has_errors: bool, is_off: impl Fn(&Lint) -> bool) -> Vec<Diagnostic> {
        let unused = self.allowances.into_iter();
        let unused = unused.filter(|one| !one.is_used && !has_errors && !is_off(one.lint));
        let unused = unused.map(|one| {
            let message =
                format!("nothing is silenced: there is no finding `{}` here", one.lint.name.as_str());
            Diagnostic::lint(LintName::UnusedAllow, one.place, "", message)
                .with_note("an allowance applies to its own line and to the next one")
        });
        self.found.into_iter().chain(unused).collect()
    }
}

/// The names in the allowances of a line, with their bytes.
fn names(line: &str) -> Vec<(&str, Range<usize>)> {
    let mut names = Vec::new();
    for (at, _) in line.match_indices(WORDS) {
        let (before, rest) = line.split_at(at);
        let start = at + WORDS.len();
        let listed = rest.get(WORDS.len()..).and_then(|rest| rest.split_once(')'));
        let (Some((listed, _)), true) = (listed, before.trim_end().ends_with('#')) else { continue };
        let mut end = start;
        for name in listed.split(',') {
            let own = end + (name.len() - name.trim_start().len());
            names.push((name.trim(), own..own + name.trim().len()));
            end += name.len() + 1;
        }
    }
    names
}

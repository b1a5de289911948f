//! The report of a check: the findings of the compilation, of the trial and of the lints, without
//! those that a comment allows.

use std::sync::Arc;

use engine::{
    event::catalogue::{self, CatalogueEntry, OwnSeverities},
    sorted::SortedSet,
};

use super::{
    LINTS,
    allow::Allowances,
    lint::{Check, Lint, LintLevel, LintName},
    subject::{HasPublished, Subject},
};
use crate::config::{
    compile::Compiled,
    layers::{LayerKind, Sources},
    report::{Diagnostic, Level, Report},
    trial,
};

/// The findings that count as errors although their lint has a lower level.
#[derive(Debug, Clone, Default)]
pub struct Denied {
    /// All warnings.
    pub warnings: bool,
    /// The lints.
    pub lints: Vec<LintName>,
}

impl Denied {
    fn has(&self, name: LintName) -> bool {
        self.lints.contains(&name)
    }

    /// Whether a lint is looked for.
    fn looks_for(&self, lint: &Lint) -> bool {
        lint.level != LintLevel::Off || self.has(lint.name)
    }

    fn raised(&self, found: Diagnostic) -> Diagnostic {
        let is_denied = self.warnings || found.lint.is_some_and(|name| self.has(name));
        if is_denied { Diagnostic { level: Level::Error, ..found } } else { found }
    }
}

/// Everything about the files of `compiled`: the findings of their compilation, of their trial and
/// of the lints, without the allowed ones. There is no history.
pub fn report(sources: &Sources, compiled: &Compiled, denied: &Denied) -> Report {
    report_with(sources, compiled, denied, &|_| false)
}

/// [`report`] with what the history knows.
pub fn report_with(
    sources: &Sources,
    compiled: &Compiled,
    denied: &Denied,
    has_published: &HasPublished<'_>,
) -> Report {
    let tried = trial::findings(sources, compiled);
    let linted = without_failed(findings(sources, compiled, denied, has_published), &tried);
    let all = compiled.report.clone().with(tried).with(linted).into_all();
    Report::new(allowed(sources, all, denied).into_iter().map(|found| denied.raised(found)).collect())
}

/// What a reload says: the findings of the compilation, and those of the trial and of the lints as
/// warnings, because such files are in force. It does not read the history, so every source is known.
pub fn reloaded(sources: &Sources, compiled: &Compiled, tried: Vec<Diagnostic>) -> Report {
    let denied = Denied::default();
    let linted = without_failed(findings(sources, compiled, &denied, &|_| true), &tried);
    let warnings = tried.into_iter().chain(linted).map(Diagnostic::into_warning);
    let all = compiled.report.clone().with(warnings).into_all();
    Report::new(allowed(sources, all, &denied))
}

/// The findings of `report` that no comment in `sources` allows.
#[must_use]
pub fn without_allowed(sources: &Sources, report: &Report) -> Report {
    if report.diagnostics().is_empty() {
        return report.clone();
    }
    let mut allowances = Allowances::new(sources);
    let found = report.clone().into_all();
    Report::new(found.into_iter().filter(|one| !allowances.silence(one)).collect())
}

/// The findings that no comment in `sources` allows, and the comments that allow nothing.
fn allowed(sources: &Sources, found: Vec<Diagnostic>, denied: &Denied) -> Vec<Diagnostic> {
    let has_errors = found.iter().any(|one| one.level == Level::Error);
    let mut allowances = Allowances::new(sources);
    let mut kept: Vec<Diagnostic> = found.into_iter().filter(|one| !allowances.silence(one)).collect();
    let is_off = |lint: &Lint| !denied.looks_for(lint);
    kept.extend(allowances.findings(has_errors, is_off));
    kept
}

/// A field that makes a text fail has its finding there.
fn without_failed(mut linted: Vec<Diagnostic>, tried: &[Diagnostic]) -> Vec<Diagnostic> {
    let is_same = |one: &Diagnostic, failed: &Diagnostic| {
        failed.level == Level::Error
            && failed.place.file == one.place.file
            && failed.place.line() == one.place.line()
    };
    linted.retain(|one| {
        one.lint != Some(LintName::EventField) || !tried.iter().any(|failed| is_same(one, failed))
    });
    linted
}

/// The findings of the lints that have a check of their own, in files that are not shipped.
fn findings(
    sources: &Sources,
    compiled: &Compiled,
    denied: &Denied,
    has_published: &HasPublished<'_>,
) -> Vec<Diagnostic> {
    let files = sources.files().iter().filter(|file| file.layer != LayerKind::Shipped);
    let own: SortedSet<&Arc<str>> = files.map(|file| &file.path).collect();
    let shipped: Vec<&CatalogueEntry> = catalogue::types().collect();
    let known: Vec<_> = shipped.into_iter().chain(&compiled.events).collect();
    let severities = OwnSeverities::new(&compiled.events);
    let subjects = Subject::all(sources, compiled, &known, &severities, has_published);
    let mut found: Vec<Diagnostic> = Vec::new();
    for lint in LINTS.iter().filter(|lint| denied.looks_for(lint)) {
        let Check::Subscriber(check) = &lint.check else { continue };
        let each = subjects.iter().flat_map(|subject| check(subject, &subjects));
        for one in each.filter(|one| own.contains(&one.place.file)) {
            let one = Diagnostic { lint: Some(lint.name), ..one };
            let one = if lint.level == LintLevel::Error { one } else { one.into_warning() };
            // A template can be the text of several subscribers.
            if !found.iter().any(|other| other.place == one.place && other.lint == one.lint) {
                found.push(one);
            }
        }
    }
    found
}

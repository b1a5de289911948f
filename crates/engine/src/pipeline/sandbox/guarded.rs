//! Accesses that a template guards: a chain such as `events[0].payload.at.step` before
//! `default(...)`, `is defined` or `is undefined`. An absent part of it is no failure there.

use minijinja::machinery::{Span, ast::Expr};

use crate::sorted::SortedSet;

/// Filters and tests that accept an absent value.
const FILTERS: [&str; 2] = ["d", "default"];
const TESTS: [&str; 2] = ["defined", "undefined"];

/// The guarded accesses of a source.
///
/// Shape: the byte range of each, which is that of its instruction too.
#[derive(Debug, Clone, Default)]
pub(in crate::pipeline) struct Guarded(SortedSet<(u32, u32)>);

impl Guarded {
    /// Adds the accesses of `chain`, the operand of the filter `name`.
    pub(super) fn add_filtered(&mut self, name: &str, chain: &Expr<'_>) {
        if FILTERS.contains(&name) {
            self.add(chain);
        }
    }

    /// Adds the accesses of `chain`, the operand of the test `name`.
    pub(super) fn add_tested(&mut self, name: &str, chain: &Expr<'_>) {
        if TESTS.contains(&name) {
            self.add(chain);
        }
    }

    fn add(&mut self, chain: &Expr<'_>) {
        let (span, below) = if let Expr::GetAttr(access) = chain {
            (access.span(), &access.expr)
        } else if let Expr::GetItem(access) = chain {
            (access.span(), &access.expr)
        } else {
            return;
        };
        self.0.insert(range(span));
        self.add(below);
    }

    /// Whether the access at this place is guarded.
    pub(super) fn contains(&self, span: Option<Span>) -> bool {
        span.is_some_and(|span| self.0.contains(&range(span)))
    }
}

fn range(span: Span) -> (u32, u32) {
    (span.start_offset, span.end_offset)
}

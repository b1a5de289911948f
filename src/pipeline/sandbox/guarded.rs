//! Accesses that a template guards: a chain such as `events[0].payload.at.step` before
//! `default(...)`, `is defined` or `is undefined`. An absent part of it is no failure there.

use std::collections::BTreeSet;

use minijinja::machinery::{Instruction, Instructions};

/// Filters and tests that accept an absent value.
const FILTERS: [&str; 2] = ["d", "default"];
const TESTS: [&str; 2] = ["defined", "undefined"];
/// Words before a parenthesis that is no call.
const WORDS: [&str; 7] = ["and", "elif", "else", "if", "in", "not", "or"];

/// The accesses of the guarded chains, by the numbers of their instructions.
pub(super) fn find(code: &Instructions<'_>) -> BTreeSet<u32> {
    let mut guarded = BTreeSet::new();
    for last in (0..).take_while(|at| code.get(*at).is_some()).filter(|at| is_access(code, *at)) {
        let chain: Vec<u32> = std::iter::successors(Some(last), |at| access_below(code, *at)).collect();
        if is_guarded(code, &chain).unwrap_or(false) {
            guarded.extend(chain);
        }
    }
    guarded
}

fn is_access(code: &Instructions<'_>, at: u32) -> bool {
    matches!(code.get(at), Some(Instruction::GetAttr(_) | Instruction::GetItem))
}

/// The access whose result is the operand of the one at `at`. A computed index hides it.
fn access_below(code: &Instructions<'_>, at: u32) -> Option<u32> {
    let before = at.checked_sub(1)?;
    if !matches!(code.get(at), Some(Instruction::GetItem)) {
        return Some(before).filter(|below| is_access(code, *below));
    }
    let is_plain = matches!(code.get(before), Some(Instruction::LoadConst(_) | Instruction::Lookup(_)));
    before.checked_sub(1).filter(|below| is_plain && is_access(code, *below))
}

/// Whether a guard follows the chain, which may be in parentheses.
fn is_guarded(code: &Instructions<'_>, chain: &[u32]) -> Option<bool> {
    let start = code.get_span(*chain.last()?)?.start_offset;
    let end = code.get_span(*chain.first()?)?.end_offset;
    let mut before = code.source().get(..usize::try_from(start).ok()?)?.trim_end();
    let mut after = code.source().get(usize::try_from(end).ok()?..)?.trim_start();
    while let (Some(left), Some(right)) = (before.strip_suffix('('), after.strip_prefix(')')) {
        (before, after) = (left.trim_end(), right.trim_start());
        let word = before.rsplit(|c| !is_of_name(c)).next().unwrap_or_default();
        if before.ends_with([')', ']']) || (!word.is_empty() && !WORDS.contains(&word)) {
            return None;
        }
    }
    if let Some(filter) = after.strip_prefix('|') {
        return Some(FILTERS.contains(&split_name(filter).0));
    }
    let ("is", rest) = split_name(after) else { return None };
    let (name, rest) = split_name(rest);
    let test = if name == "not" { split_name(rest).0 } else { name };
    Some(TESTS.contains(&test))
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The name at the beginning of a text, and the rest.
fn split_name(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(|c| !is_of_name(c)).unwrap_or(text.len()))
}

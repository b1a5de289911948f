//! Rewrites compiled code: each instruction that could read or create much becomes a call of a
//! priced function.
//!
//! The remaining instructions have constant cost, which fuel counts. An instruction with two
//! operands and a filter with two arguments take the same values from the stack, so most are
//! replaced in place; some get a call before them. Jump targets are adjusted.
//!
//! A template guards a chain of accesses such as `events[0].payload.at.step` by `default(...)`, `is
//! defined` or `is undefined` after it: an absent part of the chain is no failure there.

use minijinja::{
    machinery::{Instruction, Instructions, Span, ast::Expr},
    value::{Object, ObjectRepr, Value},
};

use super::operators::name;
use crate::sorted::{SortedMap, SortedSet};

/// Longest free piece of a template's own text: printing it costs an instruction, so all fuel
/// prints some MB.
const TEXT_FREE_BYTES: usize = 128;
/// minijinja caches this many filters of a program; it looks up further ones at each use.
const LOCALS_MAX: u8 = 50;
/// The number of an uncached filter.
const NO_LOCAL: u8 = u8::MAX;

/// A piece of a template's own text that is paid for, or whose line is traced.
#[derive(Debug)]
pub(in crate::pipeline) struct OwnText {
    pub(in crate::pipeline) text: Box<str>,
    /// The template line on which it begins.
    pub(in crate::pipeline) line: usize,
    /// Whether its line is traced.
    pub(in crate::pipeline) trace: Trace,
}

impl Object for OwnText {
    fn repr(self: &std::sync::Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// Selects the pieces of a template's own text that become an [`OwnText`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pipeline) enum Trace {
    /// Those that are paid for.
    Off,
    /// All, so that each line of the output can be mapped to a line of the template.
    Lines,
}

/// Code of one source.
pub(super) struct Stretch<'g> {
    /// The number of the instruction after it.
    pub(super) end: u32,
    /// What its source guards.
    pub(super) guarded: &'g Guarded,
    /// What is added to its offsets: those of the main source are its own.
    pub(super) offset: u32,
}

/// Rewrites `from`, which consists of `stretches`.
pub(super) fn rewrite<'s>(
    from: &Instructions<'s>,
    stretches: &[Stretch<'_>],
    trace: Trace,
) -> Instructions<'s> {
    let mut stretches = stretches.iter().peekable();
    let mut rewriting = Rewriting {
        to: Instructions::new(from.name(), from.source()),
        locals: SortedMap::new(),
        local_next: local_next(from),
        length: 0,
        trace,
        is_guarded: false,
    };
    let mut moved = Vec::new();
    for at in 0.. {
        moved.push(rewriting.length);
        let Some(instruction) = from.get(at) else { break };
        while stretches.next_if(|stretch| at >= stretch.end).is_some() {}
        let stretch = stretches.peek().expect("the last one ends with the code");
        let span = from.get_span(at);
        rewriting.is_guarded = stretch.guarded.contains(span);
        rewriting.trace = if stretch.offset == 0 { trace } else { Trace::Off };
        let place = Location { line: from.get_line(at).unwrap_or(0), span }.shifted(stretch.offset);
        let before = at.checked_sub(1).and_then(|before| from.get(before));
        let two_before = at.checked_sub(2).and_then(|before| from.get(before));
        let is_printed_next = matches!(from.get(at + 1), Some(Instruction::Emit | Instruction::StringConcat));
        let is_nothing = matches!(instruction, Instruction::LoadConst(value) if value.is_undefined());
        if is_nothing && is_printed_next {
            // `{{ a if b }}` writes nothing if `b` is false, as in Jinja.
            rewriting.add(Instruction::LoadConst(Value::from("")), place);
        } else {
            rewriting.rewrite(instruction, before, two_before, place);
        }
    }
    let mut to = rewriting.to;
    let mut at = 0;
    while let Some(instruction) = to.get_mut(at) {
        if let Some(target) = target(instruction) {
            *target =
                usize::try_from(*target).ok().and_then(|old| moved.get(old)).copied().unwrap_or(*target);
        }
        at += 1;
    }
    to
}

fn target<'i>(instruction: &'i mut Instruction<'_>) -> Option<&'i mut u32> {
    if let Instruction::Jump(target)
    | Instruction::JumpIfFalse(target)
    | Instruction::JumpIfFalseOrPop(target)
    | Instruction::JumpIfTrueOrPop(target)
    | Instruction::Iterate(target)
    | Instruction::BuildMacro(_, target, _) = instruction
    {
        return Some(target);
    }
    None
}

/// The first number that is not in use by a filter of `code`.
fn local_next(code: &Instructions<'_>) -> u8 {
    let local = |instruction: &Instruction<'_>| {
        if let Instruction::ApplyFilter(_, _, local) = instruction { Some(*local) } else { None }
    };
    let locals = (0..).map_while(|at| code.get(at)).filter_map(local);
    locals.filter(|local| *local != NO_LOCAL).max().map_or(0, |local| local.saturating_add(1))
}

/// The source position of an instruction.
#[derive(Clone, Copy)]
struct Location {
    line: usize,
    span: Option<Span>,
}

impl Location {
    /// The same in the text of all sources, in which this one begins at `offset`.
    fn shifted(self, offset: u32) -> Self {
        if offset == 0 {
            return self;
        }
        let line = u16::try_from(self.line).unwrap_or(u16::MAX);
        let span = self.span.unwrap_or(Span { start_line: line, end_line: line, ..Span::default() });
        let (start, end) = (span.start_offset + offset, span.end_offset + offset);
        Self { span: Some(Span { start_offset: start, end_offset: end, ..span }), ..self }
    }
}

struct Rewriting<'s> {
    to: Instructions<'s>,
    locals: SortedMap<&'static str, u8>,
    local_next: u8,
    /// Number of instructions.
    length: u32,
    trace: Trace,
    /// Whether the next instruction is an access that a template guards.
    is_guarded: bool,
}

impl<'s> Rewriting<'s> {
    fn add(&mut self, instruction: Instruction<'s>, place: Location) {
        let at = match place.span {
            Some(span) => self.to.add_with_span(instruction, span),
            None => self.to.add_with_line(instruction, u16::try_from(place.line).unwrap_or(u16::MAX)),
        };
        self.length = at + 1;
    }

    /// Calls the operator `name` with the topmost `count` values.
    fn call(&mut self, name: &'static str, count: u16, place: Location) {
        let next = self.local_next;
        let local = *self.locals.get_or_insert_with(name, || {
            self.local_next = next.saturating_add(1);
            if next < LOCALS_MAX { next } else { NO_LOCAL }
        });
        self.add(Instruction::ApplyFilter(name, Some(count), local), place);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other instructions have a constant cost")]
    fn rewrite(
        &mut self,
        instruction: &Instruction<'s>,
        before: Option<&Instruction<'s>>,
        two_before: Option<&Instruction<'s>>,
        place: Location,
    ) {
        match instruction {
            Instruction::GetAttr(_) if self.is_guarded => {
                self.call(name::REACHED, 1, place);
                self.add(instruction.clone(), place);
            }
            Instruction::EmitRaw(text) if text.len() > TEXT_FREE_BYTES || self.trace == Trace::Lines => {
                let own = OwnText { text: (*text).into(), line: place.line, trace: self.trace };
                self.add(Instruction::LoadConst(Value::from_object(own)), place);
                self.add(Instruction::Emit, place);
            }
            Instruction::Add if is_number(before) => self.add(Instruction::Add, place),
            Instruction::Eq | Instruction::Ne if is_scalar(before) => self.add(instruction.clone(), place),
            Instruction::Add => self.call(name::ADD, 2, place),
            Instruction::Mul => self.call(name::MULTIPLY, 2, place),
            Instruction::StringConcat => self.call(name::CONCAT, 2, place),
            Instruction::Eq => self.call(name::EQUAL, 2, place),
            Instruction::Ne => self.call(name::UNEQUAL, 2, place),
            Instruction::Lt => self.call(name::LESS, 2, place),
            Instruction::Lte => self.call(name::LESS_OR_EQUAL, 2, place),
            Instruction::Gt => self.call(name::GREATER, 2, place),
            Instruction::Gte => self.call(name::GREATER_OR_EQUAL, 2, place),
            Instruction::In => self.call(name::IN, 2, place),
            Instruction::CompareAndPreserve(link) => {
                let (name, _) = name::CHAIN.get(*link as usize).expect("a name for each link");
                self.call(name, 2, place);
                self.add(Instruction::UnpackList(2), place);
            }
            Instruction::Slice => self.call(name::SLICE, 4, place),
            Instruction::BuildList(Some(count)) | Instruction::BuildTuple(Some(count)) if *count > 0 => {
                self.call(name::LIST, u16::try_from(*count).unwrap_or(u16::MAX), place);
            }
            Instruction::BuildMap(count) if *count > 0 => {
                self.call(name::MAP, u16::try_from(2 * *count).unwrap_or(u16::MAX), place);
            }
            Instruction::GetItem => {
                if self.is_guarded {
                    self.beneath(name::REACHED, place);
                }
                if !is_cheap_index(before, two_before) {
                    self.beneath(name::INDEXED, place);
                }
                self.add(Instruction::GetItem, place);
            }
            Instruction::SetAttr(_) => {
                self.beneath(name::KEPT, place);
                self.add(instruction.clone(), place);
            }
            Instruction::PushLoop(_)
            | Instruction::FastRecurse
            | Instruction::CallFunction("loop", Some(1)) => {
                self.call(name::WALKED, 1, place);
                self.add(instruction.clone(), place);
            }
            Instruction::CallMethod("changed", Some(2)) => {
                self.call(name::WEIGHED, 1, place);
                self.add(instruction.clone(), place);
            }
            _ => self.add(instruction.clone(), place),
        }
    }

    /// Calls an operator with the value below the topmost one.
    fn beneath(&mut self, name: &'static str, place: Location) {
        self.add(Instruction::Swap, place);
        self.call(name, 1, place);
        self.add(Instruction::Swap, place);
    }
}

fn is_number(instruction: Option<&Instruction<'_>>) -> bool {
    matches!(instruction, Some(Instruction::LoadConst(value)) if value.is_number())
}

fn is_scalar(instruction: Option<&Instruction<'_>>) -> bool {
    matches!(instruction, Some(Instruction::LoadConst(value)) if value.as_object().is_none())
}

/// Whether an index is cheap: a text has no named items, and `events` and `rows` are not texts.
fn is_cheap_index(before: Option<&Instruction<'_>>, two_before: Option<&Instruction<'_>>) -> bool {
    let Some(Instruction::LoadConst(key)) = before else { return false };
    key.as_str().is_some() || matches!(two_before, Some(Instruction::Lookup("events" | "rows")))
}

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

//! The parts of an expression: the comparisons that it joins, and the values that they compare.

use std::ops::Range;

use minijinja::{
    Error,
    machinery::{
        self,
        ast::{BinOpKind, CompareOpKind, Expr, UnaryOp, UnaryOpKind},
    },
};

use super::source::range;

/// The way from an expression to a part of it: the number of the operand at each step.
pub(in crate::pipeline) type PartPath = Vec<usize>;

/// How an expression joins its comparisons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline) enum Joined {
    /// `and`.
    Both(Box<[Joined; 2]>),
    /// `or`.
    Either(Box<[Joined; 2]>),
    /// `not`.
    Not(Box<Joined>),
    /// Anything else.
    One(Part),
}

/// A part without `and`, `or` and `not`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline) struct Part {
    pub(in crate::pipeline) path: PartPath,
    /// The bytes of the source.
    pub(in crate::pipeline) range: Range<usize>,
    pub(in crate::pipeline) compares: Compares,
    /// What it compares, in the order of the source; the part itself if it compares nothing.
    pub(in crate::pipeline) operands: Vec<PartPath>,
}

/// What a part does with its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pipeline) enum Compares {
    Equal,
    Unequal,
    Below,
    AtMost,
    Above,
    AtLeast,
    In,
    NotIn,
    /// Several comparisons in a row, such as `0 < a < 5`.
    Row,
    /// A test, such as `a is defined`, of the one operand.
    Test,
    /// It is a value.
    Nothing,
}

/// The structure of an expression.
///
/// Errors: bad syntax.
pub(in crate::pipeline) fn joined(source: &str) -> Result<Joined, Error> {
    machinery::parse_expr(source).map(|tree| join(source, &tree, Vec::new()))
}

fn below(path: &PartPath, operand: usize) -> PartPath {
    path.iter().copied().chain([operand]).collect()
}

fn join(source: &str, tree: &Expr<'_>, path: PartPath) -> Joined {
    let both = |left: &Expr<'_>, right: &Expr<'_>| {
        Box::new([join(source, left, below(&path, 0)), join(source, right, below(&path, 1))])
    };
    match tree {
        Expr::BinOp(two) if matches!(two.op, BinOpKind::ScAnd) => Joined::Both(both(&two.left, &two.right)),
        Expr::BinOp(two) if matches!(two.op, BinOpKind::ScOr) => Joined::Either(both(&two.left, &two.right)),
        Expr::UnaryOp(one) if is_not_in(one) => {
            let inner = below(&path, 0);
            let operands = vec![below(&inner, 0), below(&inner, 1)];
            Joined::One(part(source, tree, path, Compares::NotIn, operands))
        }
        Expr::UnaryOp(one) if matches!(one.op, UnaryOpKind::Not) => {
            Joined::Not(Box::new(join(source, &one.expr, below(&path, 0))))
        }
        Expr::BinOp(two) => {
            let operands = vec![below(&path, 0), below(&path, 1)];
            let compares = compares(two.op);
            let operands = if compares == Compares::Nothing { vec![path.clone()] } else { operands };
            Joined::One(part(source, tree, path, compares, operands))
        }
        Expr::Compare(row) => {
            let operands = (0..=row.ops.len()).map(|operand| below(&path, operand)).collect();
            let compares = match row.ops.as_slice() {
                [one] => compare(one.op),
                _ => Compares::Row,
            };
            Joined::One(part(source, tree, path, compares, operands))
        }
        Expr::Test(_) => {
            let operands = vec![below(&path, 0)];
            Joined::One(part(source, tree, path, Compares::Test, operands))
        }
        Expr::Var(_)
        | Expr::Const(_)
        | Expr::Slice(_)
        | Expr::UnaryOp(_)
        | Expr::IfExpr(_)
        | Expr::Filter(_)
        | Expr::GetAttr(_)
        | Expr::GetItem(_)
        | Expr::Call(_)
        | Expr::List(_)
        | Expr::Tuple(_)
        | Expr::Map(_) => {
            let operands = vec![path.clone()];
            Joined::One(part(source, tree, path, Compares::Nothing, operands))
        }
    }
}

/// Whether it is `a not in b`, or its other form `not a in b`.
fn is_not_in(one: &UnaryOp<'_>) -> bool {
    let is_in = matches!(&one.expr, Expr::BinOp(two) if matches!(two.op, BinOpKind::In));
    is_in && matches!(one.op, UnaryOpKind::Not)
}

fn part(source: &str, tree: &Expr<'_>, path: PartPath, compares: Compares, operands: Vec<PartPath>) -> Part {
    let range = start(tree)..range(tree.span()).end;
    Part { path, range: in_pairs(source, range), compares, operands }
}

/// The first byte of an expression: that of its first operand, as its own range may begin with the token
/// before it.
fn start(tree: &Expr<'_>) -> usize {
    match tree {
        Expr::BinOp(two) => start(&two.left),
        Expr::Compare(row) => start(&row.expr),
        Expr::Test(test) => start(&test.expr),
        Expr::GetAttr(found) => start(&found.expr),
        Expr::GetItem(found) => start(&found.expr),
        Expr::Slice(slice) => start(&slice.expr),
        Expr::Call(call) => start(&call.expr),
        Expr::IfExpr(choice) => start(&choice.true_expr),
        Expr::Filter(filter) => filter.expr.as_ref().map_or(range(filter.span()).start, start),
        Expr::UnaryOp(one) if is_not_in(one) => start(&one.expr),
        Expr::Var(_) | Expr::Const(_) | Expr::UnaryOp(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => {
            range(tree.span()).start
        }
    }
}

/// The range, up to the parentheses that one in it opens or closes: the range of an expression does not
/// have those around its first and its last operand.
fn in_pairs(source: &str, range: Range<usize>) -> Range<usize> {
    let Range { mut start, mut end } = range;
    let text = source.get(start..end).unwrap_or_default();
    let (mut open, mut unopened) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'(' => open += 1,
            b')' if open > 0 => open -= 1,
            b')' => unopened += 1,
            _ => {}
        }
    }
    for _ in 0..unopened {
        start = source.get(..start).and_then(|before| before.rfind('(')).unwrap_or(start);
    }
    for _ in 0..open {
        end = source.get(end..).and_then(|rest| rest.find(')')).map_or(end, |found| end + found + 1);
    }
    start..end
}

fn compares(op: BinOpKind) -> Compares {
    match op {
        BinOpKind::Eq => Compares::Equal,
        BinOpKind::Ne => Compares::Unequal,
        BinOpKind::Lt => Compares::Below,
        BinOpKind::Lte => Compares::AtMost,
        BinOpKind::Gt => Compares::Above,
        BinOpKind::Gte => Compares::AtLeast,
        BinOpKind::In => Compares::In,
        BinOpKind::ScAnd
        | BinOpKind::ScOr
        | BinOpKind::Add
        | BinOpKind::Sub
        | BinOpKind::Mul
        | BinOpKind::Div
        | BinOpKind::FloorDiv
        | BinOpKind::Rem
        | BinOpKind::Pow
        | BinOpKind::Concat => Compares::Nothing,
    }
}

fn compare(op: CompareOpKind) -> Compares {
    match op {
        CompareOpKind::Eq => Compares::Equal,
        CompareOpKind::Ne => Compares::Unequal,
        CompareOpKind::Lt => Compares::Below,
        CompareOpKind::Lte => Compares::AtMost,
        CompareOpKind::Gt => Compares::Above,
        CompareOpKind::Gte => Compares::AtLeast,
        CompareOpKind::In => Compares::In,
        CompareOpKind::NotIn => Compares::NotIn,
    }
}

/// The part of `tree` at the end of `path`, as [`joined`] numbers operands.
pub(super) fn at<'t, 's>(tree: &'t Expr<'s>, path: &[usize]) -> &'t Expr<'s> {
    let Some((operand, rest)) = path.split_first() else { return tree };
    let next = match (tree, operand) {
        (Expr::BinOp(two), 0) => &two.left,
        (Expr::BinOp(two), 1) => &two.right,
        (Expr::UnaryOp(one), 0) => &one.expr,
        (Expr::Test(test), 0) => &test.expr,
        (Expr::Compare(row), 0) => &row.expr,
        (Expr::Compare(row), operand) => &row.ops.get(*operand - 1).expect("a numbered operand").expr,
        _ => unreachable!("`joined` numbers the operands of these alone"),
    };
    at(next, rest)
}

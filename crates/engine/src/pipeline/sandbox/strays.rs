//! Fields of an event that no event has. Which expressions are events is known without a run: items
//! of the variable `events`, and variables that are set to them.

use std::ops::Range;

use minijinja::machinery::ast::{CallArg, Expr, Filter};

use super::source::range;
use crate::sorted::SortedMap;

/// The variable with the events of a batch.
const EVENTS: &str = "events";
/// The filters whose result has the same items.
const SAME_ITEMS: [&str; 8] =
    ["list", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "unique"];
/// The filters whose first argument is an attribute of the items.
const OF_ATTRIBUTE: [&str; 3] = ["groupby", "rejectattr", "selectattr"];
/// The filters whose result is one of the items.
const ONE_ITEM: [&str; 4] = ["first", "last", "max", "min"];
/// The argument that names an attribute of the items.
const ATTRIBUTE: &str = "attribute";

/// Names that a source defines, with their kinds.
pub(super) type Scope<'s> = SortedMap<&'s str, Kind>;

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Events,
    Event,
    /// The macros of a library.
    Macros,
    Other,
}

impl Kind {
    /// The kind of an item.
    pub(super) const fn of_item(self) -> Self {
        match self {
            Self::Events => Self::Event,
            Self::Event | Self::Macros | Self::Other => Self::Other,
        }
    }
}

/// A field that a template reads of an event, and that no event has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrayField {
    /// Its name.
    pub name: String,
    /// The bytes of the template that read it.
    pub range: Range<usize>,
}

impl StrayField {
    /// `None` if `name` is one of `fields`.
    pub(super) fn new(name: &str, range: Range<usize>, fields: &[&str]) -> Option<Self> {
        (!fields.contains(&name)).then(|| Self { name: name.to_owned(), range })
    }
}

/// The kind of an expression, whose names are those of `scopes`, the innermost last.
pub(super) fn kind_of(expression: &Expr<'_>, scopes: &[Scope<'_>]) -> Kind {
    match expression {
        Expr::Var(name) => match scopes.iter().rev().find_map(|scope| scope.get(name.id)) {
            Some(kind) => *kind,
            None if name.id == EVENTS => Kind::Events,
            None => Kind::Other,
        },
        Expr::GetItem(item) => kind_of(&item.expr, scopes).of_item(),
        Expr::Slice(slice) if kind_of(&slice.expr, scopes) == Kind::Events => Kind::Events,
        Expr::Filter(filter) => match filter.expr.as_ref().map(|of| kind_of(of, scopes)) {
            Some(Kind::Events) if SAME_ITEMS.contains(&filter.name) => Kind::Events,
            Some(Kind::Events) if ONE_ITEM.contains(&filter.name) => Kind::Event,
            _ => Kind::Other,
        },
        Expr::Const(_)
        | Expr::Slice(_)
        | Expr::UnaryOp(_)
        | Expr::BinOp(_)
        | Expr::Compare(_)
        | Expr::IfExpr(_)
        | Expr::Test(_)
        | Expr::GetAttr(_)
        | Expr::Call(_)
        | Expr::List(_)
        | Expr::Tuple(_)
        | Expr::Map(_) => Kind::Other,
    }
}

/// The fields in the arguments of a filter over events that no event has.
pub(super) fn fields_in_arguments(filter: &Filter<'_>, fields: &[&str]) -> Vec<StrayField> {
    let named = filter.args.iter().enumerate().filter_map(|(index, argument)| match argument {
        CallArg::Pos(Expr::Const(path)) if index == 0 && OF_ATTRIBUTE.contains(&filter.name) => Some(path),
        CallArg::Kwarg(ATTRIBUTE, Expr::Const(path)) => Some(path),
        CallArg::Pos(_) | CallArg::Kwarg(..) | CallArg::PosSplat(_) | CallArg::KwargSplat(_) => None,
    });
    let stray = named.filter_map(|path| {
        let root = path.value.as_str()?.split('.').next()?.to_owned();
        StrayField::new(&root, range(path.span()), fields)
    });
    stray.collect()
}

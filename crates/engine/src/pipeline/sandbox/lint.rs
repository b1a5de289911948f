//! Refuses faulty templates and conditions at compile time, so that their author gets the error and
//! not the agent.
//!
//! A walk over the parsed source finds unknown names, forbidden operations, and comparisons that
//! cannot be meant, each with its position. It visits every expression, also those of slices. It
//! also collects the variables in use.

use std::{mem, ops::Range, sync::LazyLock};

use minijinja::machinery::{
    Span,
    ast::{self, BinOpKind, CallArg, CompareOpKind, Expr, Stmt},
};

use super::{
    filters, formats, idioms,
    library::{self, Parsed, Tag, Taken},
    operators,
    patterns::{self, Patterns},
    rewrite::Guarded,
    source::{Cause, Fault, named, range},
    strays::{Kind, Scope, StrayField, fields_in_arguments, kind_of},
};
use crate::{nearest::nearest, sorted::SortedSet};

/// Names with a meaning of their own in some places of minijinja.
const IMPLIED: [&str; 3] = ["loop", "caller", "self"];
/// The name of a severity, whose order is not that of its text.
const SEVERITY: &str = "severity";
/// The variable whose fields a producer chooses.
const PAYLOAD: &str = "payload";

/// The filters and tests of every program.
static FILTERS: LazyLock<SortedSet<&'static str>> = LazyLock::new(|| filters::filter_names().collect());
static TESTS: LazyLock<SortedSet<&'static str>> = LazyLock::new(|| filters::test_names().collect());

/// The additional names of one kind of program.
#[derive(Debug, Clone, Copy)]
pub(in crate::pipeline) struct Grammar {
    pub(in crate::pipeline) variables: &'static [&'static str],
    pub(in crate::pipeline) filters: &'static [&'static str],
    pub(in crate::pipeline) functions: &'static [&'static str],
    /// The fields of an item of `events`; empty without that variable.
    pub(in crate::pipeline) event_fields: &'static [&'static str],
    /// The error message for an unknown variable.
    pub(in crate::pipeline) unknown: fn(&str) -> String,
}

#[derive(Debug)]
pub(in crate::pipeline) struct Checked {
    /// The variables in use.
    pub(in crate::pipeline) asks: SortedSet<String>,
    /// The fields of the variable `payload` in use.
    pub(in crate::pipeline) fields: SortedSet<String>,
    /// The grammar's own filters in use.
    pub(in crate::pipeline) filters: SortedSet<&'static str>,
    /// The fields that it reads of an event and that no event has, in order.
    pub(in crate::pipeline) strays: Vec<StrayField>,
    /// The accesses that it guards.
    pub(in crate::pipeline) guarded: Guarded,
    /// Those of each library that it takes macros from.
    pub(in crate::pipeline) guarded_in: Vec<Guarded>,
    /// The regular expressions in use.
    pub(in crate::pipeline) patterns: Patterns,
}

/// Checks a parsed template, and the libraries that it takes macros from.
///
/// Errors: the first forbidden thing; one in a library is at the tag that takes it.
pub(super) fn check_template(
    tree: &Stmt<'_>,
    libraries: &[Parsed<'_>],
    grammar: &Grammar,
) -> Result<Checked, Fault> {
    let mut walk = Walk::new(grammar, libraries);
    walk.statement(tree);
    let mut checked = walk.end()?;
    for Parsed { library, tree } in libraries {
        let patterns = mem::take(&mut checked.patterns);
        let inner = check_library(tree, libraries, grammar, patterns).map_err(|fault| {
            let message =
                format!("in `{}`, line {}: {}", library.name, fault.line_in(&library.text), fault.message);
            Fault { message, range: Some(library.tag.clone()), line: None, cause: Cause::Refused }
        })?;
        checked.patterns = inner.patterns;
        checked.filters.extend(inner.filters);
        checked.guarded_in.push(inner.guarded);
    }
    Ok(checked)
}

/// Checks a parsed library: it has only macros, and these see only their arguments.
///
/// Errors: the first forbidden thing.
pub(super) fn check_library(
    tree: &Stmt<'_>,
    libraries: &[Parsed<'_>],
    grammar: &Grammar,
    patterns: Patterns,
) -> Result<Checked, Fault> {
    let grammar = Grammar { variables: &[], event_fields: &[], unknown: unknown_in_library, ..*grammar };
    // A macro can call one that is below it.
    let names = library::macros(tree).map(|name| (name, Kind::Other)).collect();
    let mut walk = Walk { patterns, scopes: vec![names], ..Walk::new(&grammar, libraries) };
    for statement in library::statements(tree) {
        let is_blank = |text: &str| text.trim().is_empty();
        let is_macro = matches!(statement, Stmt::Macro(_) | Stmt::Import(_) | Stmt::FromImport(_));
        if !is_macro && !matches!(statement, Stmt::EmitRaw(text) if is_blank(text.raw)) {
            walk.refuse(
                range(library::span(statement)),
                "a library has only macros: it writes nothing itself",
            );
        }
    }
    walk.statement(tree);
    walk.end()
}

fn unknown_in_library(name: &str) -> String {
    format!("unknown variable `{name}`; a macro of a library sees only its arguments and other macros")
}

/// Checks a parsed expression.
///
/// Errors: as for [`check_template`].
pub(super) fn check_expression(tree: &Expr<'_>, grammar: &Grammar) -> Result<Checked, Fault> {
    let mut walk = Walk::new(grammar, &[]);
    walk.expression(tree);
    walk.end()
}

struct Walk<'g, 's> {
    grammar: &'g Grammar,
    /// The libraries with macros to take.
    libraries: &'g [Parsed<'g>],
    /// Names defined by the source, innermost scope last.
    scopes: Vec<Scope<'s>>,
    asks: SortedSet<String>,
    fields: SortedSet<String>,
    used: SortedSet<&'static str>,
    strays: Vec<StrayField>,
    guarded: Guarded,
    patterns: Patterns,
    fault: Option<Fault>,
}

impl<'g, 's> Walk<'g, 's> {
    fn new(grammar: &'g Grammar, libraries: &'g [Parsed<'g>]) -> Self {
        Self {
            grammar,
            libraries,
            scopes: vec![Scope::new()],
            asks: SortedSet::new(),
            fields: SortedSet::new(),
            used: SortedSet::new(),
            strays: Vec::new(),
            guarded: Guarded::default(),
            patterns: Patterns::default(),
            fault: None,
        }
    }

    fn end(self) -> Result<Checked, Fault> {
        let Self { asks, fields, used: filters, mut strays, guarded, patterns, .. } = self;
        strays.sort_by_key(|stray| stray.range.start);
        self.fault.map_or(
            Ok(Checked { asks, fields, filters, strays, guarded, guarded_in: Vec::new(), patterns }),
            Err,
        )
    }

    /// Keeps the first fault in the source.
    fn refuse(&mut self, range: Range<usize>, message: impl Into<String>) {
        let start = |fault: &Fault| fault.range.as_ref().map_or(0, |range| range.start);
        if self.fault.as_ref().is_none_or(|fault| range.start < start(fault)) {
            let (message, range) = (message.into(), Some(range));
            self.fault = Some(Fault { message, range, line: None, cause: Cause::Refused });
        }
    }

    fn assign(&mut self, target: &Expr<'s>, kind: Kind) {
        if let (Expr::Var(name), Some(scope)) = (target, self.scopes.last_mut()) {
            scope.insert(name.id, kind);
        } else if let Expr::List(list) = target {
            list.items.iter().for_each(|item| self.assign(item, Kind::Other));
        } else if let Expr::Tuple(tuple) = target {
            tuple.items.iter().for_each(|item| self.assign(item, Kind::Other));
        } else {
            self.expression(target);
        }
    }

    fn inside(&mut self, walk: impl FnOnce(&mut Self)) {
        self.scopes.push(Scope::new());
        walk(self);
        self.scopes.pop();
    }

    fn statements(&mut self, statements: &[Stmt<'s>]) {
        statements.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &Stmt<'s>) {
        const ONE_FILE: &str = "macros come from a library, {% from \"lib/name\" import name %}; else a template is one file, so it cannot";
        match statement {
            Stmt::Template(template) => {
                for child in &template.children {
                    match Tag::of(child) {
                        Some(tag) => self.take(&tag),
                        None => self.statement(child),
                    }
                }
            }
            Stmt::EmitExpr(emit) => self.expression(&emit.expr),
            Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
            Stmt::ForLoop(walked) => self.for_loop(walked),
            Stmt::IfCond(condition) => {
                self.expression(&condition.expr);
                self.statements(&condition.true_body);
                self.statements(&condition.false_body);
            }
            Stmt::WithBlock(with) => self.inside(|walk| {
                for (target, value) in &with.assignments {
                    walk.expression(value);
                    let kind = walk.kind_of(value);
                    walk.assign(target, kind);
                }
                walk.statements(&with.body);
            }),
            Stmt::Set(set) => {
                self.expression(&set.expr);
                let kind = self.kind_of(&set.expr);
                self.assign(&set.target, kind);
            }
            Stmt::SetBlock(set) => {
                self.inside(|walk| walk.statements(&set.body));
                self.optional(set.filter.as_ref());
                self.assign(&set.target, Kind::Other);
            }
            Stmt::FilterBlock(block) => {
                self.expression(&block.filter);
                self.inside(|walk| walk.statements(&block.body));
            }
            Stmt::Macro(declared) => self.declare(declared),
            Stmt::CallBlock(block) => {
                self.call(&block.call);
                self.inside(|walk| walk.macro_body(&block.macro_decl));
            }
            Stmt::Do(call) => self.call(&call.call),
            Stmt::AutoEscape(escape) => self.refuse(
                named(escape.span(), "autoescape"),
                "every value is encoded, so `autoescape` is not needed",
            ),
            Stmt::Include(found) => {
                self.refuse(named(found.span(), "include"), format!("{ONE_FILE} `include` another"));
            }
            Stmt::Import(_) | Stmt::FromImport(_) => {
                let word = Tag::of(statement).map(|tag| tag.word).unwrap_or_default();
                self.refuse(word, "macros are taken at the top of a template, not inside of another tag");
            }
            Stmt::Extends(found) => {
                self.refuse(named(found.span(), "extends"), format!("{ONE_FILE} `extends` another"));
            }
            Stmt::Block(found) => {
                self.refuse(
                    named(found.span(), "block"),
                    "no other template can replace a `block`; write its body alone",
                );
            }
        }
    }

    /// Defines the macros that a tag takes.
    fn take(&mut self, tag: &Tag<'_, 's>) {
        let names = match tag.taken {
            Taken::All(name) => return self.assign(name, Kind::Macros),
            Taken::Macros(names) => names,
        };
        let known = self.libraries.iter().find(|parsed| Some(&*parsed.library.name) == tag.library);
        let known: Vec<&str> = known.into_iter().flat_map(|parsed| library::macros(&parsed.tree)).collect();
        for (name, alias) in names {
            if let Expr::Var(var) = name
                && !known.contains(&var.id)
            {
                let meant = nearest(var.id, known.iter().copied());
                let hint = meant.map_or_else(
                    || format!("its macros are {}", known.join(", ")),
                    |meant| format!("did you mean `{meant}`?"),
                );
                let library = tag.library.unwrap_or_default();
                self.refuse(range(var.span()), format!("`{library}` has no macro `{}`; {hint}", var.id));
            }
            self.assign(alias.as_ref().unwrap_or(name), Kind::Other);
        }
    }

    fn for_loop(&mut self, walked: &ast::ForLoop<'s>) {
        self.expression(&walked.iter);
        let kind = self.kind_of(&walked.iter).of_item();
        self.inside(|walk| {
            walk.assign(&walked.target, kind);
            walk.optional(walked.filter_expr.as_ref());
            walk.statements(&walked.body);
        });
        self.inside(|walk| walk.statements(&walked.else_body));
    }

    fn declare(&mut self, declared: &ast::Macro<'s>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(declared.name, Kind::Other);
        }
        self.inside(|walk| walk.macro_body(declared));
    }

    fn macro_body(&mut self, declared: &ast::Macro<'s>) {
        declared.args.iter().for_each(|argument| self.assign(argument, Kind::Other));
        declared.defaults.iter().for_each(|default| self.expression(default));
        self.statements(&declared.body);
    }

    fn optional(&mut self, expression: Option<&Expr<'s>>) {
        expression.into_iter().for_each(|expression| self.expression(expression));
    }

    fn expression(&mut self, expression: &Expr<'s>) {
        match expression {
            Expr::Const(_) => {}
            Expr::Var(name) => self.variable(name.id, name.span()),
            Expr::Slice(slice) => {
                self.expression(&slice.expr);
                [&slice.start, &slice.stop, &slice.step]
                    .into_iter()
                    .for_each(|bound| self.optional(bound.as_ref()));
            }
            Expr::UnaryOp(operation) => self.expression(&operation.expr),
            Expr::BinOp(operation) => self.operation(operation, operation.span()),
            Expr::Compare(chain) => self.chain(chain),
            Expr::IfExpr(choice) => {
                self.expression(&choice.test_expr);
                self.expression(&choice.true_expr);
                self.optional(choice.false_expr.as_ref());
            }
            Expr::Filter(filter) => {
                if let Some(chain) = &filter.expr {
                    self.guarded.add_filtered(filter.name, chain);
                }
                self.optional(filter.expr.as_ref());
                if filter.expr.as_ref().is_some_and(|of| self.kind_of(of) == Kind::Events) {
                    self.strays.extend(fields_in_arguments(filter, self.grammar.event_fields));
                }
                self.filter(filter.name, named(filter.span(), filter.name));
                self.names_in_arguments(filter);
                self.literals(filter.name, filter.span(), &filter.args);
                self.arguments(&filter.args);
            }
            Expr::Test(test) => {
                self.guarded.add_tested(test.name, &test.expr);
                self.expression(&test.expr);
                self.test(test.name, named(test.span(), test.name));
                self.arguments(&test.args);
            }
            Expr::GetAttr(attribute) => {
                if matches!(&attribute.expr, Expr::Var(name) if name.id == PAYLOAD && !self.is_own(name.id)) {
                    self.fields.insert(attribute.name.to_owned());
                }
                if self.kind_of(&attribute.expr) == Kind::Event {
                    let end = range(attribute.span()).end;
                    let place = end.saturating_sub(attribute.name.len())..end;
                    let stray = StrayField::new(attribute.name, place, self.grammar.event_fields);
                    self.strays.extend(stray);
                }
                self.expression(&attribute.expr);
            }
            Expr::GetItem(item) => {
                if let (Expr::Const(name), Kind::Event) = (&item.subscript_expr, self.kind_of(&item.expr)) {
                    let named = name.value.as_str().map(|text| (text, range(name.span())));
                    let fields = self.grammar.event_fields;
                    self.strays.extend(named.and_then(|(text, place)| StrayField::new(text, place, fields)));
                }
                self.expression(&item.expr);
                self.expression(&item.subscript_expr);
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => list.items.iter().for_each(|item| self.expression(item)),
            Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| self.expression(item)),
            Expr::Map(map) => map.keys.iter().chain(&map.values).for_each(|item| self.expression(item)),
        }
    }

    /// Whether the source defines the name.
    fn is_own(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| scope.contains_key(name))
    }

    /// Whether an expression is an event or a list of events.
    fn kind_of(&self, expression: &Expr<'s>) -> Kind {
        if self.grammar.event_fields.is_empty() { Kind::Other } else { kind_of(expression, &self.scopes) }
    }

    fn variable(&mut self, name: &'s str, span: Span) {
        if IMPLIED.contains(&name) || self.is_own(name) {
            return;
        }
        if filters::FUNCTIONS.contains(&name) || self.grammar.functions.contains(&name) {
            return;
        }
        if self.grammar.variables.contains(&name) {
            self.asks.insert(name.to_owned());
            return;
        }
        self.refuse(range(span), idioms::value(name).unwrap_or_else(|| (self.grammar.unknown)(name)));
    }

    fn operation(&mut self, operation: &ast::BinOp<'s>, span: Span) {
        self.expression(&operation.left);
        self.expression(&operation.right);
        // minijinja evaluates constants at compile time, so invalid ones are refused before, from
        // the inside out.
        let is_text = |side: &Expr<'_>| {
            let constant = side.as_const();
            constant.is_some_and(|value| value.as_str().is_some() || value.as_object().is_some())
        };
        let may_look = self.fault.is_none() && matches!(operation.op, BinOpKind::Mul);
        if may_look && (is_text(&operation.left) || is_text(&operation.right)) {
            self.refuse(range(span), "`*` multiplies numbers; a text or a list cannot be repeated");
        }
        let constants = [&operation.left, &operation.right].map(|side| side.as_const());
        if let Some(message) = idioms::operation(operation.op, &constants) {
            self.refuse(range(span), message);
        }
        if matches!(operation.op, BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte) {
            self.ordered([&operation.left, &operation.right]);
        }
    }

    fn chain(&mut self, chain: &ast::Compare<'s>) {
        self.expression(&chain.expr);
        let mut left = &chain.expr;
        for link in &chain.ops {
            self.expression(&link.expr);
            if matches!(
                link.op,
                CompareOpKind::Lt | CompareOpKind::Lte | CompareOpKind::Gt | CompareOpKind::Gte
            ) {
                self.ordered([left, &link.expr]);
            }
            left = &link.expr;
        }
    }

    /// Refuses to order severities: their order is not that of their texts.
    fn ordered(&mut self, sides: [&Expr<'s>; 2]) {
        // minijinja orders constants of any kinds, as it compiles them.
        if let [Some(a), Some(b)] = sides.map(|side| side.as_const())
            && operators::has_no_order(&a, &b)
        {
            let message =
                format!("a {} and a {} have no order; `int` makes a number of a text", a.kind(), b.kind());
            self.refuse(range(sides[0].span()), message);
        }
        let severity = sides.into_iter().find(|side| {
            matches!(side, Expr::Var(name) if name.id == SEVERITY && !self.is_own(name.id))
                || matches!(side, Expr::GetAttr(attribute) if attribute.name == SEVERITY)
        });
        if let Some(severity) = severity {
            let message = "severities are words, which have another order; use `in ['error', 'critical']` or `severity_filter`";
            self.refuse(range(severity.span()), message);
        }
    }

    fn call(&mut self, call: &ast::Call<'s>) {
        if let Expr::GetAttr(method) = &call.expr {
            let given = call.args.len();
            match method.name {
                "cycle" if given == 0 => {
                    self.refuse(range(call.expr.span()), "`cycle` takes the values to choose from")
                }
                "changed" if given != 1 => {
                    self.refuse(range(call.expr.span()), "`changed` takes one value here")
                }
                _ => {}
            }
            if !self.is_callable(method) {
                let end = range(method.span()).end;
                self.refuse(end.saturating_sub(method.name.len())..end, idioms::method(method.name));
            }
        }
        if let Expr::Var(name) = &call.expr {
            self.function(name);
        }
        self.expression(&call.expr);
        self.arguments(&call.args);
    }

    /// Whether an attribute is a function: of a loop, or a macro of a library.
    fn is_callable(&self, method: &ast::GetAttr<'s>) -> bool {
        let is_loop = matches!(&method.expr, Expr::Var(name) if name.id == "loop");
        (is_loop && matches!(method.name, "cycle" | "changed"))
            || kind_of(&method.expr, &self.scopes) == Kind::Macros
    }

    /// Refuses a call of a name that is no function.
    fn function(&mut self, name: &ast::Spanned<ast::Var<'s>>) {
        let own = filters::FUNCTIONS.iter().chain(self.grammar.functions).copied();
        if IMPLIED.contains(&name.id) || self.is_own(name.id) || own.clone().any(|own| own == name.id) {
            return;
        }
        let message = idioms::function(name.id, self.grammar.variables.contains(&name.id), own);
        self.refuse(range(name.span()), message);
    }

    fn arguments(&mut self, arguments: &[CallArg<'s>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(value) | CallArg::Kwarg(_, value) => self.expression(value),
                CallArg::PosSplat(value) | CallArg::KwargSplat(value) => {
                    self.refuse(
                        range(value.span()),
                        "a call lists its arguments; `*` and `**` cannot unpack them here",
                    );
                }
            }
        }
    }

    /// Checks arguments of filters that take the name of another filter or a test.
    fn names_in_arguments(&mut self, filter: &ast::Filter<'s>) {
        let place = usize::from(matches!(filter.name, "selectattr" | "rejectattr"));
        let Some(CallArg::Pos(Expr::Const(name))) = filter.args.get(place) else { return };
        let (span, Some(text)) = (name.span(), name.value.as_str()) else { return };
        match filter.name {
            "map" => {
                self.filter(text, range(span));
                self.literals(text, span, filter.args.get(place + 1..).unwrap_or_default());
            }
            "select" | "reject" | "selectattr" | "rejectattr" => self.test(text, range(span)),
            _ => {}
        }
    }

    /// Checks the arguments of filters that are compiled with the program.
    fn literals(&mut self, name: &str, span: Span, arguments: &[CallArg<'s>]) {
        let literal = match arguments.first() {
            Some(CallArg::Pos(Expr::Const(literal))) => {
                literal.value.as_str().map(|text| (text, literal.span()))
            }
            Some(_) | None => None,
        };
        let checked = match (name, literal) {
            (patterns::FIND | patterns::REPLACE, Some((pattern, _))) => {
                if let Some(CallArg::Pos(Expr::Const(text))) = arguments.get(1)
                    && let Some(message) = text.value.as_str().and_then(patterns::foreign_group)
                {
                    self.refuse(range(text.span()), message);
                }
                self.patterns.add(pattern)
            }
            (patterns::FIND | patterns::REPLACE, None) => {
                Err(format!("`{name}` takes its regular expression as a literal text"))
            }
            ("date", Some((format, _))) => formats::check_date_format(format),
            _ => Ok(()),
        };
        if let Err(message) = checked {
            let place = literal.map(|(_, place)| range(place));
            self.refuse(place.unwrap_or_else(|| named(span, name)), message);
        }
    }

    fn filter(&mut self, name: &str, place: Range<usize>) {
        let own = self.grammar.filters.iter().find(|own| **own == name);
        self.used.extend(own.copied());
        if own.is_some() || FILTERS.contains(name) {
            return;
        }
        let message = match idioms::filter(name) {
            Some(why) => why.to_owned(),
            None => {
                let known: SortedSet<&str> = FILTERS.iter().chain(self.grammar.filters).copied().collect();
                let hint = nearest(name, known).map(|nearest| format!("did you mean `{nearest}`? "));
                format!("unknown filter `{name}`; {}see `aside reference filters`", hint.unwrap_or_default())
            }
        };
        self.refuse(place, message);
    }

    fn test(&mut self, name: &str, place: Range<usize>) {
        if TESTS.contains(name) {
            return;
        }
        let meant = || nearest(name, TESTS.iter().copied()).map(|meant| format!("; did you mean `{meant}`?"));
        let hint =
            idioms::test(name).map(|instead| format!("; use {instead}")).or_else(meant).unwrap_or_default();
        self.refuse(place, format!("unknown test `{name}`{hint}"));
    }
}

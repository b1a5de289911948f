//! Runs templates and conditions: the language of minijinja, with bounds on all data that a program
//! reads and creates.
//!
//! A source is parsed, checked (`lint`), compiled by minijinja, and its code is rewritten
//! (`rewrite`). Each instruction that could cost more than a step becomes a call of a priced
//! function (`operators`). Filters, tests and functions are priced too (`filters`); no others
//! exist. All pay from one [`account::Account`], so memory and time are bounded for any author and
//! any producer. A program fails when its steps are spent, and before it creates a text or a
//! nesting that is too large.

pub(super) mod account;
mod filters;
mod guarded;
mod lint;
mod operators;
mod rewrite;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use minijinja::{
    AutoEscape, Environment, Error, State, UndefinedBehavior,
    machinery::{self, CodeGenerator, Instructions, ast},
    syntax::SyntaxConfig,
    value::Value,
};
use self_cell::self_cell;

pub(super) use self::{
    guarded::Guarded,
    lint::{Cause, Fault, Grammar, check_expression, check_template},
    rewrite::{OwnText, Trace},
};

/// The name of every program.
const NAME: &str = "template";
/// Deepest nesting of macro calls.
const RECURSION_MAX: usize = 32;

self_cell!(
    /// Code, and the source from which it borrows names.
    struct Code {
        owner: Box<str>,
        #[covariant]
        dependent: Instructions,
    }
);

/// A template or a condition, ready to run.
pub(super) struct Program {
    code: Code,
    guarded: Guarded,
}

impl Program {
    /// Compiles a template, with the accesses that [`check_template`] found to be guarded.
    ///
    /// Errors: bad syntax.
    pub(super) fn template(source: &str, guarded: Guarded, trace: Trace) -> Result<Self, Error> {
        let code = Code::try_new(source.into(), |source| {
            let tree = parse_template(source)?;
            let mut generator = CodeGenerator::new(NAME, source);
            generator.compile_stmt(&tree);
            Ok::<_, Error>(rewrite::rewrite(&generator.finish().0, &guarded, trace))
        })?;
        Ok(Self { code, guarded })
    }

    /// Compiles an expression, as [`Program::template`] does.
    ///
    /// Errors: bad syntax.
    pub(super) fn expression(source: &str, guarded: Guarded) -> Result<Self, Error> {
        let code = Code::try_new(source.into(), |source| {
            let tree = machinery::parse_expr(source)?;
            let mut generator = CodeGenerator::new(NAME, source);
            generator.compile_expr(&tree);
            Ok::<_, Error>(rewrite::rewrite(&generator.finish().0, &guarded, Trace::Off))
        })?;
        Ok(Self { code, guarded })
    }

    /// The same template, with the line of each piece of its own text.
    pub(super) fn traced(&self) -> Result<Self, Error> {
        Self::template(self.source(), self.guarded.clone(), Trace::Lines)
    }

    /// The source text.
    pub(super) fn source(&self) -> &str {
        self.code.borrow_owner()
    }

    /// Runs it with the variables of `root`, which must include [`account::ACCOUNT`]. `end` gets
    /// the value of an expression and the state after the run.
    pub(super) fn run<R>(
        &self,
        environment: &'static Environment<'static>,
        root: Value,
        output: &mut String,
        end: impl FnOnce(Option<Value>, &mut State<'_, '_>) -> R,
    ) -> Result<R, Error> {
        let blocks = BTreeMap::new();
        let mut output = machinery::make_string_output(output);
        let escape = AutoEscape::Custom("toon".into());
        let code = self.code.borrow_dependent();
        let (value, mut state) = machinery::eval(environment, code, root, &blocks, &mut output, escape)?;
        Ok(end(value, &mut state))
    }
}

/// Parses a template in the same way as [`Program::template`].
pub(super) fn parse_template(source: &str) -> Result<ast::Stmt<'_>, Error> {
    machinery::parse(source, NAME, SyntaxConfig::default())
}

/// An environment with exactly the allowed filters, tests and functions.
pub(super) fn environment(undefined: UndefinedBehavior, fuel: u64) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(undefined);
    environment.set_fuel(Some(fuel));
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_debug(true);
    operators::add_to(&mut environment);
    filters::add_to(&mut environment);
    environment
}

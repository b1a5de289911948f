//! Where templates and conditions run: minijinja's language, with a bound on everything that it
//! walks and makes.
//!
//! A source is parsed, checked (`lint`), compiled by minijinja, and its code rewritten (`rewrite`):
//! each instruction that could cost more than a step becomes a call of a priced function
//! (`operators`), and the only filters, tests and functions that exist are priced too (`filters`).
//! They pay from one [`account::Account`], so memory and time are bounded whatever an author writes
//! and a producer sends: a program that has spent its steps fails, and a text or a nesting that
//! grows too large fails before it is made.

pub(super) mod account;
mod filters;
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
    lint::{Cause, Fault, Grammar, check_expression, check_template},
    rewrite::{OwnText, Trace},
};

/// The only name of a program.
const NAME: &str = "template";
/// Deepest nesting of macro calls.
const RECURSION_MAX: usize = 32;

self_cell!(
    /// Code and the source it borrows its names from.
    struct Code {
        owner: Box<str>,
        #[covariant]
        dependent: Instructions,
    }
);

/// A template or a condition that is ready to run.
pub(super) struct Program {
    code: Code,
}

impl Program {
    /// Compiles a template.
    ///
    /// Errors: bad syntax.
    pub(super) fn template(source: &str, trace: Trace) -> Result<Self, Error> {
        let code = Code::try_new(source.into(), |source| {
            let tree = parse_template(source)?;
            let mut generator = CodeGenerator::new(NAME, source);
            generator.compile_stmt(&tree);
            Ok::<_, Error>(rewrite::rewrite(&generator.finish().0, trace))
        })?;
        Ok(Self { code })
    }

    /// Compiles an expression.
    ///
    /// Errors: bad syntax.
    pub(super) fn expression(source: &str) -> Result<Self, Error> {
        let code = Code::try_new(source.into(), |source| {
            let tree = machinery::parse_expr(source)?;
            let mut generator = CodeGenerator::new(NAME, source);
            generator.compile_expr(&tree);
            Ok::<_, Error>(rewrite::rewrite(&generator.finish().0, Trace::Off))
        })?;
        Ok(Self { code })
    }

    /// The text it was compiled from.
    pub(super) fn source(&self) -> &str {
        self.code.borrow_owner()
    }

    /// Runs it with the variables of `root`, of which [`account::ACCOUNT`] has to be one; `end`
    /// gets the value of an expression and what the run left behind.
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

/// Parses a template as [`Program::template`] does.
pub(super) fn parse_template(source: &str) -> Result<ast::Stmt<'_>, Error> {
    machinery::parse(source, NAME, SyntaxConfig::default())
}

/// An environment with everything that is allowed and nothing else.
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

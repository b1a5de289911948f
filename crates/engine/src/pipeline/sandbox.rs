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
pub(super) mod formats;
mod lint;
mod operators;
mod patterns;
mod rewrite;
mod strays;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use minijinja::{
    AutoEscape, Environment, Error, State, UndefinedBehavior,
    machinery::{self, CodeGenerator, Instructions, ast},
    syntax::SyntaxConfig,
    value::Value,
};
use self_cell::self_cell;

use self::patterns::Patterns;

pub use self::strays::StrayField;
pub(super) use self::{
    filters::Expand,
    lint::{Cause, Checked, Fault, Grammar},
    rewrite::{Guarded, OwnText, Trace},
};

/// The name of every program.
const NAME: &str = "template";
/// Deepest nesting of macro calls.
const RECURSION_MAX: usize = 32;

self_cell!(
    /// Code, and the source from which it borrows names.
    struct Code {
        owner: Arc<str>,
        #[covariant]
        dependent: Instructions,
    }
);

/// A template or a condition, ready to run.
pub(super) struct Program {
    code: Code,
    guarded: Guarded,
    patterns: Arc<Patterns>,
}

impl Program {
    /// Checks and compiles a template.
    ///
    /// Errors: bad syntax, or the first forbidden thing.
    pub(super) fn template(source: Arc<str>, grammar: &Grammar) -> Result<(Self, Checked), Fault> {
        Self::checked(source, |source| {
            let tree = parse_template(source)?;
            let checked = lint::check_template(&tree, grammar)?;
            Ok((template_code(source, &tree, &checked.guarded, Trace::Off), checked))
        })
    }

    /// Checks and compiles an expression.
    ///
    /// Errors: as for [`Program::template`].
    pub(super) fn expression(source: Arc<str>, grammar: &Grammar) -> Result<(Self, Checked), Fault> {
        Self::checked(source, |source| {
            let tree = machinery::parse_expr(source)?;
            let checked = lint::check_expression(&tree, grammar)?;
            let mut generator = CodeGenerator::new(NAME, source);
            generator.compile_expr(&tree);
            Ok((rewrite::rewrite(&generator.finish().0, &checked.guarded, Trace::Off), checked))
        })
    }

    fn checked(
        source: Arc<str>,
        compile: impl for<'s> FnOnce(&'s str) -> Result<(Instructions<'s>, Checked), Fault>,
    ) -> Result<(Self, Checked), Fault> {
        let mut found = None;
        let code = Code::try_new(source, |source| {
            let (code, checked) = compile(source)?;
            found = Some(checked);
            Ok::<_, Fault>(code)
        })?;
        let mut checked = found.expect("code was checked");
        let patterns = Arc::new(std::mem::take(&mut checked.patterns));
        Ok((Self { code, guarded: checked.guarded.clone(), patterns }, checked))
    }

    /// The same template, with the line of each piece of its own text.
    pub(super) fn traced(&self) -> Result<Self, Error> {
        let guarded = self.guarded.clone();
        let code = Code::try_new(Arc::clone(self.code.borrow_owner()), |source| {
            Ok::<_, Error>(template_code(source, &parse_template(source)?, &guarded, Trace::Lines))
        })?;
        Ok(Self { code, guarded, patterns: Arc::clone(&self.patterns) })
    }

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
        let (code, root) = (self.code.borrow_dependent(), self.patterns.with_variables(root));
        let (value, mut state) = machinery::eval(environment, code, root, &blocks, &mut output, escape)?;
        Ok(end(value, &mut state))
    }
}

fn parse_template(source: &str) -> Result<ast::Stmt<'_>, Error> {
    machinery::parse(source, NAME, SyntaxConfig::default())
}

fn template_code<'s>(
    source: &'s str,
    tree: &ast::Stmt<'s>,
    guarded: &Guarded,
    trace: Trace,
) -> Instructions<'s> {
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(tree);
    rewrite::rewrite(&generator.finish().0, guarded, trace)
}

/// An environment with exactly the allowed filters, tests and functions.
pub(super) fn environment(undefined: UndefinedBehavior, fuel: u64, expand: Expand) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(undefined);
    environment.set_fuel(Some(fuel));
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_debug(true);
    operators::add_to(&mut environment);
    filters::add_to(&mut environment, expand);
    environment
}

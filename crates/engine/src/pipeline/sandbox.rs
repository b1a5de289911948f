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
mod idioms;
mod library;
mod lint;
mod operators;
mod parts;
mod patterns;
mod rewrite;
mod source;
mod strays;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use minijinja::{
    AutoEscape, Environment, Error, State, UndefinedBehavior,
    machinery::{self, CodeGenerator, Instructions, ast},
    value::Value,
};
use self_cell::self_cell;

use self::{
    library::Parsed,
    patterns::Patterns,
    rewrite::Stretch,
    source::{NAME, parse_template},
};

pub(super) use self::{
    filters::Expand,
    library::Library,
    lint::{Checked, Grammar},
    parts::{Compares, Joined, Part, joined},
    rewrite::{Guarded, OwnText, Trace},
    source::{Cause, Fault},
};
pub use self::{library::Libraries, strays::StrayField};

/// The names of the filters, the functions and the tests that every text can use.
pub(super) fn names() -> (Vec<&'static str>, Vec<&'static str>, Vec<&'static str>) {
    (filters::filter_names().collect(), filters::FUNCTIONS.to_vec(), filters::test_names().collect())
}

/// Deepest nesting of macro calls.
const RECURSION_MAX: usize = 32;

/// A source, and the libraries that it takes macros from.
struct Source {
    text: Arc<str>,
    libraries: Vec<Library>,
}

self_cell!(
    /// Code, and the source from which it borrows names.
    struct Code {
        owner: Source,
        #[covariant]
        dependent: Instructions,
    }
);

/// A template or a condition, ready to run.
pub(super) struct Program {
    code: Code,
    /// What the source guards, and then each of its libraries.
    guarded: Vec<Guarded>,
    patterns: Arc<Patterns>,
}

/// The position of an error.
pub(super) struct ErrorPlace<'p> {
    pub(super) line: Option<usize>,
    /// The bytes of the source.
    pub(super) range: Option<Range<usize>>,
    /// The library with the error, and its line there; the rest is then the tag that takes it.
    pub(super) library: Option<(&'p str, usize)>,
}

impl Program {
    /// Checks and compiles a template, which can take macros from `libraries`.
    ///
    /// Errors: bad syntax, or the first forbidden thing.
    pub(super) fn template(
        text: Arc<str>,
        grammar: &Grammar,
        libraries: &Libraries,
    ) -> Result<(Self, Checked), Fault> {
        let libraries = libraries.taken_by(&text, None)?;
        Self::checked(Source { text, libraries }, |source| {
            let (tree, libraries) = source.parse()?;
            let mut checked = lint::check_template(&tree, &libraries, grammar)?;
            let guarded: Vec<_> = [std::mem::take(&mut checked.guarded)]
                .into_iter()
                .chain(std::mem::take(&mut checked.guarded_in))
                .collect();
            let code = source.template_code(&tree, &libraries, &guarded, Trace::Off);
            Ok((code, guarded, checked))
        })
    }

    /// Checks and compiles an expression.
    ///
    /// Errors: as for [`Program::template`].
    pub(super) fn expression(text: Arc<str>, grammar: &Grammar) -> Result<(Self, Checked), Fault> {
        Self::part(text, &[], grammar)
    }

    /// The same of the part of an expression at the end of `path`, which [`joined`] gives.
    ///
    /// Errors: as for [`Program::template`].
    pub(super) fn part(text: Arc<str>, path: &[usize], grammar: &Grammar) -> Result<(Self, Checked), Fault> {
        Self::checked(Source { text, libraries: Vec::new() }, |source| {
            let whole = machinery::parse_expr(&source.text)?;
            let tree = parts::at(&whole, path);
            let mut checked = lint::check_expression(tree, grammar)?;
            let guarded = std::mem::take(&mut checked.guarded);
            let mut generator = CodeGenerator::new(NAME, &source.text);
            generator.compile_expr(tree);
            let whole = Stretch { end: u32::MAX, guarded: &guarded, offset: 0 };
            let code = rewrite::rewrite(&generator.finish().0, &[whole], Trace::Off);
            Ok((code, vec![guarded], checked))
        })
    }

    fn checked(
        source: Source,
        compile: impl for<'s> FnOnce(&'s Source) -> Result<(Instructions<'s>, Vec<Guarded>, Checked), Fault>,
    ) -> Result<(Self, Checked), Fault> {
        let mut found = None;
        let code = Code::try_new(source, |source| {
            let (code, guarded, checked) = compile(source)?;
            found = Some((guarded, checked));
            Ok::<_, Fault>(code)
        })?;
        let (guarded, mut checked) = found.expect("code was checked");
        let patterns = Arc::new(std::mem::take(&mut checked.patterns));
        Ok((Self { code, guarded, patterns }, checked))
    }

    /// Checks a library: its macros, and those that they take from `libraries`.
    ///
    /// Errors: as for [`Program::template`].
    pub(super) fn check_library(name: &str, grammar: &Grammar, libraries: &Libraries) -> Result<(), Fault> {
        let text = libraries.text(name).map(Arc::clone).unwrap_or_default();
        let source = Source { libraries: libraries.taken_by(&text, Some(name))?, text };
        let (tree, libraries) = source.parse()?;
        lint::check_library(&tree, &libraries, grammar, Patterns::default()).map(|_| ())
    }

    /// The same template, with the line of each piece of its own text.
    pub(super) fn traced(&self) -> Result<Self, Error> {
        let Source { text, libraries } = self.code.borrow_owner();
        let source = Source { text: Arc::clone(text), libraries: libraries.clone() };
        let code = Code::try_new(source, |source| {
            let (tree, libraries) = source.parse()?;
            Ok::<_, Error>(source.template_code(&tree, &libraries, &self.guarded, Trace::Lines))
        })?;
        Ok(Self { code, guarded: self.guarded.clone(), patterns: Arc::clone(&self.patterns) })
    }

    pub(super) fn source(&self) -> &str {
        &self.code.borrow_owner().text
    }

    /// The libraries that it takes macros from, also by other libraries.
    pub(super) fn libraries(&self) -> &[Library] {
        &self.code.borrow_owner().libraries
    }

    /// The position of an error of a run.
    pub(super) fn place(&self, error: &Error) -> ErrorPlace<'_> {
        let (line, range) = (error.line(), error.range());
        let start = range.as_ref().map_or(0, |range| range.start);
        let source = self.code.borrow_owner();
        let starts = source.starts();
        let place = starts.iter().rposition(|offset| *offset as usize <= start);
        match place.and_then(|place| source.libraries.get(place)) {
            None => ErrorPlace { line, range, library: None },
            Some(library) => {
                let before = source.text.get(..library.tag.start).unwrap_or_default();
                ErrorPlace {
                    line: Some(before.matches('\n').count() + 1),
                    range: Some(library.tag.clone()),
                    library: Some((&library.name, line.unwrap_or(1))),
                }
            }
        }
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

impl Source {
    fn parse(&self) -> Result<(ast::Stmt<'_>, Vec<Parsed<'_>>), Error> {
        let mut libraries = Vec::with_capacity(self.libraries.len());
        for library in &self.libraries {
            libraries.push(Parsed { library, tree: parse_template(&library.text)? });
        }
        Ok((parse_template(&self.text)?, libraries))
    }

    /// Where each library begins in the text of all sources.
    fn starts(&self) -> Vec<u32> {
        let mut start = self.text.len() + 1;
        let starts = self.libraries.iter().map(|library| {
            let own = start;
            start += library.text.len() + 1;
            u32::try_from(own).unwrap_or(u32::MAX)
        });
        starts.collect()
    }

    fn template_code<'s>(
        &'s self,
        tree: &ast::Stmt<'s>,
        libraries: &[Parsed<'s>],
        guarded: &[Guarded],
        trace: Trace,
    ) -> Instructions<'s> {
        let mut generator = CodeGenerator::new(NAME, &self.text);
        let parts = library::compile(&mut generator, tree, libraries);
        let starts = self.starts();
        let stretch = |part: &library::Part| {
            let place = part.library.map_or(0, |place| place + 1);
            let offset = part.library.and_then(|place| starts.get(place)).copied().unwrap_or_default();
            Stretch { end: part.end, guarded: guarded.get(place).expect("one for each source"), offset }
        };
        let stretches: Vec<_> = parts.iter().map(stretch).collect();
        rewrite::rewrite(&generator.finish().0, &stretches, trace)
    }
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

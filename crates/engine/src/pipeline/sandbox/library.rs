//! Libraries: files of macros that a template takes with `from` and `import`.
//!
//! The tags are resolved when a template is compiled: the macros become a part of its code, in a
//! scope of their own. A library writes nothing by itself and sees no variable, so a text is still
//! read in one place. Inputs: the texts of all libraries by name. The names of a tag and the macros
//! are checked in `lint`.
//!
//! ```text
//! {% from "lib/time" import since %}
//! {% import "lib/time" as time %}
//! ```

use std::{ops::Range, sync::Arc};

use minijinja::{
    machinery::{
        CodeGenerator, Instruction, Span,
        ast::{Expr, Stmt},
    },
    value::Value,
};

use super::source::{Cause, Fault, named, parse_template, range};
use crate::{nearest::nearest, sorted::SortedMap};

/// Most tags of a template and its libraries: each adds the code of its library again.
const TAGS_MAX: usize = 32;
/// Deepest nesting of libraries.
const DEPTH_MAX: usize = 3;
/// The beginning of each name.
const FOLDER: &str = "lib/";

/// The libraries that templates can take macros from, by name, such as `lib/time`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Libraries(SortedMap<Arc<str>, Arc<str>>);

impl FromIterator<(Arc<str>, Arc<str>)> for Libraries {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(texts: I) -> Self {
        Self(texts.into_iter().collect())
    }
}

/// A library that a source takes macros from, itself or by another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline) struct Library {
    pub(in crate::pipeline) name: Arc<str>,
    pub(in crate::pipeline) text: Arc<str>,
    /// The bytes of the source's tag.
    pub(in crate::pipeline) tag: Range<usize>,
}

/// A parsed library.
pub(super) struct Parsed<'s> {
    pub(super) library: &'s Library,
    pub(super) tree: Stmt<'s>,
}

/// The macros that a tag takes.
pub(super) enum Taken<'t, 's> {
    /// Those with these names, each with the name that it gets.
    Macros(&'t [(Expr<'s>, Option<Expr<'s>>)]),
    /// All, as fields of a variable.
    All(&'t Expr<'s>),
}

/// A tag that takes macros.
pub(super) struct Tag<'t, 's> {
    /// The name of the library; `None` if it is no literal text.
    pub(super) library: Option<&'t str>,
    pub(super) taken: Taken<'t, 's>,
    /// The bytes of its first word.
    pub(super) word: Range<usize>,
    /// The bytes of the library's name.
    pub(super) place: Range<usize>,
}

impl<'t, 's> Tag<'t, 's> {
    /// The tag, if the statement is one.
    pub(super) fn of(statement: &'t Stmt<'s>) -> Option<Self> {
        let (expression, taken, word) = if let Stmt::FromImport(tag) = statement {
            (&tag.expr, Taken::Macros(&tag.names), named(tag.span(), "from"))
        } else if let Stmt::Import(tag) = statement {
            (&tag.expr, Taken::All(&tag.name), named(tag.span(), "import"))
        } else {
            return None;
        };
        let library = if let Expr::Const(name) = expression { name.value.as_str() } else { None };
        Some(Self { library, taken, word, place: range(expression.span()) })
    }
}

/// The statements of a source that are in no other one.
pub(super) fn statements<'t, 's>(tree: &'t Stmt<'s>) -> &'t [Stmt<'s>] {
    if let Stmt::Template(template) = tree { &template.children } else { &[] }
}

/// The span of a statement.
pub(super) fn span(statement: &Stmt<'_>) -> Span {
    macro_rules! of {
        ($($kind:ident)*) => { match statement { $(Stmt::$kind(inner) => inner.span(),)* } };
    }
    of! {
        Template EmitExpr EmitRaw ForLoop IfCond WithBlock Set SetBlock AutoEscape FilterBlock Block Import
        FromImport Extends Include Macro CallBlock Continue Break Do
    }
}

/// The names of a library's macros.
pub(super) fn macros<'s>(tree: &Stmt<'s>) -> impl Iterator<Item = &'s str> {
    statements(tree).iter().filter_map(|statement| {
        if let Stmt::Macro(declared) = statement { Some(declared.name) } else { None }
    })
}

impl Libraries {
    /// The text of a library.
    pub(in crate::pipeline) fn text(&self, name: &str) -> Option<&Arc<str>> {
        self.0.get(name)
    }

    /// The libraries that `source`, the library `own` or no library, takes macros from: each once.
    ///
    /// Errors: an unknown library, or too many or too deep ones, at the tag of `source`.
    pub(super) fn taken_by(&self, source: &str, own: Option<&str>) -> Result<Vec<Library>, Fault> {
        let mut search = Search { known: &self.0, found: Vec::new(), tags: 0 };
        // Most sources have no such tag, and are parsed once.
        if source.contains("import") {
            let tree = parse_template(source)?;
            for tag in statements(&tree).iter().filter_map(Tag::of) {
                search.follow(&tag, &tag.place, &mut own.into_iter().map(Arc::from).collect()).map_err(
                    |message| Fault {
                        message,
                        range: Some(tag.place.clone()),
                        line: None,
                        cause: Cause::Refused,
                    },
                )?;
            }
        }
        Ok(search.found)
    }
}

struct Search<'l> {
    known: &'l SortedMap<Arc<str>, Arc<str>>,
    found: Vec<Library>,
    tags: usize,
}

impl Search<'_> {
    /// Adds the library of `tag` and those that it takes; `above` are the libraries around the tag, and
    /// `place` is that of the source's tag.
    fn follow(
        &mut self,
        tag: &Tag<'_, '_>,
        place: &Range<usize>,
        above: &mut Vec<Arc<str>>,
    ) -> Result<(), String> {
        let Some(name) = tag.library else {
            return Err("the name of a library is a literal text, such as \"lib/time\"".to_owned());
        };
        let Some(text) = self.known.get(name) else { return Err(self.unknown(name)) };
        self.tags += 1;
        if self.tags > TAGS_MAX {
            return Err(format!("a template and its libraries have at most {TAGS_MAX} `from` and `import`"));
        }
        let path = above.join(" -> ");
        if above.iter().any(|one| **one == *name) {
            return Err(format!("`{name}` takes macros from itself: {path} -> {name}"));
        }
        if above.len() == DEPTH_MAX {
            return Err(format!("libraries are at most {DEPTH_MAX} deep, and this is {path} -> {name}"));
        }
        if !self.found.iter().any(|known| *known.name == *name) {
            let (name, text) = (name.into(), Arc::clone(text));
            self.found.push(Library { name, text, tag: place.clone() });
        }
        let tree = parse_template(text).map_err(|_| format!("the library `{name}` has an error"))?;
        above.push(name.into());
        for inner in statements(&tree).iter().filter_map(Tag::of) {
            self.follow(&inner, place, above).map_err(|message| match above.len() {
                1 => format!("in `{name}`: {message}"),
                _ => message,
            })?;
        }
        above.pop();
        Ok(())
    }

    fn unknown(&self, name: &str) -> String {
        if !name.starts_with(FOLDER) {
            return format!("macros are taken from a library, such as \"lib/time\", and `{name}` is none");
        }
        match nearest(name, self.known.keys().map(|known| &**known)) {
            Some(meant) => format!("there is no library `{name}`; did you mean `{meant}`?"),
            None => format!("there is no library `{name}`; it would be the file templates/{name}.toon.j2"),
        }
    }
}

/// A part of the code of a template.
pub(super) struct Part {
    /// The number of the instruction after it.
    pub(super) end: u32,
    /// The number of the library that it is from; `None` for the template's own.
    pub(super) library: Option<usize>,
}

/// Compiles the statements of `tree`, with the macros that it takes.
///
/// Shape: returns the parts in order.
pub(super) fn compile<'s>(
    generator: &mut CodeGenerator<'s>,
    tree: &Stmt<'s>,
    libraries: &[Parsed<'s>],
) -> Vec<Part> {
    let mut parts = Vec::new();
    compile_part(generator, tree, None, libraries, &mut parts);
    parts
}

fn compile_part<'s>(
    generator: &mut CodeGenerator<'s>,
    tree: &Stmt<'s>,
    own: Option<usize>,
    libraries: &[Parsed<'s>],
    parts: &mut Vec<Part>,
) {
    let end = |generator: &CodeGenerator<'s>, library| Part { end: generator.next_instruction(), library };
    for statement in statements(tree) {
        // Between its macros a library has white space.
        if own.is_some() && matches!(statement, Stmt::EmitRaw(_)) {
            continue;
        }
        let Some(tag) = Tag::of(statement) else {
            generator.compile_stmt(statement);
            continue;
        };
        let place = libraries.iter().position(|parsed| Some(&*parsed.library.name) == tag.library);
        let place = place.expect("every taken library was found");
        generator.add(Instruction::PushWith);
        parts.push(end(generator, own));
        let parsed = libraries.get(place).expect("its place");
        compile_part(generator, &parsed.tree, Some(place), libraries, parts);
        match tag.taken {
            Taken::Macros(names) => {
                names.iter().for_each(|(name, _)| generator.compile_expr(name));
                generator.add(Instruction::PopFrame);
                for (name, alias) in names.iter().rev() {
                    store(generator, alias.as_ref().unwrap_or(name));
                }
            }
            Taken::All(name) => {
                generator.add(Instruction::LoadConst(Value::from("")));
                generator.add(Instruction::ExportLocals);
                generator.add(Instruction::PopFrame);
                store(generator, name);
            }
        }
    }
    parts.push(end(generator, own));
}

fn store<'s>(generator: &mut CodeGenerator<'s>, name: &Expr<'s>) {
    if let Expr::Var(name) = name {
        generator.add(Instruction::StoreLocal(name.id));
    }
}

//! Circular imports between the files of one top module.
//!
//! A file imports another one if its code uses an item that is defined there, over any number of
//! re-exports. A re-export alone is not an import, and neither is a use in tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    Finding,
    rust_text::{Placed, Token, paths, tokens},
};

/// The module path of a file, such as `["journal", "log"]`.
type Name = Vec<String>;
/// The files that a file imports, each with an item that it uses.
type Imports = BTreeMap<Name, BTreeMap<Name, String>>;

/// The circles, each with its top module.
fn check(files: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let sources: BTreeMap<Name, Source> = files
        .iter()
        .filter_map(|(path, text)| Some((name_of(path)?, text)))
        .map(|(name, text)| (name, Source::read(text)))
        .collect();
    let imports = imports(&sources);
    let tops: BTreeSet<&String> = sources.keys().filter_map(|name| name.first()).collect();
    let of = |top: &String| -> Vec<(String, String)> {
        circles(top, &imports).into_iter().map(|circle| (top.clone(), circle)).collect()
    };
    tops.into_iter().flat_map(of).collect()
}

/// The rules that the tree itself breaks.
pub(super) fn check_tree(files: &BTreeMap<String, String>) -> Vec<Finding> {
    let broken = check(files).into_iter();
    broken.map(|(top, rule)| Finding { path: format!("src/{top}"), line: 1, rule }).collect()
}

fn name_of(path: &str) -> Option<Name> {
    let name: Name = path.strip_prefix("src/")?.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    let is_root = matches!(name.as_slice(), [only] if ["lib", "main"].contains(&only.as_str()));
    (!is_root && name.last().is_some_and(|last| last != "tests")).then_some(name)
}

/// The code of a file, without its tests.
struct Source {
    /// Paths with the inline modules around them.
    used: Vec<(Vec<String>, String)>,
    /// Paths that are only re-exported.
    exported: Vec<String>,
    /// The items that the file itself defines.
    defined: BTreeSet<String>,
}

impl Source {
    fn read(text: &str) -> Self {
        let code: Vec<Placed> =
            tokens(text).into_iter().filter(|(_, token)| !matches!(token, Token::Comment(_))).collect();
        let mut parts = Vec::new();
        split(&without_scopes(&code), &[], &mut parts);
        let (mut used, mut exported) = (Vec::new(), Vec::new());
        for (inline, code) in parts {
            let (exports, rest) = split_exports(&code);
            let words: BTreeSet<&str> = rest.iter().filter_map(|(_, token)| token.word()).collect();
            used.extend(paths(&rest).into_iter().map(|(_, path)| (inline.clone(), path)));
            for (_, path) in paths(&exports) {
                let is_used = path.rsplit("::").next().is_some_and(|last| words.contains(last));
                if is_used && inline.is_empty() {
                    used.push((inline.clone(), path.clone()));
                }
                exported.push(path);
            }
        }
        Self { used, exported, defined: defined(&code) }
    }

    /// The path by which this file imports `item`.
    fn import_of(&self, item: &str) -> Option<&str> {
        if self.defined.contains(item) {
            return None;
        }
        let used = self.used.iter().filter(|(inline, _)| inline.is_empty()).map(|(_, path)| path);
        let is_of = |path: &&String| path.rsplit_once("::").is_some_and(|(_, last)| last == item);
        self.exported.iter().chain(used).find(is_of).map(String::as_str)
    }
}

/// The names of the items outside of any braces.
fn defined(code: &[Placed]) -> BTreeSet<String> {
    const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];
    let (mut depth, mut names) = (0_usize, BTreeSet::new());
    for window in code.windows(2) {
        let [(_, kind), (_, name)] = window else { continue };
        match kind {
            Token::Mark('{') => depth += 1,
            Token::Mark('}') => depth = depth.saturating_sub(1),
            Token::Word(kind) if depth == 0 && KINDS.contains(&kind.as_str()) => {
                names.extend(name.word().map(str::to_owned));
            }
            Token::Word(_) | Token::Mark(_) | Token::PathSep | Token::Comment(_) => {}
        }
    }
    names
}

/// The code without the scopes of `pub(in ..)`, which name a module and import nothing.
fn without_scopes(code: &[Placed]) -> Vec<Placed> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while let Some(placed) = code.get(at) {
        kept.push(placed.clone());
        at += 1;
        if placed.1.is_word("pub") && matches!(code.get(at), Some((_, Token::Mark('(')))) {
            let is_end = |placed: &Placed| placed.1 == Token::Mark(')');
            at = code[at..].iter().position(is_end).map_or(code.len(), |length| at + length + 1);
        }
    }
    kept
}

/// Splits `code` into the code of each inline module, without tests.
fn split(code: &[Placed], inline: &[String], parts: &mut Vec<(Vec<String>, Vec<Placed>)>) {
    let (mut own, mut at) = (Vec::new(), 0);
    while let Some(placed) = code.get(at) {
        let name = code.get(at + 1).and_then(|(_, token)| token.word());
        let opens = matches!(code.get(at + 2), Some((_, Token::Mark('{'))));
        if let (true, Some(name), true) = (placed.1.is_word("mod"), name, opens) {
            let end = closing_brace(code, at + 2);
            if name != "tests" {
                let inner = code.get(at + 3..end).unwrap_or_default();
                split(inner, &[inline, &[name.to_owned()]].concat(), parts);
            }
            at = end + 1;
        } else {
            own.push(placed.clone());
            at += 1;
        }
    }
    parts.push((inline.to_vec(), own));
}

fn closing_brace(code: &[Placed], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, (_, token)) in code.iter().enumerate().skip(open) {
        match token {
            Token::Mark('{') => depth += 1,
            Token::Mark('}') if depth == 1 => return at,
            Token::Mark('}') => depth -= 1,
            Token::Mark(_) | Token::Word(_) | Token::PathSep | Token::Comment(_) => {}
        }
    }
    code.len()
}

/// Splits `code` into its re-exports and the rest.
fn split_exports(code: &[Placed]) -> (Vec<Placed>, Vec<Placed>) {
    let (mut exports, mut rest, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(placed) = code.get(at) {
        let is_use = code.get(at + 1).is_some_and(|(_, token)| token.is_word("use"));
        if placed.1.is_word("pub") && is_use {
            let is_end = |placed: &Placed| placed.1 == Token::Mark(';');
            let length = code[at..].iter().position(is_end).unwrap_or(code.len() - at);
            exports.extend_from_slice(&code[at + 1..at + length]);
            at += length;
        } else {
            rest.push(placed.clone());
            at += 1;
        }
    }
    (exports, rest)
}

fn imports(sources: &BTreeMap<Name, Source>) -> Imports {
    let of = |(name, source): (&Name, &Source)| {
        let mut found = BTreeMap::new();
        for (inline, path) in &source.used {
            let scope = [name.as_slice(), inline].concat();
            if let Some((file, item)) = absolute(&scope, path, sources).map(|path| resolve(path, sources))
                && file != *name
                && file.first() == name.first()
            {
                found.entry(file).or_insert(item);
            }
        }
        (name.clone(), found)
    };
    sources.iter().map(of).collect()
}

/// A path of a scope from the crate's root; `None` if it does not lead into this crate.
fn absolute(scope: &[String], path: &str, sources: &BTreeMap<Name, Source>) -> Option<Name> {
    let mut segments = path.split("::").peekable();
    let mut base = match *segments.peek()? {
        "crate" => Name::new(),
        "self" | "super" => scope.to_vec(),
        child => {
            let is_child = sources.contains_key(&[scope, &[child.to_owned()]].concat());
            return is_child.then(|| scope.iter().cloned().chain(segments.map(str::to_owned)).collect());
        }
    };
    for segment in segments {
        match segment {
            "crate" | "self" => {}
            "super" => {
                base.pop();
            }
            item => base.push(item.to_owned()),
        }
    }
    Some(base)
}

/// The file that defines the item at `path`, and the item's name.
fn resolve(path: Name, sources: &BTreeMap<Name, Source>) -> (Name, String) {
    let mut path = path;
    // More re-exports than any path has; the limit also stops a cycle of them.
    for _ in 0..8 {
        let Some(length) = (1..=path.len()).rev().find(|length| sources.contains_key(&path[..*length]))
        else {
            break;
        };
        let (file, rest) = path.split_at(length);
        let import = rest.first().and_then(|item| sources.get(file)?.import_of(item));
        let Some(next) = import.and_then(|import| absolute(file, import, sources)) else {
            return (file.to_vec(), rest.join("::"));
        };
        let next = [next.as_slice(), rest.get(1..).unwrap_or_default()].concat();
        if next == path {
            return (file.to_vec(), rest.join("::"));
        }
        path = next;
    }
    (path, String::new())
}

/// The shortest circle of each set of files in `top` that import each other.
fn circles(top: &str, imports: &Imports) -> Vec<String> {
    let mut found: Vec<Vec<&Name>> = Vec::new();
    let names = imports.keys().filter(|name| name.first().is_some_and(|first| first == top));
    let mut all: Vec<Vec<&Name>> = names.filter_map(|name| shortest_circle(name, imports)).collect();
    all.sort_by_key(Vec::len);
    for circle in all {
        if !found.iter().any(|known| circle.iter().any(|name| known.contains(name))) {
            found.push(circle);
        }
    }
    found.iter().map(|circle| describe(circle, imports)).collect()
}

fn shortest_circle<'i>(start: &'i Name, imports: &'i Imports) -> Option<Vec<&'i Name>> {
    let mut before: BTreeMap<&Name, &Name> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(name) = next.pop_front() {
        for other in imports.get(name)?.keys() {
            if other == start {
                let mut circle = vec![name];
                while let Some(name) =
                    circle.last().filter(|name| **name != start).and_then(|name| before.get(*name))
                {
                    circle.push(name);
                }
                circle.reverse();
                return Some(circle);
            }
            if imports.contains_key(other) && !before.contains_key(other) {
                before.insert(other, name);
                next.push_back(other);
            }
        }
    }
    None
}

fn describe(circle: &[&Name], imports: &Imports) -> String {
    let nexts = circle.iter().cycle().skip(1);
    let steps = circle.iter().zip(nexts).map(|(name, next)| {
        let item = imports.get(*name).and_then(|imported| imported.get(*next)).map_or("", String::as_str);
        format!("`{}` imports `{}` of `{}`", name.join("::"), item, next.join("::"))
    });
    format!("a circle of imports: {}", steps.collect::<Vec<String>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a tree of files.
    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| (format!("src/{path}"), (*text).to_owned())).collect();
        check(&files).into_iter().map(|(top, rule)| format!("{top}: {rule}")).collect()
    }

    #[test]
    fn import_cycle_is_found_for_any_path_form() {
        let parent = ("a.rs", "pub mod b; mod c; pub use self::b::B;");
        let two = "a: a circle of imports: `a::b` imports `C` of `a::c`, `a::c` imports `B` of `a::b`";
        for (b, c) in [
            ("use super::c::C; pub struct B;", "use crate::a::b::B;"),
            ("pub struct B(crate::a::c::C);", "use super::{d, B};"),
            ("pub struct B; mod inner { use super::super::c::C; }", "fn f(b: super::b::B) {}"),
        ] {
            assert_eq!(circles_of(&[parent, ("a/b.rs", b), ("a/c.rs", c)]), [two], "{b} {c}");
        }
        let files = [
            ("a.rs", "mod b; use self::b::B; pub struct A; fn f(b: B) {}"),
            ("a/b.rs", "use super::A; pub struct B(A);"),
        ];
        assert_eq!(
            circles_of(&files),
            ["a: a circle of imports: `a` imports `B` of `a::b`, `a::b` imports `A` of `a`"]
        );
        let files = [
            ("a.rs", ""),
            ("a/b.rs", "use super::c::C;"),
            ("a/c.rs", "use super::d::D;"),
            ("a/d.rs", "use super::b;"),
        ];
        let found = circles_of(&files);
        assert!(
            matches!(found.as_slice(), [only] if only.contains("`a::d` imports `` of `a::b`")),
            "{found:?}"
        );
    }

    #[test]
    fn reexports_and_tests_close_no_import_cycle() {
        let files = [
            // A re-export, a scope of visibility, and tests.
            ("a.rs", "mod b; mod c; pub use self::b::B; #[cfg(test)] mod tests { use super::b::B; }"),
            ("a/b.rs", "use super::{c::C, d}; pub(in crate::a) struct B; fn f() { d::x() }"),
            ("a/c.rs", "//! See [`super::b::B`].\npub struct C; mod tests { use super::super::b::B; }"),
            ("a/c/tests.rs", "use super::super::b::B;"),
            // An own item with the name of an import.
            ("a/d.rs", "use super::e::x as y; pub fn x() { y() }"),
            ("a/e.rs", "pub fn x() {}"),
            // Another module.
            ("e.rs", "use crate::a::B;"),
            ("lib.rs", "pub use crate::a::B;"),
        ];
        assert_eq!(circles_of(&files), Vec::<String>::new());
    }
}

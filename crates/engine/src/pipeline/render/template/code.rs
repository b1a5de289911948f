//! The code in a template, for a program that writes it in another form.

use std::ops::Range;

use minijinja::{
    machinery::{Token, tokenize},
    syntax::SyntaxConfig,
};

use super::{super::TemplateError, lint};
use crate::sorted::SortedSet;

/// The code in a template.
pub struct Code<'t> {
    /// Every name in it; also those that are no variables.
    pub names: SortedSet<&'t str>,
    /// The bytes of each `{{ .. }}`, in order.
    pub printed: Vec<Range<usize>>,
}

impl<'t> Code<'t> {
    /// Reads `source`.
    ///
    /// Errors: bad syntax.
    pub fn of(source: &'t str) -> Result<Self, TemplateError> {
        let (mut names, mut printed, mut start) = (SortedSet::new(), Vec::new(), 0);
        for token in tokenize(source, false, SyntaxConfig::default()) {
            let (token, span) = token.map_err(|error| lint::template_error(source, error.into()))?;
            if let Token::Ident(name) = token {
                names.insert(name);
            } else if let Token::VariableStart = token {
                start = span.start_offset as usize;
            } else if let Token::VariableEnd = token {
                printed.push(start..span.end_offset as usize);
            }
        }
        Ok(Self { names, printed })
    }
}

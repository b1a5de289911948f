//! `notify(text, level=.., category=.., link=..)`: a template's notice for the user.
//!
//! It writes nothing into the output. Notices are sent only if the output of the same run is
//! released: a template that fails sends none, and one that runs again for shorter texts sends each
//! once.

use minijinja::{
    Environment, Error, ErrorKind, State,
    value::{Kwargs, Value as Printed},
};

use super::filters::to_scalar;
use crate::{
    event::Severity,
    notification::{Category, Level, WORDS_MAX, Word, link},
    pipeline::{
        render::assemble::placeholders::Placeholder,
        sandbox::account::{account, weigh},
    },
    words::Words,
};

/// The name of the function.
pub(super) const NAME: &str = "notify";

/// Adds the function to `environment`.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function(NAME, notify);
}

/// The notices of one run.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// At most [`WORDS_MAX`].
    words: Vec<Word>,
    /// Number of further notices.
    more: u64,
}

impl Said {
    fn say(&mut self, word: Word) {
        if self.words.len() < WORDS_MAX {
            self.words.push(word);
        } else {
            self.more += 1;
        }
    }

    /// The notices; the last one also has the number of further ones.
    pub(super) fn words(mut self) -> Vec<Word> {
        if let Some(last) = self.words.last_mut().filter(|_| self.more > 0) {
            last.message.push_str(&format!(" [and {} more]", self.more));
        }
        self.words
    }
}

/// Adds a notice.
///
/// Shape: returns an empty text, which adds no cell and no line. An absent or null option is
/// ignored, and so is an invalid link. Errors: a blank text, an unknown option, level or category.
fn notify(state: &mut State<'_, '_>, text: &Printed, options: Kwargs) -> Result<Printed, Error> {
    let account = account(state)?;
    weigh(&account, text)?;
    let (level, category, link) = (options.get("level")?, options.get("category")?, options.get("link")?);
    options.assert_all_used()?;
    let message = Placeholder::Scalar(to_scalar(state, text)?).text();
    if message.trim().is_empty() {
        return Err(invalid("notify() has an empty text".to_owned()));
    }
    let option = |value: Option<Printed>| -> Result<Option<String>, Error> {
        let is_there = |value: &Printed| !value.is_none() && !value.is_undefined();
        let Some(value) = value.filter(is_there) else { return Ok(None) };
        weigh(&account, &value)?;
        Ok(Some(Placeholder::Scalar(to_scalar(state, &value)?).text()))
    };
    let word = Word {
        message,
        level: option(level)?.map_or(Ok(Level::default()), |word| read_level(&word))?,
        category: option(category)?.map(|word| read_category(&word)).transpose()?,
        // The link may be from an event, whose producer must control nothing but the text.
        link: option(link)?.filter(|link| link::check(link).is_ok()),
    };
    state.get_or_insert_extension_with(Said::default).say(word);
    Ok(Printed::from_safe_string(String::new()))
}

/// A level, or the severity of an event.
fn read_level(word: &str) -> Result<Level, Error> {
    let severity = || word.parse::<Severity>().ok().map(Level::of);
    Level::of_word(word)
        .or_else(severity)
        .ok_or_else(|| invalid(format!("level= is one of {}, or a severity, not `{word}`", Level::list())))
}

fn read_category(word: &str) -> Result<Category, Error> {
    Category::of_word(word)
        .ok_or_else(|| invalid(format!("category= is one of {}, not `{word}`", Category::list())))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

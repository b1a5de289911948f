//! `[sinks.command]`: a program of the user that gets each notice, such as an editor or a terminal
//! multiplexer. It is started by itself, without a shell, so a text of a notice is never a command.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use strum::{IntoStaticStr, VariantArray};

use crate::{
    event::SessionId,
    nearest::nearest,
    settings::{WrongWord, settings},
    sink::{Notice, Parts, Target},
    words::Words,
};

/// Most words of a command.
const WORDS_MAX: usize = 64;
/// Longest word of a command, in bytes.
const WORD_BYTES_MAX: usize = 4 * 1024;
/// Most names of variables.
const VARIABLES_MAX: usize = 32;
/// The default time of a run: a program that shows a text needs less.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest and longest time of a run; the next notice waits meanwhile.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

settings! {
    /// The program, by its absolute path or its name in the daemon's `PATH`, and its arguments. It is
    /// started without a shell. In an argument `{text}` is the notice in one line with its link, and
    /// `{message}`, `{title}`, `{level}`, `{context}`, `{category}`, `{link}`, `{session}`,
    /// `{workspace}` and `{id}` are its parts; `{{` is a brace. Exit code 0 means that it took it.
    command: Argv, argv(Argv::read), like "[\"tmux\", \"display-message\", \"-l\", \"{text}\"]";
    /// What it reads from its stdin: `text`, `markdown` (with the marks of a notice that has some),
    /// `json` as in the log, or `none`.
    stdin: Input = Input::Text, word();
    /// The time after which it is ended; it then failed.
    timeout: Duration = TIMEOUT, duration(TIMEOUTS);
    /// Variables of the daemon that it gets in addition to those of the user, the language and the desktop.
    variables: Vec<Variable> = Vec::new(), texts(&VARIABLE, VARIABLES_MAX);
}

/// What a program reads from its stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Input {
    /// The notice in one line.
    Text,
    /// The notice as markdown, if it has marks; else in one line.
    Markdown,
    /// A JSON object.
    Json,
    /// Nothing.
    None,
}

/// The name of an environment variable.
pub type Variable = Arc<str>;

/// The form of a variable's name.
static VARIABLE: crate::settings::Form<Variable> = crate::settings::Form {
    noun: "the name of a variable",
    note: "it has letters, digits and `_`, and begins with no digit: [\"TMUX_TMPDIR\"]",
    parse: |text| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        (is_plain && begins).then(|| text.into())
    },
};

/// A part of a notice in an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Placeholder {
    Text,
    Message,
    Title,
    Level,
    Context,
    Category,
    Link,
    Session,
    Workspace,
    Id,
}

impl Placeholder {
    /// Its value; empty if the notice has none.
    fn value(self, notice: &Notice) -> String {
        let or_empty = |text: Option<&str>| text.unwrap_or_default().to_owned();
        match self {
            Self::Text => notice.text_for(Target::Plain, Parts::ALL),
            Self::Message => notice.message_for(Target::Plain),
            Self::Title => notice.title(),
            Self::Level => notice.level.as_str().to_owned(),
            Self::Context => notice.context.to_string(),
            Self::Category => or_empty(notice.category.map(|category| category.as_str())),
            Self::Link => or_empty(notice.link.as_deref()),
            Self::Session => or_empty(notice.session.as_ref().map(SessionId::as_str)),
            Self::Workspace => or_empty(notice.workspace.as_deref()),
            Self::Id => notice.id.to_string(),
        }
    }
}

/// A part of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Fixed(Arc<str>),
    Of(Placeholder),
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argv {
    /// Its absolute path, or its name in `PATH`.
    pub program: Arc<str>,
    arguments: Vec<Vec<Piece>>,
}

impl Argv {
    /// Reads the words of a command.
    ///
    /// Errors: there is no program or too many words, the program's path is relative, or a word has an
    /// unknown placeholder.
    pub fn read(words: &[&str]) -> Result<Self, WrongWord> {
        let Some((program, arguments)) = words.split_first() else {
            return Err((0, "it is empty; name a program and its arguments".to_owned()));
        };
        if words.len() > WORDS_MAX {
            return Err((WORDS_MAX, format!("it has {} words; {WORDS_MAX} are allowed", words.len())));
        }
        for (index, word) in words.iter().enumerate() {
            if word.len() > WORD_BYTES_MAX || word.contains('\0') {
                let why = format!("a word has at most {WORD_BYTES_MAX} bytes and no zero byte");
                return Err((index, why));
            }
        }
        if program.is_empty() || program.contains('/') && !program.starts_with('/') {
            return Err((0, "the program is an absolute path, or a name in the daemon's PATH".to_owned()));
        }
        let read = |(index, word): (usize, &&str)| pieces(word).map_err(|why| (index + 1, why));
        let arguments = arguments.iter().enumerate().map(read).collect::<Result<_, WrongWord>>()?;
        Ok(Self { program: (*program).into(), arguments })
    }

    /// The arguments for a notice. None of them begins with `-` because of the notice: a blank
    /// precedes it then, so that no text is an option.
    pub fn arguments(&self, notice: &Notice) -> Vec<String> {
        self.arguments.iter().map(|pieces| filled(pieces, notice)).collect()
    }
}

impl fmt::Display for Argv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)
    }
}

fn filled(pieces: &[Piece], notice: &Notice) -> String {
    let text: String = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Fixed(text) => text.to_string(),
            Piece::Of(placeholder) => placeholder.value(notice),
        })
        .collect();
    let is_of_notice = matches!(pieces.first(), Some(Piece::Of(_)));
    if is_of_notice && text.starts_with('-') { format!(" {text}") } else { text }
}

/// The pieces of an argument.
///
/// Errors: an unknown placeholder, or a brace alone.
fn pieces(word: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut fixed, mut rest) = (Vec::new(), String::new(), word);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        fixed.push_str(before);
        if let Some(more) = after.strip_prefix("{{").or_else(|| after.strip_prefix("}}")) {
            fixed.push_str(after.get(..1).unwrap_or_default());
            rest = more;
            continue;
        }
        let named = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let Some((name, more)) = named else {
            return Err(format!("`{word}` has a brace alone; `{{{{` and `}}}}` are braces"));
        };
        if !fixed.is_empty() {
            pieces.push(Piece::Fixed(std::mem::take(&mut fixed).into()));
        }
        pieces.push(Piece::Of(Placeholder::of_word(name).ok_or_else(|| unknown(name))?));
        rest = more;
    }
    fixed.push_str(rest);
    if !fixed.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Fixed(fixed.into()));
    }
    Ok(pieces)
}

fn unknown(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    match nearest(&short, Placeholder::words()) {
        Some(meant) => format!("`{{{short}}}` is no part of a notice; did you mean `{{{meant}}}`?"),
        None => format!("`{{{short}}}` is no part of a notice; use one of {}", Placeholder::list()),
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;

    use super::*;
    use crate::notification::Level;

    fn notice(message: &str) -> Notice {
        Notice {
            level: Level::Warn,
            link: Some("https://h/1".into()),
            session: Some(SessionId::new("s1")),
            workspace: Some("/home/u/shop".into()),
            ..Notice::new("u1", message, Timestamp::ZERO)
        }
    }

    fn filled(words: &[&str], message: &str) -> Vec<String> {
        Argv::read(words).expect("valid").arguments(&notice(message))
    }

    #[test]
    fn placeholders_are_parts_of_the_notice() {
        let words =
            ["p", "{level}: {message}", "{title}", "{text}", "{category}", "#{{x}} {session}{id}", ""];
        let expected = ["warn: hi", "llm @ shop", "hi (https://h/1)", "", "#{x} s1u1", ""];
        assert_eq!(filled(&words, "hi"), expected);
    }

    #[test]
    fn no_text_of_a_notice_is_an_option() {
        assert_eq!(filled(&["p", "{message}"], "--exec=rm"), [" --exec=rm"]);
        assert_eq!(filled(&["p", "{category}{message}"], "-x"), [" -x"]);
        assert_eq!(filled(&["p", "--", "-m{message}"], "-x"), ["--", "-m-x"], "the user's own");
        assert_eq!(filled(&["p", "{message}"], "$(reboot); `x` | y"), ["$(reboot); `x` | y"], "one argument");
    }

    #[test]
    fn invalid_commands_name_the_word() {
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        let many = vec!["x"; WORDS_MAX + 1];
        for (words, index, expected) in [
            (&[][..], 0, "it is empty"),
            (&["bin/tmux"], 0, "the program is an absolute path"),
            (&[""], 0, "the program is an absolute path"),
            (&["tmux", "{mesage}"], 1, "`{mesage}` is no part of a notice; did you mean `{message}`?"),
            (&["tmux", "a", "{}"], 2, "`{}` is no part of a notice; use one of text, message"),
            (&["tmux", "{text"], 1, "has a brace alone"),
            (&["tmux", "text}"], 1, "has a brace alone"),
            (&["tmux", "a\0b"], 1, "no zero byte"),
            (&["tmux", &long], 1, "at most 4096 bytes"),
            (&many, WORDS_MAX, "it has 65 words"),
        ] {
            let (at, why) = Argv::read(words).expect_err("refused");
            assert!(at == index && why.contains(expected), "{words:?}: {at} {why}");
        }
    }
}

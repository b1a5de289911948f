//! The JSON of questions to the user: requests, answers and open questions.

use std::{sync::Arc, time::Duration};

use engine::{
    notification::Category,
    request::{self, FieldError, Text, hint},
    sink::{
        Question, clean_line,
        question::{ASKED_FOR_DEFAULT, Awaited, CHOICE_CHARS_MAX, CHOICES},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::api::wire::{
    notify::{NoticeBody, NotifyRequest},
    watches::read_expires,
};

/// The letter of a question's id, and how many hexadecimal digits follow.
pub(crate) const ID_KIND: char = 'q';
const ID_DIGITS: usize = 16;

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionRequest {
    /// Its id, by which a repeated request is the same question: `q` and 16 lower-case hexadecimal
    /// digits.
    pub id: Option<String>,
    /// The fields that it shares with notices.
    pub notice: NotifyRequest,
    /// The choices.
    pub choices: Vec<Arc<str>>,
    /// How long it waits.
    pub expires: Duration,
    /// The recipient of the answer.
    pub awaited: Awaited,
}

impl QuestionRequest {
    /// Parses the body of a request.
    ///
    /// Errors: the first invalid field, an unknown one, or an empty message.
    pub fn read(body: &[u8]) -> Result<Self, FieldError> {
        let body: QuestionBody<'_> = request::read_body(body)?;
        let notice = NoticeBody {
            message: body.message,
            markdown: body.markdown,
            link: body.link,
            key: None,
            progress: None,
            level: body.level,
            context: body.context,
            category: body.category,
            session: body.session,
            workspace: body.workspace,
        };
        Ok(Self {
            id: body.id.map(|id| read_id(&id)).transpose()?,
            notice: notice.try_into()?,
            choices: read_choices(&body.choices.unwrap_or_default())?,
            expires: body.expires.map_or(Ok(ASKED_FOR_DEFAULT), |text| read_expires(&text))?,
            awaited: if body.awaited == Some(true) { Awaited::ByCaller } else { Awaited::BySession },
        })
    }
}

/// A question as requested; serde cannot refuse unknown fields of a flattened [`NoticeBody`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionBody<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    message: Text<'a>,
    markdown: Option<bool>,
    #[serde(borrow)]
    link: Option<Text<'a>>,
    #[serde(default, borrow, deserialize_with = "request::texts")]
    choices: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    expires: Option<Text<'a>>,
    awaited: Option<bool>,
    #[serde(borrow)]
    level: Option<&'a RawValue>,
    #[serde(borrow)]
    context: Option<Text<'a>>,
    #[serde(default, deserialize_with = "request::trimmed_word")]
    category: Option<Category>,
    #[serde(borrow)]
    session: Option<Text<'a>>,
    #[serde(borrow)]
    workspace: Option<Text<'a>>,
}

fn read_id(text: &str) -> Result<String, FieldError> {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let digits =
        text.strip_prefix(ID_KIND).filter(|digits| digits.len() == ID_DIGITS && digits.chars().all(is_digit));
    let wrong = || {
        FieldError::new("id", format!("must be `{ID_KIND}` and {ID_DIGITS} digits from 0 to 9 and a to f"))
    };
    digits.map(|_| text.to_owned()).ok_or_else(wrong)
}

/// The distinct choices, each on one line that is never cut, because the answer must equal an
/// offered choice.
fn read_choices(texts: &[Text<'_>]) -> Result<Vec<Arc<str>>, FieldError> {
    let mut choices: Vec<Arc<str>> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let wrong = |message: String| FieldError::new(format!("choices[{index}]"), message);
        let choice = clean_line(text, text.chars().count());
        let count = choice.chars().count();
        if count == 0 || count > CHOICE_CHARS_MAX {
            return Err(wrong(format!("has 1 to {CHOICE_CHARS_MAX} characters, not {count}")));
        }
        if choices.iter().any(|known| **known == *choice) {
            return Err(wrong(format!("`{choice}` is given twice")));
        }
        choices.push(choice.into());
    }
    if CHOICES.contains(&choices.len()) {
        return Ok(choices);
    }
    let (least, most) = (CHOICES.start(), CHOICES.end());
    let message = format!("must be {least} to {most} texts, such as [\"yes\",\"no\"], not {}", choices.len());
    Err(FieldError::new("choices", message))
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRequest {
    /// The selected choice.
    pub answer: Arc<str>,
    /// Whether the session of the question may answer it.
    pub own: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody<'a> {
    #[serde(borrow)]
    answer: Text<'a>,
    own: Option<bool>,
}

/// Parses which of `choices` the body of a request selects.
///
/// Errors: the body selects none of them.
pub fn read_answer(body: &[u8], choices: &[Arc<str>]) -> Result<AnswerRequest, FieldError> {
    let AnswerBody { answer, own } = request::read_body(body)?;
    let answer = clean_line(&answer, CHOICE_CHARS_MAX);
    let words: Vec<&str> = choices.iter().map(|choice| &**choice).collect();
    let wrong = || FieldError::new("answer", format!("`{answer}`: {}", hint(&answer, &words)));
    let own = own.unwrap_or_default();
    let answer = choices.iter().find(|choice| ***choice == *answer).cloned().ok_or_else(wrong)?;
    Ok(AnswerRequest { answer, own })
}

/// An open question.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct QuestionView {
    /// Its id.
    pub id: String,
    /// The question.
    pub message: String,
    /// The choices.
    pub choices: Vec<String>,
    /// `info`, `warn` or `error`.
    pub level: String,
    /// Its context.
    pub context: String,
    /// When it was asked.
    pub asked_at: String,
    /// When it expires.
    pub expires_at: String,
    /// The session that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The folder that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

impl From<&Question> for QuestionView {
    fn from(question: &Question) -> Self {
        Self {
            id: question.id.to_string(),
            message: question.message.to_string(),
            choices: question.choices.iter().map(ToString::to_string).collect(),
            level: question.level.as_str().to_owned(),
            context: question.context.to_string(),
            asked_at: question.asked_at.to_string(),
            expires_at: question.expires_at.to_string(),
            session: question.session.as_ref().map(ToString::to_string),
            workspace: question.workspace.as_deref().map(str::to_owned),
        }
    }
}

/// The open questions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct QuestionList {
    /// Oldest first.
    pub questions: Vec<QuestionView>,
}

/// The end of a question.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct QuestionEnd {
    /// Its id.
    pub question: String,
    /// `answered` or `expired`.
    pub state: String,
    /// The chosen answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Origin of the answer: `desktop`, `user` for a command or request, or the session whose
    /// client ran that command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The answer to a new question.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct Asked {
    /// The question.
    pub question: QuestionView,
    /// The sinks that show it.
    pub sinks: Vec<String>,
    /// Why no sink shows it: `rate_limited`, `no_sink` or `filtered`. It can still be answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::notification::Level;

    fn read(text: &str) -> Result<QuestionRequest, String> {
        QuestionRequest::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn question_defaults_its_missing_fields() {
        let whole = r#"{"id":"q00ff00ff00ff00ff","message":"Deploy?","choices":["yes"," not\nnow "],"expires":"20m","awaited":true,"level":"warn","category":" workflow "}"#;
        let found = read(whole).expect("a question");
        assert_eq!((found.notice.level, found.notice.category), (Level::Warn, Some(Category::Workflow)));
        assert_eq!(found.choices, ["yes".into(), "not now".into()]);
        assert_eq!(found.id.as_deref(), Some("q00ff00ff00ff00ff"));
        assert_eq!((found.expires, found.awaited), (Duration::from_secs(1_200), Awaited::ByCaller));
        let short = read(r#"{"message":"Deploy?","choices":["yes","no"]}"#).expect("a question");
        assert_eq!((short.expires, short.awaited), (ASKED_FOR_DEFAULT, Awaited::BySession));
    }

    #[test]
    fn question_error_names_the_invalid_field() {
        let long = format!(r#"{{"message":"x","choices":["yes","{}"]}}"#, "n".repeat(41));
        for (text, expected) in [
            (
                r#"{"id":"q00FF00ff00ff00ff","message":"x"}"#,
                "id: must be `q` and 16 digits from 0 to 9 and a to f",
            ),
            (r#"{"id":"u00ff00ff00ff00ff","message":"x"}"#, "id: must be"),
            (r#"{"message":"x"}"#, "choices: must be 2 to 4 texts, such as [\"yes\",\"no\"], not 0"),
            (r#"{"message":"x","choices":["yes"]}"#, "not 1"),
            (r#"{"message":"x","choices":["a","b","c","d","e"]}"#, "not 5"),
            (r#"{"message":"x","choices":["a","a"]}"#, "choices[1]: `a` is given twice"),
            (r#"{"message":"x","choices":["a"," "]}"#, "choices[1]: has 1 to 40 characters, not 0"),
            (r#"{"message":"x","choices":["a",7]}"#, "choices[1]: must be a string"),
            (r#"{"message":" ","choices":["a","b"]}"#, "message: is empty"),
            (r#"{"message":"x","choices":["a","b"],"expires":"8d"}"#, "expires: must be a duration"),
            (r#"{"message":"x","choice":["a","b"]}"#, "did you mean `choices`?"),
            (&long, "choices[1]: has 1 to 40 characters, not 41"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_answer_is_one_of_the_choices() {
        let choices = ["yes".into(), "no".into()];
        let answer = |text: &str| read_answer(text.as_bytes(), &choices).map_err(|error| error.to_string());
        assert_eq!(answer(r#"{"answer":" no "}"#), Ok(AnswerRequest { answer: "no".into(), own: false }));
        assert_eq!(answer(r#"{"answer":"no","own":true}"#).map(|said| said.own), Ok(true));
        let wrong = answer(r#"{"answer":"yess"}"#).expect_err("none of them");
        assert_eq!(wrong, "answer: `yess`: did you mean `yes`?");
        assert_eq!(answer("{}").expect_err("none"), "answer: is missing");
    }
}

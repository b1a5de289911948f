//! The JSON of notices to the user.

use std::sync::Arc;

use engine::{
    event::{SessionId, mask_secrets},
    notification::{Category, Level, link},
    request::{self, FieldError, Text, names::read_name},
    sink::{
        CONTEXT_CHARS_MAX, CONTEXT_DEFAULT, MESSAGE_CHARS_MAX, Notice, Progress, clean_line, clean_markdown,
        notice::{DONE, KEY_CHARS_MAX},
    },
};
use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::api::wire::read_folder;

/// A request for a notice to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyRequest {
    /// One line without escapes, control characters and secrets, in markdown with the lines of fenced
    /// code; never empty, at most 1,000 characters, and `\u{2026} [+N chars]` if it was cut.
    pub message: String,
    /// Whether the message is markdown.
    pub is_markdown: bool,
    /// The web address to open, at most 2,000 characters, with secrets masked.
    pub link: Option<Arc<str>>,
    /// The key of the notices that it replaces, and the progress in percent.
    pub progress: Option<Progress>,
    /// The level.
    pub level: Level,
    /// The context: one line of at most 64 characters, and `\u{2026} [+N chars]` if it was cut.
    pub context: String,
    /// The category.
    pub category: Option<Category>,
    /// The session of origin.
    pub session: Option<SessionId>,
    /// The folder of origin, if no session is known.
    pub workspace: Option<Arc<str>>,
}

impl NotifyRequest {
    /// Parses the body of a request.
    ///
    /// Shape: an unknown level means `info`. Errors: the first invalid field, an unknown one, or an
    /// empty message.
    pub fn read(body: &[u8]) -> Result<Self, FieldError> {
        request::read_body::<NoticeBody<'_>>(body)?.try_into()
    }

    /// The requested notice, made at `now` by that session or folder.
    pub fn into_notice(
        self,
        id: &str,
        session: Option<SessionId>,
        workspace: Option<Arc<str>>,
        now: Timestamp,
    ) -> Notice {
        let Self { message, is_markdown, link, progress, level, context, category, .. } = self;
        let context = context.into();
        Notice {
            is_markdown,
            link,
            progress,
            level,
            context,
            category,
            session,
            workspace,
            ..Notice::new(id, &message, now)
        }
    }
}

/// A notice as requested.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoticeBody<'a> {
    #[serde(borrow)]
    pub(super) message: Text<'a>,
    pub(super) markdown: Option<bool>,
    #[serde(borrow)]
    pub(super) link: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) key: Option<Text<'a>>,
    pub(super) progress: Option<u32>,
    /// Not checked: an unknown level means `info`.
    #[serde(borrow)]
    pub(super) level: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) context: Option<Text<'a>>,
    #[serde(default, deserialize_with = "request::trimmed_word")]
    pub(super) category: Option<Category>,
    #[serde(borrow)]
    pub(super) session: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) workspace: Option<Text<'a>>,
}

impl TryFrom<NoticeBody<'_>> for NotifyRequest {
    type Error = FieldError;

    fn try_from(body: NoticeBody<'_>) -> Result<Self, FieldError> {
        let is_markdown = body.markdown.unwrap_or_default();
        let clean = if is_markdown { clean_markdown } else { clean_line };
        let message = clean(&body.message, MESSAGE_CHARS_MAX);
        if message.is_empty() {
            return Err(FieldError::new("message", "is empty"));
        }
        let context = body.context.map(|context| clean_line(&context, CONTEXT_CHARS_MAX));
        Ok(Self {
            message,
            is_markdown,
            progress: read_progress(body.key.as_deref(), body.progress)?,
            link: body.link.as_deref().map(read_link).transpose()?,
            level: body.level.map(read_level).unwrap_or_default(),
            context: context.filter(|text| !text.is_empty()).unwrap_or_else(|| CONTEXT_DEFAULT.to_owned()),
            category: body.category,
            session: read_name("session", body.session)?.map(|id| SessionId::new(&id)),
            workspace: read_folder("workspace", body.workspace)?,
        })
    }
}

fn read_level(raw: &RawValue) -> Level {
    serde_json::from_str::<Text<'_>>(raw.get()).map(|word| Level::read(&word)).unwrap_or_default()
}

fn read_progress(key: Option<&str>, percent: Option<u32>) -> Result<Option<Progress>, FieldError> {
    let percent =
        percent.map(|count| u8::try_from(count).ok().filter(|percent| *percent <= DONE).ok_or(count));
    let wrong = |count: u32| FieldError::new("progress", format!("must be from 0 to {DONE}, not {count}"));
    let percent = percent.transpose().map_err(wrong)?;
    let Some(key) = key else {
        let missing = FieldError::new("progress", "needs `key`, which names the work");
        return percent.map_or(Ok(None), |_| Err(missing));
    };
    let key = clean_line(key, key.chars().count());
    match key.chars().count() {
        1..=KEY_CHARS_MAX => Ok(Some(Progress::new(&key, percent))),
        count => Err(FieldError::new("key", format!("has 1 to {KEY_CHARS_MAX} characters, not {count}"))),
    }
}

fn read_link(text: &str) -> Result<Arc<str>, FieldError> {
    let text = text.trim();
    link::check(text).map_err(|error| FieldError::new("link", error.to_string()))?;
    Ok(mask_secrets(text).into())
}

/// The sinks of a notice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct NotifyAnswer {
    /// `Notification sent: ` and the message, in brackets when it is sent later; or
    /// `Notification not sent: ` and the message, in brackets why it goes to no sink.
    pub text: String,
    /// Its id, which `aside why` takes.
    pub id: String,
    /// The sinks that receive it.
    pub sinks: Vec<String>,
    /// Why no sink receives it: `repeat`, `rate_limited`, `no_sink` or `filtered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<String>,
}

/// The sinks for notices to the user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SinkList {
    /// The sinks, in the order of `default`.
    pub sinks: Vec<SinkView>,
}

/// The status of a sink, as far as it is known without sending.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SinkView {
    /// `harness`, `desktop`, `log`, `ntfy`, `webhook` or `apprise`.
    pub name: String,
    /// Its destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Why it can deliver nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NotifyRequest, String> {
        NotifyRequest::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn notify_request_defaults_its_missing_fields() {
        let expected = NotifyRequest {
            message: "Tests **pass**.".to_owned(),
            is_markdown: true,
            link: Some("https://ci.example/1?token=[masked]".into()),
            progress: Some(Progress::new("suite", Some(100))),
            level: Level::Warn,
            context: "build".to_owned(),
            category: Some(Category::Workflow),
            session: Some(SessionId::new("s1")),
            workspace: Some("/w".into()),
        };
        let whole = r#"{"message":"  Tests\n**pass**. ","markdown":true,
            "key":" suite\n","progress":100,"link":" https://ci.example/1?token=ghp_0123456789abcdefABCDEF0123456789abcd","level":"warn","context":"build","category":"workflow","session":"s1","workspace":"/w/"}"#;
        assert_eq!(read(whole), Ok(expected));
        let short = read(r#"{"message":"x"}"#).expect("a request");
        assert_eq!((short.is_markdown, &short.link), (false, &None));
        assert_eq!((short.level, short.context.as_str(), short.category), (Level::Info, "llm", None));
    }

    #[test]
    fn a_level_that_is_none_is_info() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for (level, expected) in [
            (r#""info""#, Level::Info),
            (r#""warn""#, Level::Warn),
            (r#""WARNING""#, Level::Warn),
            (r#""error""#, Level::Error),
            (r#""critical""#, Level::Info),
            (r#""""#, Level::Info),
            (r#""w\u0061rn""#, Level::Warn),
            (r#""\ud800""#, Level::Info),
            ("7", Level::Info),
            ("1e999", Level::Info),
            (&deep, Level::Info),
            ("null", Level::Info),
        ] {
            let found = read(&format!(r#"{{"message":"x","level":{level}}}"#)).expect("a request");
            assert_eq!(found.level, expected, "{level}");
        }
    }

    #[test]
    fn blanks_around_a_category_are_ignored() {
        let found = read(r#"{"message":"x","category":" workflow\n"}"#).expect("a request");
        assert_eq!(found.category, Some(Category::Workflow));
    }

    #[test]
    fn notify_message_loses_control_characters_and_secrets() {
        let message = r#"{"message":"ok\u001b[31m red\n2026-11-25 ERROR forged\r\u0007\u202e ghp_0123456789abcdefABCDEF0123456789abcd"}"#;
        let found = read(message).expect("a request");
        assert_eq!(found.message, "ok red 2026-11-25 ERROR forged ghp_[masked]");
        let long = read(&format!(r#"{{"message":"{}"}}"#, "x".repeat(1_500))).expect("a request");
        assert_eq!(
            long.message.chars().count(),
            "x".repeat(1_000).len() + "\u{2026} [+500 chars]".chars().count()
        );
    }

    #[test]
    fn notify_error_names_the_invalid_field() {
        for (text, expected) in [
            ("{}", "message: is missing"),
            (r#"{"message":" \n\u001b[0m "}"#, "message: is empty"),
            (r#"{"message":7}"#, "message: must be a string"),
            (
                r#"{"message":"x","category":"workflows"}"#,
                "category: `workflows` is not allowed; did you mean `workflow`?",
            ),
            (r#"{"message":"x","category":7}"#, "category: must be a string, not a number"),
            (r#"{"message":"x","category":""}"#, "category: `` is not allowed; use one of"),
            (r#"{"message":"x","link":"file:///etc/passwd"}"#, "link: must begin with https:// or http://"),
            (r#"{"message":"x","progress":40}"#, "progress: needs `key`, which names the work"),
            (r#"{"message":"x","key":"k","progress":101}"#, "progress: must be from 0 to 100, not 101"),
            (r#"{"message":"x","key":"k","progress":-1}"#, "progress: must be a whole number"),
            (r#"{"message":"x","key":" \n"}"#, "key: has 1 to 64 characters, not 0"),
            (r#"{"message":"x","link":7}"#, "link: must be a string"),
            (r#"{"message":"x","markdown":"yes"}"#, "markdown: must be true or false, not a string"),
            (r#"{"message":"x","levl":"warn"}"#, "did you mean `level`?"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

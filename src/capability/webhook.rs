//! Webhooks: messages of other programs about events there, and their conversion to our events.
//!
//! This module is independent of HTTP: a caller passes a function that returns headers, and the
//! body. First the [`signature`] is checked, then the body is parsed, then the first matching
//! [`Row`] defines the event. A body without a matching row becomes `webhook.KIND.EVENT`.
//! [`alerts`] reads alerts. Only the fields that a row names are built (`body.rs`).

pub mod alerts;
mod body;
pub mod signature;

use engine::{
    event::{EventType, Severity},
    raw_json,
};
use serde_json::{Map, Value};
use strum::{IntoStaticStr, VariantArray};

pub use self::body::Path;
use self::body::{Fields, Top, clean};

engine::words::impl_as_str!(Kind);

/// The kind of sender, which determines how a body is signed and where its event is named. Its word
/// is the name in paths and in `aside.toml`, and the source of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, strum::Display, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// GitHub: <https://docs.github.com/en/webhooks/webhook-events-and-payloads>.
    Github,
    /// GitLab: <https://docs.gitlab.com/user/project/integrations/webhooks/>.
    Gitlab,
    /// Forgejo and Gitea, which send the same as GitHub with headers of their own.
    Forgejo,
    /// Standard Webhooks:
    /// <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>.
    Standard,
    /// Alertmanager's webhook receiver.
    Alertmanager,
}

impl Kind {
    /// Whether it signs its webhooks with a secret.
    pub const fn signs(self) -> bool {
        !matches!(self, Self::Alertmanager)
    }

    /// The senders that rows can be for; alerts are read without rows.
    pub fn with_rows() -> Vec<Self> {
        Self::VARIANTS.iter().copied().filter(|kind| *kind != Self::Alertmanager).collect()
    }

    /// Its description in `config/aside.toml`.
    pub const fn about(self) -> &'static [&'static str] {
        match self {
            Self::Github => &[" GitHub. The secret is the one of the webhook's settings there."],
            Self::Gitlab => &[" GitLab. The secret is the secret token, or the signing token `whsec_..`."],
            Self::Forgejo => &[" Forgejo and Gitea."],
            Self::Standard => {
                &[" Any sender that signs as Standard Webhooks defines, with a secret `whsec_..`."]
            }
            Self::Alertmanager => &[
                " Alertmanager with its notifications, and Prometheus with its alerts at /api/v2/alerts.",
                " They send a token of the daemon with the scope `publish`.",
            ],
        }
    }

    /// The headers that may name the event; the first existing one counts.
    const fn event_headers(self) -> &'static [&'static str] {
        match self {
            Self::Github => &["x-github-event"],
            Self::Gitlab => &["x-gitlab-event"],
            Self::Forgejo => &["x-forgejo-event", "x-gitea-event"],
            Self::Standard | Self::Alertmanager => &[],
        }
    }
}

/// The field of a payload with a commit.
const COMMIT: &str = "commit";
/// Characters of a commit, as in the events about pushes.
const COMMIT_CHARS: usize = 9;

/// A commit's whole hash, cut to the part that is shown; any other value as it is.
fn short_commit(value: Value) -> Value {
    let is_hash =
        |text: &&str| matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let short = value.as_str().filter(is_hash).and_then(|text| text.get(..COMMIT_CHARS)).map(Value::from);
    short.unwrap_or(value)
}

/// Returns the value of a header, by its name in lower case.
pub type Headers<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The conversion of a body to an event; the first matching row counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The sender.
    pub from: Kind,
    /// The event, as named by the sender.
    pub event: String,
    /// Conditions on the body: a path, and the texts of which its value must be one.
    pub when: Vec<(Path, Vec<String>)>,
    /// The type of the resulting event.
    pub event_type: EventType,
    /// Its severity; `None` for the catalogue's severity of the type.
    pub severity: Option<Severity>,
    /// The fields of the payload, and the paths of each in the body; the first with a value counts.
    pub payload: Vec<(String, Vec<Path>)>,
}

/// The content of a body, without the id and time of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct EventContent {
    /// The event's type.
    pub event_type: EventType,
    /// Its severity; `None` for the catalogue's severity of the type.
    pub severity: Option<Severity>,
    /// Its payload, without control characters; each text has at most 500 characters.
    pub payload: Map<String, Value>,
    /// A key that is the same for events about the same thing.
    pub dedupe_key: Option<String>,
}

/// Reads `body`, sent by `kind` with these `headers`; the first matching one of `rows` counts.
///
/// Errors: the body is not JSON.
pub fn said<'r>(
    kind: Kind,
    headers: Headers<'_>,
    body: &str,
    rows: impl Iterator<Item = &'r Row>,
) -> Result<EventContent, serde_json::Error> {
    let body = raw_json::json(body)?;
    let header = kind.event_headers().iter().find_map(|name| headers(name));
    let event = match header {
        Some(event) => event,
        None => Top::read(body)?.named.unwrap_or_default(),
    };
    let rows: Vec<&Row> = rows.filter(|row| row.from == kind && row.event == event).collect();
    let wanted = |row: &&'r Row| {
        let conditions = row.when.iter().map(|(path, _)| path);
        conditions.chain(row.payload.iter().flat_map(|(_, paths)| paths))
    };
    let found = Fields::read(body, rows.iter().flat_map(wanted))?;
    let fits = |row: &&&Row| {
        row.when.iter().all(|(path, texts)| found.get(path).is_some_and(|found| is_one(found, texts)))
    };
    let Some(row) = rows.iter().find(fits) else { return Ok(unmatched(kind, &event, Top::read(body)?)) };
    let field = |(name, paths): &(String, Vec<Path>)| {
        let value = clean(paths.iter().find_map(|path| found.get(path))?);
        Some((name.clone(), if name == COMMIT { short_commit(value) } else { value }))
    };
    Ok(EventContent {
        event_type: row.event_type.clone(),
        severity: row.severity,
        payload: row.payload.iter().filter_map(field).collect(),
        dedupe_key: None,
    })
}

fn is_one(found: &Value, texts: &[String]) -> bool {
    match found.as_str() {
        Some(found) => texts.iter().any(|text| text == found),
        None => texts.contains(&found.to_string()),
    }
}

/// A body without a matching row: the sender's name of the event, and the plain fields of the body.
fn unmatched(kind: Kind, event: &str, top: Top) -> EventContent {
    let names = [Some(event), top.action.as_deref()].into_iter().flatten().map(segment);
    let names = names.filter(|name| !name.is_empty());
    let name = std::iter::once(format!("webhook.{kind}")).chain(names).collect::<Vec<_>>().join(".");
    EventContent {
        event_type: name.parse().unwrap_or_else(|_| unnamed()),
        severity: None,
        payload: top.plain,
        dedupe_key: None,
    }
}

fn unnamed() -> EventType {
    "webhook.other".parse().expect("a valid literal")
}

/// Converts another program's name of an event to a segment of a type: `Merge Request Hook` is
/// `merge_request_hook`.
fn segment(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '_' };
    // A name with dots already consists of segments.
    let parts = name.split('.').map(|part| part.chars().take(40).map(plain).collect::<String>());
    parts.filter(|part| !part.is_empty()).take(4).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests;

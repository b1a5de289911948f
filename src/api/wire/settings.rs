//! The JSON of a user's settings.

pub use engine::user::OWN_USER;

use std::sync::Arc;

use engine::{
    event::{Pattern, SessionId},
    notification::{Activation, Priority, SubscriberId},
    pipeline::{
        condition::Condition,
        mute::{MUTES_MAX, Mute},
    },
    request::{
        self, FieldError, Text,
        names::{read_name, read_workspace},
    },
    user::{DISABLED_MAX, UserSettings},
    words::Words,
};
use journal::time::hours::{Hours, HoursError};
use serde::{Deserialize, Serialize};

/// The settings of a user, as requested: all of them; what is not named is as if nothing was set.
#[derive(Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsBody<'a> {
    /// The subscribers that deliver nothing.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Vec<String>>))]
    disabled: Option<Vec<Text<'a>>>,
    /// The kinds of notifications that are not delivered.
    #[serde(borrow)]
    mute: Option<Vec<MuteBody<'a>>>,
    /// The hours in which only critical notifications are delivered, such as `22:00-07:00` and `sat`.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Vec<String>>))]
    quiet: Option<Vec<Text<'a>>>,
    /// The most that a notification may do by itself: `passive`, `prompt` or `active`.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    level: Option<Text<'a>>,
}

/// A mute as requested: what all of these match.
#[derive(Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct MuteBody<'a> {
    /// A subscriber.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    subscriber: Option<Text<'a>>,
    /// Patterns of event types.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Vec<String>>))]
    types: Option<Vec<Text<'a>>>,
    /// A source of events.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    source: Option<Text<'a>>,
    /// A tool, as the payload's `tool_name`.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    tool: Option<Text<'a>>,
    /// An expression over an event, in the language of a subscriber's `where`.
    #[serde(borrow, rename = "where")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    condition: Option<Text<'a>>,
    /// The lowest priority that passes.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    below: Option<Text<'a>>,
    /// A session.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    session: Option<Text<'a>>,
    /// A folder: its sessions, and those below it.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    workspace: Option<Text<'a>>,
}

/// Reads the body of a request. Of equal mutes there is one.
///
/// Errors: the first invalid or unknown field; a body that names none.
pub(crate) fn read(body: &[u8]) -> Result<UserSettings, FieldError> {
    let SettingsBody { disabled, mute, quiet, level } = request::read_body(body)?;
    if disabled.is_none() && mute.is_none() && quiet.is_none() && level.is_none() {
        let message = "is missing: a body names disabled, mute, quiet or level; an empty list ends what \
                       was set";
        return Err(FieldError::new("disabled", message));
    }
    let (disabled, mute) = (disabled.unwrap_or_default(), mute.unwrap_or_default());
    at_most("disabled", disabled.len(), DISABLED_MAX)?;
    at_most("mute", mute.len(), MUTES_MAX)?;
    let ids = disabled.into_iter().map(|id| read_name("disabled", Some(id)));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let mut mutes: Vec<Mute> = Vec::new();
    for body in &mute {
        let own = body.read()?;
        if !mutes.contains(&own) {
            mutes.push(own);
        }
    }
    Ok(UserSettings {
        disabled: ids.into_iter().flatten().map(|id| SubscriberId::new(&id)).collect(),
        mute: mutes,
        quiet: read_hours(quiet.unwrap_or_default())?,
        level: level.as_deref().map(|level| read_word::<Activation>("level", level)).transpose()?,
    })
}

fn at_most(field: &'static str, count: usize, max: usize) -> Result<(), FieldError> {
    if count > max { Err(FieldError::new(field, format!("has at most {max} items"))) } else { Ok(()) }
}

fn read_word<T: Words>(field: &'static str, text: &str) -> Result<T, FieldError> {
    T::of_word(text).ok_or_else(|| FieldError::new(field, format!("must be one of {}", T::list())))
}

fn read_hours(parts: Vec<Text<'_>>) -> Result<Hours, FieldError> {
    let always = "is the whole week, so nothing would be delivered";
    let mut hours = Hours::default();
    for part in parts {
        let read = part.parse::<Hours>().map_err(|error| match error {
            HoursError::Always => always,
            HoursError::Form | HoursError::Empty => "has hours like \"22:00-07:00\" and days like \"sat\"",
        });
        hours.extend([read.map_err(|message| FieldError::new("quiet", message))?]);
    }
    if hours.is_always() {
        return Err(FieldError::new("quiet", always));
    }
    Ok(hours)
}

impl MuteBody<'_> {
    fn read(&self) -> Result<Mute, FieldError> {
        let text = |field: &'static str, text: &Option<Text<'_>>| {
            Ok::<_, FieldError>(read_name(field, text.as_deref())?.map(|name| Arc::<str>::from(&*name)))
        };
        let pattern = |text: &Text<'_>| {
            text.parse::<Pattern>()
                .map_err(|error| FieldError::new("mute.types", format!("has no pattern of types: {error}")))
        };
        let condition = |text: &str| match Condition::compile(text) {
            Ok(_) => Ok(text.into()),
            Err(error) => {
                Err(FieldError::new("mute.where", format!("is not an expression: {}", error.message)))
            }
        };
        let mute = Mute {
            subscriber: text("mute.subscriber", &self.subscriber)?.map(|id| SubscriberId::new(&id)),
            types: self.types.iter().flatten().map(pattern).collect::<Result<_, _>>()?,
            source: text("mute.source", &self.source)?,
            tool: text("mute.tool", &self.tool)?,
            condition: self.condition.as_deref().map(condition).transpose()?,
            below: self.below.as_deref().map(|word| read_word::<Priority>("mute.below", word)).transpose()?,
            session: text("mute.session", &self.session)?.map(|id| SessionId::new(&id)),
            workspace: read_workspace("mute.workspace", self.workspace.as_deref())?
                .map(|folder| (*folder).into()),
        };
        if mute.is_empty() {
            let message = "names nothing: a mute has subscriber, types, source, tool, where or below";
            return Err(FieldError::new("mute", message));
        }
        Ok(mute)
    }
}

/// A mute of a subscriber, in a part of the sessions if that is named.
pub fn mute_of(subscriber: &str, session: Option<&str>, workspace: Option<&str>) -> Mute {
    Mute {
        subscriber: Some(SubscriberId::new(subscriber)),
        session: session.map(SessionId::new),
        workspace: workspace.map(Arc::from),
        ..Mute::default()
    }
}

/// The settings of a user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SettingsView {
    /// The user.
    pub user: String,
    /// What the user has switched off.
    #[serde(flatten)]
    #[cfg_attr(test, schema(value_type = Object))]
    pub settings: UserSettings,
    /// The mutes of `aside.toml`, for all users.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schema(value_type = Vec<Object>))]
    pub configured: Vec<Mute>,
}

impl SettingsView {
    /// The number of the mute that a request wrote so, counted from 1, and its words; of the last one if
    /// the daemon wrote it otherwise.
    pub(crate) fn find_mute(&self, written: &serde_json::Value) -> (usize, String) {
        let mutes = &self.settings.mute;
        let own = Mute::deserialize(written).ok();
        let known = own.and_then(|own| mutes.iter().position(|mute| *mute == own));
        let number = known.map_or(mutes.len(), |index| index + 1);
        let words = mutes.get(number.saturating_sub(1)).map(ToString::to_string);
        (number, words.unwrap_or_default())
    }
}

//! The JSON of an exchange: the harness's request and its answer.
//!
//! A misspelt field or one of the wrong type refuses the whole exchange with its name. The
//! journal's record of an exchange (`record`) is parsed by other rules.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    event::{Provenance, SessionId, catalogue::OwnSeverities},
    exchange::{
        Answer, Budget, CarrierEffect, ContextChange, Conversations, Directive, Exchange, Format, Harness,
        InjectionId, Released, Trigger,
    },
    notification::{InjectionPoint, Tokens},
    time::Timestamp,
    wire::{
        FieldError,
        event::{self, Defaults, EventView, ParsedEvent, read_name, read_workspace},
        excerpt,
        fields::{Fields, Unknown, text_of},
        hint,
        views::HarnessView,
    },
};

/// Most events in one exchange: several times the parallel tool calls of a turn.
pub const OBSERVE_MAX: usize = 100;
/// Most acknowledgements in one exchange; there are never more open leases.
pub const ACKS_MAX: usize = 64;

const FIELDS: [&str; 14] = [
    "point",
    "carrier",
    "turn",
    "harness",
    "tool",
    "ack",
    "budget",
    "format",
    "carrier_effect",
    "context",
    "from",
    "shows_notices",
    "trigger",
    "observe",
];
const HARNESS_FIELDS: [&str; 8] =
    ["name", "version", "workspace", "user", "pid", "pid_started", "conversations", "parent"];
const BUDGET_FIELDS: [&str; 3] = ["max_notifications", "max_tokens", "max_chars"];
const CARRIER_EFFECTS: [(&str, CarrierEffect); 3] =
    [("none", CarrierEffect::None), ("continue", CarrierEffect::Continue), ("cancel", CarrierEffect::Cancel)];
const CONTEXTS: [&str; 5] = ["unchanged", "compacted", "resumed", "cleared", "forked"];
const TRIGGERS: [(&str, Trigger); 3] =
    [("agent", Trigger::Agent), ("wake", Trigger::Wake), ("pull", Trigger::Pull)];

/// A requested exchange, with its observed events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeRequest<'a> {
    /// The exchange.
    pub exchange: Exchange,
    /// The observed events, in order of occurrence.
    pub observed: Vec<ParsedEvent<'a>>,
}

impl ExchangeRequest<'_> {
    /// Replaces the address `id`, the harness's own name of its session, with the resolved session.
    pub fn readdress(&mut self, id: &SessionId) {
        let session = &self.exchange.session;
        if session == id {
            return;
        }
        for event in &mut self.observed {
            if event.session.as_deref() == Some(id.as_str()) {
                event.session = Some(session.to_string().into());
            }
        }
    }
}

/// Parses the request of an exchange.
///
/// Shape: an observed event without a session and folder is for `session`; each has `provenance`.
/// Errors: the first invalid field; then the whole exchange is refused.
pub fn parse<'a>(
    body: &'a [u8],
    session: &'a SessionId,
    now: Timestamp,
    provenance: Provenance,
    severities: &'a OwnSeverities,
    new_id: &mut dyn FnMut() -> String,
) -> Result<ExchangeRequest<'a>, FieldError> {
    let text =
        std::str::from_utf8(body).map_err(|error| FieldError::whole(format!("is not UTF-8: {error}")))?;
    let fields = Fields::read(text, &FIELDS, Unknown::Refused)?;
    let exchange = read(&fields, session)?;
    if exchange.harness.parent.as_ref() == Some(session) {
        return Err(FieldError::new("harness.parent", "is the session itself"));
    }
    check_from(&exchange)?;
    let items = fields.items("observe")?;
    check_count("observe", items.len(), OBSERVE_MAX)?;
    let api = Defaults::api(now, provenance, severities);
    let defaults = Defaults { session: Some(session.as_str()), ..api };
    let mut observed = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let parsed = event::parse(item.get().as_bytes(), &defaults, new_id)
            .map_err(|error| error.within(&format!("observe[{index}]")))?;
        observed.push(parsed);
    }
    Ok(ExchangeRequest { exchange, observed })
}

/// Parses all but the observed events.
fn read<const N: usize>(fields: &Fields<'_, N>, session: &SessionId) -> Result<Exchange, FieldError> {
    let harness = fields.raw("harness").map_or_else(
        || Ok(Harness::default()),
        |raw| read_harness(raw.get()).map_err(|error| error.within("harness")),
    )?;
    let budget = fields.raw("budget").map_or_else(
        || Ok(Budget::default()),
        |raw| read_budget(raw.get()).map_err(|error| error.within("budget")),
    )?;
    Ok(Exchange {
        session: session.clone(),
        point: read_point(&fields.required("point")?)?,
        carrier: name(fields, "carrier")?.ok_or_else(|| FieldError::new("carrier", "is missing"))?,
        turn: name(fields, "turn")?,
        harness,
        tool: name(fields, "tool")?,
        acks: read_acks(fields)?,
        budget,
        format: fields.text("format")?.map(|word| read_format(&word)).transpose()?,
        carrier_effect: fields
            .text("carrier_effect")?
            .map_or(Ok(CarrierEffect::default()), |word| read_carrier_effect(&word))?,
        context: read_context(fields, session)?,
        shows_notices: fields.flag("shows_notices")?.unwrap_or(false),
        trigger: fields.text("trigger")?.map_or(Ok(Trigger::default()), |word| read_trigger(&word))?,
    })
}

fn read_trigger(word: &str) -> Result<Trigger, FieldError> {
    let allowed = TRIGGERS.map(|(word, _)| word);
    let found = TRIGGERS.into_iter().find(|(known, _)| *known == word);
    found.map(|(_, trigger)| trigger).ok_or_else(|| wrong_word("trigger", "trigger", word, &allowed))
}

fn read_context<const N: usize>(
    fields: &Fields<'_, N>,
    session: &SessionId,
) -> Result<ContextChange, FieldError> {
    let from = read_name("from", fields.text("from")?)?.map(|id| SessionId::new(&id));
    if from.as_ref() == Some(session) {
        return Err(FieldError::new("from", "is the session itself"));
    }
    let word = fields.text("context")?;
    match (word.as_deref(), from) {
        (Some("cleared"), from) => Ok(ContextChange::Cleared { from }),
        (Some("forked"), from) => Ok(ContextChange::Forked { from }),
        (None | Some("compacted" | "resumed"), Some(_)) => {
            Err(FieldError::new("from", "needs `context` to be `cleared` or `forked`"))
        }
        (None | Some("unchanged"), None) => Ok(ContextChange::Unchanged),
        (Some("compacted"), None) => Ok(ContextChange::Compacted),
        (Some("resumed"), None) => Ok(ContextChange::Resumed),
        (Some(other), _) => Err(wrong_word("context", "change of context", other, &CONTEXTS)),
    }
}

/// Parses the facts about a harness.
fn read_harness(text: &str) -> Result<Harness, FieldError> {
    let fields = Fields::read(text, &HARNESS_FIELDS, Unknown::Refused)?;
    Ok(Harness {
        name: name(&fields, "name")?,
        version: name(&fields, "version")?,
        workspace: read_workspace("workspace", fields.text("workspace")?)?.map(shared),
        user: name(&fields, "user")?,
        pid: fields.count("pid")?,
        pid_started: fields.number("pid_started")?,
        conversations: fields.text("conversations")?.map(|word| read_conversations(&word)).transpose()?,
        parent: read_name("parent", fields.text("parent")?)?.map(|id| SessionId::new(&id)),
    })
}

fn read_conversations(word: &str) -> Result<Conversations, FieldError> {
    let known = Conversations::ALL.into_iter().find(|conversations| conversations.as_str() == word);
    let allowed = Conversations::ALL.map(Conversations::as_str);
    known.ok_or_else(|| wrong_word("conversations", "number of conversations", word, &allowed))
}

/// Refuses a search for a predecessor where a process can have many conversations: it could be
/// another user's.
fn check_from(exchange: &Exchange) -> Result<(), FieldError> {
    let is_unnamed = matches!(
        exchange.context,
        ContextChange::Cleared { from: None } | ContextChange::Forked { from: None }
    );
    if is_unnamed && exchange.harness.conversations != Some(Conversations::OnePerProcess) {
        let message = "is missing: name the session that this one goes on from, or say with `harness.conversations` that \
                       the process `harness.pid` has one at a time";
        return Err(FieldError::new("from", message));
    }
    Ok(())
}

fn read_budget(text: &str) -> Result<Budget, FieldError> {
    let fields = Fields::read(text, &BUDGET_FIELDS, Unknown::Refused)?;
    Ok(Budget {
        max_notifications: fields.count("max_notifications")?,
        max_tokens: fields.count("max_tokens")?.map(Tokens),
        max_chars: fields.count("max_chars")?,
    })
}

fn read_point(word: &str) -> Result<InjectionPoint, FieldError> {
    let allowed = InjectionPoint::ALL.map(InjectionPoint::as_str);
    word.parse().map_err(|_| wrong_word("point", "injection point", word, &allowed))
}

fn read_format(word: &str) -> Result<Format, FieldError> {
    let allowed = Format::ALL.map(Format::as_str);
    word.parse().map_err(|_| wrong_word("format", "format", word, &allowed))
}

fn read_carrier_effect(word: &str) -> Result<CarrierEffect, FieldError> {
    let allowed = CARRIER_EFFECTS.map(|(word, _)| word);
    let found = CARRIER_EFFECTS.into_iter().find(|(known, _)| *known == word);
    found
        .map(|(_, carrier_effect)| carrier_effect)
        .ok_or_else(|| wrong_word("carrier_effect", "effect of a carrier", word, &allowed))
}

fn read_acks<const N: usize>(fields: &Fields<'_, N>) -> Result<Vec<InjectionId>, FieldError> {
    let items = fields.items("ack")?;
    check_count("ack", items.len(), ACKS_MAX)?;
    let read = |(index, raw)| {
        let place = |error: FieldError| FieldError::new(format!("ack[{index}]"), error.message);
        let text = text_of(raw).map_err(|message| place(FieldError::whole(message)))?;
        let id = read_name("ack", Some(text)).map_err(place)?;
        Ok(InjectionId::new(&id.unwrap_or_default()))
    };
    items.into_iter().enumerate().map(read).collect()
}

fn wrong_word(field: &'static str, noun: &str, word: &str, allowed: &[&str]) -> FieldError {
    FieldError::new(field, format!("`{}` is no {noun}; {}", excerpt(word), hint(word, allowed)))
}

fn check_count(field: &'static str, count: usize, count_max: usize) -> Result<(), FieldError> {
    if count > count_max {
        return Err(FieldError::new(field, format!("has {count} items, at most {count_max} are allowed")));
    }
    Ok(())
}

fn name<const N: usize>(fields: &Fields<'_, N>, field: &'static str) -> Result<Option<Arc<str>>, FieldError> {
    Ok(read_name(field, fields.text(field)?)?.map(shared))
}

fn shared(text: Cow<'_, str>) -> Arc<str> {
    text.as_ref().into()
}

/// An exchange in a request and in the journal, which omits the observed events.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Exchange)]
pub struct ExchangeView<'a> {
    /// `turn_start`, `before_tool`, `after_tool`, `turn_end` or `immediate`.
    point: &'static str,
    /// Id of the message that will carry the answer; a repeated id gets the same answer.
    carrier: &'a str,
    /// The harness's name of the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<&'a str>,
    /// The harness; absent fields stay unchanged.
    #[serde(skip_serializing_if = "HarnessView::is_empty")]
    #[schema(required = false)]
    harness: HarnessView,
    /// The tool whose call or result this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    /// Events to publish, at most 100; those without an address are for this session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    observe: Vec<EventView<'a>>,
    /// Injections known to have arrived, at most 64.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ack: Vec<&'a str>,
    /// Limits below the configured ones.
    #[serde(skip_serializing_if = "BudgetFields::is_empty")]
    #[schema(required = false)]
    budget: BudgetFields,
    /// `xml`, `markdown`, `toon`, `json` or `line`; the configured one if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'static str>,
    /// What the carrying message does besides: `continue` when text at `turn_end` makes the agent go on, `cancel` when text at
    /// `before_tool` comes in place of the call; `none` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    carrier_effect: Option<&'static str>,
    /// What happened to the model's context: `compacted`; `resumed` when the conversation goes on with its history; `cleared` when
    /// it is empty and the session replaces another one; `forked` when it is a copy of another one's; `unchanged` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'static str>,
    /// Whose place, or whose copy. If absent, the session that the same process was last heard of in, where `harness` says
    /// that this has one conversation at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    /// Whether the answer may have a `notice` for the user; false if absent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    shows_notices: bool,
    /// `agent` when the agent is at that point; `wake` when a wake requested the exchange: the
    /// session's state then changes only if the answer has an injection, and the exchange confirms
    /// nothing; `agent` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger: Option<&'static str>,
}

/// The limits of an injection.
#[derive(Debug, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = Budget)]
struct BudgetFields {
    /// Most notifications.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_notifications: Option<u32>,
    /// Most estimated tokens, wrapper included.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    /// Most characters, wrapper included.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_chars: Option<u32>,
}

impl BudgetFields {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl<'a> ExchangeView<'a> {
    /// Borrows the parts of `exchange`.
    pub(crate) fn of(exchange: &'a Exchange) -> Self {
        let (context, from) = match &exchange.context {
            ContextChange::Unchanged => (None, None),
            ContextChange::Compacted => (Some("compacted"), None),
            ContextChange::Resumed => (Some("resumed"), None),
            ContextChange::Cleared { from } => (Some("cleared"), from.as_ref()),
            ContextChange::Forked { from } => (Some("forked"), from.as_ref()),
        };
        Self {
            point: exchange.point.as_str(),
            carrier: &exchange.carrier,
            turn: exchange.turn.as_deref(),
            harness: HarnessView::of(&exchange.harness),
            tool: exchange.tool.as_deref(),
            observe: Vec::new(),
            ack: exchange.acks.iter().map(InjectionId::as_str).collect(),
            budget: BudgetFields {
                max_notifications: exchange.budget.max_notifications,
                max_tokens: exchange.budget.max_tokens.map(|tokens| tokens.0),
                max_chars: exchange.budget.max_chars,
            },
            format: exchange.format.map(Format::as_str),
            carrier_effect: match exchange.carrier_effect {
                CarrierEffect::None => None,
                CarrierEffect::Continue => Some("continue"),
                CarrierEffect::Cancel => Some("cancel"),
            },
            context,
            from: from.map(SessionId::as_str),
            shows_notices: exchange.shows_notices,
            trigger: match exchange.trigger {
                Trigger::Agent => None,
                Trigger::Wake => Some("wake"),
                Trigger::Pull => Some("pull"),
            },
        }
    }
}

/// The answer to an exchange.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Answer)]
pub struct AnswerView<'a> {
    /// The injection's short name, to be acknowledged by `ack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    injection: Option<&'a str>,
    /// The text for the agent's context, to be inserted unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// The role of its message: `tool`, `user` or `system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// The notifications in the text, in order.
    notifications: Vec<ReleasedView<'a>>,
    /// A further action requested of the harness.
    #[serde(skip_serializing_if = "Option::is_none")]
    directive: Option<DirectiveView<'a>>,
    /// One line for the user, not for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'a str>,
    /// Number of notifications that stay in the session's queue.
    pending: u32,
    /// Whether to check before the next tool, because something critical is pending.
    check_before_tool: bool,
}

/// One notification of an injection.
#[derive(Debug, Serialize, ToSchema)]
struct ReleasedView<'a> {
    /// Its id.
    id: &'a str,
    /// The subscriber that created it.
    subscriber: &'a str,
    /// `critical`, `high`, `normal` or `low`.
    priority: &'static str,
    /// The worst severity among its events.
    severity: &'static str,
    /// Whether it may have been delivered before.
    redelivered: bool,
}

/// A further action requested of the harness.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum DirectiveView<'a> {
    /// Let the agent continue.
    Continue {
        /// The reason, in one line.
        reason: &'a str,
    },
    /// Replace the call with the text.
    Cancel {
        /// The reason, in one line.
        reason: &'a str,
    },
}

impl<'a> AnswerView<'a> {
    /// The view of `answer`; `None` when there is nothing to deliver and nothing to do.
    pub fn of(answer: &'a Answer) -> Option<Self> {
        if answer.injection.is_none() && answer.directive.is_none() && answer.notice.is_none() {
            return None;
        }
        let injection = answer.injection.as_ref();
        Some(Self {
            injection: injection.map(|injection| injection.id.as_str()),
            text: injection.map(|injection| &*injection.text),
            role: injection.map(|injection| injection.role.as_str()),
            notifications: injection.map_or_else(Vec::new, |injection| {
                injection.notifications.iter().map(ReleasedView::of).collect()
            }),
            directive: answer.directive.as_ref().map(|directive| match directive {
                Directive::Continue { reason } => DirectiveView::Continue { reason },
                Directive::Cancel { reason } => DirectiveView::Cancel { reason },
            }),
            notice: answer.notice.as_deref(),
            pending: answer.pending,
            check_before_tool: answer.check_before_tool,
        })
    }
}

impl<'a> ReleasedView<'a> {
    fn of(released: &'a Released) -> Self {
        Self {
            id: released.id.as_str(),
            subscriber: released.subscriber.as_str(),
            priority: released.priority.as_str(),
            severity: released.severity.as_str(),
            redelivered: released.redelivered,
        }
    }
}

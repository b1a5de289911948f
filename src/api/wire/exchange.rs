//! The JSON of an exchange: the harness's request and its answer.
//!
//! A misspelt field or one of the wrong type refuses the whole exchange with its name. The
//! journal's record of an exchange (`engine::records`) is parsed by other rules. An unknown format is
//! no error: the notifications are worth more than their form.

mod remarks;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use engine::{
    budget::BudgetLeft,
    draft::{Defaults, Draft, SOURCE_DEFAULT},
    event::{OWN_SOURCE, Provenance, SessionId, catalogue::OwnSeverities},
    exchange::{
        Answer, AnswerField, Budget, CarrierEffect, ContextChange, Conversations, Directive, Exchange,
        Harness, InjectionId, NOT_RUN, Released, Role, Trigger,
    },
    notification::{InjectionPoint, Tokens},
    request::{
        self, AtMost, FieldError, Text,
        names::{checked_name, read_name},
    },
};
use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::api::wire::{harness::HarnessBody, read_text};

#[cfg(test)]
use crate::api::wire::{event::EventView, harness::HarnessView};
pub use remarks::{KnownFacts, join, of_answer, of_request};

/// Most events in one exchange: several times the parallel tool calls of a turn.
pub const OBSERVE_MAX: usize = 100;
/// Most acknowledgements in one exchange; there are never more open leases.
pub const ACKS_MAX: usize = 64;
/// Most calls in one exchange whose results the model has.
pub const KNOWN_CALLS_MAX: usize = OBSERVE_MAX;
/// Most formats in one exchange; there are fewer.
pub const FORMATS_MAX: usize = 32;

/// A requested exchange, with its observed events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeRequest<'a> {
    /// The exchange.
    pub exchange: Exchange,
    /// The observed events, in order of occurrence.
    pub observed: Vec<Draft<'a>>,
    /// The indices of those without a source.
    unsourced: Vec<usize>,
    /// The fields with an unknown format or API.
    pub unknown: Vec<FieldError>,
}

impl ExchangeRequest<'_> {
    /// Whether an observed event depends on a property of the session that the request does not
    /// give: its harness, or its folder.
    pub fn needs_known_session(&self) -> bool {
        let Harness { name, workspace, .. } = &self.exchange.harness;
        !self.observed.is_empty() && (name.is_none() || workspace.is_none())
    }

    /// Sets the source of the observed events that have none: the harness of the request, else
    /// `known`, the harness of the session, else the API's own name.
    pub fn set_sources(&mut self, known: Option<&str>) {
        let name = self.exchange.harness.name.as_deref().or(known).unwrap_or(SOURCE_DEFAULT);
        for index in &self.unsourced {
            if let Some(event) = self.observed.get_mut(*index) {
                event.set_source(name);
            }
        }
    }

    /// Adds the calls of the observed failures to those whose results the model has: the harness
    /// has each result, and adds it to the messages. A critical failure is delivered all the same.
    fn know_own_calls(&mut self) {
        let session = self.exchange.session.clone();
        let own = self.observed.iter().map(Draft::as_event);
        for event in own.filter(|event| event.session == Some(session.as_str())) {
            let call = remarks::failed_call(&event);
            if let Some(call) = call.filter(|call| !self.exchange.known_calls.contains(call)) {
                self.exchange.known_calls.push(call);
            }
        }
    }

    /// Replaces the address `id`, the harness's own name of its session, with the resolved session.
    pub fn readdress(&mut self, id: &SessionId) {
        let session = &self.exchange.session;
        if session == id {
            return;
        }
        for event in &mut self.observed {
            if event.as_event().session == Some(id.as_str()) {
                event.address_to(session.as_str());
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
    let mut request: ExchangeBody<'a> = request::read_body(body)?;
    let observe = request.observe.take();
    let (exchange, unknown) = request.into_exchange(session)?;
    let items = checked_count("observe", observe)?;
    let api = Defaults::api(now, provenance, severities);
    // No event can have an empty source, so this marks those without one.
    let defaults = Defaults { session: Some(session.as_str()), source: "", ..api };
    let mut observed = Vec::with_capacity(items.len());
    let mut unsourced = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let parsed = Draft::read(item.get().as_bytes(), &defaults, new_id)
            .map_err(|error| error.within(&format!("observe[{index}]")))?;
        if parsed.as_event().source.is_empty() {
            unsourced.push(index);
        }
        observed.push(parsed);
    }
    let mut request = ExchangeRequest { exchange, observed, unsourced, unknown };
    request.set_sources(None);
    request.know_own_calls();
    Ok(request)
}

/// An exchange in a request.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, schema(as = Exchange))]
pub(crate) struct ExchangeBody<'a> {
    /// `turn_start`, `before_tool`, `after_tool`, `turn_end` or `immediate`.
    #[serde(deserialize_with = "request::word")]
    #[cfg_attr(test, schema(value_type = String))]
    point: InjectionPoint,
    /// Id of the message that will carry the answer; a repeated id gets the same answer.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = String))]
    carrier: Text<'a>,
    /// The harness's name of the turn.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    turn: Option<Text<'a>>,
    /// The harness's name of the step, a text or a whole number: one call of the model in the turn,
    /// another one once the model has answered. Another step confirms what this one released.
    #[serde(borrow, default, deserialize_with = "request::text_or_number")]
    #[cfg_attr(test, schema(value_type = Option<StepView>))]
    step: Option<Text<'a>>,
    /// The harness; absent fields stay unchanged.
    #[serde(default, deserialize_with = "request::object")]
    #[cfg_attr(test, schema(value_type = Option<HarnessView>))]
    harness: Option<HarnessBody>,
    /// The tool whose call or result this is about.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    tool: Option<Text<'a>>,
    /// Events to publish, at most 100; those without an address are for this session.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Vec<EventView>>))]
    observe: Option<AtMost<&'a RawValue, OBSERVE_MAX>>,
    /// Injections known to have arrived, at most 64.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Vec<String>>))]
    ack: Option<AtMost<Text<'a>, ACKS_MAX>>,
    /// Ids of calls whose results the model has, at most 100. A `tool.call.failure` or
    /// `tool.call.timeout` with such a `call_id` is counted, and not delivered to this session.
    /// Those of `observe` are added.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Vec<String>>))]
    known_calls: Option<AtMost<Text<'a>, KNOWN_CALLS_MAX>>,
    /// Limits below the configured ones.
    #[serde(default, deserialize_with = "request::object")]
    budget: Option<BudgetBody>,
    /// A format of `GET /v1/formats`; if absent or unknown, the first known one of `formats`, else the
    /// configured one.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    format: Option<Text<'a>>,
    /// The formats that the harness can place, best first, at most 32; the first known one holds for
    /// the exchanges of this session that name none.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<Vec<String>>))]
    formats: Option<AtMost<Text<'a>, FORMATS_MAX>>,
    /// The API of the model: `chat`, `responses`, `anthropic` or `gemini`. It holds for this session;
    /// `chat` if absent or unknown.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    dialect: Option<Text<'a>>,
    /// What the carrying message does besides: `continue` when text at `turn_end` makes the agent
    /// go on, `cancel` when text at `before_tool` comes in place of the call; `none` if absent.
    #[serde(default, deserialize_with = "request::optional_word")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    carrier_effect: Option<CarrierEffect>,
    /// What happened to the model's context: `compacted`; `resumed` when the conversation goes on
    /// with its history; `cleared` when it is empty and the session replaces another one; `forked`
    /// when it is a copy of another one's; `unchanged`. If absent, `resumed` when another process
    /// (`harness.pid` and its start) continues the session, else `unchanged`.
    #[serde(default, deserialize_with = "request::optional_word")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    context: Option<ContextWord>,
    /// The session that this one replaces or is a copy of. If absent, the session in which the same
    /// process was last active, if `harness` states that the process has one conversation at a
    /// time.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    from: Option<Text<'a>>,
    /// Whether the answer may have a `notice` for the user; false if absent.
    shows_notices: Option<bool>,
    /// `agent` when the agent is at that point. `wake` when a wake requested the exchange: the
    /// session's state then changes only if the answer has an injection. `pull` when the agent
    /// requests everything that is pending: the session's state does not change. After `wake` and
    /// `pull` nothing is confirmed. `agent` if absent.
    #[serde(default, deserialize_with = "request::optional_word")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    trigger: Option<Trigger>,
}

/// The name of a step.
#[cfg(test)]
#[derive(utoipa::ToSchema)]
#[schema(as = Step)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes the field in the API's document")]
enum StepView {
    Number(i64),
    Text(String),
}

/// The limits of an injection.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, schema(as = Budget))]
struct BudgetBody {
    /// Most notifications.
    max_notifications: Option<u32>,
    /// Most estimated tokens, wrapper included.
    max_tokens: Option<u32>,
    /// Most characters, wrapper included.
    max_chars: Option<u32>,
}

/// The words of [`ContextChange`]; the session that it names is a separate field.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ContextWord {
    Unchanged,
    Compacted,
    Resumed,
    Cleared,
    Forked,
}

impl ExchangeBody<'_> {
    /// The exchange of `session`, without the observed events, and its fields with an unknown format
    /// or API.
    fn into_exchange(self, session: &SessionId) -> Result<(Exchange, Vec<FieldError>), FieldError> {
        let mut unknown = Vec::new();
        let format = remarks::known_word("format", self.format, &mut unknown);
        let formats = checked_count("formats", self.formats)?;
        let from = read_name("from", self.from)?.map(|id| SessionId::new(&id));
        let harness = self.harness.map(Harness::try_from).transpose();
        let mut harness = harness.map_err(|error| error.within("harness"))?.unwrap_or_default();
        harness.format = remarks::first_known(&formats, &mut unknown);
        harness.dialect = remarks::known_word("dialect", self.dialect, &mut unknown);
        let exchange = Exchange {
            session: session.clone(),
            point: self.point,
            carrier: checked_name("carrier", self.carrier)?.as_ref().into(),
            turn: read_text("turn", self.turn)?,
            step: read_text("step", self.step)?,
            harness,
            tool: read_text("tool", self.tool)?,
            acks: read_names("ack", self.ack)?.map(|id| InjectionId::new(&id)).collect(),
            known_calls: read_names("known_calls", self.known_calls)?.map(|id| id.as_ref().into()).collect(),
            budget: self.budget.unwrap_or_default().into(),
            format,
            carrier_effect: self.carrier_effect.unwrap_or_default(),
            context: change_of(self.context, from)?,
            shows_notices: self.shows_notices.unwrap_or_default(),
            trigger: self.trigger.unwrap_or_default(),
        };
        check_sessions(&exchange)?;
        Ok((exchange, unknown))
    }
}

fn change_of(word: Option<ContextWord>, from: Option<SessionId>) -> Result<ContextChange, FieldError> {
    match (word, from) {
        (Some(ContextWord::Cleared), from) => Ok(ContextChange::Cleared { from }),
        (Some(ContextWord::Forked), from) => Ok(ContextChange::Forked { from }),
        (None | Some(ContextWord::Unchanged | ContextWord::Compacted | ContextWord::Resumed), Some(_)) => {
            Err(FieldError::new("from", "needs `context` to be `cleared` or `forked`"))
        }
        (None, None) => Ok(ContextChange::Unstated),
        (Some(ContextWord::Unchanged), None) => Ok(ContextChange::Unchanged),
        (Some(ContextWord::Compacted), None) => Ok(ContextChange::Compacted),
        (Some(ContextWord::Resumed), None) => Ok(ContextChange::Resumed),
    }
}

/// Refuses an exchange that names its own session as another one's, and a search for a predecessor
/// where a process can have many conversations: it could be another user's.
fn check_sessions(exchange: &Exchange) -> Result<(), FieldError> {
    if exchange.context.origin() == Some(&exchange.session) {
        return Err(FieldError::new("from", "is the session itself"));
    }
    if exchange.harness.parent.as_ref() == Some(&exchange.session) {
        return Err(FieldError::new("harness.parent", "is the session itself"));
    }
    let is_unnamed = matches!(
        exchange.context,
        ContextChange::Cleared { from: None } | ContextChange::Forked { from: None }
    );
    if is_unnamed && exchange.harness.conversations != Some(Conversations::OnePerProcess) {
        let message = "is missing: name the predecessor session, or set `harness.conversations` if the process \
                       `harness.pid` has one conversation at a time";
        return Err(FieldError::new("from", message));
    }
    Ok(())
}

impl From<BudgetBody> for Budget {
    fn from(body: BudgetBody) -> Self {
        let BudgetBody { max_notifications, max_tokens, max_chars } = body;
        Self { max_notifications, max_tokens: max_tokens.map(Tokens), max_chars }
    }
}

fn read_names<'a, const MAX: usize>(
    field: &'static str,
    list: Option<AtMost<Text<'a>, MAX>>,
) -> Result<impl Iterator<Item = Cow<'a, str>> + use<'a, MAX>, FieldError> {
    let items = checked_count(field, list)?;
    let read = |(index, text)| {
        checked_name(field, text).map_err(|error| FieldError::new(format!("{field}[{index}]"), error.message))
    };
    let names: Vec<Cow<'a, str>> = items.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(names.into_iter())
}

fn checked_count<T, const MAX: usize>(
    field: &'static str,
    list: Option<AtMost<T, MAX>>,
) -> Result<Vec<T>, FieldError> {
    match list {
        Some(AtMost { count, .. }) if count > MAX => {
            Err(FieldError::new(field, format!("has {count} items, at most {MAX} are allowed")))
        }
        list => Ok(list.map(|list| list.items).unwrap_or_default()),
    }
}

/// The answer to an exchange.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[cfg_attr(test, schema(as = Answer))]
pub struct AnswerView<'a> {
    /// The injection's short name, to be acknowledged by `ack`.
    #[serde(skip_serializing_if = "Option::is_none")]
    injection: Option<&'a str>,
    /// The format of the injection.
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<&'static str>,
    /// The text for the agent's context, to be inserted unchanged. With the directive `cancel` every
    /// injection is a text, which begins with a sentence that the call was not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// The message for the list of messages, instead of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    message: Option<&'a RawValue>,
    /// The block for the content of a message, instead of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Object>))]
    block: Option<&'a RawValue>,
    /// The messages for the list of messages, instead of a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<Vec<Object>>))]
    messages: Option<&'a RawValue>,
    /// The role of the message for a text: `tool`, `user` or `system`.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// `aside` if the turn that begins with this text was asked for by aside: nobody else began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_by: Option<&'static str>,
    /// The notifications in the text, in order.
    notifications: Vec<ReleasedView<'a>>,
    /// A further action requested of the harness.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<DirectiveView>))]
    directive: Option<&'a Directive>,
    /// One line for the user, not for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'a str>,
    /// What the texts are, for the model's instructions; with the first text of a context.
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    /// One line for the developer, not for the agent: the fields of the request that had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice_to_developer: Option<&'a str>,
    /// What is left of the budgets after this text, in tokens; absent without a text, and for a budget
    /// that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<BudgetLeftView>))]
    budget_left: Option<BudgetLeft>,
    /// Number of notifications that stay in the session's queue.
    pending: u32,
    /// Whether to check before the next tool, because something critical is pending.
    check_before_tool: bool,
}

/// What is left of the budgets, in tokens.
#[cfg(test)]
#[derive(utoipa::ToSchema)]
#[schema(as = BudgetLeft)]
#[expect(dead_code, reason = "it describes a `BudgetLeft` in the API's document")]
struct BudgetLeftView {
    /// Of the turn's.
    turn: Option<u32>,
    /// Of the hour's.
    hour: Option<u32>,
}

/// One notification of an injection.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
struct ReleasedView<'a> {
    /// Its id.
    id: &'a str,
    /// The subscriber that created it.
    subscriber: &'a str,
    /// `critical`, `high`, `normal` or `low`.
    priority: &'a str,
    /// The worst severity among its events.
    severity: &'a str,
    /// Whether it may have been delivered before.
    redelivered: bool,
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

/// A further action requested of the harness.
#[cfg(test)]
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes a `Directive` in the API's document")]
enum DirectiveView {
    /// Let the agent continue.
    Continue {
        /// The reason, in one line.
        reason: String,
    },
    /// Replace the call with the text.
    Cancel {
        /// The reason, in one line.
        reason: String,
    },
}

impl<'a> AnswerView<'a> {
    /// The view of `answer`; `None` when there is nothing to deliver and nothing to do.
    ///
    /// Shape: `instructions` are shown with the first text of a context.
    pub fn of(
        answer: &'a Answer,
        instructions: Option<&'a str>,
        notice_to_developer: Option<&'a str>,
    ) -> Option<Self> {
        if answer.injection.is_none() && answer.directive.is_none() && answer.notice.is_none() {
            return None;
        }
        let injection = answer.injection.as_ref();
        let is_result = matches!(answer.directive, Some(Directive::Cancel { .. }));
        let field = injection
            .map(|injection| injection.format.field())
            .filter(|_| !is_result)
            .unwrap_or(AnswerField::Text);
        let carrier = injection.map(|injection| &*injection.text).or(is_result.then_some(NOT_RUN));
        let of = |wanted| carrier.filter(|_| field == wanted);
        let json = |wanted| of(wanted).and_then(|json| serde_json::from_str(json).ok());
        Some(Self {
            injection: injection.map(|injection| injection.id.as_str()),
            format: injection.map(|injection| injection.format.as_str()),
            text: of(AnswerField::Text),
            message: json(AnswerField::Message),
            block: json(AnswerField::Block),
            messages: json(AnswerField::Messages),
            role: of(AnswerField::Text)
                .map(|_| injection.map_or(Role::System, |injection| injection.role).as_str()),
            started_by: injection.and_then(|injection| started_by(injection.starts_turn)),
            notifications: injection
                .iter()
                .flat_map(|injection| injection.notifications.iter().map(ReleasedView::of))
                .collect(),
            directive: answer.directive.as_ref(),
            notice: answer.notice.as_deref(),
            instructions: instructions.filter(|_| answer.is_first_text),
            notice_to_developer,
            budget_left: answer.budget_left,
            pending: answer.pending,
            check_before_tool: answer.check_before_tool,
        })
    }
}

/// Who began the turn of an injection, if it was not the user.
pub(crate) fn started_by(starts_turn: bool) -> Option<&'static str> {
    starts_turn.then_some(OWN_SOURCE)
}

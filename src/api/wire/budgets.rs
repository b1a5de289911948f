//! What is used of the budgets, in the status.

use engine::budget::{SessionUsage, SourceUsage, Usage};
use serde::{Deserialize, Serialize};

use crate::api::wire::is_zero;

/// Most sessions that the status lists: those that have used most of the hour.
const SESSIONS_MAX: usize = 100;

/// What is used of the budgets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct BudgetsView {
    /// The open sessions that have used any, those with most of the hour first; at most 100.
    pub sessions: Vec<SessionBudgetView>,
    /// The budgets of sources of which something is used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceBudgetView>,
    /// How many sessions are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub others: usize,
}

/// What a session used of its budgets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SessionBudgetView {
    /// The session.
    pub session: String,
    /// Of its turn's.
    pub turn: UsageView,
    /// Of its hour's, which drains evenly.
    pub hour: UsageView,
    /// In all.
    pub total: UsageView,
    /// Of those of subscribers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subscribers: Vec<SubscriberBudgetView>,
}

/// What a session used of the budget of a subscriber.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SubscriberBudgetView {
    /// The subscriber.
    pub subscriber: String,
    /// What is used.
    pub usage: UsageView,
}

/// What the sessions of a user used of the budget of a source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SourceBudgetView {
    /// The name in `[budget] sources`.
    pub source: String,
    /// The user, if the sessions name one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// What is used.
    pub usage: UsageView,
}

/// What is used of a budget, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(default)]
pub struct UsageView {
    /// What is used; critical notifications may use more than there is.
    pub used: u64,
    /// Its size; absent if it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
}

impl From<Usage> for UsageView {
    fn from(Usage { used, size }: Usage) -> Self {
        Self { used, of: size.map(|size| size.0) }
    }
}

impl BudgetsView {
    /// The view of what sessions and the users' sources used.
    pub(crate) fn new(
        sessions: Vec<(engine::event::SessionId, SessionUsage)>,
        sources: Vec<SourceUsage>,
    ) -> Self {
        let view = |(session, usage): (engine::event::SessionId, SessionUsage)| SessionBudgetView {
            session: session.as_str().to_owned(),
            turn: usage.turn.into(),
            hour: usage.hour.into(),
            total: usage.session.into(),
            subscribers: usage
                .subscribers
                .into_iter()
                .map(|(id, usage)| SubscriberBudgetView { subscriber: id.to_string(), usage: usage.into() })
                .collect(),
        };
        let mut sessions: Vec<SessionBudgetView> = sessions.into_iter().map(view).collect();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.hour.used));
        let others = sessions.len().saturating_sub(SESSIONS_MAX);
        sessions.truncate(SESSIONS_MAX);
        let source = |SourceUsage { source, user, usage }: SourceUsage| SourceBudgetView {
            source: source.to_string(),
            user: user.to_string(),
            usage: usage.into(),
        };
        Self { sessions, sources: sources.into_iter().map(source).collect(), others }
    }
}
